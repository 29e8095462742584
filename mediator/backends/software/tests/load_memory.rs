//! What a module takes of its session's limits, and what a load needs while it is under way, for
//! images made to be costly.

#![allow(unsafe_code, reason = "an allocator that counts")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_mediator::Quota;
use causeway_mediator::backend::{Backend, Module, ModuleError, Reservation, Space};
use causeway_software::{Config, Engine, Software};
use parking_lot::Mutex;
use support::Device;

struct Counting;

/// Bytes that this process has allocated and not freed, and the most since the last measurement
/// began.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by each test: memory and descriptors are counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const HEAD: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";
const VARIABLES: &str = ".global .u32 g = 7;\n.const .u32 c = 8;\n";

fn kernel(body: &str) -> String {
    let registers = ".reg .b32 a; .reg .b64 d; .reg .pred p; .reg .f64 g;";
    format!("{HEAD}.visible .entry k() {{ {registers} {body} ret; }}")
}

/// Repeats `unit`, with a number in place of each `#`, until the text has `bytes` bytes.
fn repeated(unit: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    for number in 1_000_000.. {
        let next = unit.replace('#', &i32::to_string(&number));
        if text.len() + next.len() > bytes {
            break;
        }
        text += &next;
    }
    text
}

/// A function of many instructions, and many kernels that call it: code of a multiple of the text.
fn multiplied(bytes: usize) -> String {
    let function = repeated("ret;", bytes / 2);
    let kernels = repeated(".entry k#(){call f;ret;}", bytes / 2);
    format!("{HEAD}.func f(){{{function}}}\n{kernels}")
}

fn load(
    device: &Device,
    text: &str,
    reservation: &mut Reservation,
) -> Result<Arc<dyn Module>, ModuleError> {
    device.space.load_module(text.as_bytes(), reservation)
}

/// Returns the most bytes that were allocated while `text` was loaded, without those that its
/// module keeps.
fn bytes_under_way(device: &Device, text: &str) -> u64 {
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let loaded = load(device, text, &mut Reservation::unlimited());
    let bytes = PEAK.load(Ordering::Relaxed) - before;
    let kept = loaded.map_or(0, |module| module.memory_bytes());
    (bytes as u64).saturating_sub(kept)
}

#[test]
fn loads_need_no_more_memory_than_the_back_end_says() {
    let _alone = ALONE.lock();
    let device = Device::new(1);
    let bodies = [
        "ret;",
        "trap;",
        "{}",
        "a:",
        "l#:",
        "l:bra l;",
        "bra l;",
        "bar.sync 0;",
        "mov.b32 a,#;",
        "mov.b64 d,#;",
        "add.s64 d,#,d;",
        "div.rn.f64 g,g,g;",
        "{.reg.b8 x,y,z;}",
        "@p ret;",
        "fma.rn.f64 g,g,g,g;",
    ];
    let modules = [
        ".const.b8 v#;",
        ".func v#;",
        ".entry v#(){ret;}",
        ".extern.const.b8 v;",
    ];
    for bytes in [16 << 10, 4 << 20] {
        let bodies = bodies.map(|unit| (unit, kernel(&repeated(unit, bytes - 200))));
        let modules = modules.map(|unit| (unit, format!("{HEAD}{}", repeated(unit, bytes - 200))));
        let others = [
            (
                "1,",
                format!(
                    "{HEAD}.global .u8 v[] = {{{}1}};",
                    repeated("1,", bytes - 200)
                ),
            ),
            (
                "a,",
                kernel(&format!("mov.b32 a,{{{}a}};", repeated("a,", bytes - 200))),
            ),
        ];
        for (unit, text) in bodies.into_iter().chain(modules).chain(others) {
            let (needed, said) = (
                bytes_under_way(&device, &text),
                device.backend.load_bytes(text.len() as u64),
            );
            let length = text.len();
            assert!(
                needed <= said,
                "{unit}: {length} bytes need {needed}, not {said}"
            );
        }
    }
}

#[test]
fn variables_beyond_what_the_session_has_left_are_refused_before_they_are_made() {
    let _alone = ALONE.lock();
    // The device has less than the variables take, which it would say if it were asked.
    let device = Device::on(Arc::new(Software::new(Config {
        memory_bytes: 16 << 20,
        cores: Some(1),
        ..Config::default()
    })));
    let text = format!("{HEAD}.global .b8 g[100000000];\n.const .b8 c[100000000];\n");
    let mut reservation = Reservation::within(Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    });
    let error = load(&device, &text, &mut reservation).err().unwrap();
    assert!(
        error.reason.starts_with(
            "the module's variables take 200007680 bytes of memory, and 1048576 of 1048576 bytes \
             are left to the session"
        ),
        "{error}"
    );
    assert_eq!(device.backend.free_bytes(), 16 << 20);
}

#[test]
fn code_beyond_what_the_session_has_left_is_refused_kernel_by_kernel() {
    let _alone = ALONE.lock();
    let device = Device::new(1);
    let text = multiplied(15 << 10);
    let module = load(&device, &text, &mut Reservation::unlimited()).unwrap();
    let kept = module.memory_bytes();
    let said = device.backend.load_bytes(text.len() as u64);
    assert!(kept > 20 * said, "{kept} bytes of code, {said} said");
    drop(module);

    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut reservation = Reservation::within(Quota {
        memory_bytes: 1 << 20,
        ..Quota::default()
    });
    let error = load(&device, &text, &mut reservation).err().unwrap();
    assert!(
        error.reason.starts_with("the code of kernel `k1000"),
        "{error}"
    );
    let needed = (PEAK.load(Ordering::Relaxed) - before) as u64;
    assert!(needed <= said + (1 << 20), "{needed} bytes, {said} said");
}

