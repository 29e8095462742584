//! Asks a process at its socket for the snapshot of its guests, or to show or change their limits.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::http;
use crate::limits::{self, ChangeRequest, Limits};
use crate::runtime::Entry;
use crate::snapshot::{SCHEMA, Snapshot, make_printable};

/// Longest time to wait for an answer.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Longest time to wait for a change of limits. Each worker process that does not answer takes a
/// moment of it.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer in bytes. A guest takes about 4 KiB, and up to 16 KiB more if it has given rights
/// to 64 GPUs and has rights of as many; a process has at most 64 guests.
const ANSWER_BYTES_MAX: usize = 2 << 20;
const PIECE_BYTES: usize = 16 << 10;

/// Why a process has sent no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No process with this ID listens on the socket any more.
    #[error("process {pid} has ended")]
    Gone {
        /// Process ID.
        pid: u32,
    },
    /// The process does not answer in time.
    #[error(
        "process {pid} does not answer within {seconds} s: if it is stopped, `kill -CONT {pid}` \
         continues it",
        seconds = .patience.as_secs()
    )]
    Silent {
        /// Process ID.
        pid: u32,
        /// How long it had to answer.
        patience: Duration,
    },
    /// The process closed the connection before its answer was complete.
    #[error(
        "process {pid} sent an incomplete answer: the process is ending, or has too many monitors \
         (end one of them)"
    )]
    Unfinished {
        /// Process ID.
        pid: u32,
    },
    /// The process has refused to change limits.
    #[error("{why}")]
    Refused {
        /// Why it has, in its own words.
        why: String,
    },
    /// The answer is not in the format of this version.
    #[error(
        "process {pid} runs another version of Causeway, whose answer this version ({version}) \
         does not understand: use the version that the process runs",
        version = env!("CARGO_PKG_VERSION")
    )]
    Strange {
        /// Process ID.
        pid: u32,
        /// Why the JSON cannot be parsed, if that is the reason.
        source: Option<serde_json::Error>,
    },
    /// A system call on the connection failed.
    #[error("cannot connect to process {pid}")]
    Failed {
        /// Process ID.
        pid: u32,
        /// Error of that system call.
        source: io::Error,
    },
}

/// Asks a process for a snapshot of its statistics and waits for it for at most `patience`.
///
/// # Errors
/// [`FetchError::Gone`] if the process does not listen, `Silent` if it does not answer in time,
/// `Unfinished` if it closes the connection too early, `Strange` if its answer is no snapshot of
/// this version, `Failed` if a system call fails.
pub fn fetch(entry: &Entry, patience: Duration) -> Result<Snapshot, FetchError> {
    let answer = exchange(entry, &request("GET /snapshot", ""), patience)?;
    understand(entry.pid, &answer)
}

/// Asks a process for the limits of its guests.
///
/// # Errors
/// As for [`fetch`].
pub fn fetch_limits(entry: &Entry) -> Result<Limits, FetchError> {
    let answer = exchange(entry, &request("GET /limits", ""), PATIENCE)?;
    understand_limits(entry.pid, &answer)
}

/// Asks a process to change limits of its guests. Returns the new limits of these guests.
///
/// # Errors
/// As for [`fetch`], and [`FetchError::Refused`] if the process refuses; then no limit has changed.
pub fn change_limits(entry: &Entry, change: &ChangeRequest) -> Result<Limits, FetchError> {
    let pid = entry.pid;
    let strange = |source| FetchError::Strange { pid, source };
    let body = serde_json::to_string(change).map_err(|e| strange(Some(e)))?;
    let answer = exchange(entry, &request("PUT /limits", &body), CHANGE_PATIENCE)?;
    understand_limits(pid, &answer)
}

/// Returns an HTTP request for `what`, a method and a path.
pub(crate) fn request(what: &str, body: &str) -> Vec<u8> {
    let length = match body.len() {
        0 => String::new(),
        bytes => format!("Content-Length: {bytes}\r\n"),
    };
    let head = format!("{what} HTTP/1.1\r\nHost: localhost\r\n{length}Connection: close\r\n\r\n");
    (head + body).into_bytes()
}

/// Sends a request to a process, and waits for the answer for at most `patience`.
fn exchange(entry: &Entry, request: &[u8], patience: Duration) -> Result<Vec<u8>, FetchError> {
    let pid = entry.pid;
    let socket = connect(entry, patience)?;
    let answer = ask(&socket, request, Instant::now() + patience).map_err(|e| match e {
        Errno::CONNRESET | Errno::PIPE => FetchError::Unfinished { pid },
        Errno::TIMEDOUT => FetchError::Silent { pid, patience },
        // The answer is too long.
        Errno::MSGSIZE => FetchError::Strange { pid, source: None },
        e => failed(pid, e),
    })?;
    match answer.is_empty() {
        true => Err(FetchError::Unfinished { pid }),
        false => Ok(answer),
    }
}

