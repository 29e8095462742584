//! Matrices of a warp: products against the same products in plain Rust, and moves of rows.

mod support;

use support::{Device, kernel};

/// Words that look random, the same in every run.
fn words(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count).map(step).collect()
}

/// A kind of element: its bits, a word of the input made into small elements of it, and its value.
struct Kind {
    name: &'static str,
    bits: usize,
    tame: fn(u32) -> u32,
    value: fn(u32) -> f64,
}

/// Small multiples of a quarter, so that sums are exact.
fn quarter(random: u32) -> f32 {
    (random % 65) as f32 / 4.0 - 8.0
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "f16",
        bits: 16,
        tame: |w| pair(w, |r| half::f16::from_f32(quarter(r)).to_bits()),
        value: |w| half::f16::from_bits(w as u16).into(),
    },
    Kind {
        name: "bf16",
        bits: 16,
        tame: |w| pair(w, |r| half::bf16::from_f32(quarter(r)).to_bits()),
        value: |w| half::bf16::from_bits(w as u16).into(),
    },
    Kind {
        name: "tf32",
        bits: 32,
        // The low bits must not count.
        tame: |w| quarter(w >> 16).to_bits() | (w & 0x1fff),
        value: |w| f64::from(f32::from_bits(w & 0xffff_e000)),
    },
    Kind {
        name: "s8",
        bits: 8,
        tame: |w| w,
        value: |w| f64::from(w as i8),
    },
    Kind {
        name: "u8",
        bits: 8,
        tame: |w| w,
        value: |w| f64::from(w as u8),
    },
    Kind {
        name: "s4",
        bits: 4,
        tame: |w| w,
        value: |w| f64::from(w.cast_signed() << 28 >> 28),
    },
    Kind {
        name: "u4",
        bits: 4,
        tame: |w| w,
        value: |w| f64::from(w & 15),
    },
];

fn pair(word: u32, half: fn(u32) -> u16) -> u32 {
    u32::from(half(word >> 16)) << 16 | u32::from(half(word & 0xffff))
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|k| k.name == name).unwrap()
}

/// A matrix of a factor: element (row, column) from the words of the lanes, as the figures of the
/// PTX manual place it. `word(register, lane)`.
fn element(
    kind: &Kind,
    word: impl Fn(usize, usize) -> u32,
    rows: usize,
    row: usize,
    deep: usize,
) -> f64 {
    let count = 32 / kind.bits;
    let (register, within) = (deep / (4 * count), deep % (4 * count));
    let lane = row % 8 * 4 + within / count;
    let register = register * (rows / 8) + row / 8;
    let bits = word(register, lane) >> (within % count * kind.bits);
    (kind.value)(bits)
}

/// Runs `mma` on random fragments, and compares with plain sums of products.
fn check(shape: (usize, usize), [d, a, b, c]: [&str; 4], saturate: bool) {
    let (rows, depth) = shape;
    let (left, right) = (kind(a), kind(b));
    let deep = depth * left.bits / 128;
    let sums = if d == "f16" { rows / 8 } else { rows / 4 };
    let counts = [rows / 8 * deep, deep, sums];
    let mut input = Vec::new();
    for (index, count) in counts.into_iter().enumerate() {
        let random = words(7 + index as u32 + depth as u32, 32 * count);
        let random = random.into_iter().map(|w| match (index, c) {
            (0, _) => (left.tame)(w),
            (1, _) => (right.tame)(w),
            (_, "f32") => quarter(w).to_bits(),
            (_, "f16") => (kind("f16").tame)(w),
            _ if saturate => w | 0x7fff_f000,
            _ => w,
        });
        input.extend(random);
    }
    // Register r of lane t is word 32 r + t of the input, and of the output.
    let total: usize = counts.iter().sum();
    let names = |from: usize, count: usize| {
        let names: Vec<String> = (from..from + count).map(|n| format!("%r{n}")).collect();
        names.join(", ")
    };
    let load: String = (0..total)
        .map(|n| format!("ld.global.u32 %r{n}, [%i+{}];", 128 * n))
        .collect();
    let store: String = (0..sums)
        .map(|n| format!("st.global.u32 [%o+{}], %r{};", 128 * n, 40 + n))
        .collect();
    let name = format!(
        "mma.sync.aligned.m{rows}n8k{depth}.row.col{}.{d}.{a}.{b}.{c}",
        if saturate { ".satfinite" } else { "" }
    );
    let body = format!(
        "{load} {name} {{{}}}, {{{}}}, {{{}}}, {{{}}}; {store}",
        names(40, sums),
        names(0, counts[0]),
        names(counts[0], counts[1]),
        names(counts[0] + counts[1], sums)
    );
    let mut device = Device::new(1);
    let found = device.run(&body, (1, 32), &input, 32 * sums).unwrap();
    let at = |first: usize| {
        let input = &input;
        move |register: usize, lane: usize| input[32 * (first + register) + lane]
    };
    let sum_of = |words: &[u32], row: usize, column: usize| {
        let (lane, high) = (row % 8 * 4 + column / 2, column % 2);
        match d {
            "f16" => {
                let word = words[32 * (row / 8) + lane];
                f64::from(half::f16::from_bits((word >> (16 * high)) as u16))
            }
            "f32" => f64::from(f32::from_bits(words[32 * (row / 8 * 2 + high) + lane])),
            _ => f64::from(words[32 * (row / 8 * 2 + high) + lane].cast_signed()),
        }
    };
    for row in 0..rows {
        for column in 0..8 {
            let mut want = sum_of(&input[32 * (counts[0] + counts[1])..], row, column);
            for k in 0..depth {
                want += element(left, at(0), rows, row, k)
                    * element(right, at(counts[0]), 8, column, k);
            }
            want = match d {
                "f16" => half::f16::from_f64(want).into(),
                "f32" => want,
                _ if saturate => f64::from(want as i32),
                _ => f64::from(want as i64 as i32),
            };
            let found = sum_of(&found, row, column);
            assert_eq!(found, want, "{name}: row {row}, column {column}");
        }
    }
}

