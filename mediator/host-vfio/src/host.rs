//! What sysfs says about the host's PCI functions.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Address;

/// Class code of PCI-to-PCI bridges, without the programming interface.
const CLASS_PCI_BRIDGE: u32 = 0x0604;

/// A host, seen through its file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
}

/// A PCI function of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Where it is.
    pub address: Address,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, 24 bits.
    pub class: u32,
    /// The driver it is bound to.
    pub driver: Option<String>,
    /// Number of its IOMMU group.
    pub group: Option<u32>,
    /// Name of its own file in `/dev/vfio/devices`, such as `vfio0`, where the kernel makes one
    /// (Linux 6.6).
    pub cdev: Option<String>,
}

impl PciFunction {
    /// Returns whether it is bound to vfio-pci, or to a variant for particular devices
    /// (mlx5-vfio-pci, nvgrace-gpu-vfio-pci).
    pub fn is_for_vfio(&self) -> bool {
        let driver = self.driver.as_deref().unwrap_or_default();
        driver.replace('_', "-").ends_with("vfio-pci")
    }

    /// Returns whether its driver lets others of its IOMMU group be handed out: it does no DMA of
    /// its own. These are the drivers with `driver_managed_dma` in Linux, and no driver at all.
    pub fn is_harmless(&self) -> bool {
        let harmless = ["pci-stub", "pcieport", "shpchp"];
        let driver = self.driver.as_deref();
        self.is_bridge() || self.is_for_vfio() || driver.is_none_or(|d| harmless.contains(&d))
    }

    /// Returns whether it is a bridge between buses, which cannot be passed through.
    pub fn is_bridge(&self) -> bool {
        self.class >> 8 == CLASS_PCI_BRIDGE
    }
}

impl fmt::Display for PciFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            vendor,
            device,
            ..
        } = self;
        write!(f, "{address} ({vendor:04x}:{device:04x})")?;
        match self.group {
            Some(group) => write!(f, " in IOMMU group {group}"),
            None => f.write_str(" without an IOMMU group"),
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::at("/")
    }
}

impl Host {
    /// Returns the host whose `/sys`, `/dev` and `/proc` are in `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the place of an absolute path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the folder of a function in sysfs.
    pub fn folder(&self, address: Address) -> PathBuf {
        self.path(&format!("/sys/bus/pci/devices/{address}"))
    }

    /// What there is to know about a function; `None` if there is no such function.
    ///
    /// # Errors
    /// The kernel's error for the first file that cannot be read.
    pub fn function(&self, address: Address) -> io::Result<Option<PciFunction>> {
        let folder = self.folder(address);
        if !folder.exists() {
            return Ok(None);
        }
        let number = |name| hexadecimal(&folder.join(name));
        Ok(Some(PciFunction {
            address,
            vendor: number("vendor")? as u16,
            device: number("device")? as u16,
            class: number("class")?,
            driver: link_name(&folder.join("driver")),
            group: link_name(&folder.join("iommu_group")).and_then(|name| name.parse().ok()),
            cdev: only_entry(&folder.join("vfio-dev")),
        }))
    }

    /// Returns all functions, in order; none where there is no PCI.
    pub fn functions(&self) -> Vec<PciFunction> {
        self.listed(&self.path("/sys/bus/pci/devices"))
    }

    /// Returns the functions of an IOMMU group, in order.
    pub fn group(&self, group: u32) -> Vec<PciFunction> {
        self.listed(&self.path(&format!("/sys/kernel/iommu_groups/{group}/devices")))
    }

    /// How many IOMMU groups there are: none without an IOMMU.
    pub fn groups(&self) -> usize {
        fs::read_dir(self.path("/sys/kernel/iommu_groups")).map_or(0, Iterator::count)
    }

    /// Returns whether the driver vfio-pci is there to be bound to.
    pub fn has_vfio_pci(&self) -> bool {
        self.path("/sys/bus/pci/drivers/vfio-pci").exists()
    }

    /// Functions that a folder has entries for. What is being removed meanwhile is left out.
    fn listed(&self, folder: &Path) -> Vec<PciFunction> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut functions: Vec<PciFunction> = names
            .filter_map(|address| self.function(address).ok().flatten())
            .collect();
        functions.sort_by_key(|function| function.address);
        functions
    }
}

/// Returns the number in a sysfs attribute such as `0x1af4`.
fn hexadecimal(path: &Path) -> io::Result<u32> {
    let text = fs::read_to_string(path)?;
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).map_err(io::Error::other)
}

/// Returns the last part of what a link leads to.
fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

fn only_entry(folder: &Path) -> Option<String> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    entries.next()?.file_name().into_string().ok()
}
