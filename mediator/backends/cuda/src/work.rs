//! Translates validated work to calls of the driver.

use std::sync::Arc;

use causeway_mediator::backend::{self, Fault, MemoryWork, Work};
use causeway_protocol::Access;
use causeway_protocol::message::Status;

use crate::driver::{CudaError, Launch, Stream, code};
use crate::error;
use crate::module::CudaKernel;
use crate::recording::CudaRecording;
use crate::space::lookup::{Lookup, Standing, Use};
use crate::space::state::SpaceState;
use crate::support::Attribute;

/// Checks the addresses of work and puts the work into a stream. Used by one thread at a time.
pub(crate) struct Enqueuer {
    pub(crate) state: Arc<SpaceState>,
    pub(crate) stream: Arc<Stream>,
    lookup: Lookup,
    /// Name of the kernel that was launched last, for messages.
    last: Option<Arc<str>>,
    /// Whether the GPU stores fences without a kernel.
    stream_stores: bool,
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
        })
    }

    /// Makes fences be stored by a kernel from now on, not by the stream.
    pub(crate) fn store_by_kernels(&mut self) {
        self.stream_stores = false;
    }

    /// Forgets addresses that may have lost rights. The caller calls this for each submission,
    /// after [`Progress::begin`](crate::space::deferred::Progress::begin) has announced it.
    pub(crate) fn refresh(&mut self) {
        self.lookup.refresh(&self.state.table);
    }

    /// Puts one piece of work into the stream. Returns a fault if the work uses addresses that are
    /// not mapped with the rights that it needs, or if the driver refuses it.
    pub(crate) fn enqueue(&mut self, work: &Work<'_>) -> Result<(), Fault> {
        match work {
            Work::Launch(launch) => self.launch(launch),
            Work::Memory(work) => self.write(*work),
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
            MemoryWork::CopyRect(shape) => {
                let what = "a copy of rows";
                let from = work.read().unwrap_or((0, u64::MAX));
                self.check_one_mapping(what, from, Access::Read)?;
                self.check_one_mapping(what, work.written(), Access::ReadWrite)?;
                let copied = self.stream.copy_rect(&shape);
                copied.map_err(|e| self.address_fault(&e))
            }
            MemoryWork::FillRect(shape) => {
                self.check_one_mapping("a fill of rows", work.written(), Access::ReadWrite)?;
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
        what: &'static str,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<u64, Fault> {
        let wanted = Use {
            address,
            bytes,
            access,
            what,
        };
        self.lookup.check(&self.state.table, &wanted)
    }

    /// Refuses a range that is not mapped with the rights that work needs, or that goes over more
    /// than one mapping: nothing says that one call of the driver may.
    fn check_one_mapping(
        &mut self,
        what: &'static str,
        (address, bytes): (u64, u64),
        access: Access,
    ) -> Result<(), Fault> {
        let first = self.check(what, address, bytes, access)?;
        if first == bytes {
            return Ok(());
        }
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
        let what = "a copy";
        let readable = self.check(what, source, bytes, Access::Read)?;
        let writable = self.check(what, destination, bytes, Access::ReadWrite)?;
        let mut piece = readable.min(writable);
        let mut done = 0;
        // One call for each pair of mappings: nothing says that a call may go over the end of one.
        while done < bytes {
            let (to, from) = (destination + done, source + done);
            let copied = self.stream.copy(to, from, piece);
            copied.map_err(|e| self.address_fault(&e))?;
            done += piece;
            let table = &self.state.table;
            let runs = [
                bytes - done,
                self.lookup.run(table, source + done),
                self.lookup.run(table, destination + done),
            ];
            piece = runs.into_iter().min().unwrap_or(0);
            if piece == 0 {
                break;
            }
        }
        self.complete(done, bytes, what)
    }

    fn fill(
        &mut self,
        destination: u64,
        bytes: u64,
        pattern: u32,
        width: u32,
    ) -> Result<(), Fault> {
        let what = "a fill";
        let mut piece = self.check(what, destination, bytes, Access::ReadWrite)?;
        let mut done = 0;
        while done < bytes && piece != 0 {
            let filled = self.stream.fill(destination + done, piece, pattern, width);
            filled.map_err(|e| self.address_fault(&e))?;
            done += piece;
            let run = self.lookup.run(&self.state.table, destination + done);
            piece = run.min(bytes - done);
        }
        self.complete(done, bytes, what)
    }

    /// Refuses work of which a part was unmapped after it was checked.
    fn complete(&self, done: u64, bytes: u64, what: &str) -> Result<(), Fault> {
        if done == bytes {
            return Ok(());
        }
        Err(Fault::new(
            Status::MemoryFault,
            format!(
                "{what} was stopped after {done:#x} of {bytes:#x} bytes: \
                 another thread unmapped its memory meanwhile"
            ),
        ))
    }

    fn release(&mut self, address: u64, value: u64) -> Result<(), Fault> {
        self.check("a fence release", address, 8, Access::ReadWrite)?;
        let released = if self.stream_stores {
            self.stream.write_value(address, value)
        } else {
            let words = &self.state.words;
            words.release(&self.stream, address, value)
        };
        released.map_err(|e| self.address_fault(&e))
    }

    fn release_half(&mut self, address: u64, value: u32) -> Result<(), Fault> {
        self.check("a fence release", address, 4, Access::ReadWrite)?;
        let released = if self.stream_stores {
            self.stream.write_value32(address, value)
        } else {
            let words = &self.state.words;
            words.release_half(&self.stream, address, value)
        };
        released.map_err(|e| self.address_fault(&e))
    }

    fn timestamp(&mut self, address: u64) -> Result<(), Fault> {
        self.check("a timestamp", address, 8, Access::ReadWrite)?;
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

fn foreign() -> Fault {
    Fault::new(
        Status::BadHandle,
        "the kernel or recording belongs to another back end",
    )
}
