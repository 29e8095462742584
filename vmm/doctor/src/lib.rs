//! `causeway doctor`: checks which features this host supports, and says how to enable the others.

mod check;
mod cuda;
mod cuda_pairs;
mod gpu;
mod kvm;
mod links;
mod memory;
mod pci_path;
mod processors;
mod sandbox;
mod vfio;

use std::process::ExitCode;

use causeway_vmm::host::Host;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};

use check::{Check, State};
pub use links::print as print_links;

/// Arguments of `causeway doctor`, as the user typed them.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Print the findings as JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Name and version of the format. Fields may be added; if the meaning of a field changes, so does
/// the number.
const SCHEMA: &str = "causeway.doctor/1";

/// What `--json` prints.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Diagnosis {
    /// Name and version of this format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'static str,
    /// The machine on which the command ran.
    host: Host,
    /// What was found out, in the order of the table.
    findings: Vec<Check>,
}

/// Checks KVM, processors, memory, the sandbox, VFIO and GPUs of this host, and prints the
/// findings. The returned exit code is that of [`Code::Kvm`] if guests cannot run because KVM is
/// not usable, else success, whatever the other findings are.
///
/// # Errors
/// A report failure if standard output cannot be written.
pub fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let mut findings = kvm::findings();
    findings.extend(processors::findings());
    findings.extend(memory::findings());
    // Before GPUs, whose libraries start threads: this one forks.
    findings.extend(sandbox::findings());
    findings.extend(vfio::findings());
    findings.extend(gpu::findings());
    let diagnosis = Diagnosis {
        schema: SCHEMA,
        host: Host::probe(),
        findings,
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&diagnosis)
            .map_err(|e| Failure::new(Code::Report, "cannot encode the results as JSON", e))?
    } else {
        table(&diagnosis)
    };
    terminal::print_results(&format!("{text}\n"))?;
    let no_kvm = |f: &Check| f.name == kvm::NAME && f.state == State::No;
    Ok(match diagnosis.findings.iter().any(no_kvm) {
        true => Code::Kvm.into(),
        false => ExitCode::SUCCESS,
    })
}

/// Returns the JSON schema of findings.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    terminal::schema_of::<Diagnosis>(SCHEMA)
}

fn table(diagnosis: &Diagnosis) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    let width = terminal::output_width().unwrap_or(terminal::WIDTH_ELSEWHERE);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table.set_header(["", "what", "found", "means"]);
    for finding in &diagnosis.findings {
        let mark = match finding.state {
            State::Yes => "yes",
            State::Partly => "~",
            State::No => "no",
        };
        let means = match &finding.how {
            Some(how) => format!("{}\n-> {how}", finding.means),
            None => finding.means.clone(),
        };
        table.add_row([mark, finding.name, &finding.found, &means]);
    }
    format!("{}\n\n{}", diagnosis.host, table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_right_says_what_to_do() {
        let findings = memory::findings()
            .into_iter()
            .chain(processors::findings())
            .chain(sandbox::findings())
            .chain(vfio::findings())
            .chain(gpu::findings());
        for finding in findings {
            assert_eq!(
                finding.how.is_none(),
                finding.state == State::Yes,
                "{}",
                finding.name
            );
            assert!(
                !finding.found.is_empty() && !finding.means.is_empty(),
                "{}",
                finding.name
            );
        }
    }
}
