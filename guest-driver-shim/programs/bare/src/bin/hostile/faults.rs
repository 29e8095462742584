//! Work that fails while it runs: the session is lost, the fault has the reason, and a reset makes
//! the device usable again.

use causeway_bare::figure;
use causeway_guests::{Required, refused};
use causeway_kernels::special;
use causeway_protocol::message::Status;
use causeway_shim::{
    Access, AddressSpace, Buffer, CommandBuffer, Device, Fence, LaunchShape, MemoryKind, Patience,
    WaitError,
};

use crate::target::{Target, works};

/// An address that is never mapped.
const WILD: u64 = 0x7777_0000_0000;
const SHAPE: LaunchShape = LaunchShape {
    grid: [2, 1, 1],
    block: [64, 1, 1],
    shared_bytes: 0,
};

pub fn attack(target: &mut Target) {
    loses(target, "a copy from nowhere", "", |commands, memory| {
        commands
            .copy(memory.gpu.address(), WILD, 64)
            .required("a copy");
    });
    loses(target, "a copy to nowhere", "", |commands, memory| {
        commands
            .copy(WILD, memory.gpu.address(), 64)
            .required("a copy");
    });
    loses(target, "a copy beyond the end", "", |commands, memory| {
        let base = memory.gpu.address();
        // Behind the memory there is at most the page of the fence.
        commands
            .copy(base, base + 0xf000, 0x4000)
            .required("a copy");
    });
    loses(target, "a fill of nowhere", "", |commands, _| {
        commands.fill(WILD, 4096, 1).required("a fill");
    });
    loses(target, "a fill of page zero", "", |commands, _| {
        commands.fill(0, 4096, 1).required("a fill");
    });
    loses(target, "a timestamp to nowhere", "", |commands, _| {
        commands.timestamp(WILD).required("a timestamp");
    });
    loses(
        target,
        "a fill of read-only memory",
        "",
        |commands, memory| {
            memory.gpu.set_access(Access::Read).required("read-only");
            commands
                .fill(memory.gpu.address(), 4096, 1)
                .required("a fill");
        },
    );
    loses(
        target,
        "a fill of memory without access",
        "",
        |commands, memory| {
            memory.gpu.set_access(Access::None).required("no access");
            commands
                .fill(memory.gpu.address(), 4096, 1)
                .required("a fill");
        },
    );
    wild_kernels(target);
    endless_kernel(target);
    resets_under_way(target);
}

/// Checks that the work that `write` puts into a command buffer loses the session, with a memory
/// fault whose text contains `word`.
fn loses(
    target: &mut Target,
    what: &str,
    word: &str,
    write: impl FnOnce(&mut CommandBuffer<'_>, &Buffer<'_>),
) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required(what);
    let memory = Buffer::new(&device, &space, 1 << 16, MemoryKind::Host).required(what);
    let fences = Buffer::new(&device, &space, 4096, MemoryKind::Host).required(what);
    let fence = fences.fence(0).required(what);
    let mut commands = CommandBuffer::new(&space, 256).required(what);
    write(&mut commands, &memory);
    commands.release(&fence, 1).required(what);
    commands.submit();
    lost(&device, &commands, &fence, what, word);
    target.survived();
}

fn lost(
    device: &Device<'_>,
    commands: &CommandBuffer<'_>,
    fence: &Fence<'_>,
    what: &str,
    word: &str,
) {
    let stopped = commands.wait(fence, 1, Patience::default());
    assert!(
        matches!(
            stopped,
            Err(WaitError::Stopped {
                status: Status::MemoryFault,
                ..
            })
        ),
        "{what}: must be a memory fault, not {stopped:?}"
    );
    // The session is lost a moment after the command buffer says why it stopped.
    while !device.is_lost() {
        core::hint::spin_loop();
    }
    let fault = device.fault().required(what);
    assert_eq!(
        Status::from_wire(fault.status),
        Some(Status::MemoryFault),
        "{what}"
    );
    let text = &fault.text[..fault.text_bytes as usize];
    let text = core::str::from_utf8(text).required(what);
    assert!(
        !text.is_empty() && text.contains(word),
        "{what}: {text:?} must tell of {word:?}"
    );
    refused(
        what,
        device.allocate(4096, MemoryKind::Host),
        Status::DeviceLost,
    );
}

