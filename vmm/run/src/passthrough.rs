//! `--vfio`: PCI devices of the host that are passed through to VMs.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use causeway_host_vfio::{Address, Choice, Host};
use causeway_vmm::passthrough::{DeviceSource, HostDevices};

use crate::configuration::Run;
use crate::gpu::{Gpu, Kind};
use causeway_terminal::{Code, Failure};

/// Parses the values of `--vfio`: addresses of PCI devices such as `0000:00:03.0`.
///
/// # Errors
/// A usage failure that names the first text that is not a PCI address.
pub fn parse(texts: &[String]) -> Result<Vec<Address>, Failure> {
    let parse = |text: &String| {
        let address = text.parse::<Address>();
        address.map_err(|e| Failure::usage_from("--vfio", text, e))
    };
    texts.iter().map(parse).collect()
}

/// Distributes the devices at `addresses` among `vms` VMs, and returns the devices of each VM: one
/// VM gets all, several VMs get one each. Returns an empty list if `addresses` is empty. `gpu` is
/// the back end of the run: the device of back end `vfio` cannot also be passed through.
///
/// # Errors
/// A usage failure if a device occurs twice in `addresses` or is also the device of `gpu`, or if
/// there are several VMs and fewer or more devices than VMs.
pub fn assign(addresses: &[Address], vms: u32, gpu: &Gpu) -> Result<Vec<Vec<Address>>, Failure> {
    refuse_twice(addresses, mediated(gpu.kind))?;
    let devices = addresses.len();
    match (devices, vms as usize) {
        (0, _) => Ok(Vec::new()),
        (_, 1) => Ok(vec![addresses.to_vec()]),
        (_, vms) if devices == vms => Ok(addresses.iter().map(|address| vec![*address]).collect()),
        _ => Err(Failure::usage(format!(
            "--vfio is given for {devices} devices, but --vms is {vms}: a device belongs to one \
             VM, so name {vms} devices, one for each VM in order"
        ))),
    }
}

/// Returns the PCI address of the device that `--gpu vfio` mediates, or `None` on other back ends.
fn mediated(kind: Kind) -> Option<Address> {
    match kind {
        Kind::Vfio(options) => Some(options.address),
        Kind::Software(_) | Kind::Cuda(_) => None,
    }
}

fn refuse_twice(addresses: &[Address], mediated: Option<Address>) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    if let Some(address) = addresses.iter().find(|address| !seen.insert(**address)) {
        return Err(Failure::usage(format!(
            "--vfio {address} is given twice: give each device once, because it belongs to one VM"
        )));
    }
    match mediated.filter(|address| seen.contains(address)) {
        None => Ok(()),
        Some(address) => Err(Failure::usage(format!(
            "device {address} is given twice, by --vfio and by --gpu: either pass the device \
             through to one VM (--vfio), or divide its memory among VMs (--gpu vfio)"
        ))),
    }
}

/// Checks that each device of `run` is available, that this process can lock the RAM of the VMs
/// that have devices, and that devices of one IOMMU group have one owner. Call this function before
/// any device is opened.
///
/// # Errors
/// A device failure if a device is not available or the RAM cannot be locked; a usage failure if
/// devices of one IOMMU group belong to different VMs, or to a VM and to the back end `vfio`.
pub fn check(run: &Run) -> Result<(), Failure> {
    let host = Host::default();
    // Each VM has IOMMU tables of its own, and its memory is locked for them.
    let with_devices = run.devices.iter().filter(|devices| !devices.is_empty());
    let dma_bytes = run
        .settings
        .memory_bytes()
        .saturating_mul(with_devices.count() as u64);
    let mut owners = Vec::new();
    for (vm, devices) in run.devices.iter().enumerate() {
        for address in devices {
            let function = host.preflight(*address, dma_bytes).map_err(unavailable)?;
            owners.push((function.group, Owner::Vm(vm), *address));
        }
    }
    if let Some(address) = mediated(run.gpu.kind).filter(|_| !owners.is_empty()) {
        let function = host.function(address).ok().flatten();
        owners.push((function.and_then(|f| f.group), Owner::Mediator, address));
    }
    one_owner_for_each_group(&owners)
}

/// The owner of a device in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The VM with this index.
    Vm(usize),
    /// The mediator, which partitions the device among all VMs.
    Mediator,
}

