//! `--vfio`: the device that the benchmark passes through to the guest and measures.

use std::sync::Arc;

use causeway_bench_mechanisms::PassthroughDevice;
use causeway_host_vfio::{Address, Host};
use causeway_run::passthrough;

use crate::arguments::ExitsArguments;
use causeway_terminal::{Code, Failure};

/// The device of `--vfio`, or the reason why it is not measured. Both are absent without `--vfio`.
#[derive(Default)]
pub struct DeviceChoice {
    /// The device to measure.
    pub device: Option<Arc<PassthroughDevice>>,
    /// Why the device of `--vfio` is not measured, as text for people.
    pub refused: Option<String>,
}

/// Returns the PCI address that `--vfio` names, if it is given.
///
/// # Errors
/// A usage failure if the value is no PCI address.
pub fn address(arguments: &ExitsArguments) -> Result<Option<Address>, Failure> {
    let texts = arguments.vfio.as_slice();
    Ok(passthrough::parse(texts)?.pop())
}

/// Opens the device at `address`, which is passed through to a VM with `ram_bytes` bytes of RAM. If
/// the device is not available, the result has the reason, and the benchmark measures the other
/// mechanisms.
pub fn find(address: Option<Address>, ram_bytes: u64) -> DeviceChoice {
    let Some(address) = address else {
        return DeviceChoice::default();
    };
    match PassthroughDevice::probe(Host::default(), address, ram_bytes) {
        Ok(device) => DeviceChoice {
            device: Some(Arc::new(device)),
            refused: None,
        },
        Err(error) => {
            let message = format!("--vfio {address} is not available");
            DeviceChoice {
                device: None,
                refused: Some(Failure::new(Code::Device, message, error).text()),
            }
        }
    }
}
