//! Findings about KVM, from guests of a dozen bytes.

use std::error::Error;

use causeway_vmm::host::{Host, KvmKind};
use causeway_vmm::kvm::{self, KvmError};
use causeway_vmm::probe::{self, ProbeError};
use causeway_vmm::vm::Privilege;
use kvm_ioctls::Kvm;

use crate::check::Check;

/// Name of the finding that says whether guests can run at all.
pub const NAME: &str = "KVM";

const NO_TRIAL: &str = "it is not known whether guests can run on this host";
const REPORT_IT: &str =
    "read the kernel log (dmesg): another program that uses KVM may be the cause";

/// Checks KVM by guests of a few instructions, and returns the findings.
pub fn findings() -> Vec<Check> {
    match kvm::open() {
        Ok(kvm) => vec![
            kind(),
            privilege(&kvm),
            exits(&kvm),
            slots(&kvm),
            doorbells(&kvm),
            statistics(&kvm),
        ],
        Err(e) => vec![missing(&e)],
    }
}

fn missing(error: &KvmError) -> Check {
    let how = "fix what the message names; without KVM, `cargo test --workspace` tests everything \
               but the guests";
    Check::no(NAME, error.to_string(), "no guest can run", how)
}

fn kind() -> Check {
    let kind = Host::probe().kvm;
    let means = match kind {
        KvmKind::Vmx | KvmKind::Svm => "all guests run at full speed",
        KvmKind::Nested => "all guests run; exits cost more than outside of a VM",
        KvmKind::Software => {
            "bare guests run at full speed; exits cost more than with hardware virtualization"
        }
        KvmKind::Unknown => "the findings below say whether guests run",
        KvmKind::Absent => "no guest can run",
    };
    Check::yes(NAME, kind.text(), means)
}

fn privilege(kvm: &Kvm) -> Check {
    const NAME: &str = "guest code speed";
    let times =
        loop_ns(kvm, Privilege::User).and_then(|user| Ok((user, loop_ns(kvm, Privilege::Kernel)?)));
    let (user, kernel) = match times {
        Ok(times) => times,
        Err(e) => return failed(NAME, &e),
    };
    let found = format!(
        "a loop iteration in a guest takes {} at CPL 3, {} at CPL 0",
        nanoseconds(user),
        nanoseconds(kernel)
    );
    if kernel < user * 100.0 {
        return Check::yes(
            NAME,
            found,
            "guests run at full speed at every privilege level",
        );
    }
    Check::partly(
        NAME,
        found,
        "bare guests run at full speed, at privilege level (CPL) 3; code at CPL 0 is interpreted, \
         so Linux guests are very slow",
        "use a host with VMX or SVM, or enable nested virtualization for this VM",
    )
}

/// Measures a loop iteration. A short trial detects interpreted code; a longer one then measures
/// fast code.
fn loop_ns(kvm: &Kvm, privilege: Privilege) -> Result<f64, ProbeError> {
    let roughly = probe::loop_ns(kvm, privilege, 2_000)?;
    if roughly > 500.0 {
        Ok(roughly)
    } else {
        probe::loop_ns(kvm, privilege, 20_000_000)
    }
}

fn exits(kvm: &Kvm) -> Check {
    const NAME: &str = "exit to user space";
    match probe::exit_ns(kvm, Privilege::User, 2_000) {
        Ok(time) => Check::yes(
            NAME,
            nanoseconds(time),
            "each batch of messages takes at least this time; packets and fences cause no exits",
        ),
        Err(e) => failed(NAME, &e),
    }
}

fn slots(kvm: &Kvm) -> Check {
    const NAME: &str = "memory slots";
    let number = kvm.get_nr_memslots();
    match probe::slot_ns(kvm, 64 << 20, 20) {
        Ok((adding, deleting)) => Check::yes(
            NAME,
            format!(
                "{number} for a VM; adding one of 64 MiB takes {}, deleting {}",
                nanoseconds(adding),
                nanoseconds(deleting)
            ),
            "each mapping of GPU memory for a guest may take a slot",
        ),
        Err(e) => failed(NAME, &e),
    }
}

fn doorbells(kvm: &Kvm) -> Check {
    const NAME: &str = "doorbells (ioeventfd)";
    match probe::doorbell_ns(kvm, Privilege::User, 2_000) {
        Ok(time) => Check::yes(
            NAME,
            format!("{} each; all arrived", nanoseconds(time)),
            "a guest wakes the consumer of a command buffer without an exit to user space",
        ),
        Err(e) => failed(NAME, &e),
    }
}

fn statistics(kvm: &Kvm) -> Check {
    const NAME: &str = "exit statistics";
    if kvm::has_statistics(kvm) {
        return Check::yes(
            NAME,
            "KVM_GET_STATS_FD",
            "reports show KVM's counters of exits beside those of the VMM",
        );
    }
    Check::no(
        NAME,
        "no KVM_GET_STATS_FD",
        "reports show only the VMM's counters of exits, not KVM's",
        "use Linux 5.14 or later",
    )
}

fn failed(name: &'static str, error: &ProbeError) -> Check {
    let cause = error.source();
    let cause = cause.map_or_else(String::new, |e| format!(": {e}"));
    Check::no(name, format!("{error}{cause}"), NO_TRIAL, REPORT_IT)
}

fn nanoseconds(ns: f64) -> String {
    match ns {
        n if n < 100.0 => format!("{n:.2} ns"),
        n if n < 10_000.0 => format!("{n:.0} ns"),
        n => format!("{:.1} µs", n / 1e3),
    }
}
