//! Bodies of requests to the control socket.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ControlError;

/// The body of `PUT /pause` and `PUT /resume`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// Name of the VM; absent for all VMs of the run.
    #[serde(default)]
    pub vm: Option<String>,
}

/// The body of `PUT /stop`.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {}

/// A body, and what users are told that it can be.
pub trait Body: Default + DeserializeOwned {
    /// What can be sent.
    const TAKES: &'static str;
}

impl Body for PauseRequest {
    const TAKES: &'static str = r#"nothing for all VMs, or {"vm": "vm0"} for one"#;
}

impl Body for StopRequest {
    const TAKES: &'static str = "nothing, because `stop` is for the whole run";
}

/// Reads a body. One of no bytes is as one without fields.
///
/// # Errors
/// [`ControlError::Malformed`].
pub fn read<T: Body>(body: &[u8]) -> Result<T, ControlError> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|source| ControlError::Malformed {
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
        assert_eq!(
            (vm(b""), vm(b"{}"), vm(br#"{"vm":null}"#)),
            (None, None, None)
        );
        assert_eq!(vm(br#" {"vm": "vm1"} "#).as_deref(), Some("vm1"));
        assert_eq!(read::<StopRequest>(b"{}").unwrap(), StopRequest {});
    }

    #[test]
    fn other_fields_and_types_are_refused_with_what_is_taken() {
        for body in [
            "x",
            "[]x",
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
