//! Arguments of `run` as the user typed them. [`crate::configuration`] turns them into checked
//! values.

use std::ffi::OsString;
use std::path::PathBuf;

use causeway_backend_options::{SIZE_FORM, size_mib};
use causeway_vmm::vm::{VCPUS_MAX, VMS_MAX};
use clap::{Args, ValueEnum};

use crate::description::Described;
use crate::metrics::MetricsArguments;
use crate::numa::Numa;
use crate::program::ProgramArguments;
use crate::sandbox::SandboxArguments;
use crate::worker_memory::WorkerMemoryArguments;
use causeway_terminal::{TimeLimit, number};

/// Arguments of `causeway run`, as the user typed them. [`crate::applicable`] refuses those that do
/// not go with what the VMs boot.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Guest program that is embedded in this command, by its name; --help lists them. The default
    /// is compute.
    #[arg(long, value_name = "NAME", long_help = crate::guests::help())]
    pub guest: Option<String>,
    /// Your own guest: a Linux kernel (bzImage, or ELF with a PVH note; docs/guests.md), or a bare
    /// guest, which is a static 64-bit ELF image (docs/architecture.md, "Bare guests").
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Boot protocol for the file of --kernel. The default is chosen by the file's format.
    #[arg(long, value_name = "HOW")]
    pub boot: Option<BootChoice>,
    /// Initramfs for a Linux kernel: the archive from which it starts its first program.
    #[arg(long, value_name = "FILE")]
    pub initramfs: Option<PathBuf>,
    /// Program to run on a Linux kernel, in place of an initramfs: an executable for x86-64. The
    /// libraries that it needs are taken from this host, and those of CUDA, libcuda.so.1 and
    /// libcudart.so.12 or .13, from this command. This command ends with its exit status
    /// (docs/guests.md).
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Root file system of a Linux guest, in which it runs the program behind --: a folder, such as
    /// an unpacked container image, or the image of a disk without partitions (,format= and
    /// ,backing as for --disk). What the guest writes stays in its memory; with ,rw after the name,
    /// it changes the folder or image (docs/guests.md).
    #[arg(long, value_name = "DIR|IMAGE[,rw][,format=FORMAT]")]
    pub rootfs: Option<OsString>,
    /// Folder of the host that a Linux guest shares, by virtiofsd. The guest mounts it on /TAG; by
    /// default, TAG is the folder's name. With ,ro, the guest can only read. Can be given several
    /// times.
    #[arg(long, value_name = "DIR[:TAG][,ro]")]
    pub share: Vec<OsString>,
    /// The virtiofsd for --share and --rootfs; by default the one in PATH or /usr/libexec.
    #[arg(long, value_name = "FILE")]
    pub virtiofsd: Option<PathBuf>,
    /// Network of a Linux guest: user, by passt, as a program of this user's would have it, with
    /// ports of this host that lead to the guest (forward=HOST:GUEST after a comma); or tap=NAME,
    /// an interface on a tap device of this host, with the guest's address (address=ADDRESS/BITS
    /// after a comma). docs/guests.md has all keys.
    #[arg(long, value_name = "user|tap=NAME[,KEY=VALUE]...")]
    pub net: Option<String>,
    /// The passt for --net user; by default the one in PATH.
    #[arg(long, value_name = "FILE")]
    pub passt: Option<PathBuf>,
    /// Sockets between a Linux guest and this host (AF_VSOCK): CID is the guest's address, 3 or
    /// more, which no other VM of this host may have. Several VMs have addresses in a row. The
    /// host's kernel serves them (/dev/vhost-vsock).
    #[arg(long, value_name = "CID")]
    pub vsock: Option<u32>,
    /// Files, kernel modules and arguments for the program of --program or --rootfs.
    #[command(flatten)]
    pub more: ProgramArguments,
    /// Text to add to the command line of a Linux kernel.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub append: Option<String>,
    /// Disk image for a Linux guest. With ,ro after the name, the disk is read-only, which several
    /// VMs require. It is a raw image, or with ,format=qcow2 one in that format, which
    /// qemu-storage-daemon serves; with ,backing it may have backing files. Can be given several
    /// times.
    #[arg(long, value_name = "FILE[,ro][,format=FORMAT][,backing]")]
    pub disk: Vec<OsString>,
    /// The qemu-storage-daemon for disks in format qcow2; by default the one in PATH.
    #[arg(long, value_name = "FILE")]
    pub storage_daemon: Option<PathBuf>,
    /// Folder of disk images that a Linux guest can get while it runs: `causeway control PATH
    /// add-disk IMAGE` puts one into a disk, and remove-disk takes it out. Each VM has N such
    /// disks, after those of --disk (4 by default; at most 16 disks in all). Needs --control.
    #[arg(long, value_name = "DIR[,slots=N]")]
    pub disk_folder: Option<OsString>,
    /// PCI device of the host to pass through, as `lspci -D` names it. Can be given several times;
    /// with several VMs, give one for each, in order (docs/vfio.md).
    #[arg(long, value_name = "BDF")]
    pub vfio: Vec<String>,
    /// Number of virtual CPUs of each VM.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number::<u32>(1..=VCPUS_MAX.into(), "")
    )]
    pub vcpus: u32,
    /// RAM of each VM, in MiB, or with suffix M, G or T.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256",
        allow_hyphen_values = true,
        value_parser = parse_size_mib
    )]
    pub memory: u64,
    /// Back end, and limits of each VM on it: software, cuda, cuda:N, vfio:BDF or auto, then keys
    /// after commas; --help lists the keys. Given again, each VM has several GPUs.
    #[arg(long, value_name = "GPU", default_value = "software", long_help = crate::gpu::help())]
    pub gpu: Vec<String>,
    /// NUMA node of the host on which each VM is: gpu for that of its first GPU, or the number of a
    /// node. Its RAM comes from there, and its threads and worker processes run there
    /// (docs/several-gpus.md). By default, the host's kernel decides.
    #[arg(long, value_name = "NODE")]
    pub numa: Option<Numa>,
    /// How worker processes are confined.
    #[command(flatten)]
    pub sandbox: SandboxArguments,
    /// How much host memory worker processes may use.
    #[command(flatten)]
    pub worker_memory: WorkerMemoryArguments,
    /// Number of VMs. All use the GPUs of --gpu, or one each with cuda:auto, with sessions of their
    /// own.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = number::<u32>(1..=VMS_MAX.into(), "")
    )]
    pub vms: u32,
    /// End the run after this many seconds; 0 or none for no limit. If guests still run then, the
    /// run fails. The default is 300 for embedded guests, and no limit for your own.
    #[arg(long, value_name = "S", value_parser = TimeLimit::parse)]
    pub timeout: Option<TimeLimit>,
    /// Fail the run, with exit code 10, if the data path of a guest has an exit to user space, or
    /// if a guest marks no phase of the data path (docs/guests.md, "Phases").
    #[arg(long)]
    pub require_zero_exits: bool,
    /// Write the report as JSON to this file; - writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Count exits by KVM's tracepoints, too, as a third witness. This takes root, tracefs, and a
    /// fraction of a microsecond for each exit.
    #[arg(long)]
    pub tracepoints: bool,
    /// Where to serve metrics.
    #[command(flatten)]
    pub metrics: MetricsArguments,
    /// Listen on a Unix socket at this path, where `causeway control PATH` and HTTP clients such as
    /// curl show, pause, resume and stop the run (docs/guests.md, "The control socket").
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Arguments of a bare guest (a guest program without an operating system), as one string.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub arguments: Option<String>,
    /// Privilege level (CPL) at which a bare guest runs; 3 by default. Level 0 is for tests.
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub cpl: Option<PrivilegeLevel>,
    /// Give the VMs the mailboxes of the test device, by which your own guests exchange data with
    /// each other (docs/testdev.md). Embedded guests always have them.
    #[arg(long)]
    pub mailboxes: bool,
    /// Use 4 KiB pages for guest RAM instead of 2 MiB pages, for comparison.
    #[arg(long)]
    pub small_pages: bool,
    /// File in TOML format that describes the run: its keys are options without their dashes, as in
    /// memory = "2G". Options that are typed, too, win. Relative paths in the file begin at its
    /// folder (docs/guests.md, "A description file").
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the options of this run as such a file, with defaults, and run nothing.
    #[arg(long)]
    pub print_config: bool,
    /// What --config and --print-config have brought about.
    #[arg(skip)]
    pub described: Described,
}

