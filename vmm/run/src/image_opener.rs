//! A process that opens disk images for a VMM, which may open no files any more when guests run.
//!
//! The opener is another run of this program. It gets the folder of `--disk-folder` and names in
//! it, one after the other, and sends back open files. A guest that has taken over the VMM can ask
//! for any image in this folder, and for nothing else: the kernel looks names up beneath the folder
//! (`RESOLVE_BENEATH`, openat2(2)), and only regular files of whole sectors that nobody else has
//! locked are sent.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use causeway_terminal::{Failure, shown_path};
use causeway_vmm::virtio::{DiskError, DiskImage, Holder};
use causeway_vmm::waits::Wait;
use rustix::cmsg_space;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// Name of the hidden subcommand that runs the opener; its argument is the folder.
const OPENER: &str = "image-opener";
/// Longest name of an image, in bytes: what a path may have (PATH_MAX).
const NAME_BYTES_MAX: usize = 4096;
/// Longest answer, in bytes: longer texts are cut.
const ANSWER_BYTES_MAX: usize = 8192;
/// How long an image may take to be opened. Who asks serves monitors meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a request before the name, and of an answer before the text: one, which says in a
/// request whether the image is only to be read. A message without bytes would be the end of the
/// socket.
const HEAD_BYTES: usize = 1;
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = HEAD_BYTES + NAME_BYTES_MAX;
/// How long the opener may take to end. A run that is ended by a signal has two seconds in all.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How often the end of the opener is looked for.
const POLL: Duration = Duration::from_millis(1);

/// Why an image is not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenerError {
    /// The name cannot be one.
    #[error("the name of the image has {0} bytes: choose one of 1 to {NAME_BYTES_MAX}")]
    Name(usize),
    /// The opener has not answered in time, now or the last time.
    #[error(
        "an image was not opened within {seconds} s: see whether its file system answers, and try \
         again",
        seconds = PATIENCE.as_secs()
    )]
    Silent,
    /// There is no descriptor for the file.
    #[error(
        "this process has no file descriptor left for the image: start the run with a higher limit \
         (ulimit -n), or let guests free memory"
    )]
    NoDescriptor,
    /// The opener is gone, or its socket fails.
    #[error("the process that opens images has ended: stop the run and start it again")]
    Gone(#[source] io::Error),
    /// The opener says why.
    #[error("{0}")]
    Refused(String),
    /// What was sent is no image.
    #[error(transparent)]
    Image(#[from] DiskError),
}

/// Why the opener does not send a file.
#[derive(Debug, thiserror::Error)]
enum ImageError {
    /// The name leads out of the folder.
    #[error(
        "{0} is not in the folder of --disk-folder, or an absolute link leads to it: name an image \
         in the folder or below"
    )]
    Outside(String),
    /// The run that asks has the image.
    #[error(
        "the disk image {0} is in use by this run: take it from the disk that has it with \
         remove-disk, or add it each time with ,ro"
    )]
    InUseHere(String),
    /// The file is none that can be a disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The process that opens images. A drop ends it.
#[derive(Debug)]
pub struct Opener {
    child: Child,
    socket: OwnedFd,
    /// An answer is still to come: the opener gets no other request until then.
    owes: bool,
}

