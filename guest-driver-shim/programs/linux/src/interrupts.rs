//! Tests waits that sleep until an interrupt in a Linux guest, and compares them with the
//! interrupts that the Linux kernel counted.
//!
//! The first of two threads waits. The second thread lets the device continue only when the Linux
//! kernel reports that the first thread sleeps. So each wait is ended by its own interrupt.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_shim::{
    AddressSpace, Buffer, CommandBuffer, Device, Fence, MemoryKind, Patience, Sleeping, Transport,
};
use causeway_testdev_records::PhasePath;

use crate::platform::{self, Machine, Phase, Totals, figure, println, ticks};
use crate::{Pipeline, Required, median};

/// Number of waits for work of the device.
const FOR_DEVICE: u64 = 32;
/// Number of waits for a store of the other thread, which the mediator is not told about.
const FOR_STORE: u64 = 8;
/// Number of packets in the data path's phase.
const PACKETS: u64 = 100_000;
/// Longest time until the Linux kernel has counted an interrupt.
const LATE: Duration = Duration::from_secs(20);
/// Time between two looks at the state of another thread or of the Linux kernel.
const LOOK: Duration = Duration::from_micros(200);
/// Numbers of the system calls poll(2) and ppoll(2).
const SLEEPS_IN: [&str; 2] = ["7", "271"];

/// The fences that the second thread releases.
static GATES: OnceLock<Gates> = OnceLock::new();

struct Gates {
    /// The fence for which the device waits.
    device: Fence<'static>,
    /// The fence for which the first thread waits itself.
    store: Fence<'static>,
    /// Number of the wait that is about to begin, from 1.
    begun: AtomicU64,
    /// Time at which the last fence was released, in ticks of the time stamp counter.
    opened: AtomicU64,
}

/// Runs the part of one thread.
pub fn run(machine: &Machine) {
    match machine.cpu() {
        0 => wait(machine),
        1 => open_gates(),
        _ => {}
    }
}

/// Releases one fence after the other, each when the first thread sleeps.
fn open_gates() {
    let gates = GATES.wait();
    for number in 1..=FOR_DEVICE + FOR_STORE {
        while gates.begun.load(Ordering::Acquire) < number || !first_thread_sleeps() {
            std::thread::sleep(LOOK);
        }
        gates.opened.store(ticks(), Ordering::Release);
        match number.checked_sub(FOR_DEVICE) {
            None | Some(0) => gates.device.store(number),
            Some(number) => gates.store.store(number),
        }
    }
}

/// Returns whether the first thread sleeps in a system call that waits for something to read.
fn first_thread_sleeps() -> bool {
    let process = std::process::id();
    // proc_pid_syscall(5): the number of the system call that blocks a thread, or `running`.
    let call = fs::read_to_string(format!("/proc/self/task/{process}/syscall"));
    let call = call.required("what the first thread does");
    let number = call.split_whitespace().next();
    number.is_some_and(|number| SLEEPS_IN.contains(&number))
}

fn wait(machine: &Machine) {
    let (transport, device) = platform::open(machine);
    assert!(machine.cpus() >= 2, "this needs --threads 2");
    assert_eq!(transport.sleeping(), Sleeping::UntilInterrupt);
    let space = device.create_space().required("an address space");
    let mut pipeline = Pipeline::new(device, &space, 1 << 18);
    let counted = Counted::now();
    sleep(machine, device, &space);
    counted.report(FOR_DEVICE + FOR_STORE);
    data_path(&mut pipeline);
    let after = Counted::now();
    assert_eq!(
        after.by_kernel - counted.by_kernel,
        FOR_DEVICE + FOR_STORE,
        "the data path must cause no interrupt"
    );
}

