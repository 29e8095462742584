//! A VM that loses its device again and again, at any moment, and goes on after a reset.

use causeway_bare::{Machine, NoMail, PciTransport, fetch, figure, post, println};
use causeway_guests::{Refused, Required};
use causeway_kernels::special::{PTX, SPIN, WILD_STORE, spun};
use causeway_protocol::message::Status;
use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, LaunchShape, MemoryKind, Module, OpenError,
    Patience, RamRange, SubmitError, WaitError,
};

/// Bytes that each round allocates, fills and frees.
const BYTES: u64 = 256 << 10;
/// Steps of the kernel of each round.
const STEPS: u32 = 1000;
const SHAPE: LaunchShape = LaunchShape {
    grid: [4, 1, 1],
    block: [64, 1, 1],
    shared_bytes: 0,
};
const THREADS: u32 = 4 * 64;
/// Size of the memory for the threads' states and the fence, and where in it the fence is.
const STATE_BYTES: u64 = 4096;
const FENCE: u64 = 2048;
/// An address that is never mapped.
const WILD: u64 = 0x7777_0000_0000;
/// A part of the reason for a loss after which the VM ends: SIGABRT.
const LAST: &str = "signal 6";
/// A mailbox without mail: waiting for some is a rest, in milliseconds.
const NOBODY: u32 = 63;
const REST_MS: u32 = 1;

/// The session is lost.
#[derive(Debug)]
struct Lost;

pub fn run(machine: &Machine, faults: u32) {
    let transport = PciTransport::find(machine).required("finding the device");
    let (mut losses, mut rounds) = (0, 0);
    loop {
        let is_last = match faults {
            0 => compute_until_lost(&transport, machine, &mut rounds),
            _ => {
                fault(&transport, machine, &mut rounds);
                losses + 1 == faults
            }
        };
        losses += 1;
        Device::reset(&transport);
        if is_last {
            break;
        }
        // The host reads this line, to see that the VM goes on.
        println!("lost {losses}, verified {rounds}");
    }
    // The host may kill the next worker process, too, until it knows that this VM has ended.
    if faults != 0 {
        after_the_last_loss(&transport, machine);
    }
    figure("losses", f64::from(losses), "losses");
    figure("rounds verified", rounds as f64, "rounds");
    println!("ended after {losses} losses, {rounds} rounds verified");
    post(machine.vm(), &[0; 64]);
}

/// Computes until the session is lost. Returns whether the VM is to end.
fn compute_until_lost(transport: &PciTransport, machine: &Machine, rounds: &mut u64) -> bool {
    let Ok(device) = open(transport) else {
        return false;
    };
    let Err(Lost) = compute(&device, machine, rounds);
    // The session is lost a moment after the command buffer has stopped.
    while !device.is_lost() {
        rest();
    }
    let fault = device.fault().required("asking for the reason");
    let text = &fault.text[..fault.text_bytes as usize];
    let text = core::str::from_utf8(text).required("the reason");
    text.contains(LAST)
}

enum Never {}

fn compute(device: &Device<'_>, machine: &Machine, rounds: &mut u64) -> Result<Never, Lost> {
    let space = unless_lost("an address space", device.create_space())?;
    let module = load(machine, &space)?;
    let mut work = Work::new(device, &space, &module)?;
    loop {
        // A guest that makes no requests must notice a loss, too.
        let patience = match *rounds % 2 {
            0 => Patience::SPIN,
            _ => Patience::default(),
        };
        work.round(*rounds as u32, patience)?;
        *rounds += 1;
        rest();
    }
}

/// Computes, and then loses the device by a kernel that stores to an address that is not mapped.
fn fault(transport: &PciTransport, machine: &Machine, rounds: &mut u64) {
    let device = open(transport).required("opening the device");
    let space = device.create_space().required("an address space");
    let module = load(machine, &space).required("a module");
    let mut work = Work::new(&device, &space, &module).required("memory and a command buffer");
    work.round(*rounds as u32, Patience::default())
        .required("a round");
    *rounds += 1;
    let kernel = module.kernel(WILD_STORE).required(WILD_STORE);
    let parameters = kernel.parameters().and_then(|p| p.with(0, &WILD));
    let parameters = parameters
        .and_then(|p| p.with(1, &1_u32))
        .required("address and value");
    work.commands
        .launch(SHAPE, &parameters)
        .required(WILD_STORE);
    let stopped = work.finish(Patience::default());
    assert!(
        matches!(
            stopped,
            Err(WaitError::Stopped {
                status: Status::MemoryFault,
                ..
            })
        ),
        "a kernel that faults must be a memory fault, not {stopped:?}"
    );
    while !device.is_lost() {
        rest();
    }
    let fault = device.fault().required("asking for the fault");
    let text = &fault.text[..fault.text_bytes as usize];
    let text = core::str::from_utf8(text).required("the fault's text");
    assert!(
        text.contains(WILD_STORE),
        "the fault does not name its kernel: {text}"
    );
}

