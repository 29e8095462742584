use causeway_cuda::{Room, identities, rooms};

use crate::support::is_child;

#[test]
fn each_gpu_tells_what_it_has_free() {
    let settings = [
        ("CAUSEWAY_STANDIN_DEVICES", "3"),
        ("CAUSEWAY_STANDIN_MEMORY", "1073741824,2147483648"),
        ("CAUSEWAY_STANDIN_SMS", "40"),
    ];
    if !is_child("room::each_gpu_tells_what_it_has_free", &settings) {
        return;
    }
    let found = rooms(Some(16)).unwrap();
    let shown = |room: &Room| (room.free_bytes, room.groups);
    let found: Vec<_> = found.iter().map(shown).collect();
    assert_eq!(
        found,
        [(1 << 30, Some(2)), (2 << 30, Some(2)), (2 << 30, Some(2))]
    );
    assert_eq!(rooms(None).unwrap()[0].groups, None);
}

#[test]
fn gpus_are_counted_by_their_pci_addresses_whatever_the_driver_does() {
    let settings = [
        ("CAUSEWAY_STANDIN_DEVICES", "2"),
        ("CAUSEWAY_STANDIN_MEMORY", "1073741824,2147483648"),
        ("CAUSEWAY_STANDIN_REVERSED", "1"),
    ];
    let name = "room::gpus_are_counted_by_their_pci_addresses_whatever_the_driver_does";
    if !is_child(name, &settings) {
        return;
    }
    let free = rooms(None).unwrap().into_iter().map(|room| room.free_bytes);
    assert_eq!(free.collect::<Vec<_>>(), [1 << 30, 2 << 30]);
    let addresses = identities().unwrap().into_iter().map(|gpu| gpu.pci_address);
    assert!(addresses.collect::<Vec<_>>().is_sorted());
}
