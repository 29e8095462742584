//! Translates validated work to calls of the driver.

pub(crate) mod array;

use std::sync::Arc;

use causeway_mediator::backend::{self, CopyShape, Fault, MemoryWork, Place, Way, Work};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::crossings::Crossings;
use crate::driver::{Context, CudaError, Launch, Stream, code};
use crate::error;
use crate::module::CudaKernel;
use crate::recording::CudaRecording;
use crate::space::lookup::{Lookup, Standing, Use};
use crate::space::state::SpaceState;
use crate::support::Attribute;

/// A kind of work that writes memory.
#[derive(Clone, Copy)]
struct Kind {
    /// Its name for messages.
    name: &'static str,
    /// Whether it may use memory that only copies reach.
    is_copy: bool,
}

const COPY: Kind = Kind::copy("a copy");
const COPY_OF_ROWS: Kind = Kind::copy("a copy of rows");
const FILL: Kind = Kind::other("a fill");
const FILL_OF_ROWS: Kind = Kind::other("a fill of rows");
const RELEASE: Kind = Kind::other("a fence release");
const TIMESTAMP: Kind = Kind::other("a timestamp");

impl Kind {
    const fn copy(name: &'static str) -> Self {
        let is_copy = true;
        Self { name, is_copy }
    }

    const fn other(name: &'static str) -> Self {
        let is_copy = false;
        Self { name, is_copy }
    }
}

/// Checks the addresses of work and puts the work into a stream. Used by one thread at a time.
pub(crate) struct Enqueuer {
    pub(crate) state: Arc<SpaceState>,
    pub(crate) stream: Arc<Stream>,
    lookup: Lookup,
    /// Name of the kernel that was launched last, for messages.
    last: Option<Arc<str>>,
    /// Whether the GPU stores fences without a kernel.
    stream_stores: bool,
    /// Whether work is recorded: then it reaches only what kernels reach, and is not measured.
    is_recording: bool,
    crossings: Crossings,
}

impl Enqueuer {
    /// Returns an enqueuer with a new stream of this priority in the address space `state`.
    pub(crate) fn new(state: &Arc<SpaceState>, priority: i32) -> Result<Self, CudaError> {
        Ok(Self {
            stream: Arc::new(state.maker.stream_of(priority)?),
            state: Arc::clone(state),
            lookup: Lookup::default(),
            last: None,
            stream_stores: state.gpu.support.has(Attribute::StreamStores64),
            is_recording: false,
            crossings: Crossings::default(),
        })
    }

    /// As [`Self::new`], for work that is recorded in its stream.
    pub(crate) fn for_recording(state: &Arc<SpaceState>) -> Result<Self, CudaError> {
        Ok(Self {
            is_recording: true,
            ..Self::new(state, 0)?
        })
    }

    /// Returns what copies between GPUs are under way, and have moved.
    pub(crate) fn crossings(&mut self) -> &mut Crossings {
        &mut self.crossings
    }

    /// Makes fences be stored by a kernel from now on, not by the stream.
    pub(crate) fn store_by_kernels(&mut self) {
        self.stream_stores = false;
    }

    /// Forgets addresses that may have lost rights. The caller calls this for each submission,
    /// after [`Idle::announce`](crate::idle::Idle::announce) has announced it.
    pub(crate) fn refresh(&mut self) {
        self.lookup.refresh(&self.state.table);
    }

    /// Puts one piece of work into the stream. Returns a fault if the work uses addresses that are
    /// not mapped with the rights that it needs, or if the driver refuses it.
    pub(crate) fn enqueue(&mut self, work: &Work<'_>) -> Result<(), Fault> {
        match work {
            Work::Launch(launch) => self.launch(launch),
            Work::Memory(work) => self.write(*work),
            Work::Array(copy) => self.copy_array(copy),
            Work::Replay { recording } => {
                let recording = recording.as_any().downcast_ref::<CudaRecording>();
                recording.ok_or_else(foreign)?.replay(self)
            }
        }
    }

    fn write(&mut self, work: MemoryWork) -> Result<(), Fault> {
        match work {
            MemoryWork::Copy {
                destination,
                source,
                bytes,
            } => self.copy(destination, source, bytes),
            MemoryWork::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => self.fill(destination, bytes, pattern, width),
            MemoryWork::CopyRect(shape) => self.copy_rect(&shape, &work),
            MemoryWork::FillRect(shape) => {
                self.check_one_mapping(FILL_OF_ROWS, work.written(), Access::ReadWrite)?;
                let filled = self.stream.fill_rect(&shape);
                filled.map_err(|e| self.address_fault(&e))
            }
            MemoryWork::Release { address, value } => self.release(address, value),
            MemoryWork::ReleaseHalf { address, value } => self.release_half(address, value),
            MemoryWork::Timestamp { address } => self.timestamp(address),
        }
    }

