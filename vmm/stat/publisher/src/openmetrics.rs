//! A snapshot as OpenMetrics text (the OpenMetrics specification, 1.0.0: "Text format").

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use causeway_mediator::statistics::{self, STATISTICS};

use super::snapshot::{Guest, Snapshot, Vm};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text, with its end mark.
pub fn render(snapshot: &Snapshot) -> String {
    let mut text = Text {
        out: String::new(),
        guests: &snapshot.guests,
    };
    text.process(snapshot);
    text.vms();
    for (family, value) in &GUESTS {
        text.each(family, |guest| Some(value(guest)));
    }
    text.sessions();
    text.out.push_str("# EOF\n");
    text.out
}

/// Kinds of metrics that are used.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Info,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }

    /// What names of samples add to the name of their family.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge => "",
            Self::Info => "_info",
        }
    }
}

/// A family of metrics: its name, which ends with its unit if that is bytes, its kind, and what it is about.
struct Family<'a>(&'a str, Kind, &'static str);

use Kind::{Counter, Gauge, Info};

const PROCESS: Family = Family("causeway_process", Info, "The process that has the guests.");
const OWN: Family = Family(
    "causeway_process_own_bytes",
    Gauge,
    "Memory of the process that is neither guest nor GPU memory.",
);
const VCPUS: Family = Family("causeway_vm_vcpus", Gauge, "Virtual CPUs.");
const RAM: Family = Family("causeway_vm_memory_bytes", Gauge, "Guest RAM.");
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

/// A family, and its value for one guest.
type Figure<T> = (Family<'static>, fn(&T) -> u64);

/// What is known of every guest.
const GUESTS: [Figure<Guest>; 4] = [
    (
        Family(
            "causeway_guest_running",
            Gauge,
            "Whether the guest runs (1) or has ended (0).",
        ),
        |guest| (!guest.ended).into(),
    ),
    (
        Family(
            "causeway_aperture_size_bytes",
            Gauge,
            "Size of the aperture.",
        ),
        |guest| guest.aperture.bytes,
    ),
    (
        Family(
            "causeway_aperture_used_bytes",
            Gauge,
            "Bytes of the aperture at which something is placed.",
        ),
        |guest| guest.aperture.used_bytes,
    ),
    (
        Family(
            "causeway_aperture_placements",
            Gauge,
            "Placements in the aperture.",
        ),
        |guest| guest.aperture.placements,
    ),
];

const LOST: Family = Family(
    "causeway_gpu_lost",
    Gauge,
    "Whether the guest has lost the device (1), and has not reset it.",
);

struct Text<'a> {
    out: String,
    guests: &'a [Guest],
}

impl<'a> Text<'a> {
    fn process(&mut self, snapshot: &Snapshot) {
        self.begin(&PROCESS);
        let pid = snapshot.pid.to_string();
        let labels = [
            ("command", snapshot.command.as_str()),
            ("gpu", &snapshot.gpu),
            ("pid", &pid),
            ("version", &snapshot.causeway),
        ];
        self.sample(&PROCESS, &labels, 1);
        self.begin(&OWN);
        self.sample(&OWN, &[], snapshot.own_bytes);
    }

    fn vms(&mut self) {
        self.each(&VCPUS, |guest| Some(guest.vm.as_ref()?.vcpus));
        self.each(&RAM, |guest| Some(guest.vm.as_ref()?.memory_bytes));
        self.named(&KVM, "counter", |vm| vm.kvm.as_ref());
        self.named(&VMM, "cause", |vm| Some(&vm.vmm_exits));
    }

    fn sessions(&mut self) {
        for (i, statistic) in STATISTICS.iter().enumerate() {
            let name = format!("causeway_gpu_{}", statistic.metric);
            let kind = match statistic.kind {
                statistics::Kind::Counter => Counter,
                _ => Gauge,
            };
            let family = Family(&name, kind, statistic.help);
            self.each(&family, |guest| {
                Some(*guest.session.as_ref()?.statistics.values()[i])
            });
        }
        self.each(&LOST, |guest| Some(u64::from(guest.session.as_ref()?.lost)));
    }

    /// A family with one sample for each guest that has a value.
    fn each<T: Display>(&mut self, family: &Family, value: impl Fn(&Guest) -> Option<T>) {
        self.begin(family);
        for guest in self.guests {
            if let Some(value) = value(guest) {
                self.sample(family, &[("guest", &guest.name)], value);
            }
        }
    }

    /// A family with samples that a label tells apart, for each VM that has any.
    fn named(
        &mut self,
        family: &Family,
        label: &str,
        counts: impl Fn(&'a Vm) -> Option<&'a BTreeMap<String, u64>>,
    ) {
        self.begin(family);
        for guest in self.guests {
            let counts = guest.vm.as_ref().and_then(&counts);
            for (name, count) in counts.into_iter().flatten() {
                self.sample(family, &[("guest", &guest.name), (label, name)], count);
            }
        }
    }

    /// The lines that describe a family. Writing to a string cannot fail.
    fn begin(&mut self, Family(name, kind, help): &Family<'_>) {
        let _ = writeln!(self.out, "# TYPE {name} {}", kind.name());
        if name.ends_with("_bytes") {
            let _ = writeln!(self.out, "# UNIT {name} bytes");
        }
        let _ = writeln!(self.out, "# HELP {name} {help}");
    }

    fn sample(&mut self, family: &Family, labels: &[(&str, &str)], value: impl Display) {
        let Family(name, kind, _) = family;
        let labels = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = match labels.as_str() {
            "" => labels,
            some => format!("{{{some}}}"),
        };
        let _ = writeln!(self.out, "{name}{}{labels} {value}", kind.suffix());
    }
}

/// The value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use std::collections::BTreeSet;

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
                    assert!(is_name(name) && families.insert(*name), "{line}");
                    assert!(["counter", "gauge", "info"].contains(kind), "{line}");
                    family = (name, kind);
                }
                ["#", "UNIT", name, unit] => {
                    assert_eq!(*name, family.0);
                    assert!(name.ends_with(&format!("_{unit}")), "{line}");
                }
                ["#", "HELP", name, help] => {
                    assert_eq!(*name, family.0);
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
                    assert!(value.parse::<u64>().is_ok(), "{line}");
                    assert!(series.insert((name, labels)), "twice: {line}");
                    for label in labels.into_iter().flat_map(|labels| labels.split(',')) {
                        let (name, value) = label.split_once('=').unwrap();
                        assert!(is_name(name), "{line}");
                        assert!(value.starts_with('"') && value.ends_with('"'), "{line}");
                    }
                }
            }
        }
        assert_eq!(families.len(), 7 + GUESTS.len() + STATISTICS.len());
    }

    #[test]
    fn figures_are_under_their_names() {
        let text = render(&fixture::snapshot());
        for line in [
            "causeway_process_info{command=\"run\",gpu=\"software\",pid=\"4711\",version=\"0.1.0\"} 1",
            "causeway_vm_kvm_events_total{guest=\"vm0\",counter=\"io_exits\"} 1000",
            "causeway_vm_user_exits_total{guest=\"vm0\",cause=\"mmio:registers:control_doorbell\"} 40",
            "causeway_gpu_launches_total{guest=\"vm0\"} 500",
            "# UNIT causeway_gpu_memory_used_bytes bytes",
            "causeway_gpu_memory_used_bytes{guest=\"vm0\"} 134217728",
            "causeway_gpu_queued_units{guest=\"vm0\"} 12",
            "causeway_guest_running{guest=\"vm1\"} 0",
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
    fn labels_cannot_break_out_of_their_quotes() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
