//! Reads random numbers of a virtio device that is passed through to the guest, by the drivers of
//! the guest's kernel.
//!
//! Every guest has such a device of the VMM's own, too. That one is taken out of use first.

use std::fs::{self, File};
use std::io::{self, Read};

use causeway_linux_programs::passed::PciFunction;
use causeway_linux_programs::platform::{Machine, Phase, Totals};
use causeway_linux_programs::{Required, run};
use causeway_testdev_records::PhasePath;

/// Vendor and device ID (Virtio 1.2, 5.4).
const IDS: (u16, u16) = (0x1af4, 0x1044);
/// Subsystem of QEMU's modern devices; the VMM's own repeat their device ID there.
const QEMU_SUBSYSTEM: u16 = 0x1100;
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_rng";
const AVAILABLE: &str = "/sys/class/misc/hw_random/rng_available";
const CURRENT: &str = "/sys/class/misc/hw_random/rng_current";

/// Numbers that are read, and bytes of each.
const NUMBERS: usize = 64;
const NUMBER_BYTES: usize = 32;

fn main() -> std::process::ExitCode {
    run(read_numbers)
}

fn read_numbers(_: &Machine) {
    let (passed, own): (Vec<_>, Vec<_>) = PciFunction::all(IDS)
        .into_iter()
        .partition(|function| function.id("subsystem_device") == Some(QEMU_SUBSYSTEM));
    let [passed] = passed.as_slice() else {
        panic!("there must be one device that is passed through: {passed:?}");
    };
    let device = virtio_device(passed).required("its virtio device");
    let bound = fs::exists(format!("{DRIVER}/{device}"));
    assert!(
        bound.required("its driver"),
        "virtio_rng has not taken {device}"
    );
    for other in own {
        let other = virtio_device(&other).required("the VMM's own device");
        fs::write(format!("{DRIVER}/unbind"), other).required("taking it out of use");
    }
    let source = choose().required("choosing the source");
    println!("random: {source} is {device} of {}", passed.name());
    let before = interrupts(&device).required("counting interrupts");
    read().required("random numbers");
    let after = interrupts(&device).required("counting interrupts");
    assert!(
        after > before,
        "no interrupts of {device}: {before}, {after}"
    );
    println!(
        "random: {NUMBERS} numbers, all different; {} interrupts",
        after - before
    );
}

/// The virtio device of a function: `virtio1`.
fn virtio_device(function: &PciFunction) -> io::Result<String> {
    let entries = fs::read_dir(function.path("")).into_iter().flatten();
    let mut names = entries.flatten().map(|entry| entry.file_name());
    let name = names.find(|name| name.to_string_lossy().starts_with("virtio"));
    let name = name.ok_or_else(|| io::Error::other("the kernel has made none"))?;
    Ok(name.to_string_lossy().into_owned())
}

/// Has `/dev/hwrng` read the one virtio device that is left.
fn choose() -> io::Result<String> {
    let available = fs::read_to_string(AVAILABLE)?;
    let sources: Vec<_> = available.split_whitespace().collect();
    let mut virtio = sources.iter().filter(|name| name.starts_with("virtio_rng"));
    match (virtio.next(), virtio.next()) {
        (Some(source), None) => {
            fs::write(CURRENT, source)?;
            Ok((*source).to_owned())
        }
        _ => Err(io::Error::other(format!("there are {available}"))),
    }
}

/// Interrupts of a virtio device so far, on all CPUs.
fn interrupts(device: &str) -> io::Result<u64> {
    let table = fs::read_to_string("/proc/interrupts")?;
    let lines = table
        .lines()
        .filter(|line| line.contains(&format!("{device}-")));
    let numbers = lines.flat_map(|line| {
        let words = line.split_whitespace().skip(1);
        words.map_while(|word| word.parse::<u64>().ok())
    });
    Ok(numbers.sum())
}

/// Reads numbers, which differ and are not what memory is before anything is in it.
fn read() -> io::Result<()> {
    let mut file = File::open("/dev/hwrng")?;
    let mut numbers = [[0; NUMBER_BYTES]; NUMBERS];
    // The first time, the kernel may have to wake up what feeds it.
    file.read_exact(&mut numbers[0])?;
    let phase = Phase::begin(PhasePath::Data, "random numbers");
    for number in &mut numbers {
        file.read_exact(number)?;
    }
    phase.end(Totals {
        operations: NUMBERS as u64,
        bytes: (NUMBERS * NUMBER_BYTES) as u64,
        doorbells: 0,
    });
    let mut sorted = numbers;
    sorted.sort_unstable();
    let same = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    match same || sorted[0] == [0; NUMBER_BYTES] {
        true => Err(io::Error::other("they are not random")),
        false => Ok(()),
    }
}
