//! Tests processes of one guest that share its quota: some are killed while they hold memory and
//! the device works for them, some ask for more memory than the quota leaves.
//!
//! Without an argument, the program runs in a guest and starts the others. `hold` takes half of the
//! quota and keeps the device at work until it is killed; it can be run with `causeway serve`, too.
#![allow(unsafe_code)] // A signal to a process that is not a child has no safe form.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use causeway_shim::{
    Access, Allocation, Buffer, CommandBuffer, Device, MemoryKind, Patience, Status,
};
use causeway_shim_linux::LinuxTransport;

/// The error for which a process of this program fails.
type Failure = Box<dyn Error>;

/// Memory for fences, in bytes.
const FENCE_BYTES: u64 = 4096;
/// Units of a command buffer.
const RING_UNITS: u64 = 256;
/// Number of fills that the device still has to do when its process is killed.
const FILLS: u32 = 8;
/// How often a process does its work while another process has the rest of the quota.
const ROUNDS: usize = 3;
/// Longest time that a step of the test may take.
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
        Some(other) => Err(format!(
            "invalid role `{other}`: hold, orphan, everything, work, exhaust, or no argument"
        )
        .into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", role.as_deref().unwrap_or("processes"));
            ExitCode::FAILURE
        }
    }
}

/// Starts the other processes, and checks that the quota is free when they end.
fn drive() -> Result<(), Failure> {
    killed_child()?;
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    killed_orphan(&device)?;
    exhausted()
}

/// Checks that the memory of a killed process is free for the next process that opens the device.
fn killed_child() -> Result<(), Failure> {
    let mut holder = Worker::start("hold")?;
    println!("a child is {}, and is killed", holder.line()?);
    holder.process.kill()?;
    holder.process.wait()?;
    take_and_free_everything()?;
    println!("after the child: the whole quota is free again");
    Ok(())
}

/// Checks that the memory of a killed process is freed even if no process opens the device: the
/// first process of the guest frees it when it sees the death.
fn killed_orphan(device: &Device<'_>) -> Result<(), Failure> {
    let mut parent = Worker::start("orphan")?;
    let said = parent.line()?;
    // Now the first process of the guest is its parent.
    parent.process.wait()?;
    let total = device.attributes()?.memory_bytes;
    let used = device.attributes()?.memory_used_bytes;
    if used < total / 2 {
        return Err(format!("{used} of {total} bytes are used, but half should be").into());
    }
    let process: libc::pid_t = said.trim_start_matches("holding: ").parse()?;
    println!("an orphan is {said}, and is killed");
    // SAFETY: a signal touches no memory of this process.
    if unsafe { libc::kill(process, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let deadline = Instant::now() + PATIENCE;
    // Reading the attributes frees nothing.
    while device.attributes()?.memory_used_bytes != 0 {
        if Instant::now() > deadline {
            return Err("the memory of the killed orphan was not freed".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    take_and_free_everything()?;
    println!("after the orphan: the whole quota is free again");
    Ok(())
}

/// Checks that a process that asks for more than the quota leaves is refused, and that another
/// process can continue meanwhile.
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

/// Lets another process allocate the whole quota and free it again.
fn take_and_free_everything() -> Result<(), Failure> {
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
    // This fence is never released.
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

/// Takes a quarter of the quota, and works with it once for each line of input.
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

/// Takes all memory that the quota leaves, prints the error of the next allocation, and keeps the
/// memory until the end of the input.
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

/// Another process of this program, and the lines that it prints.
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

    /// Returns the next line that the process prints.
    fn line(&mut self) -> Result<String, Failure> {
        let ended = || format!("the process `{}` ended without printing a line", self.role);
        Ok(self.lines.next().ok_or_else(ended)??)
    }

    /// Makes the process do its work once, and returns the line that it prints then.
    fn ask(&mut self) -> Result<String, Failure> {
        let stdin = self.process.stdin.as_mut().ok_or("there is no pipe")?;
        writeln!(stdin)?;
        self.line()
    }

    /// Ends the input of the process, and checks that it succeeds.
    fn end(mut self) -> Result<(), Failure> {
        // Waiting closes the pipe.
        let status = self.process.wait()?;
        if !status.success() {
            return Err(format!("`{}` ended with {status}", self.role).into());
        }
        Ok(())
    }
}
