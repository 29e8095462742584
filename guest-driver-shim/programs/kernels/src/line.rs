//! The lines of `causeway bench gpu`: the operations that its guest times, and that the host
//! repeats natively for comparison.

/// Most bytes that the name of a phase can have.
const PHASE_NAME_BYTES: usize = 48;

macro_rules! lines {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        /// One operation that the guest `bench` times and the host repeats natively.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Line { $($(#[doc = $doc])* $name = $value,)* }

        // The name of each line is the name of a phase, too.
        const _: () = { $(assert!($text.len() <= PHASE_NAME_BYTES);)* };

        /// All lines, in the order in which the benchmark's table shows them.
        pub const LINES: &[Line] = &[$(Line::$name,)*];

        impl Line {
            /// Returns the line with this number in a guest's record; `None` if no line has it.
            pub const fn from_wire(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

            /// Returns the short name of the line, as phases, tables and JSON show it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns a text that says what the guest times and what the host times natively.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*),)* }
            }
        }
    };
}

lines! {
    /// One launch of an empty kernel, until the mediator has the packet. Natively: `cuLaunchKernel`
    /// without a wait.
    Submit = 1, "submit a launch";
    /// A launch and a fence, and a wait for the fence that spins. Natively: `cuLaunchKernel`,
    /// `cuStreamSynchronize` (spinning).
    LaunchAndWait = 2, "launch and wait";
    /// Many launches, and one wait for all of them. Natively: the same with `cuLaunchKernel`.
    Pipelined = 3, "launches, pipelined";
    /// A kernel of a recorded sequence of 100 that is replayed. Natively: as many single launches,
    /// and one wait for all of them.
    Recorded = 4, "recorded launches against single ones";
    /// A kernel of a recorded sequence of 100 that is replayed. Natively: a CUDA graph of 100
    /// kernels.
    RecordedGraph = 5, "recorded launches against a graph";
    /// A copy from guest RAM to device memory. Natively: a copy from pinned memory
    /// (`cuMemHostAlloc`).
    CopyToDevice = 6, "copy to the device";
    /// A copy from device memory to guest RAM. Natively: a copy to pinned memory.
    CopyFromDevice = 7, "copy from the device";
    /// An allocation from a pool of the shim, and its return. Natively: `cuMemAlloc`, `cuMemFree`.
    AllocatePooled = 8, "allocate and free, pooled";
    /// An allocation mapped for the GPU in one batch, and freed in another. Natively: `cuMemAlloc`,
    /// `cuMemFree`.
    Allocate = 9, "allocate and free, by the mediator";
    /// An allocation mapped for the GPU in one batch, and freed in another. Natively:
    /// `cuMemCreate`, `cuMemAddressReserve`, `cuMemMap`, `cuMemSetAccess`, and the calls that undo
    /// them.
    AllocateVmm = 10, "allocate and free, against the native VMM calls";
    /// Registration of guest RAM, its mapping for the GPU, and the end of both. Natively:
    /// `cuMemHostRegister`, `cuMemHostUnregister`.
    Register = 11, "register memory";
    /// The first stores to every word of fresh host memory. Natively: the same to fresh anonymous
    /// memory.
    FirstWrite = 12, "first write to fresh host memory";
    /// Allocation of host memory, its mapping, and stores to all of it. Natively: `cuMemHostAlloc`,
    /// and stores to all of it.
    AllocateAndWrite = 13, "allocate host memory and write it";
    /// A word to a running kernel and the kernel's answer, through CPU-visible device memory.
    /// Natively: through pinned host memory, because CUDA has no CPU pointers to device memory.
    EchoDevice = 14, "round trip to a running kernel, device memory";
    /// A word to a running kernel and the kernel's answer, through host memory. Natively: through
    /// pinned host memory.
    EchoHost = 15, "round trip to a running kernel, host memory";
    /// A word to a running kernel through CPU-visible device memory, and the kernel's answer
    /// through host memory, so that each side loads from its own memory. Natively: through pinned
    /// host memory.
    EchoMixed = 16, "round trip to a running kernel, mixed memory";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_names_and_numbers_of_their_own() {
        for (index, line) in LINES.iter().enumerate() {
            assert_eq!(Line::from_wire(*line as u32), Some(*line));
            assert!(
                LINES[..index]
                    .iter()
                    .all(|other| other.name() != line.name())
            );
        }
    }
}
