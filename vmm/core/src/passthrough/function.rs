//! A passed-through device as a function on the guest's PCI bus.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_host_vfio::{Device, InterruptKind, RegionIndex};
use parking_lot::Mutex;

use super::bar_device::{AccessCounters, BarDevice, name};
use super::bars::{self, BarPlan};
use super::capabilities::{self, Capabilities};
use super::devices::Surroundings;
use super::failure_counter::FailureCounter;
use super::filter::Filter;
use super::filter::Owner::{Fixed, Guest};
use super::header::{self, HEADER};
use super::interrupts::Interrupts;
use super::report::{BarReport, DeviceReport, InterruptReport, MappedRange};
use super::slots::BarSlots;
use super::source::PassThroughError;
use crate::interrupts::pci_line;
use crate::pci::{COMMAND_MEMORY, ConfigAccess, Decoders};

/// INTA#: whatever the device has, this is the pin that the guest's routing knows.
const PIN: u8 = 1;

/// A passed-through device as a function on the guest's PCI bus. After [`Self::release`] the guest
/// sees it as unplugged: loads return all-ones.
pub struct PassthroughFunction {
    live: Mutex<Option<Live>>,
    counters: Arc<AccessCounters>,
    failures: Arc<FailureCounter>,
}

/// Order of dropping: slots and bus first, then interrupts, then the device.
struct Live {
    filter: Filter,
    decoders: Decoders,
    bars: Vec<Bar>,
    interrupts: Arc<Interrupts>,
    /// What does not change about the device.
    identity: DeviceReport,
    device: Arc<Device>,
}

/// A BAR, and the slots over it.
struct Bar {
    plan: BarPlan,
    slots: Arc<BarSlots>,
}

impl PassthroughFunction {
    /// Returns `device` as a PCI function that has device number `number` on the guest's bus 0. Its
    /// BARs have addresses already, as firmware would leave them. `index` is the device's number,
    /// from 0, among the VM's passed-through devices.
    ///
    /// # Errors
    /// [`PassThroughError::Access`] if the device's configuration space cannot be read, `Room`,
    /// `Map` or `Decode` if its BARs do not fit into the guest, `Interrupts` if no interrupts are
    /// left.
    pub fn new(
        device: Device,
        number: u8,
        index: usize,
        at: &mut Surroundings<'_>,
    ) -> Result<Self, PassThroughError> {
        let (counters, failures) = (Arc::default(), Arc::default());
        let (mut live, capabilities) = Live::new(Arc::new(device), number, &failures, at)?;
        live.add_bars(&capabilities, at, |live, bar| BarDevice {
            name: name(index),
            index: bar,
            device: Arc::clone(&live.device),
            msix: capabilities.msix,
            interrupts: Arc::clone(&live.interrupts),
            counters: Arc::clone(&counters),
            failures: Arc::clone(&failures),
        })?;
        // A function that nobody has configured asserts its pin, if it has one.
        live.interrupts.configure(live.filter.space());
        Ok(Self {
            live: Mutex::new(Some(live)),
            counters,
            failures,
        })
    }

    /// Takes the device away from the guest: deletes its memory slots, disables its interrupts and
    /// closes it. Returns the report on the device; `None` if this was called before.
    ///
    /// The caller must have stopped all virtual CPUs.
    pub fn release(&self) -> Option<DeviceReport> {
        let live = self.live.lock().take()?;
        let report = self.report(&live);
        live.interrupts.shut_down();
        Some(report)
    }

    fn report(&self, live: &Live) -> DeviceReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let used = live.interrupts.used();
        DeviceReport {
            bars: live.bars.iter().map(Bar::report).collect(),
            interrupts: InterruptReport {
                mode: used.mode.into(),
                vectors: used.vectors,
                changes: used.changes,
            },
            config_reads: load(&self.counters.config_reads),
            config_writes: load(&self.counters.config_writes),
            trapped_reads: load(&self.counters.reads),
            trapped_writes: load(&self.counters.writes),
            moved_bars: live.bars.iter().map(|bar| bar.slots.moves()).sum(),
            failures: self.failures.count(),
            resets: live.device.statistics().resets,
            ..live.identity.clone()
        }
    }
}

/// Gives the function an interrupt pin, if VFIO can signal it. Returns the GSI of the pin's line.
fn add_pin(filter: &mut Filter, device: &Device, number: u8) -> Option<u32> {
    let pin = device.interrupts(InterruptKind::Intx);
    let line = (pin.count != 0 && pin.eventfd).then(|| pci_line(number, PIN));
    // Firmware's word for the line is its GSI; 255 says that there is none.
    let noted = line.and_then(|gsi| u8::try_from(gsi).ok());
    let shown = line.map_or(0, |_| u16::from(PIN) << 8);
    filter.own(
        header::INTERRUPT,
        0x00ff,
        Guest(noted.unwrap_or(0xff).into()),
    );
    filter.own(header::INTERRUPT, 0xff00, Fixed(shown));
    line
}

