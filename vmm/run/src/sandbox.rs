//! `--sandbox`: whether worker processes, and threads that serve guests, confine themselves.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_sandbox::{Profile, Sandbox, ThreadSandbox};
use causeway_terminal::{Code, Failure};
use causeway_worker::Confinement;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::gpu::{Gpu, Isolation, Kind};

/// Arguments about the confinement of worker processes, which `run`, `serve` and `cuda` have.
#[derive(Clone, Copy, Debug, Args)]
pub struct SandboxArguments {
    /// Whether worker processes, and threads of `run` that serve guests, confine themselves: on,
    /// with what this host has for that; strict, or end if it lacks something; off, for comparison
    /// and to find mistakes (docs/security.md).
    #[arg(long, value_name = "HOW", default_value = "on", value_parser = parser())]
    pub sandbox: Sandbox,
}

fn parser() -> impl TypedValueParser<Value = Sandbox> {
    let names = Sandbox::ALL.map(Sandbox::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// Refuses `--sandbox strict` where sessions run in the VMM's process, which is not confined.
/// `gpu_text` is the value of `--gpu` from which `gpu` was parsed.
pub(crate) fn check(sandbox: Sandbox, gpu: &Gpu, gpu_text: &str) -> Result<(), Failure> {
    if sandbox != Sandbox::Strict || gpu.isolation == Isolation::Process {
        return Ok(());
    }
    let way_out = match gpu.kind {
        Kind::Software(_) | Kind::Cuda(_) => "add isolation=process to --gpu",
        Kind::Vfio(_) => "use another back end, or --sandbox on",
    };
    Err(Failure::usage(format!(
        "invalid value strict for --sandbox: with --gpu {gpu_text}, sessions have no worker \
         processes that could be confined; {way_out}"
    )))
}

/// Returns how a worker process with back end `kind` confines itself.
pub(crate) fn confinement(sandbox: Sandbox, kind: Kind) -> Confinement {
    Confinement {
        sandbox,
        profile: match kind {
            Kind::Software(_) => Profile::computation(),
            Kind::Cuda(_) | Kind::Vfio(_) => Profile::driver(),
        },
    }
}

/// The threads that serve guests, which `run` confines as far as that can be done in the VMM's
/// process: virtual CPUs, consumers of command buffers, virtio devices, the event loop, and the
/// threads that execute kernels.
pub(crate) struct GuestThreads {
    confinement: Option<ThreadSandbox>,
    is_strict: bool,
    /// Whether the user knows that the host lacks a mechanism.
    told: AtomicBool,
}

impl GuestThreads {
    /// Prepares what the threads of a run with the back end `gpu` give up. Nothing if they call
    /// CUDA's driver themselves.
    pub fn prepare(sandbox: Sandbox, gpu: &Gpu) -> Self {
        let calls_driver = matches!(gpu.kind, Kind::Cuda(_)) && gpu.isolation == Isolation::None;
        let confined = sandbox != Sandbox::Off && !calls_driver;
        Self {
            confinement: confined.then(|| {
                ThreadSandbox::new(&Profile {
                    folder: causeway_memory::large_page_folder(),
                    ..Profile::computation()
                })
            }),
            is_strict: sandbox == Sandbox::Strict,
            told: AtomicBool::new(false),
        }
    }

    /// Runs `work` in a thread of its own: `prepare`, then, confined, the work on what that has
    /// returned. Threads that the work starts are confined, too.
    ///
    /// # Errors
    /// A failure with [`Code::Crashed`] if no thread can be started, or if the host lacks what
    /// `--sandbox strict` demands.
    pub fn run<P, T: Send>(
        &self,
        prepare: impl FnOnce() -> P + Send,
        work: impl FnOnce(P) -> T + Send,
    ) -> Result<T, Failure> {
        std::thread::scope(|scope| {
            // Without a name, logs take it for the first thread, which waits for it.
            let spawned = std::thread::Builder::new().spawn_scoped(scope, || {
                let prepared = prepare();
                self.enter()?;
                Ok(work(prepared))
            });
            let spawned = spawned.map_err(|e| {
                let what = "cannot start the thread that serves the guests";
                Failure::new(Code::Crashed, what, e)
            })?;
            spawned.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn enter(&self) -> Result<(), Failure> {
        let missing = self.confinement.as_ref().map(ThreadSandbox::enter);
        let missing = missing.unwrap_or_default();
        let names: Vec<_> = missing.iter().map(|it| it.mechanism.name()).collect();
        if self.is_strict
            && let Some(first) = missing.into_iter().next()
        {
            let what = "cannot confine the threads that serve guests as --sandbox strict demands";
            return Err(Failure::new(Code::Crashed, what, first));
        }
        if !names.is_empty() && !self.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the threads that serve guests are confined without {}, which this host lacks: \
                 `causeway doctor` says why, and what would help",
                names.join(", ")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../mediator/worker/src/tests/attempts.rs"]
mod attempts;

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{EACCES, ENOSYS, EPERM};

    /// What is not refused, beside what drivers do: these threads end worker processes.
    const NEEDED: [&str; 1] = ["pidfd_send_signal"];

    #[test]
    fn a_thread_that_serves_guests_is_refused_what_a_worker_is() {
        let threads = GuestThreads::prepare(Sandbox::Strict, &"cuda".parse().unwrap());
        let report = threads.run(|| (), |()| attempts::report()).unwrap();
        let report = String::from_utf8(report).unwrap();
        let (of_drivers, mut refused) = (attempts::attempts().1, 0);
        for line in report.lines() {
            let (error, name) = line.split_once(' ').unwrap();
            match error.parse().unwrap() {
                EPERM | EACCES | ENOSYS => refused += 1,
                error => assert!(
                    of_drivers.iter().any(|(it, _)| *it == name) || NEEDED.contains(&name),
                    "{name}: {error}"
                ),
            }
        }
        assert!(refused >= 100, "{refused}: {report}");
        // The thread that started it is not confined.
        std::fs::File::open("/").unwrap();
    }

    #[test]
    fn strict_is_refused_where_nothing_is_confined() {
        let check = |sandbox, text: &str| check(sandbox, &text.parse().unwrap(), text);
        for text in ["software,isolation=process", "cuda"] {
            check(Sandbox::Strict, text).unwrap();
        }
        for text in ["software", "cuda,isolation=none", "vfio:0000:00:03.0"] {
            check(Sandbox::On, text).unwrap();
            let refused = check(Sandbox::Strict, text).unwrap_err().to_string();
            assert!(refused.contains("strict"), "{refused}");
        }
    }
}
