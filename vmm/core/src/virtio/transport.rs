//! The registers of a virtio function, and the life of a driver on them (Virtual I/O Device Version
//! 1.2, 2.1 and 4.1.4).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
};
use vmm_sys_util::eventfd::EventFd;

use super::device::{EVENT_INDEX, VERSION_1};
use super::executor::Device;
use super::interrupts::Source;
use super::registers::{Common, NOTIFY_STRIDE, Structure};
use super::ring::{Ring, RingError, RingPlace};
use super::thread::{DeviceThread, Shared};
use crate::bus::{AccessResult, BusDevice, Refusal, Response};
use crate::device::Doorbells;

const FEATURES_OK: u8 = VIRTIO_CONFIG_S_FEATURES_OK as u8;
const DRIVER_OK: u8 = VIRTIO_CONFIG_S_DRIVER_OK as u8;
const NEEDS_RESET: u8 = VIRTIO_CONFIG_S_NEEDS_RESET as u8;
/// Status bits that a driver sets.
const DRIVER_STATUS: u8 = (VIRTIO_CONFIG_S_ACKNOWLEDGE
    | VIRTIO_CONFIG_S_DRIVER
    | VIRTIO_CONFIG_S_DRIVER_OK
    | VIRTIO_CONFIG_S_FEATURES_OK
    | VIRTIO_CONFIG_S_FAILED) as u8;

/// A queue as a driver has set it. The default is the state after a reset.
#[derive(Clone, Debug, Default)]
struct QueueState {
    place: RingPlace,
    enabled: bool,
}

/// What a driver has set.
#[derive(Debug, Default)]
struct State {
    status: u8,
    device_feature_select: u32,
    driver_feature_select: u32,
    driver_features: u64,
    queue_select: u16,
    queues: Vec<QueueState>,
}

impl State {
    /// Returns the state after a reset of a device with `queues` queues.
    fn fresh(queues: usize) -> Self {
        Self {
            queues: vec![QueueState::default(); queues],
            ..Self::default()
        }
    }

    /// Returns the queue that the driver has selected, if there is one.
    fn selected(&self) -> Option<&QueueState> {
        self.queues.get(usize::from(self.queue_select))
    }
}

/// The registers of a virtio function, which are in its BAR. A guest's driver starts and resets the
/// device by them.
pub struct Transport {
    name: &'static str,
    features: u64,
    notifications: Arc<Doorbells>,
    /// Signalled by notifications, by number of the queue.
    kicks: Vec<EventFd>,
    shared: Arc<Shared>,
    thread: DeviceThread,
    state: Mutex<State>,
}

impl Transport {
    /// Returns the registers of `device` in their state after a reset, and prepares a thread called
    /// `thread` for the device. For each queue, binds an event that wakes the
    /// thread to the queue's doorbell in `notifications`.
    ///
    /// # Errors
    /// The kernel's error if no thread or descriptor is left.
    pub fn new(
        thread: &str,
        device: Device,
        notifications: Arc<Doorbells>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let queues = device.queues();
        let mut kicks = Vec::new();
        for queue in 0..queues {
            let kick = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?;
            notifications.bind(queue.into(), &kick)?;
            kicks.push(kick);
        }
        Ok(Self {
            name: device.kind().name,
            features: device.features(),
            notifications,
            thread: device.start(thread, &kicks, Arc::clone(&shared))?,
            kicks,
            shared,
            state: Mutex::new(State::fresh(queues.into())),
        })
    }

    fn load(&self, register: Common) -> u32 {
        let state = self.state.lock();
        let interrupts = &self.shared.interrupts;
        match register {
            Common::DeviceFeatureSelect => state.device_feature_select,
            Common::DeviceFeature => half(self.features, state.device_feature_select),
            Common::DriverFeatureSelect => state.driver_feature_select,
            Common::DriverFeature => half(state.driver_features, state.driver_feature_select),
            Common::ConfigVector => interrupts.vector(Source::Configuration).into(),
            Common::QueueCount => state.queues.len() as u32,
            Common::Status => self.status(&state).into(),
            Common::Generation => self.shared.configuration.generation().into(),
            Common::QueueSelect => state.queue_select.into(),
            Common::QueueVector => interrupts.vector(Source::Queue(state.queue_select)).into(),
            // A queue that is not there has no entries, and nothing else.
            register => state.selected().map_or(0, |queue| match register {
                Common::QueueNotifyOffset => state.queue_select.into(),
                register => queue.load(register),
            }),
        }
    }