const SUM: &str = "add.u32 a, a, a;";

/// Devices that interpret and that compile; `None` if this host executes no compiled code.
fn engines() -> Option<[Device; 2]> {
    let devices = [Engine::Interpreter, Engine::Compiled].map(Device::with);
    let compiles = devices[1].backend.attributes().name.ends_with("compiled");
    if !compiles {
        eprintln!("skipped: this processor lacks AVX2 or FMA");
    }
    compiles.then_some(devices)
}

#[test]
fn machine_code_is_charged_with_its_kernel() {
    let _alone = ALONE.lock();
    let Some([interpreter, compiler]) = engines() else {
        return;
    };
    let text = kernel(&SUM.repeat(4000));
    let [memory_bytes, with_code] = [&interpreter, &compiler].map(|device| {
        let module = load(device, &text, &mut Reservation::unlimited());
        module.unwrap().memory_bytes()
    });
    assert!(with_code > memory_bytes + 4 * 4000, "{with_code}");
    let mut enough_to_interpret = Reservation::within(Quota {
        memory_bytes,
        ..Quota::default()
    });
    let refused = load(&compiler, &text, &mut enough_to_interpret);
    let reason = refused.err().unwrap().reason;
    assert!(
        reason.starts_with("the code of kernel `k` takes"),
        "{reason}"
    );
}

#[test]
fn machine_code_is_an_allocation_of_its_session() {
    let _alone = ALONE.lock();
    let Some([interpreter, compiler]) = engines() else {
        return;
    };
    let text = kernel(&SUM.repeat(3));
    let mut none = Reservation::within(Quota {
        allocations: 0,
        ..Quota::default()
    });
    load(&interpreter, &text, &mut none).unwrap();
    let refused = load(&compiler, &text, &mut none).err().unwrap();
    let what = "the machine code of the module's kernels takes an allocation";
    assert!(refused.reason.starts_with(what), "{refused}");
}

#[test]
fn machine_code_that_is_not_finished_is_in_its_file_only() {
    let _alone = ALONE.lock();
    let Some(engines) = engines() else {
        return;
    };
    let function = "@p mad.wide.u32 d, a, a, d;".repeat(400);
    let kernels = repeated(".entry k#(){call f;ret;}", 8 << 10);
    let registers = ".reg .pred p; .reg .b32 a; .reg .b64 d;";
    let text = format!("{HEAD}.func f(){{{registers} {function}}}\n{kernels}");
    let [(needed, kept), (needed_with_code, kept_with_code)] = engines.map(|device| {
        let before = ALLOCATED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let module = load(&device, &text, &mut Reservation::unlimited()).unwrap();
        let needed = (PEAK.load(Ordering::Relaxed) - before) as u64;
        (needed, module.memory_bytes())
    });
    let code_bytes = kept_with_code - kept;
    assert!(code_bytes > 4 << 20, "{code_bytes}");
    let more = needed_with_code.saturating_sub(needed);
    assert!(
        more < code_bytes / 4,
        "{more} of {code_bytes} bytes are allocated"
    );
}

/// Returns how many descriptors of this process are memory objects, which have no name.
fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links
        .filter(|link| link.to_string_lossy().ends_with(" (deleted)"))
        .count()
}

#[test]
fn all_variables_of_a_module_take_one_descriptor_which_is_an_allocation() {
    let _alone = ALONE.lock();
    let device = Device::new(1);
    let text = format!("{HEAD}{VARIABLES}");
    let allowed = |allocations| {
        Reservation::within(Quota {
            allocations,
            ..Quota::default()
        })
    };
    let before = descriptors();
    let module = load(&device, &text, &mut allowed(1)).unwrap();
    assert_eq!(descriptors(), before + 1);
    assert_eq!(module.memory_bytes(), 2 * 4096);
    let refused = load(&device, &text, &mut allowed(0)).err().unwrap();
    assert!(
        refused
            .reason
            .starts_with("the module's variables take an allocation"),
        "{refused}"
    );
    drop(module);
    assert_eq!(descriptors(), before);
    // Code alone takes none.
    load(&device, &kernel(""), &mut allowed(0)).unwrap();
    assert_eq!(descriptors(), before);
}

#[test]
fn the_heap_of_malloc_is_an_allocation_and_its_bytes_are_reserved() {
    let _alone = ALONE.lock();
    let device = Device::new(1);
    let malloc = ".extern .func (.param .b64 r) malloc (.param .b64 n);\n";
    let body = "{ .param .b64 n; .param .b64 r; st.param.b64 [n], d; call (r), malloc, (n); }";
    let text = kernel(body).replace(".visible", &format!("{malloc}.visible"));
    let before = descriptors();
    let load = |allocations, memory_bytes| {
        let quota = Quota {
            allocations,
            memory_bytes,
            ..Quota::default()
        };
        load(&device, &text, &mut Reservation::within(quota))
    };
    for (allocations, memory_bytes, reason) in [
        (0, 1 << 30, "the heap for `malloc` takes an allocation, and"),
        (
            1,
            1 << 20,
            "the heap for `malloc` and the text of `printf` take",
        ),
    ] {
        let refused = load(allocations, memory_bytes).err().unwrap();
        assert!(refused.reason.starts_with(reason), "{refused}");
        assert_eq!(descriptors(), before);
    }
    let _module = load(1, 1 << 30).unwrap();
    assert_eq!(descriptors(), before + 1);
}
