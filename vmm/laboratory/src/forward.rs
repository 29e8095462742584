//! The device that calls are forwarded to, as `wire::forward` describes it.

use std::sync::{Mutex, PoisonError};

use causeway_laboratory_workloads::wire::forward as wire;
use causeway_laboratory_workloads::{Kernel, Shape};
use causeway_memory::Mapping;
use causeway_vmm::bus::{BusDevice, Refusal, Response};

use crate::card::{Card, CardError};
use crate::copy::{self, Part};

/// Bytes of a page, in whose number the area is named.
const PAGE_BYTES: u64 = 4096;
/// Bytes of the area before the calls.
const CALLS_AT: u64 = 8 * wire::CALLS as u64;

/// A card behind a port.
pub struct Forward {
    /// Guest RAM from address 0, as far as it is contiguous.
    ram: Mapping,
    state: Mutex<State>,
}

struct State {
    card: Card,
    /// The batch that is executed, copied out of guest RAM once.
    calls: Vec<u64>,
    results: Vec<u64>,
}

/// Why a call was not executed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the call at word {at} with opcode {opcode:#x} and {words} words means nothing")]
    Meaningless {
        at: usize,
        opcode: u64,
        words: usize,
    },
    #[error("a call with opcode {opcode:#x} reaches beyond memory")]
    Range { opcode: u64 },
    #[error("results of more than {} words", wire::RESULT_WORDS)]
    Results,
    #[error(transparent)]
    Card(#[from] CardError),
}

impl Forward {
    /// A device with this card, for a guest whose RAM `ram` is a mapping of.
    pub fn new(card: Card, ram: Mapping) -> Self {
        let state = State {
            card,
            calls: Vec::with_capacity(wire::CALL_WORDS),
            results: Vec::with_capacity(wire::RESULT_WORDS),
        };
        Self {
            ram,
            state: Mutex::new(state),
        }
    }

    /// Executes the batch in the area at `address`. Nothing, if that is not RAM.
    fn execute(&self, address: u64) -> Option<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let order = std::sync::atomic::Ordering::Acquire;
        let used = self.ram.load_u64(address, order).ok()?;
        let used = usize::try_from(used).ok()?;
        if used > wire::CALL_WORDS {
            return None;
        }
        state.fetch(&self.ram, address, used)?;
        let status = state.run(&self.ram);
        let results = bytes(&state.results);
        let at = |word: usize| address + 8 * word as u64;
        self.ram.write(at(wire::RESULTS), &results).ok()?;
        let order = std::sync::atomic::Ordering::Release;
        self.ram.store_u64(at(wire::STATUS), status, order).ok()
    }
}

impl BusDevice for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Response {
        Response::refused(Refusal::NoRegister)
    }

    fn write(&self, _: u64, from: &[u8]) -> Response {
        let Ok(page) = from.try_into().map(u32::from_le_bytes) else {
            return Response::refused(Refusal::BadSize);
        };
        let executed = self.execute(u64::from(page) * PAGE_BYTES);
        if executed.is_none() {
            log::debug!("forward: there is no area at page {page:#x}");
        }
        Response::ok("batch")
    }
}

impl State {
    /// Copies the calls out.
    fn fetch(&mut self, ram: &Mapping, address: u64, words: usize) -> Option<()> {
        let mut copy = vec![0; 8 * words];
        ram.read(address + CALLS_AT, &mut copy).ok()?;
        self.calls.clear();
        let words = copy.as_chunks::<8>().0.iter();
        self.calls
            .extend(words.map(|word| u64::from_le_bytes(*word)));
        Some(())
    }

    /// Executes the calls, and gives what the guest is told: 0, or which failed.
    fn run(&mut self, ram: &Mapping) -> u64 {
        self.results.clear();
        let calls = std::mem::take(&mut self.calls);
        let mut at = 0;
        let mut number = 0;
        while at < calls.len() {
            number += 1;
            match self.next(&calls, at, ram) {
                Ok(words) => at += words,
                Err(error) => {
                    log::debug!("forward: call {number}: {error}");
                    self.calls = calls;
                    return number;
                }
            }
        }
        self.calls = calls;
        0
    }

