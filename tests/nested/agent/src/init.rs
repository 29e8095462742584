//! Process 1.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::process::Command;

use causeway_nested_agent::MODULES_FILE;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind_recursive, mount_move};
use rustix::process::{WaitOptions, chroot, wait};
use rustix::system::{RebootCommand, finit_module, reboot};

use crate::parked::{self, Parked};
use crate::shutdowns;

/// Where to mount, and which file system.
const MOUNTS: &[(&str, &str)] = &[
    ("/proc", "proc"),
    ("/sys", "sysfs"),
    ("/sys/kernel/tracing", "tracefs"),
    ("/sys/fs/cgroup", "cgroup2"),
    ("/dev", "devtmpfs"),
    ("/dev/shm", "tmpfs"),
    ("/dev/pts", "devpts"),
    ("/tmp", "tmpfs"),
    ("/run", "tmpfs"),
];

/// Sets the machine up, serves, and switches it off.
pub fn run() -> ! {
    if let Err(error) = set_up().and_then(|parked| serve(&parked)) {
        eprintln!("nested-agent: {error}");
    }
    // Without it the machine would go on with nobody to serve it; the kernel panics if process 1
    // ends.
    let refused = reboot(RebootCommand::PowerOff);
    panic!("the machine cannot be switched off: {refused:?}")
}

fn set_up() -> io::Result<Parked> {
    for (place, kind) in MOUNTS {
        fs::create_dir_all(place)?;
        mount(*kind, *place, *kind, MountFlags::empty(), None)
            .or_else(|e| if e == Errno::BUSY { Ok(()) } else { Err(e) })
            .map_err(|e| io::Error::other(format!("cannot mount {kind} on {place}: {e}")))?;
    }
    leave_the_initramfs()?;
    causeway_init::start_loopback()?;
    // A control group for the groups of worker processes.
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    fs::create_dir("/sys/fs/cgroup/workers")?;
    for module in fs::read_to_string(MODULES_FILE)?.lines() {
        load(module).map_err(|e| io::Error::other(format!("cannot load {module}: {e}")))?;
    }
    // Whatever a test finds out without it would be about something else.
    if !fs::exists("/dev/kvm")? {
        return Err(io::Error::other("the machine's kernel has no /dev/kvm"));
    }
    shutdowns::watch();
    parked::park().map_err(|e| io::Error::other(format!("cannot make VMs that are parked: {e}")))
}

/// Makes the root a mount that processes can leave, as the root of a usual system is: those that
/// confine themselves change to one of their own (pivot_root(2)), which an initramfs refuses.
fn leave_the_initramfs() -> io::Result<()> {
    const ROOT: &str = "/root-of-machine";
    fs::create_dir_all(ROOT)?;
    mount_bind_recursive("/", ROOT)?;
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/")?;
    chroot(".")?;
    std::env::set_current_dir("/")
}

/// A module that is loaded already is as good.
fn load(path: &str) -> io::Result<()> {
    const PARAMETERS: &CStr = c"";
    match finit_module(File::open(path)?, PARAMETERS, 0) {
        Err(error) if error != Errno::EXIST => Err(error.into()),
        _ => Ok(()),
    }
}

/// Runs the agent, and collects whatever ends until the agent does. The VMs stay until then.
fn serve(_parked: &Parked) -> io::Result<()> {
    let agent = Command::new("/proc/self/exe").spawn()?;
    loop {
        let ended = wait(WaitOptions::empty())?;
        if let Some((pid, status)) = ended
            && pid.as_raw_nonzero().get().cast_unsigned() == agent.id()
        {
            return Err(io::Error::other(format!("the agent ended: {status:?}")));
        }
    }
}