#[test]
fn products_of_floats_agree() {
    for (shape, types) in [
        ((16, 8), ["f32", "f16", "f16", "f32"]),
        ((16, 16), ["f32", "f16", "f16", "f32"]),
        ((16, 8), ["f16", "f16", "f16", "f16"]),
        ((16, 16), ["f16", "f16", "f16", "f16"]),
        ((16, 8), ["f32", "bf16", "bf16", "f32"]),
        ((16, 16), ["f32", "bf16", "bf16", "f32"]),
        ((16, 4), ["f32", "tf32", "tf32", "f32"]),
        ((16, 8), ["f32", "tf32", "tf32", "f32"]),
    ] {
        check(shape, types, false);
    }
}

#[test]
fn products_of_integers_agree() {
    for (shape, a, b) in [
        ((16, 16), "s8", "s8"),
        ((16, 32), "s8", "u8"),
        ((16, 32), "u8", "s8"),
        ((8, 16), "u8", "u8"),
        ((16, 32), "s4", "u4"),
        ((16, 64), "u4", "s4"),
        ((8, 32), "s4", "s4"),
    ] {
        check(shape, ["s32", a, b, "s32"], false);
        check(shape, ["s32", a, b, "s32"], true);
    }
}

#[test]
fn forms_that_no_gpu_has_are_refused() {
    let device = Device::new(1);
    for (form, registers) in [
        ("m16n8k32.row.col.f32.f16.f16.f32", (4, 8, 4)),
        ("m16n8k16.row.col.f32.f16.bf16.f32", (4, 4, 2)),
        ("m16n8k16.row.col.f16.f16.f16.f32", (4, 4, 2)),
        ("m16n8k16.col.row.f32.f16.f16.f32", (4, 4, 2)),
        ("m16n8k16.row.col.f16.bf16.bf16.f16", (2, 4, 2)),
        ("m16n8k32.row.col.s32.s8.s4.s32", (4, 4, 2)),
        ("m16n8k16.row.col.satfinite.f32.f16.f16.f32", (4, 4, 2)),
        // The form exists, but not with as many registers.
        ("m16n8k16.row.col.f32.f16.f16.f32", (4, 4, 1)),
        ("m16n8k16.row.col.f32.f16.f16.f32", (2, 4, 2)),
    ] {
        let (d, a, b) = registers;
        let list = |count: usize| vec!["%r1"; count].join(", ");
        let (d, a, b) = (list(d), list(a), list(b));
        let body = format!("mma.sync.aligned.{form} {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};");
        assert!(device.load(&kernel("", &body)).is_err(), "{body}");
    }
}

/// A kernel body that fills 1024 bytes of shared memory with the numbers 0, 1, 2 … of 16 bits.
const FILL: &str = ".shared .align 16 .b8 tile[1024]; mov.u32 %r50, tile;\n\
    shl.b32 %r51, %tid, 5; add.u32 %r51, %r50, %r51; mov.u32 %r52, 0; shl.b32 %r53, %tid, 4;\n\
    fill: cvt.u16.u32 %h1, %r53; st.shared.u16 [%r51], %h1; add.u32 %r51, %r51, 2;\n\
    add.u32 %r53, %r53, 1; add.u32 %r52, %r52, 1; setp.lt.u32 %p1, %r52, 16; @%p1 bra fill;\n\
    bar.sync 0;\n";

