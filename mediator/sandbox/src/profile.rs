//! What a process of a certain kind needs.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::calls::Calls;

/// Environment variable with folders, separated by colons, in which confined processes may read
/// and write. For drivers and tools that need more than a [`Profile`] has.
const WRITABLE: &str = "CAUSEWAY_SANDBOX_WRITABLE";

/// What the C library and Rust's standard library read: the number of processors they may use.
const OF_LIBRARIES: [&str; 6] = [
    "/proc/self",
    "/proc/sys/vm",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/etc/ld.so.cache",
    "/dev/urandom",
];

/// Where libraries and the files that drivers read are.
const OF_DRIVERS: [&str; 27] = [
    "/nix/store",
    "/run/nvidia",
    "/run/opengl-driver",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda",
    "/usr/local/nvidia",
    "/usr/share/nvidia",
    "/usr/share/vulkan",
    "/usr/local/share/vulkan",
    "/usr/share/drirc.d",
    "/usr/share/libdrm",
    "/etc/vulkan",
    "/etc/nvidia",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/version",
    "/sys/bus",
    "/sys/class",
    "/sys/devices",
    "/sys/module",
];

/// The device that is always empty.
const NULL: &str = "/dev/null";

/// Devices that GPU drivers use, and the first letters of the names of others.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "dri"];
const DEVICE_NAMES: &str = "nvidia";

/// IMEX channels. Who opens one can give memory of a GPU to, and have memory of, all machines of an
/// NVLink fabric that have the channel.
const FABRIC_CHANNELS: &str = "nvidia-caps-imex-channels";

/// Files of the process itself that drivers write. NVIDIA's gives names to its threads, each from
/// another thread, for which the C library writes `/proc/self/task/*/comm`; where it may not,
/// `cuInit` fails. Nothing there reaches further than the process.
const OF_THREADS: &str = "/proc/self/task";

/// Libraries that programs load to use a driver. Others of the driver lie beside them.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libvulkan.so.1"];

/// Variables of the environment with paths that drivers and loaders read.
const PATH_VARIABLES: [&str; 4] = [
    "LD_LIBRARY_PATH",
    "VK_DRIVER_FILES",
    "VK_ADD_DRIVER_FILES",
    "VK_ICD_FILENAMES",
];

/// Files, folders and system calls that a process of a certain kind needs.
#[derive(Debug, Default)]
pub struct Profile {
    /// Files and folders to read.
    pub read: Vec<PathBuf>,
    /// Programs, and folders of programs and their libraries, to read and to start.
    pub start: Vec<PathBuf>,
    /// Devices, and folders of devices, to read, write and control.
    pub devices: Vec<PathBuf>,
    /// Files, and folders of files, to read, write and truncate, but not to create.
    pub rewrite: Vec<PathBuf>,
    /// Folders in which it may do everything but start programs.
    pub write: Vec<PathBuf>,
    /// Folders with sockets of the process: it may remove files in these and below them, and empty
    /// folders beside them.
    pub sockets: Vec<PathBuf>,
    /// Folders in which it may remove empty folders.
    pub divided: Vec<PathBuf>,
    /// A folder without a path, in which it may make files.
    pub folder: Option<BorrowedFd<'static>>,
    /// Whether it may map code that it has made: files, privately, to execute but not to write.
    pub makes_code: bool,
    /// Whether a thread that is confined keeps the capabilities that it has.
    pub keeps_capabilities: bool,
    /// System calls.
    pub calls: Calls,
}

impl Profile {
    /// Returns whether there are devices to open but the empty one.
    pub(crate) fn has_devices(&self) -> bool {
        self.devices.iter().any(|device| device != Path::new(NULL))
    }

    /// Returns what a process needs that computes, and whose libraries are loaded.
    pub fn computation() -> Self {
        Self {
            read: OF_LIBRARIES.map(PathBuf::from).to_vec(),
            start: Vec::new(),
            devices: vec![PathBuf::from(NULL)],
            rewrite: Vec::new(),
            write: writable(),
            sockets: Vec::new(),
            divided: Vec::new(),
            folder: None,
            makes_code: false,
            keeps_capabilities: false,
            calls: Calls::Computation,
        }
    }

