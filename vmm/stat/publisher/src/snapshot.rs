//! A snapshot of a process and its guests: the body of `GET /snapshot`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use causeway_mediator::{Activity, Statistics};
pub use causeway_vmm::aperture::ApertureUse as Aperture;
use causeway_vmm::observer::VmObservation;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::rights::Rights;

/// Name and version of the snapshot's format. New fields may be added in the same version; if the
/// meaning of a field changes, the version after the slash grows.
pub const SCHEMA: &str = "causeway.snapshot/1";

/// State of a process and its guests at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Snapshot {
    /// Name and version of this format: always [`SCHEMA`].
    pub schema: String,
    /// Version of Causeway that the process runs.
    pub causeway: String,
    /// Process ID of the process that runs the guests.
    pub pid: u32,
    /// Subcommand that the process runs: `run` or `serve`.
    pub command: String,
    /// The process's value of `--gpu`: its back end with the keys.
    pub gpu: String,
    /// Memory that the process itself uses, in bytes, without guest RAM and GPU memory; 0 if the
    /// host does not report it.
    pub own_bytes: u64,
    /// The VMs of `run`, or the client processes of `serve`.
    pub guests: Vec<Guest>,
}

/// State of a guest on one of its GPUs. A guest is a VM, or a client process of `serve`. Its
/// counters start at zero when the guest starts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Guest {
    /// Name of the guest, unique in its process: `vm0`, or `process1`. With a GPU other than the
    /// first, its name has the GPU's index: `vm0.gpu1`.
    pub name: String,
    /// Index of the GPU among those of the guest.
    #[serde(default)]
    pub gpu_index: usize,
    /// Number of the GPU among those of the process, from 0.
    #[serde(default)]
    pub gpu_number: u32,
    /// Time at which the snapshot was taken, in nanoseconds of the host's monotonic clock.
    pub taken_ns: u64,
    /// Time for which the guest has run, in nanoseconds: until now, or until its end if it has
    /// ended.
    pub ran_ns: u64,
    /// Whether the guest has ended while its process still runs.
    pub ended: bool,
    /// Whether the guest is paused, or about to be.
    #[serde(default)]
    pub paused: bool,
    /// Statistics that only VMs have; absent for a client process, and with a GPU other than the
    /// first.
    pub vm: Option<Vm>,
    /// How much of the guest's aperture is used.
    pub aperture: Aperture,
    /// Statistics of the guest's session; absent if its worker process does not answer.
    pub session: Option<Session>,
    /// Rights to memory that the guest has given to others, and has of others.
    #[serde(default)]
    pub rights: Rights,
}

/// Statistics that only VMs have: virtual CPUs, RAM and exits.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Vm {
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest RAM in bytes.
    pub memory_bytes: u64,
    /// KVM's statistics by name, summed over virtual CPUs; absent if KVM keeps none.
    pub kvm: Option<BTreeMap<String, u64>>,
    /// Exits that reached the VMM, by reason, device and register, as the VMM counts them.
    pub vmm_exits: BTreeMap<String, u64>,
}

/// Statistics of a session, as the mediator returns them.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// Counters and current values of the session, by name. docs/observing.md explains each.
    #[serde(flatten, with = "statistics")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "every_statistic"))]
    pub statistics: Statistics,
    /// Whether a fault has ended the guest's session, and the guest has not reset the device since.
    pub lost: bool,
}

impl From<Activity> for Session {
    fn from(Activity { statistics, lost }: Activity) -> Self {
        Self { statistics, lost }
    }
}

#[cfg(feature = "schema")]
fn every_statistic(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    crate::schema::statistics_schema(|_| true)
}

/// Statistics as fields by their names.
mod statistics {
    use std::collections::HashMap;

    use causeway_mediator::Statistics;
    use causeway_mediator::statistics::STATISTICS;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    /// Writes each statistic as a field with the statistic's name, which docs/observing.md
    /// explains.
    pub fn serialize<S: Serializer>(values: &Statistics, to: S) -> Result<S::Ok, S::Error> {
        let fields = values.iter();
        to.collect_map(fields.map(|(statistic, value)| (statistic.name, value)))
    }

