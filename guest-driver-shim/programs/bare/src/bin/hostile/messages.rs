//! Attacks operations on memory with every kind of invalid argument.

use causeway_guests::{Required, refused};
use causeway_protocol::message::{self, Status, allocate_flags};
use causeway_protocol::registers::features;
use causeway_shim::{Access, Device, ExportToken, MemoryKind, Operation, operation};

use crate::target::Target;

/// A handle that does not exist yet in a new session.
pub const BOGUS: u32 = 0x7fff_1234;

/// Asserts that a request is refused with a status, and returns the detail.
#[track_caller]
pub fn refuse<O: Operation>(
    target: &mut Target,
    device: &Device<'_>,
    request: &O::Request,
    status: Status,
) -> u32 {
    let detail = refused(O::OPCODE.name(), device.call::<O>(request), status);
    target.survived();
    detail
}

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    allocations(target, &device);
    let granularity = device
        .attributes()
        .required("the attributes")
        .granularity_bytes;
    let memory = device
        .allocate(2 * granularity.max(1 << 20), MemoryKind::Host)
        .required("memory");
    let map = message::MapGpu {
        space: space.handle(),
        allocation: memory.handle(),
        offset: 0,
        length: 4096,
        address: 0,
        access: Access::ReadWrite.wire(),
        reserved: 0,
    };
    gpu_mappings(target, &device, map, memory.bytes());
    cpu_mappings(target, &device, memory.handle(), memory.bytes());
    sharing(target, &device, memory.handle());
    guest_ram(target, &device);
    arrays(target, &device, (space.handle(), memory.handle()));
}

/// Asks for arrays that no device has, and for textures of what is no array.
fn arrays(target: &mut Target, device: &Device<'_>, (space, memory): (u32, u32)) {
    let unless_absent = |status| match device.features() & features::ARRAYS {
        0 => Status::Unsupported,
        _ => status,
    };
    let array = message::CreateArray {
        space,
        flags: 0,
        width: 16_384,
        height: 16_384,
        depth: 16_384,
        format: 32,
        channels: 4,
    };
    let wanted = unless_absent(Status::QuotaBytes);
    refuse::<operation::CreateArray>(target, device, &array, wanted);
    let wanted = unless_absent(Status::BadRange);
    for (width, flags, channels) in [(u64::MAX, 0, 4), (0, 0, 4), (16, 1 << 31, 4), (16, 0, 3)] {
        let wrong = message::CreateArray {
            width,
            flags,
            channels,
            ..array
        };
        refuse::<operation::CreateArray>(target, device, &wrong, wanted);
    }
    let wanted = unless_absent(Status::BadHandle);
    for array in [BOGUS, memory, space] {
        let texture = message::CreateTexture {
            space,
            array,
            ..message::CreateTexture::default()
        };
        refuse::<operation::CreateTexture>(target, device, &texture, wanted);
        let handle = message::HandleRequest {
            handle: array,
            reserved: 0,
        };
        refuse::<operation::DestroyArray>(target, device, &handle, Status::BadHandle);
        refuse::<operation::DestroyTexture>(target, device, &handle, Status::BadHandle);
    }
    let wanted = unless_absent(Status::BadRange);
    for (address, width, pitch) in [
        (u64::MAX - 3, 4, 4),
        (4096, u64::MAX, 4),
        (4096, 4, u64::MAX),
    ] {
        let texture = message::CreateTexture {
            space,
            source: message::TextureSource::Rows as u32,
            address,
            width,
            height: 4,
            pitch,
            format: 32,
            channels: 1,
            ..message::CreateTexture::default()
        };
        refuse::<operation::CreateTexture>(target, device, &texture, wanted);
    }
}

fn allocations(target: &mut Target, device: &Device<'_>) {
    let request = |size, kind| message::Allocate {
        size,
        kind,
        flags: 0,
    };
    refuse::<operation::Allocate>(target, device, &request(0, 2), Status::BadRange);
    // Flags without a meaning, by the offset of the byte in the message; then one that the device
    // may not have.
    for (flags, offset) in [(4, 28), (0x100, 29), (1 << 31, 31), (u32::MAX, 28)] {
        let flagged = message::Allocate {
            flags,
            ..request(4096, 2)
        };
        let status = Status::ReservedNotZero;
        let detail = refuse::<operation::Allocate>(target, device, &flagged, status);
        assert_eq!(detail, offset);
    }
    if device.features() & features::COMPRESSION == 0 {
        let flagged = message::Allocate {
            flags: allocate_flags::COMPRESSIBLE,
            ..request(4096, 0)
        };
        refuse::<operation::Allocate>(target, device, &flagged, Status::Unsupported);
    }
    fabric(target, device);
    for kind in [3, 77, u32::MAX] {
        refuse::<operation::Allocate>(target, device, &request(4096, kind), Status::BadMemory);
    }
    for size in [1 << 45, u64::MAX - 4096, u64::MAX] {
        refuse::<operation::Allocate>(target, device, &request(size, 2), Status::QuotaBytes);
    }
}

