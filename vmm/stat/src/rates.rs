//! Rates per second between two snapshots of a guest.

use std::collections::BTreeMap;

use causeway_mediator::Statistics;
use causeway_mediator::statistics::{Kind, STATISTICS};

use causeway_publisher::snapshot::{Guest, Session, Vm};

const NS_PER_S: f64 = 1e9;

/// How often events of one guest occurred per second, over one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Length of the interval in nanoseconds. The first interval of a guest begins when the guest
    /// starts.
    pub interval_ns: u64,
    /// Rates of events that only VMs have; absent for a client process of `serve`.
    pub vm: Option<VmRates>,
    /// Rates of the session's counters; absent if the session did not answer at the start or end of
    /// the interval.
    pub session: Option<SessionRates>,
}

/// Rates per second of events that only VMs have: their exits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmRates {
    /// Rates of KVM's statistics by name; absent if KVM keeps none.
    pub kvm: Option<BTreeMap<String, f64>>,
    /// Rates of exits that reached the VMM, by reason, device and register.
    pub vmm_exits: BTreeMap<String, f64>,
}

/// Rates per second of a session's statistics. Only counters have a rate; for other statistics, the
/// value is 0.
pub type SessionRates = Statistics<f64>;

impl Rates {
    /// Returns the rates per second between two states of a guest, `earlier` and `later`. If
    /// `earlier` is absent or belongs to another guest of the same name, the rates are those since
    /// the guest started.
    pub fn between(earlier: Option<&Guest>, later: &Guest) -> Self {
        // A new guest may have the same name; its clock started at 0.
        let earlier = earlier
            .filter(|earlier| earlier.taken_ns < later.taken_ns && earlier.ran_ns <= later.ran_ns);
        let interval_ns = earlier.map_or(later.ran_ns, |e| later.taken_ns - e.taken_ns);
        let rate = Rate { interval_ns };
        let vm = later.vm.as_ref();
        let session = later.session.as_ref();
        Self {
            interval_ns,
            vm: vm.map(|vm| VmRates::between(rate, earlier.and_then(|e| e.vm.as_ref()), vm)),
            session: match earlier.map(|e| &e.session) {
                Some(None) => None,
                Some(Some(earlier)) => session.map(|s| rate.of_session(earlier, s)),
                None => session.map(|s| rate.of_session(&Session::default(), s)),
            },
        }
    }
}

impl Rates {
    /// Returns the share of the interval in which the session had work under way on the GPU, 0 to
    /// 1; `None` if the rates of the session are not known.
    pub fn busy_share(&self) -> Option<f64> {
        Some((self.session?.busy_ns / NS_PER_S).clamp(0.0, 1.0))
    }
}

impl VmRates {
    fn between(rate: Rate, earlier: Option<&Vm>, later: &Vm) -> Self {
        let kvm = later.kvm.as_ref();
        Self {
            kvm: kvm.map(|kvm| rate.of_all(earlier.and_then(|e| e.kvm.as_ref()), kvm)),
            vmm_exits: rate.of_all(earlier.map(|e| &e.vmm_exits), &later.vmm_exits),
        }
    }

    /// Returns the number of exits per second that KVM counted, or `None` if KVM keeps no
    /// statistics.
    pub fn exits(&self) -> Option<f64> {
        self.kvm.as_ref()?.get("exits").copied()
    }

    /// Returns exits per second by KVM's reason, the most frequent first, without reasons that did
    /// not occur.
    ///
    /// KVM counts some exits without a reason: page faults, and accesses to devices and ports that
    /// the Linux kernel completes. They are returned together as `other`.
    pub fn by_reason(&self) -> Vec<(&str, f64)> {
        let Some(kvm) = &self.kvm else {
            return Vec::new();
        };
        let named = kvm.iter().filter(|(name, _)| !name.starts_with("vm:"));
        let mut reasons: Vec<(&str, f64)> = named
            .filter_map(|(name, rate)| Some((name.strip_suffix("_exits")?, *rate)))
            .collect();
        let known: f64 = reasons.iter().map(|(_, rate)| rate).sum();
        let others = self.exits().unwrap_or(0.0) - known;
        reasons.push(("other", others.max(0.0)));
        most_first(reasons)
    }

