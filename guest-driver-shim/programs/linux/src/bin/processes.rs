//! Processes of one guest that share its quota: some are killed while they hold memory and the
//! device works for them, some want more than there is.
//!
//! Without an argument, this is the one that starts the others, which is for a guest. `hold` takes
//! half of the quota, keeps the device at work until it is killed, and can be run in front of
//! `causeway serve`, too.
#![allow(unsafe_code)] // A signal to a process that is nobody's child has no safe form.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use causeway_shim::{
    Access, Allocation, Buffer, CommandBuffer, Device, MemoryKind, Patience, Status,
};
use causeway_shim_linux::LinuxTransport;

/// Why a process of this program fails.
type Failure = Box<dyn Error>;

/// Memory for fences, in bytes.
const FENCE_BYTES: u64 = 4096;
/// Units of a command buffer.
const RING_UNITS: u64 = 256;
/// Fills that the device has before it when its process is killed.
const FILLS: u32 = 8;
/// How often a process does its work while another has the rest of the quota.
const ROUNDS: usize = 3;
/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    let outcome = match role.as_deref() {
        None => drive(),
        Some("hold") => hold(),
        Some("orphan") => start("hold", Stdio::null(), Stdio::inherit()).map(drop),
        Some("everything") => take_everything(),
        Some("work") => work(),
        Some("exhaust") => exhaust(),
        Some(other) => Err(format!("there is no role {other}").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", role.as_deref().unwrap_or("processes"));
            ExitCode::FAILURE
        }
    }
}

/// Starts the others, and looks at what becomes of the quota.
fn drive() -> Result<(), Failure> {
    killed_child()?;
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    killed_orphan(&device)?;
    exhausted()
}

/// What a killed process held is free for the next one that opens the device.
fn killed_child() -> Result<(), Failure> {
    let mut holder = Worker::start("hold")?;
    println!("a child is {}, and is killed", holder.line()?);
    holder.process.kill()?;
    holder.process.wait()?;
    everything_can_be_had()?;
    println!("after the child: all of the quota was had again");
    Ok(())
}

