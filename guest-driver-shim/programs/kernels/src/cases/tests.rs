//! What must hold of every case whatever runs the kernels.

use std::format;
use std::vec;
use std::vec::Vec;

use super::{CASES, case};
use crate::case::{CASE_BYTES_MAX, Case, PARAMETER_BYTES_MAX, Role};
use crate::rule::Rule;

fn filled_with(case: &Case, seed: u64) -> Vec<Vec<u8>> {
    let fill = |(index, buffer): (usize, &crate::Buffer)| {
        let mut bytes = vec![0xee; buffer.bytes];
        case.fill_with(seed, index, &mut bytes);
        bytes
    };
    case.buffers.iter().enumerate().map(fill).collect()
}

fn filled(case: &Case) -> Vec<Vec<u8>> {
    filled_with(case, 0)
}

fn expected(case: &Case) -> Vec<Vec<u8>> {
    expected_with(case, 0)
}

fn expected_with(case: &Case, seed: u64) -> Vec<Vec<u8>> {
    let mut buffers = filled_with(case, seed);
    let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(|buffer| &mut buffer[..]).collect();
    case.reference(&mut slices);
    buffers
}

#[test]
fn names_are_unique_and_are_those_of_kernels() {
    for (index, one) in CASES.iter().enumerate() {
        assert!(
            one.ptx.contains(&format!(".entry {}(", one.name)),
            "{}",
            one.name
        );
        assert!(
            CASES[..index].iter().all(|other| other.name != one.name),
            "{}",
            one.name
        );
        assert!(core::ptr::eq(case(one.name).unwrap(), one));
    }
    assert!(case("").is_none());
}

#[test]
fn a_reference_changes_outputs_and_leaves_inputs_alone() {
    for case in CASES {
        let (before, after) = (filled(case), expected(case));
        for (index, buffer) in case.buffers.iter().enumerate() {
            let same = before[index] == after[index];
            assert_eq!(
                same,
                buffer.role == Role::Input,
                "{}: buffer {index}",
                case.name
            );
            let zero = before[index].iter().all(|&byte| byte == 0);
            assert_eq!(
                zero,
                buffer.role == Role::Output,
                "{}: buffer {index}",
                case.name
            );
        }
        assert_eq!(after, expected(case), "{}: not the same twice", case.name);
    }
}

#[test]
fn no_reference_has_a_word_that_is_not_a_number() {
    for case in CASES {
        for (index, bytes) in expected(case).iter().enumerate() {
            if let Rule::Near { .. } = case.buffers[index].rule {
                let finite = bytes
                    .chunks(4)
                    .enumerate()
                    .all(|(i, _)| crate::words::f32_at(bytes, i).is_finite());
                assert!(finite, "{}: buffer {index}", case.name);
            }
        }
    }
}

#[test]
fn other_seeds_give_other_inputs_and_their_own_results() {
    for case in CASES {
        let fillings: Vec<_> = (0..3).map(|seed| filled_with(case, seed)).collect();
        let results: Vec<_> = (0..3).map(|seed| expected_with(case, seed)).collect();
        assert_eq!(fillings[0], filled(case), "{}: the usual seed", case.name);
        for (index, buffer) in case.buffers.iter().enumerate() {
            if buffer.role == Role::Input {
                let [a, b, c] = [0, 1, 2].map(|seed: usize| &fillings[seed][index]);
                assert!(a != b && b != c && a != c, "{}: buffer {index}", case.name);
            }
        }
        assert!(
            results[0] != results[1] && results[1] != results[2],
            "{}",
            case.name
        );
    }
}

