//! The first messages between the VMM and a worker: the session to open, and its back end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use causeway_mediator::backend::Attributes;
use causeway_mediator::{GivesUp, OpenError, Quota};
use zerocopy::{FromZeros, IntoBytes};

use super::channel::{LOOK_PERIOD, expect};
use super::lacking;
use super::process::Process;
use super::shared::Order;
use crate::DeviceUuid;
use crate::report;
use crate::socket::{Buffer, Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, RAM_REGIONS_MAX, Region, Start, Started, page_size};

/// Longest that a worker may take to open its session: a driver starts up, and may compile.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Sends the session to open, with its limits.
pub(super) fn send_start(
    control: &Socket,
    (order, quota): (&Order, &Quota),
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), SocketError> {
    let regions = order.host.ram_regions();
    let mut start = Start::new_zeroed();
    start.quota = quota.limits();
    start.session = order.session;
    if regions.len() > RAM_REGIONS_MAX {
        return Err(SocketError::Malformed("guest RAM has too many regions"));
    }
    start.regions = regions.len() as u32;
    let mut descriptors = descriptors.to_vec();
    for (wire, region) in start.ram.iter_mut().zip(&regions) {
        *wire = Region {
            base: region.base,
            pages: page_size(region.memory.pages()),
            reserved: 0,
        };
        descriptors.push(region.memory.file());
    }
    let parts = [start.as_bytes(), order.name.as_bytes()];
    control.send(Kind::Start, &parts, &descriptors)
}

/// Why a worker has not started its session.
pub(super) enum StartError {
    /// The worker has no back end, for the reason that it gives.
    Refused(String),
    /// No valid answer came.
    Socket(SocketError),
    /// Nobody waits for an answer any more.
    GivenUp,
}

impl From<SocketError> for StartError {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

/// Asks for the back end ahead of the session.
pub(super) fn send_prepare(control: &Socket) -> Result<(), SocketError> {
    control.send(Kind::Prepare, &[], &[])
}

/// Waits until a worker that was asked for its back end ahead of the session has it.
pub(super) fn await_prepared(control: &Socket, gives_up: GivesUp<'_>) -> Result<(), StartError> {
    let mut room = buffer();
    let reply = await_reply(control, &mut room, gives_up)?;
    expect(&reply, Kind::Prepared)?;
    Ok(())
}

/// What a worker has said of its back end.
pub(super) struct BackEnd {
    pub attributes: Attributes,
    /// The GPU; `None` if its memory cannot be mapped for CPUs.
    pub device: Option<DeviceUuid>,
    /// Whether work runs behind its submission.
    pub runs_behind: bool,
}

/// Waits until the worker tells of its back end. If `is_ahead` holds, it says first that it has
/// one.
pub(super) fn await_start(
    control: &Socket,
    is_ahead: bool,
    gives_up: GivesUp<'_>,
) -> Result<BackEnd, StartError> {
    if is_ahead {
        await_prepared(control, gives_up)?;
    }
    let mut room = buffer();
    let reply = await_reply(control, &mut room, gives_up)?;
    expect(&reply, Kind::Started)?;
    Ok(back_end(&reply)?)
}

/// Waits for a message that is no refusal.
fn await_reply<'a>(
    control: &Socket,
    room: &'a mut Buffer,
    gives_up: GivesUp<'_>,
) -> Result<Datagram<'a>, StartError> {
    let deadline = Instant::now() + START_PATIENCE;
    while !control.is_readable(LOOK_PERIOD)? {
        if gives_up() {
            return Err(StartError::GivenUp);
        }
        if Instant::now() > deadline {
            return Err(SocketError::Timeout.into());
        }
    }
    let reply = control.receive(room)?;
    match reply.kind {
        Kind::Refused => Err(StartError::Refused(report::printable(reply.bytes))),
        _ => Ok(reply),
    }
}

/// Returns what the worker says of its back end, and logs what the host lacks to confine it.
fn back_end(reply: &Datagram<'_>) -> Result<BackEnd, SocketError> {
    let (started, name) = reply.body_and_rest::<Started>()?;
    if name.len() > 64 || !started.granularity_bytes.is_power_of_two() {
        return Err(SocketError::Malformed(
            "it sent invalid attributes of its back end",
        ));
    }
    let device = Some(started.device).filter(|device| *device != DeviceUuid::default());
    let attributes = Attributes {
        name: report::printable(name),
        memory_bytes: started.memory_bytes,
        granularity_bytes: started.granularity_bytes,
        va: started.va_start..started.va_end,
        compute_units: started.compute_units,
        warp_threads: started.warp_threads,
        block_threads_max: started.block_threads_max,
        shared_bytes_max: started.shared_bytes_max,
        features: started.features,
    };
    lacking::tell(started.lacking);
    Ok(BackEnd {
        attributes,
        device,
        runs_behind: started.runs_behind != 0,
    })
}