fn failed(pid: u32, error: Errno) -> FetchError {
    let source = error.into();
    FetchError::Failed { pid, source }
}

/// Connects to the process. If another process answers, the error is `Gone`, because the socket has
/// the name of a process that has ended.
fn connect(entry: &Entry, patience: Duration) -> Result<OwnedFd, FetchError> {
    let pid = entry.pid;
    let connected = || -> Result<(OwnedFd, bool), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&entry.socket)?)?;
        let is_it = is_of(&socket, entry)?;
        Ok((socket, is_it))
    };
    match connected() {
        Ok((socket, true)) => Ok(socket),
        Ok((_, false)) | Err(Errno::NOENT | Errno::CONNREFUSED) => Err(FetchError::Gone { pid }),
        // The queue is full, so the process has stopped accepting connections.
        Err(Errno::AGAIN) => Err(FetchError::Silent { pid, patience }),
        Err(e) => Err(failed(pid, e)),
    }
}

fn understand(pid: u32, answer: &[u8]) -> Result<Snapshot, FetchError> {
    let strange = |source| FetchError::Strange { pid, source };
    let body = http::body_of(answer).ok_or(strange(None))?;
    let snapshot: Snapshot = serde_json::from_slice(body).map_err(|e| strange(Some(e)))?;
    if snapshot.schema != SCHEMA || snapshot.pid != pid {
        return Err(strange(None));
    }
    Ok(snapshot.printable())
}

fn understand_limits(pid: u32, answer: &[u8]) -> Result<Limits, FetchError> {
    let strange = |source| FetchError::Strange { pid, source };
    let (status, body) = http::status_and_body_of(answer).ok_or(strange(None))?;
    if status == http::REFUSED {
        let mut why = String::from_utf8_lossy(body).into_owned();
        make_printable(&mut why);
        return Err(FetchError::Refused { why });
    }
    let body = Some(body).filter(|_| status == 200).ok_or(strange(None))?;
    let limits: Limits = serde_json::from_slice(body).map_err(|e| strange(Some(e)))?;
    if limits.schema != limits::SCHEMA || limits.pid != pid {
        return Err(strange(None));
    }
    Ok(limits.printable())
}

/// Sends the request and returns all bytes until the connection ends.
pub(crate) fn ask(socket: &OwnedFd, request: &[u8], deadline: Instant) -> Result<Vec<u8>, Errno> {
    // The request fits into the buffer of a new socket.
    rustix::net::send(socket, request, SendFlags::NOSIGNAL)?;
    let mut answer = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match rustix::net::recv(socket, &mut *piece, RecvFlags::empty()) {
            Ok((0, _)) => return Ok(answer),
            Ok((bytes, _)) if answer.len() + bytes > ANSWER_BYTES_MAX => {
                return Err(Errno::MSGSIZE);
            }
            Ok((bytes, _)) => answer.extend_from_slice(&piece[..bytes]),
            Err(Errno::AGAIN) => wait(socket, deadline)?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        if Instant::now() > deadline {
            return Err(Errno::TIMEDOUT);
        }
    }
}

/// Returns whether the peer is the process of `entry`, and belongs to the owner of the folder.
fn is_of(socket: &OwnedFd, entry: &Entry) -> Result<bool, Errno> {
    let peer = socket_peercred(socket)?;
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get());
    Ok(peer.uid.as_raw() == entry.owner && pid.is_ok_and(|pid| pid == entry.pid))
}

