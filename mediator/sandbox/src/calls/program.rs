//! Filters, as the kernel takes them.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// Conditions on the arguments of a call: it is meant if one of the rules holds; without rules,
/// always.
pub type Rules = Vec<SeccompRule>;

/// Calls in one part of a filter. The library's programs compare a number with one call after the
/// other, and when a filter is installed, the kernel executes it for each call that there is: half
/// a millisecond for 250 calls in one part, a tenth of that in parts.
const PART: usize = 16;

/// Offset of the number in what a filter sees of a call (`struct seccomp_data`).
const NUMBER: u32 = 0;

/// Answers calls with a higher number than `last` with ENOSYS, as a kernel does that lacks them:
/// those of later kernels, and those of the x32 ABI, which have a bit of their own in the number. A
/// list of what is forbidden would let them through.
pub fn up_to(last: u32) -> BpfProgram {
    let if_greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    vec![
        load_number(),
        instruction(if_greater, 0, 1, last),
        instruction(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn load_number() -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER)
}

/// Returns a filter that takes `action` for the calls of `rules`, and lets the others through.
pub fn on(rules: BTreeMap<i64, Rules>, action: SeccompAction) -> Result<BpfProgram, BackendError> {
    compiled(rules, SeccompAction::Allow, action)
}

/// Returns a filter that lets the calls of `rules` through, and takes `action` for the others.
pub fn except(
    rules: BTreeMap<i64, Rules>,
    action: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    compiled(rules, action, SeccompAction::Allow)
}

fn compiled(
    rules: BTreeMap<i64, Rules>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut rules: Vec<_> = rules.into_iter().collect();
    let mut parts = Vec::new();
    while !rules.is_empty() || parts.is_empty() {
        let rest = rules.split_off(rules.len().min(PART));
        let first = rules.first().map_or(0, |(number, _)| *number);
        let of_part = std::mem::replace(&mut rules, rest).into_iter().collect();
        let filter =
            SeccompFilter::new(of_part, others.clone(), these.clone(), TargetArch::x86_64)?;
        parts.push((first as u32, BpfProgram::try_from(filter)?));
    }
    Ok(joined(parts))
}

/// Joins filters to one that leads each call to one of them: to the last whose number is not
/// greater than that of the call, or to the first. Their numbers rise.
fn joined(parts: Vec<(u32, BpfProgram)>) -> BpfProgram {
    let if_not_less = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let jump = |over: usize| instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, over as u32);
    let mut program = vec![load_number()];
    // In front of the parts: two instructions for each but the last, and a jump to the last.
    let mut left = 2 * parts.len() - 1;
    let mut parts_before = 0;
    for ((_, part), (next, _)) in parts.iter().zip(&parts[1..]) {
        left -= 2;
        program.push(instruction(if_not_less, 1, 0, *next));
        program.push(jump(left + parts_before));
        parts_before += part.len();
    }
    program.push(jump(parts_before));
    program.extend(parts.into_iter().flat_map(|(_, part)| part));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the kernel would, for the few instructions that there are.
    fn execute(program: &[sock_filter], number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let it = &program[at];
            at += 1;
            let code = u32::from(it.code);
            if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                loaded = number;
            } else if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K {
                let not_less = loaded >= it.k;
                at += usize::from(if not_less { it.jt } else { it.jf });
            } else if code == libc::BPF_JMP | libc::BPF_JA {
                at += it.k as usize;
            } else {
                return it.k;
            }
        }
    }

    #[test]
    fn each_call_is_led_to_its_part() {
        let end = libc::BPF_RET | libc::BPF_K;
        // Parts of different lengths, of which only the first instruction counts.
        let part = |first: u32| {
            let ends = (0..=first).map(|more| instruction(end, 0, 0, first + 1000 * more));
            (first, ends.collect::<BpfProgram>())
        };
        for firsts in [&[3][..], &[3, 7], &[3, 7, 20, 21]] {
            let program = joined(firsts.iter().copied().map(part).collect());
            for number in 0..30 {
                let last = firsts.iter().rfind(|first| **first <= number);
                let wanted = last.unwrap_or(&firsts[0]);
                assert_eq!(execute(&program, number), *wanted, "{firsts:?}: {number}");
            }
        }
    }
}
