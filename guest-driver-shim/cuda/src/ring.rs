//! A ring: work of some streams, in the order in which it was submitted.
//!
//! Submissions are numbered. A fence that the device writes says which number it has reached; a
//! packet that writes it is put into the ring only when somebody wants to know.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::PARAMETER_BYTES_MAX;
use causeway_shim_linux::shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, Patience, Sleeping, SubmitError, WaitError,
};
use parking_lot::{Mutex, MutexGuard};

use crate::context;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::host_function::{self, HostFunctions};
use crate::kernel::Kernel;
use crate::recent::Recent;
use crate::rings::Submission;
use crate::stream::Stream;
use crate::waits::Waits;

/// Units of the ring: some thousand launches.
const UNITS: u64 = 1 << 14;
/// How long a wait spins before it sleeps now and then. NVIDIA's driver spins to the end, unless
/// the context says otherwise. A wait that sleeps ends late by up to 1/32 of its time.
const SPIN_MAX: Duration = Duration::from_millis(100);
/// The same where the program wants to spin. Then a question shows whether the host still answers;
/// in a guest, that is an exit.
const SPIN_MAX_WANTED: Duration = Duration::from_secs(2);
/// Looks at the fence between two looks at the clock: some microseconds.
const LOOKS: u32 = 1000;
/// What these looks count for at most. If they took longer, the program or its machine was stopped,
/// and the device perhaps, too.
const LOOKS_MAX: Duration = Duration::from_millis(5);
/// How long a wait sleeps by time before a question shows whether the server still answers.
const NAPS: Duration = Duration::from_millis(200);
/// Shortest and longest of these sleeps.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(1);
/// How long one wait may sleep before it looks for a fault, in nanoseconds.
const SLICE_NS: u64 = 20_000_000;

/// The number of a submission. Everything that was submitted to its ring before has a smaller one.
pub(crate) type Number = u64;

/// A command buffer, and how far the device is.
pub(crate) struct Ring {
    index: u8,
    device: &'static Device<'static>,
    /// Number of the last submission that the device has finished, as far as it was asked to tell.
    done: Fence<'static>,
    /// Number of the submission to the first ring after which this ring's next work begins, if it
    /// is not zero.
    behind: AtomicU64,
    writing: Mutex<Writing>,
    _memory: Buffer<'static>,
}

/// What the ring's lock protects.
pub(crate) struct Writing {
    pub(crate) commands: CommandBuffer<'static>,
    /// Number of the last submission.
    pub(crate) submitted: Number,
    /// Number that the last packet in the ring which writes the fence has.
    announced: Number,
    /// The kernels that were launched last.
    pub(crate) kernels: Recent<Kernel, 64>,
    /// The streams to which launches went last.
    pub(crate) streams: Recent<Stream, 16>,
    /// The thread that calls functions of the program, once there are some.
    pub(crate) host_functions: Option<&'static HostFunctions>,
    /// Where a launch gathers its parameters.
    pub(crate) block: Box<[u8; PARAMETER_BYTES_MAX]>,
}

impl Writing {
    /// Makes the packets that were written visible to the device, as one submission. Returns its
    /// number.
    #[inline]
    pub(crate) fn finish(&mut self) -> Number {
        self.commands.submit();
        self.submitted += 1;
        self.submitted
    }
}

