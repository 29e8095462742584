//! VM 1: imports memory, verifies it, writes where it may, and tries what must be refused.

use crate::platform::{
    DeviceTransport, Machine, Phase, Totals, faults_are_private, holes_can_be_touched, println,
};
use crate::{CaseMemory, Pipeline, Required, pattern, refused, run_case};
use causeway_kernels::case;
use causeway_protocol::registers::Register;
use causeway_shim::{
    Access, AddressSpace, Allocation, Buffer, Device, ExportToken, MemoryKind, Patience, Status,
    Transport, WaitError,
};
use causeway_testdev_records::PhasePath;

use super::mail::{Subject, hear, take, tell};
use super::{ANSWER_MASK, SHARED_BYTES};

/// The word of a store that must have no effect.
const FORBIDDEN: u32 = 0x0bad_0bad;

pub fn run(machine: &Machine) {
    let transport = DeviceTransport::find(machine).required("finding the device");
    let read_only = take(Subject::ReadOnly);
    let mut memory = CaseMemory::new(machine);
    {
        let device = Device::open(&transport).required("opening the device");
        let space = device.create_space().required("an address space");
        verify_and_answer(&transport, &device, &space, &read_only);
        see_revocation(&transport, &device, &space);
        tell(Subject::Faulting);
        if !faults_are_private(&transport) {
            println!("importer: pattern verified, forbidden writes refused");
            return tell(Subject::Recovered);
        }
        lose_the_device(&device, &space, &read_only);
    }
    Device::reset(&transport);
    let device = Device::open(&transport).required("opening the device after the reset");
    assert!(!device.is_lost(), "a reset must bring the device back");
    let space = device
        .create_space()
        .required("an address space after the reset");
    let import = device
        .import(&read_only, Access::Read)
        .required("importing after the reset");
    let mapping = import
        .map_cpu(0, SHARED_BYTES, Access::Read)
        .required("mapping");
    pattern::verify(mapping.window(), 0);
    let mut pipeline = Pipeline::new(&device, &space, 256);
    let after = case("vector_add").required("vector_add");
    run_case(&device, &space, &mut pipeline, &mut memory, after, true);
    tell(Subject::Recovered);
    println!("importer: pattern verified, forbidden writes refused, recovered from a fault");
}

fn verify_and_answer<'d>(
    transport: &DeviceTransport,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
    read_only: &ExportToken,
) {
    refused(
        "more rights than exported",
        device.import(read_only, Access::ReadWrite),
        Status::AccessDenied,
    );
    let mut wrong = *read_only;
    wrong.0[31] ^= 1;
    refused(
        "a wrong token",
        device.import(&wrong, Access::Read),
        Status::BadToken,
    );
    refused(
        "another's export revoked",
        device.revoke(read_only),
        Status::BadToken,
    );

    let import = device
        .import(read_only, Access::Read)
        .required("importing read-only");
    let attributes = device.attributes().required("the attributes");
    let whole = SHARED_BYTES.next_multiple_of(attributes.granularity_bytes);
    assert_eq!(import.bytes(), whole, "what the exporter was given");
    let mapping = import
        .map_cpu(0, SHARED_BYTES, Access::Read)
        .required("mapping");
    // The first access, so that the marked phase has no page fault.
    pattern::verify(mapping.window(), 0);
    let phase = Phase::begin(PhasePath::Data, "importer verifies the pattern");
    pattern::verify(mapping.window(), 0);
    phase.end(Totals {
        operations: 1,
        bytes: SHARED_BYTES,
        doorbells: 0,
    });

    refuse_writes(space, &import, &mapping);
    if holes_can_be_touched(transport) {
        stray_store(transport, &mapping);
    }
    copy_by_gpu(device, space, &import);

    let import = device
        .import(&take(Subject::ReadWrite), Access::ReadWrite)
        .required("importing read-write");
    let mapping = import
        .map_cpu(0, SHARED_BYTES, Access::ReadWrite)
        .required("mapping");
    pattern::verify(mapping.window(), 0);
    let phase = Phase::begin(PhasePath::Data, "importer writes the answer");
    pattern::write(mapping.window(), ANSWER_MASK);
    phase.end(Totals {
        operations: 1,
        bytes: SHARED_BYTES,
        doorbells: 0,
    });
    tell(Subject::Answered);
}

