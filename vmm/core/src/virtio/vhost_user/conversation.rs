//! What is said to the process of a device, in steps that take a bounded time.

use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures as Protocol};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

use super::DeviceProcess;
use crate::memory::{GuestRam, RamView};
use crate::virtio::device::{TRANSPORT_FEATURES, VERSION_1};
use crate::virtio::outside::{BackEnd, Description, OutsideError, Queue};

/// The feature that says that the process has features of the protocol, too (not of virtio).
const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Features of devices (Virtual I/O Device Version 1.2, 2.2: bits 0 to 23).
const DEVICE_FEATURES: u64 = (1 << 24) - 1;

/// What is added to a guest-physical address where the protocol wants an address of this process.
/// The process only compares such addresses with each other, so it need not learn where guest RAM
/// is mapped here. Not zero, because some take zero for no address.
const ADDRESS_BASE: u64 = 1 << 46;

impl BackEnd for DeviceProcess {
    fn description(&self) -> &Description {
        &self.description
    }

    fn features(&self) -> u64 {
        self.offered
    }

    fn serve(
        &mut self,
        queues: &[Queue],
        features: u64,
        ram: &RamView,
    ) -> Result<(), OutsideError> {
        let (frontend, own) = (&mut self.frontend, self.own);
        let features = features & !self.description.own_features;
        within_limit(&self.stream, self.description.limit(), |at| {
            *at = "SET_FEATURES";
            frontend.set_features(features | own)?;
            *at = "SET_MEM_TABLE";
            frontend.set_mem_table(&regions(ram.ram()))?;
            let mut all = queues.iter();
            all.try_for_each(|queue| hand_over(frontend, queue, at))?;
            if own != 0 {
                *at = "SET_VRING_ENABLE";
                let mut all = queues.iter();
                all.try_for_each(|queue| frontend.set_vring_enable(queue.number, true))?;
                // Drivers notify as soon as they run. Some processes, such as virtiofsd 1.13, take
                // the signal of a queue that is not enabled yet, and forget it. This answer comes
                // when all are enabled.
                *at = "GET_FEATURES";
                frontend.get_features()?;
                for queue in queues {
                    // It fails if the event has too many signals already: one more is not missed.
                    let _ = queue.kick.write(1);
                }
            }
            Ok(())
        })
    }

    fn stop(&mut self, queues: &[usize]) -> Result<(), OutsideError> {
        let (frontend, own) = (&mut self.frontend, self.own);
        within_limit(&self.stream, self.description.limit(), |at| {
            for queue in queues {
                *at = "GET_VRING_BASE";
                frontend.get_vring_base(*queue)?;
                if own != 0 {
                    *at = "SET_VRING_ENABLE";
                    frontend.set_vring_enable(*queue, false)?;
                }
            }
            Ok(())
        })
    }

    fn connection(&self) -> Option<&UnixStream> {
        Some(&self.stream)
    }

    fn give_up(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        self.life = None;
    }
}

/// Where a conversation is: the protocol's name of the last message.
pub type Step = &'static str;

/// Why a step of a conversation failed, without the name of the process.
pub enum Failure {
    Protocol(vhost::Error),
    Lacks(OutsideError),
}

impl From<vhost::Error> for Failure {
    fn from(error: vhost::Error) -> Self {
        Self::Protocol(error)
    }
}

