//! Kernels that read textures: of arrays, of layers, of cubes and of memory.

#[path = "support/images.rs"]
mod images;
mod support;

use causeway_mediator::backend::{AddressMode, ElementFormat as F, Sampling, Space, TextureSource};
use causeway_protocol::Access;
use causeway_protocol::message::{Status, array_flags, texture_flags};
use images::{array, element, floats, run};
use support::Device;

const CLAMPED: Sampling = Sampling {
    address_modes: [AddressMode::Clamp; 3],
    is_linear: false,
    flags: 0,
    anisotropy: 0,
    border: [0.0; 4],
};
const LINEAR: Sampling = Sampling {
    is_linear: true,
    ..CLAMPED
};

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Numbers that tell where they are: x in the ones, y in the tens, z in the hundreds.
fn places([width, height, depth]: [u32; 3]) -> Vec<u8> {
    let rows = (0..depth).flat_map(|z| (0..height).map(move |y| (y, z)));
    let all = rows.flat_map(|(y, z)| (0..width).map(move |x| (x + 10 * y + 100 * z) as f32));
    floats(&all.collect::<Vec<_>>())
}

#[test]
fn each_geometry_reads_its_place() {
    let cubes = array_flags::CUBEMAP | array_flags::LAYERED;
    for (size, flags, instruction, wanted) in [
        ([8, 0, 0], 0, "tex.1d.v4.f32.f32 R, [%d9, {%f1}]", 3.0),
        ([8, 6, 0], 0, "tex.2d.v4.f32.f32 R, [%d9, {%f1, %f2}]", 23.0),
        ([8, 6, 0], 0, "tex.2d.v4.f32.s32 R, [%d9, {%r1, %r2}]", 23.0),
        ([8, 6, 0], 0, "tex.1d.v4.f32.f32 R, [%d9, %f1]", 3.0),
        (
            [8, 6, 5],
            0,
            "tex.3d.v4.f32.f32 R, [%d9, {%f1, %f2, %f3, %f3}]",
            423.0,
        ),
        (
            [8, 6, 5],
            0,
            "tex.level.3d.v4.f32.f32 R, [%d9, {%f1, %f2, %f3, %f3}], %f4",
            423.0,
        ),
        (
            [8, 6, 5],
            0,
            "tex.grad.3d.v4.f32.s32 R, [%d9, {%r1, %r2, %r3, %r3}], \
             {%f1, %f2, %f3, %f3}, {%f1, %f2, %f3, %f3}",
            423.0,
        ),
        (
            [8, 0, 5],
            array_flags::LAYERED,
            "tex.a1d.v4.f32.f32 R, [%d9, {%r3, %f1}]",
            403.0,
        ),
        (
            [8, 6, 5],
            array_flags::LAYERED,
            "tex.a2d.v4.f32.f32 R, [%d9, {%r3, %f1, %f2, %f2}]",
            423.0,
        ),
        // 3.5 : 2.5 : 4.5 points to the face +z.
        (
            [8, 8, 6],
            array_flags::CUBEMAP,
            "tex.cube.v4.f32.f32 R, [%d9, {%f1,%f2,%f3,%f3}]",
            417.0,
        ),
        (
            [8, 8, 12],
            cubes,
            "tex.acube.v4.f32.f32 R, [%d9, {%r4,%f1,%f2,%f3}]",
            1017.0,
        ),
    ] {
        let mut device = Device::new(1);
        let [width, height, depth] = size.map(|side: u64| side.max(1) as u32);
        let content = places([width, height, depth]);
        let array = array(&mut device, size, element(F::Float, 1), flags, &content);
        let source = TextureSource::Array(&array);
        let texture = device.space.create_texture(source, &CLAMPED).unwrap();
        let body = "mov.u32 %r1, 3; mov.u32 %r2, 2; mov.u32 %r3, 4; mov.u32 %r4, 1;\n\
                    mov.f32 %f1, 0f40600000; mov.f32 %f2, 0f40200000; mov.f32 %f3, 0f40900000;\n";
        let instruction = instruction.replace('R', "{%f5, %f6, %f7, %f8}");
        let body = format!("{body}{instruction}; st.global.v4.f32 [%out], {{%f5, %f6, %f7, %f8}};");
        let found = run(&mut device, texture.object(), &body, &[], 4).unwrap();
        assert_eq!(found, bits(&[wanted, 0.0, 0.0, 0.0]), "{instruction}");
    }
}

