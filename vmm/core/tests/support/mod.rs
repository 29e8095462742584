//! Guests of a few instructions, and running them.

#![allow(dead_code)] // Each test binary uses a part of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use causeway_mediator::{Mediator, Quota};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::boot::IMAGE_BASE;
use causeway_testdev::{Mailboxes, Phase, RunContext, TestDevice};
use causeway_testdev_records::{
    PORT_EXIT, PORT_RECORD, PhaseBegin, PhaseEnd, PhasePath, RecordHeader, RecordKind,
};
use causeway_vmm::console::LineSink;
use causeway_vmm::event_loop::{Limits, run_all};
use causeway_vmm::kvm;
use causeway_vmm::outcome::VmOutcome;
use causeway_vmm::signals::Signals;
use causeway_vmm::vm::{Boot, Image, Privilege, Vm, VmConfig, VmError};
use kvm_ioctls::Kvm;
use zerocopy::IntoBytes;

/// KVM, or the reason to skip. Where `CAUSEWAY_REQUIRE_KVM` is set, its absence is a failure.
pub fn kvm() -> Option<Kvm> {
    match kvm::open() {
        Ok(kvm) => Some(kvm),
        Err(e) => {
            assert!(
                std::env::var_os("CAUSEWAY_REQUIRE_KVM").is_none(),
                "KVM is required here: {e}"
            );
            eprintln!("skipped: no KVM ({e})");
            None
        }
    }
}

/// Where records are: behind the code.
pub const DATA: u64 = IMAGE_BASE + 0x1000;
/// Free memory of the guest, within its image.
pub const SCRATCH: u64 = IMAGE_BASE + 0x2000;

/// A guest being written: x86-64 machine code, and records.
#[derive(Default)]
pub struct Guest {
    code: Vec<u8>,
    data: Vec<u8>,
}

impl Guest {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn raw(mut self, code: &[u8]) -> Self {
        self.code.extend(code);
        self
    }

    /// `mov dx, port; mov eax, value; out dx, eax`
    pub fn out32(self, port: u16, value: u32) -> Self {
        let [a, b] = port.to_le_bytes();
        let [c, d, e, f] = value.to_le_bytes();
        self.raw(&[0x66, 0xba, a, b, 0xb8, c, d, e, f, 0xef])
    }

    /// `mov dx, port; mov al, value; out dx, al`
    pub fn out8(self, port: u16, value: u8) -> Self {
        let [a, b] = port.to_le_bytes();
        self.raw(&[0x66, 0xba, a, b, 0xb0, value, 0xee])
    }

    /// `mov rbx, address`
    pub fn point(self, address: u64) -> Self {
        self.raw(&[0x48, 0xbb]).raw(&address.to_le_bytes())
    }

    /// `mov eax, [rbx]`
    pub fn load32(self, address: u64) -> Self {
        self.point(address).raw(&[0x8b, 0x03])
    }

    /// `mov dword [rbx], value`
    pub fn store32(self, address: u64, value: u32) -> Self {
        self.point(address)
            .raw(&[0xc7, 0x03])
            .raw(&value.to_le_bytes())
    }

    /// `mov ecx, times; again: mov [rbx], rcx; dec ecx; jnz again`
    pub fn store_loop(self, address: u64, times: u32) -> Self {
        self.point(address)
            .raw(&[0xb9])
            .raw(&times.to_le_bytes())
            .raw(&[0x48, 0x89, 0x0b, 0xff, 0xc9, 0x75, 0xf9])
    }

    /// `mov rsi, from; mov rdi, to; mov ecx, bytes; rep movsb`
    pub fn copy(self, from: u64, to: u64, bytes: u32) -> Self {
        self.raw(&[0x48, 0xbe])
            .raw(&from.to_le_bytes())
            .raw(&[0x48, 0xbf])
            .raw(&to.to_le_bytes())
            .raw(&[0xb9])
            .raw(&bytes.to_le_bytes())
            .raw(&[0xf3, 0xa4])
    }

    /// Ends with `ud2` unless `eax` is `value`.
    pub fn expect_eax(self, value: u32) -> Self {
        // cmp eax, value; je over; ud2
        self.raw(&[0x3d])
            .raw(&value.to_le_bytes())
            .raw(&[0x74, 0x02, 0x0f, 0x0b])
    }

    /// `jmp .`
    pub fn forever(self) -> Self {
        self.raw(&[0xeb, 0xfe])
    }

    pub fn exit(self, code: u32) -> Self {
        self.out32(PORT_EXIT, code)
    }

    /// Hands over a record. A guest has room for 4 KiB of them.
    pub fn record(self, record: &[u8]) -> Self {
        let (guest, address) = self.data(record);
        guest.out32(PORT_RECORD, address as u32)
    }

    /// Puts bytes where records are, without handing them over. Gives their address.
    pub fn data(mut self, bytes: &[u8]) -> (Self, u64) {
        let address = DATA + self.data.len() as u64;
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        (self, address)
    }

    /// What virtual CPU `index` does over and over; the others do what follows.
    /// `cmp esi, index; jne over; again: body; jmp again; over:`
    pub fn on_vcpu(self, index: u8, body: impl FnOnce(Self) -> Self) -> Self {
        let body = body(Self::new()).code;
        let bytes = i32::try_from(body.len() + 5).expect("code is short");
        self.raw(&[0x83, 0xfe, index, 0x0f, 0x85])
            .raw(&bytes.to_le_bytes())
            .raw(&body)
            .raw(&[0xe9])
            .raw(&(-bytes).to_le_bytes())
    }

