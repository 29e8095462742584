//! Work of streams, as it was when it was submitted, and its execution.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_mediator::backend::{
    self, CopyShape, Fault, Kernel, LaunchOptions, LaunchShape, MemoryWork,
};
use causeway_protocol::message::Status;
use causeway_software::Multiprocessors;

use crate::array::Array;
use crate::copy::Staging;
use crate::driver::{Driver, lock};
use crate::error::Code;

/// One piece of work. Addresses are those of the device.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: marks a position.
    Nothing,
    Launch {
        function: Arc<dyn Kernel>,
        shape: LaunchShape,
        options: LaunchOptions,
        parameters: Vec<u8>,
    },
    Copy {
        destination: u64,
        source: u64,
        bytes: u64,
        /// Staging memory that one of the two addresses may be in.
        staging: Option<Arc<Staging>>,
    },
    Fill {
        destination: u64,
        bytes: u64,
        pattern: u32,
        /// 1, 2 or 4.
        width: u32,
    },
    Across(Across),
    /// Copies or fills rows; the device reaches all of them.
    Rows(MemoryWork),
    /// Copies rows of which arrays have some.
    Arrays(Vec<Arc<Array>>, MemoryWork),
    Write {
        address: u64,
        value: u64,
        /// 4 or 8.
        width: u32,
    },
    Wait {
        address: u64,
        value: u64,
        /// 4 or 8.
        width: u32,
        condition: Condition,
    },
    /// Notes the time, in nanoseconds since the driver was first asked.
    Stamp(Arc<AtomicU64>),
    Host(HostCall),
    Sequence(Vec<Work>),
}

/// Most bytes that are in the host's memory at a time.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// A copy whose sides are reached by the devices of two contexts.
#[derive(Clone)]
pub(crate) struct Across {
    /// Devices of destination and source.
    pub(crate) devices: [usize; 2],
    pub(crate) shape: CopyShape,
    /// For [`PIECE_BYTES`].
    pub(crate) staging: Arc<Staging>,
}

impl Across {
    /// Copies piece by piece.
    fn execute(&self, driver: &Driver) -> Result<(), Fault> {
        let queue = |device: usize| {
            let space = &driver.devices[device].space;
            space.queue_on(Multiprocessors::default())
        };
        let [mut to, mut from] = self.devices.map(queue);
        let CopyShape {
            destination,
            source,
            width,
            ..
        } = self.shape;
        let held = self.staging.start();
        for (to_row, from_row) in self.shape.rows() {
            for at in (0..width).step_by(PIECE_BYTES as usize) {
                let bytes = PIECE_BYTES.min(width - at);
                let copy = |destination, source| {
                    backend::Work::Memory(MemoryWork::Copy {
                        destination,
                        source,
                        bytes,
                    })
                };
                from.submit(copy(held, source.address + from_row + at))?;
                to.submit(copy(destination.address + to_row + at, held))?;
            }
        }
        Ok(())
    }
}

/// How the word at an address is compared with a value (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    GreaterOrEqual,
    Equal,
    And,
    Nor,
}

/// A function of the client.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub(crate) function: extern "C" fn(usize),
    pub(crate) argument: usize,
}

/// What a queue executes with.
pub(crate) struct Executor {
    pub(crate) driver: &'static Driver,
    pub(crate) device: usize,
    pub(crate) engine: Box<dyn backend::Queue>,
    /// The priority, until it is noted when a kernel is launched first. It has no other effect.
    pub(crate) priority: Option<i32>,
}

impl Executor {
    /// Executes work to its end. A fault ends everything.
    pub(crate) fn execute(&mut self, work: &Work) {
        if self.driver.check_sticky().is_err() {
            return;
        }
        if let Err(fault) = self.attempt(work) {
            self.driver.fail(code_of(&fault), &fault.to_string());
        }
    }

