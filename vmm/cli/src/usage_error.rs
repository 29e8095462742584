//! Mistakes on the command line, in the form of the command's other messages: one line that names
//! the value, says what is wrong, and then the way out.

use std::error::Error as _;

use causeway_terminal::Failure;
use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns the usage failure for `error`, which must not be a request for help or the version.
pub fn failure(error: &Error) -> Failure {
    Failure::usage(message(error))
}

fn message(error: &Error) -> String {
    let option = option_name(&text(error, ContextKind::InvalidArg));
    let value = shown(&text(error, ContextKind::InvalidValue));
    match error.kind() {
        ErrorKind::InvalidValue if value == "``" => format!("{option} needs a value{}", or(error)),
        ErrorKind::InvalidValue => format!("invalid value {value} for {option}{}", or(error)),
        ErrorKind::ValueValidation => {
            let why = error.source().map(|cause| format!(": {cause}"));
            let why = why.unwrap_or_default();
            format!("invalid value {value} for {option}{why}")
        }
        ErrorKind::UnknownArgument => unknown(error, &option),
        ErrorKind::InvalidSubcommand => {
            let name = text(error, ContextKind::InvalidSubcommand);
            format!(
                "unknown command {}{}",
                shown(&name),
                way_out(error, "commands")
            )
        }
        ErrorKind::ArgumentConflict => conflict(error, &option),
        ErrorKind::MissingRequiredArgument => {
            let missing = texts(error, ContextKind::InvalidArg).join(" and ");
            format!("{missing} is missing{}", way_out(error, "options"))
        }
        _ => {
            let all = error.to_string();
            let first = all.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

fn unknown(error: &Error, argument: &str) -> String {
    let what = if argument.starts_with('-') {
        "unknown option"
    } else {
        "unexpected argument"
    };
    format!("{what} {}{}", shown(argument), way_out(error, "options"))
}

fn conflict(error: &Error, option: &str) -> String {
    let others = texts(error, ContextKind::PriorArg);
    let others: Vec<String> = others.iter().map(|other| option_name(other)).collect();
    match &others[..] {
        [] => format!("{option} cannot be used with other options"),
        [same] if same == option => format!("{option} is given more than once"),
        others => format!("{option} cannot be used with {}", others.join(", ")),
    }
}

/// Returns the end of a message that names the similar option or command, or else where all are
/// listed. `what` is what the help lists.
fn way_out(error: &Error, what: &str) -> String {
    let similar = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let similar: Vec<String> = similar.into_iter().flat_map(|k| texts(error, k)).collect();
    // The parser sorts them: the last one is the most similar.
    if let Some(similar) = similar.last() {
        return format!(": did you mean {similar}?");
    }
    format!(": `{} --help` lists the {what}", command(error))
}

/// Returns the command and subcommand that were typed, such as `causeway run`, from the usage line.
fn command(error: &Error) -> String {
    let usage = text(error, ContextKind::Usage);
    let words = usage
        .split_whitespace()
        .skip_while(|word| *word == "Usage:");
    let name = words.take_while(|word| word.starts_with(char::is_alphabetic));
    let name = name.collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        "causeway".into()
    } else {
        name
    }
}

/// Returns the end of a message that lists the valid values, if they are words.
fn or(error: &Error) -> String {
    let words = texts(error, ContextKind::ValidValue);
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => format!(": choose {only}"),
        Some((last, others)) => format!(": choose {} or {last}", others.join(", ")),
    }
}

fn text(error: &Error, kind: ContextKind) -> String {
    texts(error, kind).into_iter().next().unwrap_or_default()
}

fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::StyledStrs(texts)) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Returns `--memory` for `--memory <SIZE>`, and `PID` for `[PID]` or `<PID>`.
fn option_name(shown: &str) -> String {
    let name = match shown.split_once(' ') {
        Some((name, _)) if shown.starts_with('-') => name,
        _ => shown,
    };
    name.trim_matches(['[', ']', '<', '>']).to_owned()
}

/// Returns a value as messages show it: an empty one in quotes.
fn shown(value: &str) -> String {
    if value.is_empty() {
        "``".into()
    } else {
        value.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::message;
    use crate::arguments::Arguments;

    fn refused(words: &[&str]) -> String {
        let words = ["causeway"].iter().chain(words);
        message(&Arguments::try_parse_words(words).unwrap_err())
    }

    #[test]
    fn every_mistake_is_one_line_with_the_value_and_the_way_out() {
        for (words, line) in [
            (
                &["run", "--vcpus", "-1"][..],
                "invalid value -1 for --vcpus: choose 1 to 64",
            ),
            (
                &["run", "--vms="],
                "invalid value `` for --vms: choose 1 to 64",
            ),
            (&["run", "--vms"], "--vms needs a value"),
            (
                &["run", "--vms", "1", "--vms", "2"],
                "--vms is given more than once",
            ),
            (
                &["run", "--boot", "grub"],
                "invalid value grub for --boot: choose bare, bzimage, linux64 or pvh",
            ),
            (
                &["run", "--wombat", "11"],
                "unknown option --wombat: `causeway run --help` lists the options",
            ),
            (
                &["run", "--memor", "1"],
                "unknown option --memor: did you mean --memory?",
            ),
            (
                &["run", "stray"],
                "unexpected argument stray: `causeway run --help` lists the options",
            ),
            (
                &["walk"],
                "unknown command walk: `causeway --help` lists the commands",
            ),
            (&["dcotor"], "unknown command dcotor: did you mean doctor?"),
            (
                &["man"],
                "<DIRECTORY> is missing: `causeway man --help` lists the options",
            ),
            (&["stat", "1", "--all"], "PID cannot be used with --all"),
            (
                &["limit"],
                "<PID> is missing: `causeway limit --help` lists the options",
            ),
            (
                &["limit", "-7"],
                "invalid value -7 for PID: choose a process ID, or one with a guest",
            ),
            (
                &["limit", "7/"],
                "invalid value 7/ for PID: choose a process ID, or one with a guest",
            ),
            (
                &["limit", "7", "--memory", "1"],
                "unknown option --memory: `causeway limit --help` lists the options",
            ),
            (
                &["stat", "-7"],
                "invalid value -7 for PID: choose a whole number from 1",
            ),
        ] {
            let message = refused(words);
            assert!(message.starts_with(line), "{words:?}: {message}");
            assert!(!message.contains('\n') && message.len() < 200, "{message}");
        }
    }

    #[test]
    fn sizes_may_be_negative_only_in_messages() {
        for value in ["-5", "-5G", "lots"] {
            for command in [&["run"][..], &["bench", "gpu"], &["bench", "exits"]] {
                let message = refused(&[command, &["--memory", value]].concat());
                let wanted = format!("invalid value {value} for --memory: choose a size");
                assert!(message.starts_with(&wanted), "{message}");
            }
        }
    }
}
