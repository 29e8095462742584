//! Attacks the header page of a ring, which the guest can write at any time.

use causeway_guests::{Required, refused};
use causeway_protocol::message::{self, MemoryKind, Status};
use causeway_protocol::ring::{self, CONSUMER, FAULT_POSITION, FAULT_STATUS, PRODUCER, WAKE};
use causeway_shim::{Access, AddressSpace, Allocation, CpuMapping, Device, operation};

use crate::target::{Target, works};

/// A command buffer without the shim's producer: the attack writes its words itself.
struct Bare<'d> {
    device: &'d Device<'d>,
    handle: u32,
    doorbell: u32,
    ring: CpuMapping<'d>,
    _memory: Allocation<'d>,
}

impl<'d> Bare<'d> {
    fn new(device: &'d Device<'d>, space: &AddressSpace<'d>) -> Self {
        let length = ring::ring_bytes(256);
        let memory = device.allocate(length, MemoryKind::Host).required("memory");
        let ring = memory
            .map_cpu(0, length, Access::ReadWrite)
            .required("mapping");
        let request = message::CreateCommandBuffer {
            space: space.handle(),
            allocation: memory.handle(),
            offset: 0,
            length,
        };
        let reply = device.call::<operation::CreateCommandBuffer>(&request);
        let reply = reply.required("a command buffer");
        Self {
            device,
            handle: reply.handle,
            doorbell: reply.doorbell,
            ring,
            _memory: memory,
        }
    }

    fn store(&self, word: usize, value: u64) {
        self.ring
            .store_release(word, value)
            .required("a word of the header page");
    }

    fn load(&self, word: usize) -> u64 {
        self.ring
            .load_acquire(word)
            .required("a word of the header page")
    }

    fn ring_doorbell(&self) {
        self.device.transport().ring_doorbell(self.doorbell);
    }

    /// Waits for a fault of the command buffer.
    fn fault(&self) -> u64 {
        loop {
            match self.load(FAULT_STATUS) {
                0 => core::hint::spin_loop(),
                status => return status,
            }
        }
    }
}

impl Drop for Bare<'_> {
    fn drop(&mut self) {
        let request = message::HandleRequest {
            handle: self.handle,
            reserved: 0,
        };
        // The command buffer may be gone with its session.
        let _ = self
            .device
            .call::<operation::DestroyCommandBuffer>(&request);
    }
}

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    for position in [257, 1 << 20, 1 << 32, 1 << 63, u64::MAX] {
        let commands = Bare::new(&device, &space);
        commands.store(PRODUCER, position);
        commands.ring_doorbell();
        assert_eq!(
            commands.fault(),
            Status::BadPosition as u64,
            "position {position:#x}"
        );
        assert_eq!(commands.load(FAULT_POSITION), 0);
        target.survived();
    }
    backwards(target, &device, &space);
    scribbled(target, &device, &space);
    freed_under_the_device(target, &device, &space);
    assert!(
        !device.is_lost(),
        "impossible positions must not cost the session"
    );
    works(&device, &space, "impossible positions");
}

fn nops(commands: &Bare<'_>) {
    for unit in 0..256 {
        let at = ring::HEADER_BYTES as usize + unit * 64;
        commands.ring.store_u64(at, 1 | 1 << 32).required("a unit");
    }
}

fn backwards(target: &mut Target, device: &Device<'_>, space: &AddressSpace<'_>) {
    // The types need one lifetime for a device and its objects; here both are the same.
    let commands = Bare::new(device, space);
    nops(&commands);
    commands.store(PRODUCER, 100);
    commands.ring_doorbell();
    while commands.load(CONSUMER) != 100 {
        core::hint::spin_loop();
    }
    commands.store(PRODUCER, 99);
    commands.ring_doorbell();
    assert_eq!(
        commands.fault(),
        Status::BadPosition as u64,
        "a position that goes back"
    );
    assert_eq!(commands.load(FAULT_POSITION), 100);
    target.survived();
}

/// Overwrites the words that the host writes: the host must not trust them.
fn scribbled(target: &mut Target, device: &Device<'_>, space: &AddressSpace<'_>) {
    for value in [0, 1, 7, 1 << 40, u64::MAX] {
        let commands = Bare::new(device, space);
        nops(&commands);
        for word in [CONSUMER, WAKE, FAULT_POSITION] {
            commands.store(word, value);
        }
        commands.store(PRODUCER, 200);
        commands.ring_doorbell();
        while commands.load(CONSUMER) != 200 {
            core::hint::spin_loop();
        }
        assert_eq!(commands.load(FAULT_STATUS), 0, "scribbling {value:#x}");
        target.survived();
    }
}

/// Frees the memory of a ring while the device reads it.
fn freed_under_the_device<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
) {
    for _ in 0..20 {
        let commands = Bare::new(device, space);
        nops(&commands);
        commands.store(PRODUCER, 256);
        commands.ring_doorbell();
        let handle = commands._memory.handle();
        let free = message::HandleRequest {
            handle,
            reserved: 0,
        };
        device
            .call::<operation::Free>(&free)
            .required("freeing the ring");
        refused(
            "freeing it twice",
            device.call::<operation::Free>(&free),
            Status::BadHandle,
        );
        target.survived();
    }
}
