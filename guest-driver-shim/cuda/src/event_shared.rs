//! Events of several processes (CUDA driver API, `cuIpcGetEventHandle`): a page of host memory that
//! they share. It counts records; each has a word into which the device stores its number when the
//! event has happened.
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`MARK`] as long as the process that made the event has it |
//! | 8 | number of the last record, counted by the processes |
//! | 64 | words of records, the number `n` in word `n % SLOTS` |
//!
//! Others may store anything there: it is only compared. The page goes with its maker, at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_protocol::message::MemoryKind;
use causeway_shim_linux::shim::{Access, AddressSpace, Allocation, ExportToken, Status, Window};
use parking_lot::Mutex;

use crate::error::{Answer, Code};
use crate::guarded_words;

const PAGE_BYTES: u64 = 4096;
/// "causewaE"
const MARK: u64 = 0x4565_7761_7375_6163;
const COUNT_OFFSET: u64 = 8;
const SLOTS_OFFSET: u64 = 64;
/// Records of which the last may be under way at the same time.
const SLOTS: u64 = (PAGE_BYTES - SLOTS_OFFSET) / 8;
/// Says that a handle is of this library.
const MAGIC: u32 = 0x4543_5743;

/// `CUipcEventHandle`, as this library fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct EventHandle {
    token: [u8; 32],
    magic: u32,
    /// Of the process that exports. It cannot open its own handles.
    process: u32,
    rest: [u8; 24],
}

const _: () = assert!(size_of::<EventHandle>() == 64);

/// How long what the host said of the event's maker is believed.
const ASKED_AGE: Duration = Duration::from_millis(50);

/// A record that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Where the device stores the number.
    pub(crate) address: u64,
    pub(crate) number: u64,
    /// The number for which it waits there before that.
    pub(crate) before: Option<u64>,
}

/// The page of an event.
pub(crate) struct SharedEvent {
    /// Some until the end.
    memory: Option<Allocation<'static>>,
    words: Window,
    /// The device's address.
    gpu: u64,
    /// Some once it was exported, or if it was opened by it.
    handle: Mutex<Option<EventHandle>>,
    /// When the host was asked whether the maker has the event, if another process is the maker.
    asked: Option<Mutex<Instant>>,
    /// Whether the maker has it no more.
    is_gone: AtomicBool,
}

impl SharedEvent {
    /// Makes the page of a new event.
    pub(crate) fn new(space: &AddressSpace<'static>) -> Answer<Self> {
        let memory = space.device().allocate(PAGE_BYTES, MemoryKind::Host);
        let memory = memory.map_err(|error| refused(&error))?;
        let made = Self::of(space, memory, None)?;
        let marked = made.words.store_release(0, MARK);
        marked.map_err(|error| refused(&error)).map(|()| made)
    }

    /// Opens the event of another process.
    ///
    /// # Errors
    /// `MAP_FAILED` if the handle is none of an event that there is, `INVALID_CONTEXT` if this
    /// process made it.
    pub(crate) fn open(space: &AddressSpace<'static>, handle: EventHandle) -> Answer<Self> {
        if handle.magic != MAGIC {
            return Err(Code::MAP_FAILED);
        }
        if handle.process == std::process::id() {
            return Err(Code::INVALID_CONTEXT);
        }
        let token = ExportToken(handle.token);
        let imported = space.device().import(&token, Access::ReadWrite);
        let memory = imported.map_err(|error| {
            log::debug!("cannot open an event of another process: {error}");
            Code::MAP_FAILED
        })?;
        if memory.bytes() < PAGE_BYTES {
            return Err(Code::MAP_FAILED);
        }
        let opened = Self::of(space, memory, Some(handle)).map_err(|_| Code::MAP_FAILED)?;
        opened.check().map_err(|_| Code::MAP_FAILED)?;
        Ok(opened)
    }

    fn of(
        space: &AddressSpace<'static>,
        memory: Allocation<'static>,
        handle: Option<EventHandle>,
    ) -> Answer<Self> {
        let access = Access::ReadWrite;
        let cpu = memory.map_cpu(0, PAGE_BYTES, access);
        let words = *cpu.map_err(|error| refused(&error))?.window();
        let gpu = memory.map_gpu(space, 0, PAGE_BYTES, access);
        Ok(Self {
            gpu: gpu.map_err(|error| refused(&error))?.address(),
            memory: Some(memory),
            words,
            asked: handle.map(|_| Mutex::new(Instant::now())),
            is_gone: AtomicBool::new(false),
            handle: Mutex::new(handle),
        })
    }

