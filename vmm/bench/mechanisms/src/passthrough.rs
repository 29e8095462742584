//! A host device that the guest has for itself, and whose memory the host maps once more, to
//! compare with.
#![allow(unsafe_code, reason = "hand-written loops over memory of a device")]

use std::io;
use std::sync::Arc;

use causeway_bench_workloads::measurement_plan::Effort;
use causeway_bench_workloads::{
    Cell, DeviceMemory, Kernel, Mechanism, Shape, host_bytes, measure, time_singles,
};
use causeway_host_vfio::{
    Address, Choice, Container, ContainerError, Decoding, Device, Host, MapError, Mapping,
    OpenError, PreflightError, RegionIndex, TouchError, VfioDeviceFd,
};
use causeway_kernels::loops;
use causeway_vfio_backend::{BarError, choose_bar};
use causeway_vmm::passthrough::{DeviceSource, HostDevices, PassThroughError};
use parking_lot::Mutex;

use crate::native::{NativeTime, Watch, clock};

/// Returns the most memory of a device that is used, in bytes: the size of the largest copy.
fn bytes_max() -> u64 {
    host_bytes(Effort::Full) as u64
}

/// Values that are stored to find out whether they stay.
const PROBES: [u64; 2] = [0x5aa5_9669_0ff0_3cc3, 0];

/// Why a PCI device cannot be passed through and measured.
#[derive(Debug, thiserror::Error)]
pub enum PassedDeviceError {
    /// The device is not ready to be passed through, for example because of its driver.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// VFIO or iommufd cannot be opened.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// None of the device's BARs is memory that can be mapped.
    #[error(transparent)]
    Bar(#[from] BarError),
    /// The device's memory cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The device's memory cannot be written or read.
    #[error("cannot read or write the memory of the --vfio device that the benchmark measures")]
    Touch(#[from] TouchError),
    /// A BAR does not return the values that were stored to it, so it is not memory.
    #[error(
        "BAR {bar} of device {address} does not return the values that were stored to it, so it is \
         not memory: choose another device"
    )]
    Forgets {
        /// PCI address of the device.
        address: Address,
        /// Number of the BAR.
        bar: u8,
    },
}

/// A PCI device that is passed through to the guest, and whose memory the workloads access. They
/// overwrite the content of that memory.
#[derive(Debug)]
pub struct PassthroughDevice {
    source: HostDevices,
    memory: DeviceMemory,
    mapped: Mutex<Option<Mapped>>,
}

/// The memory, while the guest has the device.
#[derive(Debug)]
struct Mapped {
    mapping: Mapping,
    decoding: Decoding,
}

impl PassthroughDevice {
    /// Opens the device at `address` of `host`, finds memory of the device that can be measured,
    /// and releases the device again. `ram_bytes` is the RAM of the VM to which the device will be
    /// passed through; this process must be able to lock that much RAM.
    ///
    /// # Errors
    /// [`PassedDeviceError`]: `Preflight` if the device is not ready to be passed through or the
    /// RAM cannot be locked, `Container` or `Open` if the device cannot be opened, `Bar` if none of
    /// its BARs is memory, `Map` or `Touch` if that memory cannot be accessed, `Forgets` if it does
    /// not keep the values stored to it.
    pub fn probe(host: Host, address: Address, ram_bytes: u64) -> Result<Self, PassedDeviceError> {
        let function = host.preflight(address, ram_bytes)?;
        let container = Container::new(&host, Choice::default(), &[address], None)?;
        let device = Device::open(&container, address)?;
        let memory = memory_of(&device, (function.vendor, function.device))?;
        let source = HostDevices {
            host,
            choice: Choice::default(),
            addresses: vec![address],
        };
        Ok(Self {
            source,
            memory,
            mapped: Mutex::default(),
        })
    }

    /// Returns which part of the device's memory is measured. The plan of the benchmark contains
    /// this value.
    pub fn memory(&self) -> DeviceMemory {
        self.memory
    }

    /// Unmaps the device's memory from this process, so that the device can be released.
    pub fn let_go(&self) {
        self.mapped.lock().take();
    }

