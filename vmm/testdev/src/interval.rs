//! What KVM and the VMM count between two moments of a guest's run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use causeway_vmm::counters::{self, ExitKey};
use causeway_vmm::exit_counts::{ExitSample, VmExits};
use serde::Serialize;

/// Key under which the VMM counts guests' stores to the ports of the test device by which they hand
/// over records, texts and marks.
pub const MARKER: ExitKey = ExitKey::device("io", "testdev", "record");
/// KVM's name for exits by port access. A KVM by software never counts any: it emulates the
/// instruction.
const KVM_IO_EXITS: &str = "io_exits";
/// KVM's name for instructions that it emulated.
const KVM_EMULATIONS: &str = "insn_emulation";
/// KVM's name for exits by accesses to memory that is not RAM.
const KVM_MMIO_EXITS: &str = "mmio_exits";

/// Exits that were counted in a part of a guest's run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountedExits {
    /// Duration of the part in nanoseconds.
    pub duration_ns: u64,
    /// By how much each of KVM's statistics grew, summed over all virtual CPUs, by name. Empty if
    /// KVM keeps no statistics.
    pub kvm_exits: BTreeMap<String, u64>,
    /// Number of exits that the VMM counted, by reason, device and register. Entries that would be
    /// 0 are left out.
    pub vmm_exits: BTreeMap<String, u64>,
    /// Number of stores to doorbells that KVM took without the VMM, as the host counts them; absent
    /// if the host does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm_doorbells: Option<u64>,
}

/// A part of a guest's run that a mark has begun.
#[derive(Debug)]
pub struct Interval {
    exits: ExitSample,
    begin: Instant,
}

impl Interval {
    /// Begins a part at a mark, whose own exit lies before it.
    pub fn begin(exits: &VmExits) -> Self {
        let mut sample = exits.sample();
        // KVM has counted the mark, and the VMM counts it only after the device has returned.
        *sample.vmm.entry(MARKER).or_default() += 1;
        Self {
            exits: sample,
            begin: Instant::now(),
        }
    }

    /// Ends the part at a mark that the guest made at `now`. The one exit of that mark is not part
    /// of the counts.
    pub fn end_at_mark(&self, exits: &VmExits, now: Instant) -> CountedExits {
        let mut counted = self.between(exits, now);
        without_mark(&mut counted.kvm_exits);
        counted
    }

    /// Ends the part at the exit by which the guest has just ended its VM, which both KVM and the
    /// VMM have counted with the cause `exit`. This one exit is not part of the counts.
    pub fn end_at_exit(&self, exits: &VmExits, exit: ExitKey) -> CountedExits {
        let mut counted = self.between(exits, Instant::now());
        let name = exit.to_string();
        if let Some(count) = counted.vmm_exits.remove(&name).filter(|count| *count > 1) {
            counted.vmm_exits.insert(name, count - 1);
        }
        match exit.reason {
            "io" => without_mark(&mut counted.kvm_exits),
            "mmio" => {
                // KVM emulates each of these accesses, too.
                for name in [KVM_MMIO_EXITS, KVM_EMULATIONS] {
                    let count = counted.kvm_exits.get_mut(name);
                    count.into_iter().for_each(|n| *n = n.saturating_sub(1));
                }
            }
            // A triple fault, for example, which none of these counters of KVM counts.
            _ => {}
        }
        counted
    }

    /// Counts up to this moment, for a part that no mark has ended.
    pub fn until_now(&self, exits: &VmExits) -> CountedExits {
        self.between(exits, Instant::now())
    }

