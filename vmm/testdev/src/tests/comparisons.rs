//! Times of the guest beside those of the host, in ticks of its clock.

use super::*;

#[test]
fn times_become_ticks() {
    assert_eq!(ticks(Duration::from_micros(3), 2_000_000), 6000);
    assert_eq!(ticks(Duration::ZERO, 2_000_000), 1);
    assert_eq!(ticks(Duration::MAX, u32::MAX), u64::MAX);
}

#[derive(Debug)]
struct TwiceAsFast;

impl Counterpart for TwiceAsFast {
    fn measure(&self, line: Line, operations: u32, _: u64) -> Option<Duration> {
        (line != Line::EchoDevice).then(|| Duration::from_nanos(u64::from(operations) * 50))
    }
}

/// Repeats an operation when two virtual CPUs have asked for one.
#[derive(Debug)]
struct TwoAtATime(Barrier);

impl Counterpart for TwoAtATime {
    fn measure(&self, _: Line, _: u32, _: u64) -> Option<Duration> {
        self.0.wait();
        Some(Duration::from_nanos(1))
    }
}

fn comparison(line: u32, operations: u32) -> wire::Comparison {
    wire::Comparison {
        header: header::<wire::Comparison>(RecordKind::Comparison),
        line,
        operations,
        bytes: 4096,
        guest_ns: 1000,
        native_ns: 0,
    }
}

fn singles(line: u32, count: u32, address: u64) -> wire::Singles {
    wire::Singles {
        header: header::<wire::Singles>(RecordKind::Singles),
        line,
        count,
        bytes: 4096,
        timer_ns: 5,
        address,
    }
}

/// Hands over the same record from two virtual CPUs, and returns how many of them are kept.
fn hand_twice<T: IntoBytes + Immutable>(guest: &Guest, record: &T) -> usize {
    guest.ram.write(AT, record.as_bytes()).unwrap();
    std::thread::scope(|scope| {
        let threads = [0; 2].map(|_| scope.spawn(|| guest.record(AT as u32)));
        let done = threads.map(|thread| thread.join().unwrap());
        done.iter().filter(|done| **done == Recorded::Done).count()
    })
}

#[test]
fn two_virtual_cpus_report_no_more_than_one_may() {
    let context = RunContext {
        counterpart: Some(Arc::new(TwoAtATime(Barrier::new(2)))),
        ..RunContext::default()
    };
    let guest = guest_with(aperture(), context);
    guest.recorder.fill_but_one();
    let line = Line::Submit as u32;
    assert_eq!(hand_twice(&guest, &comparison(line, 1)), 1);
    assert_eq!(hand_twice(&guest, &singles(line, 1, 0x8000)), 1);
    let report = guest.report();
    assert_eq!(report.samples.len(), SAMPLES_MAX);
    assert_eq!(report.singles.len(), SINGLES_RECORDS_MAX);
}

/// Stops the VM while it repeats the second operation.
#[derive(Debug, Default)]
struct StoppedAtSecond {
    stop: Arc<AtomicBool>,
    begun: AtomicBool,
}

impl Counterpart for StoppedAtSecond {
    fn measure(&self, _: Line, _: u32, _: u64) -> Option<Duration> {
        if self.begun.swap(true, Ordering::Relaxed) {
            self.stop.store(true, Ordering::Relaxed);
        }
        Some(Duration::from_nanos(1))
    }
}

#[test]
fn single_operations_are_not_repeated_for_a_vm_that_must_stop() {
    let counterpart = Arc::new(StoppedAtSecond::default());
    let context = RunContext {
        counterpart: Some(counterpart.clone()),
        ..RunContext::default()
    };
    let guest = guest_that_stops(aperture(), context, &counterpart.stop);
    let recorded = hand(&guest, &singles(Line::Submit as u32, 5, 0x8000)).0;
    assert_eq!(recorded, Recorded::Done);
    assert_eq!(guest.report().singles[0].native_ns.len(), 2);
}

#[test]
fn single_operations_are_repeated_as_often_as_the_guest_did_them() {
    let context = RunContext {
        counterpart: Some(Arc::new(TwiceAsFast)),
        ..RunContext::default()
    };
    let guest = guest_with(aperture(), context);
    let times = [7_u64, 8, 9];
    guest.ram.write(0x8000, times.as_bytes()).unwrap();
    let line = Line::Submit;
    let recorded = hand(&guest, &singles(line as u32, 3, 0x8000)).0;
    assert_eq!(recorded, Recorded::Done);
    let most = wire::SINGLES_MAX as u32;
    for bad in [
        singles(999, 3, 0x8000),
        singles(line as u32, most + 1, 0x8000),
        singles(line as u32, 3, u64::MAX - 8),
    ] {
        assert!(
            matches!(hand(&guest, &bad).0, Recorded::Refused(_)),
            "{bad:?}"
        );
    }
    let [kept] = &guest.report().singles[..] else {
        panic!("one record");
    };
    assert_eq!((kept.line, kept.bytes, kept.timer_ns), (line, 4096, 5));
    assert_eq!(kept.guest_ns, times);
    assert_eq!(kept.native_ns.len(), 3, "as many");
}

#[test]
fn samples_are_compared_at_once_and_kept_with_what_the_host_took() {
    let context = RunContext {
        counterpart: Some(Arc::new(TwiceAsFast)),
        ..RunContext::default()
    };
    let guest = guest_with(aperture(), context);
    let native = |line, operations| {
        let (recorded, reply) = hand(&guest, &comparison(line, operations));
        (recorded, reply.native_ns)
    };
    assert_eq!(native(Line::Submit as u32, 10), (Recorded::Done, 500));
    assert_eq!(native(Line::EchoDevice as u32, 10), (Recorded::Done, 0));
    for (line, operations) in [(0, 1), (999, 1), (Line::Submit as u32, 0)] {
        assert!(matches!(native(line, operations).0, Recorded::Refused(_)));
    }
    let samples = guest.report().samples;
    assert_eq!(samples.len(), 2);
    assert_eq!(
        (samples[0].native_ns, samples[0].guest_ns),
        (Some(500), 1000)
    );
    assert_eq!(samples[1].native_ns, None);
}
