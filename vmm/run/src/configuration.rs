//! The checked configuration of a run, made from its arguments.

use std::iter;
use std::path::PathBuf;

use causeway_host_vfio::Address;
use causeway_publisher::MetricsPlaces;
use causeway_sandbox::Sandbox;
use causeway_vmm::host::KvmKind;
use causeway_vmm::numa::{Node, Nodes};
use causeway_vmm::vm::{Boot, VCPUS_MAX, VMS_MAX};
use causeway_worker::MemoryGroups;

use crate::arguments::RunArguments;
use crate::auto::place_vms;
use crate::boot;
use crate::disk_slots::DiskFolder;
use crate::ending::Promise;
use crate::gpu::Gpu;
use crate::gpus;
use crate::host_limits::shortage_of;
use crate::numa::{self, Numa};
use crate::passthrough;
use crate::rooms;
use crate::sandbox;
use crate::worker_memory;
use causeway_terminal::{Failure, TimeLimit, check_range};

/// Minimum RAM of a VM in MiB. With less, the embedded guests have no room for their images and
/// buffers.
const MEMORY_MIN_MIB: u64 = 32;
/// Maximum RAM of a VM in MiB: RAM and aperture must fit below 512 GiB, which bare guests map one
/// to one.
const MEMORY_MAX_MIB: u64 = 128 << 10;
/// Time limit of embedded guests, all of which end by themselves sooner if nothing is wrong.
const EMBEDDED_LIMIT: TimeLimit = TimeLimit::seconds(300);
/// Number of virtual CPUs for each CPU of the host from which a run is reported as slow.
const VCPUS_PER_CPU_MANY: u32 = 4;

/// The checked settings of a run, which [`crate::execute`] carries out.
#[derive(Clone, Debug)]
pub struct Run {
    /// The settings, with the chosen back end in place of `auto` in `gpu`.
    pub settings: RunSettings,
    /// How the command reads the value that the guest stores to the exit port of the test device:
    /// as a verdict (0 means that the guest passed), or as the exit status of a program.
    pub promise: Promise,
    /// The parsed `--gpu`: the back end, and the limits of each VM on it.
    pub gpu: Gpu,
    /// The further GPUs of each VM, parsed, in the order of `further_gpus` of the settings.
    pub further: Vec<Gpu>,
    /// PCI devices that are passed through: a list for each VM, in the order of the VMs; empty if
    /// no device is passed through.
    pub devices: Vec<Vec<Address>>,
    /// The NUMA node of each VM, in the order of the VMs; empty if VMs are not placed.
    pub nodes: Vec<Node>,
}

/// The settings of a run, in the units of the command's options.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Name of the guest, as the report shows it.
    pub guest: String,
    /// Program or kernel that each VM boots.
    pub boot: Boot,
    /// Whether `--program` was given: the Linux guest then runs that program, and the command ends
    /// with its exit status.
    pub has_program: bool,
    /// Number of virtual CPUs of each VM.
    pub vcpus: u32,
    /// RAM of each VM in MiB.
    pub memory_mib: u64,
    /// Whether guest RAM uses 4 KiB pages, for comparison with 2 MiB pages.
    pub small_pages: bool,
    /// Whether guests exchange mail through the test device.
    pub mailboxes: bool,
    /// Number of VMs, which share the back end.
    pub vms: u32,
    /// Time in seconds after which the run ends even if guests still run, or no limit. The creation
    /// of the VMs counts.
    pub timeout_s: TimeLimit,
    /// Back end and limits of each VM, in the syntax of `--gpu`.
    pub gpu: String,
    /// Further GPUs of each VM, in the syntax of `--gpu`: others of the same back end.
    pub further_gpus: Vec<String>,
    /// The number of the one GPU that each VM has, in the order of the VMs; `None` if each VM has
    /// all GPUs.
    pub placement: Option<Vec<u32>>,
    /// On which NUMA nodes the VMs are; `None` leaves that to the host's kernel.
    pub numa: Option<Numa>,
    /// Whether worker processes confine themselves.
    pub sandbox: Sandbox,
    /// What bounds the host memory of worker processes.
    pub worker_groups: Option<MemoryGroups>,
    /// PCI devices to pass through: all to one VM, or one to each of several VMs.
    pub devices: Vec<Address>,
    /// Whether KVM's tracepoints count exits, too.
    pub tracepoints: bool,
    /// Where to serve metrics to scrapers.
    pub metrics: MetricsPlaces,
    /// Path of the control socket; `None` for no such socket.
    pub control: Option<PathBuf>,
    /// Folder of images that guests get while they run; `None` for no such disks.
    pub disk_folder: Option<DiskFolder>,
}

