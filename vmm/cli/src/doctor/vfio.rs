//! IOMMU and VFIO, for passing real devices through.

use causeway_vfio::{Function, Host};

use super::Finding;

/// Everything about VFIO.
pub fn findings() -> Vec<Finding> {
    of(&Host::default())
}

fn of(host: &Host) -> Vec<Finding> {
    let bound = host.functions().into_iter().filter(Function::is_for_vfio);
    let devices = bound.map(|function| device(host, &function));
    [iommu(host), driver(host)]
        .into_iter()
        .chain(devices)
        .collect()
}

fn iommu(host: &Host) -> Finding {
    const NAME: &str = "IOMMU";
    match host.groups() {
        0 => Finding::no(
            NAME,
            "no IOMMU groups",
            "real PCI devices cannot be passed through; mediated allocations need no IOMMU",
            "enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on (AMD: on by default); in a VM, ask for a virtual IOMMU",
        ),
        groups => Finding::yes(
            NAME,
            format!("{groups} groups"),
            "real PCI devices can be isolated",
        ),
    }
}

fn driver(host: &Host) -> Finding {
    const NAME: &str = "VFIO";
    if !host.has_vfio_pci() {
        return Finding::no(
            NAME,
            "driver vfio-pci is not loaded",
            "passing a real PCI device through needs it; mediated allocations do not",
            "modprobe vfio-pci",
        );
    }
    let functions = host.functions();
    let bound = functions.iter().filter(|f| f.is_for_vfio()).count();
    Finding::yes(
        NAME,
        format!(
            "{bound} of {} PCI functions bound to vfio-pci",
            functions.len()
        ),
        "bound devices can be handed to a guest",
    )
}

/// A device that is bound, and whether it can be had.
fn device(host: &Host, function: &Function) -> Finding {
    const NAME: &str = "PCI device";
    let address = function.address;
    match host.preflight(address, 0) {
        Ok(_) => Finding::yes(
            NAME,
            function.to_string(),
            format!("can be handed out: --vfio {address}"),
        ),
        Err(e) => Finding::no(
            NAME,
            function.to_string(),
            "cannot be handed out as it is",
            e.to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_host_without_devices_is_told_how_to_get_there() {
        let findings = of(&Host::at("/nonexistent"));
        assert_eq!(findings.len(), 2);
        assert!(
            findings
                .iter()
                .all(|f| f.state == State::No && f.how.is_some())
        );
    }
}