    /// Returns exits per second that reached the VMM, by reason, device and register, the most
    /// frequent first, without those that did not occur.
    pub fn by_cause(&self) -> Vec<(&str, f64)> {
        let causes = self.vmm_exits.iter();
        most_first(causes.map(|(name, rate)| (name.as_str(), *rate)).collect())
    }
}

fn most_first(mut rates: Vec<(&str, f64)>) -> Vec<(&str, f64)> {
    rates.retain(|(_, rate)| *rate > 0.0);
    rates.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    rates
}

/// Converts counts to rates.
#[derive(Clone, Copy)]
struct Rate {
    interval_ns: u64,
}

impl Rate {
    /// Returns 0 if the count decreased, because it was restarted, or if the interval is empty.
    fn of(self, earlier: u64, later: u64) -> f64 {
        if self.interval_ns == 0 {
            return 0.0;
        }
        later.saturating_sub(earlier) as f64 * NS_PER_S / self.interval_ns as f64
    }

    fn of_session(self, earlier: &Session, later: &Session) -> SessionRates {
        let (before, now) = (earlier.statistics.values(), later.statistics.values());
        SessionRates::from_values(std::array::from_fn(|i| match STATISTICS[i].kind {
            Kind::Counter => self.of(*before[i], *now[i]),
            Kind::Peak | Kind::Limit | Kind::Gauge => 0.0,
        }))
    }

    fn of_all(
        self,
        earlier: Option<&BTreeMap<String, u64>>,
        later: &BTreeMap<String, u64>,
    ) -> BTreeMap<String, f64> {
        let before = |name: &String| earlier.and_then(|earlier| earlier.get(name));
        let rate = |(name, count): (&String, &u64)| {
            let before = before(name).copied().unwrap_or(0);
            (name.clone(), self.of(before, *count))
        };
        later.iter().map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::fixture::{guest, later};

    #[test]
    fn rates_are_what_was_counted_by_what_time_went_by() {
        let rates = Rates::between(Some(&guest()), &later());
        assert_eq!(rates.interval_ns, 1_000_000_000);
        assert_eq!(rates.busy_share(), Some(0.42));
        let vm = rates.vm.unwrap();
        assert_eq!(vm.exits(), Some(250.0));
        assert_eq!(
            vm.by_reason(),
            [("irq", 100.0), ("other", 100.0), ("io", 50.0)]
        );
        assert_eq!(vm.by_cause(), [("io:testdev:record", 50.0)]);
        let session = rates.session.unwrap();
        assert_eq!((session.launches, session.packets), (1500.0, 1600.0));
        assert_eq!(session.written_bytes, f64::from(1 << 20));
        assert_eq!(session.copies, 0.0);
    }

    #[test]
    fn a_first_look_has_the_rates_of_the_whole_life() {
        let rates = Rates::between(None, &guest());
        assert_eq!(rates.interval_ns, 10_000_000_000);
        assert_eq!(rates.vm.unwrap().exits(), Some(250.0));
        assert_eq!(rates.session.unwrap().launches, 50.0);
    }

    #[test]
    fn another_guest_of_the_same_name_begins_anew() {
        let mut young = later();
        young.ran_ns = 2_000_000_000;
        let rates = Rates::between(Some(&guest()), &young);
        assert_eq!(rates.interval_ns, 2_000_000_000);
        let same = Rates::between(Some(&guest()), &guest());
        assert_eq!(same, Rates::between(None, &guest()), "a moment has no rate");
    }

    #[test]
    fn nothing_is_made_up_when_counts_go_back_or_a_session_does_not_answer() {
        let (mut early, mut late) = (guest(), later());
        early.session.as_mut().unwrap().statistics.launches = 1 << 60;
        let session = |e: &Guest, l: &Guest| Rates::between(Some(e), l).session;
        assert_eq!(Rates::default().busy_share(), None);
        assert_eq!(session(&early, &late).unwrap().launches, 0.0);
        early.session = None;
        assert_eq!(session(&early, &late), None);
        late.session = None;
        assert_eq!(session(&guest(), &late), None);
        late.ran_ns = 0;
        assert_eq!(Rates::between(None, &late).vm.unwrap().exits(), Some(0.0));
    }

    #[test]
    fn a_kvm_without_statistics_has_no_rates() {
        let mut guest = guest();
        guest.vm.as_mut().unwrap().kvm = None;
        let vm = Rates::between(None, &guest).vm.unwrap();
        assert_eq!(vm.exits(), None);
        assert!(vm.by_reason().is_empty());
    }
}
