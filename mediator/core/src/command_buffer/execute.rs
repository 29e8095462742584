//! From a decoded packet to work for the back end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_protocol::message::Status;
use causeway_protocol::packet::{Fence, Launch, Replay};

use super::packet::Packet;
use crate::backend::{Attributes, Fault, Function, LaunchShape, Progress, Queue, Work};
use crate::bell::Bell;
use crate::fence::FenceSignal;
use crate::shared_space::SharedSpace;

/// Most blocks in x, y and z (CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability").
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// How long a fence acquire spins before it sleeps.
const ACQUIRE_SPIN: Duration = Duration::from_micros(20);
/// Sleeps of a fence acquire are one long wait in pieces; only the session's end or the fence ends it.
const ACQUIRE_PIECE: Duration = Duration::from_secs(3600);

/// Why a packet was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody wants the consumer to end.
    Asked,
    /// The packet, or the work it asked for, is at fault.
    Fault(Fault),
}

impl Stop {
    pub fn fault(status: Status, text: String) -> Self {
        Self::Fault(Fault { status, text })
    }

    /// What the guest is told.
    pub fn status(&self) -> Status {
        match self {
            Self::Asked => Status::DeviceLost,
            Self::Fault(fault) => fault.status,
        }
    }
}

/// Executes the packets of one command buffer.
pub(super) struct Executor {
    pub queue: Box<dyn Queue>,
    pub space: Arc<SharedSpace>,
    pub signal: Arc<FenceSignal>,
    pub bell: Arc<Bell>,
    pub attributes: Attributes,
}

impl Executor {
    pub fn execute(&mut self, packet: Packet<'_>) -> Result<(), Stop> {
        match packet {
            Packet::Nop => Ok(()),
            Packet::Launch(launch, parameters) => self.launch(&launch, parameters),
            Packet::Copy(copy) => self.submit(Work::Copy {
                destination: copy.destination,
                source: copy.source,
                bytes: copy.length,
            }),
            Packet::Fill(fill) => self.submit(Work::Fill {
                destination: fill.destination,
                bytes: fill.length,
                pattern: fill.pattern,
                width: fill.width,
            }),
            Packet::Release(Fence { address, value, .. }) => {
                self.submit(Work::Release { address, value })?;
                self.signal.notify();
                Ok(())
            }
            Packet::Acquire(fence) => self.acquire(&fence),
            Packet::Timestamp(Fence { address, .. }) => self.submit(Work::Timestamp { address }),
            Packet::Replay(replay) => self.replay(&replay),
        }
    }

    /// How far submitted work is. Once it is done, sleepers look at their fences: a GPU tells nobody else.
    pub fn progress(&mut self) -> Result<Progress, Fault> {
        let progress = self.queue.poll()?;
        if progress == Progress::Idle {
            self.signal.notify();
        }
        Ok(progress)
    }

    /// Begins everything that was submitted.
    pub fn flush(&mut self) -> Result<(), Stop> {
        self.queue.flush().map_err(Stop::Fault)
    }

    fn submit(&mut self, work: Work<'_>) -> Result<(), Stop> {
        self.queue.submit(work).map_err(Stop::Fault)
    }

    fn launch(&mut self, launch: &Launch, parameters: &[u8]) -> Result<(), Stop> {
        let function = self.space.launchable(launch.function)?;
        let shape = launch.shape;
        check_launch(&self.attributes, &*function, &shape, parameters.len())?;
        self.submit(Work::Launch {
            function: &function,
            shape,
            parameters,
        })
    }

    fn replay(&mut self, replay: &Replay) -> Result<(), Stop> {
        let recording = self
            .space
            .recordings
            .get(replay.recording)
            .ok_or_else(|| stale("recording", replay.recording))?;
        self.submit(Work::Replay {
            recording: &recording,
        })?;
        // It may have released fences.
        self.signal.notify();
        Ok(())
    }

    /// Waits until a fence has reached a value. Others may store to it without telling anyone.
    fn acquire(&mut self, fence: &Fence) -> Result<(), Stop> {
        // On a queue that runs behind, what came before may be what releases the fence.
        self.queue.finish().map_err(Stop::Fault)?;
        let look = || {
            if self.bell.stopped() {
                return Some(Err(Stop::Asked));
            }
            match self.space.backend.load_u64(fence.address) {
                Some(value) => (value >= fence.value).then_some(Ok(())),
                None => {
                    let text = format!("a fence acquire cannot read {:#x}", fence.address);
                    Some(Err(Stop::fault(Status::MemoryFault, text)))
                }
            }
        };
        let begun = Instant::now();
        while begun.elapsed() < ACQUIRE_SPIN {
            if let Some(outcome) = look() {
                return outcome;
            }
            std::hint::spin_loop();
        }
        loop {
            let deadline = Instant::now() + ACQUIRE_PIECE;
            if let Some(outcome) = self.signal.wait_until(deadline, look) {
                return outcome;
            }
        }
    }
}

impl SharedSpace {
    /// The kernel behind the function handle of a packet.
    pub(super) fn launchable(&self, handle: u32) -> Result<Arc<dyn Function>, Stop> {
        let function = self.functions.get(handle);
        function.ok_or_else(|| stale("function", handle))
    }
}

/// A handle in a packet that is not, or no longer, one of its space.
fn stale(what: &str, handle: u32) -> Stop {
    let text = format!("{what} handle {handle:#x} means nothing here");
    Stop::fault(Status::BadHandle, text)
}

/// Refuses a launch beyond what the device or the kernel can do, and parameters of another size.
pub(super) fn check_launch(
    device: &Attributes,
    function: &dyn Function,
    shape: &LaunchShape,
    parameter_bytes: usize,
) -> Result<(), Stop> {
    let wanted = function.parameter_bytes() as usize;
    if parameter_bytes != wanted {
        let text = format!("{parameter_bytes} bytes of parameters, the kernel wants {wanted}");
        return Err(Stop::fault(Status::BadParameters, text));
    }
    let bad = |text| Err(Stop::fault(Status::BadLaunch, text));
    if shape.grid.contains(&0) || shape.block.contains(&0) {
        return bad(format!("a dimension is zero: {shape:?}"));
    }
    if shape.grid.iter().zip(GRID_MAX).any(|(n, max)| *n > max) {
        return bad(format!("grid {:?} beyond {GRID_MAX:?}", shape.grid));
    }
    let threads: u128 = shape.block.iter().map(|n| u128::from(*n)).product();
    let threads_max = device.block_threads_max.min(function.block_threads_max());
    if threads > u128::from(threads_max) {
        return bad(format!(
            "{threads} threads in a block, at most {threads_max}"
        ));
    }
    let shared = u64::from(function.shared_bytes()) + u64::from(shape.shared_bytes);
    if shared > u64::from(device.shared_bytes_max) {
        let max = device.shared_bytes_max;
        return bad(format!("{shared} bytes of shared memory, at most {max}"));
    }
    Ok(())
}
