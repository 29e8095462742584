//! Marks: loads and stores of ports, without a record.

use super::*;

/// The ports of a guest's test device.
fn ports(guest: Guest) -> Ports {
    Ports(Arc::new(guest.recorder))
}

/// Makes a store, which must be accepted as one of a record or mark.
fn store(ports: &Ports, store: PortStore) {
    let offset = u64::from(store.port - PORT_EXIT);
    let response = ports.write(offset, &store.value.to_le_bytes());
    assert_eq!(
        (response.register, response.result),
        (MARKER.register, Ok(()))
    );
}

/// What a load from the port of marks returns.
fn answer(ports: &Ports) -> u32 {
    let mut value = [0; 4];
    let offset = u64::from(wire::PORT_MARK - PORT_EXIT);
    assert_eq!(ports.read(offset, &mut value).result, Ok(()));
    u32::from_le_bytes(value)
}

#[test]
fn phases_begin_and_end_by_marks_alone() {
    let ports = ports(guest());
    assert_eq!(
        answer(&ports),
        wire::MARK_DONE,
        "a device answers before any mark"
    );
    store(&ports, wire::end_phase());
    assert_eq!(answer(&ports), wire::MARK_REFUSED, "none is open");
    // What another program has left.
    let left = PortStore {
        port: wire::PORT_TEXT,
        value: u32::from_le_bytes(*b"left"),
    };
    store(&ports, left);
    for (path, name) in [
        (PhasePath::Data, "stores"),
        (PhasePath::Control, "maps"),
        (PhasePath::Setup, ""),
    ] {
        wire::begin_phase(path, name).for_each(|mark| store(&ports, mark));
        assert_eq!(answer(&ports), wire::MARK_DONE);
    }
    store(&ports, wire::end_phase());
    let totals = Totals {
        operations: 1 << 33,
        bytes: 2,
        doorbells: 3,
    };
    wire::report_totals(totals).for_each(|mark| store(&ports, mark));
    let phases = ports.0.report().phases;
    let named: Vec<_> = phases.iter().map(|p| (p.path, p.name.as_str())).collect();
    assert_eq!(
        named,
        [("data", "stores"), ("control", "maps"), ("setup", "")]
    );
    let last = &phases[2];
    assert_eq!(
        (last.operations, last.bytes, last.doorbells),
        (1 << 33, 2, 3)
    );
    assert_eq!(phases[0].operations, 0);
    let unknown = PortStore {
        port: wire::PORT_MARK,
        value: 99,
    };
    store(&ports, unknown);
    assert_eq!(answer(&ports), wire::MARK_REFUSED);
}

#[test]
fn the_end_of_a_program_ends_its_open_phase() {
    let ports = ports(guest());
    store(&ports, Mark::ProgramBegin.into());
    assert!(ports.0.report().program.is_some(), "while it runs");
    wire::begin_phase(PhasePath::Data, "open").for_each(|mark| store(&ports, mark));
    store(&ports, Mark::ProgramEnd.into());
    assert_eq!(answer(&ports), wire::MARK_DONE);
    let report = ports.0.report();
    assert_eq!(report.phases.len(), 1);
    assert!(report.program.is_some());
    store(&ports, Mark::ProgramEnd.into());
    assert_eq!(answer(&ports), wire::MARK_REFUSED, "it has ended");
}

#[test]
fn one_mark_is_made_at_a_time() {
    const PATIENCE: Duration = Duration::from_millis(50);
    let guest = guest();
    std::thread::scope(|scope| {
        let busy = guest.recorder.hold_phases();
        scope.spawn(|| guest.mark(Mark::DataBegin as u32));
        // The mark waits for the phases, and keeps others from its text and its answer meanwhile.
        let is_held = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            guest.recorder.marks_are_held(PATIENCE)
        });
        drop(busy);
        assert!(is_held, "another mark could have come between");
    });
    assert_eq!(guest.mark_answer(), wire::MARK_DONE);
}

#[test]
fn only_whole_loads_of_the_port_of_marks_are_answered() {
    let ports = ports(guest());
    let mark = u64::from(wire::PORT_MARK - PORT_EXIT);
    for (offset, bytes) in [(mark, 1), (mark + 1, 2), (0, 4), (mark - 4, 4)] {
        let mut value = vec![0; bytes];
        assert!(
            ports.read(offset, &mut value).result.is_err(),
            "{offset} {bytes}"
        );
    }
}

proptest! {
    #[test]
    fn any_stores_of_marks_leave_a_device_that_answers(
        stores in prop::collection::vec((any::<bool>(), 0u32..40), 0..200),
    ) {
        let ports = ports(guest());
        for (is_mark, value) in stores {
            let port = if is_mark { wire::PORT_MARK } else { wire::PORT_TEXT };
            store(&ports, PortStore { port, value });
            prop_assert!([wire::MARK_DONE, wire::MARK_REFUSED].contains(&answer(&ports)));
        }
        prop_assert!(ports.0.report().phases.len() <= PHASES_MAX);
    }
}
