//! The options of `--gpu vfio`.

use causeway_backend_options::{Key, OptionError, Value};
use causeway_host_vfio::{Address, BARS};

/// The options of this back end, as `--gpu vfio:ADDRESS,KEY=VALUE,…` sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// PCI address of the device, which must be bound to the driver vfio-pci.
    pub address: Address,
    /// Number of the BAR whose memory is partitioned. `None` means the largest BAR of prefetchable
    /// memory.
    pub bar: Option<u8>,
}

impl causeway_backend_options::Options for Options {
    const BACK_END: &'static str = "vfio";
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "bar",
        values: "N",
        about: "number of the BAR whose memory is partitioned; default: the largest that is \
                prefetchable",
        set: |options, value| {
            options.bar = Some(value.number(0..=u32::from(BARS - 1))? as u8);
            Ok(())
        },
    }];

    fn new(device: Option<&str>) -> Result<Self, OptionError> {
        let value = Value::device(Self::BACK_END, device.unwrap_or_default());
        let address = value.parse(
            "a PCI device such as vfio:0000:00:03.0, as `lspci -D` names it; \
             `causeway doctor` lists the devices that can be partitioned",
        )?;
        Ok(Self { address, bar: None })
    }
}
