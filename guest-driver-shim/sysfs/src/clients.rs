//! Clients: which process has which page of BAR 0.
//!
//! Page c belongs to the process that holds a lock on byte c of `resource0`. It is a lock of an
//! open file (`F_OFD_SETLK`, fcntl(2)), which the kernel drops when the process ends. Page 0
//! belongs to the whole session; no process takes it.
#![allow(unsafe_code)] // Locks of open files have no safe wrapper.

use std::fs::{self, DirEntry};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use causeway_protocol::pci::BAR_REGISTERS;
use causeway_protocol::registers::{CLIENTS, PAGE_BYTES, RESET_KEY, Register, status};

use crate::function::{PciFunction, PciFunctionError};
use crate::registers::Registers;

/// The registers of one client: its page of BAR 0.
#[derive(Clone, Debug)]
pub struct Page {
    number: u32,
    registers: Arc<Registers>,
}

impl Page {
    /// Returns the number of the client, which is also the number of its register page in BAR 0.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Loads `register` from the client's page. This causes one VM exit.
    #[must_use]
    pub fn load(&self, register: Register) -> u32 {
        self.registers.load(self.offset(register))
    }

    /// Stores `value` to `register` in the client's page. This causes one VM exit.
    pub fn store(&self, register: Register, value: u32) {
        self.registers.store(self.offset(register), value);
    }

    fn offset(&self, register: Register) -> u64 {
        u64::from(self.number) * PAGE_BYTES + register as u64
    }

    /// Returns whether the client owns objects. A machine without the register reads all-ones.
    fn owns(&self) -> bool {
        let bits = self.load(Register::Status);
        bits != u32::MAX && bits & status::OWNS != 0
    }
}

/// State of one client of the device: which process holds it, and whether it owns objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Number of the client, from 1.
    pub number: u32,
    /// Whether a process holds the client.
    pub taken: bool,
    /// ID of the process that holds the client; `None` if no process holds it, or the caller may
    /// not see that process.
    pub process: Option<u32>,
    /// Whether the client owns objects in the session, such as allocations.
    pub owns: bool,
}

/// All clients of a Causeway function. Each process that uses the function takes one of them. Any
/// process can free the objects that ended processes have left on the device.
#[derive(Debug)]
pub struct Clients {
    function: PciFunction,
    registers: Arc<Registers>,
}

impl Clients {
    /// Maps the registers of all clients of `function`.
    ///
    /// # Errors
    /// [`PciFunctionError::Forbidden`] if BAR 0 has no address or cannot be mapped.
    pub fn open(function: &PciFunction) -> Result<Self, PciFunctionError> {
        Ok(Self {
            function: function.clone(),
            registers: Arc::new(function.map(BAR_REGISTERS)?),
        })
    }

    /// Returns the number of register pages, including page 0, which no process takes.
    #[must_use]
    pub fn count(&self) -> u32 {
        let pages = self.registers.bytes() as u64 / PAGE_BYTES;
        pages.min(CLIENTS.into()) as u32
    }

    fn page(&self, number: u32) -> Page {
        let registers = Arc::clone(&self.registers);
        Page { number, registers }
    }

    /// All but the session's.
    fn pages(&self) -> impl Iterator<Item = Page> {
        (1..self.count()).map(|number| self.page(number))
    }

    /// Opens the file that carries the locks. Each caller opens it again: locks of one open file do
    /// not exclude each other.
    fn lock_file(&self) -> Option<OwnedFd> {
        self.function.open("resource0").ok().map(Into::into)
    }

    /// Takes the first client that no process holds. Returns the client's registers, and an open
    /// file that holds the lock on the client: the caller must keep it open as long as it uses the
    /// client. Returns `None` if processes hold all clients, or if the file cannot be opened.
    #[must_use]
    pub fn take(&self) -> Option<(Page, OwnedFd)> {
        let file = self.lock_file()?;
        let page = self.pages().find(|page| lock(&file, page.number))?;
        Some((page, file))
    }

    /// Resets each client that owns objects although its process has ended, which frees the
    /// objects. Returns the number of clients that were reset.
    pub fn reap(&self) -> u32 {
        let Some(file) = self.lock_file() else {
            return 0;
        };
        let mut reaped = 0;
        // Only those are locked that own something: a process that looks for a client meanwhile
        // finds the others free.
        for page in self.pages().filter(Page::owns) {
            if !lock(&file, page.number) {
                continue;
            }
            // Asked again: the client may be another one by now, and that may have ended as well.
            if page.owns() {
                log::debug!("resetting client {}: its process has ended", page.number);
                page.store(Register::Reset, RESET_KEY);
                reaped += 1;
            }
            unlock(&file, page.number);
        }
        reaped
    }

