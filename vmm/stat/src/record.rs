//! The output of `causeway stat --json`: one JSON object in a line for each guest and interval.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_mediator::statistics::Kind;
use serde::Serialize;

use super::rates::{Rates, SessionRates, VmRates};
use causeway_publisher::rights::Rights;
use causeway_publisher::snapshot::{Aperture, Guest, Session, Snapshot, Vm};

/// Name and version of the format of each line (docs/observing.md). Fields may be added; if the
/// meaning of a field changes, so does the number.
pub const SCHEMA: &str = "causeway.stat/1";

/// One line of `causeway stat --json`: a guest over one interval.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record<'a> {
    /// Name and version of this format.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    schema: &'static str,
    /// When the interval ended, in milliseconds since 1970.
    time_unix_ms: u64,
    /// Length of the interval in nanoseconds.
    interval_ns: u64,
    /// Process ID of the process that runs the guest.
    pid: u32,
    /// What the process is: `run` or `serve`.
    command: &'a str,
    /// What `--gpu` of the process chose.
    gpu: &'a str,
    /// Memory of the process beyond guest and GPU memory, in bytes.
    own_bytes: u64,
    /// Name of the guest.
    guest: &'a str,
    /// Which of the guest's GPUs this is about, from 0.
    gpu_index: usize,
    /// Which of the process's GPUs that is, from 0.
    gpu_number: u32,
    /// `runs`, `paused` or `ended`.
    state: &'static str,
    /// Time since the guest's first instruction, or since the process that is served connected, in
    /// nanoseconds.
    ran_ns: u64,
    /// How much of the guest's aperture is used.
    aperture: Aperture,
    /// Statistics that only VMs have; null for a process that is served, and for a further GPU of a
    /// VM.
    vm: Option<VmRecord<'a>>,
    /// Statistics of the session; null if it does not answer.
    session: Option<SessionRecord>,
    /// Rights to memory that the guest has given to others, and has of others.
    rights: &'a Rights,
}

/// Statistics of a VM.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct VmRecord<'a> {
    /// Number of virtual CPUs.
    vcpus: u32,
    /// Guest RAM in bytes.
    memory_bytes: u64,
    /// All exits by KVM's count, per second; null on a KVM that keeps no statistics.
    exits_per_s: Option<f64>,
    /// These exits by reason, without reasons that did not occur.
    exits_by_reason_per_s: BTreeMap<&'a str, f64>,
    /// Exits that reached the VMM, by reason, device and register, per second, without those that
    /// did not occur.
    vmm_exits_per_s: BTreeMap<&'a str, f64>,
    /// All of KVM's counters, per second.
    kvm_per_s: &'a Option<BTreeMap<String, f64>>,
    /// All of KVM's counters since the guest began.
    kvm: &'a Option<BTreeMap<String, u64>>,
    /// Exits that reached the VMM since the guest began.
    vmm_exits: &'a BTreeMap<String, u64>,
}

/// Statistics of a session.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SessionRecord {
    #[serde(flatten)]
    now: Session,
    /// Share of the interval in which work was under way on the GPU, 0 to 1; null if the session
    /// did not answer when the interval began.
    busy_share: Option<f64>,
    /// Counters by name; null if the session did not answer when the interval began.
    per_s: Option<BTreeMap<&'static str, f64>>,
}

impl<'a> Record<'a> {
    /// Returns the record of `guest`, which runs in `process`, for the interval that has just
    /// ended. `rates` are its rates in this interval.
    pub fn new(process: &'a Snapshot, guest: &'a Guest, rates: &'a Rates) -> Self {
        let vm = guest.vm.as_ref().zip(rates.vm.as_ref());
        Self {
            schema: SCHEMA,
            time_unix_ms: now_unix_ms(),
            interval_ns: rates.interval_ns,
            pid: process.pid,
            command: &process.command,
            gpu: &process.gpu,
            own_bytes: process.own_bytes,
            guest: &guest.name,
            gpu_index: guest.gpu_index,
            gpu_number: guest.gpu_number,
            state: match (guest.ended, guest.paused) {
                (true, _) => "ended",
                (false, true) => "paused",
                (false, false) => "runs",
            },
            ran_ns: guest.ran_ns,
            aperture: guest.aperture,
            vm: vm.map(|(vm, rates)| VmRecord::new(vm, rates)),
            session: guest.session.map(|now| SessionRecord {
                now,
                busy_share: rates.busy_share(),
                per_s: rates.session.map(|rates| counters(&rates)),
            }),
            rights: &guest.rights,
        }
    }
}

