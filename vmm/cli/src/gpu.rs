//! The `--gpu` argument: a back end and the limits of each VM on it.

use std::str::FromStr;

/// Allocations of a VM, unless told otherwise.
const ALLOCATIONS_PER_VM: u32 = 1024;
/// Allocations of all VMs together, unless told otherwise.
const ALLOCATIONS_IN_ALL: u32 = 12_288;

/// What `--gpu` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// GPU memory of each VM in bytes.
    pub memory_bytes: u64,
    /// Allocations of each VM, if given.
    allocations: Option<u32>,
    /// Command buffers of each VM.
    pub queues: u32,
    /// CPU cores that execute kernels, or all.
    pub cores: Option<usize>,
    /// Where the session of each VM lives.
    pub place: Place,
}

/// Where the session of a VM lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the process of the VM.
    Inside,
    /// In a worker process of its own.
    Process,
}

impl Place {
    /// As reports name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Process => "process",
        }
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            allocations: None,
            queues: 16,
            cores: None,
            place: Place::Inside,
        }
    }
}

impl Gpu {
    /// Allocations of each of `vms` VMs. Unless given, VMs share out what one process can map: each allocation takes
    /// two of its 65,530 mappings (`vm.max_map_count`), and splits others.
    pub fn allocations(&self, vms: u32) -> u32 {
        self.allocations
            .unwrap_or_else(|| (ALLOCATIONS_IN_ALL / vms.max(1)).min(ALLOCATIONS_PER_VM))
    }
}

/// Why a `--gpu` argument is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// Not a back end.
    #[error("`{0}` is not a back end: this build knows `software`")]
    BackEnd(String),
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    Form(String),
    /// Not a key.
    #[error(
        "`{0}` is not a key of the software back end: it knows memory, allocations, queues, cores and worker"
    )]
    Key(String),
    /// Not a place for a session.
    #[error("worker={0} cannot be: it must be inside or process")]
    Worker(String),
    /// Given more than once.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// Not a value of that key.
    #[error("{key}={value} cannot be: it must be a number from {least} to {most}{}", unit(.key))]
    Value {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
}

fn unit(key: &str) -> &'static str {
    if key == "memory" {
        " (MiB; a suffix MiB or GiB may be added)"
    } else {
        ""
    }
}

impl FromStr for Gpu {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let mut words = text.split(',');
        let back_end = words.next().unwrap_or_default();
        if back_end != "software" {
            return Err(GpuError::BackEnd(back_end.to_owned()));
        }
        let mut gpu = Self::default();
        let mut seen = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| GpuError::Form(word.to_owned()))?;
            if seen.contains(&key) {
                return Err(GpuError::Twice(key.to_owned()));
            }
            seen.push(key);
            match key {
                "memory" => {
                    gpu.memory_bytes = number("memory", value, mebibytes(value), 1, 1 << 20)? << 20
                }
                "allocations" => {
                    let allocations = number("allocations", value, value.parse().ok(), 1, 1 << 16)?;
                    gpu.allocations = Some(allocations as u32);
                }
                "queues" => {
                    gpu.queues = number("queues", value, value.parse().ok(), 1, 256)? as u32
                }
                "cores" => {
                    gpu.cores = Some(number("cores", value, value.parse().ok(), 1, 1024)? as usize)
                }
                "worker" => gpu.place = place(value)?,
                _ => return Err(GpuError::Key(key.to_owned())),
            }
        }
        Ok(gpu)
    }
}

fn place(value: &str) -> Result<Place, GpuError> {
    [Place::Inside, Place::Process]
        .into_iter()
        .find(|place| place.name() == value)
        .ok_or_else(|| GpuError::Worker(value.to_owned()))
}

fn number(
    key: &'static str,
    value: &str,
    parsed: Option<u64>,
    least: u64,
    most: u64,
) -> Result<u64, GpuError> {
    parsed
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| GpuError::Value {
            key,
            value: value.to_owned(),
            least,
            most,
        })
}

/// `512`, `512MiB` or `4GiB`, in MiB.
fn mebibytes(text: &str) -> Option<u64> {
    match (text.strip_suffix("GiB"), text.strip_suffix("MiB")) {
        (Some(number), _) => number.parse::<u64>().ok()?.checked_mul(1024),
        (None, Some(number)) => number.parse().ok(),
        (None, None) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in [("512", 512 << 20), ("512MiB", 512 << 20), ("4GiB", 4 << 30)] {
            assert_eq!(
                format!("software,memory={text}")
                    .parse::<Gpu>()
                    .unwrap()
                    .memory_bytes,
                bytes
            );
        }
    }

    #[test]
    fn many_vms_share_what_a_process_can_map() {
        let gpu = Gpu::default();
        assert_eq!(gpu.allocations(1), 1024);
        assert_eq!(gpu.allocations(64), 192);
        let given = "software,allocations=5000".parse::<Gpu>().unwrap();
        assert_eq!(given.allocations(64), 5000);
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, part) in [
            ("", "``"),
            ("cuda", "`cuda`"),
            ("software,speed=11", "`speed`"),
            ("software,memory", "`memory` is not of the form"),
            ("software,memory=0", "memory=0"),
            ("software,memory=-1", "memory=-1"),
            ("software,memory=99999999999999999999", "memory=9999"),
            ("software,memory=20000000GiB", "memory=20000000GiB"),
            ("software,queues=257", "queues=257"),
            ("software,worker=elsewhere", "worker=elsewhere"),
            ("software,queues=1,queues=2", "`queues` is given twice"),
        ] {
            let message = text.parse::<Gpu>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