    /// Returns the handle by which other processes open the event.
    pub(crate) fn export(&self) -> Answer<EventHandle> {
        let mut handle = self.handle.lock();
        if let Some(handle) = *handle {
            return Ok(handle);
        }
        let memory = self.memory.as_ref().ok_or(Code::INVALID_HANDLE)?;
        let token = memory.export(Access::ReadWrite);
        let token = token.map_err(|error| refused(&error))?;
        Ok(*handle.insert(EventHandle {
            token: token.0,
            magic: MAGIC,
            process: std::process::id(),
            rest: [0; 24],
        }))
    }

    /// Counts a record.
    pub(crate) fn record(&self) -> Answer<Record> {
        self.check()?;
        let number = self.count_up().ok_or(Code::INVALID_HANDLE)?;
        // The record that had the word before stores its number first.
        let before = number.saturating_sub(SLOTS);
        let is_free = self.load(slot(number)).is_some_and(|value| value >= before);
        Ok(Record {
            address: self.address(number),
            number,
            before: (!is_free).then_some(before),
        })
    }

    /// Returns the number of the last record; `None` if it has happened, or there is none.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if the process that made the event has it no more.
    pub(crate) fn under_way(&self) -> Answer<Option<u64>> {
        let number = self.load(COUNT_OFFSET).ok_or(Code::INVALID_HANDLE)?;
        Ok((!self.has_happened(number)?).then_some(number))
    }

    pub(crate) fn has_happened(&self, number: u64) -> Answer<bool> {
        let value = self.load(slot(number));
        // Afterwards: what was read from memory that is gone says nothing.
        self.check()?;
        Ok(number == 0 || value.is_some_and(|value| value >= number))
    }

    /// Returns an error if the process that made the event has it no more. In a guest the page
    /// shows that. A process that reaches a server keeps what it has mapped, so it asks.
    fn check(&self) -> Answer {
        let is_there = self.load(0) == Some(MARK);
        match is_there && !self.is_revoked() {
            true => Ok(()),
            false => Err(Code::INVALID_HANDLE),
        }
    }

    fn is_revoked(&self) -> bool {
        let Some(asked) = &self.asked else {
            return false;
        };
        let mut asked = asked.lock();
        if asked.elapsed() >= ASKED_AGE && !self.is_gone.load(Ordering::Relaxed) {
            // An import is never exported, and the refusal tells whether it is still there.
            let memory = self.memory.as_ref();
            let refusal = memory.and_then(|memory| memory.export(Access::Read).err());
            let is_gone = refusal.is_some_and(|refusal| refusal.status() == Status::Revoked);
            self.is_gone.store(is_gone, Ordering::Relaxed);
            *asked = Instant::now();
        }
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Returns where the device stores the number of a record.
    pub(crate) const fn address(&self, number: u64) -> u64 {
        self.gpu + slot(number)
    }

    /// Returns the word at an offset; `None` if it is gone.
    fn load(&self, offset: u64) -> Option<u64> {
        match self.asked {
            // In range and aligned by construction.
            None => self.words.load_acquire(offset as usize).ok(),
            Some(_) => guarded_words::load(self.word(offset)),
        }
    }

    /// Counts a record. Returns its number; `None` if the page is gone. Records that two processes
    /// make at the same time may have the same number: either may be the last.
    fn count_up(&self) -> Option<u64> {
        let address = self.word(COUNT_OFFSET);
        let Some(asked) = &self.asked else {
            // SAFETY: the word lies in the page, which is aligned, and mapped as long as this value
            // is there; this process uses it as an atomic.
            let count = unsafe { &*(address as *const AtomicU64) };
            return Some(count.fetch_add(1, Ordering::AcqRel).wrapping_add(1));
        };
        // Other threads of this process wait.
        let _asked = asked.lock();
        let number = guarded_words::load(address)?.wrapping_add(1);
        guarded_words::store(address, number).then_some(number)
    }

    fn word(&self, offset: u64) -> u64 {
        self.words.as_ptr().as_ptr() as u64 + offset
    }

    /// Returns the page, which work that was submitted may still use.
    pub(crate) const fn end(&mut self) -> Option<Allocation<'static>> {
        self.memory.take()
    }
}

/// Returns the offset of the word of a record.
const fn slot(number: u64) -> u64 {
    SLOTS_OFFSET + number % SLOTS * 8
}

fn refused(error: &dyn std::fmt::Display) -> Code {
    log::warn!("no memory for an event of several processes: {error}");
    Code::OUT_OF_MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_has_a_word_in_the_page() {
        for number in [0, 1, SLOTS - 1, SLOTS, SLOTS + 1, u64::MAX] {
            let slot = slot(number);
            assert!((SLOTS_OFFSET..=PAGE_BYTES - 8).contains(&slot), "{number}");
            assert!(slot.is_multiple_of(8));
        }
        assert_eq!(slot(3), slot(3 + SLOTS));
        assert_ne!(slot(3), slot(4));
    }
}
