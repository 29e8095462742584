//! The configuration structure of a device, as its driver reads it (Virtual I/O Device Version 1.2,
//! 2.5).

use parking_lot::Mutex;

use super::interrupts::{Interrupts, Source};

/// By which a device changes the first bytes of its configuration structure. A device may change
/// them before it has a PCI function: the function then gets the last change.
#[derive(Default)]
pub struct Notice(Mutex<Said>);

/// Gets the first bytes after a change.
type Hear = Box<dyn Fn(&[u8]) + Send>;

#[derive(Default)]
struct Said {
    last: Vec<u8>,
    hear: Option<Hear>,
}

debug_by_name!(Notice);

impl Notice {
    /// Changes the first bytes.
    pub fn say(&self, first: &[u8]) {
        let mut said = self.0.lock();
        said.last = first.to_vec();
        if let Some(hear) = &said.hear {
            hear(first);
        }
    }

    /// Calls `hear` with the last change, if there was one, and at each change from now on.
    pub fn connect(&self, hear: impl Fn(&[u8]) + Send + 'static) {
        let mut said = self.0.lock();
        if !said.last.is_empty() {
            hear(&said.last);
        }
        said.hear = Some(Box::new(hear));
    }
}

/// A device's configuration structure. A change interrupts the driver that runs. If none runs, the
/// interrupt comes when a driver begins.
///
/// Lock order: this lock, then those of [`Interrupts`].
pub struct Configuration(Mutex<State>);

struct State {
    bytes: Vec<u8>,
    generation: u8,
    has_driver: bool,
    /// Whether it has changed while no driver could be told.
    is_news: bool,
}

impl Configuration {
    /// Returns one with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Mutex::new(State {
            bytes: bytes.to_vec(),
            generation: 0,
            has_driver: false,
            is_news: false,
        }))
    }

    /// Reads the bytes from `offset` on. Returns false if there are not so many.
    #[must_use]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let state = self.0.lock();
        let bytes = state.bytes.get(from..from.saturating_add(into.len()));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    /// Returns a number that is another one after each change (4.1.4.3.1,
    /// `config_generation`).
    pub fn generation(&self) -> u8 {
        self.0.lock().generation
    }

    /// Replaces the first bytes. If they are the same, nothing has changed.
    pub fn change(&self, first: &[u8], interrupts: &Interrupts) {
        let mut state = self.0.lock();
        let end = first.len().min(state.bytes.len());
        if state.bytes[..end] == first[..end] {
            return;
        }
        state.bytes[..end].copy_from_slice(&first[..end]);
        state.generation = state.generation.wrapping_add(1);
        state.is_news = true;
        state.tell(interrupts);
    }

    /// A driver begins. It has already read the structure: an interrupt tells it if a change came
    /// after that.
    pub fn begin(&self, interrupts: &Interrupts) {
        let mut state = self.0.lock();
        state.has_driver = true;
        state.tell(interrupts);
    }

    /// The driver has ended. The next driver reads the structure itself, so it needs no interrupt
    /// for earlier changes.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.has_driver = false;
        state.is_news = false;
    }
}

impl State {
    fn tell(&mut self, interrupts: &Interrupts) {
        if self.has_driver && std::mem::take(&mut self.is_news) {
            interrupts.raise(Source::Configuration);
        }
    }
}
