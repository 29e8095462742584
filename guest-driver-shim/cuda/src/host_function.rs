//! Functions of the program that streams call (CUDA driver API, `cuLaunchHostFunc` and
//! `cuStreamAddCallback`), and waits that no packet can express.
//!
//! A thread of the library for each ring does all of them, in the order of the ring. Two packets
//! stand for one: the first tells the thread that the ring has come so far, the second makes the
//! ring wait until the thread has told that it is done.
//!
//! Work of *all* streams of a ring waits for a function that is before it. A function that waits
//! for later work of such a stream never returns. CUDA forbids a function to wait for work by a
//! call; one that polls memory for it is the case left.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use causeway_protocol::message::MemoryKind;
use causeway_protocol::packet::Condition;
use causeway_shim_linux::shim::{Buffer, Fence, Patience, SubmitError, WaitError, Window};
use parking_lot::{Condvar, Mutex};

use crate::driver::{Driver, call_with_current_stream};
use crate::error::{Answer, Code};
use crate::graph::plan::Branch;
use crate::memory::host_copy::HostCopy;
use crate::ring::Writing;
use crate::rings::Submission;
use crate::stream;
use crate::work::Work;

/// `CUhostFn`
pub(crate) type HostFunction = extern "C" fn(usize);
/// `CUstreamCallback`: stream, result, argument.
type StreamCallback = extern "C" fn(usize, u32, usize);

/// How long the thread waits for the ring before it looks for a fault, in nanoseconds.
const SLICE_NS: u64 = 20_000_000;
/// Longest sleep between two looks at a word of memory, in microseconds.
const NAP_US_MAX: u64 = 500;

thread_local! {
    /// Whether the calling thread is one that calls functions of the program.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// Returns the function of the program at an address.
pub(crate) fn of_address(address: usize) -> Answer<HostFunction> {
    if address == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises, as `cuda.h` asks, that this is a `CUhostFn`; it is not null.
    Ok(unsafe { std::mem::transmute::<usize, HostFunction>(address) })
}

/// Refuses what a function of the program may not call.
pub(crate) fn refuse_within() -> Answer {
    match IS_CALLER.get() {
        true => Err(Code::NOT_PERMITTED),
        false => Ok(()),
    }
}

/// What the thread does for one place in the ring.
#[derive(Clone)]
pub(crate) enum HostWork {
    /// Calls a function, unless the device has failed.
    Function {
        function: HostFunction,
        argument: usize,
    },
    /// Calls a function in any case, with the result of the work before it.
    Callback {
        function: StreamCallback,
        stream: usize,
        argument: usize,
    },
    /// Waits until a word of memory meets a condition.
    Wait {
        word: Window,
        condition: Condition,
        /// 4 or 8.
        bytes: u32,
        value: u64,
    },
    /// Waits until work of another device is done.
    Await {
        owner: &'static Driver,
        submission: Submission,
    },
    /// Copies memory.
    Copy(Arc<HostCopy>),
    /// Keeps the memory of a copy until here.
    Keep(Arc<HostCopy>),
    /// Executes the graphs of a conditional node, in the ring for such graphs.
    Branch(Arc<Branch>),
}

/// One piece of work for the thread.
#[derive(Clone)]
pub(crate) struct HostCall {
    pub(crate) work: HostWork,
}

/// The thread and what it waits for.
pub(crate) struct HostFunctions {
    /// Number of the last piece of work that the ring has come to.
    reached: Fence<'static>,
    /// Number of the last piece of work that is done.
    done: Fence<'static>,
    waiting: Mutex<Waiting>,
    added: Condvar,
    _memory: Buffer<'static>,
}

#[derive(Default)]
struct Waiting {
    works: VecDeque<(u64, HostWork)>,
    /// Number of the last piece of work.
    last: u64,
}

impl HostCall {
    /// Prepares work for the thread, which is started if there is none yet.
    pub(crate) fn new(driver: &'static Driver, work: HostWork) -> Answer<Self> {
        driver.rings.call_functions(driver)?;
        Ok(Self { work })
    }

    /// Writes the two packets, and gives the work to the thread.
    pub(crate) fn write(&self, writing: &mut Writing) -> Result<(), SubmitError> {
        let Writing {
            commands,
            host_functions: Some(thread),
            ..
        } = writing
        else {
            unreachable!("work for a thread is made after the threads of all rings");
        };
        // Numbers are in the order of the ring: the caller holds its lock.
        let mut waiting = thread.waiting.lock();
        waiting.last += 1;
        let number = waiting.last;
        waiting.works.push_back((number, self.work.clone()));
        drop(waiting);
        thread.added.notify_one();
        commands.release(&thread.reached, number)?;
        commands.acquire(&thread.done, number)
    }
}

impl HostFunctions {
    pub(crate) fn start(driver: &'static Driver) -> Answer<&'static Self> {
        let failed = |error: &dyn std::fmt::Display| {
            log::warn!("cannot start the thread that calls host functions: {error}");
            Code::OUT_OF_MEMORY
        };
        let memory = Buffer::new(driver.device, driver.space, 4096, MemoryKind::Host)
            .map_err(|e| failed(&e))?;
        let functions: &'static Self = Box::leak(Box::new(Self {
            reached: memory.fence(0).map_err(|e| failed(&e))?,
            done: memory.fence(64).map_err(|e| failed(&e))?,
            waiting: Mutex::default(),
            added: Condvar::new(),
            _memory: memory,
        }));
        std::thread::Builder::new()
            .name("cuda-host-functions".to_owned())
            .spawn(move || functions.work(driver))
            .map_err(|e| failed(&e))?;
        Ok(functions)
    }

    fn work(&self, driver: &Driver) {
        IS_CALLER.set(true);
        loop {
            let (number, work) = self.next();
            let result = self.reach(driver, number);
            perform(driver, work, result);
            self.done.store(number);
        }
    }

    fn next(&self) -> (u64, HostWork) {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.works.pop_front() {
                Some(next) => return next,
                None => self.added.wait(&mut waiting),
            }
        }
    }

    /// Waits until the ring has come to a number. This takes no lock of the ring, which a thread
    /// may hold that waits for room behind this very place.
    fn reach(&self, driver: &Driver, number: u64) -> Answer {
        let patience = Patience {
            timeout_ns: SLICE_NS,
            ..Patience::default()
        };
        loop {
            match self.reached.wait(number, patience) {
                Ok(()) => return Ok(()),
                Err(WaitError::TimedOut { .. }) => driver.rings.glance(driver)?,
                Err(error) => {
                    driver.rings.glance(driver)?;
                    log::warn!("cannot wait for the device: {error}");
                    return Err(driver.fail(Code::DEVICE_UNAVAILABLE));
                }
            }
        }
    }
}

