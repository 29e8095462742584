//! A benchmark of your own: a camera's frames go to the GPU, are inverted there, and come back.
//!
//! It measures the same frames twice: one after the other, and with two under way. Each way is a
//! phase, for which the report of `causeway run` has time and exits, and a figure.
#![no_std]
#![no_main]

use causeway_bare::shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, Kernel, LaunchShape, MemoryKind, Module,
    Patience, RamRange,
};
use causeway_bare::{Machine, PciTransport, Phase, PhasePath, Totals, figure, println};

causeway_bare::main!(run);

const FRAMES: u64 = 200;
/// Pixels of a frame, of four bytes each.
const PIXELS: u32 = 16 << 10;
const FRAME_BYTES: usize = 4 * PIXELS as usize;
const SHAPE: LaunchShape = LaunchShape {
    grid: [PIXELS / 256, 1, 1],
    block: [256, 1, 1],
    shared_bytes: 0,
};

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let transport = PciTransport::find(machine).expect("no Causeway device");
    let device = Device::open(&transport).expect("the device cannot be opened");
    let space = device.create_space().expect("no address space");
    let ptx = machine.ram().range_of(include_bytes!("invert.ptx"));
    let module = Module::load(&space, ptx, RamRange::default()).expect("the module is refused");
    let kernel = module.kernel("invert").expect("no kernel");
    let frame = machine
        .ram()
        .bytes(FRAME_BYTES)
        .expect("no RAM for a frame");
    let mut stages = Stages::new(&device, &space, &kernel);
    // Not counted: the first access to each page.
    stages.pass(2, 2, frame);
    for (name, under_way) in [("one at a time", 1), ("two under way", 2)] {
        stages.close_gate();
        let rung = stages.queue.doorbells_rung();
        let phase = Phase::begin(PhasePath::Data, name);
        let begin = machine.clock().now_ns();
        stages.gate.store(stages.gates);
        stages.pass(FRAMES, under_way, frame);
        let ns = machine.clock().now_ns() - begin;
        phase.end(Totals {
            operations: FRAMES,
            bytes: 2 * FRAMES * FRAME_BYTES as u64,
            doorbells: stages.queue.doorbells_rung() - rung,
        });
        figure(name, FRAMES as f64 * 1e9 / ns as f64, "frames/s");
        println!("{name}: {} us a frame", ns / FRAMES / 1000);
    }
}

/// Memory for two frames, and a command buffer.
struct Stages<'d> {
    slots: [Buffer<'d>; 2],
    kernel: &'d Kernel<'d>,
    queue: CommandBuffer<'d>,
    /// Counts the frames that the GPU has done.
    done: Fence<'d>,
    /// The GPU waits here until it reaches `gates`.
    gate: Fence<'d>,
    gates: u64,
    /// Frames given to the GPU so far.
    given: u64,
    _words: Buffer<'d>,
}

impl<'d> Stages<'d> {
    fn new(device: &'d Device<'d>, space: &AddressSpace<'d>, kernel: &'d Kernel<'d>) -> Self {
        let memory = |bytes| {
            Buffer::new(device, space, bytes, MemoryKind::Host).expect("no memory for frames")
        };
        let words = memory(16);
        Self {
            slots: [memory(FRAME_BYTES as u64), memory(FRAME_BYTES as u64)],
            kernel,
            queue: CommandBuffer::new(space, 256).expect("no command buffer"),
            done: words.fence(0).expect("inside"),
            gate: words.fence(8).expect("inside"),
            gates: 0,
            given: 0,
            _words: words,
        }
    }

    /// Makes the GPU wait at the gate. A GPU without work goes to sleep, and the doorbell that
    /// wakes it is an exit.
    fn close_gate(&mut self) {
        self.gates += 1;
        self.queue
            .acquire(&self.gate, self.gates)
            .expect("the GPU has stopped");
        self.queue.submit();
    }

    /// Passes `frames` frames through the GPU, of which `under_way` are under way at a time, and
    /// checks each.
    fn pass(&mut self, frames: u64, under_way: u64, frame: &mut [u8]) {
        let given = self.given;
        for number in 0..frames + under_way {
            if let Some(number) = number.checked_sub(under_way) {
                self.take(number, given + number + 1, frame);
            }
            if number < frames {
                self.give(number, frame);
            }
        }
    }

    fn give(&mut self, number: u64, frame: &mut [u8]) {
        frame.fill(number as u8);
        let slot = &self.slots[number as usize % 2];
        slot.cpu.write(0, frame).expect("inside");
        let parameters = self.kernel.parameters().expect("parameters");
        let parameters = parameters.with(0, &slot.gpu.address()).expect("address");
        let parameters = parameters.with(1, &PIXELS).expect("number of pixels");
        self.given += 1;
        self.queue
            .launch(SHAPE, &parameters)
            .expect("the GPU has stopped");
        self.queue
            .release(&self.done, self.given)
            .expect("the GPU has stopped");
        self.queue.submit();
    }

    fn take(&self, number: u64, value: u64, frame: &mut [u8]) {
        self.queue
            .wait(&self.done, value, Patience::SPIN)
            .expect("the kernel failed");
        self.slots[number as usize % 2]
            .cpu
            .read(0, frame)
            .expect("inside");
        let wanted = !(number as u8);
        assert!(frame.iter().all(|byte| *byte == wanted), "frame {number}");
    }
}