#[test]
fn rows_are_loaded_as_the_manual_says() {
    for (count, transposed) in [(1, false), (2, false), (4, false), (4, true), (1, true)] {
        // Lane t names row 31 - t: its 16 bytes begin at byte 16 (31 - t).
        let trans = if transposed { ".trans" } else { "" };
        let registers: Vec<String> = (0..count).map(|n| format!("%r{n}")).collect();
        let store: String = (0..count)
            .map(|n| format!("st.global.u32 [%o+{}], %r{n};", 128 * n))
            .collect();
        let body = format!(
            "{FILL} sub.u32 %r55, 31, %tid; shl.b32 %r55, %r55, 4; add.u32 %r55, %r55, %r50;\n\
             ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{}}}, [%r55+16]; {store}",
            registers.join(", ")
        );
        let mut device = Device::new(1);
        let found = device.run(&body, (1, 32), &[], 32 * count).unwrap();
        for matrix in 0..count {
            for lane in 0..32 {
                let cell = |row: usize, column: usize| {
                    let row = 31 - (8 * matrix + row);
                    (8 * (row + 1) + column) as u32
                };
                let (g, t) = (lane / 4, lane % 4 * 2);
                let want = match transposed {
                    false => cell(g, t) | cell(g, t + 1) << 16,
                    true => cell(t, g) | cell(t + 1, g) << 16,
                };
                assert_eq!(
                    found[32 * matrix + lane],
                    want,
                    "x{count}{trans} {matrix} {lane}"
                );
            }
        }
    }
}

#[test]
fn what_is_stored_is_loaded_again() {
    for trans in ["", ".trans"] {
        let body = format!(
            ".shared .align 16 .b8 tile[512]; mov.u32 %r50, tile; shl.b32 %r51, %tid, 4;\n\
             add.u32 %r50, %r50, %r51; cvt.u64.u32 %d1, %r50; cvta.shared.u64 %d1, %d1;\n\
             ld.global.u32 %r0, [%i]; ld.global.u32 %r1, [%i+128]; \
             ld.global.u32 %r2, [%i+256]; ld.global.u32 %r3, [%i+384];\n\
             stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r50], {{%r0, %r1, %r2, %r3}};\n\
             ldmatrix.sync.aligned.m8n8.x4.b16 {{%r4, %r5, %r6, %r7}}, [%d1];\n\
             movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r7;\n\
             st.global.u32 [%o], %r4; st.global.u32 [%o+128], %r5; st.global.u32 [%o+256], %r6; \
             st.global.u32 [%o+384], %r7; st.global.u32 [%o+512], %r8;"
        );
        let input = words(3, 128);
        let mut device = Device::new(1);
        let found = device.run(&body, (1, 32), &input, 160).unwrap();
        let transpose = |words: &[u32]| -> Vec<u32> {
            let cell = |row: usize, column: usize| {
                let word = words[row * 4 + column / 2];
                word >> (16 * (column % 2)) & 0xffff
            };
            let word = |lane: usize| {
                let (g, t) = (lane / 4, lane % 4 * 2);
                cell(t, g) | cell(t + 1, g) << 16
            };
            (0..32).map(word).collect()
        };
        for matrix in 0..4 {
            let range = 32 * matrix..32 * matrix + 32;
            let want = match trans {
                "" => input[range.clone()].to_vec(),
                _ => transpose(&input[range.clone()]),
            };
            assert_eq!(found[range], want[..], "{trans} {matrix}");
        }
        assert_eq!(found[128..], transpose(&found[96..128])[..]);
    }
}

#[test]
fn rows_outside_shared_memory_are_faults() {
    for (address, part) in [
        ("mov.u32 %r50, 500;", "not aligned"),
        (
            "shl.b32 %r50, %tid, 4; add.u32 %r50, %r50, 16;",
            "outside the block's shared memory",
        ),
    ] {
        let body = format!(
            ".shared .align 16 .b8 tile[512]; mov.u32 %r51, tile; {address}\n\
             ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r50];"
        );
        let fault = Device::new(1).run(&body, (1, 32), &[], 32).unwrap_err();
        assert!(fault.text.contains(part), "{fault}");
        let body = body.replace("ldmatrix", "stmatrix");
        let body = body.replace(
            "{%r4, %r5, %r6, %r7}, [%r50]",
            "[%r50], {%r4, %r5, %r6, %r7}",
        );
        let fault = Device::new(1).run(&body, (1, 32), &[], 32).unwrap_err();
        assert!(
            fault.text.contains(part) && fault.text.contains("store"),
            "{fault}"
        );
    }
}
