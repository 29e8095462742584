//! Attacks by clients: they name objects of other clients, reset each other, forge control windows,
//! and ask for more interrupts than the device has.

use causeway_bare::PciTransport;
use causeway_guests::{Required, refused};
use causeway_protocol::message::{self, APERTURE_ADDRESS, NOTIFIES_MAX, Status};
use causeway_protocol::registers::{
    CLIENTS, CONTROL_BYTES_MAX, CONTROL_IN_WINDOW, CONTROL_WINDOW_BYTES, MAGIC, PAGE_BYTES,
    RESET_KEY, Register, status,
};
use causeway_shim::pci::DeviceBars;
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, ControlArea, Device, MemoryKind, Operation, Patience,
    Transport, Window, operation,
};

use crate::messages::refuse;
use crate::target::{Target, works};

/// The device through the page of one client, with its batches in its control window.
struct Page {
    registers: PciTransport,
    control: ControlArea,
}

impl Page {
    /// Takes the page of a client, which ends the client that had it.
    fn take(target: &Target, client: u32) -> Self {
        let found = *target.transport.found();
        let found = DeviceBars {
            registers: found.registers + u64::from(client) * PAGE_BYTES,
            ..found
        };
        let nowhere = target.transport.control_area().window;
        let registers = PciTransport::at(found, nowhere).required("a page of registers");
        registers.write_register(Register::Reset, RESET_KEY);
        let window = window_offset(&registers) as usize;
        let window = registers
            .aperture()
            .part(window, CONTROL_WINDOW_BYTES as usize)
            .required("a control window");
        Self {
            registers,
            control: ControlArea {
                window,
                address: CONTROL_IN_WINDOW,
            },
        }
    }

    fn status(&self) -> u32 {
        self.read_register(Register::Status)
    }

    fn reset(&self) {
        self.write_register(Register::Reset, RESET_KEY);
    }
}

impl Transport for Page {
    fn read_register(&self, register: Register) -> u32 {
        self.registers.read_register(register)
    }
    fn write_register(&self, register: Register, value: u32) {
        self.registers.write_register(register, value);
    }
    fn control_area(&self) -> ControlArea {
        self.control
    }
    fn aperture(&self) -> Window {
        self.registers.aperture()
    }
    fn ring_doorbell(&self, index: u32) {
        self.registers.ring_doorbell(index);
    }
}

fn window_offset(transport: &impl Transport) -> u64 {
    u64::from(transport.read_register(Register::ControlWindowLow))
        | u64::from(transport.read_register(Register::ControlWindowHigh)) << 32
}

pub fn attack(target: &mut Target) {
    Target::fresh(&target.transport);
    pages(target);
    windows(target);
    thefts(target);
    resets(target);
    floods(target);
    Target::fresh(&target.transport);
}

/// Checks that every client's page exists, and that nothing is between the pages.
fn pages(target: &mut Target) {
    let bar = *target.transport.registers();
    for client in 0..CLIENTS as usize {
        let page = client * PAGE_BYTES as usize;
        let load = |register: Register| bar.load_u32(page + register as usize);
        assert_eq!(load(Register::Magic), Ok(MAGIC));
        assert_eq!(load(Register::ClientCount), Ok(CLIENTS));
        assert_eq!(
            load(Register::Status),
            Ok(status::READY),
            "nobody owns anything"
        );
        let before = target.strays();
        assert_eq!(bar.load_u32(page + 0x1c), Ok(u32::MAX));
        bar.store_u32(page + 0xffc, RESET_KEY)
            .required("in the BAR");
        assert_eq!(target.strays() - before, 2, "page {client}");
        target.survived();
    }
}

