//! From the first reset to the last.

use std::sync::Arc;

use causeway_host_vfio::{DeviceEvent, InterruptKind};
use causeway_protocol::Access;

use super::rig::*;

#[test]
fn guest_memory_is_the_devices_while_it_is_the_guests() {
    let mut rig = Rig::new();
    let mapped = rig.translation.mapped();
    let [(iova, _, bytes, access)] = mapped[..] else {
        panic!("one region of RAM: {mapped:?}")
    };
    assert_eq!((iova, bytes, access), (0, RAM_BYTES, Access::ReadWrite));
    rig.store(4, &[6, 0]);
    rig.passed.release();
    assert!(rig.translation.mapped().is_empty());
    assert_eq!(rig.own(4), [2, 0], "its DMA is off");
    assert_eq!(rig.fake.resets(), 1);
    assert!(rig.slots().is_empty());
    assert!(rig.fake.vectors(InterruptKind::Intx).is_empty());
    let books = rig.chips.books();
    assert!(books.messages.is_empty() && books.connected.is_empty());
}

#[test]
fn a_device_that_was_given_back_is_held_by_nobody_and_reads_ones() {
    let mut rig = Rig::new();
    let bar = rig.bar(5);
    rig.passed.release();
    assert_eq!(Arc::strong_count(&rig.fake), 1, "closed");
    assert_eq!(rig.config(0), [0xff; 4]);
    rig.store(4, &[6, 0]);
    assert!(rig.load::<4>(bar).1.result.is_err());
    assert_eq!(rig.fake.resets(), 1);
}

#[test]
fn what_others_do_to_it_is_told_and_reported() {
    let mut rig = Rig::new();
    assert_eq!(rig.passed.watched().count(), 1);
    assert!(rig.passed.take_events(0).unwrap().1.is_empty());
    assert!(rig.fake.fire(InterruptKind::Request, 0));
    let (address, events) = rig.passed.take_events(0).unwrap();
    assert_eq!(address.to_string(), ADDRESS);
    assert_eq!(events, [DeviceEvent::AskedBack]);
    assert!(rig.passed.take_events(1).is_none());
    rig.passed.release();
    assert!(rig.passed.take_events(0).is_none());
    assert_eq!(rig.passed.reports()[0].events, ["the host wants it back"]);
}

#[test]
fn the_report_says_what_it_was_and_what_it_cost() {
    let mut rig = Rig::new();
    rig.store(0x10, &0xf000_0000_u32.to_le_bytes());
    let five = rig.bar(5);
    assert!(rig.load::<4>(five).1.result.is_ok() && rig.put(five, &[1]).result.is_ok());
    let reads = 1;
    rig.passed.release();
    let [report] = rig.passed.reports() else {
        panic!("one device")
    };
    assert_eq!(
        (&*report.address, &*report.id, &*report.class),
        (ADDRESS, "1234:11e8", "00ff00")
    );
    assert_eq!(report.held_by, "group and type-1 container");
    assert_eq!((report.config_reads, report.config_writes), (reads, 1));
    assert_eq!((report.trapped_reads, report.trapped_writes), (1, 1));
    assert_eq!((report.moved_bars, report.dma_bytes), (1, RAM_BYTES));
    let bars = report.bars.iter();
    let bars: Vec<_> = bars
        .map(|bar| (bar.bar, bar.mapped_bytes, bar.trapped_bytes))
        .collect();
    let expected = [
        (0, BAR0_BYTES, 0),
        (2, BAR2_BYTES - 0x2000, 0x2000),
        (5, 0, BAR5_BYTES),
    ];
    assert_eq!(bars, expected);
    assert_eq!(report.bars[0].address, Some(0xf000_0000));
    assert_eq!(
        (report.interrupts.mode, report.interrupts.vectors),
        ("INTx", 1)
    );
}

#[test]
fn memory_that_the_devices_cannot_have_is_an_error_and_they_are_given_back() {
    use causeway_host_vfio::fake::FakeTranslation;
    let (fake, translation) = (Arc::new(hardware()), Arc::<FakeTranslation>::default());
    translation.refuse(Some(libc::ENOMEM));
    let source = Source {
        hardware: vec![Arc::clone(&fake)],
        translation,
    };
    let error = refused(&source);
    assert!(
        error.contains("cannot map the guest's memory") && error.contains("device address 0x0"),
        "{error}"
    );
    drop(source);
    assert_eq!((Arc::strong_count(&fake), fake.resets()), (1, 1));
}

fn refused(source: &Source) -> String {
    use crate::bus::MmioBus;
    use crate::hypervisor::{MemorySlots, fake::Fake};
    use crate::interrupts::fake::FakeChips;
    use crate::memory::GuestRam;
    use crate::passthrough::{PassthroughDevices, SlotNumbers, Surroundings};
    use crate::pci::{Devices, Layout};
    let layout = Layout::new(40, RAM_BYTES, 1 << 30).unwrap();
    let slots: Arc<dyn MemorySlots> = Arc::new(Fake::default());
    let surroundings = Surroundings {
        bus: &Arc::new(MmioBus::new(Arc::default())),
        low: &mut layout.low_bars(),
        high: &mut layout.high_bars(),
        address_end: layout.address_end,
        ram: &GuestRam::new("test", RAM_BYTES, false).unwrap(),
        controller: &FakeChips::default().controller(),
        slots: &slots,
        numbers: &mut SlotNumbers::default(),
    };
    let none = || Err(std::io::ErrorKind::Unsupported.into());
    let made = PassthroughDevices::new(source, &mut Devices::default(), &none, surroundings);
    let error = made.expect_err("refused");
    crate::error_chain::chain(&error)
}
