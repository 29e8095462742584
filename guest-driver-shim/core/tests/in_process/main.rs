//! Both halves in one process, without a VM: the driver in front of a real session on the software
//! back end, and, where no kernel is launched, on the VFIO back end over a fake device.

/// Makes a test of each function, on each of the back ends.
macro_rules! on_each_back_end {
    ($($test:ident,)*) => {
        mod on_software {
            $(#[test] fn $test() { super::$test(&crate::mediator()); })*
        }
        mod on_vfio {
            $(#[test] fn $test() { super::$test(&crate::lent()); })*
        }
    };
}

mod clients;
mod host;
mod pool;
mod recordings;
mod transport;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_host_vfio::RegionIndex;
use causeway_host_vfio::fake::FakeHardware;
use causeway_kernels::{Argument, CASES, Case, special};
use causeway_mediator::{Mediator, Quota};
use causeway_shim::{
    Access, AddressSpace, Buffer, CommandBuffer, Device, LaunchShape, MemoryKind, Module, Patience,
    Status, SubmitError, WaitError,
};
use causeway_software::{Config, Software};
use causeway_vfio_backend::Vfio;

use transport::Machine;

fn mediator() -> Arc<Mediator> {
    let software = Software::new(Config {
        memory_bytes: 512 << 20,
        cores: None,
        ..Config::default()
    });
    Mediator::new(Arc::new(software))
}

/// Over 64 MiB behind a BAR of a device without a device.
fn lent() -> Arc<Mediator> {
    let bar = RegionIndex::Bar(2);
    let hardware = FakeHardware::new().unwrap();
    let hardware = Arc::new(hardware.with_region(bar, 64 << 20).unwrap());
    let device = hardware.device("0000:00:03.0".parse().unwrap()).unwrap();
    Mediator::new(Vfio::over(device, Some(2)).unwrap())
}

fn load<'d>(machine: &Machine, space: &AddressSpace<'d>, ptx: &str) -> Module<'d> {
    Module::load(space, machine.put(ptx.as_bytes()), machine.log()).unwrap()
}

/// Runs a case through the driver, and compares every buffer.
fn run(machine: &Machine, device: &Device<'_>, case: &Case) {
    let space = device.create_space().unwrap();
    let module = load(machine, &space, case.ptx);
    let kernel = module.kernel(case.name).unwrap();
    let filled = |(index, buffer): (usize, &causeway_kernels::Buffer)| {
        let mut bytes = vec![0; buffer.bytes];
        case.fill(index, &mut bytes);
        bytes
    };
    let mut want: Vec<Vec<u8>> = case.buffers.iter().enumerate().map(filled).collect();
    let upload = |bytes: &Vec<u8>| {
        let buffer = Buffer::new(device, &space, bytes.len() as u64, MemoryKind::Host).unwrap();
        buffer.cpu.write(0, bytes).unwrap();
        buffer
    };
    let buffers: Vec<_> = want.iter().map(upload).collect();
    let mut parameters = kernel.parameters().unwrap();
    for (index, argument) in case.arguments.iter().enumerate() {
        match argument {
            Argument::Buffer(at) => parameters.set(index, &buffers[*at].gpu.address()),
            Argument::U32(value) => parameters.set(index, value),
            Argument::F32(value) => parameters.set(index, value),
        }
        .unwrap();
    }
    let fences = Buffer::new(device, &space, 4096, MemoryKind::Host).unwrap();
    let fence = fences.fence(0).unwrap();
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    let shape = LaunchShape {
        grid: case.grid,
        block: case.block,
        shared_bytes: case.dynamic_shared,
    };
    commands.launch(shape, &parameters).unwrap();
    commands.release(&fence, 1).unwrap();
    commands.submit();
    commands.wait(&fence, 1, Patience::default()).unwrap();

    case.reference(&mut want.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    for (index, want) in want.iter().enumerate() {
        let mut got = vec![0; want.len()];
        buffers[index].cpu.read(0, &mut got).unwrap();
        case.compare(index, want, &got).unwrap();
    }
}

#[test]
fn every_kernel_comes_out_right_and_leaves_nothing_behind() {
    let machine = Machine::new(&mediator(), Quota::default(), "all kernels");
    let device = Device::open(&machine).unwrap();
    for case in CASES {
        run(&machine, &device, case);
    }
    assert_eq!(
        device.attributes().unwrap().memory_used_bytes,
        0,
        "memory is still charged"
    );
    assert_eq!(
        machine.host.placements(),
        0,
        "something is still in the aperture"
    );
}

fn allocating_mapping_and_freeing_takes_two_exits(mediator: &Arc<Mediator>) {
    let machine = Machine::new(mediator, Quota::default(), "exits");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let before = machine.exits.load(Ordering::Relaxed);
    let buffer = Buffer::new(&device, &space, 64 << 10, MemoryKind::Host).unwrap();
    buffer.cpu.store_u64(0, 7).unwrap();
    buffer.free().unwrap();
    assert_eq!(machine.exits.load(Ordering::Relaxed) - before, 2);
}

#[test]
fn a_busy_ring_goes_round_many_times_and_loses_nothing() {
    let machine = Machine::new(&mediator(), Quota::default(), "ring");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let module = load(&machine, &space, special::PTX);
    let spin = module.kernel(special::SPIN).unwrap();
    let states = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let parameters = spin
        .parameters()
        .unwrap()
        .with(0, &1_u32)
        .unwrap()
        .with(1, &states.gpu.address())
        .unwrap();
    let fences = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let (fence, steps) = (fences.fence(0).unwrap(), 3000);
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    let shape = LaunchShape {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
    };
    for step in 1..=steps {
        // Two units, one, one: the end of the ring is met at every distance.
        commands.launch(shape, &parameters).unwrap();
        commands.release(&fence, step).unwrap();
        if step % 3 == 0 {
            commands.nop().unwrap();
            commands.submit();
        }
    }
    commands.submit();
    commands.wait(&fence, steps, Patience::default()).unwrap();
    assert!(commands.position() > 256 * 30);
    for thread in 0..32 {
        assert_eq!(
            states.cpu.load_u32(4 * thread),
            Ok(special::spun(0, steps as u32))
        );
    }
}

#[test]
fn a_refused_module_says_where_and_why() {
    let machine = Machine::new(&mediator(), Quota::default(), "module");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let image = machine.put(
        b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f()\n{ nonsense; }\n",
    );
    let error = Module::load(&space, image, machine.log()).err().unwrap();
    assert_eq!((error.status(), error.line), (Status::BadModule, 5));
    assert!(
        machine
            .read(machine.log(), error.log_bytes)
            .contains("nonsense")
    );
}

#[test]
fn a_module_beyond_the_quota_says_what_is_left() {
    let quota = Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    };
    let machine = Machine::new(&mediator(), quota, "module");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let image =
        machine.put(b".version 7.0\n.target sm_70\n.address_size 64\n.global .b8 v[5000000];\n");
    let error = Module::load(&space, image, machine.log()).err().unwrap();
    assert_eq!((error.status(), error.line), (Status::QuotaBytes, 0));
    assert_eq!(
        machine.read(machine.log(), error.log_bytes),
        "the module's variables take 5001216 bytes of memory, and 1048576 of 1048576 bytes are \
         left to the session: free memory, unload modules, or allow it more (`memory=`)"
    );
}

