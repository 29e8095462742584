//! The `--gpu` argument: a back end, with its own keys, and the limits of each VM on it.

use std::str::FromStr;

use causeway_backend_options::{Key, OptionError, Options as _, help as key_help, set};
use causeway_mediator::{Compute, Quota};

use crate::compute::ComputeLists;
use crate::host_limits::HostLimits;

/// Allocations of a VM at most, unless `allocations=` says otherwise.
const ALLOCATIONS_PER_VM: u64 = 1024;
/// Allocations of a VM at least, whatever the host's limits are.
const ALLOCATIONS_MIN: u64 = 64;

/// The keys that every back end has.
const COMMON_KEYS: &[Key<Limits>] = &[
    Key {
        name: "memory",
        values: "SIZE",
        about: "GPU memory of each VM, in MiB, or with suffix M, G or T; default: 4 GiB on cuda, \
                else 1 GiB",
        set: |limits, value| {
            limits.memory_bytes = Some(value.mebibytes(Quota::MEMORY_MIB)?);
            Ok(())
        },
    },
    Key {
        name: "allocations",
        values: "N",
        about: "allocations of each VM; default: 1024, or fewer if the host's limits on file \
                descriptors and mappings allow all VMs together fewer",
        set: |limits, value| {
            limits.allocations = Some(value.number(Quota::ALLOCATIONS)?);
            Ok(())
        },
    },
    Key {
        name: "queues",
        values: "N",
        about: "command buffers of each VM; default: 64",
        set: |limits, value| {
            limits.quota.command_buffers = value.number(Quota::COMMAND_BUFFERS)?.into();
            Ok(())
        },
    },
    Key {
        name: "weight",
        values: "N[:N...]",
        about: "compute time of each VM in proportion to that of others with work, 1 to 10000; as \
                in 1:2:4, numbers of VM 0, VM 1 and all others; not vfio, nor cuda with \
                isolation=none; default: what the GPU, or the scheduler of the host, gives it",
        set: |limits, value| limits.compute.set_weights(value),
    },
    Key {
        name: "share",
        values: "PERCENT[:PERCENT...]",
        about: "most compute time of each VM, even if no other VM has work; where weight= works; \
                default: 100",
        set: |limits, value| limits.compute.set_shares(value),
    },
    Key {
        name: "timeout",
        values: "MS",
        about: "most time of a kernel or a copy of each VM, in milliseconds, 10 to 3600000: a VM \
                whose work takes longer loses its device until it resets it; where weight= \
                works; default: no limit",
        set: |limits, value| {
            limits.quota.work_ms = value.number(Quota::WORK_MS)?.into();
            Ok(())
        },
    },
    Key {
        name: "requests",
        values: "N",
        about: "control messages of each VM in a second, 1 to 1000000: more wait, and the VM's \
                virtual CPU with them; default: no limit",
        set: |limits, value| {
            limits.quota.requests = value.number(Quota::REQUESTS)?.into();
            Ok(())
        },
    },
    Key {
        name: "isolation",
        values: "none|process",
        about: "whether a VM's session runs in the VMM's process or in a process of its own; \
                default: process on cuda, else none",
        set: |limits, value| {
            let choices = [Isolation::None, Isolation::Process].map(|it| (it.name(), it));
            limits.isolation = Some(value.choice(&choices)?);
            Ok(())
        },
    },
];

/// Values of the keys that every back end has.
#[derive(Debug, Default)]
struct Limits {
    memory_bytes: Option<u64>,
    allocations: Option<u32>,
    isolation: Option<Isolation>,
    compute: ComputeLists,
    /// Limits whose default depends on nothing else.
    quota: Quota,
}

/// A parsed value of `--gpu`: the back end, and the limits of each VM on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The back end, with the options that only it has.
    pub kind: Kind,
    /// GPU memory that each VM may allocate, in bytes.
    pub memory_bytes: u64,
    /// Whether the user gave `memory=`. If so, a vfio device with less memory is an error;
    /// otherwise, its memory becomes the limit.
    pub memory_given: bool,
    /// Allocations of each VM, if typed.
    allocations: Option<u32>,
    /// The other limits of each VM.
    quota: Quota,
    compute: ComputeLists,
    /// Where the session of each VM runs: in the VMM's process or in a worker process.
    pub isolation: Isolation,
}

