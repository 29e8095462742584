//! A snapshot as OpenMetrics text (the OpenMetrics specification, 1.0.0: "Text format").

use std::collections::BTreeMap;
use std::fmt;

use causeway_mediator::statistics::{self, STATISTICS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::rights::{Right, Rights};
use super::snapshot::{Guest, Snapshot, Vm};
use MetricType::{Counter, Gauge, Info};

const NS_PER_S: f64 = 1e9;
/// HTTP content type of OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the snapshot as OpenMetrics text, which ends with `# EOF`.
pub fn render(snapshot: &Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SnapshotCollector(snapshot.clone())));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// A family of metrics: name (with suffix `_bytes` or `_seconds` if that is its unit), kind and
/// help text. Values of a family in seconds are given in nanoseconds.
struct Family<'a>(&'a str, MetricType, &'static str);

const PROCESS: Family = Family("causeway_process", Info, "The process that has the guests.");
const OWN: Family = Family(
    "causeway_process_own_bytes",
    Gauge,
    "Memory of the process that is neither guest nor GPU memory.",
);
const KVM: Family = Family(
    "causeway_vm_kvm_events",
    Counter,
    "KVM's own counters by their names, exits and io_exits among them, summed over virtual CPUs.",
);
const VMM: Family = Family(
    "causeway_vm_user_exits",
    Counter,
    "Exits that reached the VMM, by reason, device and register.",
);

const GIVEN: Family = Family(
    "causeway_gpu_rights_given_bytes",
    Gauge,
    "Memory that exports give to guests on a GPU (peer), by right.",
);
const HELD: Family = Family(
    "causeway_gpu_rights_held_bytes",
    Gauge,
    "Memory of guests on a GPU (peer) that imports reach, by right.",
);

/// Name, help text and value of a gauge that guests have. The value is absent if a guest has none.
type GuestGauge = (&'static str, &'static str, fn(&Guest) -> Option<u64>);

const GUESTS: [GuestGauge; 8] = [
    ("causeway_vm_vcpus", "Virtual CPUs.", |guest| {
        Some(guest.vm.as_ref()?.vcpus.into())
    }),
    ("causeway_vm_memory_bytes", "Guest RAM.", |guest| {
        Some(guest.vm.as_ref()?.memory_bytes)
    }),
    (
        "causeway_guest_running",
        "Whether the guest runs (1) or has ended (0).",
        |guest| (guest.gpu_index == 0).then_some((!guest.ended).into()),
    ),
    (
        "causeway_aperture_size_bytes",
        "Size of the aperture.",
        |guest| Some(guest.aperture.bytes),
    ),
    (
        "causeway_aperture_used_bytes",
        "Bytes of the aperture that mappings use.",
        |guest| Some(guest.aperture.used_bytes),
    ),
    (
        "causeway_aperture_placements",
        "Mappings in the aperture.",
        |guest| Some(guest.aperture.placements),
    ),
    (
        "causeway_guest_gpu_number",
        "Number of the guest's GPU among those of the process, from 0.",
        |guest| Some(guest.gpu_number.into()),
    ),
    (
        "causeway_gpu_lost",
        "Whether the guest has lost the device (1), and has not reset it.",
        |guest| Some(guest.session.as_ref()?.lost.into()),
    ),
];

/// The metrics of one snapshot.
#[derive(Debug)]
struct SnapshotCollector(Snapshot);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let (pid, encoder) = (snapshot.pid.to_string(), &mut encoder);
        begin(encoder, &PROCESS)?.encode_info(&[
            ("command", snapshot.command.as_str()),
            ("gpu", &snapshot.gpu),
            ("pid", &pid),
            ("version", &snapshot.causeway),
        ])?;
        begin(encoder, &OWN)?.encode_gauge(&snapshot.own_bytes)?;
        let guests = &snapshot.guests;
        named(encoder, &KVM, guests, "counter", |vm| vm.kvm.as_ref())?;
        named(encoder, &VMM, guests, "cause", |vm| Some(&vm.vmm_exits))?;
        for (name, help, value) in GUESTS {
            each(encoder, &Family(name, Gauge, help), guests, value)?;
        }
        for (i, statistic) in STATISTICS.iter().enumerate() {
            let name = format!("causeway_gpu_{}", statistic.metric);
            let kind = match statistic.kind {
                statistics::Kind::Counter => Counter,
                _ => Gauge,
            };
            let value = |guest: &Guest| Some(*guest.session.as_ref()?.statistics.values()[i]);
            each(encoder, &Family(&name, kind, statistic.help), guests, value)?;
        }
        rights(encoder, &GIVEN, guests, |rights| {
            let given = rights.given.iter();
            given.map(|it| (it.gpu, it.access, it.bytes)).collect()
        })?;
        rights(encoder, &HELD, guests, |rights| {
            let held = rights.held.iter();
            held.map(|it| (it.gpu, it.access, it.bytes)).collect()
        })
    }
}

