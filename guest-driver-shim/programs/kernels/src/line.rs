//! The lines of `bench gpu`: what its guest times, and the host does natively beside it.

/// Bytes of the longest name that a phase can have.
const PHASE_NAME_BYTES: usize = 48;

macro_rules! lines {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        /// One operation that the guest `bench` times and the host repeats natively.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Line { $($(#[doc = $doc])* $name = $value,)* }

        // Each is the name of a phase, too.
        const _: () = { $(assert!($text.len() <= PHASE_NAME_BYTES);)* };

        /// Every line, in the order of the table.
        pub const LINES: &[Line] = &[$(Line::$name,)*];

        impl Line {
            /// Decodes the wire value.
            pub const fn from_wire(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$name),)* _ => None }
            }

            /// Short name, as phases, tables and JSON have it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What is timed, and what natively: for the documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*),)* }
            }
        }
    };
}

lines! {
    /// Handing over one launch of an empty kernel: packet and publication. Natively:
    /// `cuLaunchKernel`, not waited for.
    Submit = 1, "submit a launch";
    /// A launch and a fence, waited for by spinning. Natively: `cuLaunchKernel`,
    /// `cuStreamSynchronize` (spinning).
    LaunchAndWait = 2, "launch and wait";
    /// Launches one behind the other, waited for once. Natively: the same with `cuLaunchKernel`.
    Pipelined = 3, "launches, pipelined";
    /// Kernels of a recorded sequence of 100, replayed. Natively: as many single launches, waited
    /// for once.
    Recorded = 4, "recorded launches against single ones";
    /// The same. Natively: a CUDA graph of 100 kernels.
    RecordedGraph = 5, "recorded launches against a graph";
    /// A copy from guest RAM to device memory. Natively: from pinned memory (`cuMemHostAlloc`).
    CopyToDevice = 6, "copy to the device";
    /// A copy from device memory to guest RAM. Natively: to pinned memory.
    CopyFromDevice = 7, "copy from the device";
    /// Memory from a pool of the shim, and back. Natively: `cuMemAlloc`, `cuMemFree`.
    AllocatePooled = 8, "allocate and free, pooled";
    /// An allocation mapped for the GPU in one batch, and freed in another. Natively: `cuMemAlloc`,
    /// `cuMemFree`.
    Allocate = 9, "allocate and free, by the mediator";
    /// The same. Natively: `cuMemCreate`, reserve, map, set access, and all of it undone.
    AllocateVmm = 10, "allocate and free, against the native VMM calls";
    /// Guest RAM registered, mapped for the GPU, and given back. Natively: `cuMemHostRegister`,
    /// `cuMemHostUnregister`.
    Register = 11, "register memory";
    /// The first stores to every word of fresh host memory. Natively: to fresh anonymous memory.
    FirstWrite = 12, "first write to fresh host memory";
    /// Host memory allocated, mapped and written. Natively: `cuMemHostAlloc`, written.
    AllocateAndWrite = 13, "allocate host memory and write it";
    /// A word to a running kernel and its answer, through CPU-visible device memory. Natively:
    /// through pinned host memory, for device memory has no native pointer.
    EchoDevice = 14, "round trip to a running kernel, device memory";
    /// The same through host memory on both sides.
    EchoHost = 15, "round trip to a running kernel, host memory";
    /// The word through CPU-visible device memory, the answer through host memory: each side looks
    /// into memory of its own. Natively: through pinned host memory.
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
