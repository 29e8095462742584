//! Asks a run at its control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Uid, geteuid};

use super::{ERROR_SCHEMA, ErrorAnswer, RunStanding, SCHEMA};
use crate::client::{ask, request};
use crate::http;
use crate::snapshot::make_printable;

/// Longest time to wait for an answer. That to a request to pause is put off for a second at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a run has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no file at the path.
    #[error("no file is at this path: the run has ended, or its --control names another path")]
    Absent,
    /// Nobody listens at the path.
    #[error("no process listens at this path: the run has ended")]
    Gone,
    /// This user may not connect.
    #[error("the socket belongs to another user: run this command as that user, or as root")]
    Forbidden,
    /// A process of another user, and not of root, listens there.
    #[error("process {pid} of user {user} listens at this path, and nobody of yours")]
    Foreign {
        /// Process ID.
        pid: i32,
        /// User ID.
        user: u32,
    },
    /// The process does not answer in time.
    #[error(
        "the process does not answer within {seconds} s: if it is stopped, `kill -CONT` with its \
         process ID continues it",
        seconds = PATIENCE.as_secs()
    )]
    Silent,
    /// The process closed the connection before its answer was complete.
    #[error("the process sent an incomplete answer: the run is ending")]
    Unfinished,
    /// The process has refused the request.
    #[error("{why}")]
    Refused {
        /// Why it has, in its own words.
        why: String,
    },
    /// The answer is not in the format of this version.
    #[error(
        "the process does not answer as the socket of `causeway run --control` of this version \
         ({version}) does: name that socket, or use the version that the process runs",
        version = env!("CARGO_PKG_VERSION")
    )]
    Strange,
    /// A system call failed.
    #[error("cannot connect")]
    Failed(#[source] io::Error),
}

/// Asks the run whose control socket is at `path` for `what`, a method and a path, with this body.
/// Returns how the run stands then.
///
/// # Errors
/// [`AskError`] says why there is no answer, or why the run has refused.
pub fn send(path: &Path, what: &str, body: &str) -> Result<RunStanding, AskError> {
    let socket = connect(path)?;
    let answer = ask(&socket, &request(what, body), Instant::now() + PATIENCE);
    let answer = answer.map_err(|e| match e {
        Errno::CONNRESET | Errno::PIPE => AskError::Unfinished,
        Errno::TIMEDOUT => AskError::Silent,
        // The answer is too long.
        Errno::MSGSIZE => AskError::Strange,
        e => AskError::Failed(e.into()),
    })?;
    match answer.is_empty() {
        true => Err(AskError::Unfinished),
        false => understand(&answer),
    }
}

fn connect(path: &Path) -> Result<OwnedFd, AskError> {
    let failed = |e: Errno| AskError::Failed(e.into());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    rustix::net::connect(&socket, &address).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR => AskError::Absent,
        Errno::CONNREFUSED => AskError::Gone,
        Errno::ACCESS | Errno::PERM => AskError::Forbidden,
        // The queue is full, so the process has stopped accepting connections.
        Errno::AGAIN => AskError::Silent,
        Errno::PROTOTYPE => AskError::Strange,
        e => failed(e),
    })?;
    let peer = socket_peercred(&socket).map_err(failed)?;
    match believes(geteuid(), peer.uid) {
        true => Ok(socket),
        false => Err(AskError::Foreign {
            pid: peer.pid.as_raw_nonzero().get(),
            user: peer.uid.as_raw(),
        }),
    }
}

/// Returns whether user `own` believes the answers of user `peer`.
fn believes(own: Uid, peer: Uid) -> bool {
    own.is_root() || peer.is_root() || peer == own
}

fn understand(answer: &[u8]) -> Result<RunStanding, AskError> {
    let (status, body) = http::status_and_body_of(answer).ok_or(AskError::Strange)?;
    if !matches!(status, 200 | 202) {
        let refused: ErrorAnswer = serde_json::from_slice(body).map_err(|_| AskError::Strange)?;
        let mut why = refused.error;
        make_printable(&mut why);
        return match refused.schema == ERROR_SCHEMA {
            true => Err(AskError::Refused { why }),
            false => Err(AskError::Strange),
        };
    }
    let standing: RunStanding = serde_json::from_slice(body).map_err(|_| AskError::Strange)?;
    match standing.schema == SCHEMA {
        true => Ok(standing.printable()),
        false => Err(AskError::Strange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, error_body};

    #[test]
    fn an_answer_is_believed_only_in_its_format() {
        let control = Control::new("g\u{1b}", Vec::new(), Box::new(|| ()));
        let mut standing = control.standing();
        let told = |standing: &RunStanding| {
            let text = serde_json::to_string(standing).unwrap();
            understand(&http::json("200 OK", "", &text, true))
        };
        assert_eq!(told(&standing).unwrap().guest, "g?");
        standing.schema = "causeway.control/2".to_owned();
        assert!(matches!(told(&standing), Err(AskError::Strange)));
        for answer in [
            &b"rubbish"[..],
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx",
        ] {
            assert!(matches!(understand(answer), Err(AskError::Strange)));
        }
        let refused = http::json("409 Conflict", "", &error_body("no\u{7}"), true);
        assert_eq!(understand(&refused).unwrap_err().to_string(), "no?");
    }

    #[test]
    fn answers_of_others_are_not_believed_but_by_root() {
        let [root, user, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(believes(user, user) && believes(user, root) && believes(root, other));
        assert!(!believes(user, other));
    }

    #[test]
    fn a_path_without_a_run_is_told() {
        let path = std::env::temp_dir().join(format!("causeway-nobody-{}", std::process::id()));
        let asked = || send(&path, "GET /info", "").unwrap_err();
        assert!(matches!(asked(), AskError::Absent));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(asked(), AskError::Gone));
        std::fs::remove_file(&path).unwrap();
    }
}
