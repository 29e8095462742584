//! The options of `--gpu cuda`.

use causeway_backend_options::{Key, OptionError, Value};

use crate::config::{Config, Fabric, Sms, Visible};

/// The options of this back end, as `--gpu cuda[:N],KEY=VALUE,…` sets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of the GPU, from 0, as `nvidia-smi` counts.
    pub device: u32,
    /// Number of multiprocessors for each VM, rounded up to one that the GPU can split off. `None`
    /// means that all VMs share all multiprocessors.
    pub sms: Option<u32>,
    /// Whether each launch of a kernel is a driver call of its own. Otherwise, many waiting
    /// launches go to the driver together as one graph.
    pub single_launches: bool,
    /// Whether each address space has a CUDA context of its own. Otherwise, all address spaces of a
    /// VM share one context.
    pub context_per_space: bool,
    /// What guests may do with fabric handles.
    pub fabric: Fabric,
    /// Whether no other GPU shall be a peer of this one, whatever the driver says.
    pub apart: bool,
}

/// The values of `fabric=`.
const FABRIC: [(&str, Fabric); 4] = [
    ("no", fabric(false, false)),
    ("export", fabric(true, false)),
    ("import", fabric(false, true)),
    ("both", fabric(true, true)),
];

const fn fabric(export: bool, import: bool) -> Fabric {
    Fabric { export, import }
}

impl Options {
    /// Returns the configuration with these options for a session. If `sms` is set, the session
    /// gets the multiprocessors of group number `group`, counted from 0. It may allocate
    /// `memory_bytes` bytes of GPU memory. `visible` is the function that makes GPU memory visible
    /// to CPUs; without it, such memory is refused.
    pub fn config(&self, memory_bytes: u64, group: u32, visible: Option<Visible>) -> Config {
        Config {
            device: self.device,
            memory_bytes: Some(memory_bytes),
            sms: self.sms.map(|count| Sms { count, group }),
            visible,
            single_launches: self.single_launches,
            context_per_space: self.context_per_space,
            fabric: self.fabric,
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
            about: "multiprocessors for each VM or process, rounded up to what the GPU can split \
                    off; default: all share all multiprocessors",
            set: |options, value| {
                options.sms = Some(value.number(1..=1024)?);
                Ok(())
            },
        },
        Key {
            name: "launches",
            values: "gathered|single",
            about: "hand waiting kernel launches to the driver together as one graph, or one by \
                    one; default: gathered",
            set: |options, value| {
                options.single_launches = value.choice(&[("gathered", false), ("single", true)])?;
                Ok(())
            },
        },
        Key {
            name: "contexts",
            values: "one|each",
            about: "one CUDA context for all address spaces of a VM, or one for each; default: one",
            set: |options, value| {
                options.context_per_space = value.choice(&[("one", false), ("each", true)])?;
                Ok(())
            },
        },
        Key {
            name: "fabric",
            values: "no|export|import|both",
            about: "whether VMs give memory to, and use memory of, other machines of the NVLink \
                    fabric, which nobody takes back (docs/several-gpus.md); default: no",
            set: |options, value| {
                options.fabric = value.choice(&FABRIC)?;
                Ok(())
            },
        },
        Key {
            name: "peers",
            values: "yes|no",
            about: "whether kernels of other GPUs of the run may reach its memory, and its kernels \
                    theirs, where the driver lets them, or copies only; default: yes",
            set: |options, value| {
                options.apart = value.choice(&[("yes", false), ("no", true)])?;
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