/// Tries control areas that are not valid.
fn windows(target: &mut Target) {
    let page = Page::take(target, 9);
    let execute = |low: u32, high: u32, bytes: u32| {
        page.write_register(Register::ControlBaseLow, low);
        page.write_register(Register::ControlBaseHigh, high);
        page.write_register(Register::ControlDoorbell, bytes);
        Status::from_wire(page.read_register(Register::BatchStatus))
    };
    for (low, high, bytes, wanted) in [
        (u32::MAX, 0, 24, Status::BadAlignment),
        (0, u32::MAX, 24, Status::BadRange),
        (u32::MAX - 7, u32::MAX, 24, Status::BadRange),
        (u32::MAX, u32::MAX, 0, Status::BadLength),
        (u32::MAX, u32::MAX, 12, Status::BadLength),
        (u32::MAX, u32::MAX, CONTROL_BYTES_MAX + 8, Status::BadLength),
    ] {
        let taken = execute(low, high, bytes);
        assert_eq!(taken, Some(wanted), "{high:#x} {low:#x}: {bytes} bytes");
        target.survived();
    }
    // Stores to the registers that tell the place of the control window do nothing.
    let before = target.strays();
    page.write_register(Register::ControlWindowLow, 0);
    page.write_register(Register::ControlWindowHigh, 1);
    assert_eq!(target.strays() - before, 2);
    target.survived();
    let window = page.control.window;
    window
        .store_u64(CONTROL_WINDOW_BYTES as usize - 8, 7)
        .required("in the window");
    page.reset();
    assert_eq!(page.status(), status::READY, "it owns nothing any more");
    assert_eq!(
        window.load_u64(0),
        Ok(u64::MAX),
        "the window has become a hole"
    );
    let gone = execute(u32::MAX, u32::MAX, 24);
    assert_eq!(gone, Some(Status::BadAlignment), "there is no window");
    // The next control window at this place has nothing of the last one. All clients can have one.
    for client in 1..CLIENTS {
        let page = Page::take(target, client);
        let last = CONTROL_WINDOW_BYTES as usize - 8;
        assert_eq!(page.control.window.load_u64(last), Ok(0));
        assert_eq!(page.status(), status::READY | status::OWNS);
        target.survived();
    }
    target.transport.write_register(Register::Reset, RESET_KEY);
    assert_eq!(page.status(), status::READY, "the reset of all");
    target.survived();
}

/// Objects of the client under attack, whose handles and addresses the attacker knows.
struct Spoils {
    space: u32,
    memory: u32,
    va: u64,
    offset: u64,
    commands: u32,
}

/// Tries every message that can name an object of another client.
fn thefts(target: &mut Target) {
    let (victim, thief) = (Page::take(target, 1), Page::take(target, 2));
    let device = Device::open(&victim).required("the victim's device");
    let space = device.create_space().required("an address space");
    let buffer = Buffer::new(&device, &space, 8192, MemoryKind::Host).required("a buffer");
    let commands = CommandBuffer::new(&space, 256).required("a command buffer");
    let token = buffer
        .allocation
        .export(causeway_shim::Access::ReadWrite)
        .ok();
    let spoils = Spoils {
        space: space.handle(),
        memory: buffer.allocation.handle(),
        va: buffer.gpu.address(),
        offset: buffer.cpu.aperture_offset(),
        commands: commands.handle(),
    };
    let other = Device::open(&thief).required("the thief's device");
    named(target, &other, &spoils);
    placed(target, &other, &spoils);
    if let Some(token) = token {
        refused("another's export", other.revoke(&token), Status::BadToken);
        target.survived();
    }
    works(&device, &space, "thefts");
    drop(commands);
    works(&device, &space, "thefts, and an end of its own");
}

fn named(target: &mut Target, other: &Device<'_>, spoils: &Spoils) {
    let by_handle = |handle| message::HandleRequest {
        handle,
        reserved: 0,
    };
    bad_handle::<operation::DestroySpace>(target, other, &by_handle(spoils.space), spoils.space);
    bad_handle::<operation::Free>(target, other, &by_handle(spoils.memory), spoils.memory);
    let request = by_handle(spoils.commands);
    bad_handle::<operation::DestroyCommandBuffer>(target, other, &request, spoils.commands);
    let map = message::MapCpu {
        allocation: spoils.memory,
        access: 3,
        offset: 0,
        length: 4096,
    };
    bad_handle::<operation::MapCpu>(target, other, &map, spoils.memory);
    let export = message::Export {
        allocation: spoils.memory,
        access: 1,
        gpus: 0,
    };
    bad_handle::<operation::Export>(target, other, &export, spoils.memory);
    let own = other.create_space().required("an address space");
    let map = |space| message::MapGpu {
        space,
        allocation: spoils.memory,
        length: 4096,
        access: 1,
        ..message::MapGpu::default()
    };
    bad_handle::<operation::MapGpu>(target, other, &map(own.handle()), spoils.memory);
    bad_handle::<operation::MapGpu>(target, other, &map(spoils.space), spoils.space);
    let (space, address, reserved) = (spoils.space, spoils.va, 0);
    let place = message::SpaceAddress {
        space,
        reserved,
        address,
    };
    bad_handle::<operation::UnmapGpu>(target, other, &place, space);
    let access = message::SetAccess {
        space,
        access: 0,
        address,
    };
    bad_handle::<operation::SetAccess>(target, other, &access, space);
    let wait = message::Wait {
        space,
        address,
        ..message::Wait::default()
    };
    bad_handle::<operation::Wait>(target, other, &wait, space);
    let notify = message::Notify {
        space,
        address,
        ..message::Notify::default()
    };
    bad_handle::<operation::Notify>(target, other, &notify, space);
}

