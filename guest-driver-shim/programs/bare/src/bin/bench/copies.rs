//! Measures copies between guest RAM and the device by the copy engine.

use causeway_bench_workloads::Line;
use causeway_guests::Required;
use causeway_shim::{Access, MemoryKind, Patience, Window};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::line::{Repeat, Sample};

/// Size of a copy in bytes, as in other published benchmarks.
const BYTES: u64 = 256 << 20;

pub fn measure(bench: &mut Bench<'_>) {
    let wanted = [Line::CopyToDevice, Line::CopyFromDevice];
    if !wanted.iter().any(|line| bench.selection.wants(*line)) {
        return;
    }
    let ram = bench.machine.ram().window(BYTES as usize);
    let ram = ram.required("256 MiB of guest RAM (--memory 1024 gives enough)");
    let registered = bench.device.register_ram(address(&ram), BYTES);
    let registered = registered.required("registering guest RAM");
    let device = bench.device.allocate(BYTES, MemoryKind::Device);
    let device = device.required("256 MiB of device memory");
    let map = |memory: &causeway_shim::Allocation<'_>| {
        let mapping = memory.map_gpu(bench.space, 0, BYTES, Access::ReadWrite);
        mapping.required("mapping for the GPU").address()
    };
    let (host, gpu) = (map(&registered), map(&device));
    let sample = |line| Sample {
        line,
        path: PhasePath::Data,
        operations: 1,
        bytes: BYTES,
    };
    let mut copy = Copy {
        ram,
        to: gpu,
        from: host,
        down: false,
        pattern: 0,
    };
    bench.measure(sample(Line::CopyToDevice), &mut copy);
    (copy.to, copy.from, copy.down) = (host, gpu, true);
    bench.measure(sample(Line::CopyFromDevice), &mut copy);
}

/// Guest-physical address of RAM, which is mapped one to one.
pub fn address(ram: &Window) -> u64 {
    ram.as_ptr().as_ptr() as u64
}

/// Copies the whole memory. After a copy from the device, checks words at both ends and between.
struct Copy {
    ram: Window,
    to: u64,
    from: u64,
    down: bool,
    pattern: u64,
}

impl Copy {
    const PROBES: [u64; 4] = [0, 4096, BYTES / 2 + 8, BYTES - 8];

    fn put(&self, value: u64) {
        for at in Self::PROBES {
            let stored = self.ram.store_u64(at as usize, value ^ at);
            stored.required("a word of guest RAM");
        }
    }
}

impl<'d> Repeat<'d> for Copy {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        self.pattern += 1;
        if self.down {
            // The device gets the words that must come back, and RAM gets others.
            self.put(self.pattern);
            let commands = &mut bench.pipeline.commands;
            commands.copy(self.from, self.to, BYTES).required("copying");
            bench.wait();
            self.put(!self.pattern);
        } else {
            self.put(self.pattern);
            bench.wait();
        }
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        let commands = &mut bench.pipeline.commands;
        commands.copy(self.to, self.from, BYTES).required("copying");
        let value = bench.pipeline.finish();
        let waited = bench.pipeline.wait(value, Patience::SPIN);
        waited.required("waiting for the copy");
    }

    fn finish(&mut self, bench: &mut Bench<'d>) {
        if !self.down {
            // The copy back must replace other words in RAM.
            self.put(!self.pattern);
            let commands = &mut bench.pipeline.commands;
            commands.copy(self.from, self.to, BYTES).required("copying");
            bench.wait();
        }
        for at in Self::PROBES {
            let word = self
                .ram
                .load_u64(at as usize)
                .required("a word of guest RAM");
            assert_eq!(word, self.pattern ^ at, "at {at:#x} after a copy");
        }
    }
}
