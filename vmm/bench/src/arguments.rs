//! Arguments of `bench` and its benchmarks.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use causeway_run::arguments::{PrivilegeLevel, parse_size_mib};
use causeway_terminal::{TimeLimit, number};

/// Subcommands of `causeway bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time operations of a GPU, or of two, in a guest and natively on the host, in turn.
    Gpu(GpuArguments),
    /// Run the same workloads by each way to virtualize a GPU, and compare their VM exits and
    /// times.
    Exits(ExitsArguments),
    /// Start and end VMs one after the other, kill some, and check that they leave nothing behind.
    Lives(LivesArguments),
    /// Run unmodified programs of benchmark suites natively, as processes and in guests, and
    /// compare their times and VM exits.
    Suite(SuiteArguments),
}

/// Arguments of `causeway bench gpu`, as the user typed them.
#[derive(Debug, Args)]
pub struct GpuArguments {
    /// Back end and limits, as for `run`. Give it twice with --peer.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub gpu: Vec<String>,
    /// Measure what each of two GPUs does with memory of the other: stores, loads and copies.
    #[arg(long)]
    pub peer: bool,
    /// Memory that each GPU shares with the other, and so the size of the largest copy, in MiB, or
    /// with suffix M or G, 1 MiB to 64 GiB; each needs twice as much. The default is 256.
    #[arg(
        long,
        value_name = "SIZE",
        requires = "peer",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub mib: Option<u64>,
    /// Number of samples of each operation, 1 to 200.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 101,
        value_parser = number::<u32>(1..=200, "")
    )]
    pub repetitions: u32,
    /// Measure only the operation whose line in the table has this name.
    #[arg(long, value_name = "LINE")]
    pub only: Option<String>,
    /// RAM of the VM, in MiB, or with suffix M, G or T.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1024",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub memory: u64,
    /// End the benchmark after this many seconds; 0 or none for no limit.
    #[arg(long, value_name = "S", default_value = "900", value_parser = TimeLimit::parse)]
    pub timeout: TimeLimit,
    /// Write the report as JSON to this file; - writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Arguments of `causeway bench exits`, as the user typed them.
#[derive(Debug, Args)]
pub struct ExitsArguments {
    /// Back end and limits, as for `run`. The default is to measure software and, if there is a
    /// GPU, cuda, one after the other; then the files for cuda are named FILE.cuda.EXTENSION.
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Measure fewer sizes and samples, in about 80 seconds for a back end on two cores; longer
    /// where others use them.
    #[arg(long)]
    pub quick: bool,
    /// Number of samples of each combination of workload, size and mechanism, 1 to 200. The default
    /// is 24, and 12 with --quick.
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=200, ""))]
    pub repetitions: Option<u32>,
    /// Measure only these workloads, separated by commas.
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Measure only these mechanisms (ways to virtualize a GPU), separated by commas.
    #[arg(long, value_name = "MECHANISM,…", value_delimiter = ',')]
    pub mechanism: Vec<String>,
    /// Pass this PCI device of the host through to the guest, and measure its memory, too. The
    /// content of its memory is lost.
    #[arg(long, value_name = "ADDRESS")]
    pub vfio: Option<String>,
    /// Privilege level of the guest, as for `run`.
    #[arg(long, value_name = "LEVEL", default_value = "3", hide = true)]
    pub cpl: PrivilegeLevel,
    /// Count exits by KVM's tracepoints, too, as for `run`.
    #[arg(long)]
    pub tracepoints: bool,
    /// RAM of the VM, in MiB, or with suffix M, G or T.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1024",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub memory: u64,
    /// End the benchmark after this many seconds, and report the samples that were taken; 0 or none
    /// for no limit.
    #[arg(long, value_name = "S", default_value = "3600", value_parser = TimeLimit::parse)]
    pub timeout: TimeLimit,
    /// Write the report as JSON to this file; - writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for each combination of workload, size and mechanism to this file, as
    /// comma-separated values; - writes them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write an HTML page with tables and plots to this file; - writes it to standard output
    /// instead of the table.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare two reports of --json instead of measuring, and print the differences that are
    /// larger than chance explains. Ends with exit code 0 if there are none, 1 if there are some,
    /// and 2 if the reports cannot be compared. --json writes the result.
    #[arg(
        long,
        value_names = ["BEFORE", "AFTER"],
        num_args = 2,
        conflicts_with_all = [
            "gpu", "quick", "repetitions", "only", "mechanism", "vfio", "cpl", "tracepoints",
            "memory", "timeout",
            "csv", "html",
        ]
    )]
    pub compare: Vec<PathBuf>,
}

