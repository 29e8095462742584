use causeway_cuda::{Config, Sms};
use causeway_kernels::{CASES, Case, PARAMETER_BYTES_MAX};
use causeway_mediator::backend::{Backend, Launch, LaunchOptions, LaunchShape, MemoryWork, Work};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::launch_flags;

use crate::support::{Buffer, Rig, is_child, is_on_standin};

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
    let address = memory.va + 28;
    let half = Work::Memory(MemoryWork::ReleaseHalf { address, value: 9 });
    rig.queue.submit(half).unwrap();
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
    assert_eq!(word(24), 9 << 32, "half a word");
    assert!(word(8) != 0 && word(8) <= word(16), "times go up");
    assert_eq!(rig.space.load_u64(device.va), None, "not visible to CPUs");
    assert_eq!(
        rig.space.fetch_u64(device.va + 8, &|| false),
        Some(0x7_0000_0007)
    );
    assert_eq!(
        rig.space.fetch_u64(device.va + 4, &|| false),
        None,
        "not aligned"
    );
    assert_eq!(rig.space.fetch_u64(8, &|| false), None);
    assert_eq!(rig.space.load_u64(memory.va + 4), None, "not aligned");
    assert_eq!(rig.space.load_u64(8), None);
    rig.wait().unwrap();
}

/// Each block adds to a word, and waits until all have.
const MEET: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry meet(.param .u64 to)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %to;
    ld.param.u64 %to, [to];
    mov.u32 %r1, %nctaid.x;
    atom.release.gpu.global.add.u32 %r2, [%to], 1;
wait:
    ld.acquire.gpu.global.u32 %r3, [%to];
    setp.lt.u32 %p, %r3, %r1;
    @%p bra wait;
    ret;
}
";

/// The stand-in's engine runs the blocks of other launches one behind the other.
#[test]
fn blocks_of_cooperative_launches_meet_also_in_recordings() {
    if !is_child(
        "kernels::blocks_of_cooperative_launches_meet_also_in_recordings",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Device, 4096);
    let module = rig.load(MEET.as_bytes()).unwrap();
    let kernel = module.kernel("meet").unwrap();
    let parameters = memory.va.to_le_bytes();
    let launch = |grid, flags, cluster| {
        let shape = LaunchShape {
            grid: [grid, 1, 1],
            block: [1; 3],
            shared_bytes: 0,
        };
        let launch = Launch::new(&kernel, shape, &parameters).unwrap();
        launch.with_options(LaunchOptions { flags, cluster })
    };
    let meeting = launch(200, launch_flags::COOPERATIVE, [0; 3]).unwrap();
    let recording = rig.space.record(&[meeting.into()]).unwrap();
    let again = Work::Replay {
        recording: &recording,
    };
    for work in [Work::Launch(meeting), again] {
        rig.fill(memory.va, 4, 0).unwrap();
        rig.queue.submit(work).unwrap();
        rig.queue.finish().unwrap();
        assert_eq!(rig.download(memory.va, 4), 200_u32.to_le_bytes());
    }
    let indivisible = launch(4, 0, [3, 1, 1]).unwrap_err();
    assert_eq!(
        (indivisible.status, indivisible.cuda_result),
        (Status::BadLaunch, 912)
    );
    let mut refused = |work, result| {
        let fault = rig.queue.submit(Work::Launch(work)).unwrap_err();
        let found = (fault.status, fault.cuda_result);
        assert_eq!(found, (Status::BadLaunch, result));
        rig.renew_queue();
    };
    refused(
        launch(1 << 20, launch_flags::COOPERATIVE, [0; 3]).unwrap(),
        720,
    );
    refused(launch(4096, 0, [64, 1, 1]).unwrap(), 912);
    if is_on_standin() {
        // A GPU may have them.
        refused(launch(4, 0, [2, 1, 1]).unwrap(), 912);
    }
    assert!(!rig.cuda.is_poisoned());
}
