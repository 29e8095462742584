//! Sleeping until the function interrupts.
//!
//! A kernel with `uio_pci_generic` counts the function's interrupts (INTx) for processes, and masks
//! the function with the first: a process that wakes looks whether the interrupt was for its
//! client, acknowledges that, and unmasks. All processes that sleep wake with every interrupt.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_protocol::registers::Register;
use causeway_sysfs::{Page, PciFunction};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Offset of the command register's high byte in configuration space, and the bit of it that masks
/// INTx (PCI 3.0, 6.2.2).
const COMMAND_HIGH: u64 = 5;
const COMMAND_HIGH_NO_INTX: u8 = 1 << 2;

/// First and longest pause after an interrupt that was another client's and that it has not
/// acknowledged yet.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);

thread_local! {
    /// Interrupts that this thread knows of.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Lets the threads of this process sleep until the device raises an interrupt for the process's
/// client.
#[derive(Debug)]
pub struct Interrupts {
    uio: Option<Uio>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a thread watches the device for all that sleep.
    watched: bool,
    /// Interrupts of the client so far.
    count: u64,
    /// Whether the function may be masked.
    masked: bool,
}

#[derive(Debug)]
struct Uio {
    path: PathBuf,
    events: File,
    configuration: File,
    /// What the command register's high byte is while INTx is not masked. Nobody changes its other
    /// bits while a driver has the function, so it is read once: an access to configuration space
    /// is two exits.
    unmasked: u8,
}

impl Interrupts {
    /// Finds the function's UIO device, if it has one.
    pub(super) fn find(function: &PciFunction) -> Self {
        let uio = Uio::open(function)
            .inspect_err(|e| log::debug!("no UIO device, so waits poll: {e}"))
            .ok();
        Self {
            uio,
            state: Mutex::new(State {
                masked: true,
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns the path of the UIO device that reports the interrupts. `None` means that the
    /// function has no UIO device that this process can use. A process that waits for a fence then
    /// polls it, with short sleeps between.
    pub fn path(&self) -> Option<&Path> {
        self.uio.as_ref().map(|uio| uio.path.as_path())
    }

    /// Returns the number of interrupts that this process has received for its client.
    pub fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Sleeps until an interrupt of the client behind `page`, which it acknowledges, but not longer
    /// than `longest`. May return early.
    pub(super) fn sleep(&self, page: &Page, longest: Duration) {
        let Some(uio) = &self.uio else {
            return std::thread::sleep(longest);
        };
        let mut state = self.state.lock();
        if SEEN.replace(state.count) != state.count {
            // It came since this thread looked last, and may have been for what it waits for.
            return;
        }
        if state.watched {
            // Ended by the thread that watches, whether it saw an interrupt or has had enough.
            self.changed.wait_for(&mut state, longest);
            return SEEN.set(state.count);
        }
        state.watched = true;
        let masked = std::mem::replace(&mut state.masked, true);
        drop(state);
        let outcome = uio.watch(page, longest, masked);
        if let Err(e) = &outcome {
            log::debug!("cannot wait for interrupts on {}: {e}", uio.path.display());
            std::thread::sleep(longest);
        }
        let mut state = self.state.lock();
        state.watched = false;
        if let Ok(Observation { own, masked }) = outcome {
            state.count += u64::from(own);
            state.masked = masked;
            // This thread looks at what it waits for when this returns.
            SEEN.set(state.count);
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// What a thread learned while it watched the device.
struct Observation {
    /// Whether there was an interrupt of the client.
    own: bool,
    /// Whether the function is masked now.
    masked: bool,
}

impl Uio {
    fn open(function: &PciFunction) -> io::Result<Self> {
        let mut entries = fs::read_dir(function.path("uio"))?;
        let entry = entries.next().ok_or(io::ErrorKind::NotFound)??;
        let path = PathBuf::from("/dev").join(entry.file_name());
        let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path);
        let configuration = open(&function.path("config"))?;
        let mut command = [0];
        configuration.read_exact_at(&mut command, COMMAND_HIGH)?;
        Ok(Self {
            events: open(&path)?,
            configuration,
            unmasked: command[0] & !COMMAND_HIGH_NO_INTX,
            path,
        })
    }

    fn unmask(&self) -> io::Result<()> {
        self.configuration
            .write_all_at(&[self.unmasked], COMMAND_HIGH)
    }

    /// Waits for an interrupt of the client. `masked` says whether the function may be masked now.
    fn watch(&self, page: &Page, longest: Duration, masked: bool) -> io::Result<Observation> {
        let (begin, mut pause) = (Instant::now(), PAUSE_MIN);
        let mut masked = masked;
        loop {
            if masked {
                self.unmask()?;
            }
            let left = longest.saturating_sub(begin.elapsed());
            if !self.wait(left)? {
                let (own, masked) = (false, false);
                return Ok(Observation { own, masked });
            }
            // The kernel has masked the function with what it counted.
            masked = true;
            if page.load(Register::InterruptStatus) & 1 != 0 {
                page.store(Register::InterruptStatus, 1);
                return Ok(Observation { own: true, masked });
            }
            // Another client's. Unmasked before its process has acknowledged it, it would interrupt
            // again.
            std::thread::sleep(pause.min(longest.saturating_sub(begin.elapsed())));
            pause = PAUSE_MAX.min(2 * pause);
        }
    }

    /// Waits for an interrupt of the function. Returns false if none comes in time.
    fn wait(&self, longest: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN)];
        if poll(&mut polled, Some(&timeout))? == 0 {
            return Ok(false);
        }
        // The number of interrupts so far, by which the kernel knows what this open file has seen.
        let mut count = [0; 4];
        io::Read::read_exact(&mut &self.events, &mut count)?;
        Ok(true)
    }
}
