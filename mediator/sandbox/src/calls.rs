//! System calls: which a process can make (seccomp).
//!
//! Filters lie one over the other; of what they say about a call, the kernel takes the
//! strictest. `calls/program.rs` has the one about numbers that nobody knows, `calls/refused.rs`
//! the calls that are refused with an error, and `calls/computation.rs` those that a process may
//! make that only computes.

mod computation;
pub mod names;
mod program;
mod refused;

use std::io;

use seccompiler::{BpfProgram, apply_filter, apply_filter_all_threads};

use crate::forbidden;
use crate::profile::Profile;
use refused::More;

/// Which system calls a process needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Those of a process that computes, with memory and sockets that it has. All others are
    /// forbidden.
    #[default]
    Computation,
    /// Those that the driver of a GPU may need. Nobody has a list of them, so this forbids those
    /// that reach other processes, the kernel's configuration, or parts of the kernel in which
    /// attackers find mistakes.
    Driver,
}

/// The filters of a process.
pub(crate) struct Filter(Result<Vec<BpfProgram>, seccompiler::BackendError>);

impl Filter {
    pub fn new(profile: &Profile) -> Self {
        let process = std::process::id();
        let more = More::of(profile);
        let filters = || {
            let common = [refused::absent(), refused::everywhere(process)?];
            let by_calls = match profile.calls {
                Calls::Computation => {
                    vec![refused::to_computations(more)?, computation::allowed()?]
                }
                Calls::Driver => Vec::new(),
            };
            // The list of allowed calls comes last: no filter can be installed after it.
            Ok(common.into_iter().chain(by_calls).collect())
        };
        Self(filters())
    }

    /// Returns the filters of threads of a VMM, for those that load no libraries if `profile` is
    /// about computation. `knows_files` says whether Landlock holds these threads to the files of
    /// the profile: the filter sees no paths.
    pub fn of_vmm(profile: &Profile, knows_files: bool) -> Self {
        let process = std::process::id();
        let more = More {
            removes_files: knows_files && !profile.sockets.is_empty(),
            ..More::of(profile)
        };
        let refused = match profile.calls {
            Calls::Computation => refused::to_vmm(process, more),
            Calls::Driver => refused::everywhere(process),
        };
        Self(refused.map(|refused| vec![refused::absent(), refused]))
    }

    /// Installs the filters for this thread, and for those that it starts.
    pub fn install_here(self) -> io::Result<()> {
        let filters = self.0.map_err(io::Error::other)?;
        let install = |filter: &BpfProgram| apply_filter(filter).map_err(refusal);
        filters.iter().try_for_each(install)
    }

    /// Installs the filters for all threads of this process.
    pub fn install(self) -> io::Result<()> {
        let filters = self.0.map_err(io::Error::other)?;
        forbidden::name_calls()?;
        filters.iter().try_for_each(install)
    }
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    apply_filter_all_threads(filter).map_err(refusal)
}

fn refusal(error: seccompiler::Error) -> io::Error {
    match error {
        seccompiler::Error::Prctl(e) | seccompiler::Error::Seccomp(e) => e,
        e => io::Error::other(e),
    }
}

