//! What code may try that controls a worker. No attempt harms anything if it succeeds: the same
//! list runs without a sandbox, to show that the sandbox is what refuses it.
#![allow(unsafe_code)] // System calls, most of which have no safe form.

use std::ffi::{CStr, c_long};
use std::fs::File;
use std::io;
use std::path::Path;

use libc::c_int;

/// An attempt: its name, and a function that returns the number of the error, or 0.
pub type Attempt = (&'static str, fn() -> i32);

/// Makes a system call with up to six arguments. Returns the number of the error, or 0.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the arguments are numbers, null, or point to text that is never freed; no such
        // call changes memory of this process.
        outcome(unsafe { libc::syscall(libc::$number $(, $argument)*) })
    };
}

const NOWHERE: c_int = -1;
const NULL: usize = 0;
const ROOT: &CStr = c"/";
const ABSENT: &CStr = c"/nonexistent/causeway";

fn outcome(returned: c_long) -> i32 {
    match returned {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or(NOWHERE),
        _ => 0,
    }
}

/// A call that may return in a child process.
fn child(returned: c_long) -> i32 {
    if returned == 0 {
        // SAFETY: ends the child, and nothing else.
        unsafe { libc::_exit(0) }
    }
    outcome(returned)
}

fn open(path: &str, write: bool) -> i32 {
    let opened = match write {
        true => File::options().write(true).open(path),
        false => File::open(path),
    };
    opened.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

fn create(folder: &str) -> i32 {
    let path = Path::new(folder).join(format!("causeway-attempt-{}", std::process::id()));
    let created = File::create_new(&path);
    let _ = std::fs::remove_file(&path);
    created.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

fn parent() -> c_int {
    // SAFETY: returns a number.
    unsafe { libc::getppid() }
}

fn of_parent(name: &str) -> i32 {
    open(&format!("/proc/{}/{name}", parent()), false)
}

/// Files and folders.
const FILES: &[Attempt] = &[
    ("write /etc/passwd", || open("/etc/passwd", true)),
    ("read /etc/passwd", || open("/etc/passwd", false)),
    ("list /", || open("/", false)),
    ("list /home", || open("/home", false)),
    ("list /tmp", || open("/tmp", false)),
    ("list /proc", || open("/proc", false)),
    ("list /dev", || open("/dev", false)),
    ("create in /tmp", || create("/tmp")),
    ("create in /dev/shm", || create("/dev/shm")),
    ("create here", || create(".")),
    ("parent's memory", || of_parent("mem")),
    ("parent's mappings", || of_parent("maps")),
    ("parent's environment", || of_parent("environ")),
    ("parent's arguments", || of_parent("cmdline")),
    ("parent's descriptors", || of_parent("fd")),
    ("arguments of process 1", || open("/proc/1/cmdline", false)),
    ("mountinfo of process 1", || {
        open("/proc/1/mountinfo", false)
    }),
    ("file without a name in /tmp", || {
        call!(
            SYS_openat,
            NOWHERE,
            c"/tmp".as_ptr(),
            libc::O_TMPFILE | libc::O_RDWR,
            0o600
        )
    }),
    ("truncate", || call!(SYS_truncate, ABSENT.as_ptr(), 0)),
    ("unlink", || call!(SYS_unlink, ABSENT.as_ptr())),
    ("rename", || {
        call!(SYS_rename, ABSENT.as_ptr(), ABSENT.as_ptr())
    }),
    ("link", || call!(SYS_link, ABSENT.as_ptr(), ABSENT.as_ptr())),
    ("symlink", || {
        call!(SYS_symlink, ROOT.as_ptr(), ABSENT.as_ptr())
    }),
    ("mkdir", || call!(SYS_mkdir, ABSENT.as_ptr(), 0o700)),
    ("mknod", || {
        call!(SYS_mknod, ABSENT.as_ptr(), libc::S_IFCHR | 0o600, 0x103)
    }),
    ("chmod", || call!(SYS_chmod, ABSENT.as_ptr(), 0o777)),
    ("chown", || call!(SYS_chown, ABSENT.as_ptr(), 0, 0)),
    ("utimensat", || {
        call!(SYS_utimensat, NOWHERE, ABSENT.as_ptr(), NULL, 0)
    }),
    ("setxattr", || {
        call!(SYS_setxattr, ABSENT.as_ptr(), ABSENT.as_ptr(), NULL, 0, 0)
    }),
    ("open_by_handle_at", || {
        call!(SYS_open_by_handle_at, NOWHERE, NULL, 0)
    }),
    ("openat2", || {
        call!(SYS_openat2, NOWHERE, ROOT.as_ptr(), NULL, 0)
    }),
];

/// Programs and other processes.
const PROCESSES: &[Attempt] = &[
    ("execve", || call!(SYS_execve, ABSENT.as_ptr(), NULL, NULL)),
    ("execveat", || {
        call!(SYS_execveat, NOWHERE, ABSENT.as_ptr(), NULL, NULL, 0)
    }),
    // SAFETY: the child ends at once.
    ("fork", || child(unsafe { libc::syscall(libc::SYS_fork) })),
    ("clone", || {
        // SAFETY: as above.
        child(unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) })
    }),
    ("clone3", || call!(SYS_clone3, NULL, 0)),
    ("kill the parent", || call!(SYS_kill, parent(), 0)),
    ("kill everybody", || call!(SYS_kill, -1, 0)),
    ("kill the group", || call!(SYS_kill, 0, 0)),
    ("tkill", || call!(SYS_tkill, parent(), 0)),
    ("tgkill", || call!(SYS_tgkill, parent(), parent(), 0)),
    ("rt_sigqueueinfo", || {
        call!(SYS_rt_sigqueueinfo, parent(), 0, NULL)
    }),
    ("pidfd_open", || call!(SYS_pidfd_open, parent(), 0)),
    ("pidfd_send_signal", || {
        call!(SYS_pidfd_send_signal, NOWHERE, 0, NULL, 0)
    }),
    ("pidfd_send_signal to a group", || {
        call!(SYS_pidfd_send_signal, NOWHERE, 0, NULL, 4)
    }),
    ("getsockopt for a pidfd", || {
        call!(SYS_getsockopt, NOWHERE, libc::SOL_SOCKET, 77, NULL, NULL)
    }),
    ("setsockopt for pidfds", || {
        call!(SYS_setsockopt, NOWHERE, libc::SOL_SOCKET, 76, NULL, 0)
    }),
    ("socketpair for datagrams", || {
        call!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_DGRAM, 0, NULL)
    }),
    ("socketpair of another family", || {
        call!(SYS_socketpair, libc::AF_TIPC, libc::SOCK_STREAM, 0, NULL)
    }),
    ("pidfd_getfd", || call!(SYS_pidfd_getfd, NOWHERE, 0, 0)),
    ("ptrace", || {
        call!(SYS_ptrace, libc::PTRACE_PEEKUSER, parent(), NULL, NULL)
    }),
    ("process_vm_readv", || {
        call!(SYS_process_vm_readv, parent(), NULL, 0, NULL, 0, 0)
    }),
    ("process_vm_writev", || {
        call!(SYS_process_vm_writev, parent(), NULL, 0, NULL, 0, 0)
    }),
    ("process_madvise", || {
        call!(SYS_process_madvise, NOWHERE, NULL, 0, 0, 0)
    }),
    ("kcmp", || call!(SYS_kcmp, parent(), parent(), 0, 0, 0)),
    ("limits of the parent", || {
        call!(SYS_prlimit64, parent(), libc::RLIMIT_CORE, NULL, NULL)
    }),
    ("niceness of the parent", || {
        call!(SYS_setpriority, libc::PRIO_PROCESS, parent(), 0)
    }),
    ("niceness of the user", || {
        call!(SYS_setpriority, libc::PRIO_USER, 0, 0)
    }),
    ("disk priority of the user", || {
        call!(SYS_ioprio_set, 3, 0, 0)
    }),
    ("processors of the parent", || {
        call!(SYS_sched_setaffinity, parent(), 0, NULL)
    }),
    ("signals of a file to the parent", || {
        call!(SYS_fcntl, 2, libc::F_SETOWN, parent())
    }),
    ("pages of the parent", || {
        call!(SYS_move_pages, parent(), 0, NULL, NULL, NULL, 0)
    }),
    ("setsid", || call!(SYS_setsid)),
    ("setpgid", || call!(SYS_setpgid, 0, 0)),
    ("outlive the parent", || {
        call!(SYS_prctl, libc::PR_SET_PDEATHSIG, 0, 0, 0, 0)
    }),
    ("adopt orphans", || {
        call!(SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    }),
    ("be traced", || {
        call!(SYS_prctl, libc::PR_SET_PTRACER, 0, 0, 0, 0)
    }),
];

