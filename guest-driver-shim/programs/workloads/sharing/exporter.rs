//! VM 0: exports memory, checks what the importer writes, and computes while the importer faults.

use crate::platform::{Machine, Phase, Totals, figure, open, println};
use crate::{CaseMemory, Pipeline, Required, pattern, refused, run_case};
use causeway_kernels::{CASES, case};
use causeway_shim::{Access, Buffer, Device, ExportToken, MemoryKind, Status};
use causeway_testdev_records::PhasePath;

use super::mail::{Subject, hand_over, hear, heard, tell};
use super::{ANSWER_MASK, SHARED_BYTES};

/// Least number of runs that the exporter makes while the other guest faults.
const RUNS_MIN: usize = 4;

pub fn run(machine: &Machine) {
    let (_, device) = open(machine);
    let space = device.create_space().required("an address space");
    let mut memory = CaseMemory::new(machine);
    let mut pipeline = Pipeline::new(device, &space, 256);

    let phase = Phase::begin(PhasePath::Control, "export");
    let share = || {
        let buffer =
            Buffer::new(device, &space, SHARED_BYTES, MemoryKind::Host).required("shared memory");
        pattern::write(buffer.cpu.window(), 0);
        buffer
    };
    let (read_only, read_write, revocable) = (share(), share(), share());
    let export = |buffer: &Buffer<'_>, access| buffer.allocation.export(access).required("export");
    hand_over(Subject::ReadOnly, export(&read_only, Access::Read));
    hand_over(Subject::ReadWrite, export(&read_write, Access::ReadWrite));
    let revocable_token = export(&revocable, Access::ReadWrite);
    hand_over(Subject::Revocable, revocable_token);
    phase.end(Totals {
        operations: 3,
        ..Totals::default()
    });

    hear(Subject::Answered);
    let phase = Phase::begin(PhasePath::Data, "exporter verifies the answer");
    pattern::verify(read_write.cpu.window(), ANSWER_MASK);
    pattern::verify(read_only.cpu.window(), 0);
    phase.end(Totals {
        operations: 2,
        bytes: 2 * SHARED_BYTES,
        doorbells: 0,
    });

    revoke(device, &revocable_token, &revocable);

    hear(Subject::Faulting);
    let mut runs = 0;
    while runs < RUNS_MIN || !heard(Subject::Recovered) {
        let case = &CASES[runs % CASES.len()];
        run_case(device, &space, &mut pipeline, &mut memory, case, false);
        runs += 1;
    }
    let after = case("vector_add").required("vector_add");
    run_case(device, &space, &mut pipeline, &mut memory, after, true);
    pattern::verify(read_only.cpu.window(), 0);
    pattern::verify(revocable.cpu.window(), 0);
    assert!(
        !device.is_lost(),
        "a fault of the other guest must not reach this one"
    );
    figure(
        "kernels verified while the other guest faulted",
        runs as f64,
        "kernels",
    );
    println!("exporter: {runs} kernels verified while the other guest faulted");
}

fn revoke(device: &Device<'_>, token: &ExportToken, buffer: &Buffer<'_>) {
    hear(Subject::Mapped);
    let phase = Phase::begin(PhasePath::Control, "revoke");
    device.revoke(token).required("revoking");
    phase.end(Totals {
        operations: 1,
        ..Totals::default()
    });
    refused("revoking twice", device.revoke(token), Status::BadToken);
    pattern::verify(buffer.cpu.window(), 0);
    tell(Subject::Revoked);
}
