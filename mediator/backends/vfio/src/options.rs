//! The options of `--gpu vfio`.

use causeway_backend_options::{Key, OptionError, Value};
use causeway_host_vfio::{Address, BARS};

/// What `--gpu vfio:BDF` and its own keys say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The PCI function, bound to vfio-pci.
    pub address: Address,
    /// The BAR whose memory is partitioned; the largest of prefetchable memory if not given.
    pub bar: Option<u8>,
}

impl causeway_backend_options::Options for Options {
    const BACK_END: &'static str = "vfio";
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "bar",
        values: "N",
        about: "BAR whose memory is partitioned; default: the largest that is prefetchable",
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
