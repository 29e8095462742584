//! Bodies of requests to the control socket.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::ControlError;

/// The body of `PUT /pause` and `PUT /resume`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Name of the VM; absent for all VMs of the run.
    #[serde(default, deserialize_with = "named")]
    pub vm: Option<String>,
}

/// Reads a name that must be one: a null would mean all VMs.
fn named<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

/// The body of `PUT /stop`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {}

/// The body of `PUT /add-disk`.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct AddDiskRequest {
    /// Name of the VM; absent if the run has one.
    #[serde(default, deserialize_with = "named")]
    pub vm: Option<String>,
    /// Name of the image in the folder of the run, or its path.
    pub image: String,
    /// Whether the guest may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// The body of `PUT /remove-disk`.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RemoveDiskRequest {
    /// Name of the VM; absent if the run has one.
    #[serde(default, deserialize_with = "named")]
    pub vm: Option<String>,
    /// Name of the image in the folder of the run, or its path.
    pub image: String,
}

/// A body, and what users are told that it can be.
pub trait Body: DeserializeOwned {
    /// What can be sent.
    const TAKES: &'static str;
}

impl Body for PauseRequest {
    const TAKES: &'static str = r#"nothing for all VMs, or {"vm": "vm0"} for one"#;
}

impl Body for StopRequest {
    const TAKES: &'static str = "nothing, because `stop` is for the whole run";
}

impl Body for AddDiskRequest {
    const TAKES: &'static str =
        r#"{"image": "work.img"}, and with it "read_only": true or "vm": "vm0" if you want that"#;
}

impl Body for RemoveDiskRequest {
    const TAKES: &'static str = r#"{"image": "work.img"}, and "vm": "vm0" if there are several"#;
}

/// Reads a body. One of no bytes is one without fields.
///
/// # Errors
/// [`ControlError::Malformed`].
pub fn read<T: Body>(body: &[u8]) -> Result<T, ControlError> {
    let body = if body.is_empty() { &b"{}"[..] } else { body };
    // Only an object: an empty list would be read as a structure without its fields.
    let object = serde_json::from_slice::<Map<String, Value>>(body);
    let read = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    read.map_err(|source| ControlError::Malformed {
        takes: T::TAKES,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_a_vm_or_nothing() {
        let vm = |body: &[u8]| read::<PauseRequest>(body).unwrap().vm;
        assert_eq!((vm(b""), vm(b"{}")), (None, None));
        assert_eq!(vm(br#" {"vm": "vm1"} "#).as_deref(), Some("vm1"));
        assert_eq!(read::<StopRequest>(b"{}").unwrap(), StopRequest {});
    }

    #[test]
    fn other_fields_and_types_are_refused_with_what_is_taken() {
        for body in [
            "x",
            "[]x",
            "[]",
            r#"["vm1"]"#,
            "null",
            r#"{"vm":null}"#,
            r#"{"vmm":"vm0"}"#,
            r#"{"vm":1}"#,
            r#"{"vm":"vm0"}{}"#,
            "{",
        ] {
            let error = read::<PauseRequest>(body.as_bytes()).unwrap_err();
            assert!(error.status().starts_with("400"), "{body}");
            let told = error.to_string();
            assert!(told.contains(r#"{"vm": "vm0"} for one"#), "{body}: {told}");
        }
        let told = read::<StopRequest>(br#"{"vm":"vm0"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("unknown field `vm`") && told.contains("whole run"),
            "{told}"
        );
    }
}
