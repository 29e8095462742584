//! Attacks with invalid module images, and with names of kernels that do not exist.

use causeway_bare::println;
use causeway_guests::{Required, refused};
use causeway_kernels::{case, special};
use causeway_protocol::message::{self, KERNEL_NAME_MAX, MODULE_BYTES_MAX, Status};
use causeway_shim::{AddressSpace, Device, Module, RamRange, operation};

use crate::random::Random;
use crate::target::Target;

/// Bytes of RAM for images.
const ROOM: usize = 1 << 20;
const LOG_BYTES: usize = 512;

/// Number of changed copies of a valid module that are tried.
const MUTATIONS: u32 = 300;

pub fn attack(target: &mut Target) {
    let transport = target.transport;
    let device = Target::fresh(&transport);
    let space = device.create_space().required("an address space");
    let image = target.machine.ram().bytes(ROOM).required("RAM for images");
    let log = target
        .machine
        .ram()
        .bytes(LOG_BYTES)
        .required("RAM for a log");
    ranges(target, &space);
    not_ptx(target, &space, image, log);
    machine_code(target, &space, image, log);
    damaged(target, &space, image);
    names(target, &device, &space);
}

/// Tries images and logs at addresses without RAM.
fn ranges(target: &mut Target, space: &AddressSpace<'_>) {
    let end = target.beyond_ram();
    let images = [
        RamRange {
            address: end,
            bytes: 100,
        },
        RamRange {
            address: end - 50,
            bytes: 100,
        },
        RamRange {
            address: u64::MAX,
            bytes: 1,
        },
        RamRange {
            address: u64::MAX - 10,
            bytes: 100,
        },
        RamRange {
            address: 0x10_0000,
            bytes: 0,
        },
        RamRange {
            address: 0x10_0000,
            bytes: MODULE_BYTES_MAX + 1,
        },
        RamRange {
            address: 0x10_0000,
            bytes: u64::MAX,
        },
    ];
    for image in images {
        refused(
            "an image",
            Module::load(space, image, RamRange::default()),
            Status::BadRange,
        );
        target.survived();
    }
    let garbage = target.machine.ram().range_of(b"no module at all");
    let log = RamRange {
        address: end,
        bytes: 4096,
    };
    refused(
        "a log outside RAM",
        Module::load(space, garbage, log),
        Status::BadRange,
    );
    target.survived();
}

/// Loads the content of `image`, which the device must refuse with a line and a log.
#[track_caller]
fn refuse(target: &mut Target, space: &AddressSpace<'_>, image: &[u8], log: &mut [u8]) {
    log.fill(0);
    let ram = target.machine.ram();
    let error = match Module::load(space, ram.range_of(image), ram.range_of(log)) {
        Ok(_) => {
            let end = core::str::from_utf8(&image[image.len().saturating_sub(60)..]);
            panic!(
                "nonsense of {} bytes that ends in {end:?} was accepted as a module",
                image.len()
            )
        }
        Err(error) => error,
    };
    assert!(error.status() == Status::BadModule, "{error}");
    let text = &log[..error.log_bytes as usize];
    assert!(!text.is_empty(), "a refused module must have a log");
    assert!(core::str::from_utf8(text).is_ok() || text.len() == LOG_BYTES);
    target.survived();
}

