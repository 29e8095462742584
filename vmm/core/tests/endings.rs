//! Every way in which a VM can end.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_mediator::{Mediator, Quota};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::boot::{BOOT_PAGE, MAGIC, PORT_CONSOLE};
use causeway_protocol::message::{self, Opcode, message_bytes};
use causeway_protocol::registers::Register;
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};
use causeway_testdev::Mailboxes;
use causeway_testdev_records::{Mail, Panic, RecordHeader, RecordKind};
use causeway_vmm::console::LineSink;
use causeway_vmm::loader::LoadError;
use causeway_vmm::outcome::VmResult;
use causeway_vmm::vm::{ConfigError, Vm, VmConfig, VmError, VmGpu};
use support::{
    Guest, bare, config, header, kvm, run, run_for, run_guest, test_device, vm, vm_with_console,
};
use zerocopy::IntoBytes;

#[test]
fn a_guest_passes_or_fails_by_its_code() {
    let Some(kvm) = kvm() else { return };
    assert_eq!(
        run_guest(&kvm, &Guest::new().exit(0)).result,
        VmResult::Pass
    );
    assert_eq!(
        run_guest(&kvm, &Guest::new().exit(7)).result,
        VmResult::Fail {
            code: 7,
            reason: None
        }
    );
}

#[test]
fn a_panic_brings_file_line_and_message() {
    let Some(kvm) = kvm() else { return };
    let mut record = Panic {
        header: header::<Panic>(RecordKind::Panic),
        line: 12,
        file_bytes: 4,
        message_bytes: 4,
        reserved: 0,
        file: [0; 128],
        message: [0; 256],
    };
    record.file[..4].copy_from_slice(b"a.rs");
    record.message[..4].copy_from_slice(b"oops");
    let guest = Guest::new().record(record.as_bytes()).exit(101);
    let result = run_guest(&kvm, &guest).result;
    assert_eq!(result.to_string(), "failed at a.rs:12: oops");
}

#[test]
fn a_triple_fault_is_reported_with_its_place() {
    let Some(kvm) = kvm() else { return };
    // mov rax, [0x7f_ffff_ffff_f000], which is beyond what is mapped.
    let guest = Guest::new().load32(0x7f_ffff_ffff_f000 & 0x7fff_ffff_f000);
    let VmResult::TripleFault { vcpu: 0, registers } = run_guest(&kvm, &guest).result else {
        panic!("a load from nowhere cannot pass");
    };
    if !registers.were_reset() {
        assert_eq!(registers.rip, 0x10_000a);
        assert_eq!(registers.cr2, 0x7fff_ffff_f000);
        assert_eq!(registers.cs & 3, 3, "at CPL 3");
    }
}

#[test]
fn a_guest_that_never_ends_is_ended() {
    let Some(kvm) = kvm() else { return };
    let vm = vm(&kvm, &config(Guest::new().forever().image())).unwrap();
    let begin = Instant::now();
    let outcomes = run_for(vec![vm], Duration::from_millis(50));
    assert_eq!(outcomes[0].result, VmResult::Timeout);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(outcomes[0].first_instruction.is_some());
}

#[test]
fn a_vm_is_given_up_at_any_virtual_cpu() {
    let Some(kvm) = kvm() else { return };
    let mediator = Mediator::new(FakeBackend::new());
    let config = VmConfig {
        vcpus: 3,
        ..config(Guest::new().exit(0).image())
    };
    // Before the VM, and before each virtual CPU.
    for calls in 1..=5 {
        let mut called = 0;
        let mut interrupted = || {
            called += 1;
            called == calls
        };
        let quota = Quota::default();
        let console: LineSink = Arc::new(|_: &str| {});
        let gpu = VmGpu {
            number: 0,
            sessions: &*mediator,
            quota,
        };
        let made = Vm::new_unless(&kvm, &config, &[gpu], console, &mut interrupted);
        let given_up = matches!(made, Err(VmError::Interrupted));
        assert_eq!((given_up, made.is_ok()), (calls <= 4, calls > 4), "{calls}");
        assert_eq!(called, calls.min(4));
    }
}

