//! The mechanism of pass-through: the memory behind a BAR of a device that only this guest has.

#![allow(unsafe_code, reason = "hand-written loops over memory of a device")]

use causeway_bare::device_memory;
use causeway_bench_workloads::{DeviceMemory, Kernel, Mechanism, Shape};
use causeway_guests::Required;
use causeway_guests::function::PciFunction;
use causeway_kernels::loops;
use causeway_shim::Window;

/// The device. It has one allocation at a time, which is all of its memory.
pub struct Passthrough {
    memory: Window,
}

impl Passthrough {
    /// Finds the device on the PCI bus as a driver does, and enables its memory.
    pub fn find(plan: DeviceMemory) -> Self {
        let function = PciFunction::find((plan.vendor, plan.device));
        let function = function.required("the device that is passed through");
        let base = function.enable(plan.bar.into()).required("its BAR");
        let memory = device_memory(base + plan.offset, plan.bytes);
        Self {
            memory: memory.required("its memory"),
        }
    }

    /// Returns the address of a part of the memory.
    #[inline]
    fn part(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.memory.bytes()),
            "beyond the device's memory"
        );
        self.memory.as_ptr().as_ptr().wrapping_add(offset)
    }
}

impl Mechanism for Passthrough {
    type Memory = ();

    fn allocate(&mut self, bytes: usize) {
        self.part(0, bytes);
    }

    fn free(&mut self, (): ()) {}

    fn address(&self, (): &()) -> u64 {
        0
    }

    fn store_words(&mut self, (): &(), words: usize, passes: u32) {
        let part = self.part(0, 8 * words);
        // SAFETY: the part is within the device's memory, begins at a page, and nobody has
        // references to it.
        unsafe { loops::store(part.cast(), words, passes) };
    }

    fn load_words(&mut self, (): &(), words: usize, passes: u32) -> u64 {
        let part = self.part(0, 8 * words);
        // SAFETY: as for stores.
        unsafe { loops::load(part.cast(), words, passes) }
    }

    fn copy_in(&mut self, (): &(), offset: usize, from: &[u8]) {
        let part = self.part(offset, from.len());
        // SAFETY: the part has as many bytes, and is no memory of the program's own.
        unsafe { loops::copy_words(part, from.as_ptr(), from.len() / 8) };
    }

    fn copy_out(&mut self, (): &(), offset: usize, into: &mut [u8]) {
        let part = self.part(offset, into.len());
        // SAFETY: as for the other direction.
        unsafe { loops::copy_words(into.as_mut_ptr(), part, into.len() / 8) };
    }

    fn launch(&mut self, kernel: Kernel, _: Shape, _: &[u64]) {
        unreachable!("no plan has launches of {} by a device", kernel.name())
    }

    fn synchronize(&mut self) {}
}
