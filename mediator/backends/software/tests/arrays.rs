//! Arrays as memory of the device: copies of boxes, sizes and ends.

#[path = "support/images.rs"]
mod images;
mod support;

use std::sync::Arc;

use causeway_mediator::backend::{
    ArrayBox, ArrayCopy, ArrayShape, Backend, ElementFormat as F, Sampling, Space, TextureSource,
    Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::{Status, array_flags};
use causeway_protocol::packet::RectSide;
use causeway_protocol::registers::features;
use images::{array, content, element, run, whole};
use support::Device;

const SURFACE: u32 = array_flags::SURFACE;

#[test]
fn boxes_are_copied_in_both_directions_and_counted() {
    let mut device = Device::new(1);
    let flags = array_flags::LAYERED;
    let array = array(
        &mut device,
        [10, 6, 3],
        element(F::Half, 1),
        flags,
        &[0; 360],
    );
    let memory = device.buffer(4096, Access::ReadWrite);
    memory.write(&(0..=255).collect::<Vec<u8>>());
    let part = ArrayBox {
        memory: RectSide {
            address: memory.va,
            pitch: 16,
            rows: 4,
        },
        origin: [4, 1, 1],
        width: 6,
        height: 2,
        depth: 2,
    };
    device.queue.take_usage();
    let copy = ArrayCopy::new(&array, part, true).unwrap();
    device.queue.submit(Work::Array(copy)).unwrap();
    assert!(
        device.queue.take_usage().elapsed_ns > 0,
        "the copy is counted"
    );
    let mut wanted = vec![0; 360];
    for (slice, row) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let at = ((slice + 1) * 6 + row + 1) * 20 + 4;
        let from = (slice * 64 + row * 16) as u8;
        wanted[at..at + 6].copy_from_slice(&(from..from + 6).collect::<Vec<_>>());
    }
    assert_eq!(content(&mut device, &array), wanted);
    // An address where nothing is mapped.
    let shape = *array.shape();
    let copy = ArrayCopy::new(&array, whole(&shape, 0x10), true).unwrap();
    let fault = device.queue.submit(Work::Array(copy)).unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault);
}

#[test]
fn arrays_are_memory_of_the_device_and_end_with_their_last_user() {
    let mut device = Device::new(1);
    assert_ne!(device.backend.attributes().features & features::ARRAYS, 0);
    let free = device.backend.free_bytes();
    let shape = |size, flags| ArrayShape::new(size, element(F::Float, 4), flags).unwrap();
    let array = device
        .space
        .create_array(&shape([16, 16, 0], SURFACE), Arc::new(()))
        .unwrap();
    assert_eq!(array.memory_bytes(), 4096);
    assert_eq!(device.backend.free_bytes(), free - 4096);
    let source = TextureSource::Surface(&array);
    let surface = device
        .space
        .create_texture(source, &Sampling::default())
        .unwrap();
    drop(array);
    let body = "mov.u32 %r1, 0; suld.b.2d.b32.trap {%r1}, [%d9, {%r1, %r1}]; \
                st.global.u32 [%out], %r1;";
    let found = run(&mut device, surface.object(), body, &[], 1).unwrap();
    assert_eq!(
        found,
        [0],
        "the surface keeps the array, which is full of zeros"
    );
    let used = device.backend.free_bytes();
    drop(surface);
    assert_eq!(device.backend.free_bytes(), used + 4096);
    // 2^46 bytes.
    let hostile = device
        .space
        .create_array(&shape([16_384; 3], 0), Arc::new(()))
        .err()
        .unwrap();
    assert_eq!(hostile.status, Status::NoMemory);
    assert_eq!(device.backend.free_bytes(), used + 4096);
    // Arrays of other address spaces are theirs.
    let foreign = Device::on(device.backend.clone());
    let array = foreign
        .space
        .create_array(&shape([16, 16, 0], SURFACE), Arc::new(()))
        .unwrap();
    let source = TextureSource::Surface(&array);
    assert!(
        device
            .space
            .create_texture(source, &Sampling::default())
            .is_err()
    );
    let copy = ArrayCopy::new(&array, whole(array.shape(), 0x1000_0000), false).unwrap();
    let fault = device.queue.submit(Work::Array(copy)).unwrap_err();
    assert_eq!(fault.status, Status::BadHandle);
}

/// A device with more memory than any process has addresses.
#[test]
fn sizes_that_no_host_has_are_refused() {
    let config = causeway_software::Config {
        memory_bytes: u64::MAX,
        cores: Some(1),
        ..Default::default()
    };
    let device = Device::on(std::sync::Arc::new(causeway_software::Software::new(
        config,
    )));
    // 2^46 bytes, three times, of which no page is touched.
    let shape = ArrayShape::new([16_384; 3], element(F::Float, 4), 0).unwrap();
    let arrays = [(); 3].map(|()| device.space.create_array(&shape, Arc::new(())));
    let refused = arrays.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.status, Status::NoMemory);
}
