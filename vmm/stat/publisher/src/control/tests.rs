use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use causeway_vmm::pause::Pauses;
use parking_lot::Mutex;

use super::*;

/// A VM that pauses when a test says so.
#[derive(Clone)]
pub struct FakeVm {
    name: &'static str,
    pub state: Arc<Mutex<RunState>>,
}

impl FakeVm {
    pub fn new(name: &'static str) -> Self {
        let state = Arc::new(Mutex::new(RunState::Running));
        Self { name, state }
    }

    pub fn set(&self, state: RunState) {
        *self.state.lock() = state;
    }
}

impl Pausable for FakeVm {
    fn name(&self) -> &str {
        self.name
    }
    fn vcpus(&self) -> u32 {
        2
    }
    fn memory_bytes(&self) -> u64 {
        64 << 20
    }
    fn pause(&self) {
        self.set(RunState::Pausing);
    }
    fn resume(&self) {
        self.set(RunState::Running);
    }
    fn look(&self) -> Option<Standing> {
        Some(Standing {
            state: *self.state.lock(),
            ran_for: Duration::from_secs(3),
            pauses: Pauses {
                count: 1,
                duration: Duration::from_secs(2),
                at_end: false,
            },
        })
    }
}

/// Disks that take one image for each VM, and say which.
#[derive(Clone, Default)]
struct FakeDisks(Arc<Mutex<Vec<(String, PathBuf, bool)>>>);

impl Disks for FakeDisks {
    fn look(&self, vm: &str) -> Vec<DiskStanding> {
        let images = self.0.lock();
        let of = images.iter().filter(|(of, ..)| of == vm);
        let of = of.map(|(_, image, read_only)| DiskStanding {
            image: Some(image.display().to_string()),
            bytes: 512,
            read_only: *read_only,
        });
        of.collect()
    }

    fn add(&self, vm: &str, image: &Path, read_only: bool) -> Result<(), DiskRefusal> {
        if !self.look(vm).is_empty() {
            return Err(DiskRefusal::Full(1));
        }
        let image = (vm.to_owned(), image.to_owned(), read_only);
        self.0.lock().push(image);
        Ok(())
    }

    fn remove(&self, vm: &str, image: &Path) -> Result<(), DiskRefusal> {
        let mut images = self.0.lock();
        let before = images.len();
        images.retain(|(of, path, _)| of != vm || path != image);
        match images.len() == before {
            true => Err(DiskRefusal::Absent(Vec::new())),
            false => Ok(()),
        }
    }
}

/// A control of two VMs, and how often it has ended the run.
pub fn control() -> (Control, [FakeVm; 2], Arc<AtomicU32>) {
    let vms = ["vm0", "vm1"].map(FakeVm::new);
    let boxed = vms.clone().map(|vm| Box::new(vm) as Box<dyn Pausable>);
    let stops = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&stops);
    let stop = move || {
        own.fetch_add(1, Ordering::Relaxed);
    };
    let control = Control::new("stream", boxed.into(), Box::new(stop));
    (control, vms, stops)
}

fn states(control: &Control) -> Vec<State> {
    control.standing().vms.iter().map(|vm| vm.state).collect()
}

