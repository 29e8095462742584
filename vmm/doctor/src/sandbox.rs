//! Findings about the mechanisms by which worker processes are confined.

use causeway_sandbox::{Mechanism, Missing, trials};

use crate::check::Check;

const NAME: &str = "sandbox";

/// Tries every mechanism by which worker processes are confined, each in a process of its own, and
/// returns the finding.
pub fn findings() -> Vec<Check> {
    vec![finding(&trials())]
}

fn finding(missing: &[Missing]) -> Check {
    if missing.is_empty() {
        let names = Mechanism::ALL.map(Mechanism::name).join(", ");
        let means = "worker processes (--gpu cuda, isolation=process) are confined";
        return Check::yes(NAME, names, means);
    }
    let found: Vec<_> = missing.iter().map(|it| format!("no {it}")).collect();
    let mut ways_out: Vec<_> = missing.iter().map(|it| it.mechanism.way_out()).collect();
    ways_out.dedup();
    let (found, how) = (found.join(", "), ways_out.join("; "));
    if missing.len() == Mechanism::ALL.len() {
        let means = "worker processes are not confined; --sandbox strict refuses to start them";
        return Check::no(NAME, found, means, how);
    }
    let means = match missing.iter().any(|it| it.mechanism.is_essential()) {
        true => {
            "worker processes are confined by the other mechanisms only, and one that its guest \
             controls can do more; --sandbox strict refuses to start them"
        }
        false => {
            "worker processes are confined by the other mechanisms; --sandbox strict refuses to \
             start them"
        }
    };
    Check::partly(NAME, found, means, how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;

    #[test]
    fn what_is_missing_is_named_with_the_kernels_word_and_the_way_out() {
        let missing = |mechanism| Missing {
            mechanism,
            source: std::io::Error::from_raw_os_error(1),
        };
        assert_eq!(finding(&[]).state, State::Yes);
        let some = finding(&[missing(Mechanism::UserNamespace)]);
        assert_eq!(some.state, State::Partly);
        assert!(
            some.found
                .contains("no user namespace (Operation not permitted")
        );
        assert!(some.how.unwrap().contains("max_user_namespaces"));
        let all = finding(&Mechanism::ALL.map(missing));
        assert_eq!(all.state, State::No);
    }
}