/// Arguments of `causeway bench lives`, as the user typed them.
#[derive(Debug, Args)]
pub struct LivesArguments {
    /// Back end and limits, as for `run`.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub gpu: String,
    /// Number of VMs to start, one after the other.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        value_parser = number::<u32>(1..=u32::MAX.into(), "")
    )]
    pub count: u32,
    /// Number of these VMs to kill before they end; at most --count. The default is a tenth of
    /// --count.
    #[arg(long, value_name = "N", value_parser = number::<u32>(0..=u32::MAX.into(), ""))]
    pub kill: Option<u32>,
    /// Longest time from the start of a VM until it is killed, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 500,
        value_parser = number::<u32>(0..=u32::MAX.into(), " ms")
    )]
    pub kill_within_ms: u32,
    /// GPU memory that each VM allocates, in MiB, or with suffix M, G or T.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub mib: u64,
    /// Write the report as JSON to this file; - writes it to standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl LivesArguments {
    /// Returns the number of VMs to kill: that of `--kill`, or else a tenth of `--count`, but at
    /// least one if another VM is left to end by itself.
    pub fn kills(&self) -> u32 {
        let usual = (self.count / 10).max(1).min(self.count.saturating_sub(1));
        self.kill.unwrap_or(usual)
    }
}

/// Arguments of `causeway bench suite`, as the user typed them.
#[derive(Debug, Args)]
pub struct SuiteArguments {
    /// Programs to run, by their names in the suite or as SUITE/PROGRAM; all by default.
    #[arg(value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Folder with checkouts of suites, each called as its repository.
    #[arg(long, value_name = "DIR", required_unless_present = "compare")]
    pub source: Option<PathBuf>,
    /// Suites, separated by commas: cudart, polybench, rodinia, samples, or a file with a recipe,
    /// whose name ends with .toml. The default is all of the four that --source has.
    #[arg(long, value_name = "SUITE,…", value_delimiter = ',')]
    pub suite: Vec<String>,
    /// Ways to run a program, separated by commas: native, with the libraries that the loader
    /// finds; process, by `causeway cuda`; guest, by `causeway run`. The default is process, native
    /// on a GPU, and guest with --kernel.
    #[arg(long, value_name = "WAY,…", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Linux kernel for guests.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Folder for programs, their inputs and what they print.
    #[arg(long, value_name = "DIR", default_value = "causeway-suites")]
    pub work: PathBuf,
    /// Back end and limits, as for `run`. On the software back end, programs have smaller inputs.
    #[arg(long, value_name = "GPU", default_value = "auto")]
    pub gpu: String,
    /// Report of `bench exits --json`, to calculate which exits the programs' work would take if
    /// calls were forwarded, or accesses trapped.
    #[arg(long, value_name = "FILE")]
    pub exits: Option<PathBuf>,
    /// Number of runs of each program by each way, 1 to 200. Several ways take turns; then each
    /// runs as many times again without the others between.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number::<u32>(1..=200, "")
    )]
    pub repetitions: u32,
    /// Time that one run of a program may take, in seconds.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 240,
        value_parser = number::<u32>(1..=86_400, " s")
    )]
    pub limit: u32,
    /// RAM of guests, in MiB, or with suffix M, G or T.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1024",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub memory: u64,
    /// Number of virtual CPUs of guests.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u32>(1..=64, ""))]
    pub vcpus: u32,
    /// The compiler, nvcc of CUDA 13.0: a path, or a name in PATH.
    #[arg(long, value_name = "FILE", default_value = "nvcc")]
    pub nvcc: PathBuf,
    /// Value of the compiler's -arch: the architecture of your GPU, such as sm_90, or a version of
    /// PTX. The default is for the software back end; GPUs older than 9.0 cannot run it.
    #[arg(long, value_name = "ARCH", default_value = "compute_90")]
    pub code: String,
    /// Folder with headers that programs include, beside the compiler's own. Can be given several
    /// times.
    #[arg(long, value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// Number of programs to build at a time; the number of CPUs by default.
    #[arg(long, value_name = "N", value_parser = number::<u32>(1..=1024, ""))]
    pub jobs: Option<u32>,
    /// Build the programs, and run none.
    #[arg(long, conflicts_with = "built")]
    pub build_only: bool,
    /// Build nothing: the programs are in the folder of --work.
    #[arg(long)]
    pub built: bool,
    /// Write the report as JSON to this file; - writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a line for each program and way to this file, as comma-separated values; - writes them
    /// to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write an HTML page to this file; - writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compare two reports of --json instead of running programs, as `bench exits --compare` does.
    #[arg(
        long,
        value_names = ["BEFORE", "AFTER"],
        num_args = 2,
        conflicts_with_all = [
            "program", "source", "suite", "by", "kernel", "work", "gpu", "repetitions", "limit",
            "memory", "vcpus", "exits", "nvcc", "code", "include", "jobs", "build_only", "built",
            "csv", "html",
        ]
    )]
    pub compare: Vec<PathBuf>,
}
