//! Arrays and textures that end while work goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_mediator::backend::{
    Array, Backend as _, Memory, MemoryWork, Sampling, Texture, TextureSource, Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;
use causeway_protocol::packet::{ArrayBox, RectSide};

use crate::arrays::{FLOAT, U32, assert_no_objects, element, live_objects, shape};
use crate::support::{Buffer, GRANULE, Rig, host, is_child, is_on_standin};

/// Runs until the word at its parameter is not zero.
const SPIN: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 at)
{
    .reg .u64 %at;
    .reg .u32 %value;
    .reg .pred %zero;
    ld.param.u64 %at, [at];
again:
    ld.volatile.global.u32 %value, [%at];
    setp.eq.u32 %zero, %value, 0;
    @%zero bra again;
    ret;
}
";

/// Writes what a texture has at (x, 1) for each thread x.
const SAMPLE: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry sample(.param .u64 texture, .param .u64 to)
{
    .reg .u64 %texture, %to, %offset;
    .reg .u32 %thread;
    .reg .f32 %x, %y, %r, %g, %b, %a;
    ld.param.u64 %texture, [texture];
    ld.param.u64 %to, [to];
    mov.u32 %thread, %tid.x;
    cvt.rn.f32.u32 %x, %thread;
    mov.f32 %y, 0f3F800000;
    tex.2d.v4.f32.f32 {%r, %g, %b, %a}, [%texture, {%x, %y}];
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %to, %to, %offset;
    st.global.f32 [%to], %r;
    ret;
}
";

/// Launches a kernel that runs until the word is not zero.
fn spin(rig: &mut Rig, flag: &Buffer) {
    let module = rig.load(SPIN.as_bytes()).unwrap();
    let parameters = flag.va.to_le_bytes();
    rig.launch(&module, "spin", ([1; 3], [1; 3]), &parameters)
        .unwrap();
    // Not only gathered.
    rig.queue.flush().unwrap();
}

fn release(flag: &Buffer) {
    let view = host(&flag.memory);
    view.0.store_u64(0, 1, Ordering::SeqCst).unwrap();
}

fn array(rig: &Rig) -> Arc<dyn Array> {
    let array = rig
        .space
        .create_array(&shape([16, 0, 0], U32, 1, 0), Arc::new(()));
    array.unwrap()
}

fn texture(rig: &Rig, array: &Arc<dyn Array>) -> Box<dyn Texture> {
    let source = TextureSource::Array(array);
    let sampling = Sampling::default();
    rig.space.create_texture(source, &sampling).unwrap()
}

fn assert_objects(count: u64) {
    if is_on_standin() {
        assert_eq!(live_objects(), count);
    }
}

#[test]
fn an_array_stays_while_a_copy_is_under_way() {
    let name = "arrays_under_way::an_array_stays_while_a_copy_is_under_way";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let flag = rig.buffer(MemoryKind::Host, GRANULE);
    let result = rig.buffer(MemoryKind::Host, GRANULE);
    let array = array(&rig);
    rig.write_array(&array, &[0x5a; 64]);
    spin(&mut rig, &flag);
    let part = ArrayBox {
        memory: RectSide {
            address: result.va,
            pitch: 64,
            rows: 1,
        },
        origin: [0; 3],
        width: 64,
        height: 1,
        depth: 1,
    };
    rig.copy_array(&array, part, false).unwrap();
    // Returns at once, though the kernel goes on.
    drop(array);
    assert_objects(1);
    release(&flag);
    rig.queue.finish().unwrap();
    assert_eq!(host(&result.memory).bytes(64), [0x5a; 64]);
    assert_no_objects();
}

#[test]
fn nobody_waits_for_the_kernels_of_others_when_an_array_ends() {
    let name = "arrays_under_way::nobody_waits_for_the_kernels_of_others_when_an_array_ends";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let space = rig.cuda.create_space(Arc::default()).unwrap();
    let charge = Arc::new(());
    let shape = shape([16, 0, 0], U32, 1, 0);
    let create = || space.create_array(&shape, Arc::clone(&charge) as _);
    let arrays = [create().unwrap(), create().unwrap()];
    let flag = rig.buffer(MemoryKind::Host, GRANULE);
    spin(&mut rig, &flag);
    // The driver would wait for the kernel.
    drop(arrays);
    assert_eq!(Arc::strong_count(&charge), 3, "its memory is taken still");
    assert_objects(2);
    // What follows is not held up for long.
    drop(create().unwrap());
    let mut queue = space.create_queue(0).unwrap();
    let destination = rig.buffer(MemoryKind::Host, GRANULE);
    let mapped = space.map(None, &destination.memory, 0, GRANULE, Access::ReadWrite);
    let fill = MemoryWork::Fill {
        destination: mapped.unwrap(),
        bytes: 8,
        pattern: 7,
        width: 4,
    };
    queue.submit(Work::Memory(fill)).unwrap();
    queue.finish().unwrap();
    assert_eq!(host(&destination.memory).word(0), 7 << 32 | 7);
    release(&flag);
    rig.queue.finish().unwrap();
    assert_eq!(Arc::strong_count(&charge), 1);
    assert_no_objects();
}

