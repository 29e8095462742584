//! The first messages between the VMM and a worker: the session to open, and its back end.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use causeway_mediator::OpenError;
use causeway_mediator::backend::Attributes;
use zerocopy::{FromZeros, IntoBytes};

use super::channel::expect;
use super::process::Process;
use super::shared::Order;
use crate::DeviceUuid;
use crate::report;
use crate::socket::{Datagram, Socket, SocketError, buffer};
use crate::wire::{Kind, RAM_REGIONS_MAX, Region, Start, Started, page_size};

/// Longest that a worker may take to open its session: a driver starts up, and may compile.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// Sends the session to open.
pub(super) fn send_start(
    control: &Socket,
    order: &Order,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), SocketError> {
    let regions = order.host.ram_regions();
    let mut start = Start::new_zeroed();
    start.quota = order.quota.limits();
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
}

impl From<SocketError> for StartError {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

/// Waits for the attributes of the worker's back end.
pub(super) fn await_start(
    control: &Socket,
) -> Result<(Attributes, Option<DeviceUuid>), StartError> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut room = buffer();
    loop {
        match control.receive(&mut room) {
            Ok(reply) if reply.kind == Kind::Refused => {
                return Err(StartError::Refused(report::printable(reply.bytes)));
            }
            Ok(reply) => {
                expect(&reply, Kind::Started)?;
                return Ok(attributes(&reply)?);
            }
            Err(SocketError::Timeout) if Instant::now() < deadline => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn attributes(reply: &Datagram<'_>) -> Result<(Attributes, Option<DeviceUuid>), SocketError> {
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
    Ok((attributes, device))
}

/// Returns the error of [`causeway_mediator::SessionSource::open`] for a worker that has not
/// started.
pub(super) fn not_started(error: StartError, process: &Process, name: &str) -> OpenError {
    let how = match error {
        StartError::Refused(reason) => return OpenError::Unavailable { reason },
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
