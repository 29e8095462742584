//! Workers that their guests have taken over: what they send is anything.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use causeway_mediator::{GuestSession, OpenError, Quota};
use causeway_mediator_testing::{Batch, FakeHost};
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::message::{Empty, Opcode};
use rustix::net::{RecvFlags, SendFlags};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromZeros, IntoBytes};

use super::rig::{program, started_as_program};
use crate::Workers;
use crate::socket::{Socket, buffer};
use crate::wire::{Executed, Head, Kind, MAGIC, Started, VERSION};

/// Numbers that are random enough, and the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // Vigna's xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Mostly numbers that somebody may have meant.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => u64::MAX - self.below(2 * 4096),
            2 => self.below(8) << 12,
            3 => 1 << self.below(64),
            _ => self.below(4),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let words = self.below(20);
        let mut bytes: Vec<u8> = (0..words)
            .flat_map(|_| self.number().to_le_bytes())
            .collect();
        if self.below(8) == 0 {
            bytes.truncate(self.below(160) as usize);
        }
        bytes
    }

    fn descriptor(&mut self) -> OwnedFd {
        match self.below(5) {
            0 => {
                let event = EventFd::new(0).unwrap();
                crate::event::descriptor(&event)
                    .try_clone_to_owned()
                    .unwrap()
            }
            1 => std::io::pipe().unwrap().0.into(),
            2 => std::fs::File::open("/dev/null").unwrap().into(),
            _ => {
                let bytes = 4096 << self.below(30);
                let memory = SharedMemory::new("any", bytes, PageSize::Small).unwrap();
                memory.file().try_clone_to_owned().unwrap()
            }
        }
    }
}

/// The kind and size of every call, so that most pass the first check.
const CALLS: [(Kind, usize, usize); 11] = [
    (Kind::Place, 32, 1),
    (Kind::SetAccess, 16, 0),
    (Kind::Remove, 8, 0),
    (Kind::BindDoorbell, 16, 2),
    (Kind::UnbindDoorbell, 8, 0),
    (Kind::Publish, 40, 1),
    (Kind::Fetch, 40, 0),
    (Kind::Register, 48, 0),
    (Kind::Forget, 48, 0),
    (Kind::Withdraw, 32, 0),
    (Kind::Raise, 8, 0),
];

/// Sends something, and takes what comes back.
fn provoke(random: &mut Random, socket: &Socket, room: &mut [u8]) {
    if random.below(200) == 0 {
        // Not even a head.
        let _ = rustix::net::send(socket, &random.bytes(), SendFlags::NOSIGNAL);
        return;
    }
    let (kind, bytes, files) = CALLS[random.below(11) as usize];
    let mut body: Vec<u8> = (0..bytes / 8)
        .flat_map(|_| random.number().to_le_bytes())
        .collect();
    if random.below(100) == 0 {
        body = random.bytes();
    }
    let files = if random.below(100) == 0 {
        random.below(4) as usize
    } else {
        files
    };
    let files: Vec<OwnedFd> = (0..files).map(|_| random.descriptor()).collect();
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if socket.send(kind, &[&body], &files).is_ok() {
        let _ = socket.receive(room);
    }
}

/// No test, but what the test below starts: a worker that does anything but its work.
#[test]
fn hostile_worker() {
    let Some((_, seed)) = started_as_program() else {
        return;
    };
    let mut random = Random(seed.parse().unwrap());
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let control = Socket::from_descriptor(input);
    let mut room = buffer();
    let mut start = control.receive(&mut room).unwrap();
    let spare = Socket::from_descriptor(start.descriptors.swap_remove(0));
    let mut started = Started::new_zeroed();
    started.granularity_bytes = 4096;
    let mut channels = Vec::new();
    control
        .send(Kind::Started, &[started.as_bytes(), b"any"], &[])
        .unwrap();
    for _ in 0..random.below(100) {
        provoke(&mut random, &spare, &mut room);
    }
    while let Ok(mut datagram) = control.receive(&mut room) {
        if datagram.kind != Kind::NewChannel {
            continue;
        }
        channels.push(Socket::from_descriptor(datagram.descriptor().unwrap()));
        let channel = &channels[channels.len() - 1];
        let bytes = channel
            .receive(&mut room)
            .map(|request| request.bytes.len());
        for _ in 0..random.below(300) {
            provoke(&mut random, channel, &mut room);
        }
        let reply = vec![0xff; bytes.unwrap_or(0)];
        match random.below(4) {
            0 => drop(channels.pop()),
            1 => {
                let head = Head {
                    magic: MAGIC,
                    version: VERSION,
                    kind: random.next() as u16,
                };
                let _ = rustix::net::send(channel, head.as_bytes(), SendFlags::NOSIGNAL);
            }
            2 => {
                let executed = Executed {
                    status: random.below(3) as u32,
                    reserved: 0,
                };
                let _ = channel.send(Kind::Executed, &[executed.as_bytes(), &reply], &[]);
            }
            // Asks without end, until it is killed for it.
            _ => loop {
                provoke(&mut random, channel, &mut room);
                if rustix::net::recv(channel, &mut *room, RecvFlags::DONTWAIT | RecvFlags::PEEK)
                    .is_ok_and(|(bytes, _)| bytes == 0)
                {
                    break;
                }
            },
        }
    }
}

#[test]
fn nothing_that_a_worker_sends_harms_the_vmm() {
    let mut sessions = 0;
    for seed in 1..=24_u64 {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let program = program("hostile::hostile_worker", &seed.to_string());
        let workers = Workers::new(&program, None).unwrap();
        let host = FakeHost::new(1 << 20, 64 << 20).unwrap();
        let opened = workers.open_worker(Arc::clone(&host) as _, Quota::default(), "test");
        let session = match opened {
            Ok(session) => session,
            // It was killed before it had its first channel, for what it had asked for until then.
            Err(OpenError::Ended { .. }) => {
                assert!(host.placements().is_empty() && host.doorbells().is_empty());
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        sessions += 1;
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                let mut batch = Batch::new();
                batch.push(Opcode::CreateSpace, &Empty {}).run(&session);
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
            session.halt();
            caller.join().unwrap();
        });
        session.status_bits();
        session.report();
        session.close();
        assert!(host.placements().is_empty() && host.doorbells().is_empty());
    }
    assert_ne!(sessions, 0);
}
