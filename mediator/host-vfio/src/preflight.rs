//! Checks whether a device is available, before anything is opened. Each refusal names the way out.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::fs::{Access, access};

use crate::Address;
use crate::host::{Host, PciFunction};
use crate::locked::LockedMemory;

/// Why a PCI device cannot be opened through VFIO. The message also says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// The host has no such PCI function.
    #[error("there is no PCI device {address}: `lspci -D` lists the devices")]
    Absent {
        /// PCI address at which there is no function.
        address: Address,
    },
    /// The device's folder in sysfs cannot be read.
    #[error("cannot read {path}, which describes device {address}")]
    Unreadable {
        /// PCI address of the device.
        address: Address,
        /// Path of the device's directory in sysfs.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The function is a bridge.
    #[error(
        "device {address} is a bridge between PCI buses, which VFIO cannot open: name a device \
         behind it"
    )]
    Bridge {
        /// PCI address of the device.
        address: Address,
    },
    /// No IOMMU confines the DMA of the device.
    #[error(
        "device {address} is in no IOMMU group, so it could write to all memory: enable VT-d or \
         AMD-Vi in the firmware and boot with intel_iommu=on (AMD: on by default); in a VM, add a \
         virtual IOMMU"
    )]
    NoIommu {
        /// PCI address of the device.
        address: Address,
    },
    /// The device is bound to another driver, or to none.
    #[error(
        "device {address} is bound to {}, not to vfio-pci; run as root: {}",
        driver_words(driver.as_deref()),
        bind_commands(*address, driver.is_some(), *loaded)
    )]
    NotBound {
        /// PCI address of the device.
        address: Address,
        /// Name of the driver that the device is bound to; `None` if it is bound to none.
        driver: Option<String>,
        /// Whether vfio-pci is loaded.
        loaded: bool,
    },
    /// The host uses other devices of the IOMMU group.
    #[error(
        "device {address} cannot be isolated: it is in IOMMU group {group} with {}; bind them to \
         vfio-pci too, or unbind them: {}",
        members(others),
        unbind_commands(others)
    )]
    NotViable {
        /// PCI address of the device.
        address: Address,
        /// Number of the device's IOMMU group.
        group: u32,
        /// Functions of the group that drivers of the host use.
        others: Vec<PciFunction>,
    },
    /// The file that opens the device is missing.
    #[error(
        "there is no file {path}, through which a process opens device {address}: load the modules \
         vfio-pci and vfio_iommu_type1"
    )]
    NoFile {
        /// PCI address of the device.
        address: Address,
        /// Path of the file.
        path: PathBuf,
    },
    /// The process may not open the file.
    #[error(
        "no permission to open {path}, through which a process opens device {address}: run as \
         root, or type `sudo chown $USER {path}`"
    )]
    Permission {
        /// PCI address of the device.
        address: Address,
        /// Path of the file.
        path: PathBuf,
    },
    /// Another process has the device open.
    #[error(
        "device {address} is in use by {}: {path} can be open only once; end that process first",
        holder.as_ref().map_or_else(|| "another process".to_owned(), Holder::to_string)
    )]
    InUse {
        /// PCI address of the device.
        address: Address,
        /// Path of the file that is open.
        path: PathBuf,
        /// The process that has the file open; `None` if /proc does not show it.
        holder: Option<Holder>,
    },
    /// The DMA needs more locked memory than the process may have.
    #[error(
        "device {address} needs {bytes} bytes of locked memory for DMA, but this process may lock \
         {limit} bytes (RLIMIT_MEMLOCK) and has locked {used}: raise the limit with `ulimit -l \
         {}`, or run with CAP_IPC_LOCK",
        used.saturating_add(*bytes).div_ceil(1024)
    )]
    LockedMemory {
        /// PCI address of the device.
        address: Address,
        /// Number of bytes that are to be locked for DMA.
        bytes: u64,
        /// Maximum number of bytes that this process may lock (RLIMIT_MEMLOCK).
        limit: u64,
        /// Number of bytes that this process has locked already.
        used: u64,
    },
}

/// A process that holds a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process ID (PID).
    pub pid: u32,
    /// Name of the process.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

impl Host {
    /// Checks that this process can open the PCI function at `address` through VFIO, and that it
    /// can lock `dma_bytes` bytes of RAM for DMA. Opens nothing. Returns what sysfs says about the
    /// function.
    ///
    /// # Errors
    /// The [`PreflightError`] of the first check that fails.
    pub fn preflight(
        &self,
        address: Address,
        dma_bytes: u64,
    ) -> Result<PciFunction, PreflightError> {
        let function = self.bound(address)?;
        self.check_files(&function)?;
        let locked = LockedMemory::of_this_process(self);
        match locked.limit {
            Some(limit) if !locked.allows(dma_bytes) => Err(PreflightError::LockedMemory {
                address,
                bytes: dma_bytes,
                limit,
                used: locked.used,
            }),
            _ => Ok(function),
        }
    }