    pub fn begin(self, name: &str) -> Self {
        let mut record = PhaseBegin {
            header: header::<PhaseBegin>(RecordKind::PhaseBegin),
            path: PhasePath::Data as u32,
            name_bytes: name.len() as u32,
            name: [0; 48],
        };
        record.name[..name.len()].copy_from_slice(name.as_bytes());
        self.record(record.as_bytes())
    }

    pub fn end(self) -> Self {
        let record = PhaseEnd {
            header: header::<PhaseEnd>(RecordKind::PhaseEnd),
            operations: 1,
            bytes: 0,
            doorbells: 0,
        };
        self.record(record.as_bytes())
    }

    /// Ends the phase and has `eax` as it was: `mov esi, eax; …; mov eax, esi`
    pub fn end_keeping_eax(self) -> Self {
        self.raw(&[0x89, 0xc6]).end().raw(&[0x89, 0xf0])
    }

    /// An ELF image with the code at the image base, the records behind it, and scratch memory.
    pub fn image(&self) -> Arc<[u8]> {
        assert!(self.code.len() <= 0x1000 && self.data.len() <= 0x1000);
        let mut body = self.code.clone();
        body.resize(0x1000, 0x90);
        body.extend(&self.data);
        let mut image = Vec::new();
        image.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        for half in [2u16, 62] {
            image.extend(half.to_le_bytes());
        }
        image.extend(1u32.to_le_bytes());
        for word in [IMAGE_BASE, 64, 0] {
            image.extend(word.to_le_bytes());
        }
        image.extend(0u32.to_le_bytes());
        for half in [64u16, 56, 1, 0, 0, 0] {
            image.extend(half.to_le_bytes());
        }
        for word in [1u32, 7] {
            image.extend(word.to_le_bytes());
        }
        for word in [
            120,
            IMAGE_BASE,
            IMAGE_BASE,
            body.len() as u64,
            0x10_0000,
            0x1000,
        ] {
            image.extend(word.to_le_bytes());
        }
        image.extend(body);
        image.into()
    }
}

pub fn header<T>(kind: RecordKind) -> RecordHeader {
    RecordHeader {
        kind: kind as u32,
        bytes: size_of::<T>() as u32,
    }
}

pub fn bare(image: Arc<[u8]>) -> Boot {
    Boot::Bare {
        image: Image::Shared(image),
        arguments: String::new(),
        privilege: Privilege::default(),
    }
}

pub fn config(image: Arc<[u8]>) -> VmConfig {
    VmConfig {
        name: "test".to_owned(),
        index: 0,
        vms: 1,
        vcpus: 1,
        memory_bytes: 16 << 20,
        boot: bare(image),
        aperture_bytes: 1 << 30,
        large_pages: false,
        node: None,
        devices: None,
        attached: vec![Arc::new(TestDevice::default())],
    }
}

/// A VM with a session of its own mediator, over the fake back end.
pub fn vm(kvm: &Kvm, config: &VmConfig) -> Result<Vm, VmError> {
    vm_with_console(kvm, config, Arc::new(|_: &str| {}))
}

pub fn vm_with_console(kvm: &Kvm, config: &VmConfig, console: LineSink) -> Result<Vm, VmError> {
    let mediator = Mediator::new(FakeBackend::new());
    Vm::new(kvm, config, &*mediator, Quota::default(), console)
}

/// The test device of a VM that shares `mailboxes` with others.
pub fn test_device(mailboxes: &Arc<Mailboxes>) -> TestDevice {
    TestDevice::new(RunContext {
        mailboxes: Some(Arc::clone(mailboxes)),
        ..RunContext::default()
    })
}

/// Gives the VM of `config` a test device, and returns it.
pub fn with_test_device(config: &mut VmConfig) -> Arc<TestDevice> {
    let device = Arc::new(TestDevice::default());
    config.attached = vec![device.clone()];
    device
}

/// Runs VMs for at most ten seconds.
pub fn run(vms: Vec<Vm>) -> Vec<VmOutcome> {
    run_for(vms, Duration::from_secs(10))
}

pub fn run_for(vms: Vec<Vm>, timeout: Duration) -> Vec<VmOutcome> {
    // Signals are blocked per thread, and tests are threads: one run at a time, or they would take
    // each other's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let mut signals = Signals::block().expect("signals can be blocked");
    let limits = Limits {
        timeout: Some(timeout),
    };
    run_all(vms, &limits, &mut signals).expect("the run can be carried through")
}

/// Runs one guest on one virtual CPU.
pub fn run_guest(kvm: &Kvm, guest: &Guest) -> VmOutcome {
    let vm = vm(kvm, &config(guest.image())).expect("a VM can be made");
    run(vec![vm]).pop().expect("one VM, one outcome")
}

/// As [`run_guest`], with the phases that the guest marked.
pub fn run_phases(kvm: &Kvm, guest: &Guest) -> (VmOutcome, Vec<Phase>) {
    let mut config = config(guest.image());
    let device = with_test_device(&mut config);
    let vm = vm(kvm, &config).expect("a VM can be made");
    let outcome = run(vec![vm]).pop().expect("one VM, one outcome");
    (outcome, device.report().phases)
}
