//! The `--gpu` argument: a back end and the limits of each VM on it.

use std::str::FromStr;

use causeway_host_vfio::{Address, BARS, ParseAddressError};

/// Allocations of a VM, unless told otherwise.
const ALLOCATIONS_PER_VM: u32 = 1024;
/// Allocations of all VMs together, unless told otherwise.
const ALLOCATIONS_IN_ALL: u32 = 12_288;

/// What `--gpu` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Which back end.
    pub kind: Kind,
    /// GPU memory of each VM in bytes.
    pub memory_bytes: u64,
    /// Whether that was asked for, and not chosen here.
    pub memory_given: bool,
    /// Allocations of each VM, if given.
    allocations: Option<u32>,
    /// Command buffers of each VM.
    pub queues: u32,
    /// Where the session of each VM lives.
    pub place: Place,
}

/// A back end, with what only it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The host's cores.
    Software {
        /// CPU cores that execute kernels, or all.
        cores: Option<usize>,
    },
    /// A GPU of NVIDIA's.
    Cuda {
        /// Its number, as `nvidia-smi` counts.
        device: u32,
        /// Multiprocessors of each VM, or all.
        sms: Option<u32>,
        /// Whether each launch goes to the driver by itself.
        single_launches: bool,
        /// Whether each address space has a context of its own.
        context_per_space: bool,
    },
    /// Memory of a PCI device that is bound to vfio-pci.
    Vfio {
        /// The device.
        address: Address,
        /// Number of the BAR whose memory is lent, or the largest.
        bar: Option<u8>,
    },
}

impl Kind {
    /// As `--gpu` calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Software { .. } => "software",
            Self::Cuda { .. } => "cuda",
            Self::Vfio { .. } => "vfio",
        }
    }

    /// Reads what stands before the first comma.
    fn parse(text: &str) -> Result<Self, GpuError> {
        let cuda = |device| Self::Cuda {
            device,
            sms: None,
            single_launches: false,
            context_per_space: false,
        };
        match text.split_once(':') {
            None if text == "software" => Ok(Self::Software { cores: None }),
            None if text == "cuda" => Ok(cuda(0)),
            Some(("cuda", device)) => {
                let number = number("cuda", device, device.parse().ok(), 0, 255)?;
                Ok(cuda(number as u32))
            }
            None if text == "vfio" => Err(GpuError::NoDevice),
            Some(("vfio", address)) => Ok(Self::Vfio {
                address: address.parse().map_err(GpuError::Address)?,
                bar: None,
            }),
            _ => Err(GpuError::BackEnd(text.to_owned())),
        }
    }

    /// Limits of a VM, unless told otherwise. A VM on a GPU has a process of its own: a fault of a kernel is the end of
    /// the process that holds the context.
    const fn defaults(self) -> Gpu {
        let (memory_bytes, place) = match self {
            Self::Software { .. } | Self::Vfio { .. } => (1 << 30, Place::Inside),
            Self::Cuda { .. } => (4 << 30, Place::Process),
        };
        Gpu {
            kind: self,
            memory_bytes,
            memory_given: false,
            allocations: None,
            queues: 16,
            place,
        }
    }
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

impl Gpu {
    /// Allocations of each of `vms` VMs. Unless given, VMs share out what one process can map: each allocation takes
    /// two of its 65,530 mappings (`vm.max_map_count`), and splits others.
    pub fn allocations(&self, vms: u32) -> u32 {
        self.allocations
            .unwrap_or_else(|| (ALLOCATIONS_IN_ALL / vms.max(1)).min(ALLOCATIONS_PER_VM))
    }

    /// Replaces `auto` by the back end that this host has. `cuda` says whether there is a GPU to be used.
    pub fn choose(text: &str, cuda: impl FnOnce() -> bool) -> String {
        let (back_end, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        if back_end != "auto" {
            return text.to_owned();
        }
        let chosen = if cuda() { "cuda" } else { "software" };
        format!("{chosen}{rest}")
    }
}

/// Why a `--gpu` argument is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// Not a back end.
    #[error(
        "`{0}` is not a back end: there are software, cuda, cuda:N for GPU number N, vfio:BDF for a PCI device, and auto"
    )]
    BackEnd(String),
    /// Of which device.
    #[error(
        "vfio wants the PCI device whose memory is to be lent, for example vfio:0000:00:03.0: `causeway doctor` lists those that can be had"
    )]
    NoDevice,
    /// Not a device.
    #[error(transparent)]
    Address(ParseAddressError),
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    Form(String),
    /// Not a key.
    #[error("`{key}` is not a key of {back_end}: it knows {}", keys(.back_end))]
    Key {
        /// What was given.
        key: String,
        /// The back end.
        back_end: &'static str,
    },
    /// Not a place for a session.
    #[error("worker={0} cannot be: it must be inside or process")]
    Worker(String),
    /// Not elsewhere.
    #[error(
        "worker=process cannot be with vfio: the descriptor of a device gives all of it, so the memory is lent by the process that runs the VMs; leave worker out"
    )]
    InsideOnly,
    /// Not one of two words.
    #[error("{key}={value} cannot be: it must be {} or {}", .words[0], .words[1])]
    Choice {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        words: [&'static str; 2],
    },
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

/// The keys of a back end.
fn keys(back_end: &str) -> &'static str {
    match back_end {
        "cuda" => "memory, sms, allocations, queues, worker, launches and contexts",
        "vfio" => "bar, memory, allocations, queues and worker",
        _ => "memory, allocations, queues, cores and worker",
    }
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
        let mut gpu = Kind::parse(words.next().unwrap_or_default())?.defaults();
        let mut seen = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| GpuError::Form(word.to_owned()))?;
            if seen.contains(&key) {
                return Err(GpuError::Twice(key.to_owned()));
            }
            seen.push(key);
            match (key, &mut gpu.kind) {
                ("memory", _) => {
                    gpu.memory_bytes = number("memory", value, mebibytes(value), 1, 1 << 20)? << 20;
                    gpu.memory_given = true;
                }
                ("allocations", _) => {
                    let allocations = number("allocations", value, value.parse().ok(), 1, 1 << 16)?;
                    gpu.allocations = Some(allocations as u32);
                }
                ("queues", _) => {
                    gpu.queues = number("queues", value, value.parse().ok(), 1, 256)? as u32
                }
                ("cores", Kind::Software { cores }) => {
                    *cores = Some(number("cores", value, value.parse().ok(), 1, 1024)? as usize)
                }
                ("sms", Kind::Cuda { sms, .. }) => {
                    *sms = Some(number("sms", value, value.parse().ok(), 1, 1024)? as u32)
                }
                (
                    "launches",
                    Kind::Cuda {
                        single_launches, ..
                    },
                ) => *single_launches = choice("launches", value, ["gathered", "single"])?,
                (
                    "contexts",
                    Kind::Cuda {
                        context_per_space, ..
                    },
                ) => *context_per_space = choice("contexts", value, ["one", "each"])?,
                ("bar", Kind::Vfio { bar, .. }) => {
                    let most = u64::from(BARS - 1);
                    *bar = Some(number("bar", value, value.parse().ok(), 0, most)? as u8)
                }
                ("worker", kind) => {
                    gpu.place = place(value)?;
                    if gpu.place == Place::Process && matches!(kind, Kind::Vfio { .. }) {
                        return Err(GpuError::InsideOnly);
                    }
                }
                _ => {
                    return Err(GpuError::Key {
                        key: key.to_owned(),
                        back_end: gpu.kind.name(),
                    });
                }
            }
        }
        Ok(gpu)
    }
}