/// Namespaces and mounts.
const NAMESPACES: &[Attempt] = &[
    ("user namespace", || call!(SYS_unshare, libc::CLONE_NEWUSER)),
    ("network namespace", || {
        call!(SYS_unshare, libc::CLONE_NEWNET)
    }),
    ("mount namespace", || call!(SYS_unshare, libc::CLONE_NEWNS)),
    ("PID namespace", || call!(SYS_unshare, libc::CLONE_NEWPID)),
    ("setns", || call!(SYS_setns, NOWHERE, 0)),
    ("mount", || call!(SYS_mount, NULL, NULL, NULL, 0, NULL)),
    ("umount2", || call!(SYS_umount2, ABSENT.as_ptr(), 0)),
    ("fsopen", || call!(SYS_fsopen, c"tmpfs".as_ptr(), 0)),
    ("fsmount", || call!(SYS_fsmount, NOWHERE, 0, 0)),
    ("open_tree", || {
        call!(SYS_open_tree, NOWHERE, ROOT.as_ptr(), 1)
    }),
    ("move_mount", || {
        call!(SYS_move_mount, NOWHERE, NULL, NOWHERE, NULL, 0)
    }),
    ("mount_setattr", || {
        call!(SYS_mount_setattr, NOWHERE, NULL, 0, NULL, 0)
    }),
    ("pivot_root", || {
        call!(SYS_pivot_root, ABSENT.as_ptr(), ABSENT.as_ptr())
    }),
    ("chroot", || call!(SYS_chroot, ABSENT.as_ptr())),
];

