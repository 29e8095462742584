//! `--control`: what the control socket of a run reaches.

use causeway_publisher::control::{Control, Pausable};
use causeway_vmm::vm::Vm;
use rustix::process::{Signal, getpid, kill_process};

use crate::configuration::Run;

/// Returns the control of `run`, whose VMs are `vms`.
pub(crate) fn control(run: &Run, vms: &[Vm]) -> Control {
    let switches = vms.iter().map(Vm::pause_switch);
    let switches = switches.map(|vm| Box::new(vm) as Box<dyn Pausable>);
    Control::new(&run.settings.guest, switches.collect(), Box::new(stop))
}

/// Ends the run as SIGTERM does: by that signal, so that nothing is different.
fn stop() {
    if let Err(e) = kill_process(getpid(), Signal::TERM) {
        log::error!("cannot end the run, as the control socket has asked for: {e}");
    }
}

/// Returns the JSON schemas of the answers at the control socket.
#[cfg(feature = "schema")]
pub fn schemas() -> [serde_json::Value; 2] {
    use causeway_publisher::control::{ERROR_SCHEMA, ErrorAnswer, RunStanding, SCHEMA};
    use causeway_terminal::schema_of;
    [
        schema_of::<RunStanding>(SCHEMA),
        schema_of::<ErrorAnswer>(ERROR_SCHEMA),
    ]
}