fn after_the_last_loss(transport: &PciTransport, machine: &Machine) {
    let device = open(transport).required("opening the device after the last loss");
    let space = device
        .create_space()
        .required("an address space after the last loss");
    let module = load(machine, &space).required("a module");
    let work = Work::new(&device, &space, &module);
    let done = work.and_then(|mut work| work.round(0, Patience::default()));
    done.required("a round after the last loss");
}

/// Memory and a command buffer for the computation.
struct Work<'d> {
    device: &'d Device<'d>,
    space: &'d AddressSpace<'d>,
    module: &'d Module<'d>,
    states: Buffer<'d>,
    fence: Fence<'d>,
    commands: CommandBuffer<'d>,
    finished: u64,
}

impl<'d> Work<'d> {
    fn new(
        device: &'d Device<'d>,
        space: &'d AddressSpace<'d>,
        module: &'d Module<'d>,
    ) -> Result<Self, Lost> {
        let states = Buffer::new(device, space, STATE_BYTES, MemoryKind::Host);
        let states = unless_lost("memory for states", states)?;
        let commands = unless_lost("a command buffer", CommandBuffer::new(space, 256))?;
        Ok(Self {
            fence: states.fence(FENCE).required("a fence"),
            device,
            space,
            module,
            states,
            commands,
            finished: 0,
        })
    }

    /// Allocates memory, fills it, runs a kernel, verifies both, and frees the memory.
    fn round(&mut self, seed: u32, patience: Patience) -> Result<(), Lost> {
        let memory = Buffer::new(self.device, self.space, BYTES, MemoryKind::Host);
        let memory = unless_lost("memory", memory)?;
        let kernel = unless_lost(SPIN, self.module.kernel(SPIN))?;
        for thread in 0..THREADS {
            let stored = self
                .states
                .cpu
                .store_u32(4 * thread as usize, seed ^ thread);
            stored.required("a state");
        }
        let parameters = kernel.parameters().and_then(|p| p.with(0, &STEPS));
        let parameters = parameters
            .and_then(|p| p.with(1, &self.states.gpu.address()))
            .required("steps and states");
        let filled = self.commands.fill(memory.gpu.address(), BYTES, seed);
        let launched = filled.and_then(|()| self.commands.launch(SHAPE, &parameters));
        match launched {
            Ok(()) => {}
            Err(SubmitError::Stopped {
                status: Status::DeviceLost,
                ..
            }) => return Err(Lost),
            Err(error) => panic!("writing packets: {error}"),
        }
        match self.finish(patience) {
            Ok(()) => {}
            Err(WaitError::Stopped {
                status: Status::DeviceLost,
                ..
            }) => return Err(Lost),
            Err(WaitError::Refused(refusal)) if refusal.status == Status::DeviceLost => {
                return Err(Lost);
            }
            Err(error) => panic!("waiting for the device: {error}"),
        }
        for offset in (0..BYTES as usize).step_by(4096 - 4) {
            assert_eq!(
                memory.cpu.load_u32(offset),
                Ok(seed),
                "filled memory at {offset}"
            );
        }
        for thread in 0..THREADS {
            let found = self.states.cpu.load_u32(4 * thread as usize);
            assert_eq!(
                found,
                Ok(spun(seed ^ thread, STEPS)),
                "the state of thread {thread}"
            );
        }
        unless_lost("freeing memory", memory.free())
    }

    /// Publishes the packets written so far, and waits until they are done.
    fn finish(&mut self, patience: Patience) -> Result<(), WaitError> {
        self.finished += 1;
        match self.commands.release(&self.fence, self.finished) {
            Ok(()) => self.commands.submit(),
            // The wait says so, too.
            Err(SubmitError::Stopped { .. }) => {}
            Err(error) => panic!("a fence: {error}"),
        }
        self.commands.wait(&self.fence, self.finished, patience)
    }
}

fn open(transport: &PciTransport) -> Result<Device<'_>, Lost> {
    match Device::open(transport) {
        Ok(device) => Ok(device),
        Err(OpenError::Refused(refusal)) if refusal.status == Status::DeviceLost => Err(Lost),
        Err(error) => panic!("opening the device: {error}"),
    }
}

/// Loads the module. The device has nothing to say about it, so there is no room for a log.
fn load<'d>(machine: &Machine, space: &AddressSpace<'d>) -> Result<Module<'d>, Lost> {
    let image = machine.ram().range_of(PTX.as_bytes());
    let no_log = RamRange { bytes: 0, ..image };
    unless_lost("a module", Module::load(space, image, no_log))
}

/// Returns the value of a request, unless the session is lost. Other refusals end the guest.
fn unless_lost<T>(what: &str, outcome: Result<T, impl Refused>) -> Result<T, Lost> {
    outcome.map_err(|error| match error.refusal().status {
        Status::DeviceLost => Lost,
        _ => panic!("{what}: {error}"),
    })
}

/// Leaves the processor to others for a moment.
fn rest() {
    if fetch(NOBODY, REST_MS) == Err(NoMail::SenderFailed) {
        panic!("another VM has failed");
    }
}

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the session is lost")
    }
}
