//! What sysfs says about the host's PCI functions.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Address;

/// Class code of PCI-to-PCI bridges, without the programming interface.
const CLASS_PCI_BRIDGE: u32 = 0x0604;

/// The host, as its files in `/sys`, `/dev` and `/proc` describe it: its PCI functions and what
/// uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
}

/// A PCI function of the host, as sysfs describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Address of the function.
    pub address: Address,
    /// PCI vendor ID.
    pub vendor: u16,
    /// PCI device ID.
    pub device: u16,
    /// PCI class code: class, subclass and programming interface, 8 bits each.
    pub class: u32,
    /// Name of the driver that the function is bound to; `None` if it is bound to none.
    pub driver: Option<String>,
    /// Number of the function's IOMMU group; `None` without an IOMMU.
    pub group: Option<u32>,
    /// Name of the function's file in `/dev/vfio/devices`, for example `vfio0`. `None` if sysfs
    /// names no such file, as for a function that is not bound to vfio-pci.
    pub cdev: Option<String>,
}

impl PciFunction {
    /// Returns whether the function is bound to vfio-pci, or to a variant of that driver for
    /// particular devices (mlx5-vfio-pci, nvgrace-gpu-vfio-pci).
    pub fn is_for_vfio(&self) -> bool {
        let driver = self.driver.as_deref().unwrap_or_default();
        driver.replace('_', "-").ends_with("vfio-pci")
    }

    /// Returns whether VFIO can open other functions of the same IOMMU group while this function
    /// stays as it is. That is so if the function is a bridge, is bound to vfio-pci or to no
    /// driver, or is bound to one of the few drivers that Linux allows there because they start no
    /// DMA, such as pcieport.
    pub fn is_harmless(&self) -> bool {
        let harmless = ["pci-stub", "pcieport", "shpchp"];
        let driver = self.driver.as_deref();
        self.is_bridge() || self.is_for_vfio() || driver.is_none_or(|d| harmless.contains(&d))
    }

    /// Returns whether the function is a PCI-to-PCI bridge, which cannot be opened through VFIO.
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
    /// Returns a host whose `/sys`, `/dev` and `/proc` are read from the directory `root`. Tests
    /// use it with a directory of made-up files.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the place of an absolute path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the path of the folder in sysfs that describes the function at `address`.
    pub fn folder(&self, address: Address) -> PathBuf {
        self.path(&format!("/sys/bus/pci/devices/{address}"))
    }

    /// Returns what sysfs says about the function at `address`; `None` if the host has no function
    /// there.
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

    /// Returns all PCI functions of the host, by ascending address; an empty list on a host without
    /// PCI.
    pub fn functions(&self) -> Vec<PciFunction> {
        self.listed(&self.path("/sys/bus/pci/devices"))
    }

    /// Returns the PCI functions of IOMMU group number `group`, by ascending address; an empty list
    /// if there is no such group.
    pub fn group(&self, group: u32) -> Vec<PciFunction> {
        self.listed(&self.path(&format!("/sys/kernel/iommu_groups/{group}/devices")))
    }

    /// Returns the number of the host's IOMMU groups, which is 0 without an IOMMU.
    pub fn groups(&self) -> usize {
        fs::read_dir(self.path("/sys/kernel/iommu_groups")).map_or(0, Iterator::count)
    }

    /// Returns whether the driver vfio-pci is loaded, so that functions can be bound to it.
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