impl<'a> VmRecord<'a> {
    fn new(vm: &'a Vm, rates: &'a VmRates) -> Self {
        Self {
            vcpus: vm.vcpus,
            memory_bytes: vm.memory_bytes,
            exits_per_s: rates.exits(),
            exits_by_reason_per_s: rates.by_reason().into_iter().collect(),
            vmm_exits_per_s: rates.by_cause().into_iter().collect(),
            kvm_per_s: &rates.kvm,
            kvm: &vm.kvm,
            vmm_exits: &vm.vmm_exits,
        }
    }
}

fn counters(rates: &SessionRates) -> BTreeMap<&'static str, f64> {
    let counters = rates.iter().filter(|(s, _)| s.kind == Kind::Counter);
    counters.map(|(s, rate)| (s.name, rate)).collect()
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::fixture;

    #[test]
    fn a_record_has_figures_and_rates_under_the_documented_names() {
        let process = fixture::snapshot();
        let (guest, later) = (&process.guests[0], fixture::later());
        let rates = Rates::between(Some(guest), &later);
        let record = serde_json::to_value(Record::new(&process, &later, &rates)).unwrap();
        assert_eq!(record["schema"], SCHEMA);
        assert_eq!(record["interval_ns"], 1_000_000_000);
        assert_eq!(record["gpu_number"], 0);
        let further = fixture::further_gpu();
        let further = serde_json::to_value(Record::new(&process, &further, &rates)).unwrap();
        assert_eq!(further["gpu_number"], 1);
        assert_eq!(
            (&record["pid"], &record["state"]),
            (&4711.into(), &"runs".into())
        );
        assert_eq!(record["vm"]["exits_per_s"], 250.0);
        assert_eq!(record["vm"]["exits_by_reason_per_s"]["irq"], 100.0);
        assert_eq!(record["vm"]["kvm"]["exits"], 2750);
        assert_eq!(record["session"]["launches"], 2000);
        assert_eq!(record["session"]["busy_share"], 0.42);
        assert_eq!(record["session"]["kernel_ns"], 2_650_000_000_u64);
        assert_eq!(record["session"]["per_s"]["launches"], 1500.0);
        assert_eq!(record["aperture"]["used_bytes"], 64 << 20);
        assert_eq!(record["rights"]["given"][1]["access"], "read-write");
        assert_eq!(record["rights"]["held"][0]["bytes"], 8 << 20);
    }

    #[test]
    fn a_record_has_every_statistic_and_every_rate_of_a_counter() {
        let process = fixture::snapshot();
        let later = fixture::later();
        let rates = Rates::between(Some(&process.guests[0]), &later);
        let record = serde_json::to_value(Record::new(&process, &later, &rates)).unwrap();
        for statistic in &causeway_mediator::statistics::STATISTICS {
            let session = &record["session"];
            assert!(session[statistic.name].is_u64(), "{statistic:?}");
            let is_counter = statistic.kind == Kind::Counter;
            assert_eq!(
                session["per_s"][statistic.name].is_f64(),
                is_counter,
                "{statistic:?}"
            );
        }
    }

    #[test]
    fn a_guest_that_is_paused_is_told_as_such_until_it_ends() {
        let process = fixture::snapshot();
        let mut guest = process.guests[0].clone();
        guest.paused = true;
        let state = |guest: &Guest| {
            let rates = Rates::between(None, guest);
            let record = Record::new(&process, guest, &rates);
            serde_json::to_value(record).unwrap()["state"].clone()
        };
        assert_eq!(state(&guest), "paused");
        guest.ended = true;
        assert_eq!(state(&guest), "ended");
    }

    #[test]
    fn a_session_that_does_not_answer_is_null() {
        let process = fixture::snapshot();
        let silent = &process.guests[1];
        let rates = Rates::between(None, silent);
        let record = serde_json::to_value(Record::new(&process, silent, &rates)).unwrap();
        assert!(record["session"].is_null());
        assert_eq!(record["state"], "ended");
    }
}
