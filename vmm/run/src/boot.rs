//! Chooses what a VM boots: an embedded guest, a bare guest, or a Linux kernel with its initramfs
//! and command line.

use std::ffi::OsString;
use std::io::{Error, Read};
use std::path::Path;
use std::sync::Arc;

use causeway_vmm::linux::{BootProtocol, COMMAND_LINE, Kernel, Linux};
use causeway_vmm::virtio::OutsideSource;
use causeway_vmm::vm::{Boot, Image, Privilege};

use crate::applicable::{Guest, refuse_contradictions, refuse_others};
use crate::arguments::{BootChoice, PrivilegeLevel, RunArguments};
use crate::device_process::Processes;
use crate::disk::{self, Storage};
use crate::guests;
use crate::net::Net;
use crate::program::{self, Sources};
use crate::rootfs::RootSource;
use crate::share::{self, SharedFolder};
use crate::virtiofsd::Server;
use crate::vsock::Vsock;
use causeway_initramfs::is_linux_program;
use causeway_terminal::{Code, Failure, shown_path};

/// Embedded guest that runs unless another is named.
const GUEST: &str = "compute";

/// Largest kernel or bare image in bytes.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// Largest initramfs in bytes: it lies below 3 GiB, with the kernel.
const INITRAMFS_BYTES_MAX: u64 = 3 << 30;

/// Name of the file of `--initramfs` in messages.
const INITRAMFS: &str = "initramfs";

/// Returns the name of the guest for the report, and the program or kernel that it boots.
///
/// # Errors
/// A usage failure if options contradict each other or the embedded guest does not exist; an image
/// failure if a file cannot be read or is not one that can boot.
pub fn choose(arguments: &RunArguments) -> Result<(String, Boot), Failure> {
    refuse_contradictions(arguments)?;
    let text = arguments.arguments.as_deref().unwrap_or_default();
    let level = arguments.cpl.unwrap_or_default();
    let Some(path) = &arguments.kernel else {
        let name = arguments.guest.as_deref().unwrap_or(GUEST);
        let boot = embedded(name, text, level)?;
        refuse_others(Guest::Embedded(name), arguments)?;
        return Ok((name.to_owned(), boot));
    };
    let image = read_image(path)?;
    let name = shown_path(path);
    let boot = match recognize(path, &image, arguments.boot)? {
        Some(kernel) => {
            refuse_others(Guest::Linux, arguments)?;
            Boot::Linux(Box::new(linux(kernel, path, &image, arguments)?))
        }
        None => {
            refuse_others(Guest::Bare(&name), arguments)?;
            if arguments.boot.is_none() {
                refuse_linux_program(&name, &image)?;
            }
            bare(Image::Shared(image), text, level)
        }
    };
    Ok((name, boot))
}

/// Refuses a program for Linux, which would crash as a bare guest.
fn refuse_linux_program(name: &str, image: &[u8]) -> Result<(), Failure> {
    match is_linux_program(image) {
        false => Ok(()),
        true => Err(Failure::image(format!(
            "{name} of --kernel is a program for Linux, not a kernel: run it on a Linux kernel by \
             --kernel VMLINUZ --program {name} (or add --boot bare if it needs no operating \
             system)"
        ))),
    }
}

fn recognize(
    path: &Path,
    image: &Arc<[u8]>,
    choice: Option<BootChoice>,
) -> Result<Option<Kernel>, Failure> {
    let wanted = match choice {
        None => None,
        Some(BootChoice::Bare) => return Ok(None),
        Some(BootChoice::Bzimage) => Some(BootProtocol::BzImage),
        Some(BootChoice::Linux64) => Some(BootProtocol::Linux64),
        Some(BootChoice::Pvh) => Some(BootProtocol::Pvh),
    };
    Kernel::recognize(Arc::clone(image), wanted)
        .map_err(|e| Failure::new(Code::Image, format!("cannot boot {}", shown_path(path)), e))
}