/// Refuses different owners for devices of one IOMMU group: such devices are not isolated from each
/// other.
fn one_owner_for_each_group(owners: &[(Option<u32>, Owner, Address)]) -> Result<(), Failure> {
    for (index, (group, owner, address)) in owners.iter().enumerate() {
        let Some(number) = group else { continue };
        let mut before = owners[..index].iter();
        if let Some((.., other)) = before.find(|(g, o, _)| g == group && o != owner) {
            return Err(Failure::usage(format!(
                "devices {other} and {address} are both in IOMMU group {number}, which the host \
                 cannot divide: pass both devices to the same VM"
            )));
        }
    }
    Ok(())
}

/// Returns the object that opens the devices passed through to VM `index` (from 0) of `run`, or
/// `None` if no devices are passed through.
pub fn source(run: &Run, index: u32) -> Option<Arc<dyn DeviceSource>> {
    let addresses = run.devices.get(index as usize)?.clone();
    Some(Arc::new(HostDevices {
        host: Host::default(),
        choice: Choice::default(),
        addresses,
    }))
}

/// Returns the failure of a run whose device cannot be passed through. `error` says why.
pub fn unavailable(error: impl Error + Send + Sync + 'static) -> Failure {
    Failure::new(
        Code::Device,
        "cannot pass the devices that --vfio names through to a VM",
        error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::tests::parse as typed;

    fn chosen(words: &[&str]) -> Result<Vec<Vec<Address>>, String> {
        let arguments = typed(words);
        let assigned = |addresses: Vec<Address>| {
            assign(
                &addresses,
                arguments.vms,
                &arguments.gpu[0].parse().unwrap(),
            )
        };
        parse(&arguments.vfio)
            .and_then(assigned)
            .map_err(|failure| {
                let cause = failure.source().map(ToString::to_string);
                format!("{failure}: {}", cause.unwrap_or_default())
            })
    }

    fn counts(words: &[&str]) -> Vec<usize> {
        chosen(words).unwrap().iter().map(Vec::len).collect()
    }

    #[test]
    fn one_vm_has_all_devices_and_several_have_one_each() {
        assert!(counts(&[]).is_empty());
        assert!(counts(&["--vms", "3"]).is_empty());
        let two = ["--vfio", "00:03.0", "--vfio", "0000:00:04.0"];
        assert_eq!(counts(&two), [2]);
        assert_eq!(counts(&[&two[..], &["--vms", "2"]].concat()), [1, 1]);
        let refused = chosen(&[&two[..], &["--vms", "3"]].concat()).unwrap_err();
        assert!(
            refused.contains("name 3 devices, one for each VM"),
            "{refused}"
        );
    }

    #[test]
    fn devices_of_one_group_have_one_owner() {
        let [first, second]: [Address; 2] = ["00:03.0", "00:03.1"].map(|a| a.parse().unwrap());
        let check = |group, owner| {
            let owners = [(Some(7), Owner::Vm(0), first), (group, owner, second)];
            one_owner_for_each_group(&owners).map_err(|failure| failure.to_string())
        };
        assert_eq!(check(Some(7), Owner::Vm(0)), Ok(()));
        assert_eq!(check(Some(8), Owner::Vm(1)), Ok(()));
        assert_eq!(check(None, Owner::Mediator), Ok(()));
        for owner in [Owner::Vm(1), Owner::Mediator] {
            let message = check(Some(7), owner).unwrap_err();
            assert!(
                message.contains("0000:00:03.0 and 0000:00:03.1"),
                "{message}"
            );
            assert!(message.contains("IOMMU group 7"), "{message}");
        }
    }

    #[test]
    fn a_device_that_is_given_twice_is_named() {
        let twice = chosen(&["--vfio", "00:03.0", "--vfio", "0000:00:03.0"]).unwrap_err();
        assert!(
            twice.contains("--vfio 0000:00:03.0 is given twice"),
            "{twice}"
        );
        for gpu in ["vfio:00:03.0", "vfio:0000:00:03.0,bar=2"] {
            let both = chosen(&["--vfio", "00:03.0", "--gpu", gpu]).unwrap_err();
            assert!(both.contains("by --vfio and by --gpu"), "{both}");
        }
        assert!(chosen(&["--vfio", "00:03.0", "--gpu", "vfio:00:04.0"]).is_ok());
        let mistyped = chosen(&["--vfio", "edu"]).unwrap_err();
        assert!(
            mistyped.contains("invalid value edu for --vfio") && mistyped.contains("lspci -D"),
            "{mistyped}"
        );
    }
}