impl RunArguments {
    /// Returns whether the guest runs a program by an initramfs that this command makes.
    pub fn has_program(&self) -> bool {
        self.program.is_some() || self.rootfs.is_some()
    }
}

/// Parses the value of an option that is a size, and returns it in MiB. For options of clap.
///
/// # Errors
/// A text that says how to write a size.
pub fn parse_size_mib(text: &str) -> Result<u64, String> {
    size_mib(text).ok_or_else(|| format!("choose a size {SIZE_FORM}, such as 4G"))
}

/// Values of `--boot`: how the VM starts the file of `--kernel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BootChoice {
    /// A bare guest: an ELF image without an operating system.
    Bare,
    /// A bzImage, which decompresses itself and may choose a random address.
    Bzimage,
    /// A 64-bit Linux kernel at its 64-bit entry point, from an ELF file or a bzImage.
    Linux64,
    /// An ELF file whose PVH note names the entry point, as for Xen guests.
    Pvh,
}

/// Values of `--cpl`: the two x86-64 privilege levels that operating systems use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PrivilegeLevel {
    /// CPL 0, at which operating-system kernels run.
    #[value(name = "0")]
    Kernel,
    /// CPL 3, at which programs run.
    #[default]
    #[value(name = "3")]
    User,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::RunArguments;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        arguments: RunArguments,
    }

    /// What `causeway run` gets when `words` are typed after it.
    pub fn parse(words: &[&str]) -> RunArguments {
        Typed::parse_from(["run"].iter().chain(words)).arguments
    }

    /// All options of `causeway run`, as users type them, and `--` for the program's arguments.
    pub fn options() -> Vec<String> {
        let command = Typed::command();
        let long = |argument: &clap::Arg| match argument.get_long() {
            Some(name) => format!("--{name}"),
            None => String::from("--"),
        };
        command.get_arguments().map(long).collect()
    }
}
