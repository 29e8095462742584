//! The one driver of a process, and what every call does first.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};

use causeway_mediator::backend::Space as _;
use causeway_software::{Config, Software, SoftwareSpace};

use crate::addresses::Addresses;
use crate::array::Array;
use crate::boundary::{Out, Text};
use crate::context::{self, Context};
use crate::error::{self, Answer, Code};
use crate::event::Event;
use crate::function::Kernel;
use crate::graph::{Executable, Graph};
use crate::green::Description;
use crate::handles::Handles;
use crate::host_ranges::HostRanges;
use crate::ledger::Ledger;
use crate::link::Linker;
use crate::module::Module;
use crate::physical::Physical;
use crate::primary::Primary;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::texture::Texture;

/// Everything that a process has of CUDA.
pub(crate) struct Driver {
    pub(crate) settings: Settings,
    pub(crate) devices: Vec<Device>,
    pub(crate) ledger: Ledger,
    pub(crate) state: Mutex<State>,
    /// The error that ended this process's use of CUDA; 0 while there is none.
    sticky: AtomicU32,
}

/// A device: an address space of the engine.
pub(crate) struct Device {
    pub(crate) space: SoftwareSpace,
    /// Ends kernels that run.
    pub(crate) stop: Arc<AtomicBool>,
    /// Held by what runs on the multiprocessors, if one kernel takes them all.
    pub(crate) whole: Mutex<()>,
}

/// What handles and addresses stand for.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: Handles<Context>,
    /// Primary context of each device: its handle and how often it is retained.
    pub(crate) primary: Vec<Primary>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Module>,
    pub(crate) kernels: Handles<Kernel>,
    pub(crate) arrays: Handles<Array>,
    /// Textures and surfaces.
    pub(crate) textures: Handles<Texture>,
    pub(crate) linkers: Handles<Mutex<Linker>>,
    pub(crate) graphs: Handles<Mutex<Graph>>,
    pub(crate) executables: Handles<Executable>,
    pub(crate) descriptions: Handles<Description>,
    pub(crate) physical: Handles<Physical>,
    pub(crate) addresses: Addresses,
    pub(crate) host: HostRanges,
}

static DRIVER: OnceLock<Answer<Driver>> = OnceLock::new();

/// Locks a mutex. Panics are answered as errors, so what a panicking call left is used on.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a call that needs no driver.
pub(crate) fn answer(call: impl FnOnce() -> Answer) -> u32 {
    match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            eprintln!("stand-in driver: a call has panicked, which is a fault of the stand-in");
            Code::UNKNOWN.0
        }
    }
}

/// Answers a call that needs an initialized driver, but no context.
pub(crate) fn call(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| call(Driver::get()?))
}

/// Answers a call that works on the current context, which no fault has ended.
pub(crate) fn call_in_context(call: impl FnOnce(&'static Driver, &Arc<Context>) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        let context = context::current(driver)?;
        driver.check_sticky()?;
        call(driver, &context)
    })
}