impl RunSettings {
    /// Returns the settings of a run with one VM that boots `boot` on one virtual CPU, without a
    /// time limit. The other settings are the defaults of `causeway run`.
    pub fn new(guest: &str, boot: Boot) -> Self {
        Self {
            guest: guest.to_owned(),
            boot,
            has_program: false,
            vcpus: 1,
            memory_mib: 256,
            small_pages: false,
            mailboxes: false,
            vms: 1,
            timeout_s: TimeLimit::NONE,
            gpu: String::from("software"),
            further_gpus: Vec::new(),
            placement: None,
            numa: None,
            sandbox: Sandbox::default(),
            worker_groups: None,
            devices: Vec::new(),
            tracepoints: false,
            metrics: MetricsPlaces::default(),
            control: None,
            disk_folder: None,
        }
    }

    /// Checks every value, and chooses a back end if `gpu` is `auto`.
    ///
    /// # Errors
    /// A usage failure that names the option, if a value is out of range or if values contradict
    /// each other.
    pub fn check(mut self) -> Result<Run, Failure> {
        self.check_ranges()?;
        let asked = iter::once(&self.gpu).chain(&self.further_gpus);
        let chosen = match self.placement {
            None => gpus::choose(asked)?,
            Some(_) => gpus::choose_for_run(asked)?,
        };
        let mut chosen = chosen.into_iter();
        let Some((gpu, text)) = chosen.next() else {
            return Err(Failure::usage("--gpu names no GPU: this host has none"));
        };
        sandbox::check(self.sandbox, &gpu, &text)?;
        if let Some(groups) = &self.worker_groups {
            worker_memory::check(groups, &gpu, &text)?;
        }
        self.gpu = text;
        let further;
        (further, self.further_gpus) = chosen.unzip();
        let numa = self.numa;
        let mut run = Run {
            promise: Promise::of(&self.boot, self.has_program),
            devices: passthrough::assign(&self.devices, self.vms, &gpu)?,
            gpu,
            further,
            nodes: Vec::new(),
            settings: self,
        };
        if let Some(numa) = numa {
            run.nodes = run.place(numa)?;
        }
        Ok(run)
    }

    fn check_ranges(&self) -> Result<(), Failure> {
        check_range("--vcpus", self.vcpus.into(), 1..=VCPUS_MAX.into(), "")?;
        check_range("--vms", self.vms.into(), 1..=VMS_MAX.into(), "")?;
        let most_mib = MEMORY_MAX_MIB.min(host_memory_mib());
        check_range(
            "--memory",
            self.memory_mib,
            MEMORY_MIN_MIB..=most_mib,
            " MiB",
        )?;
        all_fit(self.vms, self.memory_mib, host_memory_mib())
    }

    /// Returns the settings with all GPUs of the host, and one of them for each VM, if `gpu` is
    /// `cuda:auto`. Asks the driver only if nothing else is wrong.
    fn placed(self) -> Result<Self, Failure> {
        self.check_ranges()?;
        let asked: Vec<String> = iter::once(&self.gpu)
            .chain(&self.further_gpus)
            .cloned()
            .collect();
        let Some(placed) = place_vms(&asked, self.vms, rooms::ask)? else {
            return Ok(self);
        };
        let mut gpus = placed.gpus.into_iter();
        Ok(Self {
            gpu: gpus.next().unwrap_or_default(),
            further_gpus: gpus.collect(),
            placement: Some(placed.of_vms),
            ..self
        })
    }

