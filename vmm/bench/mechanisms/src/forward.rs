//! The device to which guests forward calls, as `host_interface::forward` describes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_bench_workloads::host_interface::forward as wire;
use causeway_bench_workloads::{Kernel, Shape};
use causeway_memory::Mapping;
use causeway_vmm::bus::{BusDevice, Refusal, Response};
use parking_lot::Mutex;

use crate::card::{Card, CardError};
use crate::copy::{self, Part};

/// Bytes of a page, in whose number the area is named.
const PAGE_BYTES: u64 = 4096;
/// Bytes of the area before the calls.
const CALLS_AT: u64 = 8 * wire::CALLS as u64;
/// Bytes of a copy between two looks at whether the VM is to end.
const SLICE_BYTES: u64 = 16 << 20;

/// A word as it lies in guest RAM.
type Word = [u8; 8];

/// The device of mechanism `forward`: a card to which the guest sends batches of calls by an I/O
/// port.
pub(crate) struct Forward {
    /// Guest RAM from address 0, as far as it is contiguous.
    ram: Mapping,
    /// Set when the VM is to end.
    stop: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    card: Card,
    /// The batch that is executed, copied out of guest RAM once.
    calls: Box<[u8; 8 * wire::CALL_WORDS]>,
    results: Vec<u8>,
}

/// Why a call was not executed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(
        "the guest's call at word {at} of its batch is malformed: opcode {opcode:#x}, {words} words"
    )]
    Meaningless {
        at: usize,
        opcode: u64,
        words: usize,
    },
    #[error(
        "the guest's call with opcode {opcode:#x} reaches beyond the end of an allocation or of \
         guest RAM"
    )]
    Range { opcode: u64 },
    #[error(
        "the results of the calls that the guest forwards at once take more than {limit} \
         64-bit words",
        limit = wire::RESULT_WORDS
    )]
    Results,
    #[error("the guest's call is not executed, because the VM is ending")]
    Stopped,
    #[error(transparent)]
    Card(#[from] CardError),
}

impl Forward {
    /// Returns the device of mechanism `forward`, which executes the guest's calls on `card`. `ram`
    /// maps guest RAM from address 0. The device refuses further calls once `stop` is set, because
    /// the VM is then ending.
    pub fn new(card: Card, ram: Mapping, stop: Arc<AtomicBool>) -> Self {
        let state = State {
            card,
            calls: Box::new([0; 8 * wire::CALL_WORDS]),
            results: Vec::with_capacity(8 * wire::RESULT_WORDS),
        };
        Self {
            ram,
            stop,
            state: Mutex::new(state),
        }
    }

    /// Executes the batch in the area at `address`. Nothing, if that is not RAM.
    fn execute(&self, address: u64) -> Option<()> {
        let mut state = self.state.lock();
        let used = self.ram.load_u64(address, Ordering::Acquire).ok()?;
        let at = |word: usize| address + 8 * word as u64;
        let status = match usize::try_from(used) {
            Ok(used) if used <= wire::CALL_WORDS => {
                let calls = &mut state.calls[..8 * used];
                self.ram.read(address + CALLS_AT, calls).ok()?;
                state.run(used, self)
            }
            // No call can be told from another.
            _ => 1,
        };
        let results = &state.results;
        self.ram.write(at(wire::RESULTS), results).ok()?;
        self.ram
            .store_u64(at(wire::STATUS), status, Ordering::Release)
            .ok()
    }

    /// Returns an error if the VM is to end.
    fn go_on(&self) -> Result<(), CallError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(CallError::Stopped),
            false => Ok(()),
        }
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
            log::debug!("forward: no area at page {page:#x}");
        }
        Response::ok("batch")
    }
}

impl State {
    /// Executes the calls in the first `words` words. Returns the result for the guest: 0, or the
    /// number of the call that failed.
    fn run(&mut self, words: usize, device: &Forward) -> u64 {
        let Self {
            card,
            calls,
            results,
        } = self;
        results.clear();
        let calls = &calls.as_chunks().0[..words];
        let mut batch = Batch {
            card,
            results,
            device,
        };
        let mut at = 0;
        let mut number = 0;
        while at < calls.len() {
            number += 1;
            match batch.next(calls, at) {
                Ok(words) => at += words,
                Err(error) => {
                    log::debug!("forward: call {number}: {error}");
                    return number;
                }
            }
        }
        0
    }
}

/// A batch under way.
struct Batch<'b> {
    card: &'b mut Card,
    results: &'b mut Vec<u8>,
    device: &'b Forward,
}