/// Does all waits, and reports how long each takes from the release of the fence.
fn sleep(machine: &Machine, device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let memory = Buffer::new(device, space, 4096, MemoryKind::Host).required("memory for fences");
    let [gate, done, store] = [0, 64, 128].map(|offset| memory.fence(offset).required("a fence"));
    let mut commands = CommandBuffer::new(space, 256).required("a command buffer");
    let gates = GATES.get_or_init(|| Gates {
        device: gate,
        store,
        begun: AtomicU64::new(0),
        opened: AtomicU64::new(0),
    });
    let mut samples = Vec::new();
    let mut all = |name: &str, range: std::ops::RangeInclusive<u64>, wait: &mut dyn FnMut(u64)| {
        let (operations, begin) = (range.end() - range.start() + 1, samples.len());
        let phase = Phase::begin(PhasePath::Control, name);
        for number in range {
            gates.begun.store(number, Ordering::Release);
            wait(number);
            samples.push(ticks() - gates.opened.load(Ordering::Acquire));
        }
        phase.end(Totals {
            operations,
            ..Totals::default()
        });
        let awake = machine.clock().nanoseconds(median(&mut samples[begin..]));
        figure(
            &format!("{name}: from opened to awake (median)"),
            awake as f64 / 1e3,
            "us",
        );
    };
    let patience = Patience {
        spins: 1,
        timeout_ns: 120_000_000_000,
    };
    all("asleep for the device", 1..=FOR_DEVICE, &mut |number| {
        commands.acquire(&gate, number).required("a gate");
        commands.release(&done, number).required("a release");
        commands.submit();
        commands
            .wait(&done, number, patience)
            .required("waiting for the device");
    });
    all(
        "asleep for a store",
        FOR_DEVICE + 1..=FOR_DEVICE + FOR_STORE,
        &mut |number| {
            store
                .wait(number - FOR_DEVICE, patience)
                .required("waiting for a store");
        },
    );
    // The second thread has seen its end, and neither fence is waited for any more.
    std::mem::forget(memory);
}

/// Runs a phase of the data path, with interrupts connected and no wait that sleeps: no interrupt
/// and no exit may occur.
fn data_path(pipeline: &mut Pipeline<'_>) {
    pipeline.arm();
    let rung = pipeline.commands.doorbells_rung();
    let phase = Phase::begin(PhasePath::Data, "packets, and a wait that spins");
    for _ in 0..PACKETS {
        pipeline.commands.nop().required("a packet");
    }
    let value = pipeline.finish();
    pipeline.open();
    pipeline
        .wait(value, Patience::SPIN)
        .required("waiting for the packets");
    let doorbells = pipeline.commands.doorbells_rung() - rung;
    phase.end(Totals {
        operations: PACKETS,
        bytes: 0,
        doorbells,
    });
}

/// Counts of interrupts so far.
struct Counted {
    /// Interrupts of the function that the Linux kernel handled.
    by_kernel: u64,
    /// Interrupts that the shim found to be for its client.
    by_shim: u64,
}

impl Counted {
    fn now() -> Self {
        Self {
            by_kernel: by_kernel(),
            by_shim: platform::interrupts().required("interrupts").count(),
        }
    }

    /// Reports the interrupts since `self`, when `waits` of them have been counted or [`LATE`] is
    /// over.
    fn report(&self, waits: u64) {
        let begun = Instant::now();
        while by_kernel() - self.by_kernel < waits && begun.elapsed() < LATE {
            std::thread::sleep(LOOK);
        }
        let now = Self::now();
        let (kernel, shim) = (now.by_kernel - self.by_kernel, now.by_shim - self.by_shim);
        figure("waits that slept", waits as f64, "");
        figure(
            "interrupts that the guest's kernel counted",
            kernel as f64,
            "",
        );
        figure("interrupts that woke the program", shim as f64, "");
        println!("{waits} waits, {kernel} interrupts, {shim} of which the shim acknowledged");
    }
}

/// Returns the interrupts of the function, over all processors, as `/proc/interrupts` counts them.
fn by_kernel() -> u64 {
    let table = fs::read_to_string("/proc/interrupts").required("the kernel's count");
    let line = table.lines().find(|line| line.contains("uio_pci_generic"));
    let line = line.required("the function's line");
    // Number of the interrupt, then a count for each processor, then words.
    let counts = line
        .split_whitespace()
        .skip(1)
        .map_while(|word| word.parse::<u64>().ok());
    counts.sum()
}
