//! Modules as compilers emit them: NVRTC, nvcc, numba, tinygrad.

mod support;

use std::collections::HashMap;

use causeway_protocol::Access;
use support::{Buffer, Device};

macro_rules! module {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../guest-driver-shim/programs/kernels/ptx/shared/",
            $name,
            ".ptx"
        ))
    };
}

const FIVE: [&str; 3] = [
    module!("nvcc13_five_kernels"),
    module!("nvrtc12_five_kernels"),
    module!("nvrtc13_five_kernels"),
];

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

fn upload(device: &mut Device, values: &[f32]) -> Buffer {
    let buffer = device.buffer(4 * values.len() as u64, Access::ReadWrite);
    let words: Vec<u32> = values.iter().map(|v| v.to_bits()).collect();
    buffer.write_words(&words);
    buffer
}

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 37) as f32 * 0.25 - 3.0).collect()
}

fn parameters(buffers: &[&Buffer], last: Option<u32>) -> Vec<u8> {
    let mut bytes: Vec<u8> = buffers.iter().flat_map(|b| b.va.to_le_bytes()).collect();
    bytes.extend(last.iter().flat_map(|n| n.to_le_bytes()));
    bytes
}

#[test]
fn vectors_are_added() {
    for ptx in FIVE {
        let mut device = Device::new(2);
        let module = device.load(ptx).unwrap();
        let (a, b) = (ramp(1000), ramp(990));
        let (da, db) = (upload(&mut device, &a), upload(&mut device, &b));
        let dc = upload(&mut device, &[0.0; 1000]);
        let given = parameters(&[&da, &db, &dc], Some(990));
        device
            .launch(&module, "vadd", ([8, 1, 1], [128, 1, 1], 0), &given)
            .unwrap();
        let found = floats(&dc.words(1000));
        for i in 0..1000 {
            let want = if i < 990 { a[i] + b[i] } else { 0.0 };
            assert_eq!(found[i], want, "{i}");
        }
    }
}

#[test]
fn sums_are_reduced_through_shared_memory_and_atomics() {
    for ptx in FIVE {
        let mut device = Device::new(2);
        let module = device.load(ptx).unwrap();
        let values = ramp(5000);
        let input = upload(&mut device, &values);
        let output = upload(&mut device, &[0.0]);
        let given = parameters(&[&input, &output], Some(5000));
        device
            .launch(&module, "reduce", ([20, 1, 1], [256, 1, 1], 0), &given)
            .unwrap();
        // Quarters add up exactly in any order.
        assert_eq!(floats(&output.words(1))[0], values.iter().sum::<f32>());
    }
}

#[test]
fn histograms_count_under_contention() {
    for ptx in FIVE {
        let mut device = Device::new(2);
        let module = device.load(ptx).unwrap();
        let values: Vec<u32> = (0..10_000_u32)
            .map(|i| i.wrapping_mul(2_654_435_761) >> 7)
            .collect();
        let input = device.buffer(40_000, Access::Read);
        input.write_words(&values);
        let output = device.buffer(64, Access::ReadWrite);
        let given = parameters(&[&input, &output], Some(10_000));
        device
            .launch(&module, "hist", ([40, 1, 1], [256, 1, 1], 0), &given)
            .unwrap();
        let mut want = [0; 16];
        values.iter().for_each(|v| want[(v & 15) as usize] += 1);
        assert_eq!(output.words(16), want);
    }
}

#[test]
fn butterflies_add_a_warp() {
    for ptx in FIVE {
        let mut device = Device::new(1);
        let module = device.load(ptx).unwrap();
        let output = upload(&mut device, &[0.0; 64]);
        let given = parameters(&[&output], None);
        device
            .launch(&module, "shfl", ([1, 1, 1], [64, 1, 1], 0), &given)
            .unwrap();
        let found = floats(&output.words(64));
        assert!(found[..32].iter().all(|v| *v == 496.0), "{found:?}");
        assert!(found[32..].iter().all(|v| *v == 1520.0), "{found:?}");
    }
}