/// Installs the filters, and returns whether a call is then refused.
pub(crate) fn try_out() -> io::Result<()> {
    Filter::new(&Profile::default()).install()?;
    // Without a filter it is no error, and has no effect.
    match rustix::process::chdir(".") {
        Err(rustix::io::Errno::PERM) => Ok(()),
        _ => Err(io::Error::other("it forbids nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::in_child;
    use crate::{Mechanism, enter, trials};
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use seccompiler::SeccompAction;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn calls_with_unknown_numbers_are_absent() {
        in_child(|| {
            pidfd_open(getpid(), PidfdFlags::empty())?;
            // The number of this call is 434.
            install(&program::absent(&[], 433))?;
            match pidfd_open(getpid(), PidfdFlags::empty()) {
                Err(Errno::NOSYS) => Ok(()),
                _ => Err(io::Error::other("it is there")),
            }
        })
        .unwrap();
    }

    #[test]
    fn a_call_that_nobody_expects_ends_the_process_with_its_name() {
        let (mut reader, writer) = io::pipe().unwrap();
        let ended = in_child(|| {
            rustix::stdio::dup2_stderr(&writer)?;
            Filter::new(&Profile::default()).install()?;
            // Nothing that computes starts a timer.
            drop(rustix::time::timerfd_create(
                rustix::time::TimerfdClockId::Monotonic,
                rustix::time::TimerfdFlags::empty(),
            ));
            Ok(())
        });
        drop(writer);
        let ended = ended.unwrap_err().to_string();
        assert!(
            ended.contains(&format!("signal {}", libc::SIGSYS)),
            "{ended}"
        );
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(
            text.contains("system call timerfd_create (number 283)"),
            "{text}"
        );
    }

    /// Where Landlock is missing, the filter alone keeps a process from writing.
    #[test]
    fn a_process_that_computes_opens_nothing_to_write_but_files_in_its_folder() {
        use rustix::fs::{CWD, Mode, OFlags, open, openat};
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let folder = open("/dev/shm", flags, Mode::empty()).unwrap();
        // SAFETY: it is open until this test ends, and the profile does not live longer.
        #[allow(unsafe_code)]
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(folder.as_raw_fd()) };
        let profile = Profile {
            folder: Some(borrowed),
            ..Profile::default()
        };
        in_child(|| {
            Filter::new(&profile).install()?;
            let new = OFlags::TMPFILE | OFlags::RDWR;
            let write = [OFlags::WRONLY, OFlags::RDWR, OFlags::CREATE, new];
            for flags in write.into_iter().chain([OFlags::TRUNC]) {
                let opened = openat(CWD, "/dev/shm", flags, Mode::RUSR);
                if opened.err() != Some(Errno::PERM) {
                    return Err(io::Error::other("it can be opened to write"));
                }
            }
            openat(CWD, "/dev/shm", OFlags::RDONLY, Mode::empty())?;
            openat(&folder, ".", new, Mode::RUSR)?;
            Ok(())
        })
        .unwrap();
    }

    /// Tries to get executable memory: a file's, private, then writable, then shared; anonymous;
    /// and by a change of rights. Returns the numbers of the errors, or 0.
    #[allow(unsafe_code)]
    fn tries_of_code() -> io::Result<[i32; 5]> {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect};
        let file = memfd_create("test", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, 4096)?;
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new range, which nobody else knows.
        let map = |rights, flags| unsafe { mmap(anywhere, 4096, rights, flags, &file, 0) };
        let (code, private) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
        // SAFETY: as above.
        let anonymous = unsafe { mmap_anonymous(anywhere, 4096, code, private) };
        let changed = map(ProtFlags::READ, private).and_then(|memory| {
            // SAFETY: nobody uses this range.
            unsafe { mprotect(memory, 4096, MprotectFlags::READ | MprotectFlags::EXEC) }
        });
        let tries = [
            map(code, private).map(drop),
            map(code | ProtFlags::WRITE, private).map(drop),
            map(code, MapFlags::SHARED).map(drop),
            anonymous.map(drop),
            changed,
        ];
        Ok(tries.map(|it| it.err().map_or(0, Errno::raw_os_error)))
    }

    #[test]
    fn only_who_makes_code_maps_it_and_nobody_writes_it() {
        assert_eq!(tries_of_code().unwrap(), [0; 5], "without a filter");
        let refused = Errno::PERM.raw_os_error();
        let wanted = [(false, refused), (true, 0)];
        for (makes_code, of_file) in wanted {
            let profile = Profile {
                makes_code,
                ..Profile::default()
            };
            let wanted = [of_file, refused, refused, refused, refused];
            let filters = [Filter::new, |it: &Profile| Filter::of_vmm(it, false)];
            for filter in filters {
                in_child(|| {
                    filter(&profile).install()?;
                    let tries = tries_of_code()?;
                    match tries == wanted {
                        true => Ok(()),
                        false => {
                            eprintln!("{tries:?}");
                            Err(io::Error::other("other tries succeed"))
                        }
                    }
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn threads_that_exist_are_confined_too() {
        in_child(|| {
            let (go, wait) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                wait.recv().map_err(io::Error::other)?;
                match rustix::process::chdir(".") {
                    Err(Errno::PERM) => Ok(()),
                    _ => Err(io::Error::other("the other thread is free")),
                }
            });
            Filter::new(&Profile::default()).install()?;
            go.send(()).map_err(io::Error::other)?;
            thread.join().map_err(|_| io::Error::other("it panicked"))?
        })
        .unwrap();
    }

    /// As a container does that forbids namespaces.
    #[test]
    fn what_the_host_lacks_is_found_by_trying_and_the_rest_is_used() {
        let lacking = [
            Mechanism::UserNamespace,
            Mechanism::NetworkNamespace,
            Mechanism::IpcNamespace,
        ];
        in_child(|| {
            let rules = [(libc::SYS_unshare, Vec::new())].into();
            let refuse = SeccompAction::Errno(libc::EPERM as u32);
            install(&program::on(rules, refuse).map_err(io::Error::other)?)?;
            let tried: Vec<_> = trials().iter().map(|missing| missing.mechanism).collect();
            let missing = enter(&Profile::default());
            let missing: Vec<_> = missing.iter().map(|missing| missing.mechanism).collect();
            match tried == lacking && missing == lacking && std::fs::File::open("/").is_err() {
                true => Ok(()),
                false => Err(io::Error::other("another mechanism is missing, or none")),
            }
        })
        .unwrap();
    }
}
