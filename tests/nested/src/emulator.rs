//! The QEMU process.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use causeway_nested_agent::PORT_NAME;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};

use crate::devices;
use crate::doorbell;
use crate::log::Log;
use crate::machine::Shape;
use crate::nodes;
use crate::requirements::Requirements;

/// A running emulator. It is killed when this is dropped, or when the process ends in whatever way.
pub struct Emulator {
    process: OwnedFd,
    number: Pid,
    /// Waits for the process. The kernel kills the emulator when the thread that started it ends,
    /// so this thread lives as long.
    keeper: Option<JoinHandle<()>>,
    /// The other end of a device that is connected to its peers, of which there are none.
    _doorbell: Option<UnixStream>,
    /// What the machine's console showed.
    pub console: Log,
    /// What the emulator itself said.
    pub said: Log,
}

impl Emulator {
    /// Starts a machine; the stream leads to its agent.
    pub fn start(
        requirements: &Requirements,
        shape: &Shape,
        initramfs: File,
    ) -> io::Result<(Self, UnixStream)> {
        let (agent, agent_end) = UnixStream::pair()?;
        let (console, console_end) = UnixStream::pair()?;
        let doorbell = shape.has_iommu.then(doorbell::connection).transpose()?;
        let (doorbell, doorbell_end) = doorbell.unzip();
        let mut command = Command::new(&requirements.emulator);
        let files = Files {
            initramfs: initramfs.as_raw_fd(),
            console: console_end.as_raw_fd(),
            agent: agent_end.as_raw_fd(),
            doorbell: doorbell_end.as_ref().map(AsRawFd::as_raw_fd),
        };
        command.args(arguments(requirements, shape, &files));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.process_group(0);
        hand_over(&mut command, &files);
        let (started, starting) = channel();
        let keeper = thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || keep(command, &started))?;
        let child = starting.recv().map_err(io::Error::other)?;
        let (process, number, errors) = child?;
        // Not before: the child inherits them.
        drop((initramfs, console_end, agent_end, doorbell_end));
        let emulator = Self {
            process,
            number,
            keeper: Some(keeper),
            _doorbell: doorbell,
            console: Log::default(),
            said: Log::default(),
        };
        emulator.console.collect(console);
        emulator.said.collect(errors);
        Ok((emulator, agent))
    }

    /// Processor time that it has used so far, if the kernel says.
    pub fn processor_time(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.number)).ok()?;
        // proc_pid_stat(5): behind the name, which is in parentheses, utime and stime are the 12th
        // and the 13th.
        let (_, fields) = stat.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
        let second = rustix::param::clock_ticks_per_second();
        Some(Duration::from_millis(ticks * 1000 / second))
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.kill();
    }
}

type Started = io::Result<(OwnedFd, Pid, std::process::ChildStderr)>;

fn keep(mut command: Command, started: &Sender<Started>) {
    let spawned = command.spawn().and_then(|mut child| {
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.inspect_err(|_| end(&mut child))?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, process, errors))
    });
    let (answer, child) = match spawned {
        Ok((child, process, errors)) => {
            let number = Pid::from_child(&child);
            (Ok((process, number, errors)), Some(child))
        }
        Err(error) => (Err(error), None),
    };
    // Whoever asked waits for it.
    let _ = started.send(answer);
    if let Some(mut child) = child {
        let _ = child.wait();
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Files that the emulator inherits.
struct Files {
    initramfs: RawFd,
    console: RawFd,
    agent: RawFd,
    doorbell: Option<RawFd>,
}

/// Has the child inherit the files, and die with the thread that starts it.
#[allow(unsafe_code)] // What happens between fork and exec.
fn hand_over(command: &mut Command, files: &Files) {
    let fixed = [files.initramfs, files.console, files.agent];
    let files: Vec<RawFd> = fixed.into_iter().chain(files.doorbell).collect();
    let parent = rustix::process::getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent ended before that, nobody would ever kill this process.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        for file in &files {
            // SAFETY: the caller of `spawn` keeps the files open until it has returned.
            let file = unsafe { BorrowedFd::borrow_raw(*file) };
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls and nothing else: it neither allocates nor takes
    // locks.
    unsafe { command.pre_exec(prepare) };
}

fn arguments(requirements: &Requirements, shape: &Shape, files: &Files) -> Vec<String> {
    let Files {
        initramfs,
        console,
        agent,
        doorbell,
    } = files;
    let (devices, kernel_words) = match doorbell {
        Some(doorbell) => (devices::arguments(*doorbell), devices::KERNEL_WORDS),
        None => (Vec::new(), ""),
    };
    let nodes = shape.has_nodes.then(|| nodes::arguments(shape.memory_mib));
    let words = [
        ("-machine", "q35".to_owned()),
        ("-accel", "tcg,thread=multi".to_owned()),
        ("-cpu", "max,+svm,+npt".to_owned()),
        ("-smp", shape.cpus.to_string()),
        ("-m", format!("{}M", shape.memory_mib)),
        ("-display", "none".to_owned()),
        ("-kernel", requirements.kernel.display().to_string()),
        ("-initrd", format!("/proc/self/fd/{initramfs}")),
        // A kernel that panics resets the machine, which ends it.
        (
            "-append",
            format!("console=ttyS0 quiet panic=-1 reboot=t mitigations=off{kernel_words}"),
        ),
        ("-chardev", format!("socket,id=console,fd={console}")),
        ("-serial", "chardev:console".to_owned()),
        ("-chardev", format!("socket,id=agent,fd={agent}")),
        ("-device", "virtio-serial-pci".to_owned()),
        (
            "-device",
            format!("virtserialport,chardev=agent,name={PORT_NAME}"),
        ),
    ];
    let flags = ["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned);
    let pairs = words
        .into_iter()
        .chain(devices)
        .chain(nodes.into_iter().flatten())
        .flat_map(|(flag, value)| [flag.to_owned(), value]);
    flags.into_iter().chain(pairs).collect()
}
