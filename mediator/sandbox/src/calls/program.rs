//! Filters, as the kernel takes them.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// Conditions on the arguments of a call: it is meant if one of the rules holds; without rules,
/// always.
pub type Rules = Vec<SeccompRule>;

/// Calls in one part of a filter. Programs compare a number with one call after the other, and when
/// a filter is installed, the kernel executes it for each call that there is: half a millisecond
/// for 250 calls in one part, a tenth of that in parts.
const PART: usize = 16;

/// Offsets of the number and of the architecture in what a filter sees of a call (`struct
/// seccomp_data`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const X86_64: u32 = 0xc000_003e;

/// Answers `calls`, and those with a higher number than `last`, with ENOSYS, as a kernel does that
/// lacks them. Higher numbers are those of later kernels, and those of the x32 ABI, which have a
/// bit of their own in the number. A list of what is forbidden would let them through.
pub fn absent(calls: &[i64], last: u32) -> BpfProgram {
    let if_greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    // Over the comparisons behind each, and over what lets others through.
    let to_error = |left: usize| (left + 1) as u8;
    let mut program = vec![
        load(NUMBER),
        instruction(if_greater, to_error(calls.len()), 0, last),
    ];
    let compare =
        |(left, call): (usize, &i64)| instruction(if_equal, to_error(left), 0, *call as u32);
    program.extend((0..calls.len()).rev().zip(calls).map(compare));
    program.push(end(libc::SECCOMP_RET_ALLOW));
    program.push(end(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    program
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn end(answer: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, answer)
}

fn jump(over: usize) -> sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, over as u32)
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
        let of_part = std::mem::replace(&mut rules, rest);
        parts.push((first as u32, part(of_part, &others, &these)?));
    }
    Ok(joined(parts))
}

/// Returns the program of one part, which finds the number loaded. The library makes those of calls
/// with conditions; for others, it takes five instructions where one does, and the kernel takes as
/// long to install them as to start a thread.
fn part(
    rules: Vec<(i64, Rules)>,
    others: &SeccompAction,
    these: &SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let (always, conditional): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|(_, rules)| rules.is_empty());
    let mut program = BpfProgram::new();
    for (left, (call, _)) in (0..always.len()).rev().zip(&always) {
        // Over the comparisons behind this one, and the jump.
        program.push(instruction(if_equal, (left + 1) as u8, 0, *call as u32));
    }
    program.push(jump(1));
    program.push(end(these.clone().into()));
    if conditional.is_empty() {
        program.push(end(others.clone().into()));
        return Ok(program);
    }
    let filter = SeccompFilter::new(
        conditional.into_iter().collect(),
        others.clone(),
        these.clone(),
        TargetArch::x86_64,
    )?;
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Joins parts to a filter that leads each call to one of them: to the last whose number is not
/// greater than that of the call, or to the first. Their numbers rise. Calls of other architectures
/// end the process, because the same numbers are other calls there.
fn joined(parts: Vec<(u32, BpfProgram)>) -> BpfProgram {
    let if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let if_not_less = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let mut program = vec![
        load(ARCHITECTURE),
        instruction(if_equal, 1, 0, X86_64),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
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

    /// A call, as a filter sees it.
    struct Call {
        number: u32,
        architecture: u32,
        first_argument: u32,
    }

    /// Returns what the kernel would.
    fn execute(program: &[sock_filter], call: &Call) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let it = &program[at];
            at += 1;
            let code = u32::from(it.code);
            let jump = |is_true| usize::from(if is_true { it.jt } else { it.jf });
            if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                loaded = match it.k {
                    NUMBER => call.number,
                    ARCHITECTURE => call.architecture,
                    // The lower half of the first argument, and the upper one.
                    16 => call.first_argument,
                    _ => 0,
                };
            } else if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K {
                at += jump(loaded >= it.k);
            } else if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K {
                at += jump(loaded > it.k);
            } else if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K {
                at += jump(loaded == it.k);
            } else if code == libc::BPF_JMP | libc::BPF_JA {
                at += it.k as usize;
            } else {
                assert_eq!(code, libc::BPF_RET | libc::BPF_K);
                return it.k;
            }
        }
    }

    fn answer(program: &[sock_filter], number: u32, first_argument: u32) -> u32 {
        let call = Call {
            number,
            architecture: X86_64,
            first_argument,
        };
        execute(program, &call)
    }

    #[test]
    fn calls_are_absent_by_name_or_by_number() {
        for calls in [&[][..], &[4], &[4, 9, 2]] {
            let program = absent(calls, 20);
            for number in 0..30 {
                let is_absent = number > 20 || calls.contains(&i64::from(number));
                let error = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
                let wanted = if is_absent {
                    error
                } else {
                    libc::SECCOMP_RET_ALLOW
                };
                assert_eq!(answer(&program, number, 0), wanted, "{calls:?}: {number}");
            }
        }
    }

    #[test]
    fn each_call_is_answered_by_its_rules() {
        use seccompiler::SeccompCmpArgLen::Dword;
        use seccompiler::{SeccompCmpOp, SeccompCondition};
        let is_seven = || {
            let condition = SeccompCondition::new(0, Dword, SeccompCmpOp::Eq, 7).unwrap();
            vec![SeccompRule::new(vec![condition]).unwrap()]
        };
        let error = SeccompAction::Errno(5);
        for count in [0, 1, 15, 16, 17, 100] {
            // Every third call, and every sixth with a condition.
            let rules = (0..count).map(|index| match index % 2 {
                0 => (3 * index, Vec::new()),
                _ => (3 * index, is_seven()),
            });
            let rules: BTreeMap<_, _> = rules.collect();
            let refuses = on(rules.clone(), error.clone()).unwrap();
            let allows = except(rules, error.clone()).unwrap();
            for number in 0..320 {
                let is_in = number % 3 == 0 && i64::from(number) < 3 * count;
                for argument in [7, 8] {
                    let is_meant = is_in && (number % 6 == 0 || argument == 7);
                    let (meant, other) = (answer(&refuses, number, argument), error.clone().into());
                    let allowed = libc::SECCOMP_RET_ALLOW;
                    let wanted = if is_meant { other } else { allowed };
                    assert_eq!(meant, wanted, "{count}: {number} {argument}");
                    let wanted = if is_meant { allowed } else { other };
                    let allowed = answer(&allows, number, argument);
                    assert_eq!(allowed, wanted, "{count}: {number} {argument}");
                }
            }
        }
    }

    #[test]
    fn calls_of_other_architectures_end_the_process() {
        let program = on(BTreeMap::new(), SeccompAction::Errno(5)).unwrap();
        let call = Call {
            number: 1,
            // `AUDIT_ARCH_I386` of linux/audit.h.
            architecture: 0x4000_0003,
            first_argument: 0,
        };
        let answer = execute(&program, &call);
        assert_eq!(answer, libc::SECCOMP_RET_KILL_PROCESS);
    }
}