impl Ring {
    /// Creates the command buffer in an address space of the device with number `ordinal`, whose
    /// work has `priority`.
    pub(crate) fn new(
        (device, space): (&'static Device<'static>, &'static AddressSpace<'static>),
        ordinal: usize,
        index: u8,
        priority: i32,
    ) -> Result<Self, Box<dyn Error>> {
        let memory = Buffer::new(device, space, 4096, MemoryKind::Host)?;
        let done = memory.fence(0)?;
        let mut commands = CommandBuffer::with_priority(space, UNITS, priority)?;
        // A ring may wait for another one that a fault has stopped.
        let has_failed = |ordinal: usize| {
            let driver = Driver::of_device(ordinal as i32);
            driver.is_ok_and(|it| it.rings.glance(it).is_err())
        };
        commands.give_up_if(has_failed, ordinal);
        Ok(Self {
            index,
            device,
            done,
            behind: AtomicU64::new(0),
            writing: Mutex::new(Writing {
                commands,
                submitted: 0,
                announced: 0,
                kernels: Recent::default(),
                streams: Recent::default(),
                host_functions: None,
                block: Box::new([0; PARAMETER_BYTES_MAX]),
            }),
            _memory: memory,
        })
    }

    /// Submits the packets that `write` writes, and returns the number of the submission. Packets
    /// of one call follow each other in the ring.
    #[inline]
    pub(crate) fn submit(
        &self,
        driver: &Driver,
        write: impl FnOnce(&mut Writing) -> Result<(), SubmitError>,
    ) -> Answer<Submission> {
        let mut writing = self.lock(driver);
        let written = write(&mut writing);
        let number = writing.finish();
        drop(writing);
        match written {
            Ok(()) => Ok(self.submission(number)),
            Err(error) => Err(self.refused(driver, &error)),
        }
    }

    /// Submits packets as [`Self::submit`] does, and makes the device write the fence behind them:
    /// the caller is about to wait.
    pub(crate) fn submit_and_announce(
        &self,
        driver: &Driver,
        write: impl FnOnce(&mut Writing) -> Result<(), SubmitError>,
    ) -> Answer<Submission> {
        let mut writing = self.lock(driver);
        let number = writing.submitted + 1;
        let written =
            write(&mut writing).and_then(|()| writing.commands.release(&self.done, number));
        writing.finish();
        if written.is_ok() {
            writing.announced = number;
        }
        drop(writing);
        match written {
            Ok(()) => Ok(self.submission(number)),
            Err(error) => Err(self.refused(driver, &error)),
        }
    }

    #[inline]
    const fn submission(&self, number: Number) -> Submission {
        Submission {
            ring: self.index,
            number,
        }
    }

    /// Starts the thread that calls functions of the program for work in this ring, unless there is
    /// one.
    pub(crate) fn start_host_functions(&self, driver: &'static Driver) -> Answer {
        if self.writing.lock().host_functions.is_none() {
            let started = HostFunctions::start(driver)?;
            self.writing.lock().host_functions = Some(started);
        }
        Ok(())
    }