#[test]
fn matrices_are_multiplied_in_tiles() {
    for ptx in FIVE {
        let mut device = Device::new(2);
        let module = device.load(ptx).unwrap();
        let n = 48;
        let (a, b) = (ramp(n * n), ramp(n * n + 5)[5..].to_vec());
        let (da, db) = (upload(&mut device, &a), upload(&mut device, &b));
        let dc = upload(&mut device, &vec![0.0; n * n]);
        let given = parameters(&[&da, &db, &dc], Some(n as u32));
        device
            .launch(&module, "matmul", ([3, 3, 1], [16, 16, 1], 0), &given)
            .unwrap();
        let found = floats(&dc.words(n * n));
        for row in 0..n {
            for column in 0..n {
                let product = |k: usize| a[row * n + k] * b[k * n + column];
                let want: f32 = (0..n).map(product).sum();
                assert!(
                    (found[row * n + column] - want).abs() < 1e-3,
                    "{row} {column}"
                );
            }
        }
    }
}

#[test]
fn numba_adds_arrays() {
    let mut device = Device::new(2);
    let module = device.load(module!("numba_add")).unwrap();
    let kernel = module.kernels().remove(0);
    let (a, b) = (ramp(200), ramp(207)[7..].to_vec());
    let (da, db) = (upload(&mut device, &a), upload(&mut device, &b));
    let dc = upload(&mut device, &[0.0; 200]);
    // An array is: parent twice, number of items, size of an item, data, shape, stride.
    let array = |b: &Buffer| [0, 0, 200, 4, b.va, 200, 4];
    let words = [array(&da), array(&db), array(&dc)].concat();
    let given: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    device
        .launch(&module, &kernel, ([2, 1, 1], [128, 1, 1], 0), &given)
        .unwrap();
    let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(floats(&dc.words(200)), want);
}

#[test]
fn tinygrad_multiplies_and_sums() {
    let mut device = Device::new(2);
    let module = device.load(module!("tinygrad_matmul_64")).unwrap();
    // The kernel sums the whole product of two 64x64 matrices.
    let (a, b) = (ramp(4096), ramp(4100)[4..].to_vec());
    let (da, db) = (upload(&mut device, &a), upload(&mut device, &b));
    let out = upload(&mut device, &[0.0]);
    let given = parameters(&[&out, &da, &db], None);
    device
        .launch(&module, "r_16_64_4_64", ([1, 1, 1], [16, 1, 1], 0), &given)
        .unwrap();
    let mut want = 0.0_f64;
    for row in 0..64 {
        for column in 0..64 {
            for k in 0..64 {
                want += f64::from(a[row * 64 + k]) * f64::from(b[k * 64 + column]);
            }
        }
    }
    let found = f64::from(floats(&out.words(1))[0]);
    assert!((found - want).abs() <= want.abs() * 1e-4, "{found} {want}");
}

#[test]
fn tinygrad_adds_four_numbers() {
    let mut device = Device::new(1);
    let module = device.load(module!("tinygrad_elementwise_4")).unwrap();
    let (a, b) = (
        upload(&mut device, &ramp(4)),
        upload(&mut device, &[0.5, -7.0, 1e9, 2.0]),
    );
    let out = upload(&mut device, &[0.0; 4]);
    let given = parameters(&[&out, &a, &b], None);
    device
        .launch(&module, "E_4", ([1, 1, 1], [1, 1, 1], 0), &given)
        .unwrap();
    let want: Vec<f32> = ramp(4)
        .iter()
        .zip([0.5, -7.0, 1e9, 2.0])
        .map(|(a, b)| a + b)
        .collect();
    assert_eq!(floats(&out.words(4)), want);
}

#[test]
fn tinygrad_reduces_through_shared_memory() {
    let mut device = Device::new(1);
    let module = device.load(module!("tinygrad_reduce_local")).unwrap();
    // Small integers: products and sums are exact in half and single precision.
    let rows: Vec<f32> = (0..16 * 4096).map(|i| (i % 7) as f32 - 3.0).collect();
    let (a, out) = (upload(&mut device, &rows), upload(&mut device, &[0.0]));
    let given = parameters(&[&out, &a], None);
    device
        .launch(
            &module,
            "r_16_512_8_128",
            ([1, 1, 1], [16, 1, 1], 0),
            &given,
        )
        .unwrap();
    // Both factors come from the same buffer: a row of 512, and one of 128 rows of 512.
    let mut want = 0.0;
    for thread in 0..16 {
        for row in 0..8 {
            for column in 0..128 {
                for k in 0..512 {
                    want += rows[thread * 4096 + row * 512 + k] * rows[column * 512 + k];
                }
            }
        }
    }
    assert_eq!(floats(&out.words(1)), [want]);
}