#[test]
fn a_guest_that_waits_for_mail_can_be_ended() {
    let Some(kvm) = kvm() else { return };
    let fetch = Mail {
        header: header::<Mail>(RecordKind::Fetch),
        mailbox: 0,
        wait: 60_000,
        data: [0; 64],
    };
    let guest = Guest::new().record(fetch.as_bytes()).exit(0);
    let vm = vm(&kvm, &config(guest.image())).unwrap();
    let begin = Instant::now();
    let outcomes = run_for(vec![vm], Duration::from_millis(50));
    assert_eq!(outcomes[0].result, VmResult::Timeout);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_vm_that_fails_ends_the_waiting_of_the_others_for_mail() {
    let Some(kvm) = kvm() else { return };
    let mailboxes = Arc::new(Mailboxes::default());
    let vm = |guest: &Guest| {
        let mut config = config(guest.image());
        config.attached = vec![Arc::new(test_device(&mailboxes))];
        vm(&kvm, &config).unwrap()
    };
    let fetch = |mailbox| Mail {
        header: header::<Mail>(RecordKind::Fetch),
        mailbox,
        wait: 60_000,
        data: [0; 64],
    };
    let left = Mail {
        header: header::<Mail>(RecordKind::Post),
        ..fetch(0)
    };
    // The posted mail arrives. Nobody waits for mail that is never posted, and its fetch says so.
    let fails = Guest::new().record(left.as_bytes()).exit(3);
    let waits = Guest::new()
        .record(fetch(0).as_bytes())
        .load32(support::DATA + 12)
        .expect_eax(1)
        .record(fetch(1).as_bytes())
        .load32(support::DATA + size_of::<Mail>() as u64 + 12)
        .expect_eax(2)
        .exit(0);
    let begin = Instant::now();
    let outcomes = run(vec![vm(&waits), vm(&fails)]);
    assert_eq!(outcomes[0].result, VmResult::Pass);
    assert!(outcomes[1].ended < outcomes[0].ended);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_vm_that_ends_gives_back_what_it_had_of_the_gpu_while_others_run_on() {
    let Some(kvm) = kvm() else { return };
    let message = |opcode: Opcode, body: &[u8]| {
        let head = message::Header {
            opcode: opcode as u16,
            length: message_bytes(opcode) as u32,
            ..Default::default()
        };
        let mut bytes = [head.as_bytes(), body].concat();
        bytes.resize(message_bytes(opcode), 0);
        bytes
    };
    let hello = message::Hello {
        major: VERSION_MAJOR,
        minor: VERSION_MINOR,
        reserved: 0,
    };
    let batch = [
        message(Opcode::Hello, hello.as_bytes()),
        message(Opcode::CreateSpace, &[]),
    ]
    .concat();
    let register = |register: Register| 0xe000_0000 + register as u64;
    let (ends, address) = Guest::new().data(&batch);
    let ends = ends
        .store32(register(Register::ControlBaseLow), address as u32)
        .store32(register(Register::ControlDoorbell), batch.len() as u32)
        .exit(0);

    let backend = FakeBackend::new();
    let mediator = Mediator::new(backend.clone());
    let vm = |guest: &Guest| {
        let quiet: LineSink = Arc::new(|_: &str| {});
        let config = config(guest.image());
        Vm::new(&kvm, &config, &*mediator, Quota::default(), quiet).unwrap()
    };
    let vms = vec![vm(&ends), vm(&Guest::new().forever())];
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        backend.live().spaces
    });
    let outcomes = run_for(vms, Duration::from_secs(1));
    assert_eq!(outcomes[0].result, VmResult::Pass);
    assert!(
        outcomes[0].sessions[0]
            .messages_by_name()
            .contains(&("create_space", 1))
    );
    assert_eq!(outcomes[1].result, VmResult::Timeout);
    assert_eq!(
        later.join().unwrap(),
        0,
        "address spaces left in the middle of the run"
    );
}

#[test]
fn all_virtual_cpus_run_and_parking_all_of_them_is_no_pass() {
    let Some(kvm) = kvm() else { return };
    let park = header::<RecordHeader>(RecordKind::Park);
    let mut config = config(Guest::new().record(park.as_bytes()).forever().image());
    config.vcpus = 3;
    let outcomes = run(vec![vm(&kvm, &config).unwrap()]);
    assert_eq!(outcomes[0].result, VmResult::Abandoned);
    assert_eq!(outcomes[0].vmm_exits["io:testdev:record"], 3);
}

