//! A property of the host that was tried.

use serde::Serialize;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There, and it works.
    Yes,
    /// There, with a drawback.
    Partly,
    /// Not there.
    No,
}

/// One finding.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was tried.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// What was seen, with figures.
    pub found: String,
    /// What it means for Causeway.
    pub means: String,
    /// How to get it or to improve it, if something can be done.
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