#[test]
fn one_vm_or_all_pause_and_resume() {
    let (control, vms, _) = control();
    control.act(Action::Pause, br#"{"vm":"vm1"}"#).unwrap();
    assert_eq!(states(&control), [State::Running, State::Pausing]);
    assert!(!control.is_settled());
    vms[1].set(RunState::Paused);
    assert!(control.is_settled());
    control.act(Action::Resume, b"").unwrap();
    assert_eq!(states(&control), [State::Running, State::Running]);
    control.act(Action::Pause, b"{}").unwrap();
    assert_eq!(states(&control), [State::Pausing, State::Pausing]);
}

#[test]
fn a_vm_that_has_ended_is_left_alone() {
    let (control, vms, _) = control();
    vms[0].set(RunState::Ended);
    let error = control.act(Action::Pause, br#"{"vm":"vm0"}"#).unwrap_err();
    assert_eq!(error.status(), "409 Conflict");
    assert!(error.to_string().starts_with("vm0 has ended"), "{error}");
    control.act(Action::Pause, b"").unwrap();
    assert_eq!(states(&control), [State::Ended, State::Pausing]);
    vms[1].set(RunState::Ended);
    let error = control.act(Action::Resume, b"").unwrap_err();
    assert!(
        error.to_string().starts_with("every VM has ended"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_the_way_out() {
    let (control, ..) = control();
    for (action, body, status, parts) in [
        (
            Action::Pause,
            r#"{"vm":"vm7"}"#,
            "404 Not Found",
            ["no VM vm7", "vm0, vm1"],
        ),
        (
            Action::Resume,
            r#"{"vn":"vm0"}"#,
            "400 Bad Request",
            ["unknown field `vn`", r#"{"vm": "vm0"}"#],
        ),
        (
            Action::Stop,
            r#"{"vm":"vm0"}"#,
            "400 Bad Request",
            ["unknown field `vm`", "whole run"],
        ),
        (
            Action::AddDisk,
            r#"{"path":"x"}"#,
            "400 Bad Request",
            ["unknown field `path`", r#"{"image": "work.img"}"#],
        ),
        (
            Action::RemoveDisk,
            "",
            "400 Bad Request",
            ["missing field `image`", r#"{"image": "work.img"}"#],
        ),
        (
            Action::AddDisk,
            r#"{"image":"x"}"#,
            "400 Bad Request",
            ["several VMs", "vm0, vm1"],
        ),
        (
            Action::AddDisk,
            r#"{"image":"x","vm":"vm1"}"#,
            "409 Conflict",
            ["no disks", "--disk-folder"],
        ),
    ] {
        let error = control.act(action, body.as_bytes()).unwrap_err();
        assert_eq!(error.status(), status);
        let told = error.to_string();
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
    assert_eq!(states(&control), [State::Running, State::Running]);
}

#[test]
fn disks_get_images_and_lose_them_and_are_shown() {
    let (control, vms, _) = control();
    let control = control.with_disks(Some(Box::new(FakeDisks::default())));
    let add = br#"{"vm":"vm1","image":"a.img","read_only":true}"#;
    control.act(Action::AddDisk, add).unwrap();
    let standing = control.standing();
    assert!(standing.vms[0].disks.is_empty());
    let [disk] = &standing.vms[1].disks[..] else {
        panic!("{standing:?}")
    };
    assert_eq!(
        (disk.image.as_deref(), disk.read_only),
        (Some("a.img"), true)
    );
    let refused = |action, body: &[u8]| control.act(action, body).unwrap_err().status();
    assert_eq!(refused(Action::AddDisk, add), "409 Conflict");
    let remove = br#"{"vm":"vm1","image":"a.img"}"#;
    vms[1].set(RunState::Ended);
    // A VM that has ended gives its images back.
    control.act(Action::RemoveDisk, remove).unwrap();
    assert_eq!(refused(Action::RemoveDisk, remove), "404 Not Found");
    assert_eq!(refused(Action::AddDisk, add), "409 Conflict");
    assert!(control.standing().vms[1].disks.is_empty());
}

#[test]
fn a_run_is_stopped_once_and_nothing_is_paused_then() {
    let (control, _, stops) = control();
    assert!(!control.standing().stopping);
    control.act(Action::Stop, b"").unwrap();
    control.act(Action::Stop, b"{}").unwrap();
    assert_eq!(stops.load(Ordering::Relaxed), 1);
    assert!(control.standing().stopping);
    let error = control.act(Action::Pause, b"").unwrap_err();
    assert_eq!(error.status(), "409 Conflict");
    assert_eq!(states(&control), [State::Running, State::Running]);
}

#[test]
fn states_have_the_documented_names() {
    let (control, ..) = control();
    let mut told = serde_json::to_value(control.standing()).unwrap();
    let vm = &told["vms"][0];
    assert_eq!(vm["ran_ns"], 3_000_000_000_u64);
    assert_eq!(
        (&vm["pauses"], &vm["paused_ns"]),
        (&1.into(), &2_000_000_000_u64.into())
    );
    for state in [
        State::Starting,
        State::Running,
        State::Pausing,
        State::Paused,
        State::Ended,
    ] {
        told["vms"][0]["state"] = state.name().into();
        let read: RunStanding = serde_json::from_value(told.clone()).unwrap();
        assert_eq!(read.vms[0].state, state);
    }
}