    /// Returns the fence into which the device writes how far it is.
    pub(crate) const fn fence(&self) -> &Fence<'static> {
        &self.done
    }

    /// Locks the ring for a caller that writes into it.
    #[inline]
    pub(crate) fn lock(&self, driver: &Driver) -> MutexGuard<'_, Writing> {
        let mut writing = self.writing.lock();
        if self.behind.load(Ordering::Acquire) != 0 {
            self.wait_for_first(driver, &mut writing);
        }
        writing
    }

    /// Makes the next work of this ring begin after a submission to the first, which is announced.
    pub(crate) fn begin_behind(&self, number: Number) {
        self.behind.fetch_max(number, Ordering::AcqRel);
    }

    #[cold]
    fn wait_for_first(&self, driver: &Driver, writing: &mut Writing) {
        let number = self.behind.swap(0, Ordering::AcqRel);
        let first = driver.rings.of(0);
        if first.finished() < number {
            // What the caller writes next meets the same fault.
            let _ = writing.commands.acquire(first.fence(), number);
        }
    }

    /// Forgets the kernels for which `is_ended` holds. The table has them no more.
    pub(crate) fn forget_kernels(&self, is_ended: impl Fn(&Kernel) -> bool) {
        let ended = self.writing.lock().kernels.forget(is_ended);
        drop(ended);
    }

    /// Forgets the streams for which `is_ended` holds. The table has them no more.
    pub(crate) fn forget_streams(&self, is_ended: impl Fn(&Stream) -> bool) {
        let ended = self.writing.lock().streams.forget(is_ended);
        drop(ended);
    }

    /// Returns the number of the last submission.
    pub(crate) fn last(&self) -> Number {
        self.writing.lock().submitted
    }

    /// Returns the number of the last submission that the device has told to be finished. It tells
    /// only when it was asked to.
    pub(crate) fn finished(&self) -> Number {
        match self.done.value() {
            // The memory is gone: a hole of the aperture reads all-ones.
            u64::MAX => 0,
            number => number,
        }
    }

    /// Returns whether the device has finished the submission `number` and all before it.
    pub(crate) fn is_done(&self, driver: &Driver, number: Number) -> Answer<bool> {
        if self.done.has_reached(number) {
            return Ok(true);
        }
        self.announce(driver, number)?;
        match self.done.has_reached(number) {
            true => Ok(true),
            false => self.check(driver).map(|()| false),
        }
    }

    /// Waits until the device has finished the submission `number` and all before it. Then prints
    /// what kernels have printed.
    pub(crate) fn wait(&self, driver: &Driver, number: Number) -> Answer {
        self.reach(driver, number)?;
        driver.output.print(driver.space);
        Ok(())
    }

    fn reach(&self, driver: &Driver, number: Number) -> Answer {
        if self.done.has_reached(number) {
            return Ok(());
        }
        // The ring may stand still until this very function returns.
        host_function::refuse_within()?;
        self.announce(driver, number)?;
        let spin_max = match context::waits().unwrap_or_else(Waits::of_process) {
            Waits::Spin => {
                while !self.spin(driver, number, SPIN_MAX_WANTED)? {
                    self.ask(driver)?;
                }
                return Ok(());
            }
            Waits::SpinThenSleep => SPIN_MAX,
            Waits::Sleep => Duration::ZERO,
        };
        if self.spin(driver, number, spin_max)? {
            return Ok(());
        }
        // A wait in the device would keep other threads from sending it messages.
        if driver.device.transport().sleeping() == Sleeping::InDevice {
            while !self.nap(driver, number)? {
                self.ask(driver)?;
            }
            return Ok(());
        }
        self.sleep(driver, number)
    }

    /// Sleeps until the device has finished the submission `number`.
    fn sleep(&self, driver: &Driver, number: Number) -> Answer {
        let mut patience = Patience {
            timeout_ns: SLICE_NS,
            ..Patience::default()
        };
        loop {
            match self.done.wait(number, patience) {
                Ok(()) => return Ok(()),
                Err(WaitError::TimedOut { .. }) => {
                    self.check(driver)?;
                    patience.spins = 1;
                }
                Err(error) => {
                    self.check(driver)?;
                    return Err(silent(driver, &error));
                }
            }
        }
    }

    /// Looks at the fence some times, and then between short sleeps, for [`NAPS`] at most. Returns
    /// whether the device has finished the submission `number`.
    fn nap(&self, driver: &Driver, number: Number) -> Answer<bool> {
        let begun = Instant::now();
        let mut looks = LOOKS;
        while begun.elapsed() < NAPS {
            for _ in 0..looks {
                if self.done.has_reached(number) {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            looks = 1;
            driver.rings.glance(driver)?;
            std::thread::sleep((begun.elapsed() / 32).clamp(NAP_MIN, NAP_MAX));
        }
        Ok(false)
    }

    /// Asks the host how the session is, which shows whether the host still answers. In a guest
    /// that is one exit.
    fn ask(&self, driver: &Driver) -> Answer {
        self.check(driver)?;
        match self.device.fault().map(|report| report.status) {
            Ok(status) if status == Status::Ok as u32 => Ok(()),
            Ok(_) => Err(self.fault(driver, Status::DeviceLost)),
            Err(error) => Err(silent(driver, &error)),
        }
    }

    /// Looks at the fence until the device has finished the submission `number`, for `spin_max` at
    /// most, without the time for which the program does not run. Returns whether it has.
    fn spin(&self, driver: &Driver, number: Number, spin_max: Duration) -> Answer<bool> {
        let mut spun = Duration::ZERO;
        let mut looked = Instant::now();
        while spun < spin_max {
            for _ in 0..LOOKS {
                if self.done.has_reached(number) {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            driver.rings.glance(driver)?;
            // Other threads of the program may want the processor.
            std::thread::yield_now();
            let now = Instant::now();
            spun += now.duration_since(looked).min(LOOKS_MAX);
            looked = now;
        }
        Ok(false)
    }

    /// Makes the device write the fence once it has finished the submission `number`.
    pub(crate) fn announce(&self, driver: &Driver, number: Number) -> Answer {
        let mut writing = self.writing.lock();
        if writing.announced >= number {
            return Ok(());
        }
        let announced = writing.submitted;
        let written = writing.commands.release(&self.done, announced);
        writing.commands.submit();
        writing.announced = announced;
        drop(writing);
        written.map_err(|error| self.refused(driver, &error))
    }

    /// Returns the error that a fault of this ring means, or of another for which it may wait.
    fn check(&self, driver: &Driver) -> Answer {
        let fault = self.writing.lock().commands.fault();
        match fault {
            None => driver.rings.glance(driver),
            Some((status, _)) => Err(self.fault(driver, status)),
        }
    }

    /// Returns the error that a fault of the ring means, without waiting for those who write into
    /// it: they find the fault themselves.
    pub(crate) fn glance(&self, driver: &Driver) -> Answer {
        let fault = self.writing.try_lock().and_then(|w| w.commands.fault());
        match fault {
            None => Ok(()),
            Some((status, _)) => Err(self.fault(driver, status)),
        }
    }

    /// Returns the error of a call whose packets could not be written.
    #[cold]
    pub(crate) fn refused(&self, driver: &Driver, error: &SubmitError) -> Code {
        match error {
            SubmitError::Stopped { status, .. } => self.fault(driver, *status),
            _ => Code::INVALID_VALUE,
        }
    }

    /// Ends the process's use of CUDA with what a fault means.
    #[cold]
    fn fault(&self, driver: &Driver, status: Status) -> Code {
        let report = self.device.fault().ok();
        let text = report.map_or(String::new(), |report| {
            let used = (report.text_bytes as usize).min(report.text.len());
            String::from_utf8_lossy(&report.text[..used]).into_owned()
        });
        log::error!("the device has stopped: {status:?}: {text}");
        let status = match (
            status,
            report.and_then(|report| Status::from_wire(report.status)),
        ) {
            (Status::DeviceLost, Some(Status::Ok)) => Status::DeviceLost,
            (Status::DeviceLost, Some(first)) => first,
            (status, _) => status,
        };
        let told = report.and_then(|report| self.device.cuda_result(&report));
        driver.fail(told.map_or_else(|| code_of(status, &text), Code))
    }
}

/// Ends the process's use of CUDA because the host does not answer.
#[cold]
fn silent(driver: &Driver, error: &dyn std::fmt::Display) -> Code {
    log::error!("cannot wait for the device: {error}");
    driver.fail(Code::DEVICE_UNAVAILABLE)
}

/// Returns the result that a fault of the device means (CUDA driver API, `CUresult`), if the host
/// does not tell.
fn code_of(status: Status, text: &str) -> Code {
    match status {
        Status::MemoryFault if text.contains("not aligned") => Code::MISALIGNED_ADDRESS,
        Status::MemoryFault => Code::ILLEGAL_ADDRESS,
        Status::DeviceLost => Code::DEVICE_UNAVAILABLE,
        Status::Overdue => Code::LAUNCH_TIMEOUT,
        Status::QuotaBytes => Code::LAUNCH_OUT_OF_RESOURCES,
        _ => Code::LAUNCH_FAILED,
    }
}
