//! Modules as compilers emit them: NVRTC, nvcc, numba, tinygrad.

mod support;

use causeway_protocol::Access;
use support::{Buffer, Device};

macro_rules! module {
    ($name:literal) => {
        include_str!(concat!("../../../tests/kernels/ptx/shared/", $name, ".ptx"))
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
fn all_other_modules_load() {
    let device = Device::new(1);
    for ptx in [
        module!("tinygrad_elementwise_4"),
        module!("tinygrad_elementwise_64x32x2"),
        module!("tinygrad_reduce_local"),
        causeway_kernels::special::PTX,
    ] {
        let module = device.load(ptx).unwrap();
        assert!(!module.kernels().is_empty());
    }
}