    fn store(&self, register: Common, value: u32) {
        let mut state = self.state.lock();
        let interrupts = &self.shared.interrupts;
        match register {
            Common::DeviceFeatureSelect => state.device_feature_select = value,
            Common::DriverFeatureSelect => state.driver_feature_select = value,
            Common::DriverFeature if state.status & FEATURES_OK == 0 => {
                let select = state.driver_feature_select;
                set_half(&mut state.driver_features, select, value);
            }
            Common::ConfigVector => interrupts.set_vector(Source::Configuration, value as u16),
            Common::Status if value == 0 => self.reset(&mut state),
            Common::Status => self.advance(&mut state, value as u8),
            Common::QueueSelect => state.queue_select = value as u16,
            Common::QueueVector => {
                interrupts.set_vector(Source::Queue(state.queue_select), value as u16)
            }
            register => {
                let selected = usize::from(state.queue_select);
                if let Some(queue) = state.queues.get_mut(selected) {
                    queue.store(register, value);
                }
            }
        }
    }

    fn status(&self, state: &State) -> u8 {
        match self.shared.needs_reset.load(Ordering::Acquire) {
            true => state.status | NEEDS_RESET,
            false => state.status,
        }
    }

    /// Sets bits of the status for the driver, which can clear them only by a reset.
    fn advance(&self, state: &mut State, value: u8) {
        let mut new = value & DRIVER_STATUS & !state.status;
        if new & FEATURES_OK != 0 && !self.accepts(state.driver_features) {
            let features = state.driver_features;
            log::debug!("{}: features {features:#x} are not accepted", self.name);
            new &= !FEATURES_OK;
        }
        state.status |= new;
        if new & DRIVER_OK != 0 {
            self.begin(state);
        }
    }

    /// Returns whether a driver may choose `features`: they are offered, and include version 1.
    fn accepts(&self, features: u64) -> bool {
        features & !self.features == 0 && features & VERSION_1 != 0
    }

    fn begin(&self, state: &State) {
        if state.status & FEATURES_OK == 0 {
            log::debug!("{}: the driver begins without features", self.name);
            return self.shared.require_reset();
        }
        let rings = match self.rings(state) {
            Ok(rings) if rings.iter().all(Option::is_none) => return,
            Ok(rings) => rings,
            Err(e) => {
                log::debug!("{}: {e}", self.name);
                return self.shared.require_reset();
            }
        };
        match self.thread.begin(rings, state.driver_features) {
            true => self.shared.configuration.begin(&self.shared.interrupts),
            false => self.shared.require_reset(),
        }
    }

    /// Returns the ring of each queue; none for a queue that the driver has not enabled.
    fn rings(&self, state: &State) -> Result<Vec<Option<Ring>>, RingError> {
        let event_index = state.driver_features & EVENT_INDEX != 0;
        let memory = self.shared.ram.memory();
        let ring = |queue: &QueueState| {
            let make = || Ring::new(&queue.place, event_index, memory);
            queue.enabled.then(make).transpose()
        };
        state.queues.iter().map(ring).collect()
    }

    /// Resets the device for its driver. Afterwards the device touches no guest memory.
    fn reset(&self, state: &mut State) {
        if state.status & DRIVER_OK != 0 {
            self.thread.end();
        }
        *state = State::fresh(state.queues.len());
        self.shared.configuration.end();
        for kick in &self.kicks {
            let _ = kick.read(); // Fails unless a notification came too late.
        }
        self.shared.interrupts.reset();
        self.shared.needs_reset.store(false, Ordering::Release);
    }

