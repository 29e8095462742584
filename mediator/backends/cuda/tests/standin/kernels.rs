use causeway_cuda::{Config, Sms};
use causeway_kernels::{CASES, Case, PARAMETER_BYTES_MAX};
use causeway_mediator::backend::{Launch, LaunchShape, MemoryWork, Work};
use causeway_protocol::message::MemoryKind;

use crate::support::{Buffer, Rig, is_child};

fn filled(case: &Case) -> Vec<Vec<u8>> {
    let fill = |(index, buffer): (usize, &causeway_kernels::Buffer)| {
        let mut bytes = vec![0; buffer.bytes];
        case.fill(index, &mut bytes);
        bytes
    };
    case.buffers.iter().enumerate().map(fill).collect()
}

fn run(case: &Case, rig: &mut Rig, kind: MemoryKind) {
    let mut buffers: Vec<Buffer> = Vec::new();
    for bytes in filled(case) {
        let buffer = rig.buffer(kind, bytes.len() as u64);
        rig.upload(buffer.va, &bytes);
        buffers.push(buffer);
    }
    let addresses: Vec<u64> = buffers.iter().map(|b| b.va).collect();
    let mut parameters = [0; PARAMETER_BYTES_MAX];
    let count = case.parameters(&addresses, &mut parameters);
    let module = rig.load(case.ptx.as_bytes()).unwrap();
    let kernel = module.kernel(case.name).unwrap();
    assert_eq!(kernel.parameter_bytes() as usize, count, "{}", case.name);
    assert_eq!(kernel.parameters().len(), case.arguments.len());
    let shape = LaunchShape {
        grid: case.grid,
        block: case.block,
        shared_bytes: case.dynamic_shared,
    };
    let work = Work::Launch(Launch::new(&kernel, shape, &parameters[..count]).unwrap());
    rig.queue.submit(work).unwrap();
    let mut expected = filled(case);
    let mut views: Vec<&mut [u8]> = expected.iter_mut().map(|b| &mut b[..]).collect();
    case.reference(&mut views);
    for (index, (want, buffer)) in expected.iter().zip(&buffers).enumerate() {
        let got = rig.download(buffer.va, want.len() as u64);
        case.compare(index, want, &got).unwrap();
    }
    for buffer in buffers {
        rig.free(buffer);
    }
}

#[test]
fn every_case_agrees_with_its_reference_in_device_memory() {
    if !is_child(
        "kernels::every_case_agrees_with_its_reference_in_device_memory",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    for case in CASES {
        run(case, &mut rig, MemoryKind::Device);
    }
}

#[test]
fn and_in_host_memory_on_a_part_of_the_multiprocessors() {
    if !is_child(
        "kernels::and_in_host_memory_on_a_part_of_the_multiprocessors",
        // Addresses differ, and fences are stored by kernels.
        &[("CAUSEWAY_STANDIN_ATTRIBUTES", "91=0,122=0")],
    ) {
        return;
    }
    let mut rig = Rig::with(&Config {
        sms: Some(Sms {
            count: 32,
            group: 1,
        }),
        ..Config::default()
    });
    for case in CASES {
        run(case, &mut rig, MemoryKind::Host);
    }
    fences(&mut rig);
}

#[test]
fn fences_and_times_arrive_in_order() {
    if is_child("kernels::fences_and_times_arrive_in_order", &[]) {
        fences(&mut Rig::new());
    }
}

fn fences(rig: &mut Rig) {
    let memory = rig.buffer(MemoryKind::Host, 4096);
    let device = rig.buffer(MemoryKind::Device, 4096);
    let (fence, first, second) = (memory.va, memory.va + 8, memory.va + 16);
    rig.queue
        .submit(Work::Memory(MemoryWork::Timestamp { address: first }))
        .unwrap();
    rig.fill(device.va, 4096, 7).unwrap();
    rig.copy(memory.va + 64, device.va, 64).unwrap();
    rig.queue
        .submit(Work::Memory(MemoryWork::Timestamp { address: second }))
        .unwrap();
    let value = 0x1_0000_0001;
    let release = Work::Memory(MemoryWork::Release {
        address: fence,
        value,
    });
    rig.queue.submit(release).unwrap();
    let begun = std::time::Instant::now();
    while rig.space.load_u64(fence) != Some(value) {
        assert!(begun.elapsed().as_secs() < 60, "the fence never came");
    }
    let word = |offset| rig.space.load_u64(memory.va + offset).unwrap();
    assert_eq!(
        word(64),
        0x7_0000_0007,
        "what came before the fence is done"
    );
    assert!(word(8) != 0 && word(8) <= word(16), "times go up");
    assert_eq!(rig.space.load_u64(device.va), None, "not visible to CPUs");
    assert_eq!(rig.space.load_u64(memory.va + 4), None, "not aligned");
    assert_eq!(rig.space.load_u64(8), None);
    rig.wait().unwrap();
}
