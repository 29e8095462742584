//! The limits that can be changed while guests run, by the names that users type.
//!
//! To add one, add it to the table below. Its value must be in [`LimitChange`].

use std::collections::BTreeMap;

use causeway_backend_options::{Key, OptionError};
use causeway_mediator::{Compute, LimitChange, Quota};

/// A limit that can be changed.
#[derive(Debug)]
pub struct LimitKey {
    /// Name, valid values and help; how a value is read.
    pub key: Key<LimitChange>,
    /// Returns the present value as users type it.
    shown: fn(&Quota) -> String,
}

/// All limits that can be changed, in the order in which they are shown.
pub const KEYS: &[LimitKey] = &[
    LimitKey {
        key: Key {
            name: "memory",
            values: "SIZE",
            about: "GPU memory, in MiB, or with suffix M, G or T; at most what the back end has",
            set: |change, value| {
                change.memory_bytes = Some(value.mebibytes(Quota::MEMORY_MIB)?);
                Ok(())
            },
        },
        shown: |quota| size(quota.memory_bytes),
    },
    LimitKey {
        key: Key {
            name: "allocations",
            values: "N",
            about: "allocations, arrays, imports and registered ranges of guest RAM, 1 to 65536",
            set: |change, value| {
                change.allocations = Some(value.number(Quota::ALLOCATIONS)?.into());
                Ok(())
            },
        },
        shown: |quota| quota.allocations.to_string(),
    },
    LimitKey {
        key: Key {
            name: "queues",
            values: "N",
            about: "command buffers, 1 to 256",
            set: |change, value| {
                change.command_buffers = Some(value.number(Quota::COMMAND_BUFFERS)?.into());
                Ok(())
            },
        },
        shown: |quota| quota.command_buffers.to_string(),
    },
    LimitKey {
        key: Key {
            name: "weight",
            values: "N|none",
            about: "compute time in proportion to that of others with work, 1 to 10000; not \
                    vfio, nor cuda with isolation=none",
            set: |change, value| {
                change.weight = Some(value.number_or_none(Compute::WEIGHTS)?);
                Ok(())
            },
        },
        shown: |quota| {
            let weight = quota.compute.weight;
            weight.map_or_else(|| "none".to_owned(), |weight| weight.to_string())
        },
    },
    LimitKey {
        key: Key {
            name: "share",
            values: "PERCENT",
            about: "most compute time, even if no other guest has work, 1 to 100; 100 is no cap; \
                    where weight= works",
            set: |change, value| {
                let percent = value.number(Compute::SHARES_PERCENT)?;
                change.share_percent = Some(Some(percent).filter(|percent| *percent < 100));
                Ok(())
            },
        },
        shown: |quota| quota.compute.share_percent.unwrap_or(100).to_string(),
    },
    LimitKey {
        key: Key {
            name: "timeout",
            values: "MS|none",
            about: "most time of a kernel or a copy, in milliseconds, 10 to 3600000; only software \
                    with isolation=none",
            set: |change, value| {
                change.work_ms = Some(or_unlimited(value.number_or_none(Quota::WORK_MS)?));
                Ok(())
            },
        },
        shown: |quota| or_none(quota.work_ms),
    },
    LimitKey {
        key: Key {
            name: "requests",
            values: "N|none",
            about: "control messages in a second, 1 to 1000000",
            set: |change, value| {
                change.requests = Some(or_unlimited(value.number_or_none(Quota::REQUESTS)?));
                Ok(())
            },
        },
        shown: |quota| or_none(quota.requests),
    },
];

fn or_unlimited(value: Option<u32>) -> u64 {
    value.map_or(Quota::UNLIMITED, u64::from)
}

fn or_none(value: u64) -> String {
    match value {
        Quota::UNLIMITED => "none".to_owned(),
        limit => limit.to_string(),
    }
}

/// Why limits are refused that somebody typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no such limit.
    #[error("unknown key `{0}`: the keys are {keys}", keys = names().join(", "))]
    Unknown(String),
    /// The value is not valid for its key.
    #[error("invalid value {value} for {key}: {expected}")]
    Value {
        /// Name of the key.
        key: &'static str,
        /// The value as the user typed it.
        value: String,
        /// Which values are valid.
        expected: String,
    },
}

/// Returns the names of all limits that can be changed.
pub fn names() -> Vec<&'static str> {
    KEYS.iter().map(|limit| limit.key.name).collect()
}

/// Returns the help for all limits that can be changed, each in a line after a line break.
pub fn help() -> String {
    causeway_backend_options::help(KEYS.iter().map(|limit| &limit.key))
}