#[test]
fn a_linear_filter_mixes_elements_by_256ths() {
    let mut device = Device::new(1);
    let content = places([8, 6, 1]);
    let array = array(&mut device, [8, 6, 0], element(F::Float, 1), 0, &content);
    let source = TextureSource::Array(&array);
    let texture = device.space.create_texture(source, &LINEAR).unwrap();
    let body = "ld.global.v2.f32 {%f1, %f2}, [%in]; add.f32 %f1, %f1, 0f3f000000;\n\
        tex.2d.v4.f32.f32 {%f5, _, _, _}, [%d9, {%f1, %f2}]; st.global.f32 [%out], %f5;";
    for (x, y, wanted) in [
        (2.0, 3.5, 32.0 - 2.0 + 2.0),
        (2.25, 3.5, 32.25),
        (2.0, 3.0, 27.0),
        (2.5, 3.0, 27.5),
        (2.0 + 0.49 / 256.0, 3.5, 32.0),
        (2.0 + 0.51 / 256.0, 3.5, 32.0 + 1.0 / 256.0),
        (-9.0, 99.0, 50.0),
    ] {
        let given = bits(&[x, y]);
        let found = run(&mut device, texture.object(), body, &given, 1).unwrap();
        assert_eq!(f32::from_bits(found[0]), wanted, "{x} {y}");
    }
}

#[test]
fn what_is_outside_follows_the_address_mode() {
    let mut device = Device::new(1);
    let content: Vec<u8> = (0..10).map(|x| 25 * x).collect();
    let array = array(
        &mut device,
        [10, 0, 0],
        element(F::Unsigned8, 1),
        0,
        &content,
    );
    let body = "ld.global.f32 %f1, [%in]; tex.1d.v4.u32.f32 {%r1, _, _, _}, [%d9, {%f1}];\n\
                st.global.u32 [%out], %r1;";
    let (integers, normalized) = (texture_flags::INTEGERS, texture_flags::NORMALIZED);
    for (mode, flags, coordinate, wanted) in [
        (AddressMode::Wrap, normalized, 1.25, 50),
        (AddressMode::Wrap, 0, 12.5, 225),
        (AddressMode::Mirror, normalized, 1.25, 175),
        (AddressMode::Clamp, normalized, 1.25, 225),
        (AddressMode::Clamp, 0, -3.0, 0),
        // The low bits of the border.
        (AddressMode::Border, 0, 10.5, 0x7b),
        (AddressMode::Border, 0, 9.5, 225),
    ] {
        let sampling = Sampling {
            address_modes: [mode; 3],
            flags: flags | integers,
            border: [f32::from_bits(0x7b), 0.0, 0.0, 0.0],
            ..CLAMPED
        };
        let source = TextureSource::Array(&array);
        let texture = device.space.create_texture(source, &sampling).unwrap();
        let found = run(&mut device, texture.object(), body, &bits(&[coordinate]), 1).unwrap();
        assert_eq!(found, [wanted], "{mode:?} {flags} {coordinate}");
    }
}

#[test]
fn gathered_elements_come_counter_clockwise() {
    let mut device = Device::new(1);
    let content: Vec<u8> = (0..8 * 6 * 4).collect();
    let shape = [8, 6, 0];
    let array = array(
        &mut device,
        shape,
        element(F::Unsigned8, 4),
        array_flags::GATHER,
        &content,
    );
    let sampling = Sampling {
        flags: texture_flags::INTEGERS,
        ..CLAMPED
    };
    let source = TextureSource::Array(&array);
    let texture = device.space.create_texture(source, &sampling).unwrap();
    let body = "mov.f32 %f1, 0f40400000; mov.f32 %f2, 0f40000000;\n\
        tld4.b.2d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%d9, {%f1, %f2}];\n\
        st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};";
    let found = run(&mut device, texture.object(), body, &[], 4).unwrap();
    let at = |x: u32, y: u32| 4 * (8 * y + x) + 2;
    assert_eq!(found, [at(2, 2), at(3, 2), at(3, 1), at(2, 1)]);
}

