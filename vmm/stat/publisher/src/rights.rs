//! Rights to memory between guests, as snapshots and reports have them.

use causeway_mediator::rights;
use causeway_protocol::Access;
use serde::{Deserialize, Serialize};

/// The rights to memory that a guest, on one of its GPUs, has given to others and has of others.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rights {
    /// What its exports give, by GPU and right.
    pub given: Vec<Given>,
    /// What its imports have, by GPU and right.
    pub held: Vec<Held>,
}

/// What exports of a guest give to guests on one GPU.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Given {
    /// Number of the GPU whose guests may import the memory.
    pub gpu: u32,
    /// The widest right that they can have.
    pub access: Right,
    /// Number of exports.
    pub exports: u64,
    /// Memory behind them, in bytes. Memory with several exports counts for each.
    pub bytes: u64,
    /// Imports by guests on this GPU.
    pub imports: u64,
}

/// What a guest has of others by its imports.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    /// Number of the GPU that has the memory.
    pub gpu: u32,
    /// The widest right that the exports give.
    pub access: Right,
    /// Number of imports.
    pub imports: u64,
    /// Memory behind them, in bytes. Memory that is imported several times counts for each.
    pub bytes: u64,
}

/// How many exports or imports a guest has made over its life, with one right for, or of, one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RightCount {
    /// Number of the GPU.
    pub gpu: u32,
    /// The widest right of the exports.
    pub access: Right,
    /// Number of exports or imports.
    pub count: u64,
    /// Their memory in bytes, added up.
    pub bytes: u64,
}

/// A right to memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// None.
    None,
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Right {
    /// Returns the right as reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::ReadWrite => "read-write",
        }
    }
}

impl From<&rights::RightCount> for RightCount {
    fn from(of: &rights::RightCount) -> Self {
        Self {
            gpu: of.gpu,
            access: of.access.into(),
            count: of.count,
            bytes: of.bytes,
        }
    }
}

impl From<Access> for Right {
    fn from(access: Access) -> Self {
        match access {
            Access::None => Self::None,
            Access::Read => Self::Read,
            Access::ReadWrite => Self::ReadWrite,
        }
    }
}

impl From<&rights::Rights> for Rights {
    fn from(rights: &rights::Rights) -> Self {
        let given = rights.given.iter().map(|given| Given {
            gpu: given.gpu,
            access: given.access.into(),
            exports: given.exports,
            bytes: given.bytes,
            imports: given.imports,
        });
        let held = rights.held.iter().map(|held| Held {
            gpu: held.gpu,
            access: held.access.into(),
            imports: held.imports,
            bytes: held.bytes,
        });
        Self {
            given: given.collect(),
            held: held.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_have_the_documented_names() {
        let rights = Rights {
            given: vec![Given {
                gpu: 1,
                access: Right::ReadWrite,
                exports: 2,
                bytes: 8192,
                imports: 3,
            }],
            held: Vec::new(),
        };
        let text = serde_json::to_string(&rights).unwrap();
        let given = r#"{"gpu":1,"access":"read-write","exports":2,"bytes":8192,"imports":3}"#;
        let wanted = format!(r#"{{"given":[{given}],"held":[]}}"#);
        assert_eq!(text, wanted);
        assert_eq!(serde_json::from_str::<Rights>(&text).unwrap(), rights);
        for right in [Right::None, Right::Read, Right::ReadWrite] {
            let name = serde_json::to_value(right).unwrap();
            assert_eq!(name, right.name());
        }
    }
}