    /// Returns the state of each client that a process holds or that owns objects.
    #[must_use]
    pub fn states(&self) -> Vec<ClientState> {
        let path = fs::canonicalize(self.function.path("resource0"));
        let holders = path.map_or_else(|_| Vec::new(), |path| holders(&path));
        let Some(file) = self.lock_file() else {
            return Vec::new();
        };
        let state = |page: Page| {
            let number = page.number;
            let owns = page.owns();
            let taken = !lock(&file, number);
            if !taken {
                unlock(&file, number);
            }
            let holder = holders.iter().find(|(byte, _)| *byte == u64::from(number));
            (taken || owns).then_some(ClientState {
                number,
                taken,
                process: holder.map(|(_, process)| *process),
                owns,
            })
        };
        self.pages().filter_map(state).collect()
    }
}

/// Locks byte `number` for an open file, without waiting. Returns false if another holds the lock.
fn lock(file: &OwnedFd, number: u32) -> bool {
    set_lock(file, number, libc::F_WRLCK)
}

/// Unlocks it. Should that fail, the lock goes with the open file.
fn unlock(file: &OwnedFd, number: u32) {
    set_lock(file, number, libc::F_UNLCK);
}

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

/// Lists the processes that hold locks on bytes of a file, as far as this process may know. The
/// kernel lists such locks only with the descriptors of the file (proc_pid_fdinfo(5)).
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
    struct FakeCausewayKernel(PathBuf);

    impl FakeCausewayKernel {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("causeway-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("resource0"), vec![0; 4 * PAGE_BYTES as usize]).unwrap();
            let end = 4 * PAGE_BYTES - 1 + 0x1000;
            fs::write(folder.join("resource"), format!("0x1000 {end:#x} 0x0\n")).unwrap();
            Self(folder)
        }

        fn clients(&self) -> Clients {
            Clients::open(&PciFunction::at(self.0.clone())).unwrap()
        }
    }

    impl Drop for FakeCausewayKernel {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_process_gets_a_client_of_its_own_until_there_are_no_more() {
        let fake = FakeCausewayKernel::new("take");
        let clients = fake.clients();
        let mut taken: Vec<_> = (0..3).map(|_| clients.take().unwrap()).collect();
        let numbers: Vec<_> = taken.iter().map(|(page, _)| page.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(clients.take().is_none());
        drop(taken.remove(1));
        assert_eq!(clients.take().unwrap().0.number, 2);
    }

    #[test]
    fn what_the_dead_own_is_freed_and_what_the_living_own_is_not() {
        let fake = FakeCausewayKernel::new("reap");
        let clients = fake.clients();
        let (alive, lock) = clients.take().unwrap();
        let (session, dead) = (clients.page(0), clients.page(2));
        for page in [&session, &alive, &dead] {
            page.store(Register::Status, status::READY | status::OWNS);
        }
        assert_eq!(clients.states().len(), 2);
        assert_eq!(clients.reap(), 1);
        let resets = [&session, &alive, &dead, &clients.page(3)].map(|p| p.load(Register::Reset));
        assert_eq!(resets, [0, 0, RESET_KEY, 0], "3 owns nothing");
        drop(lock);
        dead.store(Register::Status, status::READY);
        assert_eq!(clients.reap(), 1);
        assert_eq!(alive.load(Register::Reset), RESET_KEY);
    }

    #[test]
    fn a_machine_without_the_register_has_nothing_to_free() {
        let fake = FakeCausewayKernel::new("ones");
        let clients = fake.clients();
        clients.page(1).store(Register::Status, u32::MAX);
        assert_eq!(clients.reap(), 0);
    }

    #[test]
    fn locks_are_given_back() {
        let fake = FakeCausewayKernel::new("locks");
        let clients = fake.clients();
        clients.page(1).store(Register::Status, status::OWNS);
        assert_eq!(clients.reap(), 1);
        assert_eq!(clients.states().len(), 1);
        assert_eq!(clients.take().unwrap().0.number, 1);
    }

    #[test]
    fn the_process_that_has_a_client_is_told() {
        let fake = FakeCausewayKernel::new("holders");
        let clients = fake.clients();
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