/// The back ends that `--gpu` can name, each with its own options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Executes kernels on the processor cores of the host.
    Software(causeway_software::Options),
    /// Uses an NVIDIA GPU through its CUDA driver.
    Cuda(causeway_cuda::Options),
    /// Gives each VM a partition of the memory of a PCI device that is bound to vfio-pci.
    Vfio(causeway_vfio_backend::Options),
}

impl Kind {
    fn parse(
        back_end: &str,
        device: Option<&str>,
        pairs: &[(&str, &str)],
    ) -> Result<Self, GpuError> {
        let kind = match back_end {
            "software" => causeway_software::Options::parse(device, pairs).map(Self::Software),
            "cuda" => causeway_cuda::Options::parse(device, pairs).map(Self::Cuda),
            "vfio" => causeway_vfio_backend::Options::parse(device, pairs).map(Self::Vfio),
            _ => return Err(GpuError::BackEnd(back_end.to_owned())),
        };
        kind.map_err(|error| error.with_known(COMMON_KEYS).into())
    }

    /// Returns the default memory of a VM in bytes and where its session runs by default. A VM on a
    /// GPU has a process of its own, because a fault of a kernel poisons the process that holds the
    /// context.
    const fn defaults(self) -> (u64, Isolation) {
        match self {
            Self::Software(_) | Self::Vfio(_) => (1 << 30, Isolation::None),
            Self::Cuda(_) => (4 << 30, Isolation::Process),
        }
    }
}

/// Values of `isolation=`: where the session of a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// In the VMM's process.
    None,
    /// In a worker process for this VM alone.
    Process,
}

impl Isolation {
    /// Returns the text that stands for this variant in `--gpu` and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
        }
    }
}

impl Gpu {
    /// Returns the limits of each VM if there are `vms` VMs, or sessions of VMs with several GPUs,
    /// without its part of the device's time ([`Self::compute`]).
    pub fn quota(&self, vms: u32) -> Quota {
        Quota {
            memory_bytes: self.memory_bytes,
            allocations: self.allocations(vms, HostLimits::read()),
            ..self.quota
        }
    }

    /// Returns the number of the device on its back end: that after the colon of `--gpu cuda:N` or
    /// `software:N`, else 0.
    pub const fn device(&self) -> u32 {
        match self.kind {
            Kind::Software(options) => options.device,
            Kind::Cuda(options) => options.device,
            Kind::Vfio(_) => 0,
        }
    }

    /// Returns whether no other GPU shall be a peer of this one (key `peers`).
    pub const fn is_apart(&self) -> bool {
        match self.kind {
            Kind::Software(options) => options.apart,
            Kind::Cuda(options) => options.apart,
            Kind::Vfio(_) => true,
        }
    }

    /// Returns the part of the device's time that VM number `vm` gets, counted from 0.
    pub fn compute(&self, vm: u32) -> Compute {
        self.compute.of(vm)
    }

    /// Returns the allocations of each of `vms` VMs. By default, VMs share the descriptors and
    /// mappings that one process can have.
    fn allocations(&self, vms: u32, host: HostLimits) -> u64 {
        self.allocations.map(u64::from).unwrap_or_else(|| {
            let share = host.allocations(vms, self.quota.command_buffers);
            share.clamp(ALLOCATIONS_MIN, ALLOCATIONS_PER_VM)
        })
    }

    /// Returns a warning if `vms` VMs that use all of their limits could need more file descriptors
    /// or mappings than this process may have.
    pub fn shortage(&self, vms: u32) -> Option<String> {
        HostLimits::read().shortage(vms, &self.quota(vms))
    }

