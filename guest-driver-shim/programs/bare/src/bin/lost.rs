//! Computes until the device is lost; then resets the device, continues, and passes.
#![no_std]
#![no_main]

use causeway_bare::{Machine, PciTransport, println};
use causeway_guests::Required;
use causeway_protocol::message::Status;
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, MemoryKind, Patience, WaitError,
};

causeway_bare::main!(run);

/// Bytes that each round fills.
const BYTES: u64 = 4096;
/// Number of rounds after the loss.
const ROUNDS_AFTER: u64 = 100;

fn run(machine: &Machine) {
    if machine.cpu() != 0 {
        return;
    }
    let transport = PciTransport::find(machine).required("finding the device");
    {
        let device = Device::open(&transport).required("opening the device");
        let space = device.create_space().required("a space");
        let mut work = Work::new(&device, &space);
        assert_eq!(work.round(), Ok(()), "the first round");
        println!("computing");
        let status = loop {
            if let Err(status) = work.round() {
                break status;
            }
        };
        assert_eq!(status, Status::DeviceLost, "after {} rounds", work.rounds);
        assert!(
            device.is_lost(),
            "a lost command buffer of a device that is not"
        );
        let fault = device.fault().required("asking for the reason");
        let text = fault.text.get(..fault.text_bytes as usize);
        let text = core::str::from_utf8(text.required("the reason")).required("the reason");
        println!("lost after {} rounds: {text}", work.rounds);
    }
    Device::reset(&transport);
    let device = Device::open(&transport).required("opening the device again");
    assert!(!device.is_lost(), "the device is lost after a reset");
    let space = device.create_space().required("a space after the loss");
    let mut work = Work::new(&device, &space);
    for _ in 0..ROUNDS_AFTER {
        assert_eq!(work.round(), Ok(()), "after the loss");
    }
}

/// Memory and a command buffer for the computation.
struct Work<'d> {
    buffer: Buffer<'d>,
    fence: Fence<'d>,
    commands: CommandBuffer<'d>,
    rounds: u64,
}

impl<'d> Work<'d> {
    fn new(device: &'d Device<'d>, space: &AddressSpace<'d>) -> Self {
        let buffer = Buffer::new(device, space, 2 * BYTES, MemoryKind::Host).required("memory");
        let fence = buffer.fence(BYTES).required("a fence");
        let commands = CommandBuffer::new(space, 256).required("a command buffer");
        Self {
            buffer,
            fence,
            commands,
            rounds: 0,
        }
    }

    /// Fills memory and checks it. Returns the reason as an error if the command buffer has
    /// stopped.
    fn round(&mut self) -> Result<(), Status> {
        let round = self.rounds + 1;
        let commands = &mut self.commands;
        let written = commands
            .fill(self.buffer.gpu.address(), BYTES, round as u32)
            .and_then(|()| commands.release(&self.fence, round));
        commands.submit();
        // The wait spins: a guest that makes no requests must notice the loss, too.
        match commands.wait(&self.fence, round, Patience::SPIN) {
            Ok(()) => {}
            Err(WaitError::Stopped { status, .. }) => return Err(status),
            Err(other) => panic!("round {round} ended with {other:?}"),
        }
        written.required("room in the command buffer");
        for offset in (0..BYTES as usize).step_by(512) {
            let word = self.buffer.cpu.load_u32(offset);
            assert_eq!(word, Ok(round as u32), "round {round}");
        }
        self.rounds = round;
        Ok(())
    }
}
