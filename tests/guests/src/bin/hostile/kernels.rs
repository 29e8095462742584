//! Launches that the device must refuse before it runs anything.

use causeway_guests::Required;
use causeway_kernels::special;
use causeway_protocol::message::Status;
use causeway_protocol::packet::{Launch, Opcode, launch_units};
use causeway_shim::{Buffer, MemoryKind, Unit};
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
    let function = module.function(special::SPIN).required("the kernel");
    let states = Buffer::new(&device, &space, 4096, MemoryKind::Host).required("memory");
    let parameter_bytes = function.parameter_bytes();
    let good = Launch {
        header: header(Opcode::Launch, launch_units(parameter_bytes as usize)),
        function: function.handle(),
        grid: [1; 3],
        block: [32, 1, 1],
        parameter_bytes,
        ..Launch::default()
    };
    let tail: Unit = [1, states.gpu.address(), 0, 0, 0, 0, 0, 0];
    let mut refuse = |what: &str, launch: Launch, status| {
        stops(
            target,
            &device,
            &space,
            what,
            &[transmute!(launch), tail],
            status,
        );
    };
    let bad = Status::BadLaunch;
    for function in [0, 0xdead_beef, u32::MAX, space.handle(), module.handle()] {
        refuse(
            "a function that is none",
            Launch { function, ..good },
            Status::BadHandle,
        );
    }
    for axis in 0..3 {
        let (mut grid, mut block) = (good.grid, good.block);
        grid[axis] = 0;
        block[axis] = 0;
        refuse("an empty grid", Launch { grid, ..good }, bad);
        refuse("an empty block", Launch { block, ..good }, bad);
        let mut block = [1; 3];
        block[axis] = attributes.block_threads_max + 1;
        refuse("a block too large", Launch { block, ..good }, bad);
        let mut grid = [1; 3];
        grid[axis] = u32::MAX;
        refuse("a grid too large", Launch { grid, ..good }, bad);
    }
    refuse(
        "blocks whose size overflows",
        Launch {
            block: [u32::MAX; 3],
            ..good
        },
        bad,
    );
    refuse(
        "blocks whose size wraps to zero",
        Launch {
            block: [1 << 16; 3],
            ..good
        },
        bad,
    );
    let shared_bytes = attributes.shared_bytes_max + 1;
    refuse(
        "too much shared memory",
        Launch {
            shared_bytes,
            ..good
        },
        bad,
    );
    refuse(
        "far too much of it",
        Launch {
            shared_bytes: u32::MAX,
            ..good
        },
        bad,
    );
    for parameter_bytes in [1, parameter_bytes - 4, parameter_bytes + 4, 64] {
        let launch = Launch {
            parameter_bytes,
            ..good
        };
        refuse("parameters of another size", launch, Status::BadParameters);
    }
    // A kernel belongs to the address space of its module.
    let launch = [transmute!(good), tail];
    stops(
        target,
        &device,
        &other_space,
        "another space's kernel",
        &launch,
        Status::BadHandle,
    );
    assert!(
        !device.is_lost(),
        "a refused launch must not cost the session"
    );
    works(&device, &space, "refused launches");
}
