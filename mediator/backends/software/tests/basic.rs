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

#[test]
fn nanosleep_takes_as_long_as_its_longest_lane_asks_for() {
    // Lane 31 asks for 0.93 ms; the clock tells nanoseconds.
    let body = "mov.u64 %d1, %globaltimer; mul.lo.u32 %r1, %tid, 30000; nanosleep.u32 %r1;\n\
        mov.u64 %d2, %globaltimer; sub.u64 %d2, %d2, %d1; cvt.u32.u64 %r2, %d2;\n\
        st.global.u32 [%o], %r2;";
    let mut device = Device::new(1);
    let slept = device.run(body, (1, 32), &[], 32).unwrap();
    assert!(slept.iter().all(|ns| *ns >= 930_000), "{slept:?}");
}
