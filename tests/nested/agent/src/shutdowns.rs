//! A probe on the place where KVM learns that a guest has shut down by a triple fault, before it
//! resets the guest's registers. What it finds is in tracefs, in the file `trace`
//! (`docs/nested.md`, "What was seen, and how far it is explained").

use std::fs;

/// Where the machine's kernel has its probes.
const TRACING: &str = "/sys/kernel/tracing";
/// Where `shutdown_interception` has the pointer to the guest's control block: in the structure
/// `vcpu_svm` of Debian's kernel 6.1, which its first argument points to. In another kernel the
/// probe shows other memory, or none.
const CONTROL_BLOCK: &str = "+0x1998(%di)";
/// What is shown, and where the control block has it (AMD64 APM volume 2, appendix B).
const FIELDS: &[(&str, &str)] = &[
    ("rip", "0x578"),
    ("rsp", "0x5d8"),
    ("cr2", "0x640"),
    ("cr3", "0x550"),
    ("idt", "0x488"),
    ("event", "0x88"),
    ("nested_cr3", "0xb0"),
];

/// Sets the probe. A kernel without one can do all else.
pub fn watch() {
    let fields = FIELDS
        .iter()
        .map(|(name, offset)| format!(" {name}=+{offset}({CONTROL_BLOCK}):x64"));
    let fields: String = fields.collect();
    let probe = format!("p:shutdown kvm_amd:shutdown_interception{fields}\n");
    let enabled = fs::write(format!("{TRACING}/kprobe_events"), probe)
        .and_then(|()| fs::write(format!("{TRACING}/events/kprobes/shutdown/enable"), "1"));
    if let Err(error) = enabled {
        eprintln!("nested-agent: registers of guests that shut down will not be known: {error}");
    }
}