    /// Reads statistics from fields. Input that lacks one of the statistics is an error.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Statistics, D::Error> {
        let fields = HashMap::<String, u64>::deserialize(from)?;
        let values = STATISTICS.map(|statistic| fields.get(statistic.name).copied());
        if let Some(missing) = values.iter().position(Option::is_none) {
            return Err(D::Error::missing_field(STATISTICS[missing].name));
        }
        Ok(Statistics::from_values(
            values.map(Option::unwrap_or_default),
        ))
    }
}

impl Snapshot {
    /// Returns a snapshot of this process, which runs subcommand `command` with `gpu` as the value
    /// of `--gpu`. `guests` are the current states of its guests.
    pub fn of(command: &str, gpu: &str, guests: Vec<Guest>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            causeway: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            command: command.to_owned(),
            gpu: gpu.to_owned(),
            own_bytes: causeway_vmm::host::own_memory_bytes().unwrap_or(0),
            guests,
        }
    }

    /// Returns the snapshot with every character other than printable ASCII replaced by `?` in
    /// texts, and without counters whose names have such characters. Snapshots of other users'
    /// processes are not trusted.
    #[must_use]
    pub fn printable(mut self) -> Self {
        for text in [&mut self.causeway, &mut self.command, &mut self.gpu] {
            make_printable(text);
        }
        for guest in &mut self.guests {
            make_printable(&mut guest.name);
            if let Some(vm) = &mut guest.vm {
                let counts = vm.kvm.iter_mut().chain([&mut vm.vmm_exits]);
                counts.for_each(|counts| counts.retain(|name, _| name.chars().all(is_shown)));
            }
        }
        self
    }
}

impl Guest {
    /// Returns the current state of a VM, from what was observed of it.
    pub fn vm(seen: VmObservation) -> Self {
        Self {
            name: seen.name,
            gpu_index: seen.gpu,
            gpu_number: seen.gpu_number,
            taken_ns: monotonic_ns(),
            ran_ns: seen.ran_for.map_or(0, nanoseconds),
            ended: seen.ended,
            paused: seen.paused,
            vm: (seen.gpu == 0).then_some(Vm {
                vcpus: seen.vcpus,
                memory_bytes: seen.memory_bytes,
                kvm: seen.kvm,
                vmm_exits: seen.vmm_exits,
            }),
            aperture: seen.aperture,
            session: seen.session.map(Session::from),
            rights: (&seen.rights).into(),
        }
    }

    /// Returns the current state of client process `name` of `serve`, which connected at `since`
    /// and uses `aperture` of its aperture. `session` is the state of its session, or `None` if its
    /// worker process does not answer.
    pub fn process(
        name: String,
        since: Instant,
        aperture: Aperture,
        session: Option<Activity>,
    ) -> Self {
        Self {
            name,
            gpu_index: 0,
            gpu_number: 0,
            taken_ns: monotonic_ns(),
            ran_ns: nanoseconds(since.elapsed()),
            ended: false,
            paused: false,
            vm: None,
            aperture,
            session: session.map(Session::from),
            rights: Rights::default(),
        }
    }
}

/// Returns the time of the host's monotonic clock in nanoseconds.
fn monotonic_ns() -> u64 {
    nanoseconds(
        clock_gettime(ClockId::Monotonic)
            .try_into()
            .unwrap_or_default(),
    )
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Replaces every character of `text` other than printable ASCII by `?`.
pub(crate) fn make_printable(text: &mut String) {
    *text = text.replace(|c| !is_shown(c), "?");
}

/// Returns whether a character is shown as it is. Non-ASCII characters may change the direction of
/// text, or have no width.
fn is_shown(c: char) -> bool {
    c.is_ascii_graphic() || c == ' '
}