fn linux(
    kernel: Kernel,
    path: &Path,
    image: &[u8],
    arguments: &RunArguments,
) -> Result<Linux, Failure> {
    let root = arguments.rootfs.as_deref().map(RootSource::parse);
    let root = root.transpose()?;
    let shares = share::parse_all(&arguments.share)?;
    let network = arguments.net.as_deref();
    let network = network.map(|text| Net::parse(text, arguments.vms));
    let network = network.transpose()?;
    let initramfs = match (program_of(root.as_ref(), arguments)?, &arguments.initramfs) {
        (Some(program), _) => {
            let kernel = program::Kernel { path, image };
            let sources = Sources {
                root: root.as_ref().map(RootSource::root),
                shares: shares.iter().map(|it| it.share.clone()).collect(),
                network: network.as_ref().map(Net::addresses),
                has_vsock: arguments.vsock.is_some(),
            };
            program::initramfs(program, &arguments.more, sources, Some(kernel))?.into()
        }
        (None, Some(path)) => read_initramfs(path)?,
        (None, None) => Arc::from([]),
    };
    let disks = root.as_ref().and_then(RootSource::disk).into_iter();
    let storage = Storage {
        named: arguments.storage_daemon.as_deref(),
        sandbox: arguments.sandbox.sandbox,
    };
    let disks: Vec<_> = disks.chain(arguments.disk.iter().cloned()).collect();
    let command_line = command_line(arguments);
    kernel
        .check_command_line(&command_line)
        .map_err(|e| Failure::new(Code::Usage, "invalid value for --append", e))?;
    Ok(Linux {
        kernel,
        initramfs,
        command_line,
        disks: disk::open_all(&disks, arguments.vms, storage)?.into(),
        slots: Arc::new([]),
        processes: processes(root.as_ref(), shares, network, arguments)?,
    })
}

/// Returns the program that the initramfs runs, with its arguments: that of `--program`, or the one
/// behind `--` in a root of `--rootfs`.
fn program_of<'a>(
    root: Option<&RootSource>,
    arguments: &'a RunArguments,
) -> Result<Option<(&'a Path, &'a [OsString])>, Failure> {
    let words = &arguments.more.program_arguments[..];
    let Some(root) = root else {
        let program = arguments.program.as_deref();
        return Ok(program.map(|program| (program, words)));
    };
    let (program, words) = words.split_first().ok_or_else(|| {
        Failure::usage("--rootfs needs a program: add -- PROGRAM ARGUMENTS, such as -- /bin/sh")
    })?;
    root.check_program(program)?;
    if let Some(user) = &arguments.more.user {
        root.check_user(user)?;
    }
    Ok(Some((Path::new(program), words)))
}

/// Returns what serves the devices of a guest outside of this process: folders, its root first, its
/// network, and its sockets.
fn processes(
    root: Option<&RootSource>,
    shares: Vec<SharedFolder>,
    network: Option<Net>,
    arguments: &RunArguments,
) -> Result<Arc<[Arc<dyn OutsideSource>]>, Failure> {
    let mut all = servers(root, shares, arguments)?;
    if let Some(network) = network {
        all.push(network.source(arguments.passt.as_deref())?);
    }
    if let Some(cid) = arguments.vsock {
        all.push(Arc::new(Vsock::new(cid, arguments.vms)?));
    }
    Ok(all.into())
}

/// Returns what serves the folders of a guest: its root first.
fn servers(
    root: Option<&RootSource>,
    shares: Vec<SharedFolder>,
    arguments: &RunArguments,
) -> Result<Vec<Arc<dyn OutsideSource>>, Failure> {
    let (named, sandbox) = (arguments.virtiofsd.as_deref(), arguments.sandbox.sandbox);
    let root = root.and_then(RootSource::folder).cloned();
    if let Some(folder) = root.iter().chain(&shares).find(|it| !it.share.read_only)
        && arguments.vms > 1
    {
        return Err(Failure::usage(format!(
            "{} cannot be shared by --vms {}: several VMs would write to it; add ,ro to --share, \
             or leave out ,rw of --rootfs",
            shown_path(&folder.folder),
            arguments.vms
        )));
    }
    let servers = root.into_iter().chain(shares).map(|folder| {
        let server = Server::new(folder, named, sandbox)
            .map_err(|e| Failure::new(Code::Usage, "cannot serve a folder to the guest", e))?;
        Ok(Arc::new(Processes::of(server)) as Arc<dyn OutsideSource>)
    });
    servers.collect()
}

fn command_line(arguments: &RunArguments) -> String {
    let mut command_line = COMMAND_LINE.to_owned();
    if arguments.has_program() {
        // The console shows the program's output only.
        command_line.push_str(" quiet");
    }
    if let Some(text) = &arguments.append {
        command_line.push(' ');
        command_line.push_str(text);
    }
    command_line
}

