use std::sync::Arc;

use causeway_kernels::{case, special};
use causeway_mediator::Quota;
use causeway_mediator::backend::{Backend, Launch, LaunchShape, Reservation, Work};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_standin_cuda::{cubin, fatbin};

use crate::support::{GRANULE, Rig, has_hung, is_child, is_on_standin};

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

/// The driver's linker refuses text before 3.1; the driver itself loads it.
#[test]
fn text_of_old_versions_is_loaded() {
    if !is_child("modules::text_of_old_versions_is_loaded", &[]) {
        return;
    }
    let rig = Rig::new();
    for (version, target) in [
        ("1.4", "sm_13"),
        ("2.3", "sm_20"),
        ("3.0", "sm_20"),
        ("3.1", "sm_20"),
    ] {
        let text = COUNTER.replacen("7.0", version, 1);
        let text = text.replacen("sm_70", target, 1);
        let text = match version {
            "1.4" => text.replacen(".address_size 64", "", 1),
            _ => text,
        };
        let module = rig.load(format!("// old\n{text}").as_bytes());
        assert_eq!(module.unwrap().kernels(), ["count"], "{version}");
    }
}

#[test]
fn what_the_driver_takes_for_a_module_is_reserved_before() {
    const TEST: &str = "modules::what_the_driver_takes_for_a_module_is_reserved_before";
    if !is_child(TEST, &[]) {
        return;
    }
    let rig = Rig::new();
    let text = COUNTER.replacen("counter;", "counter;\n.global .b8 many[100000];", 1);
    let load = |memory_bytes| {
        let quota = Quota {
            memory_bytes,
            ..Quota::default()
        };
        let mut reservation = Reservation::within(quota);
        rig.space.load_module(text.as_bytes(), &mut reservation)
    };
    let refused = load(99_999).err().unwrap().reason;
    assert!(
        refused.starts_with("the module takes 1")
            && refused.contains("99999 of 99999 bytes are left to the session"),
        "{refused}"
    );
    assert!(load(1 << 30).is_ok());
}

/// A driver may have a load wait for all kernels.
#[test]
fn spaces_and_queues_load_nothing() {
    const TEST: &str = "modules::spaces_and_queues_load_nothing";
    if !is_child(TEST, &[("CAUSEWAY_STANDIN_HANG_LOAD", "1")]) {
        return;
    }
    let rig = Rig::new();
    for _ in 0..2 {
        let space = rig.cuda.create_space(Arc::default()).unwrap();
        let mut queue = space.create_queue(0).unwrap();
        queue.finish().unwrap();
    }
    assert!(!has_hung(), "only opening loads");
    rig.load(COUNTER.as_bytes()).unwrap();
    assert!(has_hung());
}

const CALLER: &str = "\
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 out) twice(.param .b32 in);
.visible .entry k(.param .u64 to)
{
    .reg .b64 %to;
    .reg .b32 %r<3>;
    ld.param.u64 %to, [to];
    mov.b32 %r1, 21;
    .param .b32 given;
    .param .b32 found;
    st.param.b32 [given], %r1;
    call (found), twice, (given);
    ld.param.b32 %r2, [found];
    st.global.b32 [%to], %r2;
    ret;
}
";
const CALLED: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [in];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [out], %r2;
    ret;
}
";

/// Returns an image of several inputs, as `libcuda` makes it.
fn several(options: u32, inputs: &[&[u8]]) -> Vec<u8> {
    let mut image = causeway_mediator::linked::MAGIC.to_vec();
    image.extend_from_slice(&(inputs.len() as u32).to_le_bytes());
    image.extend_from_slice(&options.to_le_bytes());
    for input in inputs {
        image.extend_from_slice(&(input.len() as u64).to_le_bytes());
        image.extend_from_slice(input);
        image.resize(image.len().next_multiple_of(8), 0);
    }
    image
}