/// Asks in every way for more rights or bytes than the export grants.
fn refuse_writes<'d>(
    space: &AddressSpace<'d>,
    import: &Allocation<'d>,
    mapping: &causeway_shim::CpuMapping<'d>,
) {
    let write = Access::ReadWrite;
    let denied = Status::AccessDenied;
    refused(
        "mapping for writes, CPU",
        import.map_cpu(0, 4096, write),
        denied,
    );
    refused(
        "mapping for writes, GPU",
        import.map_gpu(space, 0, 4096, write),
        denied,
    );
    refused("raising the rights, CPU", mapping.set_access(write), denied);
    let gpu = import
        .map_gpu(space, 0, 4096, Access::Read)
        .required("mapping for the GPU");
    refused("raising the rights, GPU", gpu.set_access(write), denied);
    refused("exporting an import", import.export(Access::Read), denied);
    gpu.unmap().required("unmapping");
}

/// Checks that a store to a read-only mapping changes nothing and is counted as a stray access.
fn stray_store(transport: &DeviceTransport, mapping: &causeway_shim::CpuMapping<'_>) {
    let before = transport.read_register(Register::StrayCount);
    let phase = Phase::begin(PhasePath::Control, "forbidden store");
    mapping
        .store_u32(4096, FORBIDDEN)
        .required("an offset inside");
    phase.end(Totals {
        operations: 1,
        bytes: 4,
        doorbells: 0,
    });
    let after = transport.read_register(Register::StrayCount);
    assert_eq!(after - before, 1, "one forbidden store is one stray access");
    pattern::verify(mapping.window(), 0);
}

/// Checks that the GPU can read memory that was imported read-only.
fn copy_by_gpu<'d>(device: &'d Device<'d>, space: &AddressSpace<'d>, import: &Allocation<'d>) {
    let source = import
        .map_gpu(space, 0, SHARED_BYTES, Access::Read)
        .required("mapping");
    let copy = Buffer::new(device, space, SHARED_BYTES, MemoryKind::Host).required("a copy");
    let mut pipeline = Pipeline::new(device, space, 256);
    let copied = pipeline
        .commands
        .copy(copy.gpu.address(), source.address(), SHARED_BYTES);
    copied.required("copying");
    pipeline.drain();
    pattern::verify(copy.cpu.window(), 0);
}

/// Checks that a revoked import is gone from the aperture at once, and that its handle is refused.
fn see_revocation<'d>(
    transport: &DeviceTransport,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
) {
    let token = take(Subject::Revocable);
    let import = device
        .import(&token, Access::ReadWrite)
        .required("importing");
    let mapping = import
        .map_cpu(0, SHARED_BYTES, Access::ReadWrite)
        .required("mapping");
    pattern::verify(mapping.window(), 0);
    tell(Subject::Mapped);
    hear(Subject::Revoked);
    if holes_can_be_touched(transport) {
        let before = transport.read_register(Register::StrayCount);
        mapping.store_u32(0, FORBIDDEN).required("an offset inside");
        assert_eq!(mapping.load_u32(0), Ok(u32::MAX), "a hole reads all-ones");
        assert_eq!(transport.read_register(Register::StrayCount) - before, 2);
    }
    let read = Access::Read;
    refused(
        "mapping a revoked import",
        import.map_cpu(0, 4096, read),
        Status::Revoked,
    );
    refused(
        "the same, GPU",
        import.map_gpu(space, 0, 4096, read),
        Status::Revoked,
    );
    refused(
        "importing again",
        device.import(&token, read),
        Status::BadToken,
    );
    import.free().required("freeing a revoked import");
}

/// Checks that a GPU write through a read-only mapping is a fault, which loses the device for this
/// session only.
fn lose_the_device<'d>(device: &'d Device<'d>, space: &AddressSpace<'d>, token: &ExportToken) {
    let import = device.import(token, Access::Read).required("importing");
    let target = import
        .map_gpu(space, 0, SHARED_BYTES, Access::Read)
        .required("mapping");
    let mut pipeline = Pipeline::new(device, space, 256);
    pipeline
        .commands
        .fill(target.address(), 4096, FORBIDDEN)
        .required("writing the packet");
    let value = pipeline.finish();
    let stopped = pipeline.wait(value, Patience::default());
    assert!(
        matches!(
            stopped,
            Err(WaitError::Stopped {
                status: Status::MemoryFault,
                ..
            })
        ),
        "a forbidden GPU write must stop the command buffer, not end as {stopped:?}"
    );
    // The session is lost a moment after the command buffer says why it stopped.
    while !device.is_lost() {
        core::hint::spin_loop();
    }
    let fault = device.fault().required("the fault report");
    assert_eq!(Status::from_wire(fault.status), Some(Status::MemoryFault));
    let text = &fault.text[..fault.text_bytes as usize];
    println!(
        "importer: {}",
        core::str::from_utf8(text).unwrap_or("fault text is not UTF-8")
    );
    refused(
        "work on a lost device",
        device.create_space(),
        Status::DeviceLost,
    );
}