/// Asks for memory of other machines, and for handles by which others would have the guest's.
fn fabric(target: &mut Target, device: &Device<'_>) {
    let has = |feature| device.features() & feature != 0;
    let unless = |feature, status| match has(feature) {
        true => status,
        false => Status::Unsupported,
    };
    let wanted = unless(features::FABRIC_EXPORT, Status::BadMemory);
    // Memory that CPUs access has no handle.
    let flagged = message::Allocate {
        size: 4096,
        kind: MemoryKind::Host as u32,
        flags: allocate_flags::FABRIC,
    };
    refuse::<operation::Allocate>(target, device, &flagged, wanted);
    let wanted = unless(features::FABRIC_EXPORT, Status::BadHandle);
    let handle = message::HandleRequest {
        handle: BOGUS,
        reserved: 0,
    };
    refuse::<operation::ExportFabric>(target, device, &handle, wanted);
    let wanted = unless(features::FABRIC_IMPORT, Status::BadToken);
    for byte in [0, 1, 0xff] {
        let guessed = message::ImportFabric {
            handle: [byte; message::FABRIC_HANDLE_BYTES],
            size: 0,
        };
        refuse::<operation::ImportFabric>(target, device, &guessed, wanted);
    }
}

fn gpu_mappings(target: &mut Target, device: &Device<'_>, good: message::MapGpu, bytes: u64) {
    let attributes = device.attributes().required("the attributes");
    // Wanted addresses must be multiples of the granularity.
    let granularity = attributes.granularity_bytes;
    let end = attributes.va_base + attributes.va_bytes;
    mapping_rights_and_ranges(target, device, good, bytes);
    mapping_addresses(target, device, good, (end, granularity));
    for (space, allocation) in [(good.allocation, good.allocation), (good.space, good.space)] {
        let request = message::MapGpu {
            space,
            allocation,
            ..good
        };
        refuse::<operation::MapGpu>(target, device, &request, Status::BadHandle);
    }
    changes_of_mappings(target, device, good);
}

fn mapping_rights_and_ranges(
    target: &mut Target,
    device: &Device<'_>,
    good: message::MapGpu,
    bytes: u64,
) {
    for access in [2, 4] {
        let request = message::MapGpu { access, ..good };
        refuse::<operation::MapGpu>(target, device, &request, Status::BadAccess);
    }
    for (offset, length, status) in [
        (1, good.length, Status::BadAlignment),
        (0, 4097, Status::BadAlignment),
        (0, 0, Status::BadRange),
        (0, bytes + 4096, Status::BadRange),
        (bytes, good.length, Status::BadRange),
        (u64::MAX - 4095, good.length, Status::BadRange),
    ] {
        let request = message::MapGpu {
            offset,
            length,
            ..good
        };
        refuse::<operation::MapGpu>(target, device, &request, status);
    }
}

/// The address space ends at `end`.
fn mapping_addresses(
    target: &mut Target,
    device: &Device<'_>,
    good: message::MapGpu,
    (end, granularity): (u64, u64),
) {
    for (address, length, status) in [
        (0x1001, good.length, Status::BadAlignment),
        (end, good.length, Status::AddressInUse),
        (end - granularity, 2 * granularity, Status::AddressInUse),
        (
            0_u64.wrapping_sub(granularity),
            good.length,
            Status::AddressInUse,
        ),
    ] {
        let request = message::MapGpu {
            address,
            length,
            ..good
        };
        refuse::<operation::MapGpu>(target, device, &request, status);
    }
}

const fn place(space: u32, address: u64) -> message::SpaceAddress {
    message::SpaceAddress {
        space,
        reserved: 0,
        address,
    }
}

