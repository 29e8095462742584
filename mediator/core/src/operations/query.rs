//! Hello, attributes, faults, and waits for fences.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_protocol::message::{
    Attributes, BusyReply, DeviceFacts, Empty, FaultReport, GpusReply, Hello, HelloReply, Status,
    UNKNOWN_ATTRIBUTE, Wait,
};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use super::{check_aligned, nothing};
use crate::client_session::ClientSession;
use crate::quota::Resource;
use crate::refusal::Refusal;
use crate::session_inner::SESSION_FEATURES;

/// Longest sleep of one `Wait`, whatever the guest asks for.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Where [`BusyReply::clock_ns`] counts from, so that guests do not learn how long the host runs.
static CLOCK_ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Bytes of [`FaultReport::text`].
const FAULT_TEXT_BYTES: usize = 232;

/// Minor version of the protocol from which the reply to `hello` has a priority.
const MINOR_OF_PRIORITIES: u16 = 4;

impl ClientSession<'_> {
    pub(super) fn hello(&self, request: Hello) -> Result<HelloReply, Refusal> {
        if request.major != VERSION_MAJOR {
            let host = u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR);
            return Err(Refusal::with(Status::BadVersion, host));
        }
        self.lock().greeted |= self.client.bit();
        // To an older guest the field is reserved.
        let greatest_priority = match request.minor {
            0..MINOR_OF_PRIORITIES => 0,
            _ => self.backend.greatest_priority().min(0),
        };
        Ok(HelloReply {
            major: VERSION_MAJOR,
            minor: VERSION_MINOR.min(request.minor),
            greatest_priority,
            features: self.backend.attributes().features | SESSION_FEATURES,
            session: self.id,
        })
    }

    pub(super) fn query_attributes(&self, _: Empty) -> Result<Attributes, Refusal> {
        let device = self.backend.attributes();
        let quota = self.account.quota();
        let count = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        Ok(Attributes {
            name: padded(&device.name),
            memory_bytes: quota.memory_bytes.min(device.memory_bytes),
            memory_used_bytes: self.account.used(Resource::MemoryBytes),
            granularity_bytes: device.granularity_bytes,
            va_base: device.va.start,
            va_bytes: device.va.end.saturating_sub(device.va.start),
            allocations_max: count(quota.allocations),
            command_buffers_max: count(quota.command_buffers),
            compute_units: device.compute_units,
            warp_threads: device.warp_threads,
            block_threads_max: device.block_threads_max,
            shared_bytes_max: device.shared_bytes_max,
        })
    }

    pub(super) fn query_fault(&self, _: Empty) -> Result<FaultReport, Refusal> {
        let (status, cuda_result, text) = match self.generation().fault() {
            Some(fault) => (fault.status, fault.cuda_result, fault.text),
            None => (Status::Ok, 0, String::new()),
        };
        let text_bytes = text.floor_char_boundary(FAULT_TEXT_BYTES) as u32;
        Ok(FaultReport {
            status: status as u32,
            text_bytes,
            text: padded(&text),
            cuda_result,
            reserved: 0,
        })
    }

    /// The numbers that say how much there is are the session's, not the whole device's.
    pub(super) fn query_device(&self, _: Empty) -> Result<DeviceFacts, Refusal> {
        let facts = self.backend.device_facts();
        let device_bytes = self.backend.attributes().memory_bytes;
        let [pci_domain, pci_bus, pci_device] = facts.pci;
        let [capability_major, capability_minor] = facts.capability;
        Ok(DeviceFacts {
            name: padded(&facts.name),
            uuid: facts.uuid,
            memory_bytes: self.account.quota().memory_bytes.min(device_bytes),
            pci_domain,
            pci_bus,
            pci_device,
            capability_major,
            capability_minor,
            cuda_version: facts.cuda_version,
            attributes: facts
                .attributes
                .map(|value| value.unwrap_or(UNKNOWN_ATTRIBUTE)),
        })
    }

    pub(super) fn query_busy(&self, _: Empty) -> Result<BusyReply, Refusal> {
        let origin = *CLOCK_ORIGIN;
        let now = Instant::now();
        Ok(BusyReply {
            clock_ns: u64::try_from(now.duration_since(origin).as_nanos()).unwrap_or(u64::MAX),
            busy_ns: self.counters.busy.times(now).busy_ns,
        })
    }

    pub(super) fn query_gpus(&self, _: Empty) -> Result<GpusReply, Refusal> {
        Ok(GpusReply {
            gpu: self.gpus.own,
            gpus: self.gpus.count,
            peers: self.gpus.peers.bits(),
            copies: self.gpus.apart().bits(),
            atomics: self.gpus.atomics.bits(),
            ranks: self.gpus.ranks,
        })
    }

    pub(super) fn wait(&self, request: Wait) -> Result<Empty, Refusal> {
        check_aligned(8, &[request.address])?;
        let space = self.open_space(request.space)?;
        let look = || {
            if self.is_over(&space.epoch) {
                return Some(Err(Refusal::new(Status::DeviceLost)));
            }
            match space.shared.backend.load_u64(request.address) {
                None => Some(Err(Refusal::new(Status::BadRange))),
                Some(value) if value >= request.value => Some(Ok(())),
                Some(_) if self.interrupted.load(Ordering::SeqCst) => {
                    Some(Err(Refusal::new(Status::TimedOut)))
                }
                Some(_) => None,
            }
        };
        let timeout = Duration::from_nanos(request.timeout_ns).min(WAIT_MAX);
        match self.signal.wait_until(Instant::now() + timeout, look) {
            Some(outcome) => outcome.and_then(|()| nothing()),
            None => Err(Refusal::new(Status::TimedOut)),
        }
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let used = text.floor_char_boundary(N);
    bytes[..used].copy_from_slice(&text.as_bytes()[..used]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(padded::<4>("ab"), *b"ab\0\0");
        assert_eq!(padded::<4>("abcé"), *b"abc\0");
        assert_eq!(padded::<5>("abcé"), *"abcé".as_bytes());
    }
}
