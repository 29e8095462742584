//! IOMMU and VFIO, for passing real devices through.

use std::fs;
use std::path::Path;

use super::Finding;

/// Everything about VFIO.
pub fn findings() -> Vec<Finding> {
    let groups = fs::read_dir("/sys/kernel/iommu_groups")
        .map(Iterator::count)
        .unwrap_or(0);
    let iommu = if groups == 0 {
        Finding::no(
            "IOMMU",
            "no IOMMU groups",
            "real PCI devices cannot be passed through; mediated allocations need no IOMMU",
            "enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on (AMD: on by default); in a VM, ask for a virtual IOMMU",
        )
    } else {
        Finding::yes(
            "IOMMU",
            format!("{groups} groups"),
            "real PCI devices can be isolated",
        )
    };
    vec![iommu, vfio()]
}

fn vfio() -> Finding {
    const NAME: &str = "VFIO";
    const MEANS: &str = "passing a real PCI device through needs it; mediated allocations do not";
    let node = Path::new("/dev/vfio/vfio");
    let driver = Path::new("/sys/bus/pci/drivers/vfio-pci");
    if !driver.exists() {
        return Finding::no(
            NAME,
            "driver vfio-pci is not loaded",
            MEANS,
            "modprobe vfio-pci",
        );
    }
    match fs::OpenOptions::new().read(true).write(true).open(node) {
        Ok(_) => {
            let devices = fs::read_dir(driver).map(|entries| {
                entries
                    .flatten()
                    .filter(|e| e.file_name().to_string_lossy().contains(':'))
                    .count()
            });
            Finding::yes(
                NAME,
                format!("{} devices bound to vfio-pci", devices.unwrap_or(0)),
                "bound devices can be handed to a guest",
            )
        }
        Err(e) => Finding::no(
            NAME,
            format!("{}: {e}", node.display()),
            MEANS,
            "run as root, or give yourself rights on /dev/vfio",
        ),
    }
}