    /// Returns the function, if it and its group are VFIO's.
    fn bound(&self, address: Address) -> Result<PciFunction, PreflightError> {
        let function = self.function(address);
        let function = function.map_err(|source| PreflightError::Unreadable {
            address,
            path: self.folder(address),
            source,
        })?;
        let function = function.ok_or(PreflightError::Absent { address })?;
        if function.is_bridge() {
            return Err(PreflightError::Bridge { address });
        }
        let group = function.group.ok_or(PreflightError::NoIommu { address })?;
        if !function.is_for_vfio() {
            return Err(PreflightError::NotBound {
                address,
                driver: function.driver,
                loaded: self.has_vfio_pci(),
            });
        }
        let mut others = self.group(group);
        others.retain(|other| other.address != address && !other.is_harmless());
        if !others.is_empty() {
            return Err(PreflightError::NotViable {
                address,
                group,
                others,
            });
        }
        Ok(function)
    }

    /// Checks the files by which the function is opened.
    fn check_files(&self, function: &PciFunction) -> Result<(), PreflightError> {
        let address = function.address;
        // Either way will do, if it can be gone.
        if self.can_open_alone(function) {
            return Ok(());
        }
        let mut paths = self.group_files(function).into_iter();
        paths.try_for_each(|path| self.check_file(address, &path))
    }

    /// Returns whether the function has a file of its own that may be opened, and iommufd is there
    /// for it.
    pub(crate) fn can_open_alone(&self, function: &PciFunction) -> bool {
        let may_open = |path: &String| self.check_file(function.address, path).is_ok();
        let paths = self.device_files(function);
        paths.is_some_and(|paths| paths.iter().all(may_open))
    }

    /// Returns the files that are opened to hold the function through its group.
    pub(crate) fn group_files(&self, function: &PciFunction) -> [String; 2] {
        let group = function.group.unwrap_or_default();
        ["/dev/vfio/vfio".to_owned(), format!("/dev/vfio/{group}")]
    }

    /// Returns the files that are opened to hold the function through iommufd; `None` if the kernel
    /// has none for it.
    pub(crate) fn device_files(&self, function: &PciFunction) -> Option<[String; 2]> {
        let iommu = "/dev/iommu".to_owned();
        let cdev = function.cdev.as_ref()?;
        let there = self.path(&iommu).exists();
        there.then(|| [iommu, format!("/dev/vfio/devices/{cdev}")])
    }

    fn check_file(&self, address: Address, path: &str) -> Result<(), PreflightError> {
        // The container's file may be open many times.
        let exclusive = path != "/dev/vfio/vfio" && path != "/dev/iommu";
        let holder = exclusive.then(|| self.holder(path)).flatten();
        let path = self.path(path);
        if let Err(e) = access(&path, Access::READ_OK | Access::WRITE_OK) {
            return Err(match e {
                rustix::io::Errno::NOENT => PreflightError::NoFile { address, path },
                _ => PreflightError::Permission { address, path },
            });
        }
        match holder {
            // What this process has open it may share; who opens a device a second time is told so.
            Some(holder) if holder.pid != std::process::id() => Err(PreflightError::InUse {
                address,
                path,
                holder: Some(holder),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the first process that has a file open, of those that this process may look at.
    pub(crate) fn holder(&self, path: &str) -> Option<Holder> {
        let processes = fs::read_dir(self.path("/proc")).ok()?.flatten();
        let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pid: u32 = numbers.find(|pid| self.has_open(*pid, path))?;
        let name = fs::read_to_string(self.path(&format!("/proc/{pid}/comm"))).unwrap_or_default();
        Some(Holder {
            pid,
            name: name.trim().to_owned(),
        })
    }

    fn has_open(&self, pid: u32, path: &str) -> bool {
        let files = fs::read_dir(self.path(&format!("/proc/{pid}/fd")));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| fs::read_link(file.path()).is_ok_and(|target| target == *path))
    }
}

fn driver_words(driver: Option<&str>) -> String {
    driver.map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"))
}

/// What a person types to have a device bound to vfio-pci.
fn bind_commands(address: Address, bound: bool, loaded: bool) -> String {
    let folder = format!("/sys/bus/pci/devices/{address}");
    let load = (!loaded).then(|| "modprobe vfio-pci".to_owned());
    let choose = format!("echo vfio-pci > {folder}/driver_override");
    let unbind = bound.then(|| format!("echo {address} > {folder}/driver/unbind"));
    let probe = format!("echo {address} > /sys/bus/pci/drivers_probe");
    let commands = [load, Some(choose), unbind, Some(probe)];
    let words: Vec<_> = commands.into_iter().flatten().collect();
    words.join(" && ")
}

fn unbind_commands(functions: &[PciFunction]) -> String {
    let command = |function: &PciFunction| {
        let address = function.address;
        format!("echo {address} > /sys/bus/pci/devices/{address}/driver/unbind")
    };
    let words: Vec<_> = functions.iter().map(command).collect();
    words.join(" && ")
}

fn members(functions: &[PciFunction]) -> String {
    let words = functions.iter().map(|function| {
        let driver = driver_words(function.driver.as_deref());
        format!("{} ({driver})", function.address)
    });
    words.collect::<Vec<_>>().join(", ")
}