    /// Takes one sample of `cell` by the host on the device's memory, with the buffer `host` in the
    /// host's own memory. Returns `None` if no guest has the device, or if the guest has turned off
    /// the device's memory: an access would then end this process.
    ///
    /// The caller is the thread of the guest's only virtual CPU, so the guest cannot turn off the
    /// memory during the sample.
    pub(crate) fn measure(&self, cell: &Cell, host: &mut [u8]) -> Option<NativeTime> {
        let mapped = self.mapped.lock();
        let mapped = mapped.as_ref().filter(|mapped| mapped.decoding.is_on())?;
        let mut watch = Watch::default();
        let mut bar = NativeBar {
            mapping: &mapped.mapping,
        };
        measure(&mut bar, cell, host, &mut watch);
        Some(watch.taken)
    }

    /// Times single operations of `cell` on the device's memory into `times`, in nanoseconds, and
    /// returns how many; fewer if they would take longer than `budget_ns`. Returns `None` as
    /// [`Self::measure`].
    pub(crate) fn time_singles(
        &self,
        cell: &Cell,
        host: &mut [u8],
        times: &mut [u64],
        budget_ns: u64,
    ) -> Option<usize> {
        let mapped = self.mapped.lock();
        let mapped = mapped.as_ref().filter(|mapped| mapped.decoding.is_on())?;
        let mut bar = NativeBar {
            mapping: &mapped.mapping,
        };
        Some(time_singles(
            &mut bar,
            cell,
            host,
            (times, budget_ns),
            clock(),
        ))
    }

    fn map(&self, device: &Device) -> Result<(), MapError> {
        let DeviceMemory {
            bar, offset, bytes, ..
        } = self.memory;
        let mapping = device.map(RegionIndex::Bar(bar), offset, bytes)?;
        // A device without configuration space would not have been opened.
        *self.mapped.lock() = device
            .decoding()
            .map(|decoding| Mapped { mapping, decoding });
        Ok(())
    }
}

impl DeviceSource for PassthroughDevice {
    fn open(
        &self,
        kvm: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError> {
        let (container, devices) = self.source.open(kvm)?;
        devices.iter().try_for_each(|device| self.map(device))?;
        Ok((container, devices))
    }
}

/// Returns the largest range of a device's memory, if what is stored there stays.
fn memory_of(device: &Device, (vendor, id): (u16, u16)) -> Result<DeviceMemory, PassedDeviceError> {
    let address = device.address();
    let (bar, areas) = choose_bar(device, None)?;
    let largest = areas.into_iter().max_by_key(|area| area.bytes);
    let (offset, bytes) = largest.map_or((0, 0), |area| (area.offset, area.bytes.min(bytes_max())));
    let mapping = device.map(RegionIndex::Bar(bar), offset, bytes)?;
    for value in PROBES {
        let ends = [0, bytes - 8];
        for at in ends {
            mapping.store_u64(at, value ^ at)?;
        }
        for at in ends {
            if mapping.load_u64(at)? != value ^ at {
                return Err(PassedDeviceError::Forgets { address, bar });
            }
        }
    }
    Ok(DeviceMemory {
        vendor,
        device: id,
        bar,
        offset,
        bytes,
    })
}

/// The host's own use of the memory. There is one allocation at a time: all of it.
struct NativeBar<'m> {
    mapping: &'m Mapping,
}

impl NativeBar<'_> {
    /// Returns the first byte of a part.
    fn part(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        let size = self.mapping.bytes();
        assert!(
            end.is_some_and(|end| end as u64 <= size),
            "beyond the device's memory"
        );
        self.mapping.as_ptr().as_ptr().wrapping_add(offset)
    }
}

