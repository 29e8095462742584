//! Calls that are refused with an error. A library that tries one goes on without it, and an
//! attacker gains nothing; so this is no reason to end the process.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompRule,
};

use super::names;
use super::program::{self, Rules, on};
use crate::profile::Profile;

/// Starting programs and processes. Threads are made by `clone`, which has conditions.
const PROGRAMS: [i64; 4] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
];

/// Reaching into other processes.
const OTHER_PROCESSES: [i64; 17] = [
    libc::SYS_ioprio_set,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_setpgid,
    libc::SYS_setsid,
    libc::SYS_tkill,
];

/// Namespaces, mounts, and where paths lead.
const NAMESPACES: [i64; 15] = [
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_fchdir,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Changing the kernel, the machine, or what others see of it.
const KERNEL: [i64; 25] = [
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_lookup_dcookie,
    libc::SYS_modify_ldt,
    libc::SYS_nfsservctl,
    libc::SYS_personality,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Parts of the kernel that are large, that few programs use, and in which mistakes were found.
const PARTS: [i64; 20] = [
    libc::SYS__sysctl,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_memfd_secret,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_remap_file_pages,
    libc::SYS_request_key,
    libc::SYS_sysfs,
    libc::SYS_uselib,
    libc::SYS_userfaultfd,
    libc::SYS_ustat,
    libc::SYS_vmsplice,
];

/// Connections to anybody. Descriptors that the process has stay usable.
const CONNECTIONS: [i64; 8] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_sendmmsg,
    libc::SYS_socket,
    libc::SYS_socketpair,
];

/// Memory, semaphores and queues with names.
const IPC: [i64; 18] = [
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
];

/// Being somebody else.
const IDENTITY: [i64; 10] = [
    libc::SYS_capset,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
];

/// Changing files by their names, and properties of files. Landlock does not know of most.
const FILES: [i64; 33] = [
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_futimesat,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_removexattr,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_rmdir,
    libc::SYS_setxattr,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_utime,
    libc::SYS_utimensat,
    libc::SYS_utimes,
];

/// Calls of late kernels that do what others of these lists do. The C library lacks their names.
const LATE: [i64; 5] = [
    452, // fchmodat2
    463, // setxattrat
    466, // removexattrat
    467, // open_tree_attr
    469, // file_setattr
];

/// Calls about a process or a thread, which the first argument names.
const OF_A_PROCESS: [i64; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Calls by which a VMM connects to worker processes and ends them, and answers monitors. It has
/// descriptors of those processes and sockets.
const NEEDED_BY_VMMS: [i64; 4] = [
    libc::SYS_accept4,
    libc::SYS_listen,
    libc::SYS_pidfd_send_signal,
    libc::SYS_socketpair,
];

/// Calls by which a VMM removes its sockets, and their folder.
const REMOVING: [i64; 2] = [libc::SYS_rmdir, libc::SYS_unlink];

/// What a process may do that depends on its profile.
#[derive(Clone, Copy, Debug)]
pub struct More<'a> {
    /// Where it may make files; without a folder, nowhere.
    pub folder: Option<BorrowedFd<'a>>,
    /// Whether it may map files privately to execute them, but not to write them.
    pub makes_code: bool,
    /// Whether it opens devices to write to them. Landlock knows which.
    pub opens_devices: bool,
    /// Whether it removes files. Landlock knows which.
    pub removes_files: bool,
}

impl<'a> More<'a> {
    /// Returns what `profile` says, but for the removal of files.
    pub fn of(profile: &'a Profile) -> Self {
        Self {
            folder: profile.folder,
            makes_code: profile.makes_code,
            opens_devices: profile.has_devices(),
            removes_files: false,
        }
    }
}

/// Control operations that put input into a terminal, or change what it is (ioctl_tty(2)).
const TERMINAL: [u64; 4] = [
    libc::TIOCSTI,
    0x541c, // TIOCLINUX
    libc::TIOCSETD,
    libc::TIOCCONS,
];

/// Control operations that say who gets a signal of a file (`FIOSETOWN`, `SIOCSPGRP`). The kernel
/// sends it in its own name, past the filter of `kill`.
const OWNERS: [u64; 2] = [0x8901, 0x8902];

/// What does the same by `fcntl`: `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`.
const OWNERS_BY_FCNTL: [u64; 3] = [8, 10, 15];

/// Options of sockets that give descriptors of other processes (include/uapi/asm-generic/socket.h).
const SO_PASSPIDFD: u64 = 76;
const SO_PEERPIDFD: u64 = 77;

/// Settings of a process by which it could outlive the one that started it, or open itself to
/// others (prctl(2)).
const SETTINGS: [c_int; 6] = [
    libc::PR_SET_PDEATHSIG,
    libc::PR_SET_CHILD_SUBREAPER,
    libc::PR_SET_DUMPABLE,
    libc::PR_SET_PTRACER,
    libc::PR_SET_MM,
    libc::PR_SET_SECUREBITS,
];

/// Settings that a process that computes needs: names of threads and of memory, what the standard
/// library asks about processors (PR_GET_AUXV), and what comes before the next filter.
const SETTINGS_NEEDED: [c_int; 5] = [
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    0x4155_5856,
];

/// Returns the calls that are refused whatever their arguments are.
pub fn always() -> impl Iterator<Item = i64> {
    let groups: [&[i64]; 10] = [
        &PROGRAMS,
        &OTHER_PROCESSES,
        &NAMESPACES,
        &KERNEL,
        &PARTS,
        &CONNECTIONS,
        &IPC,
        &IDENTITY,
        &FILES,
        &LATE,
    ];
    groups.into_iter().flatten().copied()
}

/// Returns the filter of calls that this process may not find: those that nobody knows, and two for
/// which the C library then makes the older ones, whose arguments a filter can see.
pub fn absent() -> BpfProgram {
    program::absent(&[libc::SYS_clone3, libc::SYS_openat2], names::LAST)
}

/// Returns the filter of what is refused to every confined process. `process` is the ID of this
/// one: it may signal itself.
pub fn everywhere(process: u32) -> Result<BpfProgram, BackendError> {
    on(to_all(process)?, refusal())
}

/// Returns the filter of what is refused to threads of a VMM, but for `more`. `process` is the ID
/// of this process.
pub fn to_vmm(process: u32, more: More<'_>) -> Result<BpfProgram, BackendError> {
    let mut rules = to_all(process)?;
    for call in NEEDED_BY_VMMS {
        rules.remove(&call);
    }
    if more.removes_files {
        rules.retain(|call, _| !REMOVING.contains(call));
    }
    // Workers, and not whole groups of processes.
    rules.insert(
        libc::SYS_pidfd_send_signal,
        vec![rule([(3, Dword, Ne, 0)])?],
    );
    rules.insert(libc::SYS_socketpair, pairs()?);
    let mut computing = without_driver(more)?;
    if more.opens_devices {
        computing.remove(&libc::SYS_openat);
    }
    for (call, more) in computing {
        match rules.get_mut(&call) {
            // Without conditions, it is refused whatever the others say.
            Some(known) if known.is_empty() || more.is_empty() => known.clear(),
            Some(known) => known.extend(more),
            None => drop(rules.insert(call, more)),
        }
    }
    on(rules, refusal())
}

fn to_all(process: u32) -> Result<BTreeMap<i64, Rules>, BackendError> {
    let mut rules: BTreeMap<i64, Rules> = always().map(|call| (call, Vec::new())).collect();
    // Not a thread: a process, or namespaces.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(
        libc::SYS_clone,
        vec![rule([(0, Qword, MaskedEq(thread), 0)])?],
    );
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![rule([(0, Dword, Ne, process.into())])?]);
    }
    // Zero is this process, or this thread.
    for call in OF_A_PROCESS {
        rules.insert(call, vec![rule([(0, Dword, Ne, 0)])?]);
    }
    // Here zero may also be this user, or this group, with all its processes.
    let process = u64::from(libc::PRIO_PROCESS);
    let others = vec![rule([(0, Dword, Ne, process)])?, rule([(1, Dword, Ne, 0)])?];
    rules.insert(libc::SYS_setpriority, others);
    rules.insert(libc::SYS_fcntl, any(1, &OWNERS_BY_FCNTL)?);
    rules.insert(libc::SYS_getsockopt, any(2, &[SO_PEERPIDFD])?);
    rules.insert(libc::SYS_setsockopt, any(2, &[SO_PASSPIDFD])?);
    // A file that is opened to be read can be emptied.
    for (call, argument) in [(libc::SYS_open, 1), (libc::SYS_openat, 2)] {
        rules.insert(call, vec![emptying(argument)?]);
    }
    // A datagram to a path would need no connection.
    rules.insert(libc::SYS_sendto, vec![rule([(4, Qword, Ne, 0)])?]);
    rules.insert(libc::SYS_ioctl, any(1, &[&TERMINAL[..], &OWNERS].concat())?);
    rules.insert(libc::SYS_prctl, any(0, &SETTINGS.map(setting))?);
    Ok(rules)
}