/// A NaN has many bit patterns, and a kernel may come out with another than the reference.
#[test]
fn no_seed_makes_a_float_that_is_not_a_number() {
    for name in [
        "vector_add",
        "saxpy",
        "matmul_32",
        "stencil",
        "constant",
        "warp_shuffle",
        "nbody",
        "elementary",
    ] {
        let case = case(name).unwrap();
        // The results of single precision: what follows the inputs.
        let outputs = match name {
            "saxpy" => 1..2,
            "vector_add" | "matmul_32" => 2..3,
            "constant" | "stencil" => 1..2,
            "warp_shuffle" => 2..3,
            _ => 1..3,
        };
        for seed in 0..2 {
            let results = expected_with(case, seed);
            for bytes in &results[outputs.clone()] {
                let words = 0..bytes.len() / 4;
                let mut floats = words.map(|i| crate::words::f32_at(bytes, i));
                assert!(!floats.any(f32::is_nan), "{name}: seed {seed}");
            }
        }
    }
}

#[test]
fn sizes_are_within_what_a_guest_provides_for() {
    for case in CASES {
        let bytes: usize = case.buffers.iter().map(|buffer| buffer.bytes).sum();
        assert!(bytes <= CASE_BYTES_MAX, "{}: {bytes} bytes", case.name);
        assert!(
            case.buffers
                .iter()
                .all(|buffer| buffer.bytes.is_multiple_of(4)),
            "{}",
            case.name
        );
        assert!(case.block.iter().product::<u32>() <= 1024, "{}", case.name);
    }
}

/// The sizes of a kernel's parameters as its PTX declares them.
fn declared_sizes(case: &Case) -> Vec<usize> {
    let from = case.ptx.find(&format!(".entry {}(", case.name)).unwrap();
    let list = &case.ptx[from..][..case.ptx[from..].find(')').unwrap()];
    let size = |line: &str| {
        line.split_once(".param .")
            .map(|(_, rest)| if rest.starts_with("u64") { 8 } else { 4 })
    };
    list.lines().filter_map(size).collect()
}

#[test]
fn parameters_are_packed_as_the_kernel_declares_them() {
    for case in CASES {
        let mut end = 0;
        for size in declared_sizes(case) {
            end = usize::next_multiple_of(end, size) + size;
        }
        let addresses: Vec<u64> = (0..8).map(|k| 0x1111_2222_0000 + k).collect();
        let mut space = [0; PARAMETER_BYTES_MAX];
        assert_eq!(
            case.parameters(&addresses, &mut space),
            end,
            "{}",
            case.name
        );
    }
}

#[test]
fn saxpy_puts_its_pointer_where_it_is_aligned() {
    let mut space = [0; PARAMETER_BYTES_MAX];
    let used = case("saxpy")
        .unwrap()
        .parameters(&[0xaaaa, 0xbbbb], &mut space);
    assert_eq!(used, 28);
    assert_eq!(crate::words::u64_at(&space, 1), 0xaaaa);
    assert_eq!(crate::words::u64_at(&space, 2), 0xbbbb);
}

#[test]
fn one_wrong_bit_is_found_where_it_is() {
    for case in CASES {
        let want = expected(case);
        for (index, buffer) in case.buffers.iter().enumerate() {
            let mut got = want[index].clone();
            // The top byte of the last word: sign and exponent, where the word is a number.
            *got.last_mut().unwrap() ^= 0x40;
            let mismatch = case.compare(index, &want[index], &got).unwrap_err();
            let width = if let Rule::Exact(width) = buffer.rule {
                width
            } else {
                4
            };
            assert_eq!(
                (mismatch.buffer, mismatch.word),
                (index, buffer.bytes / width - 1),
                "{mismatch}"
            );
            assert_eq!(case.compare(index, &want[index], &want[index]), Ok(()));
        }
    }
}

#[test]
fn a_near_rule_allows_the_bound_and_no_more() {
    let case = case("elementary").unwrap();
    let want = expected(case);
    let nudged = |by: f32| {
        let mut got = want[1].clone();
        let value = crate::words::f32_at(&got, 40);
        crate::words::put_f32(&mut got, 40, value + by);
        case.compare(1, &want[1], &got)
    };
    assert_eq!(nudged(5.0e-7), Ok(()));
    assert_eq!(nudged(1.0e-4).unwrap_err().word, 40);
    assert_eq!(nudged(f32::NAN).unwrap_err().word, 40);
}
