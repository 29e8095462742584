//! A finding about a property of the host.

use serde::Serialize;

/// Whether the host has the property that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The host has the property.
    Yes,
    /// The host has the property, with a drawback.
    Partly,
    /// The host does not have the property.
    No,
}

/// What a check found out about one property of the host.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Name of the property.
    pub name: &'static str,
    /// Whether the host has the property.
    pub state: State,
    /// What was observed, with figures.
    pub found: String,
    /// What follows for the use of Causeway.
    pub means: String,
    /// How to enable or improve the property, unless nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

impl Check {
    /// Returns a finding that the host has property `name`, by the observation `found` and with the
    /// consequence `means`.
    pub fn yes(name: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Yes,
            found: found.into(),
            means: means.into(),
            how: None,
        }
    }

    /// Returns a finding that the host has property `name` with a drawback. `how` says what the user
    /// can do.
    pub fn partly(
        name: &'static str,
        found: impl Into<String>,
        means: &str,
        how: impl Into<String>,
    ) -> Self {
        let (state, how) = (State::Partly, Some(how.into()));
        Self {
            state,
            how,
            ..Self::yes(name, found, means)
        }
    }

    /// Returns a finding that the host does not have property `name`. `how` says what the user can
    /// do.
    pub fn no(
        name: &'static str,
        found: impl Into<String>,
        means: &str,
        how: impl Into<String>,
    ) -> Self {
        let (state, how) = (State::No, Some(how.into()));
        Self {
            state,
            how,
            ..Self::yes(name, found, means)
        }
    }
}
