//! Checked values, made of what was typed.

use std::path::PathBuf;
use std::time::Duration;

use causeway_host_vfio::Address;
use causeway_vmm::vm::{Boot, VCPUS_MAX, VMS_MAX};

use crate::arguments::RunArguments;
use crate::boot;
use crate::ending::Promise;
use crate::gpu::{Gpu, GpuError};
use crate::passthrough;
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure, check_range};

/// Least RAM of a VM in MiB: below it the built-in guests have no room for their images and buffers.
const MEMORY_MIN_MIB: u64 = 32;
/// Most RAM of a VM in MiB: RAM and aperture must fit below 512 GiB, which bare guests map one to one.
const MEMORY_MAX_MIB: u64 = 128 << 10;

/// A checked `run`.
pub struct Run {
    /// Name of the guest, for the report.
    pub guest: String,
    /// What it boots.
    pub boot: Boot,
    /// What it means when it says how it ended.
    pub promise: Promise,
    /// Virtual CPUs of each VM.
    pub vcpus: u32,
    /// RAM of each VM in bytes.
    pub memory_bytes: u64,
    /// Whether RAM is to have 2 MiB pages.
    pub large_pages: bool,
    /// Number of VMs.
    pub vms: u32,
    /// When to give up.
    pub timeout: Duration,
    /// Back end and limits.
    pub gpu: Gpu,
    /// The same as it was typed, for worker processes, with a back end in place of `auto`.
    pub gpu_text: String,
    /// Devices of each VM that are passed through to it; empty if none are.
    pub devices: Vec<Vec<Address>>,
    /// Where scrapers are answered, if they are.
    pub metrics_socket: Option<PathBuf>,
}

impl Run {
    /// The GPU that was asked for is not to be had.
    pub fn unavailable(&self, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
        unavailable(&self.gpu_text, error)
    }

    /// Checks every argument, and reads what is to boot.
    pub fn check(arguments: &RunArguments) -> Result<Self, Failure> {
        check_range("--vcpus", arguments.vcpus.into(), 1..=VCPUS_MAX.into())?;
        check_range("--vms", arguments.vms.into(), 1..=VMS_MAX.into())?;
        let most_mib = MEMORY_MAX_MIB.min(host_memory_mib());
        check_range("--memory", arguments.memory, MEMORY_MIN_MIB..=most_mib)?;
        all_fit(arguments.vms, arguments.memory, host_memory_mib())?;
        check_range("--timeout", arguments.timeout, 1..=365 * 24 * 3600)?;
        let (gpu, gpu_text) = choose_gpu(&arguments.gpu)?;
        let (guest, boot) = boot::choose(arguments)?;
        let devices = passthrough::choose(arguments, &gpu)?;
        Ok(Self {
            guest,
            promise: Promise::of(&boot, arguments.program.is_some()),
            boot,
            vcpus: arguments.vcpus,
            memory_bytes: arguments.memory << 20,
            large_pages: !arguments.small_pages,
            vms: arguments.vms,
            timeout: Duration::from_secs(arguments.timeout),
            gpu,
            gpu_text,
            devices,
            metrics_socket: arguments.metrics_socket.clone(),
        })
    }
}

/// The GPU that `--gpu` asked for is not to be had.
pub fn unavailable(
    gpu_text: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let asked = format!("--gpu {gpu_text} is not available");
    Failure::new(Code::Gpu, asked, error)
}

/// What `--gpu` says, with a back end in place of `auto`; the person is told which.
pub fn choose_gpu(text: &str) -> Result<(Gpu, String), Failure> {
    let mut found = None;
    let chosen = Gpu::choose(text, || {
        let gpus = causeway_cuda::identities();
        found = Some(match &gpus {
            Ok(gpus) if !gpus.is_empty() => gpus[0].name.clone(),
            Ok(_) => String::from("there is no GPU"),
            Err(e) => e.to_string(),
        });
        gpus.is_ok_and(|gpus| !gpus.is_empty())
    });
    let gpu = chosen
        .parse()
        .map_err(|e: GpuError| Failure::usage(e.to_string()))?;
    if let Some(found) = found {
        terminal::say(&format!(
            "causeway: --gpu {text} is {chosen} here ({found})"
        ));
    }
    Ok((gpu, chosen))
}

/// Each VM fits into the host; all of them together must, too.
fn all_fit(vms: u32, memory_mib: u64, host_mib: u64) -> Result<(), Failure> {
    let all_mib = memory_mib.saturating_mul(vms.into());
    if all_mib <= host_mib {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--vms {vms} with --memory {memory_mib} cannot be: {all_mib} MiB of RAM in all, and this host has {host_mib}: choose fewer or smaller VMs"
    )))
}

/// RAM of the host in MiB, or no limit where the kernel does not say.
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
            (["--memory", "0"], "--memory 0"),
            (["--memory", "99999999999"], "--memory 99999999999"),
            (["--vcpus", "0"], "--vcpus 0"),
            (["--vms", "65"], "--vms 65"),
            (["--timeout", "0"], "--timeout 0"),
            (["--guest", "nobody"], "`nobody`"),
        ] {
            let message = check(&words).err().expect(value).to_string();
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
        let run = check(&[]).unwrap();
        assert_eq!((run.guest.as_str(), run.vcpus, run.vms), ("compute", 1, 1));
    }
}
