//! A finding about a property of the host.

use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Available.
    Yes,
    /// Available, with a drawback.
    Partly,
    /// Not available.
    No,
}

/// One finding.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Property that was checked.
    pub name: &'static str,
    /// Result.
    pub state: State,
    /// Observation, with figures.
    pub found: String,
    /// Consequence for Causeway.
    pub means: String,
    /// Way to enable or improve the property, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

impl Check {
    pub fn yes(name: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Yes,
            found: found.into(),
            means: means.into(),
            how: None,
        }
    }

    pub fn partly(
        name: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
        how: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state: State::Partly,
            found: found.into(),
            means: means.into(),
            how: Some(how.into()),
        }
    }

    pub fn no(
        name: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
        how: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state: State::No,
            found: found.into(),
            means: means.into(),
            how: Some(how.into()),
        }
    }
}
