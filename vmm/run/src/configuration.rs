//! The checked configuration of a run, made from its arguments.

use causeway_host_vfio::Address;
use causeway_publisher::MetricsPlaces;
use causeway_vmm::vm::{Boot, VCPUS_MAX, VMS_MAX};

use crate::arguments::RunArguments;
use crate::boot;
use crate::ending::Promise;
use crate::gpu::{Gpu, GpuError};
use crate::passthrough;
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, check_range};

/// Minimum RAM of a VM in MiB. With less, the embedded guests have no room for their images and
/// buffers.
const MEMORY_MIN_MIB: u64 = 32;
/// Maximum RAM of a VM in MiB: RAM and aperture must fit below 512 GiB, which bare guests map one
/// to one.
const MEMORY_MAX_MIB: u64 = 128 << 10;

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
    /// PCI devices that are passed through: a list for each VM, in the order of the VMs; empty if
    /// no device is passed through.
    pub devices: Vec<Vec<Address>>,
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
    /// Number of VMs, which share the back end.
    pub vms: u32,
    /// Time in seconds after which the run ends even if guests still run.
    pub timeout_s: u64,
    /// Back end and limits of each VM, in the syntax of `--gpu`.
    pub gpu: String,
    /// PCI devices to pass through: all to one VM, or one to each of several VMs.
    pub devices: Vec<Address>,
    /// Where to serve metrics to scrapers.
    pub metrics: MetricsPlaces,
}

impl RunSettings {
    /// Returns the settings of a run with one VM that boots `boot` on one virtual CPU. The other
    /// settings are the defaults of `causeway run`.
    pub fn new(guest: &str, boot: Boot) -> Self {
        Self {
            guest: guest.to_owned(),
            boot,
            has_program: false,
            vcpus: 1,
            memory_mib: 256,
            small_pages: false,
            vms: 1,
            timeout_s: 300,
            gpu: String::from("software"),
            devices: Vec::new(),
            metrics: MetricsPlaces::default(),
        }
    }

    /// Checks every value, and chooses a back end if `gpu` is `auto`.
    ///
    /// # Errors
    /// A usage failure that names the option, if a value is out of range or if values contradict
    /// each other.
    pub fn check(mut self) -> Result<Run, Failure> {
        check_range("--vcpus", self.vcpus.into(), 1..=VCPUS_MAX.into(), "")?;
        check_range("--vms", self.vms.into(), 1..=VMS_MAX.into(), "")?;
        let most_mib = MEMORY_MAX_MIB.min(host_memory_mib());
        check_range(
            "--memory",
            self.memory_mib,
            MEMORY_MIN_MIB..=most_mib,
            " MiB",
        )?;
        all_fit(self.vms, self.memory_mib, host_memory_mib())?;
        check_range("--timeout", self.timeout_s, 1..=365 * 24 * 3600, " s")?;
        let (gpu, chosen) = choose_gpu(&self.gpu)?;
        self.gpu = chosen;
        Ok(Run {
            promise: Promise::of(&self.boot, self.has_program),
            devices: passthrough::assign(&self.devices, self.vms, &gpu)?,
            gpu,
            settings: self,
        })
    }

    /// Returns the RAM of each VM in bytes.
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }
}

impl Run {
    /// Checks the arguments of `causeway run`, and reads the files that the guest boots.
    ///
    /// # Errors
    /// A usage failure if a value is invalid; an image failure if a file cannot be read or cannot
    /// boot.
    pub fn check(arguments: &RunArguments) -> Result<Self, Failure> {
        let (guest, boot) = boot::choose(arguments)?;
        let settings = RunSettings {
            has_program: arguments.program.is_some(),
            vcpus: arguments.vcpus,
            memory_mib: arguments.memory,
            small_pages: arguments.small_pages,
            vms: arguments.vms,
            timeout_s: arguments.timeout,
            gpu: arguments.gpu.clone(),
            devices: passthrough::parse(&arguments.vfio)?,
            metrics: arguments.metrics.places()?,
            ..RunSettings::new(&guest, boot)
        };
        settings.check()
    }
}

/// Returns the failure of a command whose back end `gpu_text` (a value of `--gpu`) is not available
/// on this host. `error` says why.
pub fn unavailable(
    gpu_text: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let asked = format!("--gpu {gpu_text} is not available");
    Failure::new(Code::Gpu, asked, error)
}

/// Parses `text`, the value of `--gpu`, and returns it parsed and as text. If the back end is
/// `auto`, this function chooses a back end, puts it into both results, and prints the choice.
///
/// # Errors
/// A usage failure if `text` is not a value of `--gpu`.
pub fn choose_gpu(text: &str) -> Result<(Gpu, String), Failure> {
    let mut found = None;
    let chosen = Gpu::choose(text, || {
        let gpus = causeway_cuda::identities();
        found = Some(match &gpus {
            Ok(gpus) if !gpus.is_empty() => gpus[0].name.clone(),
            Ok(_) => String::from("no GPU found"),
            Err(e) => e.to_string(),
        });
        gpus.is_ok_and(|gpus| !gpus.is_empty())
    });
    let gpu = chosen
        .parse()
        .map_err(|e: GpuError| Failure::usage(e.to_string()))?;
    if let Some(found) = found {
        terminal::say(&format!(
            "causeway: --gpu {text} selects {chosen} on this host ({found})"
        ));
    }
    Ok((gpu, chosen))
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
            (["--vcpus", "0"], "0 for --vcpus"),
            (["--vms", "65"], "65 for --vms"),
            (["--timeout", "0"], "0 for --timeout"),
            (["--guest", "nobody"], "nobody for --guest"),
        ] {
            let message = check(&words).expect_err(value).to_string();
            assert!(message.contains(value), "{message}");
        }
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