impl Opener {
    /// Starts the opener of images in `folder`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        let mut command = Command::new("/proc/self/exe");
        let words = [OsStr::new(OPENER), OsStr::new("--"), folder.as_os_str()];
        command
            .args(words)
            .stdin(Stdio::from(its_end))
            .stdout(Stdio::null())
            // A signal of the terminal is for the command, which ends the opener.
            .process_group(0);
        Ok(Self {
            child: command.spawn()?,
            socket,
            owes: false,
        })
    }

    /// Opens the image `name` of the folder, whose path for messages is `shown`, and locks it.
    ///
    /// # Errors
    /// [`OpenerError`].
    pub fn open(
        &mut self,
        name: &Path,
        shown: &Path,
        read_only: bool,
    ) -> Result<DiskImage, OpenerError> {
        let bytes = name.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
            return Err(OpenerError::Name(bytes.len()));
        }
        // What comes too late is closed, which unlocks it.
        if self.owes {
            self.answer(RecvFlags::DONTWAIT, Instant::now())?;
        }
        let request = [&[read_only.into()], bytes].concat();
        send(self.socket.as_fd(), &request, &[]).map_err(gone)?;
        self.owes = true;
        let (text, file) = self.answer(RecvFlags::empty(), Instant::now() + PATIENCE)?;
        match file {
            Some(file) => Ok(DiskImage::of(shown, File::from(file), read_only)?),
            None => Err(OpenerError::Refused(text)),
        }
    }

    /// Waits until `deadline` for the answer that is to come.
    fn answer(
        &mut self,
        flags: RecvFlags,
        deadline: Instant,
    ) -> Result<(String, Option<OwnedFd>), OpenerError> {
        let message = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && !flags.contains(RecvFlags::DONTWAIT) {
                return Err(OpenerError::Silent);
            }
            // No time at all would be no limit.
            let left = left.max(Duration::from_micros(1));
            set_socket_timeout(&self.socket, Timeout::Recv, Some(left)).map_err(gone)?;
            match receive(self.socket.as_fd(), ANSWER_BYTES_MAX, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(OpenerError::Silent),
                received => break received.map_err(gone)?,
            }
        };
        self.owes = false;
        if message.lost_files {
            return Err(OpenerError::NoDescriptor);
        }
        let text = message.bytes.get(HEAD_BYTES..).unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        Ok((text, message.files.into_iter().next()))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // It ends when its socket does; an error means that it has.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let _wait = Wait::begin("the process that opens images to end");
        let deadline = Instant::now() + END_PATIENCE;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                log::warn!(
                    "process {}, which opens images, waits for their file system: it ends when \
                     that answers",
                    self.child.id()
                );
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

fn gone(error: Errno) -> OpenerError {
    OpenerError::Gone(error.into())
}

/// Opens images of `folder` for the process at the other end of standard input, until that ends.
///
/// # Errors
/// A usage failure if the folder cannot be opened.
pub fn serve(folder: &Path) -> Result<ExitCode, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty());
    let opened =
        opened.map_err(|e| Failure::usage_from(OPENER, &shown_path(folder), io::Error::from(e)))?;
    let input = io::stdin();
    while let Ok(request) = receive(input.as_fd(), REQUEST_BYTES_MAX, RecvFlags::empty()) {
        let Some((&[read_only], name)) = request.bytes.split_first_chunk::<HEAD_BYTES>() else {
            break;
        };
        let name = Path::new(OsStr::from_bytes(name));
        let (text, file) = match image(opened.as_fd(), folder, name, read_only != 0) {
            Ok(file) => (String::new(), Some(file)),
            Err(e) => (chain(&e), None),
        };
        let text = &text.as_bytes()[..text.len().min(ANSWER_BYTES_MAX - HEAD_BYTES)];
        let answer = [&[0; HEAD_BYTES], text].concat();
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        if send(input.as_fd(), &answer, &files).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens an image, checks it and locks it. `root` is the folder, open, and `folder` its path.
fn image(
    root: BorrowedFd<'_>,
    folder: &Path,
    name: &Path,
    read_only: bool,
) -> Result<File, ImageError> {
    let access = match read_only {
        true => OFlags::RDONLY,
        false => OFlags::RDWR,
    };
    // A pipe without a writer would keep this process.
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let path = folder.join(name);
    let file = openat2(root, name, flags, Mode::empty(), beneath).map_err(|e| match e {
        Errno::XDEV => ImageError::Outside(shown_path(name)),
        e => DiskImage::open_error(&path, read_only, e.into()).into(),
    })?;
    let image = DiskImage::of(&path, File::from(file), read_only);
    Ok(image.map_err(in_use_here)?.into_file())
}

/// Tells an image that the process has which asks for it from one that others have.
fn in_use_here(error: DiskError) -> ImageError {
    let asks = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    match error {
        DiskError::InUse {
            path,
            holder: Holder::Process { pid, .. },
        } if asks.and_then(|asks| u32::try_from(asks).ok()) == Some(pid) => {
            ImageError::InUseHere(shown_path(&path))
        }
        error => error.into(),
    }
}

/// Returns an error with its cause as one clause.
pub(crate) fn chain(error: &dyn Error) -> String {
    let cause = error.source();
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// What has come over the socket.
struct Message {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
    /// Files were sent that this process has no descriptors for.
    lost_files: bool,
}

/// Receives a message of at most `most` bytes; a longer one is cut.
fn receive(socket: BorrowedFd<'_>, most: usize, flags: RecvFlags) -> Result<Message, Errno> {
    let mut bytes = vec![0; most];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, into, &mut ancillary, flags)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(Errno::PIPE);
    }
    bytes.truncate(received.bytes);
    Ok(Message {
        bytes,
        files,
        lost_files: received.flags.contains(ReturnFlags::CTRUNC),
    })
}

#[cfg(test)]
mod tests;