fn not_ptx(target: &mut Target, space: &AddressSpace<'_>, image: &mut [u8], log: &mut [u8]) {
    let texts: [&[u8]; 12] = [
        b"\0",
        b"\x7fELF",
        b"\xff\xfe\xfd",
        b"no ptx",
        b".version nine\n.target sm_70\n.address_size 64\n",
        b".version 7.0\n.target sm_70\n.address_size 16\n",
        b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f(\n",
        b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { no.such.op %r1; }",
        b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { bra nowhere; }",
        b".version 7.0\n.target sm_70\n.address_size 64\n\
          .visible .entry f() { .reg .b32 %r<99999999999>; ret; }",
        b".version 7.0\n.target sm_70\n.address_size 64\n\
          .visible .entry f() { .shared .b8 s[99999999999999999999]; ret; }",
        b".version 7.0\n.target sm_70\n.address_size 64\n\
          .visible .entry f() { mov.u32 %r1, %r2; ret; }",
    ];
    for text in texts {
        image[..text.len()].copy_from_slice(text);
        refuse(target, space, &image[..text.len()], log);
    }
    // A megabyte of one character, for each character that might nest or never end.
    for byte in *b"{([<\"/*-.%\n\t 0\0\x80" {
        image.fill(byte);
        if byte.is_ascii_whitespace() {
            image[ROOM - 1] = b'}';
        }
        refuse(target, space, image, log);
    }
    let head = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() ";
    image[..head.len()].copy_from_slice(head);
    for byte in *b"{(-!~" {
        image[head.len()..].fill(byte);
        refuse(target, space, image, log);
    }
}

/// Tries machine code for GPUs that no driver supports, and for a CPU. The log must name the way
/// out.
fn machine_code(target: &mut Target, space: &AddressSpace<'_>, image: &mut [u8], log: &mut [u8]) {
    const HEADER_BYTES: usize = 64;
    const CUDA: u16 = 190;
    const X86_64: u16 = 62;
    // One section behind it, which is empty.
    let image = &mut image[..2 * HEADER_BYTES];
    for (machine, architecture) in [(CUDA, 35_u32), (CUDA, 20), (X86_64, 0)] {
        image.fill(0);
        // 64-bit, little-endian; the version of the ABI in which the architecture is the lowest
        // byte of the flags.
        image[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07");
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[40..48].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        image[48..52].copy_from_slice(&architecture.to_le_bytes());
        image[58..60].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        image[60..62].copy_from_slice(&1_u16.to_le_bytes());
        refuse(target, space, image, log);
        let end = log.iter().position(|byte| *byte == 0);
        let text = core::str::from_utf8(&log[..end.unwrap_or(LOG_BYTES)]);
        println!(
            "machine code of machine {machine}, architecture {architecture}: {}",
            text.required("the log")
        );
    }
}

/// Tries a valid module that is cut off or changed somewhere: the device may refuse or accept it,
/// but must work afterwards.
fn damaged(target: &mut Target, space: &AddressSpace<'_>, image: &mut [u8]) {
    let ptx = case("matmul_16")
        .map_or(special::PTX, |case| case.ptx)
        .as_bytes();
    let ram = target.machine.ram();
    let load = |image: &[u8]| match Module::load(space, ram.range_of(image), RamRange::default()) {
        Ok(module) => drop(module),
        Err(error) => assert!(error.status() == Status::BadModule, "{error}"),
    };
    for cut in (1..ptx.len()).step_by(ptx.len() / 100 + 1) {
        image[..cut].copy_from_slice(&ptx[..cut]);
        load(&image[..cut]);
        target.survived();
    }
    let mut random = Random::new(0x0dd5);
    for _ in 0..MUTATIONS {
        let image = &mut image[..ptx.len()];
        image.copy_from_slice(ptx);
        for _ in 0..1 + random.below(8) {
            let at = random.below(ptx.len() as u64) as usize;
            image[at] = random.next() as u8 & 0x7f;
        }
        load(image);
        target.survived();
    }
}

fn names(target: &mut Target, device: &Device<'_>, space: &AddressSpace<'_>) {
    let ram = target.machine.ram();
    let image = ram.range_of(special::PTX.as_bytes());
    let module = Module::load(space, image, RamRange::default()).required("a real module");
    for name in ["no_such_kernel", "", "spin\0", "Spin", "ｓｐｉｎ"] {
        assert!(module.kernel(name).is_err(), "there is no kernel {name:?}");
        target.survived();
    }
    refused(
        "an unknown name",
        module.kernel("nothing"),
        Status::NoKernel,
    );
    let request = |name_bytes, fill| {
        let mut name = [fill; KERNEL_NAME_MAX];
        name[..4].copy_from_slice(b"spin");
        message::GetKernel {
            module: module.handle(),
            name_bytes,
            name,
        }
    };
    let mut call = |request, status| {
        refused(
            "a name",
            device.call::<operation::GetKernel>(&request),
            status,
        );
        target.survived();
    };
    call(request(0, 0), Status::BadRange);
    call(request(513, b'x'), Status::BadRange);
    call(request(u32::MAX, b'x'), Status::BadRange);
    call(request(4, 1), Status::ReservedNotZero);
    call(request(512, 0xff), Status::NoKernel);
    call(request(512, b'x'), Status::NoKernel);
}
