//! `--vfio`: a device that is passed through to the guest, to be measured, too.

use std::sync::Arc;

use causeway_bench_mechanisms::PassthroughDevice;
use causeway_host_vfio::{Address, Host};
use causeway_run::passthrough;

use crate::arguments::ExitsArguments;
use causeway_terminal::{Code, Failure};

/// The device, or why there is none.
#[derive(Default)]
pub struct DeviceChoice {
    /// The device.
    pub device: Option<Arc<PassthroughDevice>>,
    /// Why the one that was asked for is not measured.
    pub refused: Option<String>,
}

/// The address that was typed.
pub fn address(arguments: &ExitsArguments) -> Result<Option<Address>, Failure> {
    let texts = arguments.vfio.as_slice();
    Ok(passthrough::parse(texts)?.pop())
}

/// Looks for the device. One that cannot be had is no error: the others are measured without it.
pub fn find(address: Option<Address>, ram_bytes: u64) -> DeviceChoice {
    let Some(address) = address else {
        return DeviceChoice::default();
    };
    match PassthroughDevice::probe(Host::default(), address, ram_bytes) {
        Ok(device) => DeviceChoice {
            device: Some(Arc::new(device)),
            refused: None,
        },
        Err(error) => DeviceChoice {
            device: None,
            refused: Some(
                Failure::new(
                    Code::Device,
                    format!("--vfio {address} is not available"),
                    error,
                )
                .text(),
            ),
        },
    }
}
