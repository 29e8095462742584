//! `--json`: what a program did on the GPU.

use std::time::Duration;

use causeway_run::report::GpuReport;
use causeway_serve::EndedSessions;
use causeway_terminal::Origin;
use causeway_vmm::host::Host;
use serde::Serialize;

/// Name and version of the schema.
const SCHEMA: &str = "causeway.cuda/1";

/// The report.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CudaReport {
    /// Name and version of this format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'static str,
    /// Version of Causeway that made the report.
    causeway: &'static str,
    #[serde(flatten)]
    origin: Origin,
    /// The machine on which the program ran.
    host: Host,
    /// The values of `--gpu`.
    gpus: Vec<String>,
    /// Exit status of the program, or 128 and the number of the signal that ended it.
    program_status: u8,
    /// Time from the start of the program to its end, in nanoseconds.
    program_ns: u64,
    /// What each process of the program did on each GPU that it used, in the order of their ends.
    sessions: Vec<GpuReport>,
    /// Sessions after the first 4,096, which are not in `sessions`.
    sessions_left_out: u64,
}

/// Returns the JSON schema of reports.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    causeway_terminal::schema_of::<CudaReport>(SCHEMA)
}

impl CudaReport {
    /// Returns the report of a program that ended with this status after this time.
    pub fn new(
        origin: Origin,
        gpus: &[String],
        (status, lived): (u8, Duration),
        ended: &EndedSessions,
    ) -> Self {
        let (reports, sessions_left_out) = ended.take();
        let sessions = reports
            .iter()
            .map(|(gpu, report)| GpuReport::of(*gpu, report));
        Self {
            schema: SCHEMA,
            causeway: env!("CARGO_PKG_VERSION"),
            origin: origin.ended(),
            host: Host::probe(),
            gpus: gpus.to_vec(),
            program_status: status,
            program_ns: u64::try_from(lived.as_nanos()).unwrap_or(u64::MAX),
            sessions: sessions.collect(),
            sessions_left_out,
        }
    }
}
