//! Limits of running guests, which `causeway limit` shows and changes: the bodies of `GET /limits`
//! and `PUT /limits`.

mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_mediator::{GuestSession, InForce, LimitChange, LimitError, Quota};
use serde::{Deserialize, Serialize};

use crate::snapshot::make_printable;
pub use keys::{KEYS, KeyError, LimitKey, help, names, read};

/// Name and version of the format of [`Limits`].
pub const SCHEMA: &str = "causeway.limits/1";

/// A request to change limits: the body of `PUT /limits`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRequest {
    /// Name of the guest; absent for all guests of the process.
    #[serde(default)]
    pub guest: Option<String>,
    /// The new limits by the names in [`KEYS`], as users type them.
    pub limits: BTreeMap<String, String>,
}

/// The limits of guests: the answer to both requests. That to a change has only the guests whose
/// limits have changed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Name and version of this format: always [`SCHEMA`].
    pub schema: String,
    /// Process ID of the process that runs the guests.
    pub pid: u32,
    /// The guests that run.
    pub guests: Vec<GuestLimits>,
    /// What the process could run out of with limits that were changed, as text for people; absent
    /// if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The limits of a guest.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct GuestLimits {
    /// Name of the guest.
    pub guest: String,
    /// Its limits by the names in [`KEYS`], as users type them.
    pub limits: BTreeMap<String, String>,
    /// Whether the guest's worker process has not confirmed them yet, because it does not answer.
    pub is_late: bool,
}

/// A guest that runs, with its session.
pub struct LimitedGuest {
    /// Name of the guest.
    pub name: String,
    /// Its session, whose limits can change.
    pub session: Arc<dyn GuestSession>,
}

causeway_vmm::debug_by_name!(LimitedGuest);

/// Why limits are not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The body is not a [`ChangeRequest`].
    #[error("this is not a change of limits: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A key or a value is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The request names no limit.
    #[error("nothing to change: name a limit, such as memory=2GiB")]
    Empty,
    /// The process has no guest that runs.
    #[error("nothing to change: process {pid} has no guest that runs")]
    NoGuests {
        /// Process ID of this process.
        pid: u32,
    },
    /// No guest that runs has this name.
    #[error(
        "process {pid} has no guest {name} that runs: it has {known}",
        known = .known.join(", ")
    )]
    UnknownGuest {
        /// Process ID of this process.
        pid: u32,
        /// Name that was asked for.
        name: String,
        /// Names of the guests that run.
        known: Vec<String>,
    },
    /// A guest cannot have these limits.
    #[error("no limit was changed, because of {name}: {reason}")]
    Refused {
        /// Name of the guest.
        name: String,
        /// Why not.
        reason: LimitError,
    },
}

impl Limits {
    /// Returns the present limits of `guests`, which are those of this process that run.
    pub fn of(guests: &[LimitedGuest]) -> Self {
        let present = |guest| GuestLimits::of(guest, false);
        Self::with(guests.iter().map(present).collect())
    }

    /// Makes the change that `body`, a [`ChangeRequest`] in JSON, asks for: to one of `guests` or
    /// to all of them. Returns the new limits of these guests.
    ///
    /// # Errors
    /// [`ChangeError`] says why not; then no guest has other limits than before.
    pub fn change(guests: &[LimitedGuest], body: &[u8]) -> Result<Self, ChangeError> {
        let request: ChangeRequest = serde_json::from_slice(body)?;
        if request.limits.is_empty() {
            return Err(ChangeError::Empty);
        }
        let change = read(&request.limits)?;
        let wanted = chosen(guests, request.guest.as_deref())?;
        for guest in &wanted {
            let checked = guest.session.check_limits(&change);
            checked.map_err(|reason| guest.refused(reason))?;
        }
        let changed = wanted.into_iter().map(|guest| guest.change(&change));
        let changed = changed.collect::<Result<_, _>>()?;
        Ok(Self::with(changed))
    }

    fn with(guests: Vec<GuestLimits>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            pid: std::process::id(),
            guests,
            warning: None,
        }
    }

    /// Returns the limits with every character other than printable ASCII replaced by `?`. Other
    /// users' processes are not trusted.
    #[must_use]
    pub fn printable(mut self) -> Self {
        for guest in &mut self.guests {
            make_printable(&mut guest.guest);
            guest.limits.values_mut().for_each(make_printable);
        }
        self.warning.iter_mut().for_each(make_printable);
        self
    }
}

/// Returns the guest with this name, or all.
fn chosen<'g>(
    guests: &'g [LimitedGuest],
    name: Option<&str>,
) -> Result<Vec<&'g LimitedGuest>, ChangeError> {
    let pid = std::process::id();
    if guests.is_empty() {
        return Err(ChangeError::NoGuests { pid });
    }
    let is_chosen = |guest: &&LimitedGuest| name.is_none_or(|name| name == guest.name);
    let chosen: Vec<_> = guests.iter().filter(is_chosen).collect();
    match name {
        Some(name) if chosen.is_empty() => Err(ChangeError::UnknownGuest {
            pid,
            name: name.to_owned(),
            known: guests.iter().map(|guest| guest.name.clone()).collect(),
        }),
        _ => Ok(chosen),
    }
}

impl From<(String, Arc<dyn GuestSession>)> for LimitedGuest {
    fn from((name, session): (String, Arc<dyn GuestSession>)) -> Self {
        Self { name, session }
    }
}

impl LimitedGuest {
    fn change(&self, change: &LimitChange) -> Result<GuestLimits, ChangeError> {
        let told = self.session.set_limits(change);
        let told = told.map_err(|reason| self.refused(reason))?;
        let limits = GuestLimits::of(self, told == InForce::Later);
        log::info!("the limits of {} are now {}", self.name, limits.text());
        Ok(limits)
    }

    fn refused(&self, reason: LimitError) -> ChangeError {
        let name = self.name.clone();
        ChangeError::Refused { name, reason }
    }
}

impl GuestLimits {
    fn of(guest: &LimitedGuest, is_late: bool) -> Self {
        let quota = guest.session.limits();
        // No guest can have more than there is.
        let has_bytes = guest.session.attributes().memory_bytes;
        let memory_bytes = quota.memory_bytes.min(has_bytes);
        Self {
            guest: guest.name.clone(),
            limits: keys::shown(&Quota {
                memory_bytes,
                ..quota
            }),
            is_late,
        }
    }

    /// Returns the limits in a line, as users type them.
    fn text(&self) -> String {
        let pairs = self.limits.iter();
        let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests;
