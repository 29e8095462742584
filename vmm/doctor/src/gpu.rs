//! Findings about CUDA and Vulkan, whose libraries are loaded for them. The software back end needs
//! neither.

use causeway_vulkan_import::DeviceReport;

use crate::check::Check;
use crate::cuda;

/// Checks CUDA, Vulkan and the software back end, and returns the findings.
pub fn findings() -> Vec<Check> {
    let mut findings = cuda::findings();
    findings.extend(vulkan());
    findings.push(software());
    findings
}

fn software() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Check::yes(
        "software back end",
        format!("{cores} cores"),
        "--gpu software executes GPU kernels on the CPU",
    )
}

/// Returns a finding for each Vulkan device. Each device is opened, because the loader alone does
/// not tell what a driver supports.
fn vulkan() -> Vec<Check> {
    const NAME: &str = "Vulkan";
    const MEANS: &str = "only guests that map memory of a GPU (--gpu cuda) need Vulkan";
    const HOW: &str = "install libvulkan1 and the GPU's Vulkan driver";
    let report = match causeway_vulkan_import::report() {
        Ok(report) => report,
        Err(error) => return vec![Check::no(NAME, error.to_string(), MEANS, HOW)],
    };
    if report.devices.is_empty() {
        let found = "the Vulkan loader has no driver for any GPU";
        return vec![Check::no(NAME, found, MEANS, HOW)];
    }
    let of_one = |device: DeviceReport| match device.visible_bytes {
        Ok(bytes) => Check::yes(
            NAME,
            format!("{}: CPUs can map {} MiB", device.name, bytes >> 20),
            "guests on --gpu cuda can map memory of this GPU",
        ),
        Err(error) => Check::no(NAME, error.to_string(), MEANS, HOW),
    };
    report.devices.into_iter().map(of_one).collect()
}
