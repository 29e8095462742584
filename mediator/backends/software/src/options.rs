//! The options of `--gpu software`.

use causeway_backend_options::{Key, OptionError, Value};

use crate::backend::{Config, Engine};
use crate::compile;
use crate::isa::Isa;

/// The keys of `--gpu software,…` that only this back end accepts, as the user set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Number of CPU cores that execute kernels; `None` stands for all that the process may use.
    pub cores: Option<usize>,
    /// Number of the device, from 0. Devices with different numbers have separate memory.
    pub device: u32,
    /// Whether no other device can be a peer of this one.
    pub apart: bool,
    /// What executes kernels.
    pub engine: Engine,
}

/// Most devices of one host.
const DEVICES: u32 = 64;

impl Options {
    /// Returns the configuration of a back end with these options and `memory_bytes` bytes of
    /// device memory.
    pub fn config(&self, memory_bytes: u64) -> Config {
        Config {
            memory_bytes,
            cores: self.cores,
            device: self.device,
            engine: self.engine,
            ..Config::default()
        }
    }

    /// Returns whether the back end makes machine code on this host, which its process must be
    /// allowed to map.
    pub fn makes_code(&self) -> bool {
        self.engine == Engine::Compiled && compile::is_possible(Isa::detect())
    }
}

impl causeway_backend_options::Options for Options {
    const BACK_END: &'static str = "software";
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "cores",
            values: "N",
            about: "number of CPU cores that execute GPU kernels of all VMs; default: all",
            set: |options, value| {
                options.cores = Some(value.number(1..=1024)? as usize);
                Ok(())
            },
        },
        Key {
            name: "engine",
            values: "interpreter|compiled",
            about: "what executes kernels: the interpreter alone, or machine code for runs of \
                    arithmetic and the interpreter for the rest (needs AVX2 and FMA; the code \
                    counts towards memory= and allocations=); default: interpreter",
            set: |options, value| {
                options.engine = value.choice(&[
                    ("interpreter", Engine::Interpreter),
                    ("compiled", Engine::Compiled),
                ])?;
                Ok(())
            },
        },
        Key {
            name: "peers",
            values: "yes|no",
            about: "whether kernels of other devices of the VM may reach its memory, and its \
                    kernels theirs, or copies only; default: yes",
            set: |options, value| {
                options.apart = value.choice(&[("yes", false), ("no", true)])?;
                Ok(())
            },
        },
    ];

    fn new(device: Option<&str>) -> Result<Self, OptionError> {
        let number = device.map(|text| Value::device(Self::BACK_END, text).number(0..=DEVICES - 1));
        Ok(Self {
            device: number.transpose()?.unwrap_or(0),
            ..Self::default()
        })
    }
}