impl Mechanism for NativeBar<'_> {
    type Memory = ();

    fn allocate(&mut self, bytes: usize) {
        self.part(0, bytes);
    }

    fn free(&mut self, (): ()) {}

    fn address(&self, (): &()) -> u64 {
        0
    }

    fn store_words(&mut self, (): &(), words: usize, passes: u32) {
        let part = self.part(0, 8 * words);
        // SAFETY: the part is within the mapping, which is writable, begins at a page, and is
        // referred to by nobody.
        unsafe { loops::store(part.cast(), words, passes) };
    }

    fn load_words(&mut self, (): &(), words: usize, passes: u32) -> u64 {
        let part = self.part(0, 8 * words);
        // SAFETY: as for stores.
        unsafe { loops::load(part.cast(), words, passes) }
    }

    fn copy_in(&mut self, (): &(), offset: usize, from: &[u8]) {
        let part = self.part(offset, from.len());
        // SAFETY: as for stores; `from` is no part of the mapping, to which no references exist.
        unsafe { loops::copy_words(part, from.as_ptr(), from.len() / 8) };
    }

    fn copy_out(&mut self, (): &(), offset: usize, into: &mut [u8]) {
        let part = self.part(offset, into.len());
        // SAFETY: as for the other direction.
        unsafe { loops::copy_words(into.as_mut_ptr(), part, into.len() / 8) };
    }

    fn launch(&mut self, kernel: Kernel, _: Shape, _: &[u64]) {
        unreachable!("no plan has launches of {} by a device", kernel.name())
    }

    fn synchronize(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_bench_workloads::measurement_plan::Plan;
    use causeway_bench_workloads::{MechanismKind, WORKLOADS};
    use causeway_host_vfio::fake::FakeHardware;

    const BYTES: u64 = 1 << 20;
    /// Base address register 2 in configuration space, and what it says: memory of which reads have
    /// no side effects.
    const BAR_2: u64 = 0x18;
    const PREFETCHABLE: u32 = 1 << 3;

    fn device(flags: u32) -> Device {
        let fake = FakeHardware::new().unwrap();
        let fake = fake.with_region(RegionIndex::Bar(2), BYTES).unwrap();
        let device = Arc::new(fake).device("00:03.0".parse().unwrap()).unwrap();
        let config = RegionIndex::Config;
        device.write(config, BAR_2, &flags.to_le_bytes()).unwrap();
        device
    }

    fn passed(device: &Device) -> PassthroughDevice {
        PassthroughDevice {
            source: HostDevices {
                host: Host::at("/nonexistent"),
                choice: Choice::default(),
                addresses: vec![device.address()],
            },
            memory: memory_of(device, (0x1af4, 0x1110)).unwrap(),
            mapped: Mutex::default(),
        }
    }

    #[test]
    fn memory_is_what_is_prefetchable_and_keeps_what_is_stored() {
        let memory = memory_of(&device(PREFETCHABLE), (0x1af4, 0x1110)).unwrap();
        assert_eq!(memory.to_string(), "1af4:1110:2:0:1048576");
        let registers = memory_of(&device(0), (1, 2)).unwrap_err();
        assert!(matches!(
            registers,
            PassedDeviceError::Bar(BarError::NoMemory { .. })
        ));
    }

    #[test]
    fn the_host_does_every_cell_of_the_device_while_it_answers() {
        let device = device(PREFETCHABLE);
        let passed = passed(&device);
        let plan = Plan::all(Effort::Quick, 1)
            .with_device(Some(passed.memory()))
            .of_mechanisms(&[MechanismKind::NativeBar]);
        let mut host = vec![0; BYTES as usize];
        let cells: Vec<_> = plan.cells().collect();
        assert!(passed.measure(&cells[0], &mut host).is_none(), "no guest");
        passed.map(&device).unwrap();
        let measured = passed.measure(&cells[0], &mut host);
        assert!(measured.is_none(), "the device does not answer");
        device.set_memory_decoding(true).unwrap();
        let kinds = cells.iter().map(|cell| cell.workload.name());
        let kinds: std::collections::BTreeSet<_> = kinds.collect();
        let data = ["copy-in", "copy-out", "load", "store"];
        assert!(kinds.iter().eq(&data), "{kinds:?} of {}", WORKLOADS.len());
        for cell in &cells {
            let time = passed.measure(cell, &mut host).unwrap();
            assert!(time.elapsed.as_nanos() > 0);
        }
        passed.let_go();
        assert!(passed.measure(&cells[0], &mut host).is_none());
    }
}
