//! The hot paths of the back end: loading a module, launching kernels, giving memory out.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_kernels::{CASES, Case, PARAMETER_BYTES_MAX};
use causeway_mediator::backend::{
    AllocateOptions, Backend, Launch, LaunchShape, Reservation, Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;
use causeway_software::{Config, Software, ptx};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn software(cores: usize) -> Software {
    Software::new(Config {
        memory_bytes: 1 << 30,
        cores: Some(cores),
        ..Config::default()
    })
}

fn case(name: &str) -> &'static Case {
    let found = CASES.iter().find(|case| case.name == name);
    found.expect("the collection has this kernel")
}

fn modules(c: &mut Criterion) {
    let text = case("matmul_16").ptx;
    let space = software(1)
        .create_space(Arc::new(AtomicBool::new(false)))
        .expect("an address space");
    let mut group = c.benchmark_group("module");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("parse", |b| b.iter(|| ptx::parse(black_box(text))));
    group.bench_function("load", |b| {
        b.iter(|| {
            space
                .load_module(text.as_bytes(), &mut Reservation::unlimited())
                .is_ok()
        })
    });
    group.finish();
}

/// Launches of one kernel on one core; the throughput is in thread-instructions.
fn kernel(c: &mut Criterion, name: &str) {
    let case = case(name);
    let backend = software(1);
    let space = backend
        .create_space(Arc::new(AtomicBool::new(false)))
        .expect("an address space");
    let mut addresses = Vec::new();
    for buffer in case.buffers {
        let bytes = (buffer.bytes as u64).next_multiple_of(4096);
        let memory = backend
            .allocate(MemoryKind::Device, bytes, AllocateOptions::default())
            .expect("memory");
        let mapped = space.map(None, &memory, 0, bytes, Access::ReadWrite);
        addresses.push(mapped.expect("a free range"));
    }
    let module = space
        .load_module(case.ptx.as_bytes(), &mut Reservation::unlimited())
        .expect("a module");
    let kernel = module.kernel(case.name).expect("a kernel");
    let mut queue = space.create_queue(0).expect("a queue");
    let mut parameters = [0; PARAMETER_BYTES_MAX];
    let count = case.parameters(&addresses, &mut parameters);
    let mut launch = || {
        let shape = LaunchShape {
            grid: case.grid,
            block: case.block,
            shared_bytes: case.dynamic_shared,
        };
        let work = Work::Launch(
            Launch::new(&kernel, shape, &parameters[..count]).expect("a launch within the limits"),
        );
        queue.submit(work).expect("a launch that ends well");
    };
    launch();
    let instructions = backend.launch_counts()[0].thread_instructions;
    let mut group = c.benchmark_group("kernel");
    group.sample_size(10);
    group.throughput(Throughput::Elements(instructions));
    group.bench_function(name, |b| b.iter(&mut launch));
    group.finish();
}

fn kernels(c: &mut Criterion) {
    for name in ["matmul_16", "vector_add", "histogram", "hash"] {
        kernel(c, name);
    }
}

/// Launches of a kernel that does nothing, and waits for them.
fn launches(c: &mut Criterion) {
    let backend = software(1);
    let space = backend
        .create_space(Arc::new(AtomicBool::new(false)))
        .expect("an address space");
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }";
    let module = space
        .load_module(text.as_bytes(), &mut Reservation::unlimited())
        .expect("a module");
    let kernel = module.kernel("k").expect("a kernel");
    let mut queue = space.create_queue(0).expect("a queue");
    let mut group = c.benchmark_group("launch");
    for threads in [32, 256, 1024] {
        let shape = LaunchShape {
            grid: [1; 3],
            block: [threads, 1, 1],
            shared_bytes: 0,
        };
        let mut launch = || {
            let launch = Launch::new(&kernel, shape, &[]).expect("a launch within the limits");
            let done = queue.submit(Work::Launch(launch));
            done.expect("a launch that ends well");
        };
        group.bench_function(format!("{threads}_threads"), |b| b.iter(&mut launch));
    }
    group.finish();
}

fn allocations(c: &mut Criterion) {
    let backend = software(1);
    let mut group = c.benchmark_group("allocate_and_free");
    for (name, bytes) in [("64KiB", 64 << 10), ("4MiB", 4 << 20)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let options = AllocateOptions::default();
                backend.allocate(MemoryKind::Device, bytes, options).is_ok()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, modules, kernels, launches, allocations);
criterion_main!(benches);
