//! Thread-instructions a second and core of every test kernel: `cargo run --release -p
//! causeway-software --example rates [compiled] [KERNEL…]`. The interpreter executes them, or,
//! with the word `compiled`, machine code as far as it can be made.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_kernels::{CASES, Case, PARAMETER_BYTES_MAX};
use causeway_mediator::backend::{
    AllocateOptions, Backend, Launch, LaunchShape, Reservation, Work,
};
use causeway_memory::Mapping;
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;
use causeway_software::{Config, Engine, Software};

const LAUNCHES: usize = 5;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let engine = match wanted.iter().any(|word| word == "compiled") {
        true => Engine::Compiled,
        false => Engine::Interpreter,
    };
    wanted.retain(|word| word != "compiled");
    println!(
        "{:16} {:>14} {:>12} {:>10}",
        "kernel", "thread-instr.", "M/s per core", "ms/launch"
    );
    for case in CASES {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            measure(case, engine)?;
        }
    }
    Ok(())
}

fn measure(case: &Case, engine: Engine) -> Result<(), Failure> {
    let backend = Software::new(Config {
        memory_bytes: 1 << 30,
        engine,
        ..Config::default()
    });
    let space = backend.create_space(Arc::new(AtomicBool::new(false)))?;
    let mut addresses = Vec::new();
    let mut views: Vec<Mapping> = Vec::new();
    for buffer in case.buffers {
        let bytes = (buffer.bytes as u64).next_multiple_of(4096);
        let memory = backend.allocate(MemoryKind::Device, bytes, AllocateOptions::default())?;
        addresses.push(space.map(None, &memory, 0, bytes, Access::ReadWrite)?);
        let backing = memory.backing().ok_or("no CPU mapping")?;
        let (shared, offset) = backing.host().ok_or("no CPU mapping")?;
        views.push(shared.map(offset, bytes, Access::ReadWrite)?);
    }
    let module = space.load_module(case.ptx.as_bytes(), &mut Reservation::unlimited())?;
    let kernel = module.kernel(case.name).ok_or("no such kernel")?;
    let mut queue = space.create_queue(0)?;
    let mut parameters = [0; PARAMETER_BYTES_MAX];
    let count = case.parameters(&addresses, &mut parameters);
    for _ in 0..LAUNCHES {
        for (index, view) in views.iter().enumerate() {
            let mut bytes = vec![0; case.buffers[index].bytes];
            case.fill(index, &mut bytes);
            view.write(0, &bytes)?;
        }
        let shape = LaunchShape {
            grid: case.grid,
            block: case.block,
            shared_bytes: case.dynamic_shared,
        };
        let launch =
            Launch::new(&kernel, shape, &parameters[..count]).map_err(|fault| fault.to_string())?;
        let launched = queue.submit(Work::Launch(launch));
        launched.map_err(|fault| fault.to_string())?;
    }
    for count in backend.launch_counts() {
        let rate = count.thread_instructions as f64 * 1e3 / count.busy_ns as f64;
        let busy_ms = count.busy_ns as f64 / 1e6 / LAUNCHES as f64;
        println!(
            "{:16} {:>14} {rate:>12.0} {busy_ms:>10.2}",
            count.kernel,
            count.thread_instructions / LAUNCHES as u64
        );
    }
    Ok(())
}
