//! The mechanism that forwards calls to the host.

use causeway_bare::Machine;
use causeway_bench_workloads::host_interface::{PORT_FORWARD, forward as wire};
use causeway_bench_workloads::{Kernel, Mechanism, Shape};
use causeway_guests::Required;
use causeway_shim::Window;

use crate::port;

/// Number of words at which a batch is sent even without a call that has a result: half of the
/// room, so that the host can begin.
const BATCH_WORDS: usize = wire::CALL_WORDS / 2;

/// The device to which calls are forwarded.
pub struct Forward {
    area: Window,
    page: u32,
    used: usize,
    /// Whether a kernel was launched for which nothing has waited yet.
    busy: bool,
}

/// Memory of the device.
pub struct ForwardMemory {
    id: u64,
    /// Address for kernels.
    address: u64,
}

impl Forward {
    /// Allocates RAM for the area with the calls.
    pub fn new(machine: &Machine) -> Self {
        let area = machine.ram().window(8 * wire::AREA_WORDS);
        let area = area.required("guest RAM for calls");
        Self {
            area,
            // Identity-mapped.
            page: (area.as_ptr().as_ptr() as u64 / 4096) as u32,
            used: 0,
            busy: false,
        }
    }

    fn put(&self, word: usize, value: u64) {
        self.area.store_u64(8 * word, value).required("the area");
    }

    fn get(&self, word: usize) -> u64 {
        self.area.load_u64(8 * word).required("the area")
    }

    /// Appends a call to the batch, with its operands and then `data`.
    fn call(&mut self, opcode: u64, operands: &[u64], data: &[u8]) {
        let words = 1 + operands.len() + data.len() / 8;
        if self.used + words > wire::CALL_WORDS {
            self.send();
        }
        let at = wire::CALLS + self.used;
        self.put(at, wire::header(opcode, words));
        for (index, operand) in operands.iter().enumerate() {
            self.put(at + 1 + index, *operand);
        }
        let written = self.area.write(8 * (at + 1 + operands.len()), data);
        written.required("the area");
        self.used += words;
        if self.used >= BATCH_WORDS {
            self.send();
        }
    }

    /// Sends all calls of the batch to the host, with one exit, if the batch is not empty.
    fn send(&mut self) {
        if self.used == 0 {
            return;
        }
        self.area
            .store_release(8 * wire::USED, self.used as u64)
            .required("the area");
        port::store(PORT_FORWARD, self.page);
        let status = self.area.load_acquire(8 * wire::STATUS);
        assert_eq!(status.required("the area"), 0, "a call has failed");
        self.used = 0;
    }

    /// Appends a copy whose data stays in guest RAM. The memory is contiguous for the host, because
    /// the guest is identity-mapped.
    fn by_reference(
        &mut self,
        opcode: u64,
        memory: &ForwardMemory,
        offset: usize,
        ram: (u64, u64),
    ) {
        self.call(opcode, &[memory.id, offset as u64, ram.0, ram.1], &[]);
        // The caller may change or read its memory as soon as the copy has returned.
        self.send();
    }

    fn copy_out_inline(&mut self, memory: &ForwardMemory, offset: usize, into: &mut [u8]) {
        let operands = [memory.id, offset as u64, into.len() as u64];
        // Its result is the first: a call with a result is sent at once, so no call before it in
        // the batch has one.
        self.call(wire::COPY_OUT, &operands, &[]);
        self.send();
        let read = self.area.read(8 * wire::RESULTS, into);
        read.required("the area");
    }
}

impl Mechanism for Forward {
    type Memory = ForwardMemory;

    fn allocate(&mut self, bytes: usize) -> ForwardMemory {
        self.call(wire::ALLOCATE, &[bytes as u64], &[]);
        self.send();
        ForwardMemory {
            id: self.get(wire::RESULTS),
            address: self.get(wire::RESULTS + 1),
        }
    }

    fn free(&mut self, memory: ForwardMemory) {
        self.call(wire::FREE, &[memory.id], &[]);
    }

    fn address(&self, memory: &ForwardMemory) -> u64 {
        memory.address
    }

    /// With forwarded calls, a program has no pointer to device memory: each store is a copy of a
    /// word.
    fn store_words(&mut self, memory: &ForwardMemory, words: usize, passes: u32) {
        for pass in (1..=u64::from(passes)).rev() {
            for word in 0..words {
                let value = pass + word as u64 / 8;
                self.copy_in(memory, 8 * word, &value.to_le_bytes());
            }
        }
    }

    /// Loads by copies of single words, as [`Self::store_words`] stores.
    fn load_words(&mut self, memory: &ForwardMemory, words: usize, passes: u32) -> u64 {
        let mut sum = 0_u64;
        for _ in 0..passes {
            for word in 0..words {
                let mut loaded = [0; 8];
                self.copy_out(memory, 8 * word, &mut loaded);
                sum = sum.wrapping_add(u64::from_le_bytes(loaded));
            }
        }
        sum
    }

    fn copy_in(&mut self, memory: &ForwardMemory, offset: usize, from: &[u8]) {
        if from.len() > wire::INLINE_BYTES_MAX {
            let ram = (from.as_ptr() as u64, from.len() as u64);
            return self.by_reference(wire::COPY_IN_BY_REFERENCE, memory, offset, ram);
        }
        let operands = [memory.id, offset as u64, from.len() as u64];
        self.call(wire::COPY_IN, &operands, from);
    }

    fn copy_out(&mut self, memory: &ForwardMemory, offset: usize, into: &mut [u8]) {
        if into.len() > wire::INLINE_BYTES_MAX {
            let ram = (into.as_mut_ptr() as u64, into.len() as u64);
            return self.by_reference(wire::COPY_OUT_BY_REFERENCE, memory, offset, ram);
        }
        self.copy_out_inline(memory, offset, into);
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, arguments: &[u64]) {
        let mut operands = [0; 16];
        operands[..3].copy_from_slice(&[
            kernel as u64,
            wire::pair(shape.grid),
            wire::pair(shape.block),
        ]);
        operands[3..3 + arguments.len()].copy_from_slice(arguments);
        self.call(wire::LAUNCH, &operands[..3 + arguments.len()], &[]);
        self.busy = true;
    }

    fn synchronize(&mut self) {
        // Calls that do not launch a kernel are done when they have been sent.
        if core::mem::take(&mut self.busy) {
            self.call(wire::SYNCHRONIZE, &[], &[]);
        }
        self.send();
    }
}
