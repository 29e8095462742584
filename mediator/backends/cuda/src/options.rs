//! The options of `--gpu cuda`.

use causeway_backend_options::{Key, OptionError, Value};

use crate::config::{Config, Sms, Visible};

/// What `--gpu cuda[:N]` and its own keys say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of the GPU, as `nvidia-smi` counts.
    pub device: u32,
    /// Multiprocessors of each VM; all, shared, if not given.
    pub sms: Option<u32>,
    /// Whether each launch goes to the driver by itself.
    pub single_launches: bool,
    /// Whether each address space has a context of its own.
    pub context_per_space: bool,
}

impl Options {
    /// Returns the configuration of the back end for VM number `vm`, from 0.
    pub fn config(&self, memory_bytes: u64, vm: u32, visible: Option<Visible>) -> Config {
        Config {
            device: self.device,
            memory_bytes: Some(memory_bytes),
            sms: self.sms.map(|count| Sms { count, group: vm }),
            visible,
            single_launches: self.single_launches,
            context_per_space: self.context_per_space,
            ..Config::default()
        }
    }
}

impl causeway_backend_options::Options for Options {
    const BACK_END: &'static str = "cuda";
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "sms",
            values: "N",
            about: "multiprocessors of each VM, rounded up as the GPU requires; default: all, shared",
            set: |options, value| {
                options.sms = Some(value.number(1..=1024)?);
                Ok(())
            },
        },
        Key {
            name: "launches",
            values: "gathered|single",
            about: "whether launches that wait go to the driver as one graph; default: gathered",
            set: |options, value| {
                options.single_launches = value.choice(&[("gathered", false), ("single", true)])?;
                Ok(())
            },
        },
        Key {
            name: "contexts",
            values: "one|each",
            about: "one context for all address spaces of a VM, or one for each; default: one",
            set: |options, value| {
                options.context_per_space = value.choice(&[("one", false), ("each", true)])?;
                Ok(())
            },
        },
    ];

    fn new(device: Option<&str>) -> Result<Self, OptionError> {
        let device = device.map(|text| Value::device(Self::BACK_END, text).number(0..=255));
        Ok(Self {
            device: device.transpose()?.unwrap_or(0),
            ..Self::default()
        })
    }
}
