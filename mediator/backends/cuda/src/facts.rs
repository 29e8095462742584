//! What the driver tells about the GPU, for guests.

use causeway_mediator::backend::{Attributes, DeviceFacts};
use causeway_protocol::message::DEVICE_ATTRIBUTES;

use crate::config::Fabric;
use crate::gpu::Gpu;

/// Numbers of `CUdevice_attribute`.
mod attribute {
    pub(super) const MULTIPROCESSORS: usize = 16;
    pub(super) const PCI_BUS: usize = 33;
    pub(super) const PCI_DEVICE: usize = 34;
    pub(super) const PCI_DOMAIN: usize = 50;
    pub(super) const CAPABILITY_MAJOR: usize = 75;
    pub(super) const CAPABILITY_MINOR: usize = 76;
    pub(super) const FABRIC: usize = 128;
    pub(super) const MULTICAST: usize = 132;
}

/// Asks the driver for all that it tells about `gpu`, whose limits for guests are `attributes`.
pub(crate) fn of(gpu: &Gpu, attributes: &Attributes) -> DeviceFacts {
    let device = gpu.device;
    let mut facts = DeviceFacts {
        name: device.name().unwrap_or_else(|_| attributes.name.clone()),
        uuid: device.uuid().unwrap_or_default(),
        cuda_version: u32::try_from(gpu.home.driver().version()).unwrap_or(0),
        ..DeviceFacts::of(attributes)
    };
    for number in 1..=DEVICE_ATTRIBUTES {
        // An attribute that this driver does not know is an error.
        facts.attributes[number - 1] = device.attribute(number as u32).ok();
    }
    let count = |number: usize| {
        let value = facts.attributes[number - 1].unwrap_or(0);
        u32::try_from(value).unwrap_or(0)
    };
    facts.pci = [
        attribute::PCI_DOMAIN,
        attribute::PCI_BUS,
        attribute::PCI_DEVICE,
    ]
    .map(count);
    facts.capability = [attribute::CAPABILITY_MAJOR, attribute::CAPABILITY_MINOR].map(count);
    // Guests may have a part of the GPU.
    let multiprocessors = i32::try_from(gpu.multiprocessors).unwrap_or(i32::MAX);
    facts.set(attribute::MULTIPROCESSORS, multiprocessors);
    let has_fabric = gpu.config.fabric != Fabric::default();
    facts.set(attribute::FABRIC, i32::from(has_fabric));
    // Guests make no objects that belong to several GPUs (docs/decisions/0038-fabric-handles.md).
    facts.set(attribute::MULTICAST, 0);
    facts
}
