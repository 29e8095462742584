//! Child processes, and a small session over the back end.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_cuda::{Config, Cuda, ENVIRONMENT, Visible};
use causeway_mediator::backend::{
    AllocateOptions, Backend, BackendError, Fault, Launch, LaunchShape, Memory, MemoryWork, Module,
    ModuleError, Progress, Queue, Reservation, Space, Work,
};
use causeway_memory::{
    Backing, DeviceMapping, DeviceMemory, Mapping, MemoryError, PageSize, SharedMemory,
};
use causeway_protocol::Access;
use causeway_protocol::message::MemoryKind;
use causeway_vulkan_import::VulkanDevice;

use crate::machine::{self, Driver};

/// Granularity of the stand-in.
pub const GRANULE: u64 = 2 << 20;
/// Set in the child that is to run a test's body, to the driver that it has.
const CHILD: &str = "CAUSEWAY_CUDA_TEST_CHILD";
const ON_STANDIN: &str = "stand-in";

/// Whether this is the child. The parent runs the test of that name in a process with these
/// settings, which are the stand-in's: a GPU cannot be told what it shall be.
pub fn is_child(name: &str, settings: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let output = match machine::driver() {
        Err(reason) => {
            machine::skip(name, &reason);
            return false;
        }
        Ok(Driver::System) if !settings.is_empty() => {
            eprintln!("skipped: {name}: only the stand-in can be told {settings:?}");
            return false;
        }
        Ok(Driver::System) => run_on_gpu(name),
        Ok(Driver::StandIn(folder)) => run_on_standin(name, settings, &folder),
    };
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Whether the child is on the stand-in.
pub fn is_on_standin() -> bool {
    std::env::var_os(CHILD).is_some_and(|driver| driver == ON_STANDIN)
}

fn child(name: &str, driver: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, driver);
    command
}

fn run_on_standin(name: &str, settings: &[(&str, &str)], library: &Path) -> Output {
    let folder = state_folder(name);
    let output = child(name, ON_STANDIN)
        .env("LD_LIBRARY_PATH", library)
        .env("CAUSEWAY_STANDIN_STATE", &folder)
        .env("CAUSEWAY_STANDIN_STRICT", "1")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(folder);
    output
}

/// One at a time: some count the memory of the GPU, which they share.
fn run_on_gpu(name: &str) -> Output {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = child(name, "gpu");
    child.envs(ENVIRONMENT.iter().copied()).output().unwrap()
}

fn state_folder(name: &str) -> PathBuf {
    let folder = format!("cuda-{}-{}", std::process::id(), name.replace(':', "-"));
    std::env::temp_dir().join(folder)
}

/// What opening says.
pub fn refusal(config: &Config) -> String {
    Cuda::open(config).expect_err("must be refused").to_string()
}

/// One address space with one queue.
pub struct Rig {
    pub cuda: Arc<Cuda>,
    pub space: Arc<dyn Space>,
    pub queue: Box<dyn Queue>,
    pub stop: Arc<AtomicBool>,
}

/// Returns whether the stand-in has done nothing for a while, as it was told to, and forgets it.
pub fn has_hung() -> bool {
    let folder = std::env::var_os("CAUSEWAY_STANDIN_STATE").expect("a folder of accounts");
    std::fs::remove_file(Path::new(&folder).join("hangs")).is_ok()
}

/// Returns the priorities of the stand-in's streams that have had kernels.
pub fn priorities() -> Vec<i32> {
    let folder = std::env::var_os("CAUSEWAY_STANDIN_STATE").expect("a folder of accounts");
    let list = std::fs::read_to_string(Path::new(&folder).join("priorities"));
    let list = list.unwrap_or_default();
    list.lines().map(|line| line.parse().unwrap()).collect()
}