/// Returns the change that sets the limits `typed`, by their names, to values as users type them.
///
/// # Errors
/// [`KeyError`] for the first name that is unknown, or the first value that is not valid.
pub fn read(typed: &BTreeMap<String, String>) -> Result<LimitChange, KeyError> {
    let mut change = LimitChange::default();
    for (name, text) in typed {
        let limit = KEYS.iter().find(|limit| limit.key.name == name);
        let limit = limit.ok_or_else(|| KeyError::Unknown(name.clone()))?;
        limit.key.apply(&mut change, text).map_err(KeyError::from)?;
    }
    Ok(change)
}

/// Returns the present values of all limits that can be changed, by their names.
pub fn shown(quota: &Quota) -> BTreeMap<String, String> {
    let shown = |limit: &LimitKey| (limit.key.name.to_owned(), (limit.shown)(quota));
    KEYS.iter().map(shown).collect()
}

impl From<OptionError> for KeyError {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Value {
                key,
                value,
                expected,
            } => Self::Value {
                key,
                value,
                expected,
            },
            OptionError::Unknown { key, .. } => Self::Unknown(key),
        }
    }
}

/// Returns a number of bytes as `memory=` takes it. What is not a whole number of MiB, as a device
/// may have, is rounded down.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mib if mib != 0 && mib.is_multiple_of(1024) => format!("{}GiB", mib / 1024),
        mib => format!("{mib}MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn every_key_is_read_into_its_limit() {
        let all = [
            ("memory", "2G"),
            ("allocations", "7"),
            ("queues", "8"),
            ("weight", "200"),
            ("share", "50"),
            ("timeout", "250"),
            ("requests", "900"),
        ];
        assert_eq!(all.map(|(name, _)| name).to_vec(), names());
        let change = LimitChange {
            memory_bytes: Some(2 << 30),
            allocations: Some(7),
            command_buffers: Some(8),
            weight: Some(Some(200)),
            share_percent: Some(Some(50)),
            work_ms: Some(250),
            requests: Some(900),
            ..LimitChange::default()
        };
        assert_eq!(read(&typed(&all)), Ok(change));
        let none = LimitChange {
            weight: Some(None),
            share_percent: Some(None),
            work_ms: Some(Quota::UNLIMITED),
            requests: Some(Quota::UNLIMITED),
            ..LimitChange::default()
        };
        let names = ["weight", "share", "timeout", "requests"];
        let free = names.map(|name| match name {
            "share" => (name, "100"),
            _ => (name, "none"),
        });
        let free = typed(&free);
        assert_eq!(read(&free), Ok(none));
        assert_eq!(read(&BTreeMap::new()), Ok(LimitChange::default()));
    }

    #[test]
    fn what_is_shown_can_be_typed_again() {
        let compute = Compute {
            weight: Some(3),
            share_percent: Some(25),
        };
        let set = Quota {
            memory_bytes: 1536 << 20,
            allocations: 5,
            compute,
            work_ms: 100,
            requests: 20,
            ..Quota::default()
        };
        for quota in [set, Quota::default()] {
            let texts = shown(&quota);
            let change = read(&texts).unwrap();
            assert_eq!(change.memory_bytes, Some(quota.memory_bytes));
            assert_eq!(change.allocations, Some(quota.allocations));
            assert_eq!(change.command_buffers, Some(quota.command_buffers));
            assert_eq!(change.weight, Some(quota.compute.weight));
            assert_eq!(change.share_percent, Some(quota.compute.share_percent));
            assert_eq!(change.work_ms, Some(quota.work_ms));
            assert_eq!(change.requests, Some(quota.requests));
        }
        assert_eq!(shown(&set)["memory"], "1536MiB");
        assert_eq!(shown(&Quota::default())["memory"], "1GiB");
    }

    #[test]
    fn every_mistake_names_the_value_and_what_is_valid() {
        for (name, text, message) in [
            ("memory", "0", "invalid value 0 for memory: 1 to 1048576"),
            ("memory", "2GB", "invalid value 2GB for memory: 1 to"),
            ("memory", "2T", "invalid value 2T for memory: 1 to"),
            (
                "allocations",
                "0",
                "invalid value 0 for allocations: 1 to 65536",
            ),
            (
                "allocations",
                "65537",
                "invalid value 65537 for allocations",
            ),
            ("queues", "257", "invalid value 257 for queues: 1 to 256"),
            (
                "weight",
                "0",
                "invalid value 0 for weight: 1 to 10000, or none",
            ),
            ("weight", "10001", "invalid value 10001 for weight"),
            ("weight", "1:2", "invalid value 1:2 for weight"),
            ("share", "0", "invalid value 0 for share: 1 to 100"),
            ("share", "101", "invalid value 101 for share: 1 to 100"),
            ("share", "none", "invalid value none for share"),
            ("share", "", "invalid value `` for share"),
            (
                "colour",
                "red",
                "unknown key `colour`: the keys are memory, allocations, queues, weight, share, \
                 timeout, requests",
            ),
        ] {
            let refused = read(&typed(&[(name, text)])).unwrap_err().to_string();
            assert!(refused.starts_with(message), "{refused}");
        }
    }
}
