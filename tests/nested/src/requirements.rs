//! What an emulated machine needs of the host.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_initramfs::{ModuleFolder, release_of};

/// Program that emulates.
const EMULATOR: &str = "qemu-system-x86_64";
/// Names an emulator in place of the one in `PATH`.
const EMULATOR_VARIABLE: &str = "CAUSEWAY_NESTED_EMULATOR";
/// Names a kernel to boot in place of the newest of Debian's for cloud machines.
pub(crate) const KERNEL_VARIABLE: &str = "CAUSEWAY_NESTED_KERNEL";
/// End of the names of Debian's kernels for cloud machines.
const CLOUD: &str = "-cloud-amd64";

/// What was found.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// The emulator.
    pub emulator: PathBuf,
    /// The kernel to boot.
    pub kernel: PathBuf,
    /// Its modules.
    pub modules: ModuleFolder,
}

/// What is missing, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No emulator.
    #[error(
        "{EMULATOR} is not in PATH; Debian and Ubuntu have it as qemu-system-x86 \
         (apt install qemu-system-x86), or {EMULATOR_VARIABLE} names one"
    )]
    Emulator,
    /// A variable that names no file.
    #[error(
        "there is no emulator {0}: {EMULATOR_VARIABLE} names it; unset it to take that of PATH"
    )]
    NamedEmulator(PathBuf),
    /// No kernel.
    #[error(
        "there is no /boot/vmlinuz-*{CLOUD}; Debian has it as linux-image-cloud-amd64 \
         (apt install linux-image-cloud-amd64), or {KERNEL_VARIABLE} names another kernel \
         whose modules are installed"
    )]
    Kernel,
    /// A file that is no kernel.
    #[error("{0} is no Linux kernel: choose another by {KERNEL_VARIABLE}")]
    NotKernel(PathBuf),
    /// A kernel whose modules are somewhere else.
    #[error(
        "there is no lib/modules/{release}/modules.dep for {kernel}: install the \
         package that the kernel came with, or choose another by {KERNEL_VARIABLE}"
    )]
    Modules {
        /// The kernel.
        kernel: PathBuf,
        /// Its release.
        release: String,
    },
}

impl Requirements {
    /// Looks for them.
    ///
    /// # Errors
    /// [`Missing`] names the first that is not there.
    pub fn find() -> Result<Self, Missing> {
        let emulator = match env::var_os(EMULATOR_VARIABLE).map(PathBuf::from) {
            Some(named) if named.is_file() => named,
            Some(named) => return Err(Missing::NamedEmulator(named)),
            None => {
                let path = env::var_os("PATH").unwrap_or_default();
                emulator_in(env::split_paths(&path)).ok_or(Missing::Emulator)?
            }
        };
        let kernel = env::var_os(KERNEL_VARIABLE).map(PathBuf::from);
        let kernel = kernel.or_else(|| newest_cloud_kernel(Path::new("/boot")));
        Self::with(emulator, kernel)
    }

    /// What the emulator says of its version, in one line.
    pub(crate) fn emulator_version(&self) -> String {
        let said = Command::new(&self.emulator).arg("--version").output();
        let said = said.map_or_else(|error| error.to_string().into(), |output| output.stdout);
        let text = String::from_utf8_lossy(&said);
        text.lines().next().unwrap_or("unknown version").to_owned()
    }

    fn with(emulator: PathBuf, kernel: Option<PathBuf>) -> Result<Self, Missing> {
        let kernel = kernel.filter(|kernel| kernel.is_file());
        let kernel = kernel.ok_or(Missing::Kernel)?;
        let image = fs::read(&kernel).unwrap_or_default();
        let Some(release) = release_of(&image) else {
            return Err(Missing::NotKernel(kernel));
        };
        let Some(modules) = ModuleFolder::find(&kernel, release) else {
            let release = release.to_owned();
            return Err(Missing::Modules { kernel, release });
        };
        Ok(Self {
            emulator,
            kernel,
            modules,
        })
    }
}

fn emulator_in(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find_map(|folder| {
        let path = folder.join(EMULATOR);
        path.is_file().then_some(path)
    })
}

fn newest_cloud_kernel(boot: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(boot).ok()?.flatten();
    let kernels = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("vmlinuz-") && name.ends_with(CLOUD))
    });
    kernels.max_by_key(|path| numbers(path))
}

/// The numbers in the name of a kernel, by which kernels are in order.
fn numbers(kernel: &Path) -> Vec<u64> {
    let name = kernel.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_one_with_the_highest_numbers() {
        let numbers = |release| numbers(&Path::new("/boot").join(format!("vmlinuz-{release}")));
        assert!(numbers("6.1.0-56-cloud-amd64") > numbers("6.1.0-9-cloud-amd64"));
        assert!(numbers("6.12.1-1-cloud-amd64") > numbers("6.1.0-56-cloud-amd64"));
    }

    #[test]
    fn what_is_missing_is_named_with_the_way_to_get_it() {
        let folder = env::temp_dir().join(format!("causeway-requirements-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        assert_eq!(emulator_in([folder.clone()].into_iter()), None);
        let emulator = folder.join(EMULATOR);
        fs::write(&emulator, "").unwrap();
        let found = emulator_in(["/nonexistent".into(), folder.clone()].into_iter());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, Some(emulator.clone()));
        let texts = [None, Some("/nonexistent"), Some("/etc/passwd")].map(|kernel| {
            let found = Requirements::with(emulator.clone(), kernel.map(PathBuf::from));
            found.unwrap_err().to_string()
        });
        let text = Missing::Emulator.to_string();
        assert!(text.contains("apt install qemu-system-x86"), "{text}");
        let text = Missing::NamedEmulator("/nonexistent".into()).to_string();
        assert!(text.contains("there is no emulator /nonexistent"), "{text}");
        assert!(
            texts[0].contains("apt install linux-image-cloud-amd64"),
            "{}",
            texts[0]
        );
        assert_eq!(texts[0], texts[1]);
        assert!(
            texts[2].contains("/etc/passwd is no Linux kernel"),
            "{}",
            texts[2]
        );
    }
}