fn perform(driver: &Driver, work: HostWork, result: Answer) {
    match (work, result) {
        (HostWork::Function { function, argument }, Ok(())) => function(argument),
        (
            HostWork::Callback {
                function,
                stream,
                argument,
            },
            result,
        ) => function(stream, result.map_or_else(|code| code.0, |()| 0), argument),
        (
            HostWork::Wait {
                word,
                condition,
                bytes,
                value,
            },
            Ok(()),
        ) => poll(driver, word, condition, (bytes, value)),
        (HostWork::Await { owner, submission }, Ok(())) => {
            let is_over =
                || owner.rings.is_known_done(submission) || owner.rings.glance(owner).is_err();
            let _ = look_until(driver, is_over);
        }
        // Why it ended, if it did, the program's next call tells.
        (HostWork::Branch(branch), Ok(())) => {
            let _ = branch.run(driver);
        }
        (HostWork::Copy(copy), Ok(())) => copy.perform(),
        (HostWork::Keep(copy), _) => drop(copy),
        (
            HostWork::Function { .. }
            | HostWork::Copy(_)
            | HostWork::Wait { .. }
            | HostWork::Await { .. }
            | HostWork::Branch(_),
            Err(_),
        ) => {}
    }
}

/// Looks until `is_met` returns true, between short sleeps. Fails once the device has failed.
pub(crate) fn look_until(driver: &Driver, mut is_met: impl FnMut() -> bool) -> Answer {
    let mut nap_us = 1;
    while !is_met() {
        driver.rings.glance(driver)?;
        std::thread::sleep(std::time::Duration::from_micros(nap_us));
        nap_us = (nap_us * 2).min(NAP_US_MAX);
    }
    Ok(())
}

/// Looks at a word until it meets a condition, or the device has failed.
fn poll(driver: &Driver, word: Window, condition: Condition, (bytes, value): (u32, u64)) {
    // A fault is told to the program's next call.
    let _ = look_until(driver, || {
        let found = match bytes {
            4 => word.load_u32(0).map(u64::from),
            _ => word.load_acquire(0),
        };
        // A word that is gone meets every condition.
        found.map_or(true, |found| condition.is_met(found, value, 8 * bytes))
    });
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: usize,
    function: Option<HostFunction>,
    argument: usize,
) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let stream = stream::find(driver, context, stream)?;
        let work = HostWork::Function { function, argument };
        stream.submit(driver, Work::Host(HostCall::new(driver, work)?))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamAddCallback(
    stream: usize,
    function: Option<StreamCallback>,
    argument: usize,
    flags: u32,
) -> u32 {
    call_with_current_stream(stream, |driver, context| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let found = stream::find(driver, context, stream)?;
        found.check_not_capturing()?;
        let work = HostWork::Callback {
            function,
            stream,
            argument,
        };
        found.submit(driver, Work::Host(HostCall::new(driver, work)?))
    })
}
