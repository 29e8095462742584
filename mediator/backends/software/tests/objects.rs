//! Objects and instructions that do not fit: each is refused, or a fault that says why.

#[path = "support/images.rs"]
mod images;
mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_mediator::backend::{ElementFormat as F, Fault, Sampling, Space, TextureSource};
use causeway_protocol::message::{Status, array_flags, texture_flags};
use images::{array, element, run};
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
fn objects_that_do_not_fit_are_faults_of_the_kernel() {
    let read = "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d9, {%f5, %f6}];";
    for (case, part) in [
        ("stale", "is no texture or surface of this address space"),
        ("null", "object 0x0 is no texture or surface"),
        ("surface", "is a surface, not a texture"),
        ("volume", "geometry .2d cannot access"),
    ] {
        let mut device = Device::new(1);
        let depth = if case == "volume" { 4 } else { 0 };
        let content = vec![0; 8 * 6 * 4 * depth.max(1) as usize];
        let flags = array_flags::SURFACE;
        let array = array(
            &mut device,
            [8, 6, depth],
            element(F::Float, 1),
            flags,
            &content,
        );
        let source = match case {
            "surface" => TextureSource::Surface(&array),
            _ => TextureSource::Array(&array),
        };
        let texture = device
            .space
            .create_texture(source, &Sampling::default())
            .unwrap();
        let object = if case == "null" { 0 } else { texture.object() };
        if case == "stale" {
            drop(texture);
        } else {
            std::mem::forget(texture);
        }
        let fault = run(&mut device, object, read, &[0; 3], 1).unwrap_err();
        assert_eq!(fault.status, Status::KernelFault, "{case}");
        assert!(fault.text.contains(part), "{fault}");
        assert!(fault.text.contains("thread (0,0,0)"), "{fault}");
    }
}

#[test]
fn objects_tell_what_they_are() {
    let mut device = Device::new(1);
    let size = [8, 6, 5];
    let content = vec![0; 8 * 6 * 5 * 2];
    let flags = array_flags::LAYERED;
    let array = array(&mut device, size, element(F::Unsigned8, 2), flags, &content);
    let sampling = Sampling {
        flags: texture_flags::NORMALIZED,
        ..Sampling::default()
    };
    let source = TextureSource::Array(&array);
    let texture = device.space.create_texture(source, &sampling).unwrap();
    let queries = [
        "width",
        "height",
        "depth",
        "array_size",
        "normalized_coords",
        "channel_data_type",
        "channel_order",
    ];
    let body: String = (0..)
        .zip(queries)
        .map(|(index, query)| {
            let at = 4 * index;
            format!("txq.{query}.b32 %r1, [%d9]; st.global.u32 [%out+{at}], %r1;\n")
        })
        .collect();
    let found = run(&mut device, texture.object(), &body, &[], 7).unwrap();
    assert_eq!(found, [8, 6, 1, 5, 1, 0x10d2, 0x10b2]);
}

#[test]
fn forms_that_are_not_there_are_refused_with_a_reason() {
    let device = Device::new(1);
    for (instruction, part) in [
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f1,%f2}], {%r1,%r2};",
            "offsets",
        ),
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, %d2, {%f1,%f2}];",
            "separate sampler",
        ),
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [name, {%f1,%f2}];",
            "references by name",
        ),
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%r1, {%f1,%f2}];",
            "32 bits",
        ),
        (
            "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f1}];",
            "1 registers",
        ),
        (
            "tex.2d.v4.f16.f32 {%h1,%h2,%h3,%h4}, [%d1, {%f1,%f2}];",
            "not supported",
        ),
        (
            "tex.cube.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%d1, {%r1,%r2,%r3,%r3}];",
            "not supported",
        ),
        (
            "tex.2dms.v4.s32.s32 {%r1,%r2,%r3,%r4}, [%d1, {%r1,%r2,%r3,%r3}];",
            "not supported",
        ),
        ("txq.num_samples.b32 %r1, [%d1];", "not supported"),
        (
            "sust.p.2d.v4.b32.trap [%d1, {%r1,%r2}], {%r1,%r2,%r3,%r4};",
            "not supported",
        ),
        (
            "suld.b.2d.v4.b64.trap {%d1,%d2,%d3,%d4}, [%d1, {%r1,%r2}];",
            "not supported",
        ),
        ("suld.b.2d.b32.trap {%d1}, [%d1, {%r1,%r2}];", "64 bits"),
        (
            "sured.b.add.2d.u32.trap [%d1, {%r1,%r2}], %r1;",
            "not supported",
        ),
    ] {
        let refused = device.load(&support::kernel("", instruction)).err();
        let refused = refused
            .unwrap_or_else(|| panic!("{instruction}"))
            .to_string();
        assert!(refused.contains(part), "{instruction}: {refused}");
    }
}

