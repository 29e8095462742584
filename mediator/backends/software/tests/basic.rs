//! The smallest things: if one of these fails, look here first.

mod support;

use support::Device;

#[test]
fn threads_store_their_number() {
    let mut device = Device::new(2);
    let found = device
        .run("st.global.u32 [%o], %t;", (3, 50), &[], 150)
        .unwrap();
    assert_eq!(found, (0..150).collect::<Vec<u32>>());
}

#[test]
fn vectors_are_added() {
    let mut device = Device::new(1);
    let body = "ld.global.u32 %r1, [%i]; add.u32 %r2, %r1, 5; st.global.u32 [%o], %r2;";
    let input: Vec<u32> = (0..256).map(|i| i * 3).collect();
    let found = device.run(body, (2, 128), &input, 256).unwrap();
    assert_eq!(found, input.iter().map(|i| i + 5).collect::<Vec<u32>>());
}
