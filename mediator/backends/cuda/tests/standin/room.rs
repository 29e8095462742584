use causeway_cuda::{Room, rooms};

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
