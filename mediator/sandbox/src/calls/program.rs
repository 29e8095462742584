//! Filters, as the kernel takes them.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// Conditions on the arguments of a call: it is meant if one of the rules holds; without rules,
/// always.
pub type Rules = Vec<SeccompRule>;

/// Offset of the number in what a filter sees of a call (`struct seccomp_data`).
const NUMBER: u32 = 0;

/// Answers calls with a higher number than `last` with ENOSYS, as a kernel does that lacks them:
/// those of later kernels, and those of the x32 ABI, which have a bit of their own in the number. A
/// list of what is forbidden would let them through.
pub fn up_to(last: u32) -> BpfProgram {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let if_greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let instruction = |code: u32, jt, jf, k| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    vec![
        instruction(load, 0, 0, NUMBER),
        instruction(if_greater, 0, 1, last),
        instruction(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        instruction(end, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
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
    SeccompFilter::new(rules, others, these, TargetArch::x86_64)?.try_into()
}
