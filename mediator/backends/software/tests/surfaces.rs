//! Kernels that access surfaces: loads and stores of each geometry and size, inside and outside.

#[path = "support/images.rs"]
mod images;
mod support;

use std::sync::Arc;

use causeway_mediator::backend::{
    ArrayShape, ElementFormat as F, Fault, Sampling, Space, TextureSource,
};
use causeway_protocol::message::{Status, array_flags};
use images::{array, content, element, run};
use support::Device;

const SURFACE: u32 = array_flags::SURFACE;

fn assert_fault(fault: &Fault, status: Status, cuda_result: u32, part: &str) {
    assert_eq!(
        (fault.status, fault.cuda_result),
        (status, cuda_result),
        "{fault}"
    );
    assert!(fault.text.contains(part), "{part:?} is not in {fault}");
}

#[test]
fn surfaces_of_every_geometry_are_written_and_read() {
    for (size, flags, place, at) in [
        ([16, 0, 0], 0, "1d.v2.b16.trap V, [%d9, {%r1}]", 12),
        (
            [16, 6, 0],
            0,
            "2d.v2.b16.trap V, [%d9, {%r1, %r2}]",
            2 * 64 + 12,
        ),
        (
            [16, 6, 5],
            0,
            "3d.v2.b16.trap V, [%d9, {%r1, %r2, %r3, %r3}]",
            20 * 64 + 12,
        ),
        (
            [16, 0, 5],
            array_flags::LAYERED,
            "a1d.v2.b16.trap V, [%d9, {%r3, %r1}]",
            3 * 64 + 12,
        ),
        (
            [16, 6, 5],
            array_flags::LAYERED,
            "a2d.v2.b16.trap V, [%d9, {%r3, %r1, %r2, %r2}]",
            20 * 64 + 12,
        ),
        (
            [16, 16, 6],
            array_flags::CUBEMAP,
            "a2d.v2.b16.trap V, [%d9, {%r3, %r1, %r2, %r2}]",
            50 * 64 + 12,
        ),
    ] {
        let mut device = Device::new(1);
        let shape = ArrayShape::new(size, element(F::Signed16, 2), flags | SURFACE).unwrap();
        let array = device.space.create_array(&shape, Arc::new(())).unwrap();
        let source = TextureSource::Surface(&array);
        let surface = device
            .space
            .create_texture(source, &Sampling::default())
            .unwrap();
        let load = format!("suld.b.{}", place.replace('V', "{%h3, %h4}"));
        let (head, rest) = place.split_once(" V, ").unwrap();
        let body = format!(
            "mov.u32 %r1, 12; mov.u32 %r2, 2; mov.u32 %r3, 3; mov.u16 %h1, 0x1234;\n\
             mov.u16 %h2, 0xabcd; sust.b.{head} {rest}, {{%h1, %h2}};\n\
             {load}; st.global.v2.u16 [%out], {{%h4, %h3}};"
        );
        let found = run(&mut device, surface.object(), &body, &[], 1).unwrap();
        assert_eq!(found, [0x1234_abcd], "{place}");
        let content = content(&mut device, &array);
        let mut wanted = vec![0; content.len()];
        wanted[at..at + 4].copy_from_slice(&[0x34, 0x12, 0xcd, 0xab]);
        assert_eq!(content, wanted, "{place}");
    }
}

#[test]
fn values_of_every_size_are_extended_with_zeros() {
    let mut device = Device::new(1);
    let bytes: Vec<u8> = (0x80..0xc0).collect();
    let array = array(
        &mut device,
        [64, 0, 0],
        element(F::Unsigned8, 1),
        SURFACE,
        &bytes,
    );
    let source = TextureSource::Surface(&array);
    let surface = device
        .space
        .create_texture(source, &Sampling::default())
        .unwrap();
    for (form, registers, stores, wanted) in [
        ("b8", "{%r1}", "st.global.u32 [%out], %r1;", vec![0x90]),
        (
            "v2.b8",
            "{%r1, %r2}",
            "st.global.v2.u32 [%out], {%r1, %r2};",
            vec![0x90, 0x91],
        ),
        ("b16", "%r1", "st.global.u32 [%out], %r1;", vec![0x9190]),
        (
            "b64",
            "{%d1}",
            "st.global.u64 [%out], %d1;",
            vec![0x9392_9190, 0x9796_9594],
        ),
        (
            "v2.b64",
            "{%d1, %d2}",
            "st.global.u64 [%out], %d2;",
            vec![0x9b9a_9998, 0x9f9e_9d9c],
        ),
        (
            "v4.b32",
            "{%r1, %r2, %r3, %r4}",
            "st.global.v2.u32 [%out], {%r2, %r4};",
            vec![0x9796_9594, 0x9f9e_9d9c],
        ),
    ] {
        let body =
            format!("mov.u32 %r1, 16; suld.b.1d.{form}.trap {registers}, [%d9, {{%r1}}]; {stores}");
        let found = run(&mut device, surface.object(), &body, &[], wanted.len()).unwrap();
        assert_eq!(found, wanted, "{form}");
    }
}

#[test]
fn accesses_outside_follow_their_mode() {
    let mut device = Device::new(1);
    let bytes: Vec<u8> = (0..40).collect();
    let array = array(
        &mut device,
        [20, 2, 0],
        element(F::Unsigned8, 1),
        SURFACE,
        &bytes,
    );
    let source = TextureSource::Surface(&array);
    let surface = device
        .space
        .create_texture(source, &Sampling::default())
        .unwrap();
    let object = surface.object();
    let place = "ld.global.v2.u32 {%r1, %r2}, [%in];";
    let read = |device: &mut Device, mode: &str, x: i32, y: i32| {
        let body = format!(
            "{place} suld.b.2d.b32.{mode} {{%r3}}, [%d9, {{%r1, %r2}}]; \
             st.global.u32 [%out], %r3;"
        );
        let given = [x, y].map(i32::cast_unsigned);
        run(device, object, &body, &given, 1).map(|words| words[0].to_le_bytes()[0])
    };
    assert_eq!(read(&mut device, "zero", 16, 1), Ok(36));
    assert_eq!(read(&mut device, "clamp", 24, 5), Ok(36));
    assert_eq!(read(&mut device, "clamp", -4, -1), Ok(0));
    for (x, y) in [(20, 0), (-4, 0), (0, 2), (0, -1)] {
        assert_eq!(read(&mut device, "zero", x, y), Ok(0));
    }
    let write = |device: &mut Device, mode: &str, x: i32| {
        let body = format!("{place} sust.b.2d.b32.{mode} [%d9, {{%r1, 0}}], {{%t}};");
        run(device, object, &body, &[x.cast_unsigned(), 0], 1)
    };
    write(&mut device, "zero", 20).unwrap();
    assert_eq!(content(&mut device, &array), bytes, "nothing is stored");
    write(&mut device, "clamp", 400).unwrap();
    assert_ne!(content(&mut device, &array)[16..20], bytes[16..20]);
    let fault = read(&mut device, "trap", 20, 0).unwrap_err();
    let part = "load of 4 bytes at byte 20 of row 0, slice 0 of a surface, which has 20 bytes";
    assert_fault(&fault, Status::MemoryFault, 700, part);
}
