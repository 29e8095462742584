//! Clients: which process has which page of BAR 0.
//!
//! Page c belongs to the process that holds a lock on byte c of `resource0`: one of an open file (`F_OFD_SETLK`, fcntl(2)),
//! which the kernel drops when the process is gone. Page 0 is the whole session's, and nobody's to take.
#![allow(unsafe_code)] // Locks of open files have no safe wrapper.

use std::fs::{self, DirEntry};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use causeway_protocol::registers::{PAGE_BYTES, RESET_KEY, Register, status};
use causeway_shim::Window;

use super::device_file::DeviceFile;
use super::function::{Function, FunctionError};

/// The registers of one client.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    number: u32,
    window: Window,
}

impl Page {
    /// Number of the client.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Loads a register. An exit.
    pub fn load(&self, register: Register) -> u32 {
        // Every register lies, aligned, in the page.
        self.window.load_u32(register as usize).unwrap_or(u32::MAX)
    }

    /// Stores to a register. An exit.
    pub fn store(&self, register: Register, value: u32) {
        // As for loads.
        let _ = self.window.store_u32(register as usize, value);
    }

    /// Whether the client owns something. All-ones is what a machine gives that has no such register.
    fn owns(&self) -> bool {
        let bits = self.load(Register::Status);
        bits != u32::MAX && bits & status::OWNS != 0
    }
}

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Its number, from 1.
    pub number: u32,
    /// Whether a process has it.
    pub taken: bool,
    /// Which process, if the kernel tells.
    pub process: Option<u32>,
    /// Whether it owns objects in the session.
    pub owns: bool,
}

/// All clients of a function.
#[derive(Debug)]
pub struct Clients {
    function: Function,
    registers: Window,
}

impl Clients {
    /// The clients whose registers are mapped by `registers`, which lives as long.
    pub(super) fn new(function: &Function, registers: &DeviceFile) -> Result<Self, FunctionError> {
        // Found out now whether there may be locks at all.
        function.open("resource0")?;
        Ok(Self {
            function: function.clone(),
            registers: registers.window(),
        })
    }

    /// Number of pages, that of the session included.
    pub fn count(&self) -> u32 {
        (self.registers.bytes() as u64 / PAGE_BYTES) as u32
    }

    fn page(&self, number: u32) -> Option<Page> {
        let offset = u64::from(number) * PAGE_BYTES;
        let window = self.registers.part(offset as usize, PAGE_BYTES as usize);
        Some(Page {
            number,
            window: window.ok()?,
        })
    }

    /// Takes the first client that no process has, and the lock that says so.
    pub(super) fn take(&self) -> Option<(Page, OwnedFd)> {
        let lock: OwnedFd = self.function.open("resource0").ok()?.into();
        let number = (1..self.count()).find(|number| set_lock(&lock, *number, libc::F_WRLCK))?;
        Some((self.page(number)?, lock))
    }

    /// Frees what clients own whose processes are gone. Gives the number of such clients.
    pub fn reap(&self) -> u32 {
        // An open file of its own: locks of one open file do not exclude each other.
        let Ok(file) = self.function.open("resource0") else {
            return 0;
        };
        let lock: OwnedFd = file.into();
        let pages = (1..self.count()).filter_map(|number| self.page(number));
        let mut reaped = 0;
        for page in pages {
            if !set_lock(&lock, page.number, libc::F_WRLCK) {
                continue;
            }
            if page.owns() {
                log::debug!("client {} is left of a process that is gone", page.number);
                page.store(Register::Reset, RESET_KEY);
                reaped += 1;
            }
            set_lock(&lock, page.number, libc::F_UNLCK);
        }
        reaped
    }

    /// Who has which client. Those that nobody has and that own nothing are left out.
    pub fn states(&self) -> Vec<ClientState> {
        let file = fs::canonicalize(self.function.path("resource0"));
        let holders = file.map_or_else(|_| Vec::new(), |file| holders(&file));
        let files: Option<OwnedFd> = self.function.open("resource0").ok().map(Into::into);
        let state = |number| {
            let owns = self.page(number)?.owns();
            let lock = files.as_ref()?;
            let taken = !set_lock(lock, number, libc::F_WRLCK);
            if !taken {
                set_lock(lock, number, libc::F_UNLCK);
            }
            let holder = holders.iter().find(|(byte, _)| *byte == u64::from(number));
            (taken || owns).then_some(ClientState {
                number,
                taken,
                process: holder.map(|(_, process)| *process),
                owns,
            })
        };
        (1..self.count()).filter_map(state).collect()
    }
}