/// Connections.
const CONNECTIONS: &[Attempt] = &[
    ("IPv4 socket", || {
        call!(SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0)
    }),
    ("IPv6 socket", || {
        call!(SYS_socket, libc::AF_INET6, libc::SOCK_DGRAM, 0)
    }),
    ("Unix socket", || {
        call!(SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM, 0)
    }),
    ("netlink socket", || {
        call!(SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0)
    }),
    ("connect", || call!(SYS_connect, NOWHERE, NULL, 0)),
    ("bind", || call!(SYS_bind, NOWHERE, NULL, 0)),
    ("listen", || call!(SYS_listen, NOWHERE, 1)),
    ("accept4", || call!(SYS_accept4, NOWHERE, NULL, NULL, 0)),
    ("send to an address", || {
        call!(SYS_sendto, NOWHERE, NULL, 0, 0, ROOT.as_ptr(), 16)
    }),
    ("shared memory", || {
        call!(SYS_shmget, libc::IPC_PRIVATE, 0, 0)
    }),
    ("semaphores", || call!(SYS_semget, libc::IPC_PRIVATE, 0, 0)),
    ("message queue", || call!(SYS_msgget, libc::IPC_PRIVATE, 0)),
    ("POSIX queue", || {
        call!(SYS_mq_open, ABSENT.as_ptr(), 0, 0, NULL)
    }),
];

/// The kernel and the machine.
const KERNEL: &[Attempt] = &[
    ("bpf", || call!(SYS_bpf, NOWHERE, NULL, 0)),
    ("perf_event_open", || {
        call!(SYS_perf_event_open, NULL, 0, 0, NOWHERE, 0)
    }),
    ("userfaultfd", || call!(SYS_userfaultfd, 0)),
    ("io_uring_setup", || call!(SYS_io_uring_setup, 0, NULL)),
    ("io_uring_enter", || {
        call!(SYS_io_uring_enter, NOWHERE, 0, 0, 0, NULL, 0)
    }),
    ("io_uring_register", || {
        call!(SYS_io_uring_register, NOWHERE, 0, NULL, 0)
    }),
    ("keyctl", || call!(SYS_keyctl, 0, -3, 0, 0, 0)),
    ("add_key", || call!(SYS_add_key, NULL, NULL, NULL, 0, 0)),
    ("request_key", || {
        call!(SYS_request_key, NULL, NULL, NULL, 0)
    }),
    ("fanotify_init", || call!(SYS_fanotify_init, 0, 0)),
    ("init_module", || call!(SYS_init_module, NULL, 0, NULL)),
    ("finit_module", || call!(SYS_finit_module, NOWHERE, NULL, 0)),
    ("delete_module", || call!(SYS_delete_module, NULL, 0)),
    ("kexec_load", || call!(SYS_kexec_load, 0, 99, NULL, 0)),
    ("reboot", || call!(SYS_reboot, 0, 0, 0, NULL)),
    ("swapon", || call!(SYS_swapon, NULL, 0)),
    ("acct", || call!(SYS_acct, ABSENT.as_ptr())),
    ("kernel log", || call!(SYS_syslog, 10, NULL, 0)),
    ("sethostname", || call!(SYS_sethostname, NULL, -1)),
    ("clock_settime", || call!(SYS_clock_settime, 0, NULL)),
    ("iopl", || call!(SYS_iopl, 4)),
    ("personality", || call!(SYS_personality, u32::MAX)),
    ("setuid", || call!(SYS_setresuid, -1, -1, -1)),
    ("setgroups", || call!(SYS_setgroups, -1, NULL)),
    ("capset", || call!(SYS_capset, NULL, NULL)),
    ("terminal input", || {
        call!(SYS_ioctl, 2, libc::TIOCSTI, NULL)
    }),
];

/// What a process that computes must not do either, while a GPU's driver may.
const OF_DRIVERS: &[Attempt] = &[
    ("executable memory", || {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
        call!(
            SYS_mmap,
            NULL,
            4096,
            protection,
            flags | libc::MAP_ANONYMOUS,
            NOWHERE,
            0
        )
    }),
    ("read a library", || open("/lib", false)),
    ("control a device", || call!(SYS_ioctl, NOWHERE, 0, NULL)),
    ("read-write device", || open("/dev/zero", true)),
];

/// Returns the attempts that every worker is refused, and those that only a worker is that
/// computes.
pub fn attempts() -> (Vec<Attempt>, &'static [Attempt]) {
    let groups = [FILES, PROCESSES, NAMESPACES, CONNECTIONS, KERNEL];
    (groups.concat(), OF_DRIVERS)
}

/// Tries everything, and returns a line for each attempt: the number of its error, and its name.
pub fn report() -> Vec<u8> {
    let (all, of_drivers) = attempts();
    let lines = all.iter().chain(of_drivers);
    let lines = lines.map(|(name, attempt)| format!("{} {name}\n", attempt()));
    lines.collect::<String>().into_bytes()
}