    /// Carries out a store of `bytes` bytes at `offset` of the notifications.
    fn notify(&self, offset: u64, bytes: usize) -> AccessResult {
        let queue = offset / u64::from(NOTIFY_STRIDE);
        if !offset.is_multiple_of(NOTIFY_STRIDE.into()) || queue >= self.kicks.len() as u64 {
            return Err(Refusal::NoRegister);
        }
        if bytes != 2 {
            return Err(Refusal::BadSize);
        }
        match self.notifications.ring(queue as u32) {
            true => Ok("notify"),
            false => Err(Refusal::UnboundDoorbell),
        }
    }

    fn read_register(&self, offset: u64, into: &mut [u8]) -> AccessResult {
        let (structure, offset) = Structure::at(offset).ok_or(Refusal::NoRegister)?;
        match structure {
            Structure::Common => {
                let value = self.load(Common::at(offset, into.len())?);
                into.copy_from_slice(&value.to_le_bytes()[..into.len()]);
                Ok("common_configuration")
            }
            Structure::InterruptStatus => match (offset, into) {
                (0, [status]) => {
                    *status = self.shared.interrupts.take_status();
                    Ok("interrupt_status")
                }
                (0, _) => Err(Refusal::BadSize),
                _ => Err(Refusal::NoRegister),
            },
            Structure::Device => match self.shared.configuration.read(offset, into) {
                true => Ok("device_configuration"),
                false => Err(Refusal::NoRegister),
            },
            Structure::Notify => Err(Refusal::NoRegister),
            Structure::MsixTable => self.shared.interrupts.table().read(offset, into),
            Structure::MsixPending => self.shared.interrupts.table().read_pending(offset, into),
        }
    }

    fn write_register(&self, offset: u64, from: &[u8]) -> AccessResult {
        let (structure, offset) = Structure::at(offset).ok_or(Refusal::NoRegister)?;
        match structure {
            Structure::Common => {
                let register = Common::at(offset, from.len())?;
                let mut value = [0; 4];
                value[..from.len()].copy_from_slice(from);
                self.store(register, u32::from_le_bytes(value));
                Ok("common_configuration")
            }
            // Most notifications end in the hypervisor and do not come here.
            Structure::Notify => self.notify(offset, from.len()),
            Structure::MsixTable => self.shared.interrupts.table().write(offset, from),
            Structure::InterruptStatus | Structure::Device | Structure::MsixPending => {
                Err(Refusal::ReadOnly)
            }
        }
    }
}

impl QueueState {
    fn load(&self, register: Common) -> u32 {
        match register {
            Common::QueueSize => self.place.size.into(),
            Common::QueueEnable => self.enabled.into(),
            Common::QueueAddress(part, select) => half(self.place.parts[part as usize], select),
            _ => 0, // Not a register of a queue.
        }
    }

    /// Stores to a register. A queue stays as it is while it is in use (4.1.4.3.2).
    fn store(&mut self, register: Common, value: u32) {
        if self.enabled {
            return;
        }
        match register {
            Common::QueueSize => self.place.size = value as u16,
            Common::QueueEnable => self.enabled = value == 1,
            Common::QueueAddress(part, select) => {
                set_half(&mut self.place.parts[part as usize], select, value);
            }
            _ => {} // Read-only.
        }
    }
}

impl BusDevice for Transport {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        self.read_register(offset, into).into()
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        self.write_register(offset, from).into()
    }
}

/// Returns half `select` of a word: 0 is the low half, 1 the high half; zero for others.
fn half(word: u64, select: u32) -> u32 {
    match select {
        0 => word as u32,
        1 => (word >> 32) as u32,
        _ => 0,
    }
}

fn set_half(word: &mut u64, select: u32, value: u32) {
    let (mask, value) = (u64::from(u32::MAX), u64::from(value));
    match select {
        0 => *word = *word & !mask | value,
        1 => *word = *word & mask | value << 32,
        _ => {}
    }
}
