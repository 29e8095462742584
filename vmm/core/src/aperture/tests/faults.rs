//! Accesses to holes, by a virtual CPU that is played.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use kvm_ioctls::VcpuExit;
use vmm_sys_util::errno;

use super::*;

/// What a made-up `KVM_RUN` does next.
#[derive(Clone, Copy)]
enum Run {
    Read(u64),
    Write(u64),
    Fail(i32),
    MemoryFault,
    InternalError,
}

struct Script<'a> {
    steps: VecDeque<Run>,
    data: [u8; 8],
    immediate: Vec<bool>,
    now: bool,
    fake: &'a Fake,
}

impl<'a> Script<'a> {
    fn new(fake: &'a Fake, steps: &[Run]) -> Self {
        Self {
            steps: steps.iter().copied().collect(),
            data: [0x55; 8],
            immediate: Vec::new(),
            now: false,
            fake,
        }
    }
}

impl Processor for Script<'_> {
    fn run(&mut self) -> Result<VcpuExit<'_>, errno::Error> {
        assert!(
            self.fake.state().slots.is_empty(),
            "slots are down while the instruction is finished"
        );
        self.immediate.push(self.now);
        match self.steps.pop_front().expect("one run too many") {
            Run::Read(gpa) => Ok(VcpuExit::MmioRead(gpa, &mut self.data)),
            Run::Write(gpa) => Ok(VcpuExit::MmioWrite(gpa, &self.data)),
            Run::Fail(code) => Err(errno::Error::new(code)),
            Run::MemoryFault => Ok(VcpuExit::MemoryFault {
                flags: 0,
                gpa: BASE,
                size: 4096,
            }),
            Run::InternalError => Ok(VcpuExit::InternalError),
        }
    }
    fn set_immediate_exit(&mut self, immediate: bool) {
        self.now = immediate;
    }
    fn instruction_pointer(&self) -> u64 {
        0x10_0042
    }
}

fn standing() -> (Aperture, Arc<Fake>) {
    let (aperture, fake) = aperture(GIB);
    aperture
        .place(&memory(PAGE_BYTES), 0, PAGE_BYTES, Access::ReadWrite)
        .unwrap();
    (aperture, fake)
}

#[test]
fn a_split_access_is_finished_without_entering_guest_code() {
    let (aperture, fake) = standing();
    let steps = [
        Run::Read(BASE),
        Run::Read(BASE + 4),
        Run::Write(BASE + 8),
        Run::Fail(libc::EINTR),
    ];
    let mut vcpu = Script::new(&fake, &steps);
    let mut handled = Vec::new();
    let outcome = aperture.resolve(&mut vcpu, |exit| {
        match exit {
            VcpuExit::MmioRead(gpa, _) => handled.push((gpa, false)),
            VcpuExit::MmioWrite(gpa, _) => handled.push((gpa, true)),
            other => panic!("{other:?}"),
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(outcome.unwrap(), FaultOutcome::Resolved);
    assert_eq!(
        handled,
        [(BASE, false), (BASE + 4, false), (BASE + 8, true)]
    );
    assert_eq!(vcpu.immediate, [false, true, true, true]);
    assert!(!vcpu.now, "immediate_exit is left clear");
    assert_eq!(fake.state().slots.len(), 1, "slots stand again");
}

#[test]
fn each_way_out_puts_the_slots_up_again() {
    let (aperture, fake) = standing();
    let go = |_: VcpuExit<'_>| ControlFlow::<u8>::Continue(());
    let run = |steps: &[Run]| aperture.resolve(&mut Script::new(&fake, steps), go);
    assert_eq!(
        run(&[Run::Fail(libc::EINTR)]).unwrap(),
        FaultOutcome::Interrupted
    );
    for step in [Run::Fail(libc::EFAULT), Run::MemoryFault] {
        let error = run(&[step]).unwrap_err();
        assert!(
            matches!(error, FaultError::Persists { rip: 0x10_0042 }),
            "{error}"
        );
    }
    assert!(matches!(
        run(&[Run::InternalError]),
        Err(FaultError::Emulation { .. })
    ));
    assert!(matches!(
        run(&[Run::Fail(libc::EIO)]),
        Err(FaultError::Run { .. })
    ));
    let stop = |_: VcpuExit<'_>| ControlFlow::Break(9);
    let stopped = aperture.resolve(&mut Script::new(&fake, &[Run::Read(BASE)]), stop);
    assert_eq!(stopped.unwrap(), FaultOutcome::Stopped(9));
    assert_eq!(fake.state().slots.len(), 1);
}

#[test]
fn slots_that_cannot_be_changed_are_an_error() {
    let (aperture, fake) = standing();
    fake.fail_after(0, libc::ENOMEM);
    let go = |_: VcpuExit<'_>| ControlFlow::<()>::Continue(());
    let failed = aperture.resolve(&mut Script::new(&fake, &[]), go);
    assert!(matches!(failed, Err(FaultError::Slots(_))));
    let last = fake.state().calls.last().copied();
    assert_eq!(
        last,
        Some(Call::Delete(19)),
        "one small placement stands in the highest chunk"
    );
}

#[test]
fn an_instruction_beyond_emulation_is_tried_again_only_if_slots_were_down() {
    let (aperture, fake) = standing();
    let apertures = Apertures(vec![Arc::new(standing().0), Arc::new(aperture)]);
    let mut last = EmulationRetry::default();
    assert!(
        !apertures.retry_emulation(&mut last),
        "nobody was suspended"
    );
    let go = |_: VcpuExit<'_>| ControlFlow::<()>::Continue(());
    let steps = [Run::Read(BASE), Run::Fail(libc::EINTR)];
    apertures.0[1]
        .resolve(&mut Script::new(&fake, &steps), go)
        .unwrap();
    assert!(apertures.retry_emulation(&mut last));
    assert!(!apertures.retry_emulation(&mut last));
    apertures.0[0].state.lock().slots.suspend().unwrap();
    for _ in 0..2 {
        assert!(apertures.retry_emulation(&mut last), "slots are down");
    }
}