fn wait(socket: &OwnedFd, deadline: Instant) -> Result<(), Errno> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(0) => Err(Errno::TIMEDOUT),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::http::Resource;

    #[test]
    fn an_answer_is_believed_only_if_it_is_of_that_process_and_version() {
        let snapshot = fixture::snapshot();
        let told = |snapshot: &Snapshot| {
            let text = serde_json::to_string(snapshot).unwrap();
            http::answer(Resource::Snapshot, &text, true)
        };
        let understood = understand(snapshot.pid, &told(&snapshot)).unwrap();
        assert_eq!(understood, snapshot);
        assert!(understand(1, &told(&snapshot)).is_err());
        let newer = Snapshot {
            schema: "causeway.snapshot/2".to_owned(),
            ..snapshot.clone()
        };
        let refused = understand(snapshot.pid, &told(&newer)).unwrap_err();
        assert!(refused.to_string().contains("does not understand"));
        for rubbish in [
            &b"rubbish"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ] {
            assert!(matches!(
                understand(snapshot.pid, rubbish),
                Err(FetchError::Strange { .. })
            ));
        }
    }

    #[test]
    fn limits_are_believed_only_if_they_are_of_that_process_and_version() {
        let limits = |schema: &str, guest: &str| Limits {
            schema: schema.to_owned(),
            pid: 7,
            guests: vec![limits::GuestLimits {
                guest: guest.to_owned(),
                limits: [("weight".to_owned(), "none".to_owned())].into(),
                is_late: false,
            }],
            warning: None,
        };
        let told = |limits: &Limits| {
            let text = serde_json::to_string(limits).unwrap();
            http::answer(Resource::Limits, &text, true)
        };
        let known = limits(limits::SCHEMA, "vm0");
        assert_eq!(understand_limits(7, &told(&known)).unwrap(), known);
        let strange = |answer: &[u8]| {
            let refused = understand_limits(7, answer);
            assert!(
                matches!(refused, Err(FetchError::Strange { .. })),
                "{refused:?}"
            );
        };
        assert!(understand_limits(8, &told(&known)).is_err());
        strange(&told(&limits("causeway.limits/2", "vm0")));
        strange(&http::refuse(http::Refusal::NotFound("/limits")));
        strange(b"rubbish");
        let odd = understand_limits(7, &told(&limits(limits::SCHEMA, "vm\u{1b}[2J"))).unwrap();
        assert_eq!(odd.guests[0].guest, "vm?[2J");
        let refused = understand_limits(7, &http::refuse_change("no\u{7} vm7")).unwrap_err();
        assert_eq!(refused.to_string(), "no? vm7");
    }

    #[test]
    fn a_request_is_what_a_process_understands() {
        let get = request("GET /limits", "");
        let wanted = http::Request::Get {
            resource: Resource::Limits,
            body: true,
        };
        assert_eq!(http::parse(&get), wanted);
        let put = request("PUT /limits", "{}");
        let wanted = http::Request::Put {
            resource: Resource::Limits,
            body: b"{}",
        };
        assert_eq!(http::parse(&put), wanted);
    }

    /// A socket of this process, on which whoever connects is sent `answer` once they have asked.
    fn with_socket(name: &str, answer: &'static [u8], check: impl FnOnce(&Entry)) {
        use std::io::{Read, Write};
        let pid = std::process::id();
        let socket = std::env::temp_dir().join(format!("causeway-client-{name}-{pid}"));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Nothing comes from one who does not like the peer.
            if stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes != 0) {
                stream.write_all(answer).unwrap();
            }
        });
        let owner = rustix::process::geteuid().as_raw();
        let entry = Entry { owner, pid, socket };
        check(&entry);
        server.join().unwrap();
        // Nobody listens any more.
        let gone = fetch(&entry, PATIENCE);
        assert!(matches!(gone, Err(FetchError::Gone { .. })), "{gone:?}");
        std::fs::remove_file(&entry.socket).unwrap();
    }

    #[test]
    fn a_process_that_hangs_up_is_told_from_one_that_is_gone() {
        with_socket("unfinished", b"", |entry| {
            let answer = fetch(entry, Duration::from_secs(60));
            let told = matches!(answer, Err(FetchError::Unfinished { .. }));
            assert!(told, "{answer:?}");
        });
    }

    #[test]
    fn a_socket_that_another_process_made_is_nobodys() {
        let wrong = |name: &str, change: fn(&mut Entry)| {
            with_socket(name, b"", |entry| {
                let mut entry = entry.clone();
                change(&mut entry);
                let answer = fetch(&entry, Duration::from_secs(60));
                let told = matches!(answer, Err(FetchError::Gone { .. }));
                assert!(told, "{answer:?}");
            });
        };
        wrong("pid", |entry| entry.pid += 1);
        wrong("owner", |entry| entry.owner += 1);
    }

    #[test]
    fn names_that_would_do_something_to_a_terminal_are_not_believed() {
        let mut snapshot = fixture::snapshot();
        snapshot.guests[0].name = "vm\u{1b}[2J0".to_owned();
        snapshot.gpu = "x\ny".to_owned();
        let vm = snapshot.guests[0].vm.as_mut().unwrap();
        vm.vmm_exits.insert("io\u{7}:x".to_owned(), 1);
        let shown = format!("{:?}", snapshot.printable());
        for escape in ["u{1b}", "\\n", "u{7}"] {
            assert!(!shown.contains(escape), "{shown}");
        }
    }
}
