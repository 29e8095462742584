//! Findings about IOMMU and VFIO, which pass real devices through to guests.

use std::fs;

use causeway_host_vfio::{Address, BARS, Host, PciFunction};

use crate::check::Check;

/// Resource of a PCI function in sysfs: memory, not I/O ports (linux/ioport.h).
const RESOURCE_MEMORY: u64 = 0x200;
/// Resource: reads have no side effects.
const RESOURCE_PREFETCHABLE: u64 = 0x2000;
/// Least size of a BAR that can be mapped.
const PAGE_BYTES: u64 = 4096;

/// Checks the IOMMU, the VFIO driver and all devices bound to it, and returns the findings.
pub fn findings() -> Vec<Check> {
    of(&Host::default())
}

fn of(host: &Host) -> Vec<Check> {
    let functions = host.functions().into_iter();
    let bound = functions.filter(PciFunction::is_for_vfio);
    let mut findings = vec![iommu(host), driver(host)];
    findings.extend(bound.map(|function| device(host, &function)));
    findings
}

fn iommu(host: &Host) -> Check {
    const NAME: &str = "IOMMU";
    match host.groups() {
        0 => Check::no(
            NAME,
            "no IOMMU groups",
            "PCI devices cannot be passed through (--vfio); other guests need no IOMMU",
            "enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on (AMD: on by \
             default); in a VM, add a virtual IOMMU",
        ),
        groups => Check::yes(
            NAME,
            format!("{groups} groups"),
            "PCI devices can be isolated and passed through (--vfio)",
        ),
    }
}

fn driver(host: &Host) -> Check {
    const NAME: &str = "VFIO";
    if !host.has_vfio_pci() {
        return Check::no(
            NAME,
            "driver vfio-pci is not loaded",
            "--vfio and --gpu vfio need this driver; other guests do not",
            "load the driver: modprobe vfio-pci",
        );
    }
    let functions = host.functions();
    let bound = functions.iter().filter(|f| f.is_for_vfio()).count();
    Check::yes(
        NAME,
        format!(
            "{bound} of {} PCI functions bound to vfio-pci",
            functions.len()
        ),
        "bound devices can be passed through to a guest",
    )
}

/// Returns whether a device that is bound to vfio-pci can be passed through.
fn device(host: &Host, function: &PciFunction) -> Check {
    const NAME: &str = "PCI device";
    let address = function.address;
    match host.preflight(address, 0) {
        Ok(_) => Check::yes(
            NAME,
            function.to_string(),
            format!(
                "can be passed through: --vfio {address}{}",
                partitionable(host, address)
            ),
        ),
        Err(e) => Check::no(
            NAME,
            function.to_string(),
            "cannot be passed through",
            e.to_string(),
        ),
    }
}

/// Returns the memory of a device that can be partitioned among several guests, as text for the
/// report.
fn partitionable(host: &Host, address: Address) -> String {
    let resources = fs::read_to_string(host.folder(address).join("resource"));
    let bars = memory_bars(&resources.unwrap_or_default());
    let largest = bars.into_iter().max_by_key(|(_, bytes)| *bytes);
    largest.map_or_else(String::new, |(bar, bytes)| {
        let size = match bytes >> 20 {
            0 => format!("{} KiB", bytes >> 10),
            mib => format!("{mib} MiB"),
        };
        format!(
            "; its {size} of memory can be partitioned among several guests: --gpu \
             vfio:{address},bar={bar}"
        )
    })
}

/// Numbers and sizes of the BARs in a `resource` attribute that are prefetchable memory of a page
/// or more.
fn memory_bars(resources: &str) -> Vec<(usize, u64)> {
    let lines = resources.lines().take(BARS.into());
    let bars = lines.enumerate().filter_map(|(bar, line)| {
        let mut numbers = line.split_whitespace().map(hexadecimal);
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let bytes = end.checked_sub(start)?.checked_add(1)?;
        let wanted = RESOURCE_MEMORY | RESOURCE_PREFETCHABLE;
        (flags & wanted == wanted && bytes >= PAGE_BYTES).then_some((bar, bytes))
    });
    bars.collect()
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;

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

    #[test]
    fn bars_of_prefetchable_memory_are_found_with_their_sizes() {
        let resources = "0x00000000fea00000 0x00000000fea000ff 0x0000000000040200\n\
            0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
            0x000000fe00000000 0x000000fe03ffffff 0x000000000014220c\n\
            nonsense\n\
            0x000000000000c000 0x000000000000c01f 0x0000000000040101\n\
            0x00000000e0000000 0x00000000e0000fff 0x0000000000042208\n\
            0x00000000e1000000 0x00000000e1ffffff 0x0000000000042208\n";
        assert_eq!(memory_bars(resources), [(2, 64 << 20), (5, 4096)]);
        assert!(memory_bars("").is_empty());
    }
}
