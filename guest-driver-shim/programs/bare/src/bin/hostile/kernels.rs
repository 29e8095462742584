//! Launches that the device must refuse before a kernel runs.

use causeway_guests::Required;
use causeway_kernels::special;
use causeway_protocol::message::Status;
use causeway_protocol::packet::{Launch, LaunchShape, Opcode, launch_units};
use causeway_shim::{Buffer, Kernel, MemoryKind, Unit};
use zerocopy::transmute;

use crate::packets::{header, stops};
use crate::target::{Target, works};

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let attributes = device.attributes().required("the attributes");
    let space = device.create_space().required("an address space");
    let other_space = device.create_space().required("another address space");
    let module = target.memory.load_module(&space, special::PTX);
    let kernel = module.kernel(special::SPIN).required("the kernel");
    let states = Buffer::new(&device, &space, 4096, MemoryKind::Host).required("memory");
    let good = Attempt::good(&kernel, &states);
    let mut refuse = |what: &str, attempt: Attempt, status| {
        stops(target, &device, &space, what, &attempt.units(), status);
    };
    let strangers = [0, 0xdead_beef, u32::MAX, space.handle(), module.handle()];
    refuse_strangers(&good, &strangers, &mut refuse);
    refuse_shapes(&good, attributes.block_threads_max, &mut refuse);
    refuse_sizes(&good, attributes.shared_bytes_max, &mut refuse);
    // A kernel belongs to the address space of its module.
    stops(
        target,
        &device,
        &other_space,
        "another space's kernel",
        &good.units(),
        Status::BadHandle,
    );
    assert!(
        !device.is_lost(),
        "a refused launch must not cost the session"
    );
    works(&device, &space, "refused launches");
}

/// A launch packet, and the unit with its parameters.
#[derive(Clone, Copy)]
struct Attempt {
    launch: Launch,
    tail: Unit,
}

impl Attempt {
    fn good(kernel: &Kernel<'_>, states: &Buffer<'_>) -> Self {
        let parameter_bytes = kernel.parameter_bytes();
        let launch = Launch {
            header: header(Opcode::Launch, launch_units(parameter_bytes as usize)),
            kernel: kernel.handle(),
            shape: LaunchShape {
                shared_bytes: 0,
                grid: [1; 3],
                block: [32, 1, 1],
            },
            parameter_bytes,
            ..Launch::default()
        };
        let tail = [1, states.gpu.address(), 0, 0, 0, 0, 0, 0];
        Self { launch, tail }
    }

    /// The same but for its launch.
    fn with(self, change: impl FnOnce(&mut Launch)) -> Self {
        let mut changed = self;
        change(&mut changed.launch);
        changed
    }

    fn units(&self) -> [Unit; 2] {
        [transmute!(self.launch), self.tail]
    }
}

type Refuse<'r> = dyn FnMut(&str, Attempt, Status) + 'r;

fn refuse_strangers(good: &Attempt, strangers: &[u32], refuse: &mut Refuse<'_>) {
    for handle in strangers {
        let attempt = good.with(|launch| launch.kernel = *handle);
        refuse("a kernel that does not exist", attempt, Status::BadHandle);
    }
}

fn refuse_shapes(good: &Attempt, block_threads_max: u32, refuse: &mut Refuse<'_>) {
    let bad = Status::BadLaunch;
    for axis in 0..3 {
        let large = |size| {
            let mut shape = [1; 3];
            shape[axis] = size;
            shape
        };
        let (grid, block) = (large(u32::MAX), large(block_threads_max + 1));
        for (what, attempt) in [
            (
                "an empty grid",
                good.with(|launch| launch.shape.grid[axis] = 0),
            ),
            (
                "an empty block",
                good.with(|launch| launch.shape.block[axis] = 0),
            ),
            (
                "a block too large",
                good.with(|launch| launch.shape.block = block),
            ),
            (
                "a grid too large",
                good.with(|launch| launch.shape.grid = grid),
            ),
        ] {
            refuse(what, attempt, bad);
        }
    }
    let overflowing = good.with(|launch| launch.shape.block = [u32::MAX; 3]);
    refuse("blocks whose size overflows", overflowing, bad);
    let wrapping = good.with(|launch| launch.shape.block = [1 << 16; 3]);
    refuse("blocks whose size wraps to zero", wrapping, bad);
}

fn refuse_sizes(good: &Attempt, shared_bytes_max: u32, refuse: &mut Refuse<'_>) {
    for (what, shared_bytes) in [
        ("too much shared memory", shared_bytes_max + 1),
        ("far too much of it", u32::MAX),
    ] {
        let attempt = good.with(|launch| launch.shape.shared_bytes = shared_bytes);
        refuse(what, attempt, Status::BadLaunch);
    }
    let right = good.launch.parameter_bytes;
    for parameter_bytes in [1, right - 4, right + 4, 64] {
        let attempt = good.with(|launch| launch.parameter_bytes = parameter_bytes);
        let what = "parameters of another size";
        refuse(what, attempt, Status::BadParameters);
    }
}
