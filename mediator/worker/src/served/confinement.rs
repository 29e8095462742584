//! How a worker process gives up what it does not need. A guest may come to control it.

use super::process::restrict;
use causeway_sandbox::{Calls, Missing, Profile, Sandbox, close_inherited, enter, filter};

/// How a worker process confines itself.
#[derive(Debug)]
pub struct Confinement {
    /// Whether it does, and what happens if the host lacks a mechanism for it.
    pub sandbox: Sandbox,
    /// What its back end needs.
    pub profile: Profile,
}

impl Confinement {
    /// Returns how a process does not confine itself.
    pub fn off() -> Self {
        Self {
            sandbox: Sandbox::Off,
            profile: Profile::computation(),
        }
    }

    /// Takes from this process everything but system calls, and returns what the host lacks. The
    /// process has one thread, and has loaded no driver.
    pub(super) fn enter(&mut self) -> Vec<Missing> {
        if let Err(e) = close_inherited() {
            log::warn!(
                "the worker process cannot look for files that libraries of the VMM left open: {e}"
            );
        }
        // Without a sandbox, too. With it, these come again, and are reported if they fail.
        restrict();
        if self.sandbox == Sandbox::Off {
            return Vec::new();
        }
        // Mounted while this process still may mount.
        self.profile.folder = causeway_memory::large_page_folder();
        enter(&self.profile)
    }

    /// Takes from this process the system calls that it needs no longer, now that it has its back
    /// end. Returns the filter if the host lacks it.
    pub(super) fn filter(&self) -> Option<Missing> {
        match self.sandbox {
            Sandbox::Off => None,
            Sandbox::On | Sandbox::Strict => filter(&self.profile),
        }
    }

    /// Returns `reason`, by which a driver has not started, with what else it may be.
    pub(super) fn explain(&self, reason: String) -> String {
        match self.sandbox != Sandbox::Off && self.profile.calls == Calls::Driver {
            true => format!("{reason} (in a confined process: --sandbox off shows if that is why)"),
            false => reason,
        }
    }

    /// Returns why this process must not go on without the mechanisms that the host lacks; `None`
    /// if it may.
    pub(super) fn refusal(&self, missing: &[Missing]) -> Option<String> {
        let refuses = self.sandbox == Sandbox::Strict && !missing.is_empty();
        refuses.then(|| refusal(missing))
    }
}

/// Returns the text by which `strict` refuses to go on.
fn refusal(missing: &[Missing]) -> String {
    let what: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let mut ways_out: Vec<_> = missing.iter().map(|m| m.mechanism.way_out()).collect();
    ways_out.dedup();
    format!(
        "its worker process cannot be confined as --sandbox strict demands, because this host \
         lacks: {}; {}; or choose --sandbox on, which confines it as far as the host can",
        what.join(", "),
        ways_out.join("; ")
    )
}