/// Returns the filter of what is refused to a process that computes, but for `more`, beside
/// [`everywhere`]. It opens no devices.
pub fn to_computations(more: More<'_>) -> Result<BpfProgram, BackendError> {
    let mut rules = without_driver(more)?;
    rules.insert(libc::SYS_ioctl, Vec::new());
    on(rules, refusal())
}

fn without_driver(more: More<'_>) -> Result<BTreeMap<i64, Rules>, BackendError> {
    let mut rules: BTreeMap<i64, Rules> = BTreeMap::new();
    rules.insert(libc::SYS_open, Vec::new());
    let needed = SETTINGS_NEEDED.map(|number| (0, Dword, Ne, setting(number)));
    rules.insert(libc::SYS_prctl, vec![rule(needed)?]);
    let has = |argument, bits: c_int| {
        let bits = u64::from(bits.cast_unsigned());
        (argument, Dword, MaskedEq(bits), bits)
    };
    let executable = || rule([has(2, libc::PROT_EXEC)]);
    for call in [libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, vec![executable()?]);
    }
    let mapped = match more.makes_code {
        // Code is a private mapping of a file.
        true => vec![
            rule([has(2, libc::PROT_EXEC | libc::PROT_WRITE)])?,
            rule([has(2, libc::PROT_EXEC), has(3, libc::MAP_SHARED)])?,
            rule([has(2, libc::PROT_EXEC), has(3, libc::MAP_ANONYMOUS)])?,
        ],
        false => vec![executable()?],
    };
    rules.insert(libc::SYS_mmap, mapped);
    rules.insert(libc::SYS_openat, opening(more.folder)?);
    Ok(rules)
}