/// Tries invalid operations on a mapping that exists.
fn changes_of_mappings(target: &mut Target, device: &Device<'_>, good: message::MapGpu) {
    use Status::{AddressInUse, BadAccess, BadHandle, BadRange};
    let mapped = device
        .call::<operation::MapGpu>(&good)
        .required("a mapping");
    let (space, address) = (good.space, mapped.address);
    let taken = message::MapGpu { address, ..good };
    refuse::<operation::MapGpu>(target, device, &taken, AddressInUse);
    for (space, address, status) in [
        (space, address + 4096, BadRange),
        (BOGUS, address, BadHandle),
        (0, address, BadHandle),
    ] {
        refuse::<operation::UnmapGpu>(target, device, &place(space, address), status);
    }
    for (access, address, status) in [(2, address, BadAccess), (1, address ^ 0x1000, BadRange)] {
        let request = message::SetAccess {
            space,
            access,
            address,
        };
        refuse::<operation::SetAccess>(target, device, &request, status);
    }
    let mapping = place(space, address);
    device
        .call::<operation::UnmapGpu>(&mapping)
        .required("unmapping");
    refuse::<operation::UnmapGpu>(target, device, &mapping, BadRange);
}

fn cpu_mappings(target: &mut Target, device: &Device<'_>, allocation: u32, bytes: u64) {
    use Status::{BadAccess, BadAlignment, BadHandle, BadMemory, BadRange};
    let good = message::MapCpu {
        allocation,
        access: Access::ReadWrite.wire(),
        offset: 0,
        length: 4096,
    };
    let request = message::MapCpu { access: 2, ..good };
    refuse::<operation::MapCpu>(target, device, &request, BadAccess);
    for (offset, length, status) in [
        (8, 4096, BadAlignment),
        (0, 1, BadAlignment),
        (0, 0, BadRange),
        (bytes, 4096, BadRange),
        (4096, u64::MAX - 4095, BadRange),
    ] {
        let request = message::MapCpu {
            offset,
            length,
            ..good
        };
        refuse::<operation::MapCpu>(target, device, &request, status);
    }
    let hidden = device
        .allocate(4096, MemoryKind::Device)
        .required("device memory");
    for (allocation, status) in [(BOGUS, BadHandle), (hidden.handle(), BadMemory)] {
        let request = message::MapCpu { allocation, ..good };
        refuse::<operation::MapCpu>(target, device, &request, status);
    }
    for (space, address, status) in [
        (0, 1 << 40, BadRange),
        (0, u64::MAX, BadRange),
        (BOGUS, 0, BadHandle),
    ] {
        refuse::<operation::UnmapCpu>(target, device, &place(space, address), status);
    }
    let set = message::SetAccess {
        space: 0,
        access: 1,
        address: 1 << 40,
    };
    refuse::<operation::SetAccess>(target, device, &set, BadRange);
}

fn sharing(target: &mut Target, device: &Device<'_>, allocation: u32) {
    use Status::{BadAccess, BadHandle, BadToken};
    let export = |allocation, access| message::Export {
        allocation,
        access,
        gpus: 0,
    };
    refuse::<operation::Export>(target, device, &export(allocation, 0), BadAccess);
    refuse::<operation::Export>(target, device, &export(allocation, 2), BadAccess);
    refuse::<operation::Export>(target, device, &export(BOGUS, 1), BadHandle);
    for byte in [0, 0x55, 0xff] {
        let token = ExportToken([byte; 32]);
        refused("import", device.import(&token, Access::Read), BadToken);
        refused("import", device.import(&token, Access::None), BadAccess);
        refused("revoke", device.revoke(&token), BadToken);
        target.survived();
    }
}

fn guest_ram(target: &mut Target, device: &Device<'_>) {
    use Status::{BadAlignment, BadRange, QuotaBytes};
    let ram_end = target.beyond_ram();
    let found = *target.transport.found();
    let cases = [
        (1, 4096, BadAlignment),
        (0x10_0000, 100, BadAlignment),
        (0x10_0000, 0, BadRange),
        (ram_end, 4096, BadRange),
        (ram_end - 4096, 8192, BadRange),
        (found.aperture, 4096, BadRange),
        (found.registers, 4096, BadRange),
        (u64::MAX - 4095, 4096, BadRange),
        (0, u64::MAX - 4095, QuotaBytes),
    ];
    for (address, length, status) in cases {
        let request = message::RegisterRam { address, length };
        refuse::<operation::RegisterRam>(target, device, &request, status);
    }
}
