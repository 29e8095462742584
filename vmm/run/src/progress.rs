//! The progress line of a command, and the memory use of the process.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

/// A function that returns the current text of the progress line. The progress thread calls it
/// repeatedly.
pub type Caption = Arc<dyn Fn() -> String + Send + Sync>;

/// Time until the start of the command counts as over.
const START: Duration = Duration::from_millis(5);
/// Time between two looks at the memory.
const PERIOD: Duration = Duration::from_millis(20);
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Estimates when this process was started. `main` is the time at which its `main` function was
/// entered.
///
/// The Linux kernel reports start times only in ticks of 10 ms. For a more precise time, this
/// function subtracts from `main` the processor time that the process has used so far, because
/// loading a program keeps the processor busy nearly all the time.
pub fn process_start(main: Instant) -> Instant {
    let used = clock_gettime(ClockId::ProcessCPUTime).try_into();
    let used: Duration = used.unwrap_or_default();
    main.checked_sub(used).unwrap_or(main)
}

/// A thread that shows a progress line on the terminal if the command takes longer than a second,
/// gives back memory that only the start needs, and records the peak memory use of this process.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    own_bytes_max: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the progress thread. `what` returns the text of the progress line; without it, the
    /// thread shows no line.
    ///
    /// # Errors
    /// The error of the system call that creates a thread.
    pub fn start(what: Option<Caption>) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let own_bytes_max = Arc::new(AtomicU64::new(0));
        let (stopped, bytes) = (Arc::clone(&stop), Arc::clone(&own_bytes_max));
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || watch(what.as_ref(), &stopped, &bytes))?;
        Ok(Self {
            stop,
            own_bytes_max,
            thread: Some(thread),
        })
    }

    /// Ends the progress thread. Returns the peak memory use of the process in bytes, without
    /// shared memory (guest RAM and GPU allocations), since this thread has given back the pages
    /// that only the start needs.
    pub fn finish(mut self) -> u64 {
        self.end();
        self.own_bytes_max.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(what: Option<&Caption>, stop: &AtomicBool, own_bytes_max: &AtomicU64) {
    let started = Instant::now();
    let mut bar = None;
    // The virtual CPUs start meanwhile, and would wait for the pages.
    std::thread::park_timeout(START);
    causeway_vmm::start_pages::give_back();
    loop {
        // Sampled at least once, even in a short run.
        if let Some(bytes) = causeway_vmm::host::own_memory_bytes() {
            own_bytes_max.fetch_max(bytes, Ordering::Relaxed);
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        std::thread::park_timeout(PERIOD);
        if let Some(what) = what
            && started.elapsed() >= SHOW_AFTER
            && std::io::stderr().is_terminal()
        {
            let bar = bar.get_or_insert_with(spinner);
            bar.set_message(what());
            bar.tick();
        }
    }
    if let Some(bar) = bar {
        causeway_terminal::set_progress(None);
        bar.finish_and_clear();
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    causeway_terminal::set_progress(Some(bar.clone()));
    bar
}
