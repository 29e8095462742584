//! CUDA and Vulkan: asked by loading them. Neither is needed by the software back end.

use super::{Finding, cuda};

/// Everything about GPUs.
pub fn findings() -> Vec<Finding> {
    let mut findings = cuda::findings();
    findings.extend([vulkan(), software()]);
    findings
}

fn software() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::yes(
        "software back end",
        format!("{cores} cores"),
        "kernels run on the CPU: the same protocol, the same modules",
    )
}

fn vulkan() -> Finding {
    const NAME: &str = "Vulkan";
    const MEANS: &str =
        "needed only to let guests see the memory of a discrete GPU by their own loads and stores";
    const HOW: &str = "install libvulkan1 and the GPU's Vulkan driver";
    // SAFETY: loads the system's Vulkan loader, which whoever set the library path is trusted with. The entry outlives its use.
    #[allow(unsafe_code)]
    let entry = match unsafe { ash::Entry::load() } {
        Ok(entry) => entry,
        Err(e) => return Finding::no(NAME, e.to_string(), MEANS, HOW),
    };
    // SAFETY: a query without arguments on a loaded entry.
    #[allow(unsafe_code)]
    let version = unsafe { entry.try_enumerate_instance_version() };
    match version {
        Ok(Some(version)) => {
            let (major, minor) = (
                ash::vk::api_version_major(version),
                ash::vk::api_version_minor(version),
            );
            Finding::yes(
                NAME,
                format!("loader of Vulkan {major}.{minor}"),
                "CPU-visible device memory may be possible, if the GPU's driver is there",
            )
        }
        Ok(None) => Finding::yes(
            NAME,
            "loader of Vulkan 1.0",
            "CPU-visible device memory may be possible",
        ),
        Err(e) => Finding::no(NAME, e.to_string(), MEANS, HOW),
    }
}
