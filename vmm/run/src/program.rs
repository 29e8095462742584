//! Builds the initramfs of a Linux guest around a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use causeway_init::{FILES, Layer, Network, Root, Share, User};
use causeway_initramfs::{
    FileMapping, KernelModule, ModuleFolder, Needs, Workload, WorkloadError, release_of,
};
use clap::Args;

use causeway_terminal::{Code, Failure};

/// Files, kernel modules and arguments that a program needs in its guest.
#[derive(Debug, Default, Args)]
pub struct ProgramArguments {
    /// File that the program needs. HOST is its path on this host, GUEST its absolute path in the
    /// guest; by default, the file keeps its name and lies in the root folder, in which the program
    /// starts. Can be given several times.
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    pub files: Vec<OsString>,
    /// Kernel module to load before the program starts. Modules that are found for the kernel are
    /// loaded first (uio_pci_generic, virtio_pci, virtio_blk, virtio_rng and their dependencies).
    /// Can be given several times.
    #[arg(long = "module", value_name = "FILE.ko")]
    pub modules: Vec<PathBuf>,
    /// Block device of the guest with the program's root file system, such as /dev/vda for the
    /// first --disk, or /dev/vda1 for a partition of it. --program is then a path in this file
    /// system, and files of --file lie in /run/causeway, in which the program starts.
    #[arg(long, value_name = "DEVICE")]
    pub root: Option<PathBuf>,
    /// Variable for the environment of the program. Can be given several times.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<OsString>,
    /// Folder of the guest in which the program starts.
    #[arg(long = "cwd", value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// User of the guest as which the program runs, instead of root: a name in its /etc/passwd, or
    /// a number. Without GROUP, a name has its groups there, and a number the group of the same
    /// number.
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<User>,
    /// Arguments that the program gets; with --rootfs, the program and its arguments.
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub program_arguments: Vec<OsString>,
}

/// The Linux kernel on which a guest's program runs.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    /// Path of the kernel's file on the host. Its modules are searched for in the folder of this
    /// file, then one folder higher, then where this host keeps its own modules.
    pub path: &'a Path,
    /// Content of the kernel's file.
    pub image: &'a [u8],
}

/// What a guest's program gets from outside of the initramfs.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Its root file system, instead of the initramfs.
    pub root: Option<Root>,
    /// Folders of the host.
    pub shares: Vec<Share>,
    /// Its network.
    pub network: Option<Network>,
    /// Whether it has sockets that lead to the host.
    pub has_vsock: bool,
}

/// Takes a variable that has a name. For options of clap.
fn variable(text: &str) -> Result<OsString, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.into()),
        _ => Err(String::from("write NAME=VALUE")),
    }
}

/// Builds the initramfs of a guest that runs `program` with `program_arguments`. It contains the
/// modules of `--module`, and those that are found for `kernel`, if given.
///
/// # Errors
/// An image failure if `program` cannot be read or is not a program that a guest can run; a usage
/// failure if a file or module in `arguments` cannot be read, or its path in the guest is invalid.
pub fn initramfs(
    (program, program_arguments): (&Path, &[OsString]),
    arguments: &ProgramArguments,
    sources: Sources,
    kernel: Option<Kernel>,
) -> Result<Vec<u8>, Failure> {
    let device = arguments.root.as_deref();
    device.map_or(Ok(()), check_root)?;
    let device = device.map(|device| Root::Device(device.to_owned(), Layer::None));
    let root = sources.root.or(device);
    let folder = root.as_ref().map_or("/", |_| FILES);
    let files = arguments.files.iter().map(|text| {
        FileMapping::parse(text, folder)
            .map_err(|e| Failure::usage_from("--file", &text.to_string_lossy(), e))
    });
    let given = arguments.modules.iter().map(|path| {
        KernelModule::new(path)
            .map_err(|e| Failure::usage_from("--module", &path.to_string_lossy(), e))
    });
    let needs = Needs {
        root: root.as_ref(),
        has_shares: !sources.shares.is_empty(),
        has_network: sources.network.is_some(),
        has_vsock: sources.has_vsock,
    };
    let modules = kernel.map(|kernel| modules_of(kernel, &needs));
    let mut modules = modules.unwrap_or_default();
    modules.extend(given.collect::<Result<Vec<_>, _>>()?);
    let workload = Workload {
        program: program.to_owned(),
        root,
        shares: sources.shares,
        network: sources.network,
        environment: arguments.environment.clone(),
        folder: arguments.folder.clone(),
        user: arguments.user.clone(),
        arguments: program_arguments.to_vec(),
        files: files.collect::<Result<_, _>>()?,
        modules,
    };
    workload.initramfs().map_err(refused)
}

/// Refuses a root that is not the path of a device.
fn check_root(device: &Path) -> Result<(), Failure> {
    match device.starts_with("/dev") {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "invalid value {} for --root: name a block device of the guest, such as /dev/vda for \
             the first --disk, or /dev/vda1 for its first partition",
            device.display()
        ))),
    }
}

/// Module by which programs on Linux get interrupts of the GPU's function.
const INTERRUPT_MODULE: &str = "uio_pci_generic";

/// Finds the modules of a kernel for a guest. Guests also run without modules.
fn modules_of(kernel: Kernel, needs: &Needs) -> Vec<KernelModule> {
    let Some(release) = release_of(kernel.image) else {
        return Vec::new();
    };
    let Some(folder) = ModuleFolder::find(kernel.path, release) else {
        log::warn!(
            "cannot find the modules of Linux kernel {release} beside {path} or on this host: \
             without module {INTERRUPT_MODULE} the guest's programs get no interrupts; give the \
             module with --module, or unpack the package that has both kernel and modules",
            path = kernel.path.display()
        );
        return Vec::new();
    };
    let modules = folder.wanted(needs).unwrap_or_else(|e| {
        log::warn!(
            "cannot read the modules of Linux kernel {release}, so the guest gets only those of \
             --module: {e}"
        );
        Vec::new()
    });
    if !folder.provides(INTERRUPT_MODULE, &modules) {
        log::warn!(
            "Linux kernel {release} has no module {INTERRUPT_MODULE} in {folder}, so the guest's \
             programs get no interrupts: give the module with --module",
            folder = folder.path().display()
        );
    }
    modules
}

/// Returns an image failure for a program that no guest can run, and a usage failure for other
/// errors.
fn refused(error: WorkloadError) -> Failure {
    let message = error.to_string();
    match error {
        WorkloadError::Program { source, .. } => Failure::new(Code::Image, message, source),
        WorkloadError::Read {
            what: "program",
            source,
            ..
        } => Failure::new(Code::Image, message, source),
        WorkloadError::Read { source, .. } => Failure::new(Code::Usage, message, source),
        WorkloadError::DamagedLibrary { source, .. } => Failure::new(Code::Image, message, source),
        WorkloadError::Library { .. } | WorkloadError::Runtime { .. } => Failure::image(message),
        WorkloadError::Module { source, .. } => Failure::new(Code::Usage, message, source),
        WorkloadError::Path(_)
        | WorkloadError::Archive(_)
        | WorkloadError::Hidden { .. }
        | WorkloadError::Outside { .. } => Failure::usage(message),
    }
}