/// Returns the rules of pairs of sockets that cannot be made: those of other families than Unix,
/// whose code is large, and those for datagrams, which can be sent to any socket with a path.
fn pairs() -> Result<Rules, BackendError> {
    let unix = u64::from(libc::AF_UNIX.cast_unsigned());
    let kind = |kind: c_int| (1, Dword, MaskedEq(0xf), u64::from(kind.cast_unsigned()));
    Ok(vec![
        rule([(0, Dword, Ne, unix)])?,
        rule([kind(libc::SOCK_DGRAM)])?,
        // On Unix sockets, the same as for datagrams.
        rule([kind(libc::SOCK_RAW)])?,
    ])
}

/// Returns the rules of what cannot be opened: anything to write, but a file without a name in
/// `folder`.
fn opening(folder: Option<BorrowedFd<'_>>) -> Result<Rules, BackendError> {
    let bits = |flags: c_int| u64::from(flags.cast_unsigned());
    let mode = MaskedEq(bits(libc::O_ACCMODE));
    let (write, both) = (bits(libc::O_WRONLY), bits(libc::O_RDWR));
    // O_TMPFILE contains O_DIRECTORY, which has another meaning.
    let nameless = bits(libc::O_TMPFILE & !libc::O_DIRECTORY);
    let create = bits(libc::O_CREAT);
    // A descriptor that no process has, if there is no folder.
    let folder = folder.map_or(u64::from(u32::MAX), |folder| {
        u64::from(folder.as_raw_fd().cast_unsigned())
    });
    Ok(vec![
        rule([(2, Dword, mode.clone(), write)])?,
        rule([(2, Dword, MaskedEq(create), create)])?,
        rule([
            (2, Dword, mode.clone(), both),
            (2, Dword, MaskedEq(nameless), 0),
        ])?,
        rule([(2, Dword, mode, both), (0, Dword, Ne, folder)])?,
    ])
}

/// Returns the rule of files that are opened only to be read, but emptied. `argument` has the
/// flags.
fn emptying(argument: u8) -> Result<SeccompRule, BackendError> {
    let bits = |flags: c_int| u64::from(flags.cast_unsigned());
    let truncate = bits(libc::O_TRUNC);
    rule([
        (
            argument,
            Dword,
            MaskedEq(bits(libc::O_ACCMODE)),
            bits(libc::O_RDONLY),
        ),
        (argument, Dword, MaskedEq(truncate), truncate),
    ])
}

fn refusal() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM as u32)
}

fn setting(number: c_int) -> u64 {
    u64::from(number.cast_unsigned())
}

/// Returns rules that hold if an argument is one of `values`.
fn any(argument: u8, values: &[u64]) -> Result<Rules, BackendError> {
    let rules = values.iter();
    rules
        .map(|value| rule([(argument, Dword, Eq, *value)]))
        .collect()
}

/// A condition on an argument: its index, how much of it is compared, how, and with what.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Returns a rule that holds if all of `conditions` hold.
fn rule<const N: usize>(conditions: [Condition; N]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .into_iter()
        .map(|(argument, length, how, value)| SeccompCondition::new(argument, length, how, value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