/// Locks or unlocks byte `number` for an open file, without waiting. False if another has it.
fn set_lock(file: &OwnedFd, number: u32, kind: i32) -> bool {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: number.into(),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the lock is read by the call, which touches nothing else of this process.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Which processes have which bytes of a file locked, as far as this one may know. The kernel lists a lock of an open file with
/// the descriptors of that file (proc_pid_fdinfo(5)), and nowhere with a process.
fn holders(file: &Path) -> Vec<(u64, u32)> {
    let number = |entry: &DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let processes = entries(Path::new("/proc")).filter_map(|entry| Some((number(&entry)?, entry)));
    let locked = |(process, entry): (u32, DirEntry)| {
        let folder = entry.path();
        let open = entries(&folder.join("fd"))
            .filter(|link| fs::read_link(link.path()).is_ok_and(|target| target == file));
        let bytes = open.flat_map(|link| {
            let information = folder.join("fdinfo").join(link.file_name());
            locked_bytes(&fs::read_to_string(information).unwrap_or_default())
        });
        bytes.map(|byte| (byte, process)).collect::<Vec<_>>()
    };
    processes.flat_map(locked).collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// First bytes of the locks that a descriptor's `fdinfo` lists.
fn locked_bytes(text: &str) -> Vec<u64> {
    let first = |line: &str| {
        let mut words = line.strip_prefix("lock:")?.split_whitespace();
        // Number, kind, ADVISORY, WRITE, process, file, first byte, last byte.
        words.nth(6)?.parse().ok()
    };
    text.lines().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder that looks like a function of four clients.
    struct FakeFunction(PathBuf);

    impl FakeFunction {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("causeway-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("resource0"), vec![0; 4 * PAGE_BYTES as usize]).unwrap();
            let end = 4 * PAGE_BYTES - 1 + 0x1000;
            fs::write(folder.join("resource"), format!("0x1000 {end:#x} 0x0\n")).unwrap();
            Self(folder)
        }

        fn function(&self) -> Function {
            Function::at(self.0.clone())
        }
    }

    impl Drop for FakeFunction {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_process_gets_a_client_of_its_own_until_there_are_no_more() {
        let fake = FakeFunction::new("take");
        let function = fake.function();
        let registers = function.map(0).unwrap();
        let clients = Clients::new(&function, &registers).unwrap();
        let mut taken: Vec<_> = (0..3).map(|_| clients.take().unwrap()).collect();
        let numbers: Vec<_> = taken.iter().map(|(page, _)| page.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(clients.take().is_none());
        drop(taken.remove(1));
        assert_eq!(clients.take().unwrap().0.number, 2);
    }

    #[test]
    fn what_the_dead_own_is_freed_and_what_the_living_own_is_not() {
        let fake = FakeFunction::new("reap");
        let function = fake.function();
        let registers = function.map(0).unwrap();
        let clients = Clients::new(&function, &registers).unwrap();
        let (alive, _lock) = clients.take().unwrap();
        let dead = clients.page(2).unwrap();
        alive.store(Register::Status, status::OWNS);
        dead.store(Register::Status, status::OWNS);
        assert_eq!(clients.states().len(), 2);
        assert_eq!(clients.reap(), 1);
        assert_eq!(dead.load(Register::Reset), RESET_KEY);
        assert_eq!(alive.load(Register::Reset), 0);
    }

    #[test]
    fn the_process_that_has_a_client_is_told() {
        let fake = FakeFunction::new("holders");
        let function = fake.function();
        let registers = function.map(0).unwrap();
        let clients = Clients::new(&function, &registers).unwrap();
        let _first = clients.take().unwrap();
        let _second = clients.take().unwrap();
        let processes: Vec<_> = clients
            .states()
            .iter()
            .map(|s| (s.number, s.process))
            .collect();
        let here = Some(std::process::id());
        assert_eq!(processes, [(1, here), (2, here)]);
        let text = "pos:\t0\nlock:\t1: OFDLCK ADVISORY  WRITE -1 00:16:4711 3 3\nlock: garbage\n";
        assert_eq!(locked_bytes(text), [3]);
    }
}