    /// Returns `text`, a value of `--gpu`, with a back end in place of `auto`: `cuda` if `has_cuda`
    /// returns true, else `software`. A text without `auto` is returned unchanged, and `has_cuda`
    /// is not called.
    pub fn choose(text: &str, has_cuda: impl FnOnce() -> bool) -> String {
        let (back_end, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        if back_end != "auto" {
            return text.to_owned();
        }
        let chosen = if has_cuda() { "cuda" } else { "software" };
        format!("{chosen}{rest}")
    }
}

/// Returns the long help of `--gpu`, which lists the keys of all back ends.
pub fn help() -> String {
    format!(
        "Back end, and limits of each VM on it: software, cuda, cuda:N (GPU number N), vfio:BDF \
         (memory of a PCI device, docs/vfio.md), or auto (cuda where there is a GPU, else \
         software). Keys follow after commas, for example cuda:1,memory=2GiB.\n\nGiven again, \
         each VM has several GPUs (docs/several-gpus.md), such as --gpu cuda:0 --gpu cuda:1, or \
         --gpu cuda:all; software:0, software:1 and so on are devices without a GPU. With \
         cuda:auto, each VM of run has one GPU of the host, where there is room.\n\nKeys of every \
         back end:{}\nKeys of software:{}\nKeys of cuda (docs/cuda.md):{}\nKeys of vfio:{}\n",
        key_help(COMMON_KEYS),
        key_help(causeway_software::Options::KEYS),
        key_help(causeway_cuda::Options::KEYS),
        key_help(causeway_vfio_backend::Options::KEYS),
    )
}

/// Why a value of `--gpu` is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The text before the first colon or comma names no back end.
    #[error(
        "unknown back end `{0}` for --gpu: choose software, cuda, cuda:N for GPU number N, \
         vfio:BDF for the PCI device with this address, or auto"
    )]
    BackEnd(String),
    /// A word between the commas is not of the form `key=value`.
    #[error("the key `{0}` of --gpu has no value: write key=value, such as memory=1GiB")]
    Form(String),
    /// A key is given more than once.
    #[error("--gpu has the key `{0}` twice: give each key once")]
    Twice(String),
    /// A key of the back end, its value, or the device after the colon is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// `isolation=process` is given for the VFIO back end, which runs in the VMM's process only.
    #[error(
        "invalid value process for --gpu isolation: back end vfio cannot run in a worker process, \
         because the file descriptor of a PCI device gives access to all of the device's memory; \
         leave isolation out"
    )]
    VfioInProcess,
    /// `weight=`, `share=` or `timeout=` is given where nobody can hold work back or end it.
    #[error(
        "--gpu weight, share and timeout of a GPU need a worker process for each VM: leave \
         isolation=none out, or these keys; back end vfio has none of them"
    )]
    NoWorker,
}

