//! Arguments of `causeway limit`.

use std::collections::BTreeMap;

use causeway_publisher::limits::{self, ChangeRequest};
use causeway_terminal::Failure;
use clap::Args;

/// Arguments of `causeway limit`, as the user typed them.
#[derive(Debug, Args)]
#[command(
    override_usage = "causeway limit <PID>[/VM] [KEY=VALUE]...",
    after_help = after_help()
)]
pub struct LimitArguments {
    /// Process ID of a `causeway run` or `causeway serve`, for all its guests; with /VM, for one
    /// of them, as in 4711/vm1 or 4711/process1.
    #[arg(value_name = "PID", value_parser = Target::parse)]
    pub target: Target,
    /// New limits. Without any, the present limits are printed.
    #[arg(value_name = "KEY=VALUE")]
    pub pairs: Vec<String>,
}

/// Whose limits are shown or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Process ID of the process that runs the guests.
    pub pid: u32,
    /// Name of the guest; `None` for all guests of the process.
    pub guest: Option<String>,
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        let (pid, guest) = match text.split_once('/') {
            Some((pid, guest)) => (pid, Some(guest.to_owned())),
            None => (text, None),
        };
        // `parse` alone would take a sign, too.
        let is_number = pid.bytes().all(|byte| byte.is_ascii_digit());
        let pid = pid.parse().ok().filter(|pid| is_number && *pid != 0);
        match pid {
            Some(pid) if guest.as_ref().is_none_or(|name| !name.is_empty()) => {
                Ok(Self { pid, guest })
            }
            _ => Err("choose a process ID, or one with a guest, such as 4711/vm1".into()),
        }
    }
}

impl LimitArguments {
    /// Returns the change to ask for; `None` if the user has typed no limit.
    ///
    /// # Errors
    /// A usage failure if a word is not of the form `KEY=VALUE`, a key is unknown or given more
    /// than once, or a value is not valid for its key.
    pub fn change(&self) -> Result<Option<ChangeRequest>, Failure> {
        let mut typed = BTreeMap::new();
        for pair in &self.pairs {
            let (key, value) = pair.split_once('=').ok_or_else(|| form(pair))?;
            if typed.insert(key.to_owned(), value.to_owned()).is_some() {
                let message =
                    format!("the key `{key}` is given more than once: give each key once");
                return Err(Failure::usage(message));
            }
        }
        // The process checks them again. Here the message does not depend on the process.
        limits::read(&typed).map_err(|e| Failure::usage(e.to_string()))?;
        Ok((!typed.is_empty()).then(|| ChangeRequest {
            guest: self.target.guest.clone(),
            limits: typed,
        }))
    }
}

fn form(word: &str) -> Failure {
    let keys = limits::names().join(", ");
    let message = match limits::names().contains(&word) {
        true => format!("the key `{word}` has no value: write {word}=VALUE"),
        false => format!("`{word}` is not of the form KEY=VALUE: the keys are {keys}"),
    };
    Failure::usage(message)
}

fn after_help() -> String {
    format!(
        "Keys:{}\n\nAll limits change, or none. A limit below what is in use takes nothing away: \
         further requests of the guest fail until enough is free.\n\nExamples:\n  \
         causeway limit 4711\n  \
         causeway limit 4711/vm1 weight=200 memory=2GiB share=50\n\n\
         docs/observing.md has the details; `causeway stat --all` shows processes and guests.",
        limits::help()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(pairs: &[&str]) -> Result<Option<ChangeRequest>, String> {
        let arguments = LimitArguments {
            target: Target::parse("4711/vm1").unwrap(),
            pairs: pairs.iter().map(ToString::to_string).collect(),
        };
        arguments.change().map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_target_is_a_process_or_one_of_its_guests() {
        let target = |pid, guest: Option<&str>| Target {
            pid,
            guest: guest.map(str::to_owned),
        };
        assert_eq!(Target::parse("4711"), Ok(target(4711, None)));
        assert_eq!(Target::parse("4711/vm1"), Ok(target(4711, Some("vm1"))));
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "x",
            "/vm1",
            "4711/",
            "4294967296",
            "vm1",
        ] {
            let refused = Target::parse(text).unwrap_err();
            assert!(refused.contains("such as 4711/vm1"), "{text}");
        }
    }

    #[test]
    fn limits_are_passed_on_as_they_are_typed() {
        let wanted = change(&["memory=2GiB", "weight=none"]).unwrap().unwrap();
        assert_eq!(wanted.guest.as_deref(), Some("vm1"));
        assert_eq!(wanted.limits["memory"], "2GiB");
        assert_eq!(wanted.limits["weight"], "none");
        assert_eq!(change(&[]), Ok(None));
    }

    #[test]
    fn every_mistake_is_named() {
        for (pairs, message) in [
            (
                &["memory"][..],
                "the key `memory` has no value: write memory=",
            ),
            (
                &["fast"],
                "`fast` is not of the form KEY=VALUE: the keys are memory, ",
            ),
            (
                &["share=5", "share=6"],
                "the key `share` is given more than once",
            ),
            (&["speed=11"], "unknown key `speed`: the keys are memory, "),
            (&["=1"], "unknown key ``: the keys are memory, "),
            (&["memory="], "invalid value `` for memory: 1 to "),
            (
                &["share=50", "weight=0"],
                "invalid value 0 for weight: 1 to 10000",
            ),
        ] {
            let refused = change(pairs).unwrap_err();
            assert!(refused.starts_with(message), "{refused}");
        }
    }

    #[test]
    fn the_help_has_every_key() {
        let help = after_help();
        for name in limits::names() {
            assert!(help.contains(&format!("\n  {name}=")), "{name}: {help}");
        }
    }
}