/// One thread of a kernel without branches, executed from its text line by line: 32-bit operations
/// only.
struct Scalar {
    registers: HashMap<String, u32>,
    stored: Vec<u32>,
}

impl Scalar {
    fn run(text: &str, block: u32, thread: u32, inputs: &[[u32; 2]]) -> Self {
        let mut scalar = Self {
            registers: HashMap::from([("%ctaid.x".into(), block), ("%tid.x".into(), thread)]),
            stored: Vec::new(),
        };
        let mut inputs = inputs.iter();
        for line in text.lines().map(str::trim) {
            let (operation, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let rest = rest.trim_end_matches(';').replace(['{', '}'], "");
            let operands: Vec<&str> = rest.split(',').map(str::trim).collect();
            if operation == "ld.global.v2.u32" {
                let pair = inputs.next().expect("an input for each load");
                scalar.set(operands[0], pair[0]);
                scalar.set(operands[1], pair[1]);
            } else {
                scalar.step(operation, &operands);
            }
        }
        scalar
    }

    fn step(&mut self, operation: &str, operands: &[&str]) {
        let of = |n: usize| self.value(operands[n]);
        let result = match operation {
            "mov.b32" | "mov.u32" | "cvt.u32.s32" => of(1),
            "add.u32" | "add.s32" => of(1).wrapping_add(of(2)),
            "mad.lo.u32" | "mad.lo.s32" => of(1).wrapping_mul(of(2)).wrapping_add(of(3)),
            "shr.u32" => of(1).checked_shr(of(2)).unwrap_or(0),
            "xor.b32" => of(1) ^ of(2),
            "or.b32" => of(1) | of(2),
            "setp.lt.u32" => u32::from(of(1) < of(2)),
            "selp.b32" if of(3) != 0 => of(1),
            "selp.b32" => of(2),
            "add.f32" => (f32::from_bits(of(1)) + f32::from_bits(of(2))).to_bits(),
            "st.global.f32" => {
                let value = of(1);
                self.stored.push(value);
                return;
            }
            // Declarations, and 64-bit addresses.
            _ => return,
        };
        self.set(operands[0], result);
    }

    fn set(&mut self, register: &str, value: u32) {
        self.registers.insert(register.to_owned(), value);
    }

    fn value(&self, operand: &str) -> u32 {
        if let Some(value) = self.registers.get(operand) {
            return *value;
        }
        if let Some(bits) = operand.strip_prefix("0f") {
            return u32::from_str_radix(bits, 16).expect("eight digits");
        }
        let number: i64 = operand
            .trim_end_matches('U')
            .parse()
            .unwrap_or_else(|_| panic!("what is {operand}?"));
        number as u32
    }
}

#[test]
fn tinygrad_makes_random_numbers() {
    const TEXT: &str = module!("tinygrad_elementwise_64x32x2");
    let mut device = Device::new(2);
    let module = device.load(TEXT).unwrap();
    let (seed, counter) = ([0x1234_5678, 0x9abc_def0], [4321, 17]);
    let upload = |device: &mut Device, words: &[u32]| {
        let buffer = device.buffer(8, Access::Read);
        buffer.write_words(words);
        buffer
    };
    let (first, second) = (upload(&mut device, &counter), upload(&mut device, &seed));
    let out = device.buffer(4 * 4096, Access::ReadWrite);
    let given = parameters(&[&out, &first, &second], None);
    device
        .launch(&module, "E_64_32_2", ([64, 1, 1], [32, 1, 1], 0), &given)
        .unwrap();
    let found = out.words(4096);
    for block in 0..64 {
        for thread in 0..32 {
            let want = Scalar::run(TEXT, block, thread, &[counter, seed]).stored;
            let index = (block * 32 + thread) as usize;
            assert_eq!([found[2048 + index], found[index]], want[..], "{index}");
        }
    }
    let mean = floats(&found).iter().map(|v| f64::from(*v)).sum::<f64>() / 4096.0;
    assert!(
        (mean - 0.5).abs() < 0.03,
        "numbers between 0 and 1, not of mean {mean}"
    );
}

#[test]
fn the_special_kernels_load() {
    let module = Device::new(1).load(causeway_kernels::special::PTX).unwrap();
    assert!(!module.kernels().is_empty());
}
