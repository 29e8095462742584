//! What the host lacks to confine workers, which users are told once.

use std::sync::atomic::{AtomicU32, Ordering};

use causeway_sandbox::Mechanism;

use crate::wire::lacking;

/// The mechanisms that users were told of, one bit each.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Logs which mechanisms a worker lacks, as it says itself; those that were logged before are left
/// out. A warning if the worker can do much more without one than with it.
pub(super) fn tell(mechanisms: u32) {
    let told = TOLD.fetch_or(mechanisms, Ordering::Relaxed);
    let new: Vec<_> = lacking(mechanisms & !told).collect();
    if new.is_empty() {
        return;
    }
    let is_essential = new.iter().any(|mechanism| mechanism.is_essential());
    let level = match is_essential {
        true => log::Level::Warn,
        false => log::Level::Info,
    };
    log::log!(level, "{}", text(&new));
}

fn text(mechanisms: &[Mechanism]) -> String {
    let names: Vec<_> = mechanisms.iter().map(|it| it.name()).collect();
    format!(
        "worker processes are confined without {}, which this host lacks: `causeway doctor` says \
         why, and what would help",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let text = text(&[Mechanism::UserNamespace, Mechanism::Files]);
        assert!(
            text.contains("without user namespace, Landlock, which"),
            "{text}"
        );
    }

    #[test]
    fn bits_that_mean_nothing_are_ignored() {
        assert_eq!(lacking(u32::MAX).count(), Mechanism::ALL.len());
        tell(1 << 31);
    }
}