#[test]
fn several_inputs_are_linked() {
    if !is_child("modules::several_inputs_are_linked", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let memory = rig.buffer(MemoryKind::Host, GRANULE);
    let (caller, called) = (CALLER.as_bytes(), CALLED.as_bytes());
    let code = cubin(CALLED, 90, 0, 0);
    let mut images = vec![
        several(0, &[caller, called]),
        several(2 << 16 | 32, &[called, caller]),
    ];
    if is_on_standin() {
        images.push(several(0, &[caller, &code]));
    }
    for image in images {
        rig.upload(memory.va, &[0; 4]);
        let module = rig.load(&image).unwrap();
        assert_eq!(module.kernels(), ["k"]);
        let parameters = memory.va.to_le_bytes();
        rig.launch(&module, "k", ([1; 3], [1; 3]), &parameters)
            .unwrap();
        assert_eq!(rig.download(memory.va, 4), 42_u32.to_le_bytes());
    }
}

#[test]
fn links_that_fail_say_why() {
    if !is_child("modules::links_that_fail_say_why", &[]) {
        return;
    }
    let rig = Rig::new();
    let (caller, called) = (CALLER.as_bytes(), CALLED.as_bytes());
    let lacking = rig.load(&several(0, &[caller, caller])).err().unwrap();
    let word = match is_on_standin() {
        true => "twice",
        false => "Multiple definition",
    };
    assert!(lacking.reason.contains(word), "{lacking}");
    let bad = CALLED.replace("add.s32", "add.nonsense");
    let bad = rig.load(&several(0, &[caller, bad.as_bytes()])).err();
    let bad = bad.unwrap();
    assert!(bad.reason.contains("nonsense"), "{bad}");
    assert_eq!(bad.line, 8, "{bad}");
    // Code that claims more than there is never reaches the driver's linker.
    let huge = cubin(CALLED, 90, 1 << 40, 0);
    let huge = rig.load(&several(0, &[caller, &huge])).err().unwrap();
    assert!(huge.reason.contains("1099511627776 bytes"), "{huge}");
    let damaged = rig
        .load(&several(6 << 16, &[caller, called]))
        .err()
        .unwrap();
    assert!(damaged.reason.contains("options"), "{damaged}");
    rig.load(&several(0, &[caller, called])).unwrap();
    assert!(!rig.cuda.is_poisoned());
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

#[test]
fn copies_reach_variables_while_their_module_is_loaded() {
    let name = "modules::copies_reach_variables_while_their_module_is_loaded";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let module = rig.load(COUNTER.as_bytes()).unwrap();
    assert_eq!(module.variable("missing"), None);
    assert_eq!(module.variable("nul\0"), None);
    let counter = module.variable("counter").unwrap();
    assert_eq!(counter.bytes, 4);
    assert_eq!(module.variable("counter"), Some(counter), "asked again");
    let memory = rig.buffer(MemoryKind::Host, GRANULE);
    rig.upload(counter.address, &41_u32.to_le_bytes());
    let parameters = memory.va.to_le_bytes();
    rig.launch(&module, "count", ([1; 3], [1; 3]), &parameters)
        .unwrap();
    assert_eq!(rig.download(counter.address, 4), 42_u32.to_le_bytes());
    assert_eq!(rig.space.load_u64(memory.va), Some(41));

    let beyond = rig.copy(memory.va, counter.address, 8).unwrap_err();
    assert_eq!(
        (beyond.status, beyond.cuda_result),
        (Status::MemoryFault, 700)
    );
    rig.renew_queue();
    // A kernel that is held does not keep the variable in reach.
    let kernel = module.kernel("count").unwrap();
    drop(module);
    let gone = rig.copy(memory.va, counter.address, 4).unwrap_err();
    assert_eq!(gone.status, Status::MemoryFault, "{gone}");
    rig.renew_queue();
    drop(kernel);
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn variables_are_those_of_their_address_space() {
    let name = "modules::variables_are_those_of_their_address_space";
    if !is_child(name, &[]) {
        return;
    }
    let rig = Rig::new();
    let module = rig.load(COUNTER.as_bytes()).unwrap();
    let counter = module.variable("counter").unwrap();
    let other = rig.cuda.create_space(std::sync::Arc::default()).unwrap();
    let mut queue = other.create_queue(0).unwrap();
    let fill = causeway_mediator::backend::MemoryWork::Fill {
        destination: counter.address,
        bytes: 4,
        pattern: 1,
        width: 4,
    };
    let refused = queue.submit(Work::Memory(fill)).unwrap_err();
    assert_eq!(refused.status, Status::MemoryFault, "{refused}");
}

#[test]
fn the_device_and_its_kernels_tell_what_the_driver_does() {
    let name = "modules::the_device_and_its_kernels_tell_what_the_driver_does";
    if !is_child(name, &[]) {
        return;
    }
    let rig = Rig::new();
    let facts = rig.cuda.device_facts();
    assert_eq!(Ok(facts.uuid), rig.cuda.uuid());
    let value = |number: usize| facts.attributes[number - 1];
    let limits = rig.cuda.attributes();
    assert_eq!(value(1), Some(limits.block_threads_max.cast_signed()));
    assert_eq!(value(16), Some(limits.compute_units.cast_signed()));
    assert_eq!(value(75), Some(facts.capability[0].cast_signed()));
    assert_eq!(value(33), Some(facts.pci[1].cast_signed()));
    assert_eq!(value(160), None, "no driver knows this attribute");
    assert!(facts.cuda_version >= 12_040);
    assert!(!facts.name.is_empty());

    let module = rig.load(COUNTER.as_bytes()).unwrap();
    let attributes = module.kernel("count").unwrap().cuda_attributes();
    assert_eq!(attributes[1], Some(0), "no shared memory");
    assert!(attributes[0].unwrap() >= 32);
    assert!(attributes[5].is_some() && attributes[6].is_some());
    assert_eq!(attributes[8], Some(48 << 10));
}