    /// Returns the fault for an error of the driver, with the name of the kernel launched last.
    pub(crate) fn fault(&self, error: &CudaError) -> Fault {
        error::fault(error, self.last.as_deref())
    }

    /// Refuses addresses that are not mapped with the rights that work needs. Returns how many
    /// bytes of the range lie in the first mapping.
    fn check(
        &mut self,
        kind: Kind,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, Fault> {
        let wanted = Use {
            address,
            bytes,
            access,
            may_be_apart: kind.is_copy && !self.is_recording,
            what: kind.name,
        };
        self.lookup.check(&self.state.table, &wanted)
    }

    /// Refuses a range that is not mapped with the rights that work needs, or that goes over more
    /// than one mapping: nothing says that one call of the driver may.
    fn check_one_mapping(
        &mut self,
        kind: Kind,
        (address, bytes): (u64, u64),
        access: Access,
    ) -> Result<(), Fault> {
        let first = self.check(kind, address, bytes, access)?;
        if first == bytes {
            return Ok(());
        }
        let what = kind.name;
        let text = format!("{what}: {address:#x}+{bytes:#x} goes over more than one mapping");
        let fault = Fault::new(Status::MemoryFault, text);
        Err(fault.with_cuda_result(code::CUDA_ERROR_ILLEGAL_ADDRESS))
    }

    /// Refuses recorded work if its addresses have lost rights since it was recorded.
    pub(crate) fn check_again(&mut self, standing: &Standing) -> Result<(), Fault> {
        standing.check(&self.state.table, &mut self.lookup)
    }

    fn launch(&mut self, launch: &backend::Launch<'_>) -> Result<(), Fault> {
        let function = prepared(launch)?;
        self.note(function);
        let launch = Launch {
            shape: launch.shape(),
            options: launch.options(),
            parameters: launch.parameters(),
            layout: launch.kernel().parameters(),
        };
        self.stream
            .launch(function.handle, &launch)
            .map_err(|e| self.fault(&e))
    }

    /// Notes the name of a kernel that is about to be launched, for messages.
    pub(crate) fn note(&mut self, function: &CudaKernel) {
        let known = self.last.as_ref();
        if !known.is_some_and(|last| Arc::ptr_eq(last, &function.name)) {
            self.last = Some(Arc::clone(&function.name));
        }
    }

    fn copy(&mut self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        self.check(COPY, source, bytes, Access::Read)?;
        self.check(COPY, destination, bytes, Access::ReadWrite)?;
        let mut done = 0;
        // One call for each pair of mappings: nothing says that a call may go over the end of one.
        while done < bytes {
            let (to, from) = (destination + done, source + done);
            let table = &self.state.table;
            let (writable, to_place) = self.lookup.run(table, to);
            let (readable, from_place) = self.lookup.run(table, from);
            let piece = (bytes - done).min(writable).min(readable);
            if piece == 0 {
                break;
            }
            self.pass(
                (to_place, from_place),
                piece,
                |stream, contexts| match contexts {
                    None => stream.copy(to, from, piece),
                    Some([at_to, at_from]) => {
                        stream.copy_across((to, at_to), (from, at_from), piece)
                    }
                },
            )?;
            done += piece;
        }
        self.complete(done, bytes, COPY)
    }

    fn copy_rect(&mut self, shape: &CopyShape, work: &MemoryWork) -> Result<(), Fault> {
        let from = work.read().unwrap_or((0, u64::MAX));
        self.check_one_mapping(COPY_OF_ROWS, from, Access::Read)?;
        self.check_one_mapping(COPY_OF_ROWS, work.written(), Access::ReadWrite)?;
        let table = &self.state.table;
        let (to_bytes, to_place) = self.lookup.run(table, shape.destination.address);
        let (from_bytes, from_place) = self.lookup.run(table, shape.source.address);
        if to_bytes == 0 || from_bytes == 0 {
            return self.complete(0, shape.bytes(), COPY_OF_ROWS);
        }
        self.pass(
            (to_place, from_place),
            shape.bytes(),
            |stream, contexts| match contexts {
                None => stream.copy_rect(shape),
                Some([at_to, at_from]) => stream.copy_rect_across(shape, at_to, at_from),
            },
        )
    }

    /// Calls `copy`, which puts a copy between memory at two places into the stream: with the
    /// contexts of destination and source, if neither GPU reaches the other's memory.
    fn pass(
        &mut self,
        (to, from): (Place, Place),
        bytes: u64,
        copy: impl FnOnce(&Stream, Option<[&Context; 2]>) -> Result<(), CudaError>,
    ) -> Result<(), Fault> {
        let way = Way::between(to, from).map_err(|_| no_way())?;
        let contexts = match way {
            Some(Way::Staged) => Some([self.context_at(to)?, self.context_at(from)?]),
            Some(Way::Direct) | None => None,
        };
        let contexts = contexts
            .as_ref()
            .map(|pair| pair.each_ref().map(|it| &**it));
        let stream = &self.stream;
        let copied = match way.filter(|_| !self.is_recording) {
            None => copy(stream, contexts),
            Some(way) => {
                let crossings = &mut self.crossings;
                crossings.measure(stream, (way, bytes), || copy(stream, contexts))
            }
        };
        copied.map_err(|e| self.address_fault(&e))
    }

    /// Returns the context in which memory at a place is mapped.
    fn context_at(&self, place: Place) -> Result<Arc<Context>, Fault> {
        match place {
            Place::Apart { gpu } => self.state.gpu.others.existing(gpu).ok_or_else(no_way),
            Place::Host | Place::Own | Place::Peer => Ok(Arc::clone(self.stream.context())),
        }
    }

    fn fill(
        &mut self,
        destination: u64,
        bytes: u64,
        pattern: u32,
        width: u32,
    ) -> Result<(), Fault> {
        let mut piece = self.check(FILL, destination, bytes, Access::ReadWrite)?;
        let mut done = 0;
        while done < bytes && piece != 0 {
            let filled = self.stream.fill(destination + done, piece, pattern, width);
            filled.map_err(|e| self.address_fault(&e))?;
            done += piece;
            let (run, _) = self.lookup.run(&self.state.table, destination + done);
            piece = run.min(bytes - done);
        }
        self.complete(done, bytes, FILL)
    }

    /// Refuses work of which a part was unmapped after it was checked.
    fn complete(&self, done: u64, bytes: u64, kind: Kind) -> Result<(), Fault> {
        if done == bytes {
            return Ok(());
        }
        Err(Fault::new(
            Status::MemoryFault,
            format!(
                "{} was stopped after {done:#x} of {bytes:#x} bytes: \
                 another thread unmapped its memory meanwhile",
                kind.name
            ),
        ))
    }

    fn release(&mut self, address: u64, value: u64) -> Result<(), Fault> {
        self.check(RELEASE, address, 8, Access::ReadWrite)?;
        let released = if self.stream_stores {
            self.stream.write_value(address, value)
        } else {
            let words = &self.state.words;
            words.release(&self.stream, address, value)
        };
        released.map_err(|e| self.address_fault(&e))
    }

    fn release_half(&mut self, address: u64, value: u32) -> Result<(), Fault> {
        self.check(RELEASE, address, 4, Access::ReadWrite)?;
        let released = if self.stream_stores {
            self.stream.write_value32(address, value)
        } else {
            let words = &self.state.words;
            words.release_half(&self.stream, address, value)
        };
        released.map_err(|e| self.address_fault(&e))
    }

    fn timestamp(&mut self, address: u64) -> Result<(), Fault> {
        self.check(TIMESTAMP, address, 8, Access::ReadWrite)?;
        let words = &self.state.words;
        let stamped = words.timestamp(&self.stream, address);
        stamped.map_err(|e| self.address_fault(&e))
    }

    /// Returns the fault for an error of a call with addresses, as [`Self::fault`] does, except
    /// that an invalid value is an address that was unmapped meanwhile.
    fn address_fault(&self, error: &CudaError) -> Fault {
        let fault = self.fault(error);
        let status = match fault.status {
            Status::BadLaunch => Status::MemoryFault,
            status => status,
        };
        Fault { status, ..fault }
    }
}

/// Returns the kernel of a launch, after allowing it the dynamic shared memory that the launch asks
/// for.
pub(crate) fn prepared<'a>(launch: &backend::Launch<'a>) -> Result<&'a CudaKernel, Fault> {
    let function = launch.kernel().as_any().downcast_ref::<CudaKernel>();
    let function = function.ok_or_else(foreign)?;
    function.allow_dynamic(launch.shape().shared_bytes)?;
    Ok(function)
}

fn no_way() -> Fault {
    let text = "a copy goes from or to memory of a GPU that cannot be a peer of this one: the \
                other side must be memory of the session's own GPU";
    let fault = Fault::new(Status::MemoryFault, text);
    fault.with_cuda_result(code::CUDA_ERROR_ILLEGAL_ADDRESS)
}

fn foreign() -> Fault {
    Fault::new(
        Status::BadHandle,
        "the kernel, recording or array belongs to another back end or address space",
    )
}