/// Encodes the lines that describe a family.
fn begin<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    Family(name, kind, help): &Family<'e>,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    if let Some(name) = name.strip_suffix("_bytes") {
        return encoder.encode_descriptor(name, help, Some(&Unit::Bytes), *kind);
    }
    if let Some(name) = name.strip_suffix("_seconds") {
        return encoder.encode_descriptor(name, help, Some(&Unit::Seconds), *kind);
    }
    encoder.encode_descriptor(name, help, None, *kind)
}

/// Encodes a family with one sample for each guest that has a value.
fn each(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family<'_>,
    guests: &[Guest],
    value: impl Fn(&Guest) -> Option<u64>,
) -> fmt::Result {
    let mut metric = begin(encoder, family)?;
    for guest in guests {
        if let Some(value) = value(guest) {
            sample(&mut metric, family, &[("guest", &guest.name)], value)?;
        }
    }
    Ok(())
}

/// Encodes a family with samples that `label` tells apart, for each VM that has any.
fn named(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family<'_>,
    guests: &[Guest],
    label: &str,
    counts: impl Fn(&Vm) -> Option<&BTreeMap<String, u64>>,
) -> fmt::Result {
    let mut metric = begin(encoder, family)?;
    for guest in guests {
        let counts = guest.vm.as_ref().and_then(&counts);
        for (name, count) in counts.into_iter().flatten() {
            let labels = [("guest", guest.name.as_str()), (label, name)];
            sample(&mut metric, family, &labels, *count)?;
        }
    }
    Ok(())
}

/// Encodes a family of rights, which are given by GPU, right and bytes.
fn rights(
    encoder: &mut DescriptorEncoder<'_>,
    family: &Family<'_>,
    guests: &[Guest],
    of: impl Fn(&Rights) -> Vec<(u32, Right, u64)>,
) -> fmt::Result {
    let mut metric = begin(encoder, family)?;
    for guest in guests {
        for (gpu, access, bytes) in of(&guest.rights) {
            let gpu = gpu.to_string();
            let labels = [
                ("guest", guest.name.as_str()),
                ("peer", &gpu),
                ("access", access.name()),
            ];
            sample(&mut metric, family, &labels, bytes)?;
        }
    }
    Ok(())
}

