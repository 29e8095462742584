//! What kind of driver and device this shall be: environment variables, as the crate's description
//! lists them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::attributes;

/// What the environment asks for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Devices, 0 to 16.
    pub(crate) devices: usize,
    /// Whether devices can reach each other's memory.
    pub(crate) peers: bool,
    /// Whether NVML says that devices are linked by NVLink.
    pub(crate) nvlink: bool,
    /// Whether devices are counted from the one with the highest PCI address, where the program
    /// does not ask for the order of PCI addresses (`CUDA_DEVICE_ORDER`).
    pub(crate) reversed: bool,
    /// Whether there is an IMEX channel.
    pub(crate) fabric: bool,
    /// Version as `cuDriverGetVersion` tells it.
    pub(crate) driver_version: i32,
    /// Memory of the devices in bytes, in their order. The last stands for all that follow.
    memory_bytes: Vec<u64>,
    /// Multiprocessors of each device.
    pub(crate) multiprocessors: u32,
    /// UUID of device 0; others differ in their last byte.
    pub(crate) uuid: [u8; 16],
    /// What memory files begin with, so that a Vulkan driver for CPUs imports them.
    pub(crate) vulkan: Option<[u8; 16]>,
    /// Attributes that are not as usual.
    pub(crate) attributes: HashMap<i32, i32>,
    /// Host memory that may be registered at a time, in bytes.
    pub(crate) locked_bytes: u64,
    /// Each kernel takes the whole GPU.
    pub(crate) full: bool,
    /// Abort at the first copy of pageable memory.
    pub(crate) strict: bool,
    /// Abort at the first wait before something is destroyed.
    pub(crate) prompt: bool,
    /// How long `cuInit` does nothing.
    pub(crate) hang: Duration,
    /// How long each load of a module does nothing, except the first of the process.
    pub(crate) hang_load: Duration,
    /// How long each kernel does nothing.
    pub(crate) hang_kernel: Duration,
    /// How long each copy of one word does nothing.
    pub(crate) hang_word: Duration,
    /// Where processes account for the memory that they have.
    pub(crate) state: PathBuf,
}

impl Settings {
    /// Reads the environment. What cannot be understood ends the process: a test would test
    /// something else.
    pub(crate) fn read() -> Self {
        let mut overrides = HashMap::new();
        for pair in text("ATTRIBUTES")
            .split(',')
            .filter(|pair| !pair.is_empty())
        {
            let numbers = pair.split_once('=').and_then(|(name, value)| {
                Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
            });
            let (name, value) = numbers.unwrap_or_else(|| refuse("ATTRIBUTES", pair));
            overrides.insert(name, value);
        }
        let multiprocessors = overrides
            .get(&attributes::MULTIPROCESSOR_COUNT)
            .and_then(|count| u32::try_from(*count).ok())
            .unwrap_or_else(|| number("SMS", 132) as u32);
        Self {
            devices: number("DEVICES", 1).min(16) as usize,
            peers: number("PEERS", 1) != 0,
            nvlink: number("NVLINK", 0) != 0,
            reversed: number("REVERSED", 0) != 0
                && std::env::var("CUDA_DEVICE_ORDER").as_deref() != Ok("PCI_BUS_ID"),
            fabric: number("FABRIC", 0) != 0,
            driver_version: number("DRIVER_VERSION", 13000) as i32,
            memory_bytes: numbers("MEMORY", 4 << 30),
            multiprocessors: multiprocessors.max(1),
            uuid: bytes("UUID").unwrap_or(*b"causeway-standin"),
            vulkan: bytes("VULKAN"),
            attributes: overrides,
            locked_bytes: number("LOCKED_BYTES", u64::MAX),
            full: number("FULL", 0) != 0,
            strict: number("STRICT", 0) != 0,
            prompt: number("PROMPT", 0) != 0,
            hang: Duration::from_secs(number("HANG", 0)),
            hang_load: Duration::from_secs(number("HANG_LOAD", 0)),
            hang_kernel: Duration::from_secs(number("HANG_KERNEL", 0)),
            hang_word: Duration::from_secs(number("HANG_WORD", 0)),
            state: state_folder(),
        }
    }
}

impl Settings {
    /// Memory of a device in bytes.
    pub(crate) fn memory_bytes(&self, device: usize) -> u64 {
        let given = self.memory_bytes.get(device);
        given.or(self.memory_bytes.last()).copied().unwrap_or(0)
    }

    /// Does nothing for `time`. If that is any, the file `hangs` tells in the folder of accounts
    /// that it has begun.
    pub(crate) fn hang_for(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        let made = std::fs::create_dir_all(&self.state);
        if let Err(e) = made.and_then(|()| std::fs::write(self.state.join("hangs"), "")) {
            eprintln!("stand-in driver: cannot tell that it hangs: {e}");
        }
        std::thread::sleep(time);
    }
}

fn name_of(setting: &str) -> String {
    format!("CAUSEWAY_STANDIN_{setting}")
}

fn text(setting: &str) -> String {
    std::env::var(name_of(setting)).unwrap_or_default()
}

fn number(setting: &str, usual: u64) -> u64 {
    match text(setting).trim() {
        "" => usual,
        given => given.parse().unwrap_or_else(|_| refuse(setting, given)),
    }
}

/// Numbers between commas.
fn numbers(setting: &str, usual: u64) -> Vec<u64> {
    let given = text(setting);
    if given.trim().is_empty() {
        return vec![usual];
    }
    let parse = |part: &str| part.trim().parse();
    let parsed = given
        .split(',')
        .map(|part| parse(part).unwrap_or_else(|_| refuse(setting, part)));
    parsed.collect()
}

/// 16 bytes in hexadecimal digits, if the setting is made.
fn bytes(setting: &str) -> Option<[u8; 16]> {
    let given = text(setting).replace('-', "");
    if given.is_empty() {
        return None;
    }
    let byte = |index: usize| u8::from_str_radix(given.get(2 * index..2 * index + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..given.len().div_ceil(2)).map(byte).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    Some(bytes.unwrap_or_else(|| refuse(setting, &given)))
}

fn state_folder() -> PathBuf {
    if let Some(given) = std::env::var_os(name_of("STATE")) {
        return PathBuf::from(given);
    }
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    std::env::temp_dir().join(format!("causeway-standin-{user}"))
}

fn refuse(setting: &str, given: &str) -> ! {
    eprintln!(
        "stand-in driver: {} is `{given}`, which makes no sense",
        name_of(setting)
    );
    std::process::abort();
}
