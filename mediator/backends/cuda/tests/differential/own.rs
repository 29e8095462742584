//! The project's own kernels: those of the cases, and those for measuring and for misbehaving, kept
//! from misbehaving.

use causeway_kernels::{CASES, Case, Generator, PARAMETER_BYTES_MAX, Rule, Seed, bench, special};

use crate::subject::{Kernel, Subject};

type Maker = fn(u64) -> Subject;

/// All but `multiprocessors`, whose result tells devices apart.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    let cases = CASES.iter().map(|case| Kernel {
        name: case.name.to_owned(),
        make: Box::new(|seed| of_case(case, seed)),
    });
    let others: [(&str, Maker); 7] = [
        (special::WILD_STORE, wild_store),
        (special::WILD_LOAD, wild_load),
        (special::FOREVER, forever),
        (special::SPIN, spin),
        (bench::NOTHING, nothing),
        (bench::ECHO, echo),
        (bench::RESIDUE, residue),
    ];
    cases.chain(others.into_iter().map(|(name, make)| Kernel {
        name: name.to_owned(),
        make: Box::new(make),
    }))
}

fn of_case(case: &'static Case, seed: u64) -> Subject {
    let filled = || -> Vec<Vec<u8>> {
        let fill = |(index, buffer): (usize, &causeway_kernels::Buffer)| {
            let mut bytes = vec![0; buffer.bytes];
            case.fill_with(seed, index, &mut bytes);
            bytes
        };
        case.buffers.iter().enumerate().map(fill).collect()
    };
    let mut expected = filled();
    let mut views: Vec<&mut [u8]> = expected.iter_mut().map(|b| &mut b[..]).collect();
    case.reference(&mut views);
    Subject {
        ptx: case.ptx,
        kernel: case.name.to_owned(),
        shape: case.shape(seed),
        usual: case.shape(0),
        shared_bytes: case.dynamic_shared,
        buffers: filled(),
        rules: case.buffers.iter().map(|buffer| buffer.rule).collect(),
        parameters: Box::new(|addresses| {
            let mut space = [0; PARAMETER_BYTES_MAX];
            let count = case.parameters(addresses, &mut space);
            space[..count].to_vec()
        }),
        expected: Some(expected),
    }
}

fn random(seed: u64) -> Generator {
    Seed(seed).generator(2000)
}

/// A launch in one row of blocks.
fn row(
    (ptx, kernel): (&'static str, &str),
    (blocks, threads): (u32, u32),
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    parameters: impl Fn(&[u64]) -> Vec<u8> + 'static,
) -> Subject {
    let shape = ([blocks, 1, 1], [threads, 1, 1]);
    Subject {
        ptx,
        kernel: kernel.to_owned(),
        shape,
        usual: shape,
        shared_bytes: 0,
        rules: vec![Rule::Exact(4); before.len()],
        buffers: before,
        parameters: Box::new(parameters),
        expected: Some(after),
    }
}

fn wild_store(seed: u64) -> Subject {
    let value = random(seed).u32();
    row(
        (special::PTX, special::WILD_STORE),
        (1, 32),
        vec![vec![0; 8]],
        vec![[value.to_le_bytes(), [0; 4]].concat()],
        move |at| [&at[0].to_le_bytes()[..], &value.to_le_bytes()].concat(),
    )
}

fn wild_load(seed: u64) -> Subject {
    let value = random(seed).u32().to_le_bytes().to_vec();
    row(
        (special::PTX, special::WILD_LOAD),
        (1, 1),
        vec![value.clone(), vec![0; 4]],
        vec![value.clone(), value],
        |at| [at[0].to_le_bytes(), at[1].to_le_bytes()].concat(),
    )
}

/// With a flag that is set already.
fn forever(seed: u64) -> Subject {
    let flag = vec![(random(seed).u32() | 1).to_le_bytes().to_vec()];
    row(
        (special::PTX, special::FOREVER),
        (4, 64),
        flag.clone(),
        flag,
        |at| at[0].to_le_bytes().to_vec(),
    )
}

fn spin(seed: u64) -> Subject {
    let mut random = random(seed);
    let steps = random.u32() % 5000;
    let states: Vec<u32> = (0..512).map(|_| random.u32()).collect();
    let after: Vec<u32> = states.iter().map(|s| special::spun(*s, steps)).collect();
    let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    row(
        (special::PTX, special::SPIN),
        (4, 128),
        vec![bytes(&states)],
        vec![bytes(&after)],
        move |at| [u64::from(steps).to_le_bytes(), at[0].to_le_bytes()].concat(),
    )
}

fn nothing(_: u64) -> Subject {
    let kernel = (bench::PTX, bench::NOTHING);
    row(kernel, (64, 32), Vec::new(), Vec::new(), |_| Vec::new())
}

/// With a mailbox that says the last word.
fn echo(_: u64) -> Subject {
    let end = bench::ECHO_END.to_le_bytes().to_vec();
    row(
        (bench::PTX, bench::ECHO),
        (1, 1),
        vec![end.clone(), vec![0; 8]],
        vec![end.clone(), end],
        |at| [at[0].to_le_bytes(), at[1].to_le_bytes()].concat(),
    )
}

fn residue(seed: u64) -> Subject {
    let mut random = random(seed);
    let words: Vec<u64> = (0..30_000)
        .map(|_| random.u64() & random.u64() & 0x0100_0000_0002_0004)
        .collect();
    let count = words.iter().filter(|word| **word != 0).count() as u64;
    let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    row(
        (bench::PTX, bench::RESIDUE),
        (7, 96),
        vec![memory.clone(), vec![0; 8]],
        vec![memory, count.to_le_bytes().to_vec()],
        |at| [at[0], 30_000, at[1]].map(u64::to_le_bytes).concat(),
    )
}