    fn attempt(&mut self, work: &Work) -> Result<(), Fault> {
        let driver = self.driver;
        let on_multiprocessors = matches!(work, Work::Launch { .. } | Work::Fill { .. });
        let _whole = (driver.settings.full && on_multiprocessors)
            .then(|| lock(&driver.devices[self.device].whole));
        match work {
            Work::Nothing => Ok(()),
            Work::Launch {
                function,
                shape,
                options,
                parameters,
            } => {
                driver.settings.hang_for(driver.settings.hang_kernel);
                if let Some(priority) = self.priority.take() {
                    driver.note_priority(priority);
                }
                let launch = backend::Launch::new(function, *shape, parameters)?;
                let launch = launch.with_options(*options)?;
                self.engine.submit(backend::Work::Launch(launch))
            }
            Work::Copy {
                destination,
                source,
                bytes,
                ..
            } => {
                if *bytes == 8 {
                    driver.settings.hang_for(driver.settings.hang_word);
                }
                self.engine
                    .submit(backend::Work::Memory(backend::MemoryWork::Copy {
                        destination: *destination,
                        source: *source,
                        bytes: *bytes,
                    }))
            }
            Work::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => self
                .engine
                .submit(backend::Work::Memory(backend::MemoryWork::Fill {
                    destination: *destination,
                    bytes: *bytes,
                    pattern: *pattern,
                    width: *width,
                })),
            Work::Across(copy) => copy.execute(driver),
            Work::Rows(work) => self.engine.submit(backend::Work::Memory(*work)),
            Work::Arrays(arrays, work) => {
                arrays.iter().try_for_each(|array| array.check_alive())?;
                self.engine.submit(backend::Work::Memory(*work))
            }
            Work::Write {
                address,
                value,
                width,
            } => self.write(*address, *value, *width),
            Work::Wait {
                address,
                value,
                width,
                condition,
            } => self.wait((*address, *width), *condition, *value),
            Work::Stamp(time) => {
                time.store(now_ns(), Ordering::Release);
                Ok(())
            }
            Work::Host(call) => {
                (call.function)(call.argument);
                Ok(())
            }
            Work::Sequence(parts) => parts.iter().try_for_each(|part| self.attempt(part)),
        }
    }

    fn write(&mut self, address: u64, value: u64, width: u32) -> Result<(), Fault> {
        if width == 8 {
            return self
                .engine
                .submit(backend::Work::Memory(backend::MemoryWork::Release {
                    address,
                    value,
                }));
        }
        let space = &self.driver.devices[self.device].space;
        space.store_u32(address, value as u32)
    }

    /// Waits as long as it takes; ends early only when a fault ends everything.
    fn wait(
        &mut self,
        (address, width): (u64, u32),
        condition: Condition,
        value: u64,
    ) -> Result<(), Fault> {
        let space = &self.driver.devices[self.device].space;
        while self.driver.check_sticky().is_ok() {
            let word = match width {
                8 => backend::Space::load_u64(space, address),
                _ => space.load_u32(address).map(u64::from),
            };
            let word = word.ok_or_else(|| {
                let text = format!("wait for a value at {address:#x}: not mapped");
                Fault::new(Status::MemoryFault, text)
            })?;
            if holds(condition, word, value, width) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }
}

/// CUDA driver API, "Stream Memory Operations": the first comparison is cyclic.
fn holds(condition: Condition, word: u64, value: u64, width: u32) -> bool {
    let mask = if width == 8 {
        u64::MAX
    } else {
        u64::from(u32::MAX)
    };
    match condition {
        Condition::GreaterOrEqual if width == 8 => word.wrapping_sub(value).cast_signed() >= 0,
        Condition::GreaterOrEqual => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
        Condition::Equal => word == value & mask,
        Condition::And => word & value != 0,
        Condition::Nor => !(word | value) & mask != 0,
    }
}

/// What a fault of the engine is in the terms of the driver API.
fn code_of(fault: &Fault) -> Code {
    match fault.status {
        Status::MemoryFault if fault.text.contains("not aligned") => Code::MISALIGNED_ADDRESS,
        Status::MemoryFault => Code::ILLEGAL_ADDRESS,
        _ => Code::LAUNCH_FAILED,
    }
}

/// Nanoseconds since this was first asked for.
fn now_ns() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_documented() {
        assert!(holds(Condition::GreaterOrEqual, 5, 5, 8));
        assert!(!holds(Condition::GreaterOrEqual, 4, 5, 8));
        assert!(holds(Condition::GreaterOrEqual, 1, u64::MAX, 8), "cyclic");
        assert!(holds(Condition::GreaterOrEqual, 1, 0xffff_ffff, 4));
        assert!(holds(Condition::Equal, 7, 0x1_0000_0007, 4));
        assert!(holds(Condition::And, 6, 2, 4));
        assert!(!holds(Condition::And, 4, 2, 4));
        assert!(!holds(Condition::Nor, 0xffff_0000, 0xffff, 4));
        assert!(holds(Condition::Nor, 0xffff_0000, 0x7fff, 4));
    }
}
