//! A guest without an operating system: has the GPU double numbers, in a phase without VM exits.
#![no_std]
#![no_main]

use causeway_bare::shim::{
    Buffer, CommandBuffer, Device, LaunchShape, MemoryKind, Module, Patience, RamRange,
};
use causeway_bare::{Machine, PciTransport, Phase, PhasePath, Totals, println};

causeway_bare::main!(run);

const LENGTH: u32 = 1000;
const SHAPE: LaunchShape = LaunchShape {
    grid: [LENGTH.div_ceil(128), 1, 1],
    block: [128, 1, 1],
    shared_bytes: 0,
};

/// Runs on each virtual CPU. When it returns on the first one, the guest has passed; a panic ends
/// the guest as failed.
fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let transport = PciTransport::find(machine).expect("no Causeway device");
    let device = Device::open(&transport).expect("the device cannot be opened");
    let space = device.create_space().expect("no address space");
    let ptx = machine.ram().range_of(include_bytes!("double.ptx"));
    let module = Module::load(&space, ptx, RamRange::default()).expect("the module is refused");
    let kernel = module.kernel("double").expect("no kernel");
    let numbers = Buffer::new(&device, &space, 4 * u64::from(LENGTH), MemoryKind::Host);
    let numbers = numbers.expect("no memory for the numbers");
    let words = Buffer::new(&device, &space, 16, MemoryKind::Host).expect("no memory for fences");
    let (gate, done) = (words.fence(0).expect("gate"), words.fence(8).expect("done"));
    let parameters = kernel.parameters().expect("too many parameters");
    let parameters = parameters.with(0, &numbers.gpu.address()).expect("address");
    let parameters = parameters.with(1, &LENGTH).expect("length");
    let mut queue = CommandBuffer::new(&space, 256).expect("no command buffer");

    // The device waits at the gate until the phase has begun. Without work it would go to sleep,
    // and the doorbell that wakes it is an exit.
    queue.acquire(&gate, 1).expect("the device has stopped");
    queue.submit();
    let rung = queue.doorbells_rung();
    let phase = Phase::begin(PhasePath::Data, "double 1000 numbers");
    for i in 0..LENGTH {
        numbers.cpu.store_u32(4 * i as usize, i).expect("inside");
    }
    queue
        .launch(SHAPE, &parameters)
        .expect("the device has stopped");
    queue.release(&done, 1).expect("the device has stopped");
    queue.submit();
    gate.store(1);
    queue
        .wait(&done, 1, Patience::SPIN)
        .expect("the kernel failed");
    for i in 0..LENGTH {
        assert_eq!(
            numbers.cpu.load_u32(4 * i as usize),
            Ok(2 * i),
            "number {i}"
        );
    }
    phase.end(Totals {
        operations: 1,
        bytes: 8 * u64::from(LENGTH),
        doorbells: queue.doorbells_rung() - rung,
    });
    println!("{LENGTH} numbers are doubled");
}