impl Live {
    /// Returns a function without BARs, of which no interrupt is enabled.
    fn new(
        device: Arc<Device>,
        number: u8,
        failures: &Arc<FailureCounter>,
        at: &Surroundings<'_>,
    ) -> Result<(Self, Capabilities), PassThroughError> {
        let mut filter = Filter::new(&HEADER);
        let capabilities = capabilities::add(&mut filter, &device)?;
        let line = add_pin(&mut filter, &device, number);
        let interrupts = Interrupts::new(
            Arc::clone(&device),
            at.controller,
            line,
            &capabilities,
            Arc::clone(failures),
        );
        let live = Self {
            filter,
            decoders: Decoders::new(Arc::clone(at.bus), at.address_end),
            bars: Vec::new(),
            interrupts: Arc::new(interrupts.map_err(PassThroughError::Interrupts)?),
            identity: identity(&device)?,
            device,
        };
        Ok((live, capabilities))
    }

    /// Adds the device's memory BARs, at free addresses, and maps them for the guest.
    fn add_bars(
        &mut self,
        capabilities: &Capabilities,
        at: &mut Surroundings<'_>,
        device: impl Fn(&Self, u8) -> BarDevice,
    ) -> Result<(), PassThroughError> {
        let plans = bars::plan(&self.device)?;
        let places =
            bars::place(&plans, at.low, at.high).map_err(|bar| PassThroughError::Room {
                address: self.device.address(),
                bar: bar.index,
                bytes: bar.bytes,
            })?;
        for (plan, place) in plans.into_iter().zip(places) {
            let areas = bars::mapped(&plan.region, capabilities.msix.as_ref());
            let slots = BarSlots::new(at.slots, at.numbers, &self.device, &plan.region, &areas)?;
            let slots = Arc::new(slots);
            self.filter.space_mut().add_bar(plan.register, place);
            let follow = Arc::clone(&slots);
            let bar = Arc::new(device(self, plan.register.index as u8));
            let follow = Box::new(move |base| follow.relocate(base));
            self.decoders.add(plan.register, bar, follow);
            self.bars.push(Bar { plan, slots });
        }
        self.filter.space_mut().set_command(COMMAND_MEMORY);
        self.decoders.settle_first(self.filter.space())?;
        Ok(())
    }
}

impl Bar {
    fn report(&self) -> BarReport {
        let areas = self.slots.areas();
        let mapped: u64 = areas.iter().map(|area| area.bytes).sum();
        let register = self.plan.register;
        BarReport {
            bar: register.index,
            bytes: register.bytes,
            wide: register.wide,
            prefetchable: register.prefetchable,
            address: self.slots.base(),
            mapped: areas
                .iter()
                .map(|area| MappedRange {
                    offset: area.offset,
                    bytes: area.bytes,
                })
                .collect(),
            mapped_bytes: mapped,
            trapped_bytes: self.plan.region.bytes.saturating_sub(mapped),
        }
    }
}

impl ConfigAccess for PassthroughFunction {
    fn read_config(&self, offset: u8, into: &mut [u8]) {
        AccessCounters::add(&self.counters.config_reads);
        let mut live = self.live.lock();
        let Some(live) = &mut *live else {
            return into.fill(0xff);
        };
        if let Some((at, bits)) = live.interrupts.msi_pending() {
            let at = usize::from(at);
            let space = live.filter.space_mut();
            space.define_u16(at, 0xffff, bits as u16, false);
            space.define_u16(at + 2, 0xffff, (bits >> 16) as u16, false);
        }
        if let Err(e) = live.filter.read(&live.device, offset, into) {
            self.failures.add(&e);
        }
    }

    fn write_config(&self, offset: u8, from: &[u8]) {
        AccessCounters::add(&self.counters.config_writes);
        let mut live = self.live.lock();
        let Some(live) = &mut *live else { return };
        if let Err(e) = live.filter.write(&live.device, offset, from) {
            self.failures.add(&e);
        }
        live.decoders.settle(live.filter.space());
        live.interrupts.configure(live.filter.space());
    }
}

/// Returns what the report says about the identity of `device`, with all else empty.
fn identity(device: &Device) -> Result<DeviceReport, PassThroughError> {
    let config = RegionIndex::Config;
    let [vendor, id] = [0, 2].map(|offset| device.read_u16(config, offset));
    let class = device.read_u32(config, 8)? >> 8;
    let companions = device.companions().iter();
    Ok(DeviceReport {
        address: device.address().to_string(),
        id: format!("{:04x}:{:04x}", vendor?, id?),
        class: format!("{class:06x}"),
        companions: companions.map(|f| f.address.to_string()).collect(),
        ..DeviceReport::default()
    })
}
