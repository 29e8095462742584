//! A back end of rust-vmm that executes requests: it answers each with its bytes plus one.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use vhost::vhost_user::Listener;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackend, VhostUserDaemon, VringRwLock, VringT};
use virtio_queue::{DescriptorChain, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use super::scripted::PROTOCOL;
use super::*;
use crate::virtio::device::TRANSPORT_FEATURES;
use crate::virtio::ring::QUEUE_SIZE;

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// What the back end does, and what it has seen.
pub struct Adder {
    queues: usize,
    memory: Mutex<Option<Memory>>,
    /// What identifies the event by which it has interrupted the guest last.
    pub interrupted_by: Mutex<String>,
}

impl Adder {
    fn answer(&self, vring: &VringRwLock) -> io::Result<()> {
        let Some(memory) = self.memory.lock().as_ref().map(GuestMemoryAtomic::memory) else {
            return Ok(());
        };
        if !vring.get_ref().get_queue().ready() {
            return Ok(());
        }
        let mut state = vring.get_mut();
        let chains = state.get_queue_mut().iter(&*memory);
        let chains: Vec<_> = chains.map_err(io::Error::other)?.collect();
        drop(state);
        for chain in chains {
            let head = chain.head_index();
            let written = add(&memory, chain)?;
            vring.add_used(head, written).map_err(io::Error::other)?;
            if let Some(call) = vring.get_ref().get_call() {
                *self.interrupted_by.lock() = event_id(call.as_raw_fd());
            }
            vring.signal_used_queue()?;
        }
        Ok(())
    }
}

/// Writes the bytes of the readable buffers, plus one, to the writable ones; returns how many.
fn add(memory: &GuestMemoryMmap, chain: DescriptorChain<&GuestMemoryMmap>) -> io::Result<u32> {
    let (mut bytes, mut written) = (Vec::new(), 0);
    for part in chain {
        let mut buffer = vec![0; part.len() as usize];
        if part.is_write_only() {
            let next: Vec<u8> = bytes.drain(..buffer.len().min(bytes.len())).collect();
            memory
                .write_slice(&next, part.addr())
                .map_err(io::Error::other)?;
            written += next.len() as u32;
        } else {
            memory
                .read_slice(&mut buffer, part.addr())
                .map_err(io::Error::other)?;
            bytes.extend(buffer.iter().map(|byte| byte + 1));
        }
    }
    Ok(written)
}

impl VhostUserBackend for Adder {
    type Bitmap = ();
    type Vring = VringRwLock;

    fn num_queues(&self) -> usize {
        self.queues
    }
    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE.into()
    }
    fn features(&self) -> u64 {
        TRANSPORT_FEATURES | FEATURE | PROTOCOL
    }
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK
    }
    fn set_event_idx(&self, _: bool) {}
    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        *self.memory.lock() = Some(memory);
        Ok(())
    }
    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        Some(new_event_consumer_and_notifier(EventFlag::NONBLOCK).unwrap())
    }
    fn handle_event(
        &self,
        queue: u16,
        _: EventSet,
        vrings: &[VringRwLock],
        _: usize,
    ) -> io::Result<()> {
        self.answer(&vrings[usize::from(queue)])
    }
}

/// The back end with its threads; they end when it is dropped.
pub struct Daemon {
    pub adder: Arc<Adder>,
    _daemon: VhostUserDaemon<Arc<Adder>>,
}

/// Returns a back end with so many queues, and a machine with a device that it serves.
pub fn machine_with_daemon(queues: u16) -> (Daemon, Machine) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("causeway-vhost-user-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut listener = Listener::from(UnixListener::bind(&path).unwrap());
    let stream = UnixStream::connect(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let adder = Arc::new(Adder {
        queues: queues.into(),
        memory: Mutex::default(),
        interrupted_by: Mutex::default(),
    });
    let none = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let mut daemon = VhostUserDaemon::new("adder".to_owned(), Arc::clone(&adder), none).unwrap();
    daemon.start(&mut listener).unwrap();
    let process = DeviceProcess::connect(stream, description(queues, PATIENCE), Box::new(()));
    let daemon = Daemon {
        adder,
        _daemon: daemon,
    };
    (daemon, machine(process.unwrap()))
}