fn sample(
    metric: &mut MetricEncoder<'_>,
    family: &Family<'_>,
    labels: &[(&str, &str)],
    value: u64,
) -> fmt::Result {
    let mut metric = metric.encode_family(&labels)?;
    match family {
        Family(name, Counter, _) if name.ends_with("_seconds") => {
            metric.encode_counter::<NoLabelSet, f64, u64>(&(value as f64 / NS_PER_S), None)
        }
        Family(_, Counter, _) => metric.encode_counter::<NoLabelSet, u64, u64>(&value, None),
        _ => metric.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn is_name(name: &str) -> bool {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
    }

    /// Splits a sample into name, labels and value.
    fn sample(line: &str) -> (&str, Option<&str>, &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        match series.split_once('{') {
            Some((name, labels)) => (name, Some(labels.strip_suffix('}').unwrap()), value),
            None => (series, None, value),
        }
    }

    #[test]
    fn the_text_keeps_to_the_format() {
        let text = render(&fixture::snapshot());
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1);
        let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
        let mut family = ("", "");
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words.as_slice() {
                ["#", "TYPE", name, kind] => {
                    assert_eq!(*name, family.0);
                    assert!(["counter", "gauge", "info"].contains(kind), "{line}");
                    family = (name, kind);
                }
                ["#", "UNIT", name, unit] => {
                    assert_eq!(*name, family.0);
                    assert!(name.ends_with(&format!("_{unit}")), "{line}");
                }
                ["#", "HELP", name, help] => {
                    assert!(is_name(name) && families.insert(*name), "{line}");
                    family = (name, "");
                    assert!(!help.is_empty() && !help.contains(['\\', '"']), "{line}");
                }
                ["#", "EOF"] => {}
                _ => {
                    let (name, labels, value) = sample(line);
                    let suffix = match family.1 {
                        "counter" => "_total",
                        "info" => "_info",
                        _ => "",
                    };
                    assert_eq!(name, format!("{}{suffix}", family.0));
                    let is_time = name.ends_with("_seconds_total");
                    let is_number = value.parse::<u64>().is_ok() || is_time;
                    assert!(is_number && value.parse::<f64>().is_ok(), "{line}");
                    assert!(series.insert((name, labels)), "twice: {line}");
                    for label in labels.into_iter().flat_map(|labels| labels.split(',')) {
                        let (name, value) = label.split_once('=').unwrap();
                        assert!(is_name(name), "{line}");
                        assert!(value.starts_with('"') && value.ends_with('"'), "{line}");
                    }
                }
            }
        }
        assert_eq!(families.len(), 6 + GUESTS.len() + STATISTICS.len());
    }

    #[test]
    fn figures_are_under_their_names() {
        let text = render(&fixture::snapshot());
        for line in [
            "causeway_process_info{command=\"run\",gpu=\"software\",pid=\"4711\",\
             version=\"0.1.0\"} 1",
            "causeway_vm_kvm_events_total{guest=\"vm0\",counter=\"io_exits\"} 1000",
            "causeway_vm_user_exits_total{guest=\"vm0\",\
             cause=\"mmio:registers:control_doorbell\"} 40",
            "causeway_gpu_launches_total{guest=\"vm0\"} 500",
            "# UNIT causeway_gpu_busy_seconds seconds",
            "causeway_gpu_busy_seconds_total{guest=\"vm0\"} 2.5",
            "causeway_gpu_kernel_seconds_total{guest=\"vm0\"} 2.25",
            "# UNIT causeway_gpu_memory_used_bytes bytes",
            "causeway_gpu_memory_used_bytes{guest=\"vm0\"} 134217728",
            "causeway_gpu_queued_units{guest=\"vm0\"} 12",
            "causeway_guest_running{guest=\"vm1\"} 0",
            "causeway_guest_gpu_number{guest=\"vm0\"} 0",
            "causeway_gpu_rights_given_bytes{guest=\"vm0\",peer=\"1\",\
             access=\"read-write\"} 4194304",
            "causeway_gpu_rights_held_bytes{guest=\"vm0\",peer=\"1\",access=\"read\"} 8388608",
        ] {
            assert!(
                text.lines().any(|known| known == line),
                "no `{line}` in\n{text}"
            );
        }
        assert!(
            !text.contains("causeway_gpu_launches_total{guest=\"vm1\"}"),
            "its session does not answer"
        );
    }

    #[test]
    fn a_further_gpu_of_a_vm_is_no_further_vm() {
        let mut snapshot = fixture::snapshot();
        snapshot.guests.push(fixture::further_gpu());
        let text = render(&snapshot);
        let of_gpu = |line: &&str| line.contains("{guest=\"vm0.gpu1\"");
        let series: Vec<_> = text.lines().filter(of_gpu).collect();
        assert!(
            series
                .iter()
                .any(|line| line.starts_with("causeway_gpu_launches"))
        );
        for name in ["causeway_vm_", "causeway_guest_running"] {
            assert!(
                !series.iter().any(|line| line.starts_with(name)),
                "{series:?}"
            );
        }
    }

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        let gpu = "a\"b\\c\nd".to_owned();
        let snapshot = Snapshot {
            gpu,
            ..fixture::snapshot()
        };
        let text = render(&snapshot);
        assert!(text.contains("gpu=\"a\\\"b\\\\c\\nd\""), "{text}");
    }

    /// All texts of fields with this name in a JSON value.
    fn texts_of<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
        match value {
            Value::Array(values) => values.iter().flat_map(|v| texts_of(v, name)).collect(),
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(key, value)| match value.as_str() {
                    Some(text) if key == name => vec![text],
                    _ => texts_of(value, name),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The names of metrics in a query.
    fn names(query: &str) -> impl Iterator<Item = &str> {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("causeway_"))
    }

    #[test]
    fn the_dashboard_asks_only_for_metrics_that_exist() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/grafana-dashboard.json");
        let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let text = render(&fixture::snapshot());
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let exported: BTreeSet<&str> = samples.map(|line| sample(line).0).collect();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() > 10);
        for panel in panels {
            let queries = texts_of(panel, "expr");
            assert!(!queries.is_empty(), "{}", panel["title"]);
            for query in queries {
                assert!(names(query).count() > 0, "{query}");
                for name in names(query) {
                    assert!(exported.contains(name), "no metric {name}: {query}");
                }
            }
        }
        let variables = texts_of(&dashboard["templating"], "query");
        let asked = variables.iter().flat_map(|query| names(query));
        let unknown: Vec<_> = asked.filter(|name| !exported.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