    /// Returns a warning if the VMs boot a Linux kernel and the host's KVM interprets it. `kvm`
    /// finds out its kind, and is called for Linux kernels only, because that takes milliseconds.
    pub fn interpretation(&self, kvm: impl FnOnce() -> KvmKind) -> Option<&'static str> {
        let is_linux = matches!(self.boot, Boot::Linux(_));
        (is_linux && kvm() == KvmKind::Software).then_some(
            "KVM of this host works by software (PVM), which interprets a Linux kernel: the guest \
             may take many minutes to boot, or fail to; `causeway doctor` says more",
        )
    }

    /// Returns the RAM of each VM in bytes.
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }
}

impl Run {
    /// Finds the NUMA node of each VM.
    fn place(&self, numa: Numa) -> Result<Vec<Node>, Failure> {
        let first = |vm| self.gpus_of(vm).next().map(|(_, gpu, text)| (gpu, text));
        let gpus: Vec<_> = (0..self.settings.vms).filter_map(first).collect();
        let host = Nodes::of_host();
        numa::place(
            numa,
            &gpus,
            self.settings.memory_mib,
            &host,
            rooms::ask_addresses,
        )
    }

    /// Returns the GPUs of the run, in the order of their numbers, each with its text in the syntax
    /// of `--gpu`. There is at least one.
    pub fn gpus(&self) -> impl Iterator<Item = (&Gpu, &str)> {
        let first = (&self.gpu, &*self.settings.gpu);
        let texts = self.settings.further_gpus.iter().map(|text| &**text);
        iter::once(first).chain(self.further.iter().zip(texts))
    }

    /// Returns the GPUs of VM number `vm`, counted from 0, in its order: each with its number in
    /// the run, and its text.
    pub fn gpus_of(&self, vm: u32) -> impl Iterator<Item = (u32, &Gpu, &str)> {
        let placement = self.settings.placement.as_ref();
        let only = placement.and_then(|of_vms| of_vms.get(vm as usize).copied());
        let all = (0..).zip(self.gpus());
        let all = all.map(|(number, (gpu, text))| (number, gpu, text));
        all.filter(move |(number, ..)| only.is_none_or(|only| only == *number))
    }

    /// Returns the NUMA node of VM number `vm`, counted from 0; `None` if VMs are not placed.
    pub fn node_of(&self, vm: u32) -> Option<&Node> {
        self.nodes.get(vm as usize)
    }

    /// Returns the NUMA node of the VMs that have GPU number `gpu`, which is the same for all of
    /// them; `None` if VMs are not placed, or none has the GPU.
    pub fn node_of_users(&self, gpu: u32) -> Option<&Node> {
        let has = |vm: &u32| self.gpus_of(*vm).any(|(number, ..)| number == gpu);
        let user = (0..self.settings.vms).find(has)?;
        self.node_of(user)
    }

    /// Returns the number of sessions of the run: one for each VM and GPU of it. They share the
    /// descriptors and mappings that a process may have.
    pub fn sessions(&self) -> u32 {
        // At most 64 VMs with 8 GPUs each.
        let of_each = match self.settings.placement {
            Some(_) => 1,
            None => 1 + self.further.len() as u32,
        };
        self.settings.vms * of_each
    }

