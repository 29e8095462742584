//! Runs a bare guest in a VM of this process, on any back end.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use causeway_mediator::backend::Backend;
use causeway_mediator::{Mediator, Quota};
use causeway_testdev::{Report, TestDevice};
use causeway_vmm::console::LineSink;
use causeway_vmm::event_loop::{Limits, run_all};
use causeway_vmm::kvm;
use causeway_vmm::outcome::VmOutcome;
use causeway_vmm::signals::Signals;
use causeway_vmm::vm::{Boot, Image, Privilege, Vm, VmConfig};

/// Runs the bare guest `image`, an ELF file, in a VM with one virtual CPU and 64 MiB of RAM whose
/// GPU is `backend`. Returns how the VM ended with its exit counts, and the phases that the guest
/// marked. The guest's console goes to standard error. After 60 s the VM is stopped.
///
/// `signals` must have been blocked before this process started a thread, so before the back end
/// was created.
///
/// # Errors
/// KVM is not available, the image is not a bare guest, or the host lacks memory or descriptors.
pub fn run_guest(
    image: &[u8],
    backend: Arc<dyn Backend>,
    signals: &mut Signals,
) -> Result<(VmOutcome, Report), Box<dyn Error>> {
    let kvm = kvm::open()?;
    // By the test device, a guest marks phases and ends its VM.
    let test_device = Arc::new(TestDevice::default());
    let config = VmConfig {
        name: "vm0".to_owned(),
        index: 0,
        vms: 1,
        vcpus: 1,
        memory_bytes: 64 << 20,
        boot: Boot::Bare {
            image: Image::Shared(image.into()),
            arguments: String::new(),
            privilege: Privilege::default(),
        },
        aperture_bytes: 1 << 30,
        large_pages: false,
        node: None,
        devices: None,
        attached: vec![test_device.clone()],
    };
    let mediator = Mediator::new(backend);
    let console: LineSink = Arc::new(|line| eprintln!("vm0| {line}"));
    let vm = Vm::new(&kvm, &config, &*mediator, Quota::default(), console)?;
    let limits = Limits {
        timeout: Some(Duration::from_secs(60)),
    };
    let mut outcomes = run_all(vec![vm], &limits, signals)?;
    let outcome = outcomes.pop().ok_or("the VM has no outcome")?;
    Ok((outcome, test_device.report()))
}