#[test]
fn linear_memory_is_zero_outside_and_faults_where_nothing_is_mapped() {
    let mut device = Device::new(1);
    let memory = device.buffer(4096, Access::Read);
    memory.write_words(&(100..1124).collect::<Vec<_>>());
    let linear = |address, bytes| TextureSource::Linear {
        address,
        bytes,
        element: element(F::Unsigned32, 2),
    };
    let body = "ld.global.u32 %r1, [%i];\n\
        tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%d9, {%r1}]; add.u32 %r2, %r2, %r3;\n\
        st.global.u32 [%o], %r2;";
    let source = linear(memory.va + 8, 80);
    let texture = device.space.create_texture(source, &CLAMPED).unwrap();
    let given = [0, 9, 10, u32::MAX, 0x8000_0000, 0x7fff_ffff];
    let found = run(&mut device, texture.object(), body, &given, 6).unwrap();
    assert_eq!(found, [205, 241, 0, 0, 0, 0]);
    // The texture reaches further than its memory.
    let source = linear(memory.va, 8192);
    let texture = device.space.create_texture(source, &CLAMPED).unwrap();
    let found = run(&mut device, texture.object(), body, &[511], 1).unwrap();
    assert_eq!(found, [100 + 1022 + 100 + 1023]);
    let fault = run(&mut device, texture.object(), body, &[512], 1).unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault);
    let part = format!("load of 8 bytes at {:#x}: not mapped", memory.va + 4096);
    assert!(fault.text.contains(&part), "{fault}");
}

#[test]
fn rows_of_memory_are_read_by_their_pitch() {
    let mut device = Device::new(1);
    let memory = device.buffer(4096, Access::Read);
    memory.write_words(&(0..1024).collect::<Vec<_>>());
    let source = TextureSource::Rows {
        address: memory.va,
        width: 7,
        height: 5,
        pitch: 64,
        element: element(F::Signed32, 1),
    };
    let texture = device.space.create_texture(source, &CLAMPED).unwrap();
    let body = "cvt.rn.f32.u32 %f1, %tid; tex.2d.v4.s32.f32 {%r1, _, _, _}, [%d9, {%f1, %f1}];\n\
                st.global.u32 [%o], %r1;";
    let found = run(&mut device, texture.object(), body, &[0; 9], 9).unwrap();
    assert_eq!(found, [0, 17, 34, 51, 68, 69, 70, 70, 70]);
}

#[test]
fn lanes_read_textures_of_their_own() {
    let mut device = Device::new(1);
    let memory = device.buffer(4096, Access::ReadWrite);
    memory.write_words(&(0..1024).collect::<Vec<_>>());
    let textures: Vec<_> = (0..3)
        .map(|number| {
            let source = TextureSource::Linear {
                address: memory.va + 400 * number,
                bytes: 400,
                element: element(F::Unsigned32, 1),
            };
            device.space.create_texture(source, &CLAMPED).unwrap()
        })
        .collect();
    // Numbers follow each other; lanes 30 and 31 do not read.
    let body = "rem.u32 %r1, %tid, 3; cvt.u64.u32 %d1, %r1; add.u64 %d9, %d9, %d1;\n\
        mov.u32 %r2, 7; setp.lt.u32 %p1, %tid, 30;\n\
        @%p1 tex.1d.v4.u32.s32 {%r2, _, _, _}, [%d9, {%tid}]; st.global.u32 [%o], %r2;";
    assert_eq!(textures[2].object(), textures[0].object() + 2);
    let found = run(&mut device, textures[0].object(), body, &[0; 32], 32).unwrap();
    let wanted = (0..32).map(|lane| {
        if lane < 30 {
            100 * (lane % 3) + lane
        } else {
            7
        }
    });
    assert_eq!(found, wanted.collect::<Vec<u32>>());
}
