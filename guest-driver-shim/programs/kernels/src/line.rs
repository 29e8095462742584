//! The lines of `causeway bench gpu`: the operations that its guest times, and that the host
//! repeats natively for comparison.

/// Most bytes that the name of a phase can have.
const PHASE_NAME_BYTES: usize = 48;

/// What a line of `bench gpu --peer` does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWork {
    /// A kernel stores to all of it.
    Store,
    /// A kernel loads all of it.
    Load,
    /// A kernel of one thread loads words, each of which tells where the next one is.
    Follow,
    /// A copy to it.
    CopyTo,
    /// A copy of it.
    CopyOf,
}

/// What a line of `bench gpu --peer` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLine {
    /// What is done.
    pub work: PeerWork,
    /// Which GPU does it: 0 is that of the first `--gpu`, 1 that of the second.
    pub user: usize,
    /// Which GPU has the memory.
    pub owner: usize,
}

macro_rules! lines {
    (
        $($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*
        @peers
        $($(#[doc = $peer_doc:literal])* $peer:ident = $peer_value:literal, $peer_text:literal,
            $work:ident by $user:literal at $owner:literal;)*
    ) => {
        /// One operation that the guest `bench` times and the host repeats natively.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Line {
            $($(#[doc = $doc])* $name = $value,)*
            $($(#[doc = $peer_doc])* $peer = $peer_value,)*
        }

        // The name of each line is the name of a phase, too.
        const _: () = {
            $(assert!($text.len() <= PHASE_NAME_BYTES);)*
            $(assert!($peer_text.len() <= PHASE_NAME_BYTES);)*
        };

        /// All lines of one GPU, in the order in which the benchmark's table shows them.
        pub const LINES: &[Line] = &[$(Line::$name,)*];

        /// All lines of two GPUs (`bench gpu --peer`), in the order of the table.
        pub const PEER_LINES: &[Line] = &[$(Line::$peer,)*];

        impl Line {
            /// Returns the line with this number in a guest's record; `None` if no line has it.
            pub const fn from_wire(value: u32) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)*
                    $($peer_value => Some(Self::$peer),)*
                    _ => None,
                }
            }

            /// Returns the short name of the line, as phases, tables and JSON show it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    $(Self::$peer => $peer_text,)*
                }
            }

            /// Returns a text that says what the guest times and what the host times natively.
            pub const fn doc(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc,)*),)*
                    $(Self::$peer => concat!($($peer_doc,)*),)*
                }
            }

            /// Returns what a line of two GPUs measures; `None` for the others.
            pub const fn peers(self) -> Option<PeerLine> {
                match self {
                    $(Self::$peer => Some(PeerLine {
                        work: PeerWork::$work,
                        user: $user,
                        owner: $owner,
                    }),)*
                    _ => None,
                }
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

    @peers
    /// A kernel that stores to all of the memory, and a wait. Natively: the same kernel.
    Store1At0 = 32, "stores of GPU 1 to memory of GPU 0", Store by 1 at 0;
    /// A kernel that stores to all of the memory, and a wait. Natively: the same kernel.
    Store0At1 = 33, "stores of GPU 0 to memory of GPU 1", Store by 0 at 1;
    /// A kernel that stores to all of the memory, and a wait. Natively: the same kernel.
    StoreWithin0 = 34, "stores of GPU 0 to memory of its own", Store by 0 at 0;
    /// A kernel that stores to all of the memory, and a wait. Natively: the same kernel.
    StoreWithin1 = 35, "stores of GPU 1 to memory of its own", Store by 1 at 1;
    /// A kernel that loads and compares all of the memory, and a wait. Natively: the same kernel.
    Load1At0 = 36, "loads of GPU 1 from memory of GPU 0", Load by 1 at 0;
    /// A kernel that loads and compares all of the memory, and a wait. Natively: the same kernel.
    Load0At1 = 37, "loads of GPU 0 from memory of GPU 1", Load by 0 at 1;
    /// A kernel that loads and compares all of the memory, and a wait. Natively: the same kernel.
    LoadWithin0 = 38, "loads of GPU 0 from memory of its own", Load by 0 at 0;
    /// A kernel that loads and compares all of the memory, and a wait. Natively: the same kernel.
    LoadWithin1 = 39, "loads of GPU 1 from memory of its own", Load by 1 at 1;
    /// A load of a kernel whose address the load before it has returned. Natively: the same kernel.
    Follow1At0 = 40, "dependent loads of GPU 1 from memory of GPU 0", Follow by 1 at 0;
    /// A load of a kernel whose address the load before it has returned. Natively: the same kernel.
    Follow0At1 = 41, "dependent loads of GPU 0 from memory of GPU 1", Follow by 0 at 1;
    /// A load of a kernel whose address the load before it has returned. Natively: the same kernel.
    FollowWithin0 = 42, "dependent loads of GPU 0 from its own memory", Follow by 0 at 0;
    /// A load of a kernel whose address the load before it has returned. Natively: the same kernel.
    FollowWithin1 = 43, "dependent loads of GPU 1 from its own memory", Follow by 1 at 1;
    /// A copy from memory of the GPU that copies, and a wait. Natively: `cuMemcpyAsync`.
    CopyTo1At0 = 44, "copies by GPU 1 to memory of GPU 0", CopyTo by 1 at 0;
    /// A copy from memory of the GPU that copies, and a wait. Natively: `cuMemcpyAsync`.
    CopyTo0At1 = 45, "copies by GPU 0 to memory of GPU 1", CopyTo by 0 at 1;
    /// A copy between two ranges of memory of the GPU that copies, and a wait. Natively:
    /// `cuMemcpyAsync`.
    CopyWithin0 = 46, "copies by GPU 0 within memory of its own", CopyTo by 0 at 0;
    /// A copy between two ranges of memory of the GPU that copies, and a wait. Natively:
    /// `cuMemcpyAsync`.
    CopyWithin1 = 47, "copies by GPU 1 within memory of its own", CopyTo by 1 at 1;
    /// A copy to memory of the GPU that copies, and a wait. Natively: `cuMemcpyAsync`.
    CopyOf1At0 = 48, "copies by GPU 1 of memory of GPU 0", CopyOf by 1 at 0;
    /// A copy to memory of the GPU that copies, and a wait. Natively: `cuMemcpyAsync`.
    CopyOf0At1 = 49, "copies by GPU 0 of memory of GPU 1", CopyOf by 0 at 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_names_and_numbers_of_their_own() {
        let all = std::vec::Vec::from_iter(LINES.iter().chain(PEER_LINES));
        for (index, line) in all.iter().enumerate() {
            assert_eq!(Line::from_wire(**line as u32), Some(**line));
            assert!(all[..index].iter().all(|other| other.name() != line.name()));
            assert_eq!(line.peers().is_some(), index >= LINES.len());
        }
    }
}