    /// Returns a warning if the VMs have many more virtual CPUs than the `cpus` CPUs of the host,
    /// or than their NUMA node has.
    pub fn crowding(&self, cpus: u32) -> Option<String> {
        let RunSettings { vms, vcpus, .. } = self.settings;
        let crowded = |vms: u32, cpus: u32, of: &str| {
            let vcpus = vms.saturating_mul(vcpus);
            (vcpus >= cpus.saturating_mul(VCPUS_PER_CPU_MANY)).then(|| {
                format!(
                    "{vcpus} virtual CPUs share {cpus} CPUs of {of}, so guests run slowly, above \
                     all those whose virtual CPUs wait for each other: choose fewer with --vms or \
                     --vcpus"
                )
            })
        };
        let mut nodes = numa::by_node(&self.nodes).into_iter();
        let on_a_node = nodes.find_map(|(node, vms)| {
            let of = format!("NUMA node {}", node.number());
            crowded(vms.len() as u32, node.cpus(), &of)
        });
        on_a_node.or_else(|| crowded(vms, cpus, "this host"))
    }

    /// Returns a warning if all sessions that use all of their limits could need more file
    /// descriptors or mappings than this process may have.
    pub fn shortage(&self) -> Option<String> {
        if self.further.is_empty() {
            return self.gpu.shortage(self.settings.vms);
        }
        let sessions = self.sessions();
        let quotas = (0..self.settings.vms).flat_map(|vm| self.gpus_of(vm));
        let quotas: Vec<_> = quotas.map(|(_, gpu, _)| gpu.quota(sessions)).collect();
        shortage_of(&quotas)
    }

    /// Checks the arguments of `causeway run`, and reads the files that the guest boots.
    ///
    /// # Errors
    /// A usage failure if a value is invalid; an image failure if a file cannot be read or cannot
    /// boot.
    pub fn check(arguments: &RunArguments) -> Result<Self, Failure> {
        let (guest, boot) = boot::choose(arguments)?;
        let usual = match arguments.kernel {
            None => EMBEDDED_LIMIT,
            Some(_) => TimeLimit::NONE,
        };
        let mut gpus = arguments.gpu.iter().cloned();
        let others = match &boot {
            Boot::Bare { .. } => 0,
            Boot::Linux(linux) => linux.disks.len(),
        };
        let folder = arguments.disk_folder.as_deref();
        let settings = RunSettings {
            disk_folder: folder
                .map(|text| DiskFolder::parse(text, others))
                .transpose()?,
            has_program: arguments.has_program(),
            vcpus: arguments.vcpus,
            memory_mib: arguments.memory,
            small_pages: arguments.small_pages,
            mailboxes: arguments.kernel.is_none() || arguments.mailboxes,
            vms: arguments.vms,
            timeout_s: arguments.timeout.unwrap_or(usual),
            gpu: gpus.next().unwrap_or_default(),
            further_gpus: gpus.collect(),
            numa: arguments.numa,
            sandbox: arguments.sandbox.sandbox,
            worker_groups: arguments.worker_memory.groups()?,
            devices: passthrough::parse(&arguments.vfio)?,
            tracepoints: arguments.tracepoints,
            metrics: arguments.metrics.places()?,
            control: arguments.control.clone(),
            ..RunSettings::new(&guest, boot)
        };
        settings.placed()?.check()
    }
}

/// Refuses VMs that together have more RAM than the host.
fn all_fit(vms: u32, memory_mib: u64, host_mib: u64) -> Result<(), Failure> {
    let all_mib = memory_mib.saturating_mul(vms.into());
    if all_mib <= host_mib {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--vms {vms} with --memory {memory_mib} needs {all_mib} MiB of RAM, but this host has \
         {host_mib} MiB: choose fewer or smaller VMs"
    )))
}

