use causeway_kernels::{case, special};
use causeway_mediator::backend::{Backend, Launch, LaunchShape, Work};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_standin_cuda::{cubin, fatbin};

use crate::support::{GRANULE, Rig, is_child, is_on_standin};

const COUNTER: &str = "\
.version 7.0
.target sm_70
.address_size 64
.global .u32 counter;
.visible .entry count(.param .u64 to)
{
    .reg .u64 %to, %at;
    .reg .u32 %old;
    ld.param.u64 %to, [to];
    mov.u64 %at, counter;
    atom.global.add.u32 %old, [%at], 1;
    st.global.u32 [%to], %old;
    ret;
}
";

#[test]
fn text_cubins_and_fat_binaries_run_and_variables_stay() {
    if !is_child(
        "modules::text_cubins_and_fat_binaries_run_and_variables_stay",
        &[],
    ) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Host, GRANULE);
    let code = cubin(COUNTER, 90, 4, 0);
    let mut images = vec![
        COUNTER.as_bytes().to_vec(),
        code.clone(),
        fatbin(&[(true, 80, &cubin(COUNTER, 80, 4, 0)), (true, 90, &code)]),
    ];
    if !is_on_standin() {
        // Machine code of the stand-in's is none.
        images.truncate(1);
    }
    for image in images {
        let module = rig.load(&image).unwrap();
        assert_eq!(module.kernels(), ["count"]);
        assert!(module.memory_bytes() >= 4);
        assert!(module.kernel("missing").is_none());
        for _ in 0..2 {
            let parameters = memory.va.to_le_bytes();
            rig.launch(&module, "count", ([1; 3], [1; 3]), &parameters)
                .unwrap();
        }
        rig.queue.finish().unwrap();
        assert_eq!(rig.space.load_u64(memory.va), Some(1), "the second count");
    }
}

#[test]
fn refusals_say_why_and_where() {
    if !is_child("modules::refusals_say_why_and_where", &[]) {
        return;
    }
    let rig = Rig::new();
    let bad = COUNTER.replace("atom.global.add.u32", "atom.global.nonsense.u32");
    let refused = rig.load(bad.as_bytes()).err().unwrap();
    assert_eq!(refused.line, 11, "{refused}");
    let wrong = rig.load(&cubin(COUNTER, 80, 4, 0)).err().unwrap();
    assert!(wrong.reason.contains("sm_80, this GPU is sm_90"), "{wrong}");
    if is_on_standin() {
        let huge = rig.load(&cubin(COUNTER, 90, 5 << 30, 0)).err().unwrap();
        assert!(huge.reason.contains("5368709120 bytes"), "{huge}");
    }
    let empty = rig.load(b"").err().unwrap();
    assert!(empty.reason.contains("neither PTX"), "{empty}");
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn launches_beyond_a_kernel_are_refused() {
    if !is_child("modules::launches_beyond_a_kernel_are_refused", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let module = rig.load(special::PTX.as_bytes()).unwrap();
    let kernel = module.kernel(special::SPIN).unwrap();
    let shape = LaunchShape {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
    };
    let full = vec![0; kernel.parameter_bytes() as usize];
    let cases = [
        (shape, &full[1..], Status::BadParameters),
        (
            LaunchShape {
                shared_bytes: 1 << 20,
                ..shape
            },
            &full[..],
            Status::BadLaunch,
        ),
        (
            LaunchShape {
                block: [2048, 1, 1],
                ..shape
            },
            &full[..],
            Status::BadLaunch,
        ),
    ];
    for (shape, parameters, status) in cases {
        let refused = Launch::new(&kernel, shape, parameters);
        assert_eq!(refused.unwrap_err().status, status);
    }
    assert!(!rig.cuda.is_poisoned());
    // More dynamic shared memory than 48 KiB is there for who asks.
    let large = LaunchShape {
        shared_bytes: 100 << 10,
        ..shape
    };
    rig.queue
        .submit(Work::Launch(Launch::new(&kernel, large, &full).unwrap()))
        .unwrap();
    assert!(case("saxpy").is_some());
}