/// Whether the second of two words was given.
fn choice(key: &'static str, value: &str, words: [&'static str; 2]) -> Result<bool, GpuError> {
    let found = words.iter().position(|word| *word == value);
    found
        .map(|index| index == 1)
        .ok_or_else(|| GpuError::Choice {
            key,
            value: value.to_owned(),
            words,
        })
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
    fn auto_takes_a_gpu_where_there_is_one_and_keeps_the_limits() {
        assert_eq!(Gpu::choose("auto", || true), "cuda");
        assert_eq!(
            Gpu::choose("auto,memory=2GiB", || false),
            "software,memory=2GiB"
        );
        assert_eq!(
            Gpu::choose("cuda:1,sms=8", || panic!("not asked for")),
            "cuda:1,sms=8"
        );
        assert_eq!(Gpu::choose("automatic", || true), "automatic");
    }

    #[test]
    fn a_vm_on_a_gpu_has_a_process_of_its_own_and_more_memory() {
        let gpu: Gpu = "cuda:3,sms=32".parse().unwrap();
        let (device, sms) = (3, Some(32));
        let (single_launches, context_per_space) = (false, false);
        let kind = Kind::Cuda {
            device,
            sms,
            single_launches,
            context_per_space,
        };
        assert_eq!(gpu.kind, kind);
        assert_eq!((gpu.place, gpu.memory_bytes), (Place::Process, 4 << 30));
        let inside: Gpu = "cuda,worker=inside".parse().unwrap();
        assert_eq!(inside.place, Place::Inside);
    }

    #[test]
    fn a_device_has_colons_and_perhaps_a_bar() {
        let gpu: Gpu = "vfio:0000:00:03.0,bar=2,memory=64MiB".parse().unwrap();
        let address = "0000:00:03.0".parse().unwrap();
        let (bar, place) = (Some(2), Place::Inside);
        assert_eq!(gpu.kind, Kind::Vfio { address, bar });
        assert_eq!((gpu.place, gpu.memory_bytes), (place, 64 << 20));
        let short: Gpu = "vfio:00:03.0,worker=inside".parse().unwrap();
        assert_eq!(short.kind, Kind::Vfio { address, bar: None });
    }

    #[test]
    fn many_vms_share_what_a_process_can_map() {
        let gpu: Gpu = "software".parse().unwrap();
        assert_eq!(gpu.allocations(1), 1024);
        assert_eq!(gpu.allocations(64), 192);
        let given = "software,allocations=5000".parse::<Gpu>().unwrap();
        assert_eq!(given.allocations(64), 5000);
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, part) in [
            ("", "``"),
            ("cude", "`cude`"),
            ("cuda:x", "cuda=x"),
            ("cuda:-1", "cuda=-1"),
            ("cuda:0:1", "cuda=0:1"),
            ("cuda,cores=1", "`cores` is not a key of cuda"),
            ("software,sms=8", "`sms` is not a key of software"),
            ("cuda,sms=0", "sms=0"),
            (
                "cuda,launches=fast",
                "launches=fast cannot be: it must be gathered or single",
            ),
            (
                "software,contexts=one",
                "`contexts` is not a key of software",
            ),
            ("vfio", "vfio:0000:00:03.0"),
            ("vfio:", "\"\" is not a PCI address"),
            ("vfio:0", "\"0\" is not a PCI address"),
            (
                "vfio:0000:00:03.0,bar=6",
                "bar=6 cannot be: it must be a number from 0 to 5",
            ),
            ("vfio:0000:00:03.0,bar=x", "bar=x"),
            (
                "vfio:0000:00:03.0,cores=1",
                "`cores` is not a key of vfio: it knows bar,",
            ),
            ("vfio:0000:00:03.0,worker=process", "gives all of it"),
            ("cuda,bar=1", "`bar` is not a key of cuda"),
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
