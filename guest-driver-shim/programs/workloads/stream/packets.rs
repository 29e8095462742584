//! Measures packets that are written to a busy queue.

use crate::platform::{Machine, Phase, Totals, figure, println, ticks};
use crate::{Pipeline, Required, median, per};
use causeway_protocol::ring;
use causeway_shim::{AddressSpace, Buffer, Device, Fence, MemoryKind, Patience};
use causeway_testdev_records::PhasePath;
use zerocopy::FromBytes;

/// Number of packets in each run. They fit into the longest ring, so no run waits for room.
const PACKETS: u64 = 1_000_000;
const _: () =
    assert!(PACKETS + 4096 < ring::UNITS_MAX && GATE_PACKETS.is_multiple_of(SAMPLE_PACKETS));
/// Number of packets between two looks at the clock.
const SAMPLE_PACKETS: u64 = 64;
const SAMPLES: usize = (PACKETS / SAMPLE_PACKETS) as usize;
/// Number of packets between two gates. The device may pass a gate when so many packets are behind
/// it. So the device works while the guest writes, but does not run out of work and go to sleep,
/// even if the host takes the guest's CPU away for a moment.
const GATE_PACKETS: u64 = 1 << 16;

/// Bytes that a fill or a copy moves.
const RANGE_BYTES: u64 = 256;

/// Memory and fences on which the packets work.
struct Target<'d> {
    pipeline: Pipeline<'d>,
    data: Buffer<'d>,
    fence: Fence<'d>,
    /// The last value that a packet releases to the fence.
    released: u64,
}

impl Target<'_> {
    /// Writes packet number `index` of a mix of work.
    fn mixed(&mut self, index: u64) {
        let base = self.data.gpu.address();
        let commands = &mut self.pipeline.commands;
        let written = match index % 16 {
            3 | 9 | 13 => commands.fill(base + 4096, RANGE_BYTES, index as u32),
            5 | 11 => commands.copy(base + 8192, base + 4096, RANGE_BYTES),
            15 => {
                self.released += 1;
                commands.release(&self.fence, self.released)
            }
            _ => commands.nop(),
        };
        written.required("writing a packet");
    }

    fn nop(&mut self, _: u64) {
        self.pipeline.commands.nop().required("writing a packet");
    }
}

/// Measures two runs: no-ops, of which each is published by itself, and a mix of work that is
/// published 16 packets at a time.
pub fn measure(machine: &Machine, device: &'static Device<'static>, space: &AddressSpace<'static>) {
    let pipeline = Pipeline::new(device, space, ring::UNITS_MAX);
    let data = Buffer::new(device, space, 16 << 10, MemoryKind::Host).required("memory to work on");
    let fence = data.fence(0).required("a fence");
    let mut target = Target {
        pipeline,
        data,
        fence,
        released: 0,
    };
    let samples = machine
        .ram()
        .bytes(SAMPLES * 8)
        .required("guest RAM for samples");
    samples.fill(0);
    let Ok(samples) = <[u64]>::mut_from_bytes(samples) else {
        unreachable!("guest RAM comes in pages")
    };

    let name = "10^6 no-ops, one by one";
    let one_by_one = run(machine, &mut target, samples, name, 1, Target::nop);
    let name = "10^6 packets, mixed, in sixteens";
    let mixed = run(machine, &mut target, samples, name, 16, Target::mixed);
    assert_eq!(
        target.fence.value(),
        target.released,
        "every release must have been executed"
    );
    let filled = target.data.cpu.load_u32(8192).required("what was copied");
    let copied = (PACKETS - 1) / 16 * 16;
    assert!(
        u64::from(filled) >= copied - 16,
        "the last copy must bring one of the last fills, not {filled}"
    );
    figure("packet submitted, one by one (median)", one_by_one, "ns");
    figure("packet submitted, in sixteens (median)", mixed, "ns");
    println!("packets: {one_by_one:.1} ns one by one, {mixed:.1} ns in sixteens");
}

/// Returns the median of the nanoseconds per packet.
fn run<'d>(
    machine: &Machine,
    target: &mut Target<'d>,
    samples: &mut [u64],
    name: &str,
    packets_per_publish: u64,
    write: impl Fn(&mut Target<'d>, u64),
) -> f64 {
    let clock = machine.clock();
    let rung = target.pipeline.commands.doorbells_rung();
    target.pipeline.arm();
    // This may ring the doorbell of a device that sleeps; the phase itself must not.
    let rung_by_arming = target.pipeline.commands.doorbells_rung() - rung;
    let phase = Phase::begin(PhasePath::Data, name);
    let start = ticks();
    for (sample, slot) in samples.iter_mut().enumerate() {
        let first = sample as u64 * SAMPLE_PACKETS;
        if first != 0 && first.is_multiple_of(GATE_PACKETS) {
            target.pipeline.arm();
            target.pipeline.open_but(2);
        }
        let begin = ticks();
        for index in first..first + SAMPLE_PACKETS {
            write(target, index);
            if (index + 1).is_multiple_of(packets_per_publish) {
                target.pipeline.commands.submit();
            }
        }
        *slot = ticks() - begin;
    }
    let value = target.pipeline.finish();
    target.pipeline.open();
    target
        .pipeline
        .wait(value, Patience::SPIN)
        .required("waiting for the packets");
    let all = ticks() - start;
    let doorbells = target.pipeline.commands.doorbells_rung() - rung - rung_by_arming;
    phase.end(Totals {
        operations: PACKETS,
        bytes: PACKETS * 64,
        doorbells,
    });
    figure(name, per(clock.nanoseconds(all), PACKETS), "ns/executed");
    per(clock.nanoseconds(median(samples)), SAMPLE_PACKETS)
}
