//! The emulated machine with the `causeway` command of this build in it.

use std::path::Path;

use causeway_nested::{
    Command, Contents, ContentsError, Lease, Outcome, Requirements, Shape, shared,
};

use crate::report::Report;

/// The command under test, in the machine.
pub const CAUSEWAY: &str = "/bin/causeway";
/// A Linux kernel for guests in the machine; its modules are found beside it.
pub const KERNEL: &str = "/guest/vmlinuz";
/// Where runs write their reports.
pub const REPORT: &str = "/tmp/report.json";

/// The machine, or nothing where the host lacks what it needs.
#[track_caller]
pub fn machine(test: &str) -> Option<Lease> {
    shared(test, &Shape::default(), contents)
}

fn contents() -> Result<Contents, ContentsError> {
    let contents =
        Contents::default().program("causeway", Path::new(env!("CARGO_BIN_EXE_causeway")))?;
    match Requirements::find() {
        Ok(requirements) => guest_kernel(contents, &requirements),
        // There is no machine to fill then.
        Err(_) => Ok(contents),
    }
}

/// Adds the machine's own kernel once more, for guests, with the modules that they have a use for.
fn guest_kernel(
    contents: Contents,
    requirements: &Requirements,
) -> Result<Contents, ContentsError> {
    let modules = &requirements.modules;
    let list = modules.list();
    let place = format!("/guest/lib/modules/{}/modules.dep", modules.release());
    let mut contents = contents
        .file(KERNEL, &requirements.kernel)
        .file(&place, &list);
    for module in modules.wanted()? {
        contents = contents.file(&format!("/guest{}", module.guest), &module.host);
    }
    Ok(contents)
}

/// `causeway run` with a report.
pub fn run_command(words: &[&str]) -> Command {
    let mut all = vec!["run", "--json", REPORT, "--timeout", "100"];
    all.extend(words);
    Command::new(CAUSEWAY, &all)
}

/// Runs guests to their end, and reads the report, which is then removed by the next run.
#[track_caller]
pub fn run(machine: &Lease, words: &[&str]) -> (Outcome, Report) {
    let outcome = machine.run(&run_command(words));
    let text = machine.read(REPORT);
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", outcome.text()));
    let report = Report::parse(&String::from_utf8_lossy(&text));
    (outcome, report)
}
