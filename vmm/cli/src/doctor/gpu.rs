//! CUDA and Vulkan: asked by loading them. Neither is needed by the software back end.

use super::Finding;

/// Everything about GPUs.
pub fn findings() -> Vec<Finding> {
    vec![cuda(), vulkan(), software()]
}

fn software() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::yes(
        "software back end",
        format!("{cores} cores"),
        "kernels run on the CPU: the same protocol, the same modules",
    )
}

fn cuda() -> Finding {
    const NAME: &str = "CUDA";
    const MEANS: &str = "this build computes with the software back end in any case";
    const HOW: &str = "install the NVIDIA driver with its CUDA library (libcuda.so.1)";
    // SAFETY: asks whether the library can be loaded; whoever put it on the library path is trusted to have put NVIDIA's there.
    #[allow(unsafe_code)]
    let present = unsafe { cudarc::driver::sys::is_culib_present() };
    if !present {
        return Finding::no(NAME, "libcuda.so.1 is not installed", MEANS, HOW);
    }
    if let Err(e) = cudarc::driver::result::init() {
        return Finding::no(
            NAME,
            format!("cuInit failed: {e}"),
            MEANS,
            "nvidia-smi says more; load the kernel module (modprobe nvidia)",
        );
    }
    let count = cudarc::driver::result::device::get_count().unwrap_or(0);
    let names: Vec<String> = (0..count)
        .filter_map(|i| cudarc::driver::result::device::get(i).ok())
        .filter_map(|d| cudarc::driver::result::device::get_name(d).ok())
        .collect();
    if names.is_empty() {
        return Finding::no(
            NAME,
            "driver without a GPU",
            MEANS,
            "check that the GPU is there: lspci -d 10de:",
        );
    }
    Finding::yes(
        NAME,
        format!("{count}: {}", names.join(", ")),
        "GPUs that a CUDA back end could lend out",
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
