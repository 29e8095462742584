//! Virtio devices whose requests the host's kernel executes (vhost, `include/uapi/linux/vhost.h`):
//! sockets between guest and host (`/dev/vhost-vsock`), and network interfaces on a tap device
//! (`/dev/vhost-net`).
//!
//! As with another process, neither a notification nor an interrupt comes to this process. The
//! kernel reads and writes guest RAM by this process's mapping of it, so guest RAM must stay mapped
//! until a device has stopped, or its descriptor is closed. A virtual CPU that resets a device
//! waits until the kernel has stopped: for the packets that it is at.

use std::os::unix::net::UnixStream;

use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use super::device::{TRANSPORT_FEATURES, VERSION_1};
use super::outside::{BackEnd, Description, OutsideError, Queue};
use crate::memory::{GuestRam, RamView};

mod net;
mod tap;
mod vsock;

pub use tap::{Tap, TapError};
pub use vsock::CID_MIN;

/// Steps that are other operations for each device, in words.
const START: &str = "to start the device";
const STOP: &str = "to stop the device";

/// What the crate checks addresses of queues against: the guest's RAM while a driver runs.
type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// Returns what has no address until a driver runs.
fn no_memory() -> Memory {
    Memory::new(GuestMemoryMmap::default())
}

/// A device of a guest that the host's kernel serves.
pub struct KernelDevice(Box<dyn BackEnd>);

debug_by_name!(KernelDevice);

impl KernelDevice {
    pub(super) fn back_end(&self) -> &dyn BackEnd {
        &*self.0
    }

    pub(super) fn into_back_end(self) -> Box<dyn BackEnd> {
        self.0
    }
}

/// A descriptor of the kernel's by which it is told what to serve.
trait Handle: Send + 'static {
    /// What takes the operations that all devices have.
    type Vhost: VhostBackend;
    /// Number of the device's queues that the kernel serves: the first ones.
    const QUEUES: usize;

    /// Returns what takes the operations that all devices have.
    fn vhost(&self) -> &Self::Vhost;

    /// Makes the kernel serve queues that have been handed over, for a driver that has accepted
    /// `features`.
    fn start(&self, features: u64) -> Result<(), vhost::Error>;

    /// Makes the kernel let go of guest memory.
    fn stop(&self) -> Result<(), vhost::Error>;
}

struct Served<H> {
    description: Description,
    /// Gone when the kernel is given up.
    handle: Option<H>,
    memory: Memory,
    features: u64,
}

impl<H: Handle> Served<H> {
    /// Makes this process the owner of `handle`, which checks addresses against `memory`.
    fn new(description: Description, handle: H, memory: Memory) -> Result<Self, OutsideError> {
        let at = |step| refused(&description, step);
        let kernel = handle.vhost();
        kernel.set_owner().map_err(at("VHOST_SET_OWNER"))?;
        let has = kernel.get_features().map_err(at("VHOST_GET_FEATURES"))?;
        if has & VERSION_1 == 0 {
            return Err(OutsideError::OldVersion {
                process: description.process,
                offered: has,
            });
        }
        let of_kernel = has & (description.features | TRANSPORT_FEATURES);
        Ok(Self {
            features: of_kernel | description.own_features,
            description,
            handle: Some(handle),
            memory,
        })
    }

    /// Replaces the memory against which addresses of queues are checked.
    fn set_memory(&self, memory: GuestMemoryMmap) {
        // Nothing panics while the lock is held.
        if let Ok(lock) = self.memory.lock() {
            lock.replace(memory);
        }
    }

    fn hand_over(&self, kernel: &H::Vhost, queue: &Queue) -> Result<(), OutsideError> {
        let at = |step| refused(&self.description, step);
        let (number, size) = (queue.number, queue.place.size);
        let set = kernel.set_vring_num(number, size);
        set.map_err(at("VHOST_SET_VRING_NUM"))?;
        let set = kernel.set_vring_addr(number, &queue.addresses(0));
        set.map_err(at("VHOST_SET_VRING_ADDR"))?;
        let set = kernel.set_vring_base(number, 0);
        set.map_err(at("VHOST_SET_VRING_BASE"))?;
        let set = kernel.set_vring_call(number, &queue.call);
        set.map_err(at("VHOST_SET_VRING_CALL"))?;
        let set = kernel.set_vring_kick(number, &queue.kick);
        set.map_err(at("VHOST_SET_VRING_KICK"))
    }
}

impl<H: Handle> BackEnd for Served<H> {
    fn description(&self) -> &Description {
        &self.description
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn serve(
        &mut self,
        queues: &[Queue],
        features: u64,
        ram: &RamView,
    ) -> Result<(), OutsideError> {
        let Some(handle) = &self.handle else {
            return Ok(());
        };
        let own = |queue: &&Queue| queue.number < H::QUEUES;
        // The kernel serves all of its queues or none: it would go on with those of an earlier
        // driver where this one has none.
        if queues.iter().filter(own).count() < H::QUEUES {
            log::debug!(
                "{}: its driver does not use all queues",
                self.description.process
            );
            return Ok(());
        }
        self.set_memory(ram.memory().clone());
        let (at, kernel) = (|step| refused(&self.description, step), handle.vhost());
        let of_kernel = features & !self.description.own_features;
        let set = kernel.set_features(of_kernel);
        set.map_err(at("VHOST_SET_FEATURES"))?;
        let set = kernel.set_mem_table(&regions(ram.ram()));
        set.map_err(at("VHOST_SET_MEM_TABLE"))?;
        let mut all = queues.iter().filter(own);
        all.try_for_each(|queue| self.hand_over(kernel, queue))?;
        handle.start(features).map_err(at(START))?;
        // The driver may have notified a queue before: the kernel forgets what comes too early.
        let mut all = queues.iter().filter(own);
        let kicked = all.try_for_each(|queue| queue.kick.write(1));
        kicked.map_err(|e| at(START)(vhost::Error::IOError(e)))
    }

    fn stop(&mut self, _: &[usize]) -> Result<(), OutsideError> {
        let stopped = self.handle.as_ref().map_or(Ok(()), Handle::stop);
        stopped.map_err(refused(&self.description, STOP))?;
        self.set_memory(GuestMemoryMmap::default());
        Ok(())
    }

    fn connection(&self) -> Option<&UnixStream> {
        None
    }

    fn give_up(&mut self) {
        // The end of the descriptor ends all that the kernel does with it.
        self.handle = None;
        self.set_memory(GuestMemoryMmap::default());
    }
}

fn refused<'a>(
    description: &'a Description,
    step: &'static str,
) -> impl FnOnce(vhost::Error) -> OutsideError + 'a {
    move |source| OutsideError::Kernel {
        device: description.process.clone(),
        step,
        source,
    }
}

/// Returns guest RAM as the kernel finds it: by this process's addresses.
fn regions(ram: &GuestRam) -> Vec<VhostUserMemoryRegionInfo> {
    let regions = ram.regions().map(|region| VhostUserMemoryRegionInfo {
        guest_phys_addr: region.base(),
        memory_size: region.bytes(),
        userspace_addr: region.host().as_ptr() as u64,
        ..VhostUserMemoryRegionInfo::default()
    });
    regions.collect()
}