#[test]
fn crooked_and_wrong_accesses_are_faults() {
    for (body, status, cuda_result, part) in [
        (
            "mov.u32 %r1, 2; suld.b.1d.b32.zero {%r1}, [%d9, {%r1}];",
            Status::MemoryFault,
            716,
            "load of 4 bytes at byte 2 of row 0, slice 0 of a surface: not aligned",
        ),
        (
            "mov.u32 %r1, 99; sust.b.1d.b8.trap [%d9, {%r1}], {%r1};",
            Status::MemoryFault,
            700,
            "store of 1 bytes at byte 99",
        ),
        (
            "mov.u32 %r1, 0; suld.b.3d.b32.zero {%r1}, [%d9, {%r1, %r1, %r1, %r1}];",
            Status::KernelFault,
            719,
            "geometry .3d cannot access",
        ),
        (
            "mov.u64 %d9, 5; suld.b.1d.b32.zero {%r1}, [%d9, {%r1}];",
            Status::KernelFault,
            719,
            "object 0x5 is no texture or surface",
        ),
    ] {
        let mut device = Device::new(1);
        let array = array(
            &mut device,
            [16, 0, 0],
            element(F::Signed8, 1),
            SURFACE,
            &[7; 16],
        );
        let source = TextureSource::Surface(&array);
        let surface = device
            .space
            .create_texture(source, &Sampling::default())
            .unwrap();
        let fault = run(&mut device, surface.object(), body, &[], 1).unwrap_err();
        assert_fault(&fault, status, cuda_result, part);
    }
    let mut device = Device::new(1);
    let array = array(
        &mut device,
        [16, 0, 0],
        element(F::Signed8, 1),
        SURFACE,
        &[7; 16],
    );
    let source = TextureSource::Array(&array);
    let texture = device
        .space
        .create_texture(source, &Sampling::default())
        .unwrap();
    let body = "suld.b.1d.b32.zero {%r1}, [%d9, {%r2}];";
    let fault = run(&mut device, texture.object(), body, &[], 1).unwrap_err();
    assert_fault(
        &fault,
        Status::KernelFault,
        719,
        "is a texture, not a surface",
    );
}

#[test]
fn kernels_that_only_filter_can_be_stopped() {
    let mut device = Device::new(1);
    let content = vec![0; 4 * 4 * 4 * 16];
    let array = array(&mut device, [4, 4, 4], element(F::Float, 4), 0, &content);
    let sampling = Sampling {
        is_linear: true,
        ..Sampling::default()
    };
    let source = TextureSource::Array(&array);
    let texture = device.space.create_texture(source, &sampling).unwrap();
    let read = "tex.3d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d9, {%f1,%f2,%f3,%f3}];\n";
    let body = format!(
        "mov.u64 %d9, {};\nback: {} bra back;",
        texture.object(),
        read.repeat(9000)
    );
    let module = device.load(&support::kernel("", &body)).unwrap();
    let stop = device.stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        Instant::now()
    });
    device.run_module(&module, (1, 1024), &[], 1).unwrap();
    let took = stopper.join().unwrap().elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}