fn bare(image: Image, arguments: &str, level: PrivilegeLevel) -> Boot {
    Boot::Bare {
        image,
        arguments: arguments.to_owned(),
        privilege: match level {
            PrivilegeLevel::Kernel => Privilege::Kernel,
            PrivilegeLevel::User => Privilege::User,
        },
    }
}

/// Returns what a VM needs to boot the embedded guest `name`, with `arguments` as its argument text
/// and at privilege level `level`.
///
/// # Errors
/// A usage failure that names embedded guests, if none has this name.
pub fn embedded(name: &str, arguments: &str, level: PrivilegeLevel) -> Result<Boot, Failure> {
    let image = causeway_embedded::image(name).ok_or_else(|| {
        Failure::usage(format!(
            "invalid value {name} for --guest: choose {}, or another that `causeway run --help` \
             lists",
            guests::names_to_try()
        ))
    })?;
    Ok(bare(Image::Embedded(image), arguments, level))
}

/// Reads the file of a Linux kernel or a bare guest. The loader checks its format later.
///
/// # Errors
/// An image failure if the file cannot be read, is not a regular file, or is larger than 1 GiB.
pub fn read_image(path: &Path) -> Result<Arc<[u8]>, Failure> {
    read("guest image", path, IMAGE_BYTES_MAX)
}

/// Reads an initramfs, and refuses an empty file.
fn read_initramfs(path: &Path) -> Result<Arc<[u8]>, Failure> {
    let bytes = read(INITRAMFS, path, INITRAMFS_BYTES_MAX)?;
    match bytes.is_empty() {
        true => Err(Failure::file(
            INITRAMFS,
            path,
            Error::other("the file is empty"),
        )),
        false => Ok(bytes),
    }
}

/// Reads a file for the guest. The loader checks its format.
fn read(what: &str, path: &Path, bytes_max: u64) -> Result<Arc<[u8]>, Failure> {
    let fail = |e| Failure::file(what, path, e);
    // Checked before the file is opened, because opening a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(fail)?.is_file() {
        return Err(fail(Error::other("not a regular file")));
    }
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() || metadata.len() > bytes_max {
        let why = format!("not a regular file of at most {bytes_max} bytes");
        return Err(fail(Error::other(why)));
    }
    // Read into its final place, because such files are large.
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, metadata.len() as usize).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        file.read_exact(bytes).map_err(fail)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::tests::parse;

    fn chosen(words: &[&str]) -> Result<(String, Boot), Failure> {
        let arguments = parse(words);
        choose(&arguments)
    }

    fn message(words: &[&str]) -> String {
        let failure = chosen(words).expect_err("refused");
        let mut text = failure.to_string();
        let mut source = std::error::Error::source(&failure);
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        text
    }

    /// Writes an embedded guest to a file, and returns its path.
    fn bare_file(name: &str) -> String {
        let name = format!("causeway-boot-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, causeway_embedded::image("spin").unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_bare_image_is_told_from_a_kernel_and_takes_nothing_of_one() {
        let bare = bare_file("told");
        let kernel = |more: &[&'static str]| [&["--kernel", bare.as_str()], more].concat();
        let booted = chosen(&kernel(&[]));
        assert!(matches!(booted, Ok((_, Boot::Bare { .. }))));
        for option in ["--append", "--disk", "--program"] {
            let text = message(&kernel(&[option, "x"]));
            assert!(
                text.contains(&format!("{option} is for Linux kernels")),
                "{text}"
            );
        }
        let text = message(&["--disk", "x"]);
        assert!(text.contains("--disk is for a Linux kernel"), "{text}");
        let text = message(&kernel(&["--boot", "pvh"]));
        assert!(text.contains(&bare), "{text}");
        std::fs::remove_file(bare).unwrap();
    }

    /// This test is a program for Linux, too.
    #[test]
    fn a_program_for_linux_is_no_kernel_unless_the_user_says_so() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        let text = message(&["--kernel", own]);
        assert!(text.contains(&format!("--program {own}")), "{text}");
        let insisted = chosen(&["--kernel", own, "--boot", "bare"]);
        assert!(matches!(insisted, Ok((_, Boot::Bare { .. }))));
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let text = message(&["--kernel", "/nowhere/vmlinuz"]);
        assert!(text.contains("/nowhere/vmlinuz"), "{text}");
        let text = message(&["--kernel", "/dev/null"]);
        assert!(text.contains("regular file"), "{text}");
    }
}
