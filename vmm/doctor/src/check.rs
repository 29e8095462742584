//! A finding about a property of the host.

use serde::Serialize;

use crate::links::PairLink;

/// Whether the host has the property that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Name of the property.
    pub name: &'static str,
    /// Whether the host has the property.
    pub state: State,
    /// What was observed, with figures.
    pub found: String,
    /// What the observation means for users of Causeway, such as which guests can run.
    pub means: String,
    /// How to enable or improve the property, unless nothing needs to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// What was measured, if the property is of a pair of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairLink>,
}

impl Check {
    /// Returns the finding that the host has property `name`. `found` says what was observed,
    /// `means` what that means for users of Causeway.
    pub fn yes(name: &'static str, found: impl Into<String>, means: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Yes,
            found: found.into(),
            means: means.into(),
            how: None,
            pair: None,
        }
    }

    /// Returns the finding that the host has property `name` with a drawback. `how` says how the
    /// user can remove the drawback.
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

    /// Returns the finding that the host does not have property `name`. `how` says how the user can
    /// enable it.
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