/// Launches kernels that load from or store to an address that is not mapped.
fn wild_kernels(target: &mut Target) {
    for name in [special::WILD_STORE, special::WILD_LOAD] {
        for address in [WILD, 0, 8, u64::MAX - 7, 1 << 63] {
            let transport = target.transport;
            let device = Target::fresh(&transport);
            let space = device.create_space().required(name);
            let module = target.memory.load_module(&space, special::PTX);
            let kernel = module.kernel(name).required(name);
            let memory = Buffer::new(&device, &space, 4096, MemoryKind::Host).required(name);
            let fence = memory.fence(8).required(name);
            let parameters = kernel.parameters().required(name);
            let parameters = parameters.with(0, &address).required(name);
            let parameters = if name == special::WILD_STORE {
                parameters.with(1, &1_u32)
            } else {
                parameters.with(1, &memory.gpu.address())
            };
            let mut commands = CommandBuffer::new(&space, 256).required(name);
            commands
                .launch(SHAPE, &parameters.required(name))
                .required(name);
            commands.release(&fence, 1).required(name);
            commands.submit();
            lost(&device, &commands, &fence, name, name);
            target.survived();
        }
    }
}

/// Launches a kernel that ends only when its flag is set. Returns the memory of the flag.
fn launch_endless<'d>(
    target: &mut Target,
    device: &'d Device<'d>,
    space: &AddressSpace<'d>,
) -> (CommandBuffer<'d>, Buffer<'d>) {
    let name = special::FOREVER;
    let module = target.memory.load_module(space, special::PTX);
    let kernel = module.kernel(name).required(name);
    let memory = Buffer::new(device, space, 4096, MemoryKind::Host).required(name);
    let parameters = kernel.parameters().required(name);
    let parameters = parameters.with(0, &memory.gpu.address()).required(name);
    let mut commands = CommandBuffer::new(space, 256).required(name);
    let started = memory.fence(8).required(name);
    commands.release(&started, 1).required(name);
    commands.launch(SHAPE, &parameters).required(name);
    commands.submit();
    started.wait(1, Patience::default()).required(name);
    // The module may be unloaded: the kernel that runs keeps what it needs.
    (commands, memory)
}

/// Checks that a kernel that does not end blocks only its own command buffer, and that a reset ends
/// it.
fn endless_kernel(target: &mut Target) {
    let transport = target.transport;
    {
        let device = Target::fresh(&transport);
        let space = device.create_space().required("an address space");
        let (commands, memory) = launch_endless(target, &device, &space);
        works(
            &device,
            &space,
            "an endless kernel in another command buffer",
        );
        // A plain store to the flag ends the kernel.
        memory.cpu.store_u32(0, 1).required("the flag");
        commands.destroy().required("ending its command buffer");
    }
    target.survived();
    {
        let device = Target::fresh(&transport);
        let space = device.create_space().required("an address space");
        let (commands, memory) = launch_endless(target, &device, &space);
        let begin = target.machine.clock().now_ns();
        Device::reset(&transport);
        // What it takes depends on the driver, and on what else the GPU does.
        let took_ns = target.machine.clock().now_ns() - begin;
        figure("reset under an endless kernel", took_ns as f64 / 1e6, "ms");
        // Handles of the session that is gone.
        core::mem::forget((commands, memory, space));
    }
    target.survived();
}

/// Resets the device while packets are being executed.
fn resets_under_way(target: &mut Target) {
    let transport = target.transport;
    for _ in 0..30 {
        let device = Target::fresh(&transport);
        let space = device.create_space().required("an address space");
        let memory = Buffer::new(&device, &space, 1 << 20, MemoryKind::Host).required("memory");
        let mut commands = CommandBuffer::new(&space, 256).required("a command buffer");
        for word in 0..200 {
            commands
                .fill(memory.gpu.address(), 1 << 20, word)
                .required("a fill");
        }
        commands.submit();
        Device::reset(&transport);
        // Handles of the session that is gone.
        core::mem::forget((commands, memory, space));
        target.survived();
    }
}