#[test]
fn a_fault_is_seen_by_the_waiter_and_a_reset_heals() {
    let mediator = mediator();
    let machine = Machine::new(&mediator, Quota::default(), "faulty");
    let other = Machine::new(&mediator, Quota::default(), "other");
    let bystander = Device::open(&other).unwrap();
    {
        let device = Device::open(&machine).unwrap();
        let space = device.create_space().unwrap();
        let fences = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
        let fence = fences.fence(0).unwrap();
        let mut commands = CommandBuffer::new(&space, 256).unwrap();
        commands.fill(0x7777_0000_0000, 4096, 1).unwrap();
        commands.release(&fence, 1).unwrap();
        commands.submit();
        let stopped = WaitError::Stopped {
            status: Status::MemoryFault,
            position: 0,
        };
        assert_eq!(commands.wait(&fence, 1, Patience::default()), Err(stopped));
        while !device.is_lost() {
            std::thread::yield_now();
        }
        assert_eq!(
            device.create_space().err().unwrap().status(),
            Status::DeviceLost
        );
    }
    run(&other, &bystander, &CASES[0]);
    Device::reset(&machine);
    let device = Device::open(&machine).unwrap();
    run(&machine, &device, &CASES[0]);
}

#[test]
fn a_full_ring_makes_no_room_for_one_who_gives_up() {
    static GIVES_UP: AtomicBool = AtomicBool::new(false);
    let machine = Machine::new(&mediator(), Quota::default(), "full");
    let device = Device::open(&machine).unwrap();
    let space = device.create_space().unwrap();
    let fences = Buffer::new(&device, &space, 4096, MemoryKind::Host).unwrap();
    let (awaited, written) = (fences.fence(0).unwrap(), fences.fence(8).unwrap());
    let mut commands = CommandBuffer::new(&space, 256).unwrap();
    commands.give_up_if(|_| GIVES_UP.load(Ordering::SeqCst), 0);
    commands.acquire(&awaited, 1).unwrap();
    let stopped = std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut writes = (0..1000).map(|value| commands.release(&written, value));
            writes.find_map(Result::err)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished(), "a full ring is waited for");
        GIVES_UP.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !writer.is_finished() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Ends a writer that does not give up.
        awaited.store(1);
        writer.join().unwrap()
    });
    let status = Status::DeviceLost;
    assert!(matches!(stopped, Some(SubmitError::Stopped { status: it, .. }) if it == status));
}

fn an_import_shows_the_exporters_memory_until_it_is_revoked(mediator: &Arc<Mediator>) {
    let (exporter, importer) = (
        Machine::new(mediator, Quota::default(), "exporter"),
        Machine::new(mediator, Quota::default(), "importer"),
    );
    let device = Device::open(&exporter).unwrap();
    let memory = device.allocate(1 << 20, MemoryKind::Host).unwrap();
    let mapping = memory.map_cpu(0, 4096, Access::ReadWrite).unwrap();
    mapping.store_u64(8, 42).unwrap();
    let token = memory.export(Access::Read).unwrap();
    let there = Device::open(&importer).unwrap();
    assert_eq!(
        there
            .import(&token, Access::ReadWrite)
            .err()
            .unwrap()
            .status(),
        Status::AccessDenied
    );
    let import = there.import(&token, Access::Read).unwrap();
    let seen = import.map_cpu(0, 4096, Access::Read).unwrap();
    assert_eq!(seen.load_u64(8), Ok(42));
    mapping.store_u64(8, 43).unwrap();
    assert_eq!(seen.load_u64(8), Ok(43), "it is the same memory");
    assert_eq!(importer.host.placements(), 1);
    device.revoke(&token).unwrap();
    assert_eq!(
        importer.host.placements(),
        0,
        "a revoked import must leave the aperture"
    );
    assert_eq!(
        import
            .map_cpu(0, 4096, Access::Read)
            .err()
            .unwrap()
            .status(),
        Status::Revoked
    );
}

on_each_back_end!(
    allocating_mapping_and_freeing_takes_two_exits,
    an_import_shows_the_exporters_memory_until_it_is_revoked,
);
