//! Memory for the times of events and the conditions of graphs: words of 8 bytes that device and
//! process see.

use std::sync::Arc;

use causeway_protocol::message::MemoryKind;
use causeway_shim_linux::shim::{Buffer, Window};
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::rings::Submission;

/// Bytes that are asked for at a time: 2,048 words.
const CHUNK_BYTES: u64 = 1 << 14;

/// All words of the process.
#[derive(Default)]
pub(crate) struct EventWords(Arc<Mutex<Words>>);

#[derive(Default)]
struct Words {
    /// Kept, because their end frees the memory.
    chunks: Vec<Buffer<'static>>,
    free: Vec<Place>,
    /// Words to which work that was submitted may still store.
    retired: Vec<(Submission, Place)>,
}

#[derive(Clone, Copy)]
struct Place {
    /// The device's address.
    address: u64,
    word: Window,
}

/// A word, which is given back when this value ends: no work of several rings may store to it then.
/// With one ring some may, because the next owner's packets come later in the ring, and the owner
/// looks at the word only after those.
pub(crate) struct Word {
    place: Place,
    words: Arc<Mutex<Words>>,
    is_retired: bool,
}

impl EventWords {
    /// Returns a word that nothing else uses.
    pub(crate) fn take(&self, driver: &Driver) -> Answer<Word> {
        let mut words = self.0.lock();
        words.collect(driver);
        if words.free.is_empty() {
            words.grow(driver)?;
        }
        let place = words.free.pop().ok_or(Code::OUT_OF_MEMORY)?;
        Ok(Word {
            place,
            words: Arc::clone(&self.0),
            is_retired: false,
        })
    }
}

impl Words {
    /// Frees the retired words to which nothing stores any more.
    fn collect(&mut self, driver: &Driver) {
        let Self { free, retired, .. } = self;
        retired.retain(|(last, place)| {
            let is_over = driver.rings.is_known_done(*last);
            if is_over {
                free.push(*place);
            }
            !is_over
        });
    }

    fn grow(&mut self, driver: &Driver) -> Answer {
        let refused = |error: &dyn std::fmt::Display| {
            log::warn!("no memory for the times of events or conditions of graphs: {error}");
            Code::OUT_OF_MEMORY
        };
        let chunk = Buffer::new(driver.device, driver.space, CHUNK_BYTES, MemoryKind::Host)
            .map_err(|e| refused(&e))?;
        for offset in (0..CHUNK_BYTES).step_by(8) {
            let word = chunk.cpu.window().part(offset as usize, 8);
            self.free.push(Place {
                address: chunk.gpu.address() + offset,
                word: word.map_err(|e| refused(&e))?,
            });
        }
        self.chunks.push(chunk);
        Ok(())
    }
}

impl Word {
    /// Returns the device's address of the word.
    pub(crate) const fn address(&self) -> u64 {
        self.place.address
    }

    /// Gives the word back once a submission is done that stores to it.
    pub(crate) fn retire(mut self, last: Submission) {
        self.is_retired = true;
        self.words.lock().retired.push((last, self.place));
    }

    /// Returns what the device has stored.
    pub(crate) fn value(&self) -> u64 {
        // In range and aligned by construction.
        self.place.word.load_acquire(0).unwrap_or(0)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if !self.is_retired {
            self.words.lock().free.push(self.place);
        }
    }
}