/// What a killed process held is free without anybody asking for it, when the first process of the
/// guest sees it die.
fn killed_orphan(device: &Device<'_>) -> Result<(), Failure> {
    let mut parent = Worker::start("orphan")?;
    let said = parent.line()?;
    // Now the first process of the guest is its parent.
    parent.process.wait()?;
    let total = device.attributes()?.memory_bytes;
    let used = device.attributes()?.memory_used_bytes;
    if used < total / 2 {
        return Err(format!("{used} bytes are used of {total}, but half should be").into());
    }
    let process: libc::pid_t = said.trim_start_matches("holding: ").parse()?;
    println!("an orphan is {said}, and is killed");
    // SAFETY: a signal touches no memory of this process.
    if unsafe { libc::kill(process, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let deadline = Instant::now() + PATIENCE;
    // Looking at it frees nothing.
    while device.attributes()?.memory_used_bytes != 0 {
        if Instant::now() > deadline {
            return Err("nobody freed what the orphan held".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    everything_can_be_had()?;
    println!("after the orphan: all of the quota was had again");
    Ok(())
}

/// A process that wants more than there is is told so, and another goes on.
fn exhausted() -> Result<(), Failure> {
    let mut worker = Worker::start("work")?;
    worker.line()?;
    let mut greedy = Worker::start("exhaust")?;
    println!("refused: {}", greedy.line()?);
    for _ in 0..ROUNDS {
        println!("meanwhile: {}", worker.ask()?);
    }
    greedy.end()?;
    println!("afterwards: {}", worker.ask()?);
    worker.end()
}

fn everything_can_be_had() -> Result<(), Failure> {
    Worker::start("everything")?.end()
}

/// Takes half of the quota, gives the device work that does not end, and waits to be killed.
fn hold() -> Result<(), Failure> {
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    let bytes = device.attributes()?.memory_bytes / 2;
    let space = device.create_space()?;
    let memory = device.allocate(bytes, MemoryKind::Device)?;
    let mapped = memory.map_gpu(&space, 0, memory.bytes(), Access::ReadWrite)?;
    let fences = Buffer::new(&device, &space, FENCE_BYTES, MemoryKind::Host)?;
    let mut commands = CommandBuffer::new(&space, RING_UNITS)?;
    for word in 0..FILLS {
        commands.fill(mapped.address(), memory.bytes(), word)?;
    }
    // Nobody ever releases it.
    commands.acquire(&fences.fence(0)?, 1)?;
    commands.submit();
    say(&format!("holding: {}", std::process::id()))?;
    loop {
        std::thread::park();
    }
}

/// Takes all memory of the quota as one allocation.
fn take_everything() -> Result<(), Failure> {
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    let bytes = device.attributes()?.memory_bytes;
    Ok(device.allocate(bytes, MemoryKind::Device)?.free()?)
}

/// Takes a quarter of the quota, and works with it once for each line that comes.
fn work() -> Result<(), Failure> {
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    let bytes = device.attributes()?.memory_bytes / 4;
    let space = device.create_space()?;
    let memory = Buffer::new(&device, &space, bytes, MemoryKind::Host)?;
    let fences = Buffer::new(&device, &space, FENCE_BYTES, MemoryKind::Host)?;
    let done = fences.fence(0)?;
    let mut commands = CommandBuffer::new(&space, RING_UNITS)?;
    say("ready")?;
    for (round, line) in (1_u32..).zip(io::stdin().lines()) {
        line?;
        commands.fill(memory.gpu.address(), bytes, round)?;
        commands.release(&done, round.into())?;
        commands.submit();
        commands.wait(&done, round.into(), Patience::default())?;
        let mut words = vec![0; bytes as usize];
        memory.cpu.window().read(0, &mut words)?;
        if words.chunks(4).any(|word| word != round.to_le_bytes()) {
            return Err(format!("the memory is not as round {round} should have left it").into());
        }
        say(&format!("round {round} verified"))?;
    }
    Ok(())
}

/// Takes all that the quota leaves, tells why there is not more, and keeps it until there is no
/// more input.
fn exhaust() -> Result<(), Failure> {
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    let attributes = device.attributes()?;
    let mut piece = attributes.memory_bytes / 4;
    let mut taken: Vec<Allocation<'_>> = Vec::new();
    let refused = loop {
        match device.allocate(piece, MemoryKind::Device) {
            Ok(allocation) => taken.push(allocation),
            Err(e) if piece <= attributes.granularity_bytes => break e,
            Err(_) => piece /= 2,
        }
    };
    if refused.status() != Status::QuotaBytes {
        return Err(format!("after {} pieces: {refused}", taken.len()).into());
    }
    say(&refused.to_string())?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Prints a line for the process that started this one.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    out.flush()
}

fn start(role: &str, stdin: Stdio, stdout: Stdio) -> Result<Child, Failure> {
    let mut command = Command::new("/proc/self/exe");
    let child = command.arg(role).stdin(stdin).stdout(stdout).spawn();
    child.map_err(|e| format!("cannot start `{role}`: {e}").into())
}

/// Another process, and what it says.
struct Worker {
    role: &'static str,
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(role: &'static str) -> Result<Self, Failure> {
        let mut process = start(role, Stdio::piped(), Stdio::piped())?;
        let stdout = process.stdout.take().ok_or("there is no pipe")?;
        Ok(Self {
            role,
            process,
            lines: BufReader::new(stdout).lines(),
        })
    }

    /// Its next line.
    fn line(&mut self) -> Result<String, Failure> {
        let ended = || format!("`{}` ended before it said anything", self.role);
        Ok(self.lines.next().ok_or_else(ended)??)
    }

    /// Has it do its work once.
    fn ask(&mut self) -> Result<String, Failure> {
        let stdin = self.process.stdin.as_mut().ok_or("there is no pipe")?;
        writeln!(stdin)?;
        self.line()
    }

    /// Ends its input, and wants it to succeed.
    fn end(mut self) -> Result<(), Failure> {
        // Waiting closes the pipe.
        let status = self.process.wait()?;
        if !status.success() {
            return Err(format!("`{}` ended with {status}", self.role).into());
        }
        Ok(())
    }
}
