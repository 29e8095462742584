//! A server in the process of another command, for the processes of one program.

use std::path::Path;
use std::thread::JoinHandle;

use causeway_mediator::GivesUp;
use causeway_publisher::MetricsPlaces;
use causeway_run::back_end::Users;
use causeway_sandbox::Sandbox;
use causeway_terminal::{Code, Failure, shown_path};
use vmm_sys_util::eventfd::EventFd;

use crate::ending::NONBLOCKING;
use crate::processes::EndedSessions;
use crate::server::{Choice, Server, Spares};

/// A server that runs in a thread of this process. A drop disconnects the client processes and ends
/// the server.
#[derive(Debug)]
pub struct PrivateServer {
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
    ended: EndedSessions,
}

impl PrivateServer {
    /// Starts a server for up to `processes` client processes at a time, on the GPUs `gpus`,
    /// values of `--gpu`. Worker processes confine themselves as `sandbox` says. It listens at
    /// `socket` when this function returns. The calling thread has blocked the signals that must
    /// not end this process. Returns `None` if `gives_up` returns true before the back end is
    /// ready.
    ///
    /// # Errors
    /// A usage failure if one of `gpus` is invalid or the socket cannot be created; a GPU failure if
    /// the back end is not available; a failure with [`Code::Crashed`] if a system call fails.
    pub fn start(
        socket: &Path,
        gpus: &[String],
        processes: u32,
        sandbox: Sandbox,
        gives_up: GivesUp<'_>,
    ) -> Result<Option<Self>, Failure> {
        let choice = Choice::parse(gpus, sandbox)?;
        let gpu_text = choice.text();
        // Most programs are one process.
        let spares = Spares { first: 1, kept: 0 };
        let users = Users::Processes(processes);
        let Some(mut server) = Server::new(choice, users, spares, gives_up)? else {
            return Ok(None);
        };
        let listeners = server.listen(socket).map_err(|(path, e)| {
            let message = format!("cannot listen at {} (TMPDIR decides)", shown_path(&path));
            Failure::new(Code::Crashed, message, e)
        })?;
        let failed = |e| Failure::new(Code::Crashed, "cannot start a private server", e);
        let stop = EventFd::new(NONBLOCKING).map_err(failed)?;
        let ended = server.keep_reports();
        let mut stopped = stop.try_clone().map_err(failed)?;
        let publisher = server.publish(&gpu_text, &MetricsPlaces::default())?;
        let thread = std::thread::Builder::new().name("server".into());
        let thread = thread.spawn(move || {
            let _publisher = publisher;
            if let Err(e) = server.serve(&listeners, &mut stopped) {
                log::error!("cannot continue to serve client processes: {e}");
            }
            drop(listeners);
            server.end();
        });
        Ok(Some(Self {
            stop,
            thread: Some(thread.map_err(failed)?),
            ended,
        }))
    }

    /// Disconnects the client processes and ends the server. Returns what their sessions have done.
    pub fn end(self) -> EndedSessions {
        let ended = self.ended.clone();
        drop(self);
        ended
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // Only a full counter refuses, and then the descriptor is readable anyway.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread of the server panicked; this is a bug in Causeway");
        }
    }
}