/// Gives a queue of a new address space short work until `end` says to stop.
fn work_until(cuda: &causeway_cuda::Cuda, memory: &Arc<dyn Memory>, end: &AtomicBool) {
    let space = cuda.create_space(Arc::default()).unwrap();
    let mut queue = space.create_queue(0).unwrap();
    let destination = space
        .map(None, memory, 0, GRANULE, Access::ReadWrite)
        .unwrap();
    while !end.load(Ordering::SeqCst) {
        let fill = MemoryWork::Fill {
            destination,
            bytes: 4096,
            pattern: 1,
            width: 4,
        };
        queue.submit(Work::Memory(fill)).unwrap();
        queue.poll().unwrap();
    }
    queue.finish().unwrap();
}

#[test]
fn arrays_end_only_when_no_queue_of_their_context_has_work() {
    let name = "arrays_under_way::arrays_end_only_when_no_queue_of_their_context_has_work";
    if !is_child(name, &[("CAUSEWAY_STANDIN_PROMPT", "1")]) {
        return;
    }
    let rig = Rig::new();
    // Nothing else works meanwhile, such as the fill of a fresh array.
    let arrays: Vec<_> = (0..200).map(|_| array(&rig)).collect();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let memory = rig.allocate(MemoryKind::Host, GRANULE).unwrap();
            let (cuda, end) = (&rig.cuda, &end);
            scope.spawn(move || work_until(cuda, &memory, end));
        }
        for array in arrays {
            drop(array);
            std::thread::sleep(Duration::from_millis(1));
        }
        end.store(true, Ordering::SeqCst);
    });
    assert_no_objects();
}

#[test]
fn a_texture_stays_while_a_kernel_may_use_it_and_keeps_its_array() {
    let name = "arrays_under_way::a_texture_stays_while_a_kernel_may_use_it_and_keeps_its_array";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let flag = rig.buffer(MemoryKind::Host, GRANULE);
    let array = array(&rig);
    let used = texture(&rig, &array);
    // Before the first runs: a driver may wait for it with the second.
    let module = rig.load(SPIN.as_bytes()).unwrap();
    spin(&mut rig, &flag);
    // Gathered, and not yet with the driver.
    let parameters = flag.va.to_le_bytes();
    rig.launch(&module, "spin", ([1; 3], [1; 3]), &parameters)
        .unwrap();
    let weak = Arc::downgrade(&array);
    drop((used, array));
    assert_objects(2);
    assert_eq!(weak.strong_count(), 1, "the session is charged for it");
    release(&flag);
    rig.queue.finish().unwrap();
    assert_eq!(weak.strong_count(), 0);
    assert_no_objects();
}

#[test]
fn nothing_waits_for_a_kernel_that_never_ends_once_the_session_has() {
    let name = "arrays_under_way::nothing_waits_for_a_kernel_that_never_ends_once_the_session_has";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let flag = rig.buffer(MemoryKind::Host, GRANULE);
    let array = array(&rig);
    spin(&mut rig, &flag);
    rig.stop.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    drop(array);
    assert!(!rig.queue.close());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(rig.cuda.is_poisoned());
    // It exists until the process ends: the kernel might use it.
    assert_objects(1);
    release(&flag);
}

#[test]
fn kernels_read_textures_of_a_gpu() {
    if !is_child("arrays_under_way::kernels_read_textures_of_a_gpu", &[]) || is_on_standin() {
        return;
    }
    let sms = causeway_cuda::Sms {
        count: 16,
        group: 0,
    };
    for sms in [None, Some(sms)] {
        for context_per_space in [false, true] {
            let mut rig = Rig::with(&causeway_cuda::Config {
                sms,
                context_per_space,
                ..causeway_cuda::Config::default()
            });
            read_textures(&mut rig);
        }
    }
}

fn read_textures(rig: &mut Rig) {
    let module = rig.load(SAMPLE.as_bytes()).unwrap();
    let array = rig
        .space
        .create_array(&shape([32, 4, 0], FLOAT, 1, 0), Arc::new(()));
    let array = array.unwrap();
    let content: Vec<f32> = (0..128).map(|n| n as f32).collect();
    let bytes: Vec<u8> = content.iter().flat_map(|n| n.to_le_bytes()).collect();
    rig.write_array(&array, &bytes);
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    rig.upload(memory.va, &bytes);
    let result = rig.buffer(MemoryKind::Host, GRANULE);
    for source in [
        TextureSource::Array(&array),
        TextureSource::Rows {
            address: memory.va,
            width: 32,
            height: 4,
            pitch: 128,
            element: element(FLOAT, 1),
        },
    ] {
        let texture = rig.space.create_texture(source, &Sampling::default());
        let texture = texture.unwrap();
        rig.fill(result.va, 128, 0).unwrap();
        let parameters = [texture.object(), result.va].map(u64::to_le_bytes).concat();
        rig.launch(&module, "sample", ([1; 3], [32, 1, 1]), &parameters)
            .unwrap();
        rig.queue.finish().unwrap();
        assert_eq!(host(&result.memory).bytes(128), bytes[128..256]);
    }
}