/// Memory with a mapping.
pub struct Buffer {
    pub va: u64,
    pub memory: Arc<dyn Memory>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(&Config {
            visible: Some(visible()),
            ..Config::default()
        })
    }

    pub fn with(config: &Config) -> Self {
        let cuda = Cuda::open(config).unwrap_or_else(|e| panic!("{e}: {e:?}"));
        let stop = Arc::<AtomicBool>::default();
        let space = cuda.create_space(Arc::clone(&stop)).unwrap();
        let queue = space.create_queue(0).unwrap();
        Self {
            cuda,
            space,
            queue,
            stop,
        }
    }

    pub fn allocate(&self, kind: MemoryKind, bytes: u64) -> Result<Arc<dyn Memory>, BackendError> {
        let bytes = bytes.next_multiple_of(GRANULE);
        self.cuda.allocate(kind, bytes, AllocateOptions::default())
    }

    /// Fresh memory, mapped with all rights.
    pub fn buffer(&self, kind: MemoryKind, bytes: u64) -> Buffer {
        let memory = self.allocate(kind, bytes).unwrap();
        self.map(memory, Access::ReadWrite)
    }

    pub fn map(&self, memory: Arc<dyn Memory>, access: Access) -> Buffer {
        let bytes = memory.bytes();
        let va = self.space.map(None, &memory, 0, bytes, access).unwrap();
        Buffer { va, memory }
    }

    /// Unmaps and frees.
    pub fn free(&self, buffer: Buffer) {
        self.space.unmap(buffer.va).unwrap();
    }

    pub fn copy(&mut self, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
        self.queue.submit(Work::Memory(MemoryWork::Copy {
            destination,
            source,
            bytes,
        }))
    }

    pub fn fill(&mut self, destination: u64, bytes: u64, pattern: u32) -> Result<(), Fault> {
        self.queue.submit(Work::Memory(MemoryWork::Fill {
            destination,
            bytes,
            pattern,
            width: 4,
        }))
    }

    pub fn load(&self, image: &[u8]) -> Result<Arc<dyn Module>, ModuleError> {
        self.space.load_module(image, &mut Reservation::unlimited())
    }

    pub fn launch(
        &mut self,
        module: &Arc<dyn Module>,
        name: &str,
        (grid, block): ([u32; 3], [u32; 3]),
        parameters: &[u8],
    ) -> Result<(), Fault> {
        let kernel = module.kernel(name).expect("the module has this kernel");
        self.queue.submit(Work::Launch(Launch::new(
            &kernel,
            LaunchShape {
                grid,
                block,
                shared_bytes: 0,
            },
            parameters,
        )?))
    }

    /// What memory holds, by way of host memory.
    pub fn download(&mut self, va: u64, bytes: u64) -> Vec<u8> {
        let staging = self.buffer(MemoryKind::Host, bytes);
        self.copy(staging.va, va, bytes).unwrap();
        self.queue.finish().unwrap();
        let got = host(&staging.memory).bytes(bytes);
        self.free(staging);
        got
    }

    pub fn upload(&mut self, va: u64, content: &[u8]) {
        let staging = self.buffer(MemoryKind::Host, content.len() as u64);
        host(&staging.memory).0.write(0, content).unwrap();
        self.copy(va, staging.va, content.len() as u64).unwrap();
        self.queue.finish().unwrap();
        self.free(staging);
    }

    /// A queue in place of one that refuses work.
    pub fn renew_queue(&mut self) {
        self.queue = self.space.create_queue(0).unwrap();
    }

    /// Polls until all is done.
    pub fn wait(&mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        while self.queue.poll()? == Progress::Busy {
            assert!(begun.elapsed() < Duration::from_secs(60), "never idle");
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Host memory as this process sees it.
pub struct Host(pub Mapping);

pub fn host(memory: &Arc<dyn Memory>) -> Host {
    let backing = memory.backing().expect("host memory has a backing");
    let (shared, offset) = backing.host().expect("host memory is an object");
    let mapping = shared.map(offset, memory.bytes(), Access::ReadWrite);
    Host(mapping.unwrap())
}

impl Host {
    pub fn bytes(&self, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; count as usize];
        self.0.read(0, &mut bytes).unwrap();
        bytes
    }

    pub fn word(&self, offset: u64) -> u64 {
        let order = std::sync::atomic::Ordering::Acquire;
        self.0.load_u64(offset, order).unwrap()
    }
}

/// Makes device memory visible. The stand-in's exported descriptors are memory objects; a GPU's go
/// through Vulkan.
pub fn visible() -> Visible {
    if !is_on_standin() {
        return visible_through_vulkan();
    }
    Arc::new(|file: OwnedFd, bytes| {
        let shared = SharedMemory::adopt(file, PageSize::Small)?;
        Ok(Arc::new(Shown { shared, bytes }) as Arc<dyn DeviceMemory>)
    })
}

/// Makes device memory visible as the command does it.
pub fn visible_through_vulkan() -> Visible {
    Arc::new(|file, bytes| {
        let gpu = causeway_cuda::identities()?.remove(0);
        Ok(VulkanDevice::open(gpu.uuid)?.import(file, bytes)?)
    })
}

#[derive(Debug)]
struct Shown {
    shared: SharedMemory,
    bytes: u64,
}

#[derive(Debug)]
struct ShownMapping(Mapping);

impl DeviceMemory for Shown {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.shared.file()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        let mapping = self.shared.map(offset, bytes, Access::ReadWrite)?;
        Ok(Box::new(ShownMapping(mapping)))
    }
}

impl DeviceMapping for ShownMapping {
    fn as_ptr(&self) -> NonNull<u8> {
        self.0.as_ptr()
    }
}

/// What a CPU sees of device memory.
pub fn shown(memory: &Arc<dyn Memory>) -> Arc<dyn DeviceMemory> {
    match memory.backing() {
        Some(Backing::Device(memory)) => memory,
        other => panic!("device memory must be visible, not {other:?}"),
    }
}
