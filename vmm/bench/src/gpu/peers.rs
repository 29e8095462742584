//! Which lines a benchmark measures, those of one GPU or those of two, and what two GPUs need.

use causeway_bench_workloads::{LINES, Line, PEER_LINES, PeerWork, copy_sizes};
use causeway_run::configuration::Run;
use causeway_run::gpu::Gpu;
use causeway_terminal::{Failure, check_range};
use causeway_testdev::PHASES_MAX;

use crate::arguments::GpuArguments;

/// Memory that two GPUs share, unless `--mib` says otherwise.
const USUAL_MIB: u64 = 256;
/// Most memory that two GPUs share.
const MOST_MIB: u64 = 64 << 10;

/// Memory of each GPU for modules, fences and pages, in MiB.
const SPARE_MIB: u64 = 16;

/// The lines of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// What a guest does with one GPU.
    OfOne,
    /// What each of two GPUs does with `mib` MiB of the other.
    OfTwo {
        /// Memory of each that the other reaches.
        mib: u64,
    },
}

impl Lines {
    /// Returns the lines that the arguments ask for.
    ///
    /// # Errors
    /// A usage failure if the number of GPUs is not that of the lines, or `--mib` or
    /// `--repetitions` is out of range.
    pub fn of(arguments: &GpuArguments) -> Result<Self, Failure> {
        let gpus = &arguments.gpu;
        if !arguments.peer {
            return match gpus.get(1) {
                None => Ok(Self::OfOne),
                Some(second) => Err(Failure::usage(format!(
                    "--gpu {second} is one GPU too many: `bench gpu` measures one GPU, or two with \
                     --peer"
                ))),
            };
        }
        if gpus.len() != 2 {
            let count = gpus.len();
            return Err(Failure::usage(format!(
                "--peer measures what two GPUs do with memory of each other, and --gpu names \
                 {count}: give two, such as --gpu cuda:0 --gpu cuda:1"
            )));
        }
        let mib = arguments.mib.unwrap_or(USUAL_MIB);
        check_range("--mib", mib, 1..=MOST_MIB, " MiB")?;
        let lines = Self::OfTwo { mib };
        if arguments.only.is_none() {
            // A guest can mark no more phases.
            let most = PHASES_MAX / lines.cells();
            let repetitions = arguments.repetitions.into();
            check_range(
                "--repetitions",
                repetitions,
                1..=most as u64,
                " with --peer",
            )?;
        }
        Ok(lines)
    }

    /// Returns all lines, in the order of the table.
    pub const fn all(self) -> &'static [Line] {
        match self {
            Self::OfOne => LINES,
            Self::OfTwo { .. } => PEER_LINES,
        }
    }

    /// Returns the number of lines and sizes of two GPUs.
    fn cells(self) -> usize {
        let Self::OfTwo { mib } = self else {
            return LINES.len();
        };
        let of_line = |line: &Line| match line.peers().map(|peers| peers.work) {
            Some(PeerWork::CopyTo | PeerWork::CopyOf) => copy_sizes(mib << 20).count(),
            _ => 1,
        };
        PEER_LINES.iter().map(of_line).sum()
    }

    /// Refuses two GPUs with too little memory for the lines.
    ///
    /// # Errors
    /// A usage failure that names the GPU.
    pub fn check_memory(self, run: &Run) -> Result<(), Failure> {
        let Self::OfTwo { mib } = self else {
            return Ok(());
        };
        let limit_mib = |gpu: &Gpu| gpu.memory_bytes >> 20;
        let small = run
            .gpus()
            .find(|(gpu, _)| limit_mib(gpu) < 2 * mib + SPARE_MIB);
        small.map_or(Ok(()), |(gpu, text)| {
            let limit_mib = limit_mib(gpu);
            let most = limit_mib.saturating_sub(SPARE_MIB) / 2;
            Err(Failure::usage(format!(
                "--gpu {text} has {limit_mib} MiB for each VM, and --peer needs twice the {mib} \
                 MiB of --mib and {SPARE_MIB} MiB more: choose --mib {most} or less, or a larger \
                 memory= of --gpu"
            )))
        })
    }

    /// Refuses two GPUs of the driver, with these numbers, that cannot be peers.
    ///
    /// # Errors
    /// A GPU failure that names both.
    pub fn check_peers(self, devices: &[u32]) -> Result<(), Failure> {
        match (self, devices) {
            (Self::OfTwo { .. }, &[one, other]) if causeway_cuda::link_of(one, other).is_none() => {
                Err(Failure::gpu(format!(
                    "--gpu cuda:{one} and --gpu cuda:{other} cannot be peers, so neither reaches \
                     memory of the other: choose GPUs that can, which `causeway doctor` shows for \
                     each pair"
                )))
            }
            _ => Ok(()),
        }
    }
}
