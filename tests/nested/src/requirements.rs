//! What an emulated machine needs of the host.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Program that emulates.
const EMULATOR: &str = "qemu-system-x86_64";
/// Names a kernel to boot in place of the newest of Debian's for cloud machines.
pub(crate) const KERNEL_VARIABLE: &str = "CAUSEWAY_NESTED_KERNEL";
/// End of the names of Debian's kernels for cloud machines.
const CLOUD: &str = "-cloud-amd64";

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The emulator.
    pub emulator: PathBuf,
    /// The kernel to boot.
    pub kernel: PathBuf,
    /// Folder of its modules.
    pub modules: PathBuf,
}

/// What is missing, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No emulator.
    #[error(
        "{EMULATOR} is not in PATH; Debian and Ubuntu have it as qemu-system-x86 (apt install qemu-system-x86)"
    )]
    Emulator,
    /// No kernel.
    #[error(
        "there is no /boot/vmlinuz-*{CLOUD}; Debian has it as linux-image-cloud-amd64 (apt install linux-image-cloud-amd64), or {KERNEL_VARIABLE} names another kernel whose modules are installed"
    )]
    Kernel,
    /// A kernel whose modules are somewhere else.
    #[error(
        "the modules of {kernel} are not in {modules}: install the package that the kernel came with, or choose another by {KERNEL_VARIABLE}"
    )]
    Modules {
        /// The kernel.
        kernel: PathBuf,
        /// Where its modules would be.
        modules: PathBuf,
    },
}

impl Requirements {
    /// Looks for them.
    ///
    /// # Errors
    /// [`Missing`] names the first that is not there.
    pub fn find() -> Result<Self, Missing> {
        let path = env::var_os("PATH").unwrap_or_default();
        let kernel = env::var_os(KERNEL_VARIABLE).map(PathBuf::from);
        Self::find_in(Path::new("/"), env::split_paths(&path), kernel)
    }

    fn find_in(
        root: &Path,
        mut folders: impl Iterator<Item = PathBuf>,
        kernel: Option<PathBuf>,
    ) -> Result<Self, Missing> {
        let emulator = folders.find_map(|folder| {
            let path = folder.join(EMULATOR);
            path.is_file().then_some(path)
        });
        let kernel = kernel.or_else(|| newest_cloud_kernel(&root.join("boot")));
        let (emulator, kernel) = (
            emulator.ok_or(Missing::Emulator)?,
            kernel
                .filter(|kernel| kernel.is_file())
                .ok_or(Missing::Kernel)?,
        );
        let modules = root.join("lib/modules").join(release(&kernel));
        if !modules.join("modules.dep").is_file() {
            return Err(Missing::Modules { kernel, modules });
        }
        Ok(Self {
            emulator,
            kernel,
            modules,
        })
    }
}

/// Kernels are called `vmlinuz-RELEASE`.
fn release(kernel: &Path) -> &str {
    let name = kernel.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    name.strip_prefix("vmlinuz-").unwrap_or(name)
}

fn newest_cloud_kernel(boot: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(boot).ok()?.flatten();
    let kernels = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("vmlinuz-") && name.ends_with(CLOUD))
    });
    kernels.max_by_key(|path| numbers(release(path)))
}

/// The numbers in a release, by which releases are in order.
fn numbers(release: &str) -> Vec<u64> {
    let digits = release.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_one_with_the_highest_numbers() {
        assert!(numbers("6.1.0-56-cloud-amd64") > numbers("6.1.0-9-cloud-amd64"));
        assert!(numbers("6.12.1-1-cloud-amd64") > numbers("6.1.0-56-cloud-amd64"));
        assert_eq!(
            release(Path::new("/boot/vmlinuz-6.1.0-9-amd64")),
            "6.1.0-9-amd64"
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_package_that_has_it() {
        let nowhere = Path::new("/nonexistent");
        let find = |kernel: Option<&str>, folders: &[&str]| {
            let folders: Vec<_> = folders.iter().map(PathBuf::from).collect();
            Requirements::find_in(nowhere, folders.into_iter(), kernel.map(PathBuf::from))
        };
        let text = find(None, &[]).unwrap_err().to_string();
        assert!(text.contains("apt install qemu-system-x86"), "{text}");
        let text = Missing::Kernel.to_string();
        assert!(
            text.contains("apt install linux-image-cloud-amd64"),
            "{text}"
        );
    }
}
