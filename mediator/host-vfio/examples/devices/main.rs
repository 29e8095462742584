//! Drives the devices that QEMU emulates for such purposes (`edu`, `ivshmem-plain`), held through
//! VFIO, and says what it saw. To be run by hand, as root, in a machine with an IOMMU whose devices
//! are bound to vfio-pci:
//!
//!     devices ADDRESS...
//!
//! Two functions of one group are opened together. The last one must be resettable by sysfs, and is
//! unbound in the end.

use std::error::Error;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use causeway_host_vfio::{
    Address, Choice, Container, Device, DeviceEvent, Host, OpenError, PciFunction, RegionIndex,
    VfioDeviceFd,
};
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use kvm_bindings::{kvm_create_device, kvm_device_type_KVM_DEV_TYPE_VFIO as VFIO};
use kvm_ioctls::{Kvm, VmFd};

mod edu;
mod touch;

use edu::{Edu, Outcome};
use touch::Touch;

const EDU: (u16, u16) = (0x1234, 0x11e8);
const IVSHMEM: (u16, u16) = (0x1af4, 0x1110);
/// Where memory is mapped for DMA; the device has 28 address bits.
const IOVA: u64 = 0x10_0000;
const DMA_BYTES: u64 = 64 << 10;

fn main() -> ExitCode {
    show_log();
    let host = Host::default();
    let mut failed = false;
    let mut step = |what: &str, outcome: Outcome| match outcome {
        Ok(()) => println!("ok: {what}"),
        Err(e) => {
            failed = true;
            println!("FAILED: {what}: {}", chain(&*e));
        }
    };
    let addresses: Vec<Address> = match std::env::args().skip(1).map(|a| a.parse()).collect() {
        Ok(addresses) => addresses,
        Err(e) => {
            println!("{e}");
            return ExitCode::FAILURE;
        }
    };
    for address in &addresses {
        if let Err(e) = host.preflight(*address, DMA_BYTES) {
            println!("in the way: {e}");
        }
        match host.function(*address) {
            Ok(Some(function)) => step(&function.to_string(), drive(&host, &function)),
            other => println!("{address}: {other:?}"),
        }
    }
    step("functions of one group", group(&host, &addresses));
    if let Some(last) = addresses.last() {
        step("asked back and reset", watched(&host, *last));
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Shows the crate's log on standard output.
fn show_log() {
    struct Printed;
    impl log::Log for Printed {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            println!("log: {}: {}", record.level(), record.args());
        }
        fn flush(&self) {}
    }
    if log::set_logger(&Printed).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A container, with a virtual machine that is told of the devices where there is KVM.
fn container(
    host: &Host,
    devices: &[Address],
) -> Result<(Arc<Container>, Option<VmFd>), Box<dyn Error>> {
    let vm = Kvm::new().and_then(|kvm| kvm.create_vm()).ok();
    let mut request = kvm_create_device {
        type_: VFIO,
        ..Default::default()
    };
    let kvm = vm
        .as_ref()
        .map(|vm| vm.create_device(&mut request))
        .transpose()?;
    let kvm = kvm.map(|device| Arc::new(VfioDeviceFd::new_from_kvm(device)));
    println!("   with KVM: {}", kvm.is_some());
    let container = Container::new(host, Choice::Automatic, devices, kvm)?;
    println!("   by {}", container.kind());
    Ok((container, vm))
}

fn drive(host: &Host, function: &PciFunction) -> Outcome {
    let (container, _vm) = container(host, &[function.address])?;
    let device = Device::open(&container, function.address)?;
    for region in device.regions() {
        println!(
            "   {}: {:#x} bytes, mappable {:?}",
            region.index, region.bytes, region.mappable
        );
    }
    for kind in causeway_host_vfio::InterruptKind::ALL {
        println!("   {:?}", device.interrupts(kind));
    }
    match Device::open(&container, function.address) {
        Err(e @ OpenError::Twice { .. }) => println!("   {e}"),
        other => return Err(format!("opened twice: {other:?}").into()),
    }
    let mut word = [0; 4];
    println!(
        "   {}",
        device
            .read(RegionIndex::Config, 0x10000, &mut word)
            .unwrap_err()
    );
    let outcome = match (function.vendor, function.device) {
        EDU => drive_edu(&container, device),
        IVSHMEM => drive_ivshmem(&device),
        _ => Ok(()),
    };
    println!("   {:?}", container.statistics());
    outcome
}

fn check(what: &str, holds: bool) -> Outcome {
    println!("   {what}: {}", if holds { "yes" } else { "NO" });
    if holds { Ok(()) } else { Err(what.into()) }
}

fn drive_edu(container: &Arc<Container>, device: Device) -> Outcome {
    let edu = Edu::new(device)?;
    println!("   identity {:#x}", edu.identity()?);
    let ten = edu.factorial(10)?;
    check("10! is 3628800", ten == 3_628_800)?;
    edu.device
        .write(edu::BAR, edu::LIVENESS, &7_u32.to_le_bytes())?;
    check(
        "it inverts",
        edu.device.read_u32(edu::BAR, edu::LIVENESS)? == !7,
    )?;
    edu.device.set_bus_mastering(true)?;
    edu.message(20)?;
    check("20 messages came", true)?;
    edu.pin(20)?;
    check("20 pulses of the pin came", true)?;
    dma(container, &edu)?;
    println!("   {:?}", edu.device.statistics());
    Ok(())
}

/// Both ways, then outside of what is mapped.
fn dma(container: &Arc<Container>, edu: &Edu) -> Outcome {
    let memory = Arc::new(SharedMemory::new("dma", DMA_BYTES, PageSize::Small)?);
    let own = memory.map(0, DMA_BYTES, Access::ReadWrite)?;
    container.map_dma(IOVA, &memory, 0, DMA_BYTES, Access::ReadWrite)?;
    let pattern: Vec<u8> = (0..edu::OWN_BYTES)
        .map(|i| (i * 7 + i / 256) as u8)
        .collect();
    own.write(0x2000, &pattern)?;
    edu.fetch(IOVA + 0x2000)?;
    edu.store(IOVA + 0x9000)?;
    let mut seen = vec![0; pattern.len()];
    own.read(0x9000, &mut seen)?;
    check("a pattern went to the device and back", seen == pattern)?;
    // The IOMMU aborts it: what is fetched is not memory, and the next transfer works.
    edu.fetch(IOVA + DMA_BYTES)?;
    edu.store(IOVA + 0x4000)?;
    own.read(0x4000, &mut seen)?;
    check("what is not mapped is not fetched", seen != pattern)?;
    container.unmap_all_dma()?;
    own.write(0x9000, &pattern)?;
    edu.store(IOVA + 0x9000)?;
    own.read(0x9000, &mut seen)?;
    check("what was unmapped is not stored to", seen == pattern)?;
    container.map_dma(IOVA, &memory, 0x2000, 4096, Access::Read)?;
    edu.fetch(IOVA)?;
    edu.store(IOVA)?;
    container.map_dma(IOVA + 0x1000, &memory, 0, 4096, Access::ReadWrite)?;
    own.write(0, &[0; 4096])?;
    edu.store(IOVA + 0x1000)?;
    own.read(0, &mut seen)?;
    check("what is mapped for reading is fetched", seen == pattern)
}

fn drive_ivshmem(device: &Device) -> Outcome {
    let index = RegionIndex::Bar(2);
    let bytes = device.region(index).ok_or("no BAR 2")?.bytes;
    let mapping = device.map(index, 0, bytes)?;
    let pattern: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    mapping.copy_in(4096, &pattern)?;
    let mut seen = vec![0; pattern.len()];
    let other = device.map(index, 4096, 1 << 20)?;
    other.copy_out(0, &mut seen)?;
    check(
        "what is written by one mapping is read by another",
        seen == pattern,
    )?;
    mapping.fill(0, bytes, 0)?;
    check(
        "filled",
        mapping.load_u64(bytes - 8)? == 0 && other.load_u64(8)? == 0,
    )?;
    let outcome = mapping.store_u32(bytes, 0);
    check("beyond the end is refused", outcome.is_err())
}

/// Opens functions of one group together, closes one, uses the other, and begins anew.
fn group(host: &Host, addresses: &[Address]) -> Outcome {
    let group_of = |address: &Address| host.function(*address).ok().flatten()?.group;
    let find = |first: &Address| {
        let others = addresses.iter().filter(|a| *a != first);
        let second = others.into_iter().find(|a| group_of(a) == group_of(first));
        second.map(|second| (*first, *second))
    };
    let Some((first, second)) = addresses.iter().find_map(find) else {
        println!("   there are no two in one group");
        return Ok(());
    };
    for round in 0..2 {
        let (container, _vm) = container(host, &[first, second])?;
        let one = Device::open(&container, first)?;
        println!("   alone: {:?}", one.reset());
        let two = Edu::new(Device::open(&container, second)?)?;
        println!(
            "   {:?} and {:?}, companions {:?}",
            first,
            second,
            one.companions().len()
        );
        println!("   together: {:?}", one.reset());
        drop(one);
        check("the other one works", two.factorial(5)? == 120)?;
        if round == 1 {
            let again = Device::open(&container, first)?;
            drop(two);
            check(
                "opened again",
                again.read_u16(RegionIndex::Config, 0)? == EDU.0,
            )?;
        }
    }
    Ok(())
}

fn watched(host: &Host, address: Address) -> Outcome {
    let (container, vm) = container(host, &[address])?;
    let device = Device::open(&container, address)?;
    let watch = device.watch()?;
    device.reset()?;
    check("a reset of our own is not told of", watch.take().is_empty())?;
    fs::write(host.folder(address).join("reset"), "1")?;
    edu::wait(&watch.as_fd().as_raw_fd())?;
    check("told of the reset", watch.take() == [DeviceEvent::Reset])?;
    let unbind = host.folder(address).join("driver/unbind");
    // Returns when the device is closed.
    let asking = thread::spawn(move || fs::write(unbind, address.to_string()));
    edu::wait(&watch.as_fd().as_raw_fd())?;
    check("asked back", watch.take() == [DeviceEvent::AskedBack])?;
    check(
        "still held",
        device.read_u16(RegionIndex::Config, 0)? == EDU.0,
    )?;
    drop(device);
    asking.join().map_err(|_| "the thread ended badly")??;
    let function = host.function(address)?.ok_or("it is gone")?;
    check("given back", function.driver.is_none())?;
    println!("   {}", host.preflight(address, 0).unwrap_err());
    drop((container, vm));
    Ok(())
}