/// Returns the error of [`causeway_mediator::SessionSource::open`] for a worker that has not
/// started.
pub(super) fn not_started(error: StartError, process: &Process, name: &str) -> OpenError {
    let how = match error {
        StartError::Refused(reason) => return OpenError::Unavailable { reason },
        StartError::GivenUp => {
            let name = name.to_owned();
            return OpenError::GivenUp { name };
        }
        StartError::Socket(SocketError::Timeout) => {
            let limit = START_PATIENCE.as_secs();
            format!("did not open its session within {limit} s")
        }
        StartError::Socket(error) => process.failure(&error),
    };
    OpenError::Ended {
        name: name.to_owned(),
        how,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use causeway_mediator::host::{Host, PlaceError, RamError, RamRegion, RingPlace};
    use causeway_mediator::{Client, Compute, LiveLimits};
    use causeway_memory::{Backing, PAGE_BYTES, PageSize, SharedMemory};
    use causeway_protocol::Access;
    use vmm_sys_util::eventfd::EventFd;

    use super::*;
    use crate::parent::leases::Leases;

    /// A guest whose RAM has this number of regions. A start asks its VMM for nothing else.
    struct Regions(usize);

    impl Host for Regions {
        fn ram_regions(&self) -> Vec<RamRegion> {
            let memory = SharedMemory::new("test", PAGE_BYTES, PageSize::Small).unwrap();
            let memory = Arc::new(memory);
            let region = |n| RamRegion {
                base: n as u64 * PAGE_BYTES,
                memory: Arc::clone(&memory),
            };
            (0..self.0).map(region).collect()
        }

        fn place(&self, _: &Backing, _: u64, _: u64, _: Access) -> Result<u64, PlaceError> {
            unreachable!()
        }

        fn set_access(&self, _: u64, _: Access) -> Result<(), PlaceError> {
            unreachable!()
        }

        fn remove(&self, _: u64) -> Result<(), PlaceError> {
            unreachable!()
        }

        fn ram(&self, _: u64, _: u64) -> Result<(Arc<SharedMemory>, u64), RamError> {
            unreachable!()
        }

        fn read_ram(&self, _: u64, _: &mut [u8]) -> Result<(), RamError> {
            unreachable!()
        }

        fn write_ram(&self, _: u64, _: &[u8]) -> Result<(), RamError> {
            unreachable!()
        }

        fn bind_doorbell(&self, _: u32, _: &EventFd, _: &RingPlace) -> io::Result<()> {
            unreachable!()
        }

        fn unbind_doorbell(&self, _: u32, _: &EventFd) {
            unreachable!()
        }

        fn raise(&self, _: Client) {
            unreachable!()
        }
    }

    #[test]
    fn a_guest_may_have_so_many_regions_of_memory_and_no_more() {
        let sends = |regions| {
            let quota = Quota::default();
            let order = Order {
                session: 1,
                partition: 0,
                name: "test".to_owned(),
                host: Arc::new(Regions(regions)),
                limits: Arc::new(LiveLimits::new(&quota)),
                grants: Arc::default(),
                membership: Leases::new().unwrap().join(Compute::DEFAULT),
            };
            let (control, _worker) = Socket::pair().unwrap();
            send_start(&control, (&order, &quota), &[]).is_ok()
        };
        assert!(sends(RAM_REGIONS_MAX));
        assert!(!sends(RAM_REGIONS_MAX + 1));
    }

    /// Returns the back end of which a worker says this.
    fn told(started: &Started, name: &[u8]) -> Result<BackEnd, SocketError> {
        let (worker, control) = Socket::pair().unwrap();
        worker
            .send(Kind::Started, &[started.as_bytes(), name], &[])
            .unwrap();
        let mut room = buffer();
        back_end(&control.receive(&mut room).unwrap())
    }

    /// Returns whether a worker may say this of its back end.
    fn is_believed(granularity_bytes: u64, name: &[u8]) -> bool {
        let mut started = Started::new_zeroed();
        started.granularity_bytes = granularity_bytes;
        told(&started, name).is_ok()
    }

    #[test]
    fn a_worker_is_not_believed_a_name_without_end_or_an_impossible_granularity() {
        assert!(is_believed(4096, b"software"));
        assert!(is_believed(4096, &[b'a'; 64]));
        assert!(!is_believed(4096, &[b'a'; 65]));
        assert!(!is_believed(3, b"software"));
        assert!(!is_believed(0, b"software"));
    }

    #[test]
    fn a_worker_without_a_device_for_cpus_names_one_of_zeros() {
        let device_of = |device| {
            let mut started = Started::new_zeroed();
            started.granularity_bytes = 4096;
            started.device = device;
            told(&started, b"software").unwrap().device
        };
        assert_eq!(device_of([0; 16]), None);
        assert_eq!(device_of([7; 16]), Some([7; 16]));
    }
}