#[test]
fn one_vm_that_fails_leaves_the_other_running() {
    let Some(kvm) = kvm() else { return };
    let fault = Guest::new().raw(&[0x0f, 0x0b]);
    let works = Guest::new()
        .store_loop(support::SCRATCH, 10_000_000)
        .exit(0);
    let vms = [fault, works].map(|guest| vm(&kvm, &config(guest.image())).unwrap());
    let outcomes = run(vms.into());
    assert!(matches!(outcomes[0].result, VmResult::TripleFault { .. }));
    assert_eq!(outcomes[1].result, VmResult::Pass);
}

#[test]
fn a_signal_ends_the_run() {
    let Some(kvm) = kvm() else { return };
    let vm = vm(&kvm, &config(Guest::new().forever().image())).unwrap();
    let runner = std::thread::spawn(move || run(vec![vm]));
    // Blocked there from before the guest runs; until then, and here, it must not be sent.
    std::thread::sleep(Duration::from_millis(200));
    send_to(&runner, libc::SIGTERM);
    let outcomes = runner.join().unwrap();
    assert_eq!(outcomes[0].result, VmResult::Signal(libc::SIGTERM));
}

#[allow(unsafe_code)] // Signals a thread.
fn send_to<T>(thread: &std::thread::JoinHandle<T>, signal: i32) {
    use std::os::unix::thread::JoinHandleExt;
    // SAFETY: the thread has not been joined, so its handle is valid.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), signal) };
}

#[test]
fn the_boot_page_and_the_console_are_there() {
    let Some(kvm) = kvm() else { return };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let guest = Guest::new()
        .load32(BOOT_PAGE)
        .expect_eax(MAGIC as u32)
        .out8(PORT_CONSOLE, b'o')
        .out8(PORT_CONSOLE, b'k')
        .exit(0);
    let console = Arc::new(move |line: &str| sink.lock().unwrap().push(line.to_owned()));
    let vm = vm_with_console(&kvm, &config(guest.image()), console).unwrap();
    let outcomes = run(vec![vm]);
    assert_eq!(outcomes[0].result, VmResult::Pass);
    assert_eq!(outcomes[0].console_tail, ["ok"]);
    assert_eq!(*lines.lock().unwrap(), ["ok"]);
}

#[test]
fn vms_that_cannot_be_are_refused() {
    let Some(kvm) = kvm() else { return };
    let good = config(Guest::new().exit(0).image());
    let refused = |spoil: fn(&mut causeway_vmm::vm::VmConfig)| {
        let mut config = good.clone();
        spoil(&mut config);
        vm(&kvm, &config).expect_err("invalid configuration")
    };
    assert!(matches!(
        refused(|c| c.vcpus = 0),
        VmError::Config(ConfigError::Vcpus { vcpus: 0, .. })
    ));
    assert!(matches!(
        refused(|c| c.memory_bytes = 0),
        VmError::Memory(_)
    ));
    assert!(matches!(
        refused(|c| c.aperture_bytes = 3),
        VmError::Layout(_)
    ));
    assert!(matches!(
        refused(|c| c.boot = bare(Arc::from(*b"hello"))),
        VmError::Image(LoadError::NotElf { .. })
    ));
}

#[test]
fn nothing_is_left_behind() {
    let Some(kvm) = kvm() else { return };
    let count = |what: &str| {
        std::fs::read_dir(format!("/proc/self/{what}"))
            .unwrap()
            .count()
    };
    let run_some = || {
        for guest in [Guest::new().exit(0), Guest::new().raw(&[0x0f, 0x0b])] {
            let _ = run_guest(&kvm, &guest);
        }
    };
    run_some();
    // Other tests come and go meanwhile: what counts is that repetition does not pile anything up.
    let before = count("fd");
    for _ in 0..20 {
        run_some();
    }
    assert!(count("fd") < before + 40, "descriptors are left behind");
}
