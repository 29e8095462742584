//! Buses of made-up devices.

use super::*;
use parking_lot::Mutex;

/// One 4-byte register at offset 4; remembers stores.
#[derive(Default)]
struct Cell(Mutex<Vec<u8>>);

impl BusDevice for Cell {
    fn name(&self) -> &'static str {
        "cell"
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        if (offset, into.len()) != (4, 4) {
            into.fill(0x11);
            return Response::refused(Refusal::BadSize);
        }
        into.copy_from_slice(&[1, 2, 3, 4]);
        Response::ok("word")
    }
    fn write(&self, _offset: u64, from: &[u8]) -> Response {
        self.0.lock().extend(from);
        Response::ok("word")
    }
}

fn bus() -> (MmioBus, Arc<StrayCounters>) {
    let strays = Arc::new(StrayCounters::default());
    let bus = Bus::new(Arc::clone(&strays));
    bus.insert(GuestAddress(0x1000), 0x10, Arc::new(Cell::default()))
        .unwrap();
    (bus, strays)
}

#[test]
fn an_access_reaches_its_device_at_its_offset() {
    let (bus, strays) = bus();
    let mut data = [0; 4];
    let hit = bus.read(GuestAddress(0x1004), &mut data);
    assert_eq!(
        (hit.device, hit.register, hit.result),
        ("cell", "word", Ok(()))
    );
    assert_eq!(data, [1, 2, 3, 4]);
    assert_eq!(bus.write(GuestAddress(0x1008), &[9]).result, Ok(()));
    assert_eq!(strays.total(), 0);
}

#[test]
fn a_refused_load_is_all_ones_whatever_the_device_wrote() {
    let (bus, strays) = bus();
    let mut data = [0; 2];
    let hit = bus.read(GuestAddress(0x1004), &mut data);
    assert_eq!((hit.register, hit.result), (STRAY, Err(Refusal::BadSize)));
    assert_eq!(data, [0xff; 2]);
    assert_eq!(strays.total(), 1);
}

#[test]
fn what_nobody_claims_and_what_crosses_an_edge_is_refused() {
    let (bus, strays) = bus();
    for (address, refusal) in [
        (0x0, Refusal::Unclaimed),
        (0xffe, Refusal::Unclaimed),
        (0x100e, Refusal::CrossesEdge),
        (0x1010, Refusal::Unclaimed),
        (u64::MAX, Refusal::Unclaimed),
    ] {
        let mut data = [0; 4];
        let hit = bus.read(GuestAddress(address), &mut data);
        assert_eq!(hit.result, Err(refusal), "{address:#x}");
        assert_eq!(data, [0xff; 4]);
        assert_eq!(bus.write(GuestAddress(address), &data).result, Err(refusal));
    }
    assert_eq!(strays.total(), 10);
}

#[test]
fn overlap_is_refused_on_either_side_and_neighbours_are_not() {
    let (bus, _) = bus();
    let cell = || Arc::new(Cell::default());
    for (base, bytes) in [(0xff8, 0x9), (0x1000, 1), (0x100f, 0x100), (0x800, 0x2000)] {
        let refused = bus.insert(GuestAddress(base), bytes, cell());
        assert!(
            matches!(refused, Err(BusError::Overlap { .. })),
            "{base:#x}"
        );
    }
    bus.insert(GuestAddress(0xff8), 8, cell()).unwrap();
    bus.insert(GuestAddress(0x1010), 8, cell()).unwrap();
    bus.reserve(GuestAddress(0), 0xff8, "ram").unwrap();
    assert!(bus.insert(GuestAddress(0x10), 8, cell()).is_err());
}

#[test]
fn empty_and_endless_ranges_are_refused() {
    let strays = Arc::new(StrayCounters::default());
    let ports = PortBus::new(Arc::clone(&strays));
    let cell = || Arc::new(Cell::default());
    assert!(ports.insert(Port(0xffff), 1, cell()).is_ok());
    assert!(ports.insert(Port(0xfffe), 3, cell()).is_err());
    assert!(ports.insert(Port(0), 0, cell()).is_err());
    let mmio = MmioBus::new(strays);
    assert!(mmio.insert(GuestAddress(u64::MAX), 2, cell()).is_err());
}

#[test]
fn a_removed_range_can_be_had_again() {
    let (bus, _) = bus();
    bus.remove(GuestAddress(0x1000)).unwrap();
    assert!(bus.remove(GuestAddress(0x1000)).is_err());
    let hit = bus.write(GuestAddress(0x1004), &[0; 4]);
    assert_eq!(hit.result, Err(Refusal::Unclaimed));
    bus.insert(GuestAddress(0x1008), 0x10, Arc::new(Cell::default()))
        .unwrap();
}