/// Answers a call that needs no context, but fails once a fault has ended them all.
pub(crate) fn call_unless_faulted(call: impl FnOnce(&'static Driver) -> Answer) -> u32 {
    answer(|| {
        let driver = Driver::get()?;
        driver.check_sticky()?;
        call(driver)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, name: Out<Text>) -> u32 {
    error::put_name(code, name)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, text: Out<Text>) -> u32 {
    error::put_text(code, text)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    answer(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match DRIVER.get_or_init(Driver::start) {
            Ok(_) => Ok(()),
            Err(code) => Err(*code),
        }
    })
}

/// Starts a thread, and gives it a name from this one, as NVIDIA's driver does in `cuInit`: seen in
/// 580.159.04, which fails where it may not. The C library writes a file of `/proc` for that.
fn name_a_thread() -> io::Result<()> {
    let (ends, waits) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().spawn(move || waits.recv())?;
    // SAFETY: the thread has not been joined; the name ends with a zero, and is short.
    let error = unsafe { libc::pthread_setname_np(thread.as_pthread_t(), c"standin".as_ptr()) };
    drop(ends);
    // It ends with the error that it was sent nothing.
    let _ = thread.join();
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

unsafe extern "C" {
    /// The process's standard output, as the C library has it.
    static stdout: *mut libc::FILE;
}

impl Driver {
    /// Writes what kernels have printed, as it is done when a program waits.
    pub(crate) fn print(&self) {
        for device in &self.devices {
            let text = device.space.take_output(usize::MAX);
            // SAFETY: the C library has set the stream before any code of a program runs, and locks
            // it; the text is as long as is said.
            unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout) };
        }
    }

    /// The driver, if `cuInit` has succeeded.
    pub(crate) fn get() -> Answer<&'static Self> {
        match DRIVER.get() {
            Some(Ok(driver)) => Ok(driver),
            _ => Err(Code::NOT_INITIALIZED),
        }
    }

    fn start() -> Answer<Self> {
        let settings = Settings::read();
        settings.hang_for(settings.hang);
        name_a_thread().map_err(|e| {
            eprintln!("stand-in driver: cannot give a thread a name: {e}");
            Code::OPERATING_SYSTEM
        })?;
        if settings.devices == 0 {
            return Err(Code::NO_DEVICE);
        }
        let engine = Software::new(Config {
            // Memory is accounted for here, across processes, not by the engine.
            memory_bytes: u64::MAX / 2,
            cores: None,
            ..Config::default()
        });
        let device = |_| {
            let stop = Arc::new(AtomicBool::new(false));
            Device {
                space: engine.space(Arc::clone(&stop)),
                stop,
                whole: Mutex::default(),
            }
        };
        let ledger = Ledger::open(&settings.state, settings.devices).map_err(|e| {
            let folder = settings.state.display();
            eprintln!("stand-in driver: cannot account for memory in {folder}: {e}");
            Code::OPERATING_SYSTEM
        })?;
        let state = State {
            primary: vec![Primary::default(); settings.devices],
            ..State::default()
        };
        Ok(Self {
            devices: (0..settings.devices).map(device).collect(),
            ledger,
            state: Mutex::new(state),
            sticky: AtomicU32::new(0),
            settings,
        })
    }

    /// The tables of handles and addresses. Whoever holds them waits for nothing else.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Index of a device, if there is such a one.
    pub(crate) fn device(&self, ordinal: i32) -> Answer<usize> {
        usize::try_from(ordinal)
            .ok()
            .filter(|ordinal| *ordinal < self.devices.len())
            .ok_or(Code::INVALID_DEVICE)
    }

    /// The error that all calls answer after a fault.
    pub(crate) fn check_sticky(&self) -> Answer {
        match self.sticky.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    /// A kernel, or other work, has faulted: nothing goes on in this process. Kernels that run are
    /// ended.
    pub(crate) fn fail(&self, code: Code, why: &str) {
        let first = self
            .sticky
            .compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            eprintln!("stand-in driver: error {}: {why}", code.0);
        }
        for device in &self.devices {
            device.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Memory of a device, taken from what all processes share.
    pub(crate) fn charge(&'static self, device: usize, bytes: u64) -> Answer<Charge> {
        let total = self.settings.memory_bytes(device);
        match self.ledger.take(device, bytes, total) {
            Ok(true) => Ok(Charge {
                driver: self,
                device,
                bytes,
            }),
            Ok(false) => Err(Code::OUT_OF_MEMORY),
            Err(_) => Err(Code::OPERATING_SYSTEM),
        }
    }

    /// Notes that a stream of this priority has a kernel.
    pub(crate) fn note_priority(&self, priority: i32) {
        if let Err(e) = self.ledger.note_priority(priority) {
            eprintln!("stand-in driver: cannot note a priority: {e}");
        }
    }

    /// All queues of a context, or of all contexts.
    pub(crate) fn queues(&self, context: Option<usize>) -> Vec<Arc<Queue>> {
        let state = self.state();
        let streams = state.streams.all().map(|(_, stream)| stream);
        let own = state.contexts.all().filter_map(|(handle, of)| {
            let chosen = context.is_none_or(|wanted| wanted == handle);
            chosen.then(|| Arc::clone(&of.default_stream.queue))
        });
        streams
            .filter(|stream| context.is_none_or(|wanted| wanted == stream.context))
            .map(|stream| Arc::clone(&stream.queue))
            .chain(own)
            .collect()
    }

    /// Waits for the work of a context before something of it is destroyed. With `PROMPT`, aborts
    /// the process instead of waiting.
    pub(crate) fn await_work_of(&self, context: usize, what: &str) {
        for queue in self.queues(Some(context)) {
            let end = queue.end();
            if self.settings.prompt && !end.is_done() {
                eprintln!(
                    "stand-in driver: {what} while its context has work, and \
                     CAUSEWAY_STANDIN_PROMPT is set"
                );
                std::process::abort();
            }
            end.wait();
        }
    }
}

/// Bytes of a device, until dropped.
pub(crate) struct Charge {
    driver: &'static Driver,
    device: usize,
    bytes: u64,
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.driver.ledger.give(self.device, self.bytes);
    }
}
