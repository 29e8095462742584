//! GPU memory of workloads that compute a result from two operands.

use crate::Mechanism;

/// Allocations for two operands and a result. The program's buffer contains the three one behind
/// the other.
pub(super) struct Operands<M: Mechanism> {
    memory: [M::Memory; 3],
    bytes: usize,
}

impl<M: Mechanism> Operands<M> {
    /// Allocates and touches memory for operands and a result of `bytes` bytes each.
    pub fn new(m: &mut M, bytes: usize) -> Self {
        let memory = core::array::from_fn(|_| m.allocate(bytes));
        for memory in &memory {
            m.touch(memory, bytes);
        }
        Self { memory, bytes }
    }

    /// Returns the addresses of both operands and the result for kernels.
    pub fn addresses(&self, m: &M) -> [u64; 3] {
        self.memory.each_ref().map(|memory| m.address(memory))
    }

    /// Copies both operands from the program's buffer to the GPU.
    pub fn send(&self, m: &mut M, host: &[u8]) {
        for (memory, from) in self
            .memory
            .iter()
            .zip(host.chunks_exact(self.bytes))
            .take(2)
        {
            m.copy_in(memory, 0, from);
        }
    }

    /// Copies the operand or result number `index` to the third part of the program's buffer.
    pub fn fetch(&self, m: &mut M, index: usize, host: &mut [u8]) {
        let into = &mut host[2 * self.bytes..3 * self.bytes];
        m.copy_out(&self.memory[index], 0, into);
    }

    /// Returns the third part of the program's buffer.
    pub fn result<'h>(&self, host: &'h [u8]) -> &'h [u8] {
        &host[2 * self.bytes..3 * self.bytes]
    }

    /// Frees the memory.
    pub fn free(self, m: &mut M) {
        self.memory.into_iter().for_each(|memory| m.free(memory));
    }
}