impl FromStr for Gpu {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let (back_end, words) = text
            .split_once(',')
            .map_or((text, None), |(b, w)| (b, Some(w)));
        let (back_end, device) = back_end
            .split_once(':')
            .map_or((back_end, None), |(b, d)| (b, Some(d)));
        let mut limits = Limits::default();
        let (mut seen, mut pairs) = (Vec::new(), Vec::new());
        for word in words.into_iter().flat_map(|words| words.split(',')) {
            let pair = word.split_once('=');
            let (key, value) = pair.ok_or_else(|| GpuError::Form(word.to_owned()))?;
            if seen.contains(&key) {
                return Err(GpuError::Twice(key.to_owned()));
            }
            seen.push(key);
            if !set(COMMON_KEYS, &mut limits, key, value)? {
                pairs.push((key, value));
            }
        }
        let kind = Kind::parse(back_end, device, &pairs)?;
        let (memory_bytes, isolation) = kind.defaults();
        let isolation = limits.isolation.unwrap_or(isolation);
        if matches!(kind, Kind::Vfio(_)) && isolation == Isolation::Process {
            return Err(GpuError::VfioInProcess);
        }
        let controls_work = matches!(kind, Kind::Software(_)) || isolation == Isolation::Process;
        let needs_control = !limits.compute.is_empty() || limits.quota.work_ms != Quota::UNLIMITED;
        if needs_control && !controls_work {
            return Err(GpuError::NoWorker);
        }
        Ok(Self {
            kind,
            memory_bytes: limits.memory_bytes.unwrap_or(memory_bytes),
            memory_given: limits.memory_bytes.is_some(),
            allocations: limits.allocations,
            quota: limits.quota,
            compute: limits.compute,
            isolation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let options = causeway_cuda::Options {
            device: 3,
            sms: Some(32),
            single_launches: false,
            context_per_space: false,
            fabric: causeway_cuda::Fabric::default(),
            apart: false,
        };
        assert_eq!(gpu.kind, Kind::Cuda(options));
        assert_eq!(
            (gpu.isolation, gpu.memory_bytes),
            (Isolation::Process, 4 << 30)
        );
        let inside: Gpu = "cuda,isolation=none,launches=single,contexts=each"
            .parse()
            .unwrap();
        assert_eq!(inside.isolation, Isolation::None);
        let Kind::Cuda(options) = inside.kind else {
            unreachable!("the text says cuda")
        };
        assert!(options.single_launches && options.context_per_space);
    }

    #[test]
    fn a_device_has_colons_and_perhaps_a_bar() {
        let gpu: Gpu = "vfio:0000:00:03.0,bar=2,memory=64MiB".parse().unwrap();
        let address = "0000:00:03.0".parse().unwrap();
        let options = |bar| Kind::Vfio(causeway_vfio_backend::Options { address, bar });
        assert_eq!(gpu.kind, options(Some(2)));
        assert_eq!(
            (gpu.isolation, gpu.memory_bytes),
            (Isolation::None, 64 << 20)
        );
        let short: Gpu = "vfio:00:03.0,isolation=none".parse().unwrap();
        assert_eq!(short.kind, options(None));
    }

    #[test]
    fn many_vms_share_what_a_process_can_map() {
        let gpu: Gpu = "software,cores=2".parse().unwrap();
        let usual = HostLimits::new(1 << 20, 65_530);
        assert_eq!(gpu.allocations(1, usual), 1024);
        assert_eq!(gpu.allocations(64, usual), 192);
        let few = HostLimits::new(1024, 65_530);
        assert_eq!(gpu.allocations(1, few), 1024 - 64 - 192);
        assert_eq!(gpu.allocations(64, few), 64);
        let given = "software,allocations=5000".parse::<Gpu>().unwrap();
        assert_eq!(given.allocations(64, few), 5000);
    }

    #[test]
    fn vms_get_their_weights_and_shares_in_order() {
        let compute = |weight, share_percent| Compute {
            weight: Some(weight),
            share_percent,
        };
        let gpu: Gpu = "software,weight=1:20,share=100:30:40".parse().unwrap();
        assert_eq!(gpu.compute(0), compute(1, None));
        assert_eq!(gpu.compute(1), compute(20, Some(30)));
        assert_eq!(gpu.compute(7), compute(20, Some(40)));
        let usual: Gpu = "software".parse().unwrap();
        assert_eq!(usual.compute(3), Compute::DEFAULT);
    }

    #[test]
    fn limits_beyond_those_of_the_host_are_warned_of() {
        let greedy: Gpu = "software,allocations=65536,queues=256".parse().unwrap();
        let modest: Gpu = "software,allocations=1,queues=1".parse().unwrap();
        // A process has at most 2^31 mappings.
        assert!(greedy.shortage(1 << 20).is_some());
        assert_eq!(modest.shortage(1), None);
    }

    #[test]
    fn the_help_has_the_keys_of_every_back_end() {
        let help = help();
        for key in [
            "memory=SIZE",
            "isolation=none|process",
            "cores=N",
            "engine=interpreter|compiled",
            "sms=N",
            "launches=gathered|single",
            "contexts=one|each",
            "fabric=no|export|import|both",
            "peers=yes|no",
            "bar=N",
        ] {
            assert!(help.contains(key), "{key}: {help}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, part) in [
            ("", "unknown back end ``"),
            ("cude", "unknown back end `cude`"),
            (
                "software:64",
                "invalid value 64 for --gpu software: 0 to 63",
            ),
            ("cuda:x", "invalid value x for --gpu cuda: 0 to 255"),
            ("cuda:-1", "invalid value -1 for --gpu cuda: 0 to 255"),
            ("cuda:0:1", "invalid value 0:1 for --gpu cuda: 0 to 255"),
            ("cuda,cores=1", "unknown key `cores` for --gpu cuda"),
            ("software,sms=8", "unknown key `sms` for --gpu software"),
            (
                "software,engine=fast",
                "invalid value fast for --gpu engine: interpreter or compiled",
            ),
            (
                "cuda,engine=compiled",
                "unknown key `engine` for --gpu cuda",
            ),
            ("cuda,sms=0", "invalid value 0 for --gpu sms: 1 to 1024"),
            (
                "cuda,launches=fast",
                "invalid value fast for --gpu launches: gathered or single",
            ),
            (
                "cuda,fabric=yes",
                "invalid value yes for --gpu fabric: no or export or import or both",
            ),
            (
                "software,contexts=one",
                "unknown key `contexts` for --gpu software",
            ),
            ("vfio", "a PCI device such as vfio:0000:00:03.0"),
            ("vfio:", "invalid value `` for --gpu vfio: a PCI device"),
            ("vfio:0", "invalid value 0 for --gpu vfio: a PCI device"),
            (
                "vfio:0000:00:03.0,bar=6",
                "invalid value 6 for --gpu bar: 0 to 5",
            ),
            ("vfio:0000:00:03.0,bar=x", "invalid value x for --gpu bar"),
            (
                "vfio:0000:00:03.0,cores=1",
                "unknown key `cores` for --gpu vfio: its keys are bar, memory, allocations, \
                 queues, weight, share, timeout, requests, isolation",
            ),
            ("vfio:0000:00:03.0,isolation=process", "gives access to all"),
            (
                "software:1,peers=maybe",
                "invalid value maybe for --gpu peers: yes or no",
            ),
            ("cuda,peers=0", "invalid value 0 for --gpu peers: yes or no"),
            (
                "vfio:0000:00:03.0,peers=no",
                "unknown key `peers` for --gpu vfio",
            ),
            ("cuda,bar=1", "unknown key `bar` for --gpu cuda"),
            ("software,speed=11", "`speed`"),
            ("software,memory", "the key `memory` of --gpu has no value"),
            ("software,", "the key `` of --gpu has no value"),
            (
                "software,memory=0",
                "invalid value 0 for --gpu memory: 1 to",
            ),
            ("software,memory=-1", "invalid value -1 for --gpu memory"),
            ("software,memory=99999999999999999999", "invalid value 9999"),
            ("software,memory=20000000GiB", "invalid value 20000000GiB"),
            ("software,queues=257", "invalid value 257 for --gpu queues"),
            (
                "software,isolation=vm",
                "invalid value vm for --gpu isolation: none or process",
            ),
            (
                "software,weight=0",
                "invalid value 0 for --gpu weight: 1 to",
            ),
            (
                "software,weight=1::2",
                "invalid value 1::2 for --gpu weight",
            ),
            (
                "software,share=101",
                "invalid value 101 for --gpu share: 1 to",
            ),
            (
                "software,requests=0",
                "invalid value 0 for --gpu requests: 1 to",
            ),
            (
                "software,timeout=9",
                "invalid value 9 for --gpu timeout: 10 to",
            ),
            (
                "cuda,timeout=1000,isolation=none",
                "need a worker process for each VM",
            ),
            (
                "cuda,weight=2,isolation=none",
                "need a worker process for each VM",
            ),
            ("vfio:00:03.0,share=5", "back end vfio has none of them"),
            ("software,queues=1,queues=2", "the key `queues` twice"),
        ] {
            let message = text.parse::<Gpu>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