impl Batch<'_> {
    /// Executes the call at a word, and gives how many words it has.
    fn next(&mut self, calls: &[Word], at: usize) -> Result<usize, CallError> {
        self.device.go_on()?;
        let (opcode, words) = wire::split_header(u64::from_le_bytes(calls[at]));
        let meaningless = || CallError::Meaningless { at, opcode, words };
        let end = at.checked_add(words).filter(|_| words != 0);
        let call = end.and_then(|end| calls.get(at + 1..end));
        match (opcode, call.ok_or_else(meaningless)?) {
            (wire::ALLOCATE, &[bytes]) => self.allocate(number(bytes))?,
            (wire::FREE, &[id]) => self.card.free(number(id))?,
            (wire::COPY_IN, &[id, offset, bytes, ref data @ ..]) => {
                self.copy_in([id, offset, bytes].map(number), data.as_flattened())?;
            }
            (wire::COPY_OUT, &[id, offset, bytes]) => {
                self.copy_out([id, offset, bytes].map(number))?;
            }
            (
                wire::COPY_IN_BY_REFERENCE | wire::COPY_OUT_BY_REFERENCE,
                &[id, offset, ref pieces @ ..],
            ) => {
                let place = [id, offset].map(number);
                let pieces = whole_pieces(pieces).ok_or_else(meaningless)?;
                self.by_reference(opcode, place, pieces)?;
            }
            (wire::LAUNCH, &[kernel, grid, block, ref arguments @ ..]) => {
                let kernel = Kernel::from_wire(number(kernel));
                let kernel = kernel.ok_or_else(meaningless)?;
                let [grid, block] = [grid, block].map(|pair| wire::split_pair(number(pair)));
                self.launch(kernel, Shape { grid, block }, arguments)?;
            }
            (wire::SYNCHRONIZE, []) => self.card.synchronize()?,
            _ => return Err(meaningless()),
        }
        Ok(words)
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), CallError> {
        let id = self.card.allocate(bytes)?;
        let address = self.card.memory(id)?.address;
        let reply = self.reply(16)?;
        reply[..8].copy_from_slice(&id.to_le_bytes());
        reply[8..].copy_from_slice(&address.to_le_bytes());
        Ok(())
    }

    /// Room for a result behind the others.
    fn reply(&mut self, bytes: usize) -> Result<&mut [u8], CallError> {
        let used = self.results.len();
        if used + bytes > 8 * wire::RESULT_WORDS {
            return Err(CallError::Results);
        }
        self.results.resize(used + bytes, 0);
        Ok(&mut self.results[used..])
    }

    fn copy_in(&mut self, [id, offset, count]: [u64; 3], data: &[u8]) -> Result<(), CallError> {
        let opcode = wire::COPY_IN;
        let data = usize::try_from(count).ok().and_then(|n| data.get(..n));
        let memory = &self.card.settled(id)?.mapping;
        let part = Part::of(memory, offset, count);
        part.zip(data)
            .and_then(|(part, data)| copy::inward(part, data))
            .ok_or(CallError::Range { opcode })
    }

    fn copy_out(&mut self, [id, offset, count]: [u64; 3]) -> Result<(), CallError> {
        let range = || CallError::Range {
            opcode: wire::COPY_OUT,
        };
        if count > wire::INLINE_BYTES_MAX as u64 || !count.is_multiple_of(8) {
            return Err(range());
        }
        let memory = Arc::clone(self.card.settled(id)?);
        let part = Part::of(&memory.mapping, offset, count).ok_or_else(range)?;
        copy::outward(self.reply(count as usize)?, part).ok_or_else(range)
    }

    fn launch(&mut self, kernel: Kernel, shape: Shape, words: &[Word]) -> Result<(), CallError> {
        let mut arguments = [0; ARGUMENTS_MAX];
        let count = words.len();
        let arguments = arguments.get_mut(..count).ok_or(CardError::Arguments {
            kernel: kernel.name(),
            count,
        })?;
        for (argument, word) in arguments.iter_mut().zip(words) {
            *argument = number(*word);
        }
        Ok(self.card.launch(kernel, shape, arguments)?)
    }

    /// Copies between memory and pieces of guest RAM, each described by two words.
    fn by_reference(
        &mut self,
        opcode: u64,
        [id, offset]: [u64; 2],
        pieces: &[[Word; 2]],
    ) -> Result<(), CallError> {
        let memory = &self.card.settled(id)?.mapping;
        let mut at = offset;
        for [address, count] in pieces.iter().map(|piece| piece.map(number)) {
            let ours = Part::of(memory, at, count);
            let theirs = Part::of(&self.device.ram, address, count);
            let (ours, theirs) = ours.zip(theirs).ok_or(CallError::Range { opcode })?;
            for (ours, theirs) in ours.slices(SLICE_BYTES).zip(theirs.slices(SLICE_BYTES)) {
                self.device.go_on()?;
                match opcode {
                    wire::COPY_IN_BY_REFERENCE => copy::between(ours, theirs),
                    _ => copy::between(theirs, ours),
                }
                .ok_or(CallError::Range { opcode })?;
            }
            // Within memory, as has been seen.
            at += count;
        }
        Ok(())
    }
}

/// Maximum number of arguments of a launch.
const ARGUMENTS_MAX: usize = 16;

/// Returns the pieces of a copy by reference, or `None` if one is incomplete or their number is
/// not allowed.
fn whole_pieces(pieces: &[Word]) -> Option<&[[Word; 2]]> {
    match pieces.as_chunks() {
        (pieces, []) if (1..=wire::PIECES_MAX).contains(&pieces.len()) => Some(pieces),
        _ => None,
    }
}

fn number(word: Word) -> u64 {
    u64::from_le_bytes(word)
}