    /// Counts up to a sample that is taken now. KVM counts the exit of a mark when the exit begins,
    /// the VMM only after the device has returned: so the VMM's count lacks a mark that the guest
    /// is making.
    fn between(&self, exits: &VmExits, now: Instant) -> CountedExits {
        let mut end = exits.sample();
        // On another virtual CPU, the mark that began the part may still be under way.
        let begun = self.exits.vmm.get(&MARKER).copied().unwrap_or(0);
        let marks = end.vmm.entry(MARKER).or_default();
        *marks = begun.max(*marks);
        CountedExits {
            duration_ns: nanoseconds(now.saturating_duration_since(self.begin)),
            kvm_exits: exits.kvm_between(&self.exits, &end),
            vmm_exits: counters::named(&counters::since(&self.exits.vmm, &end.vmm)),
            kvm_doorbells: self
                .exits
                .doorbells
                .zip(end.doorbells)
                .map(|(begin, end)| end.saturating_sub(begin)),
        }
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Takes the closing mark's own exit out of KVM's count, from wherever this KVM counts port
/// accesses.
fn without_mark(kvm_exits: &mut BTreeMap<String, u64>) {
    for name in [KVM_IO_EXITS, KVM_EMULATIONS] {
        if let Some(count @ 1..) = kvm_exits.get_mut(name) {
            *count -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use causeway_vmm::counters::ExitCounters;
    use causeway_vmm::device::Doorbells;
    use causeway_vmm::hypervisor::NoGuest;
    use causeway_vmm::statistics::VmStatistics;
    use std::sync::Arc;
    use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

    fn counted() -> (Arc<ExitCounters>, VmExits) {
        let counters = Arc::new(ExitCounters::default());
        let statistics = Arc::<VmStatistics>::default();
        let exits = VmExits::new(statistics, vec![Arc::clone(&counters)]);
        (counters, exits)
    }

    #[test]
    fn the_closing_mark_is_taken_from_where_this_kvm_counts_it() {
        let counts = |io, emulated| {
            BTreeMap::from([
                (KVM_IO_EXITS.to_owned(), io),
                (KVM_EMULATIONS.to_owned(), emulated),
            ])
        };
        for (before, after) in [((3, 5), (2, 5)), ((0, 5), (0, 4)), ((0, 0), (0, 0))] {
            let mut kvm = counts(before.0, before.1);
            without_mark(&mut kvm);
            assert_eq!(kvm, counts(after.0, after.1));
        }
    }

    #[test]
    fn the_exit_that_ends_the_vm_is_not_in_the_part_that_it_ends() {
        let (counters, exits) = counted();
        let (port, power) = (
            ExitKey::device("io", "testdev", "exit"),
            ExitKey::device("mmio", "power", "reset"),
        );
        for last in [port, power, ExitKey::plain("shutdown")] {
            let part = Interval::begin(&exits);
            counters.count(MARKER);
            counters.count(last);
            let clean = part.end_at_exit(&exits, last).vmm_exits;
            assert_eq!(clean, BTreeMap::new());
            counters.count(last);
            let others = part.end_at_exit(&exits, last).vmm_exits;
            assert_eq!(others, BTreeMap::from([(last.to_string(), 1)]), "one");
        }
    }

    #[test]
    fn doorbells_are_counted_by_the_host() {
        let (_, exits) = counted();
        let part = Interval::begin(&exits);
        assert_eq!(part.until_now(&exits).kvm_doorbells, None);
        let doorbells = Arc::new(Doorbells::new(Arc::new(NoGuest)));
        let exits = exits.with_doorbells([&doorbells]);
        let event = EventFd::new(EFD_NONBLOCK).unwrap();
        doorbells.bind(0, &event).unwrap();
        // As KVM does at a store.
        event.write(1).unwrap();
        let part = Interval::begin(&exits);
        event.write(1).unwrap();
        event.write(1).unwrap();
        assert_eq!(part.until_now(&exits).kvm_doorbells, Some(2));
    }

    #[test]
    fn a_part_without_a_closing_mark_has_all_exits_since_its_begin() {
        let (counters, exits) = counted();
        let part = Interval::begin(&exits);
        let early = part.until_now(&exits);
        assert!(early.vmm_exits.is_empty(), "its mark is under way");
        counters.count(MARKER);
        counters.count(ExitKey::plain("signal"));
        let exits = part.until_now(&exits).vmm_exits;
        assert_eq!(exits, BTreeMap::from([("signal".to_owned(), 1)]));
    }
}