/// Exchanges the first messages, and returns the features that the guest is offered, and those that
/// the process has for itself. Fills in the configuration structure if the process is asked for it.
pub fn greet(
    frontend: &mut Frontend,
    description: &mut Description,
    at: &mut Step,
) -> Result<(u64, u64), Failure> {
    *at = "SET_OWNER";
    frontend.set_owner()?;
    *at = "GET_FEATURES";
    let has = frontend.get_features()?;
    if has & VERSION_1 == 0 {
        return Err(Failure::Lacks(OutsideError::OldVersion {
            process: description.process.clone(),
            offered: has,
        }));
    }
    let offered = has & (description.features & DEVICE_FEATURES | TRANSPORT_FEATURES)
        | description.own_features;
    if has & PROTOCOL_FEATURES == 0 {
        configure(frontend, description, Protocol::empty(), at)?;
        return Ok((offered, 0));
    }
    *at = "GET_PROTOCOL_FEATURES";
    let mut wanted = Protocol::MQ | Protocol::REPLY_ACK;
    wanted.set(Protocol::CONFIG, description.asks_configuration);
    let protocol = frontend.get_protocol_features()? & wanted;
    *at = "SET_PROTOCOL_FEATURES";
    frontend.set_protocol_features(protocol)?;
    if protocol.contains(Protocol::MQ) {
        *at = "GET_QUEUE_NUM";
        let (offered, queues) = (frontend.get_queue_num()?, description.queues);
        if offered < queues.into() {
            return Err(Failure::Lacks(OutsideError::Queues {
                process: description.process.clone(),
                offered,
                queues,
            }));
        }
    }
    configure(frontend, description, protocol, at)?;
    if protocol.contains(Protocol::REPLY_ACK) {
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    Ok((offered, PROTOCOL_FEATURES))
}

/// Asks for the configuration structure, if the process is to say what it contains.
fn configure(
    frontend: &mut Frontend,
    description: &mut Description,
    has: Protocol,
    at: &mut Step,
) -> Result<(), Failure> {
    if !description.asks_configuration {
        return Ok(());
    }
    let lacks = OutsideError::Configuration {
        process: description.process.clone(),
    };
    if !has.contains(Protocol::CONFIG) {
        return Err(Failure::Lacks(lacks));
    }
    *at = "GET_CONFIG";
    let (bytes, flags) = (&description.configuration, VhostUserConfigFlags::empty());
    let (_, said) = frontend.get_config(0, bytes.len() as u32, flags, bytes)?;
    if said.len() != bytes.len() {
        return Err(Failure::Lacks(lacks));
    }
    description.configuration = said;
    Ok(())
}

/// Calls `talk`, which exchanges messages over `stream` and keeps up to date where it is. Ends the
/// connection if that takes longer than `limit`: the crate waits for ever.
pub fn within_limit<R>(
    stream: &UnixStream,
    (process, limit): (&str, Duration),
    talk: impl FnOnce(&mut Step) -> Result<R, Failure>,
) -> Result<R, OutsideError> {
    let (done, wait) = channel::<()>();
    let mut step: Step = "connect";
    let (talked, was_late) = std::thread::scope(|scope| {
        let watch = move || match wait.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => stream.shutdown(Shutdown::Both).is_ok(),
            _ => false,
        };
        let watcher = std::thread::Builder::new().name("vhost-user limit".to_owned());
        let watcher = watcher
            .spawn_scoped(scope, watch)
            .map_err(|source| OutsideError::Host {
                process: process.to_owned(),
                source,
            })?;
        let talked = talk(&mut step);
        drop(done);
        Ok((talked, watcher.join().unwrap_or(false)))
    })?;
    let process = process.to_owned();
    match talked {
        Err(Failure::Lacks(error)) => Err(error),
        // The connection has ended, even if the last answer came at that moment.
        _ if was_late => Err(OutsideError::Silent {
            process,
            step,
            limit,
        }),
        Ok(result) => Ok(result),
        Err(Failure::Protocol(source)) => Err(OutsideError::Protocol {
            process,
            step,
            source,
        }),
    }
}

/// Returns guest RAM as the process is to map it.
fn regions(ram: &GuestRam) -> Vec<VhostUserMemoryRegionInfo> {
    let regions = ram.regions().map(|region| VhostUserMemoryRegionInfo {
        guest_phys_addr: region.base(),
        memory_size: region.bytes(),
        userspace_addr: ADDRESS_BASE + region.base(),
        mmap_offset: 0,
        mmap_handle: region.memory().file().as_raw_fd(),
    });
    regions.collect()
}

/// Hands one queue over: the process reads it from its beginning.
fn hand_over(frontend: &Frontend, queue: &Queue, at: &mut Step) -> Result<(), Failure> {
    let (number, size) = (queue.number, queue.place.size);
    *at = "SET_VRING_NUM";
    frontend.set_vring_num(number, size)?;
    *at = "SET_VRING_ADDR";
    frontend.set_vring_addr(number, &queue.addresses(ADDRESS_BASE))?;
    *at = "SET_VRING_BASE";
    frontend.set_vring_base(number, 0)?;
    *at = "SET_VRING_CALL";
    frontend.set_vring_call(number, &queue.call)?;
    *at = "SET_VRING_KICK";
    Ok(frontend.set_vring_kick(number, &queue.kick)?)
}
