//! Kernels as other compilers emit them (`guest-driver-shim/programs/kernels/ptx/shared`).

use causeway_kernels::{Generator, Rule, Seed};

use crate::subject::{Kernel, Subject};

macro_rules! module {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/",
            $name,
            ".ptx"
        ))
    };
}

/// The same five kernels from three compilers.
const FIVE: [(&str, &str); 3] = [
    ("nvcc 13", module!("nvcc13_five_kernels")),
    ("NVRTC 12", module!("nvrtc12_five_kernels")),
    ("NVRTC 13", module!("nvrtc13_five_kernels")),
];
const NUMBA: &str = module!("numba_add");
const TINYGRAD_ADD: &str = module!("tinygrad_elementwise_4");
const TINYGRAD_RANDOM: &str = module!("tinygrad_elementwise_64x32x2");
const TINYGRAD_MATMUL: &str = module!("tinygrad_matmul_64");
const TINYGRAD_REDUCE: &str = module!("tinygrad_reduce_local");

type Maker = fn(&'static str, &mut Generator) -> Subject;

pub fn kernels() -> impl Iterator<Item = Kernel> {
    let five: [(&str, Maker); 5] = [
        ("vadd", add),
        ("reduce", reduce),
        ("hist", histogram),
        ("shfl", butterfly),
        ("matmul", matmul),
    ];
    let five = FIVE.into_iter().flat_map(move |(compiler, ptx)| {
        five.map(|(name, make)| kernel(format!("{name} ({compiler})"), ptx, make))
    });
    let others: [(&str, &'static str, Maker); 5] = [
        ("add (numba)", NUMBA, numba),
        ("E_4 (tinygrad)", TINYGRAD_ADD, add_four),
        ("E_64_32_2 (tinygrad)", TINYGRAD_RANDOM, random_numbers),
        ("r_16_64_4_64 (tinygrad)", TINYGRAD_MATMUL, product_sum),
        ("r_16_512_8_128 (tinygrad)", TINYGRAD_REDUCE, local_sum),
    ];
    let others = others.map(|(name, ptx, make)| kernel(name.to_owned(), ptx, make));
    five.chain(others)
}

fn kernel(name: String, ptx: &'static str, make: Maker) -> Kernel {
    let make = move |seed| make(ptx, &mut Seed(seed).generator(3000));
    Kernel {
        name,
        make: Box::new(make),
    }
}

/// A launch whose parameters are the addresses of its buffers, and perhaps a number. Everything is
/// exact.
fn launch(
    (ptx, kernel): (&'static str, &str),
    shape: ([u32; 3], [u32; 3]),
    buffers: Vec<Vec<u8>>,
    number: Option<u32>,
    expected: Option<Vec<Vec<u8>>>,
) -> Subject {
    Subject {
        ptx,
        kernel: kernel.to_owned(),
        shape,
        usual: shape,
        shared_bytes: 0,
        rules: vec![Rule::Exact(4); buffers.len()],
        buffers,
        parameters: Box::new(move |at| {
            let mut bytes: Vec<u8> = at.iter().flat_map(|a| a.to_le_bytes()).collect();
            bytes.extend(number.iter().flat_map(|n| n.to_le_bytes()));
            bytes
        }),
        expected,
    }
}

fn row(blocks: u32, threads: u32) -> ([u32; 3], [u32; 3]) {
    ([blocks, 1, 1], [threads, 1, 1])
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn some(count: usize, mut value: impl FnMut() -> f32) -> Vec<f32> {
    (0..count).map(|_| value()).collect()
}

/// A whole number from `-limit` to `limit`, times `unit`.
fn whole(random: &mut Generator, limit: u32, unit: f32) -> f32 {
    (random.u32() % (2 * limit + 1)) as f32 * unit - limit as f32 * unit
}

fn sums(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn add(ptx: &'static str, random: &mut Generator) -> Subject {
    let count = 900 + (random.u32() % 100) as usize;
    let [a, b] = [(); 2].map(|()| some(1000, || random.finite()));
    let mut c = sums(&a, &b);
    c[count..].fill(0.0);
    let [a, b, c] = [a, b, c].map(|values| bytes(&values));
    let before = vec![a.clone(), b.clone(), vec![0; 4000]];
    let number = Some(count as u32);
    launch(
        (ptx, "vadd"),
        row(8, 128),
        before,
        number,
        Some(vec![a, b, c]),
    )
}

/// Quarters, which add up exactly in any order.
fn reduce(ptx: &'static str, random: &mut Generator) -> Subject {
    let count = 4900 + (random.u32() % 200) as usize;
    let values = some(count, || whole(random, 40, 0.25));
    let sum = bytes(&[values.iter().sum()]);
    let values = bytes(&values);
    let before = vec![values.clone(), vec![0; 4]];
    let number = Some(count as u32);
    launch(
        (ptx, "reduce"),
        row(20, 256),
        before,
        number,
        Some(vec![values, sum]),
    )
}

fn histogram(ptx: &'static str, random: &mut Generator) -> Subject {
    let values: Vec<u32> = (0..10_000).map(|_| random.u32() & random.u32()).collect();
    let mut bins = [0_u32; 16];
    values.iter().for_each(|v| bins[(v & 15) as usize] += 1);
    let raw = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let before = vec![raw(&values), vec![0; 64]];
    let after = vec![raw(&values), raw(&bins)];
    launch(
        (ptx, "hist"),
        row(40, 256),
        before,
        Some(10_000),
        Some(after),
    )
}

fn butterfly(ptx: &'static str, _: &mut Generator) -> Subject {
    let sums: Vec<f32> = (0..64)
        .map(|i| if i < 32 { 496.0 } else { 1520.0 })
        .collect();
    let before = vec![vec![0; 256]];
    launch(
        (ptx, "shfl"),
        row(1, 64),
        before,
        None,
        Some(vec![bytes(&sums)]),
    )
}

fn matmul(ptx: &'static str, random: &mut Generator) -> Subject {
    let n = 16 * (1 + random.u32() as usize % 4);
    let [a, b] = [(); 2].map(|()| some(n * n, || random.moderate()));
    let of = |i: usize| {
        let (row, column) = (i / n, i % n);
        (0..n).fold(0.0, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum))
    };
    let c = bytes(&(0..n * n).map(of).collect::<Vec<f32>>());
    let (a, b) = (bytes(&a), bytes(&b));
    let before = vec![a.clone(), b.clone(), vec![0; 4 * n * n]];
    let tiles = n as u32 / 16;
    let shape = ([tiles, tiles, 1], [16, 16, 1]);
    launch(
        (ptx, "matmul"),
        shape,
        before,
        Some(n as u32),
        Some(vec![a, b, c]),
    )
}

fn numba(ptx: &'static str, random: &mut Generator) -> Subject {
    let [a, b] = [(); 2].map(|()| some(200, || random.finite()));
    let c = bytes(&sums(&a, &b));
    let (a, b) = (bytes(&a), bytes(&b));
    let before = vec![a.clone(), b.clone(), vec![0; 800]];
    // The one kernel of the module has a mangled name.
    let kernel = ptx
        .split(".entry ")
        .nth(1)
        .and_then(|rest| rest.split('(').next());
    let kernel = kernel.expect("there is a kernel").trim();
    let mut subject = launch(
        (ptx, kernel),
        row(2, 128),
        before,
        None,
        Some(vec![a, b, c]),
    );
    // An array is: parent twice, number of items, size of an item, data, shape, stride.
    subject.parameters = Box::new(|at| {
        let words = at.iter().flat_map(|data| [0, 0, 200, 4, *data, 200, 4]);
        words.flat_map(u64::to_le_bytes).collect()
    });
    subject
}

fn add_four(ptx: &'static str, random: &mut Generator) -> Subject {
    let [a, b] = [(); 2].map(|()| some(4, || random.finite()));
    let c = bytes(&sums(&a, &b));
    let (a, b) = (bytes(&a), bytes(&b));
    let before = vec![vec![0; 16], a.clone(), b.clone()];
    launch((ptx, "E_4"), row(1, 1), before, None, Some(vec![c, a, b]))
}

/// A generator of random numbers, from a counter and a seed.
fn random_numbers(ptx: &'static str, random: &mut Generator) -> Subject {
    let [counter, seed] = [(); 2].map(|()| random.u64().to_le_bytes().to_vec());
    let before = vec![vec![0; 4 * 4096], counter, seed];
    launch((ptx, "E_64_32_2"), row(64, 32), before, None, None)
}

/// Whole numbers whose products add up exactly.
fn product_sum(ptx: &'static str, random: &mut Generator) -> Subject {
    let [a, b] = [(); 2].map(|()| some(4096, || whole(random, 8, 1.0)));
    let of = |i: usize| (0..64).map(move |k| (i / 64 * 64 + k, k * 64 + i % 64));
    let products = (0..4096).flat_map(of).map(|(i, j)| f64::from(a[i] * b[j]));
    let sum = bytes(&[products.sum::<f64>() as f32]);
    let (a, b) = (bytes(&a), bytes(&b));
    let before = vec![vec![0; 4], a.clone(), b.clone()];
    let after = Some(vec![sum, a, b]);
    launch((ptx, "r_16_64_4_64"), row(1, 16), before, None, after)
}

/// Whole numbers whose products are exact in half, and their sum in single precision. Both factors
/// come from one buffer of 128 rows: each row is multiplied by each, so that the sums of columns
/// are squared.
fn local_sum(ptx: &'static str, random: &mut Generator) -> Subject {
    let rows = some(16 * 4096, || whole(random, 3, 1.0));
    let column = |k: usize| rows.iter().skip(k).step_by(512).sum::<f32>();
    let squares = (0..512).map(|k| f64::from(column(k)).powi(2));
    let sum = bytes(&[squares.sum::<f64>() as f32]);
    let rows = bytes(&rows);
    let before = vec![vec![0; 4], rows.clone()];
    launch(
        (ptx, "r_16_512_8_128"),
        row(1, 16),
        before,
        None,
        Some(vec![sum, rows]),
    )
}
