//! A device that is none, passed through to guests on KVM.

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_host_vfio::fake::{FakeHardware, FakeTranslation};
use causeway_host_vfio::{Container, Device, InterruptKind, RegionIndex, VfioDeviceFd};
use causeway_testdev::TestDevice;
use causeway_vmm::kvm::CallError;
use causeway_vmm::outcome::{VmOutcome, VmResult};
use causeway_vmm::passthrough::{DeviceSource, PassThroughError};
use causeway_vmm::vm::{Vm, VmError};
use support::{Guest, config, kvm, run_for, vm, with_test_device};

/// Where firmware puts the first BAR of 1 MiB below 4 GiB.
const BAR: u64 = 0xe040_0000;
const BAR_BYTES: u64 = 1 << 20;
/// Another place for it.
const ELSEWHERE: u64 = 0xf000_0000;
/// What selects a register of device 2, which is the first behind Causeway's own.
const DEVICE: u32 = 0x8000_1000;
/// Offset of the capability.
const MSI: u32 = 0x40;

#[derive(Debug)]
struct Source(Arc<FakeHardware>);

impl DeviceSource for Source {
    fn open(
        &self,
        _: &dyn Fn() -> io::Result<VfioDeviceFd>,
    ) -> Result<(Arc<Container>, Vec<Device>), PassThroughError> {
        let device = self.0.device("0000:00:03.0".parse().expect("an address"))?;
        Ok((
            Arc::new(FakeTranslation::default()).container(),
            vec![device],
        ))
    }
}

/// A device with a BAR of memory and one message.
fn hardware() -> Arc<FakeHardware> {
    let fake = FakeHardware::new().unwrap();
    let fake = fake.with_region(RegionIndex::Bar(0), BAR_BYTES).unwrap();
    let fake = fake.with_interrupts(InterruptKind::Msi, 1);
    let config = RegionIndex::Config;
    fake.poke(config, 0, &[0x34, 0x12, 0xe8, 0x11, 2, 0, 0x10, 0])
        .unwrap();
    fake.poke(config, 0x34, &[MSI as u8]).unwrap();
    fake.poke(config, MSI.into(), &[5, 0, 0x80, 0]).unwrap();
    Arc::new(fake)
}

/// A VM with the device; none where KVM has no interrupt chips.
fn passed(guest: &Guest, fake: &Arc<FakeHardware>, vcpus: u32) -> Option<(Vm, Arc<TestDevice>)> {
    let kvm = kvm()?;
    let mut config = config(guest.image());
    let device = with_test_device(&mut config);
    config.vcpus = vcpus;
    config.devices = Some(Arc::new(Source(Arc::clone(fake))));
    match vm(&kvm, &config) {
        Ok(vm) => Some((vm, device)),
        Err(VmError::Kvm(CallError {
            call: "KVM_CREATE_IRQCHIP",
            source,
        })) => {
            eprintln!("skipped: this KVM has no interrupt chips: {source}");
            None
        }
        Err(e) => panic!("no VM: {e}"),
    }
}

fn run(vm: Vm) -> VmOutcome {
    let outcomes = run_for(vec![vm], Duration::from_secs(30));
    outcomes.into_iter().next().expect("one VM, one outcome")
}

/// Selects a register of the device, and stores to it.
fn configure(guest: Guest, register: u32, value: u32) -> Guest {
    guest.out32(0xcf8, DEVICE | register).out32(0xcfc, value)
}

#[test]
fn a_mapped_bar_is_reached_without_exits_wherever_it_is() {
    let fake = hardware();
    fake.poke(RegionIndex::Bar(0), 8, &[0x78, 0x56, 0x34, 0x12])
        .unwrap();
    let guest = Guest::new()
        .begin("before")
        .store_loop(BAR, 100_000)
        .load32(BAR + 8)
        .end_keeping_eax()
        .expect_eax(0x1234_5678);
    let guest = configure(guest, 0x10, ELSEWHERE as u32)
        .load32(BAR + 8)
        .expect_eax(u32::MAX);
    let guest = guest
        .begin("after")
        .store_loop(ELSEWHERE + 0xf_fff8, 100_000)
        .load32(ELSEWHERE + 8)
        .end_keeping_eax()
        .expect_eax(0x1234_5678)
        .exit(0);
    let Some((vm, device)) = passed(&guest, &fake, 1) else {
        return;
    };
    let outcome = run(vm);
    assert_eq!(outcome.result, VmResult::Pass, "{outcome:?}");
    for phase in &device.report().phases {
        let mmio = phase.kvm_exits.get("mmio_exits").copied().unwrap_or(0);
        assert_eq!((mmio, phase.vmm_exits.len()), (0, 0), "{phase:?}");
    }
    let [report] = &outcome.devices[..] else {
        panic!("one device: {outcome:?}")
    };
    assert_eq!((report.moved_bars, report.trapped_reads), (1, 0));
    let mut last = [0; 8];
    fake.peek(RegionIndex::Bar(0), 0, &mut last).unwrap();
    assert_eq!(last, 1_u64.to_le_bytes(), "what the loop stored last");
    assert_eq!(
        (Arc::strong_count(&fake), fake.resets()),
        (1, 1),
        "given back"
    );
}

