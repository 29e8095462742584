//! Events (CUDA driver API, "Event Management"): places in a ring, and the times at which the
//! device came to them.

use std::sync::Arc;
use std::time::Duration;

use causeway_protocol::packet::Condition;
use causeway_protocol::registers::features;
use parking_lot::Mutex;

use crate::boundary::Out;
use crate::capture::Captured;
use crate::driver::{
    Driver, call_about, call_in_context, call_of, call_with_current_stream, call_with_stream,
};
use crate::error::{Answer, Code};
use crate::event_shared::{EventHandle, Record, SharedEvent};
use crate::event_words::{EventWords, Word};
use crate::graph::node::Kind;
use crate::handles::Handles;
use crate::host_function::{self, HostCall, HostWork};
use crate::rings::Submission;
use crate::stream::{self, Stream};
use crate::work::Work;

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
/// Blocking synchronization, disabled timing, use by other processes.
const FLAGS: u32 = 1 | DISABLE_TIMING | INTERPROCESS;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`
const EXTERNAL: u32 = 1;

/// Shortest and longest sleep between two looks at an event of several processes.
const NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// An event.
pub(crate) struct Event {
    /// That of its device.
    driver: &'static Driver,
    pub(crate) handle: usize,
    /// Handle of its context.
    context: usize,
    has_time: bool,
    /// Where its time goes, if it has one.
    word: Mutex<Option<Word>>,
    recorded: Mutex<Recorded>,
    /// The last submission that stores the time.
    stamped: Mutex<Submission>,
    /// What it shares with other processes, if they may use it: records count there alone.
    shared: Option<SharedEvent>,
}

/// Where an event was recorded last.
#[derive(Clone, Default)]
pub(crate) enum Recorded {
    #[default]
    Nowhere,
    /// It has happened when this submission is done.
    At(Submission),
    /// In a stream that was being captured.
    In(Captured),
}

/// All events of the process.
#[derive(Default)]
pub(crate) struct Events {
    table: Mutex<Handles<Event>>,
    words: EventWords,
}

impl Event {
    /// Returns where the event was recorded last.
    pub(crate) fn recorded(&self) -> Recorded {
        self.recorded.lock().clone()
    }

    /// Notes that the event happens with a submission.
    pub(crate) fn set_recorded(&self, submission: Submission) {
        *self.recorded.lock() = Recorded::At(submission);
        *self.stamped.lock() = submission;
    }

    /// Returns the address at which the device stores the time, if it shall.
    pub(crate) fn time_address(&self) -> Option<u64> {
        self.word.lock().as_ref().map(Word::address)
    }

    /// Gets another word for the time before a record in `ring`, if work of another ring may still
    /// store to the one that there is.
    pub(crate) fn renew(&self, driver: &Driver, ring: u8) -> Answer {
        let before = *self.stamped.lock();
        if !self.has_time || before.ring == ring || driver.rings.is_known_done(before) {
            return Ok(());
        }
        let old = self.word.lock().replace(driver.events.words.take(driver)?);
        old.into_iter().for_each(|word| word.retire(before));
        Ok(())
    }

    /// Returns the submission with which it happens; `None` if it was not recorded.
    fn submission(&self) -> Answer<Option<Submission>> {
        match &*self.recorded.lock() {
            Recorded::Nowhere => Ok(None),
            Recorded::At(submission) => Ok(Some(*submission)),
            Recorded::In(_) => Err(Code::CAPTURED_EVENT),
        }
    }

    /// Returns the time at which it happened, in nanoseconds.
    fn time_ns(&self, driver: &Driver) -> Answer<u64> {
        let submission = self.submission()?.ok_or(Code::INVALID_HANDLE)?;
        if !driver.rings.is_done(driver, submission)? {
            return Err(Code::NOT_READY);
        }
        let word = self.word.lock();
        word.as_ref().map(Word::value).ok_or(Code::INVALID_HANDLE)
    }
}

impl Drop for Event {
    /// Work that was submitted may still store the time. With one ring that is harmless.
    fn drop(&mut self) {
        let page = self.shared.as_mut().and_then(SharedEvent::end);
        // A forked child has no driver.
        let driver = self.driver;
        let is_usable = Driver::get().is_ok();
        if let Some(page) = page
            && is_usable
        {
            driver.memory.end_behind_work(driver, page);
        }
        if is_usable
            && let Some(word) = self.word.get_mut().take()
            && !driver.rings.may_reuse()
        {
            word.retire(*self.stamped.get_mut());
        }
    }
}

/// Returns the event of a handle.
pub(crate) fn find(driver: &Driver, handle: usize) -> Answer<Arc<Event>> {
    let found = driver.events.table.lock().get(handle);
    found.ok_or(Code::INVALID_HANDLE)
}

/// Returns the event of a handle for a node of a graph, to which it is to be given. Graphs have no
/// events of several processes.
pub(crate) fn find_given(driver: &Driver, handle: usize) -> Answer<Arc<Event>> {
    if handle == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let event = find(driver, handle)?;
    match event.shared {
        None => Ok(event),
        Some(_) => Err(Code::NOT_SUPPORTED),
    }
}

impl Events {
    /// Adds an event of a context. Returns its handle.
    fn add(
        &self,
        driver: &'static Driver,
        context: usize,
        word: Option<Word>,
        shared: Option<SharedEvent>,
    ) -> usize {
        let handle = driver.fresh_handle();
        let made = Event {
            driver,
            handle,
            context,
            has_time: word.is_some(),
            word: Mutex::new(word),
            recorded: Mutex::default(),
            stamped: Mutex::default(),
            shared,
        };
        self.table.lock().put(handle, Arc::new(made));
        handle
    }

    /// Forgets the events of a context.
    pub(crate) fn end_of_context(&self, context: usize) {
        let ended = self.table.lock().take(|event| event.context == context);
        drop(ended);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<usize>, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        let untimed = flags & DISABLE_TIMING != 0;
        // As documented, only an event without timing may be for other processes.
        if event.is_null() || flags & !FLAGS != 0 || (flags & INTERPROCESS != 0 && !untimed) {
            return Err(Code::INVALID_VALUE);
        }
        let word = match untimed {
            true => None,
            false => Some(driver.events.words.take(driver)?),
        };
        let shared = match flags & INTERPROCESS {
            0 => None,
            _ if driver.has(features::SHARING) => Some(SharedEvent::new(driver.space)?),
            _ => None,
        };
        event.set(driver.events.add(driver, context.handle, word, shared))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    call_about(event, |driver| {
        let removed = driver.events.table.lock().remove(event);
        removed.map(drop).ok_or(Code::INVALID_HANDLE)
    })
}

fn record(event: usize, stream: usize, flags: u32) -> u32 {
    call_with_stream(stream, |driver, context| {
        if flags & !EXTERNAL != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let event = find(driver, event)?;
        let stream = stream::find(driver, context, stream)?;
        if event.context != stream.context {
            return Err(Code::INVALID_HANDLE);
        }
        match (stream.is_capturing(), flags) {
            (true, EXTERNAL) if event.shared.is_some() => Err(Code::NOT_SUPPORTED),
            (true, EXTERNAL) => stream.note(Kind::Record(event)),
            (true, _) => {
                let captured = stream.captured()?;
                *event.recorded.lock() = Recorded::In(captured);
                Ok(())
            }
            (false, EXTERNAL) => Err(Code::ILLEGAL_STATE),
            (false, _) => record_now(driver, &event, &stream),
        }
    })
}

/// Records an event: a packet if it shall have a time, and one if other rings may wait for it.
fn record_now(driver: &Driver, event: &Event, stream: &Stream) -> Answer {
    if let Some(shared) = &event.shared {
        // A record in a capture counts no more.
        *event.recorded.lock() = Recorded::Nowhere;
        return stream.submit(driver, work_of(shared.record()?));
    }
    event.renew(driver, stream.ring_index())?;
    let submission = match event.time_address() {
        Some(address) => {
            stream.submit_packets(driver, |writing| writing.commands.timestamp(address))?
        }
        None => {
            stream.check_implicit(driver)?;
            stream.end(driver)
        }
    };
    driver.rings.tell_early(driver, submission)?;
    event.set_recorded(submission);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> u32 {
    record(event, stream, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> u32 {
    record(event, stream, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> u32 {
    call_of(event, |driver| {
        let event = find(driver, event)?;
        let submission = event.submission()?;
        driver.captures.check_unsafe()?;
        if let Some(shared) = &event.shared {
            driver.rings.glance(driver)?;
            return shared.under_way()?.map_or(Ok(()), |_| Err(Code::NOT_READY));
        }
        match submission {
            None => Ok(()),
            Some(submission) => match driver.rings.is_done(driver, submission)? {
                true => Ok(()),
                false => Err(Code::NOT_READY),
            },
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    call_about(event, |driver| {
        let event = find(driver, event)?;
        let submission = event.submission()?;
        driver.captures.check_unsafe()?;
        if let Some(shared) = &event.shared {
            return wait_shared(driver, shared);
        }
        submission.map_or(Ok(()), |submission| driver.rings.wait(driver, submission))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> u32 {
    call_about(start, |driver| {
        // As NVIDIA's driver answers.
        if milliseconds.is_null() {
            return Err(Code::INVALID_HANDLE);
        }
        let (start, end) = (find(driver, start)?, find(driver, end)?);
        // An event that has no time is told before one that has not happened.
        if !start.has_time || !end.has_time || end.submission()?.is_none() {
            return Err(Code::INVALID_HANDLE);
        }
        let (start_ns, end_ns) = (start.time_ns(driver)?, end.time_ns(driver)?);
        milliseconds.set(elapsed_ms(start_ns, end_ns))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) -> u32 {
    cuEventElapsedTime(milliseconds, start, end)
}

/// Returns the milliseconds from `start_ns` to `end_ns`, which is negative if the end was before.
fn elapsed_ms(start_ns: u64, end_ns: u64) -> f32 {
    (end_ns.wrapping_sub(start_ns).cast_signed() as f64 / 1e6) as f32
}

/// Makes later work of a stream wait for an event.
#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        if flags & !EXTERNAL != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = stream::find(driver, context, stream)?;
        let owner = driver.owner_of(event);
        let event = find(owner, event).inspect_err(|_| stream.invalidate_capture())?;
        if owner.ordinal != driver.ordinal {
            return wait_across(driver, &stream, &event, flags);
        }
        match (event.recorded(), stream.is_capturing()) {
            (_, true) if flags == EXTERNAL && event.shared.is_some() => Err(Code::NOT_SUPPORTED),
            (_, true) if flags == EXTERNAL => stream.note(Kind::Wait(event)),
            (_, false) if flags == EXTERNAL => Err(Code::ILLEGAL_STATE),
            (Recorded::Nowhere, _) if let Some(shared) = &event.shared => {
                wait_for_shared(driver, &stream, shared)
            }
            (Recorded::Nowhere, _) => Ok(()),
            (Recorded::In(captured), _) => captured.join(&stream),
            (Recorded::At(_), true) => {
                stream.invalidate_capture();
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (Recorded::At(submission), false) => stream.follow(driver, submission),
        }
    })
}

/// Makes later work of a stream wait for an event of another device: a thread of the library waits
/// for it, in the order of the stream.
fn wait_across(driver: &'static Driver, stream: &Stream, event: &Event, flags: u32) -> Answer {
    match event.recorded() {
        _ if flags == EXTERNAL || event.shared.is_some() => Err(Code::NOT_SUPPORTED),
        Recorded::Nowhere => Ok(()),
        Recorded::In(_) => Err(Code::STREAM_CAPTURE_ISOLATION),
        Recorded::At(_) if stream.is_capturing() => {
            stream.invalidate_capture();
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
        Recorded::At(submission) => {
            let owner = event.driver;
            if owner.rings.is_done(owner, submission)? {
                return Ok(());
            }
            let work = HostWork::Await { owner, submission };
            stream.submit(driver, Work::Host(HostCall::new(driver, work)?))
        }
    }
}

/// Returns the work that makes a record of an event of several processes.
fn work_of(record: Record) -> Work {
    let store = Work::Store {
        address: record.address,
        value: record.number,
        bytes: 8,
    };
    match record.before {
        None => store,
        Some(before) => Work::Sequence(vec![awaited(record.address, before), store]),
    }
}

const fn awaited(address: u64, value: u64) -> Work {
    Work::Await {
        address,
        value,
        bytes: 8,
        condition: Condition::Reached,
    }
}

/// Waits for the last record of an event of several processes.
fn wait_shared(driver: &Driver, shared: &SharedEvent) -> Answer {
    let Some(number) = shared.under_way()? else {
        return Ok(());
    };
    // The work may stand still until this very function returns.
    host_function::refuse_within()?;
    let [mut nap, most] = NAPS;
    while !shared.has_happened(number)? {
        driver.rings.glance(driver)?;
        std::thread::sleep(nap);
        nap = (nap * 2).min(most);
    }
    driver.output.print(driver.space);
    Ok(())
}

/// Makes later work of a stream wait for the last record of an event of several processes.
fn wait_for_shared(driver: &Driver, stream: &Stream, shared: &SharedEvent) -> Answer {
    match (shared.under_way()?, stream.is_capturing()) {
        (None, _) => Ok(()),
        (Some(_), true) => {
            stream.invalidate_capture();
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
        (Some(number), false) => stream.submit(driver, awaited(shared.address(number), number)),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcGetEventHandle(handle: Out<EventHandle>, event: usize) -> u32 {
    call_in_context(|driver, _| {
        if handle.is_null() || event == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let event = find(driver, event)?;
        match &event.shared {
            Some(shared) => handle.set(shared.export()?),
            None if driver.has(features::SHARING) => Err(Code::INVALID_HANDLE),
            None => Err(Code::NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenEventHandle(event: Out<usize>, handle: EventHandle) -> u32 {
    call_in_context(|driver, context| {
        if event.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let shared = SharedEvent::open(driver.space, handle)?;
        event.set(
            driver
                .events
                .add(driver, context.handle, None, Some(shared)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::elapsed_ms;

    #[test]
    fn elapsed_times_are_milliseconds_with_a_sign() {
        assert_eq!(elapsed_ms(1_000_000, 3_500_000), 2.5);
        assert_eq!(elapsed_ms(3_500_000, 1_000_000), -2.5);
        assert_eq!(elapsed_ms(7, 7), 0.0);
        // A difference of nanoseconds counts, however late it is.
        let late = 1 << 62;
        assert_eq!(elapsed_ms(late, late + 500), 0.0005);
    }
}