/// Returns the RAM of the host in MiB, or `u64::MAX` if the kernel does not report it.
fn host_memory_mib() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::tests::parse;

    fn check(words: &[&str]) -> Result<Run, Failure> {
        Run::check(&parse(words))
    }

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        for (words, value) in [
            (["--memory", "0"], "0 for --memory"),
            (["--memory", "99999999999"], "99999999999 for --memory"),
            (["--guest", "nobody"], "nobody for --guest"),
        ] {
            let message = check(&words).expect_err(value).to_string();
            assert!(message.contains(value), "{message}");
        }
        let settings = |vcpus, vms| RunSettings {
            vcpus,
            vms,
            ..check(&[]).unwrap().settings
        };
        let message = settings(0, 1).check().unwrap_err().to_string();
        assert!(
            message.contains("0 for --vcpus: choose 1 to 64"),
            "{message}"
        );
        let message = settings(1, 65).check().unwrap_err().to_string();
        assert!(
            message.contains("65 for --vms: choose 1 to 64"),
            "{message}"
        );
    }

    #[test]
    fn memory_is_in_mib_or_has_a_suffix() {
        for (text, mib) in [("64", 64), ("64M", 64), ("1G", 1024), ("1GiB", 1024)] {
            let run = check(&["--memory", text]).unwrap();
            assert_eq!(run.settings.memory_mib, mib, "{text}");
        }
    }

    #[test]
    fn only_embedded_guests_have_a_time_limit_unless_one_is_asked_for() {
        let limit = |words: &[&str]| check(words).unwrap().settings.timeout_s;
        assert_eq!(limit(&[]), TimeLimit::seconds(300));
        assert_eq!(limit(&["--timeout", "7"]), TimeLimit::seconds(7));
        for none in ["0", "none"] {
            assert_eq!(limit(&["--timeout", none]), TimeLimit::NONE);
        }
        let own = std::env::current_exe().unwrap();
        let words = ["--kernel", own.to_str().unwrap(), "--boot", "bare"];
        assert_eq!(limit(&words), TimeLimit::NONE);
        let words = [&words[..], &["--timeout", "7"]].concat();
        assert_eq!(limit(&words), TimeLimit::seconds(7));
    }

    #[test]
    fn a_bare_guest_is_never_interpreted() {
        let settings = check(&[]).unwrap().settings;
        let kvm = || panic!("nobody needs to know");
        assert_eq!(settings.interpretation(kvm), None);
    }

    #[test]
    fn many_virtual_cpus_for_each_cpu_are_warned_of() {
        let warning = |vms: &str, vcpus: &str, cpus| {
            let run = check(&["--vms", vms, "--vcpus", vcpus, "--memory", "32"]);
            run.unwrap().crowding(cpus)
        };
        assert_eq!(warning("1", "7", 2), None);
        assert_eq!(warning("2", "4", 16), None);
        let text = warning("2", "4", 2).unwrap();
        let words = "8 virtual CPUs share 2 CPUs of this host";
        assert!(text.starts_with(words), "{text}");
    }

    #[test]
    fn many_virtual_cpus_for_each_cpu_of_a_node_are_warned_of() {
        let sysfs = numa::tests::Sysfs::new("crowding");
        let mut run = check(&["--vms", "3", "--vcpus", "2", "--memory", "32"]).unwrap();
        let on = |gpus: [&str; 3]| sysfs.nodes("gpu", &gpus).unwrap();
        // Node 1 has one CPU, and 4 virtual CPUs on it.
        run.nodes = on(["cuda:0", "cuda:1", "cuda:0"]);
        let text = run.crowding(64).unwrap();
        let words = "4 virtual CPUs share 1 CPUs of NUMA node 1";
        assert!(text.starts_with(words), "{text}");
        run.nodes = on(["cuda:1", "cuda:0", "cuda:1"]);
        assert_eq!(run.crowding(64), None);
    }

    #[test]
    fn vms_that_do_not_fit_together_are_refused_with_their_sum() {
        assert!(all_fit(4, 256, 1024).is_ok());
        let message = all_fit(5, 256, 1024).unwrap_err().to_string();
        assert!(message.contains("1280 MiB"), "{message}");
        assert!(all_fit(64, u64::MAX, 1024).is_err());
    }

    #[test]
    fn defaults_are_valid() {
        let run = check(&[]).unwrap().settings;
        assert_eq!((run.guest.as_str(), run.vcpus, run.vms), ("compute", 1, 1));
    }
}