#[test]
fn a_message_reaches_the_local_controller_of_a_bare_guest() {
    let fake = hardware();
    let guest = configure(Guest::new(), MSI + 4, 0xfee0_0000);
    let guest = configure(guest, MSI + 12, 0x41);
    let guest = configure(guest, MSI, 0x0001_0000).begin("waiting");
    // Bits 0x40 to 0x5f of the interrupt request register. again: mov eax, [rbx]; test eax, eax; jz
    // again
    let guest = guest
        .point(0xfee0_0220)
        .raw(&[0x8b, 0x03, 0x85, 0xc0, 0x74, 0xfa]);
    let guest = guest.end_keeping_eax().expect_eax(1 << 1).exit(0);
    let Some((vm, device)) = passed(&guest, &fake, 1) else {
        return;
    };
    let ended = Arc::new(AtomicBool::new(false));
    let fires = std::thread::spawn({
        let (fake, ended) = (Arc::clone(&fake), Arc::clone(&ended));
        move || {
            while !ended.load(Ordering::Relaxed) {
                fake.fire(InterruptKind::Msi, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let outcome = run(vm);
    ended.store(true, Ordering::Relaxed);
    fires.join().unwrap();
    assert_eq!(outcome.result, VmResult::Pass, "{outcome:?}");
    // The controller is KVM's, and so is the way to it.
    let phase = &device.report().phases[0];
    assert!(phase.vmm_exits.is_empty(), "{outcome:?}");
    let report = &outcome.devices[0];
    assert_eq!(
        (report.interrupts.mode, report.interrupts.vectors),
        ("MSI", 1)
    );
}

#[test]
fn virtual_cpus_that_move_a_bar_under_others_harm_nobody_and_can_be_ended() {
    let fake = hardware();
    let guest = Guest::new()
        .on_vcpu(0, |guest| {
            // On top of RAM, of Causeway's own BAR, and of the controllers, among others.
            let places = [
                0x10_0000,
                ELSEWHERE as u32,
                0xe000_0000,
                0xfee0_0000,
                BAR as u32,
            ];
            let moved = places
                .into_iter()
                .fold(guest, |guest, at| configure(guest, 0x10, at));
            configure(configure(moved, 4, 0), 4, 6)
        })
        .on_vcpu(1, |guest| guest.store32(BAR, 1).load32(ELSEWHERE + 4))
        .on_vcpu(2, |guest| {
            guest.load32(0x10_0000).store32(ELSEWHERE, 2).load32(BAR)
        });
    let Some((vm, _)) = passed(&guest, &fake, 3) else {
        return;
    };
    let outcomes = run_for(vec![vm], Duration::from_secs(2));
    let outcome = &outcomes[0];
    assert_eq!(outcome.result, VmResult::Timeout, "{outcome:?}");
    assert!(outcome.devices[0].moved_bars > 0, "{outcome:?}");
    assert_eq!(Arc::strong_count(&fake), 1);
}

#[test]
fn a_device_that_is_wanted_back_ends_its_vm() {
    let fake = hardware();
    let Some((vm, _)) = passed(&Guest::new().forever(), &fake, 1) else {
        return;
    };
    let other = Arc::clone(&fake);
    let host = std::thread::spawn(move || {
        while !other.fire(InterruptKind::Request, 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let outcome = run(vm);
    host.join().unwrap();
    assert!(
        matches!(outcome.result, VmResult::DeviceWanted { .. }),
        "{outcome:?}"
    );
    assert!(outcome.result.to_string().contains("0000:00:03.0"));
    assert_eq!(outcome.devices[0].events, ["the host wants it back"]);
    assert_eq!(
        Arc::strong_count(&fake),
        1,
        "closed, which the host waits for"
    );
}