/// Names a mapping of another client by its place in the aperture: the device must not unmap it,
/// change its rights or record its packets.
fn placed(target: &mut Target, other: &Device<'_>, spoils: &Spoils) {
    let (space, address, reserved) = (0, spoils.offset, 0);
    let place = message::SpaceAddress {
        space,
        reserved,
        address,
    };
    refuse::<operation::UnmapCpu>(target, other, &place, Status::BadRange);
    let access = message::SetAccess {
        space,
        access: 0,
        address,
    };
    refuse::<operation::SetAccess>(target, other, &access, Status::BadRange);
    let own = other.create_space().required("an address space");
    let recording = message::CreateRecording {
        space: own.handle(),
        reserved: 0,
        address: APERTURE_ADDRESS | spoils.offset,
        bytes: 64,
    };
    let outcome = other.call::<operation::CreateRecording>(&recording);
    let status = outcome.err().map(|refusal| refusal.status);
    assert!(
        matches!(status, Some(Status::BadRange | Status::Unsupported)),
        "packets in another's memory: {status:?}"
    );
    target.survived();
    let module = message::LoadModule {
        space: own.handle(),
        image_address: APERTURE_ADDRESS | spoils.offset,
        image_bytes: 64,
        ..message::LoadModule::default()
    };
    refuse::<operation::LoadModule>(target, other, &module, Status::BadRange);
}

fn bad_handle<O: Operation>(
    target: &mut Target,
    device: &Device<'_>,
    request: &O::Request,
    handle: u32,
) {
    let detail = refuse::<O>(target, device, request, Status::BadHandle);
    assert_eq!(detail, handle, "{}", O::OPCODE.name());
}

/// Resets the pages around a client that works, and then the client's own page.
fn resets(target: &mut Target) {
    let victim = Page::take(target, 1);
    let device = Device::open(&victim).required("the victim's device");
    let space = device.create_space().required("an address space");
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).required("a buffer");
    let fence = buffer.fence(0).required("a fence");
    let mut commands = CommandBuffer::new(&space, 256).required("a command buffer");
    for round in 1..=40 {
        let neighbour = Page::take(target, 2 + round % 3);
        let other = Device::open(&neighbour).required("a neighbour's device");
        let theirs = other.create_space().required("an address space");
        let _ring = CommandBuffer::new(&theirs, 256).required("a command buffer");
        commands.release(&fence, round.into()).required("a fence");
        commands.submit();
        neighbour.reset();
        let waited = fence.wait(round.into(), Patience::default());
        waited.required("the victim's fence");
        target.survived();
    }
    // The device cannot tell processes apart: a process that can reset a page replaces the page's
    // client. But it gets no more than that.
    let keeper = Page::take(target, 5);
    let kept = Device::open(&keeper).required("a neighbour's device");
    let theirs: AddressSpace<'_> = kept.create_space().required("an address space");
    victim.reset();
    // The message and its reply have no effect: the client's control window is a hole.
    refused("an ended client", device.create_space(), Status::BackEnd);
    target.survived();
    works(&kept, &theirs, "the reset of another");
}

/// Asks for more interrupts than the device has, and causes some.
fn floods(target: &mut Target) {
    let page = Page::take(target, 3);
    let device = Device::open(&page).required("a client's device");
    let space = device.create_space().required("an address space");
    let buffer = Buffer::new(&device, &space, 4096, MemoryKind::Host).required("a buffer");
    let wish = |fence: u64, value| message::Notify {
        space: space.handle(),
        reserved: 0,
        address: buffer.gpu.address() + 8 * fence,
        value,
    };
    for fence in 0..u64::from(NOTIFIES_MAX) {
        for value in [9, 8] {
            let reply = device.call::<operation::Notify>(&wish(fence, value));
            assert_eq!(reply.required("a wish").reached, 0);
        }
        target.survived();
    }
    let last = wish(u64::from(NOTIFIES_MAX), 1);
    let detail = refuse::<operation::Notify>(target, &device, &last, Status::QuotaObjects);
    assert_eq!(detail, NOTIFIES_MAX);
    let astray = message::Notify {
        address: buffer.gpu.address() + 4,
        ..last
    };
    refuse::<operation::Notify>(target, &device, &astray, Status::BadAlignment);
    let nowhere = message::Notify { address: 8, ..last };
    refuse::<operation::Notify>(target, &device, &nowhere, Status::BadRange);
    let pending = || page.read_register(Register::InterruptStatus) != 0;
    assert!(!pending());
    buffer.cpu.store_u64(0, 8).required("a fence");
    while !pending() {
        core::hint::spin_loop();
    }
    page.write_register(Register::InterruptStatus, 1);
    assert!(!pending(), "raised once");
    target.survived();
    // The end of the client acknowledges all of them.
    for fence in 0..u64::from(NOTIFIES_MAX) {
        buffer
            .cpu
            .store_u64(8 * fence as usize, u64::MAX)
            .required("a fence");
    }
    page.reset();
    assert!(!pending());
    assert_eq!(page.status(), status::READY);
    target.survived();
}