    /// Executes the call at a word, and gives how many words it has.
    fn next(&mut self, calls: &[u64], at: usize, ram: &Mapping) -> Result<usize, CallError> {
        let (opcode, words) = wire::split_header(calls[at]);
        let meaningless = CallError::Meaningless { at, opcode, words };
        let end = at.checked_add(words).filter(|_| words != 0);
        let call = end.and_then(|end| calls.get(at + 1..end));
        match (opcode, call) {
            (wire::ALLOCATE, Some(&[bytes])) => self.allocate(bytes)?,
            (wire::FREE, Some(&[id])) => self.card.free(id)?,
            (wire::COPY_IN, Some(&[id, offset, bytes, ref data @ ..])) => {
                self.copy_in(id, offset, bytes, data)?;
            }
            (wire::COPY_OUT, Some(&[id, offset, bytes])) => self.copy_out(id, offset, bytes)?,
            (
                wire::COPY_IN_BY_REFERENCE | wire::COPY_OUT_BY_REFERENCE,
                Some(&[id, offset, ref pieces @ ..]),
            ) if pieces.len() <= 2 * wire::PIECES_MAX => {
                let inward = opcode == wire::COPY_IN_BY_REFERENCE;
                self.by_reference(inward, id, offset, pieces, ram)?;
            }
            (wire::LAUNCH, Some(&[kernel, grid, block, ref arguments @ ..])) => {
                let kernel = Kernel::from_wire(kernel).ok_or(meaningless)?;
                let shape = Shape {
                    grid: wire::split_pair(grid),
                    block: wire::split_pair(block),
                };
                self.card.launch(kernel, shape, arguments)?;
            }
            (wire::SYNCHRONIZE, Some([])) => self.card.synchronize()?,
            _ => return Err(meaningless),
        }
        Ok(words)
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), CallError> {
        let id = self.card.allocate(bytes)?;
        let address = self.card.memory(id)?.address();
        self.reply(&[id, address])
    }

    fn reply(&mut self, words: &[u64]) -> Result<(), CallError> {
        if self.results.len() + words.len() > wire::RESULT_WORDS {
            return Err(CallError::Results);
        }
        self.results.extend(words);
        Ok(())
    }

    fn copy_in(&mut self, id: u64, offset: u64, count: u64, data: &[u64]) -> Result<(), CallError> {
        let opcode = wire::COPY_IN;
        let data = bytes(data);
        let data = usize::try_from(count).ok().and_then(|n| data.get(..n));
        let memory = self.card.settled(id)?.mapping();
        let part = Part::of(memory, offset, count);
        part.zip(data)
            .and_then(|(part, data)| copy::inward(part, data))
            .ok_or(CallError::Range { opcode })
    }

    fn copy_out(&mut self, id: u64, offset: u64, count: u64) -> Result<(), CallError> {
        let opcode = wire::COPY_OUT;
        if count > wire::INLINE_BYTES_MAX as u64 || !count.is_multiple_of(8) {
            return Err(CallError::Range { opcode });
        }
        let memory = self.card.settled(id)?.mapping();
        let mut data = [0; wire::INLINE_BYTES_MAX];
        let data = &mut data[..count as usize];
        Part::of(memory, offset, count)
            .and_then(|part| copy::outward(data, part))
            .ok_or(CallError::Range { opcode })?;
        let words = data.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
        self.reply(&words)
    }

    /// Copies between memory and pieces of guest RAM, each described by two words.
    fn by_reference(
        &mut self,
        inward: bool,
        id: u64,
        offset: u64,
        pieces: &[u64],
        ram: &Mapping,
    ) -> Result<(), CallError> {
        let opcode = if inward {
            wire::COPY_IN_BY_REFERENCE
        } else {
            wire::COPY_OUT_BY_REFERENCE
        };
        let memory = self.card.settled(id)?.mapping();
        let mut at = offset;
        for [address, count] in pieces.as_chunks::<2>().0 {
            let ours = Part::of(memory, at, *count);
            let theirs = Part::of(ram, *address, *count);
            ours.zip(theirs)
                .and_then(|(ours, theirs)| match inward {
                    true => copy::between(ours, theirs),
                    false => copy::between(theirs, ours),
                })
                .ok_or(CallError::Range { opcode })?;
            at += count;
        }
        Ok(())
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
