//! The mechanism of trapping: each access to the device's memory and registers is an exit.

use causeway_bare::device_memory;
use causeway_bench_workloads::host_interface::{forward::pair, trap as wire};
use causeway_bench_workloads::{Kernel, Mechanism, Shape};
use causeway_guests::Required;
use causeway_shim::Window;

/// The device whose accesses trap.
pub struct Trap {
    memory: Window,
    registers: Window,
    launched: u64,
    busy: bool,
}

/// Memory of the device.
pub struct TrapMemory {
    offset: usize,
    /// Address for kernels.
    address: u64,
}

impl Trap {
    /// Returns the device, which is always at the same address.
    pub fn find() -> Self {
        let memory = device_memory(wire::MEMORY, wire::MEMORY_BYTES);
        let registers = device_memory(wire::REGISTERS, wire::REGISTERS_BYTES);
        Self {
            memory: memory.required("the trapped memory"),
            registers: registers.required("the trapped registers"),
            launched: 0,
            busy: false,
        }
    }

    fn register(&self, register: u64) -> u64 {
        self.registers
            .load_u64(register as usize)
            .required("a register")
    }

    fn set(&self, register: u64, value: u64) {
        let stored = self.registers.store_u64(register as usize, value);
        stored.required("a register");
    }

    /// Stores a packet, and makes the device execute it.
    fn packet(&self, words: impl IntoIterator<Item = u64>) {
        let mut count = 0;
        for word in words {
            self.set(wire::PACKET + 8 * count, word);
            count += 1;
        }
        self.set(wire::KICK, count);
    }
}

impl Mechanism for Trap {
    type Memory = TrapMemory;

    fn allocate(&mut self, bytes: usize) -> TrapMemory {
        self.packet([wire::ALLOCATE, bytes as u64]);
        let offset = self.register(wire::OFFSET);
        assert_ne!(offset, wire::FAILED, "{bytes} bytes of trapped memory");
        TrapMemory {
            offset: offset as usize,
            address: self.register(wire::ADDRESS),
        }
    }

    fn free(&mut self, memory: TrapMemory) {
        self.packet([wire::FREE, memory.offset as u64]);
    }

    fn address(&self, memory: &TrapMemory) -> u64 {
        memory.address
    }

    fn store_words(&mut self, memory: &TrapMemory, words: usize, passes: u32) {
        self.synchronize();
        for pass in (1..=u64::from(passes)).rev() {
            for word in 0..words {
                let value = pass + word as u64 / 8;
                let stored = self.memory.store_u64(memory.offset + 8 * word, value);
                stored.required("a word");
            }
        }
    }

    fn load_words(&mut self, memory: &TrapMemory, words: usize, passes: u32) -> u64 {
        self.synchronize();
        let mut sum = 0_u64;
        for _ in 0..passes {
            for word in 0..words {
                let loaded = self.memory.load_u64(memory.offset + 8 * word);
                sum = sum.wrapping_add(loaded.required("a word"));
            }
        }
        sum
    }

    fn copy_in(&mut self, memory: &TrapMemory, offset: usize, from: &[u8]) {
        self.synchronize();
        for (index, word) in from.as_chunks::<8>().0.iter().enumerate() {
            let at = memory.offset + offset + 8 * index;
            let stored = self.memory.store_u64(at, u64::from_le_bytes(*word));
            stored.required("a word");
        }
    }

    fn copy_out(&mut self, memory: &TrapMemory, offset: usize, into: &mut [u8]) {
        self.synchronize();
        for (index, word) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let loaded = self.memory.load_u64(memory.offset + offset + 8 * index);
            *word = loaded.required("a word").to_le_bytes();
        }
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]) {
        let head = [
            wire::LAUNCH | (kernel as u64) << 32,
            pair(shape.grid),
            pair(shape.block),
        ];
        self.packet(head.into_iter().chain(arguments.iter().copied()));
        self.launched += 1;
        self.busy = true;
    }

    fn synchronize(&mut self) {
        while self.busy {
            let completed = self.register(wire::COMPLETED);
            assert_ne!(completed, wire::FAILED, "a launch has failed");
            self.busy = completed < self.launched;
        }
    }
}