    /// Returns what a process needs that will load the driver of a GPU.
    pub fn driver() -> Self {
        let of_environment = PATH_VARIABLES.into_iter().filter_map(std::env::var_os);
        let of_environment = of_environment.flat_map(|paths| listed(&paths));
        let mut read: Vec<_> = of_environment.collect();
        read.extend(targets(&read));
        let fixed = OF_LIBRARIES.into_iter().chain(OF_DRIVERS);
        read.extend(fixed.map(PathBuf::from));
        Self {
            read,
            devices: devices(),
            rewrite: vec![PathBuf::from(OF_THREADS)],
            calls: Calls::Driver,
            ..Self::computation()
        }
    }

    /// Returns this profile with the channels by which memory is shared with other machines of an
    /// NVLink fabric. Without them, the driver refuses that, even to a process that was taken over.
    #[must_use]
    pub fn with_fabric(mut self) -> Self {
        let channels = Path::new("/dev").join(FABRIC_CHANNELS);
        self.devices.push(channels);
        self
    }
}

/// The folders in which the libraries of drivers really are that `folders` have by links.
fn targets(folders: &[PathBuf]) -> Vec<PathBuf> {
    let libraries = folders
        .iter()
        .flat_map(|folder| LIBRARIES.map(|name| folder.join(name)));
    libraries
        .filter_map(|library| library.canonicalize().ok()?.parent().map(PathBuf::from))
        .collect()
}

fn writable() -> Vec<PathBuf> {
    let folders = std::env::var_os(WRITABLE);
    folders.map(|paths| listed(&paths)).unwrap_or_default()
}

/// The absolute paths of a list: a relative one may mean another folder tomorrow.
fn listed(paths: &OsStr) -> Vec<PathBuf> {
    let paths = std::env::split_paths(paths);
    paths.filter(|path| path.is_absolute()).collect()
}

fn devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let of_gpu = entries
        .filter(|entry| is_of_gpu(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path());
    let fixed = DEVICES.iter().map(|name| PathBuf::from("/dev").join(name));
    fixed.chain(of_gpu).collect()
}

/// Returns whether every process that uses a GPU needs the entry `name` of `/dev`.
fn is_of_gpu(name: &str) -> bool {
    name.starts_with(DEVICE_NAMES) && name != FABRIC_CHANNELS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_a_fabric_are_only_for_those_that_are_to_share_memory() {
        for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps"] {
            assert!(is_of_gpu(name), "{name}");
        }
        for name in ["nvidia-caps-imex-channels", "kvm", "sda"] {
            assert!(!is_of_gpu(name), "{name}");
        }
        let channels = PathBuf::from("/dev/nvidia-caps-imex-channels");
        assert!(!Profile::driver().devices.contains(&channels));
        assert!(Profile::driver().with_fabric().devices.contains(&channels));
    }

    #[test]
    fn libraries_are_found_behind_links() {
        let folder = std::env::temp_dir().join(format!("causeway-profile-{}", std::process::id()));
        let (real, links) = (folder.join("real"), folder.join("links"));
        for folder in [&real, &links] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(real.join("driver.so"), "").unwrap();
        std::os::unix::fs::symlink(real.join("driver.so"), links.join("libcuda.so.1")).unwrap();
        let found = targets(&[links]);
        let expected = real.canonicalize().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [expected]);
    }

    #[test]
    fn relative_paths_are_left_out() {
        let paths = listed(OsStr::new("/a:b:../c::/d"));
        assert_eq!(paths, ["/a", "/d"].map(PathBuf::from));
    }

    #[test]
    fn a_driver_has_all_that_a_computation_has() {
        let (driver, computation) = (Profile::driver(), Profile::computation());
        assert!(
            computation
                .read
                .iter()
                .all(|path| driver.read.contains(path))
        );
        assert!(driver.devices.len() > computation.devices.len());
        assert_ne!(driver.calls, computation.calls);
    }
}
