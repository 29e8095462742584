//! Keys of description files: the options of `run`, as the parser of the command line describes
//! them. There is no list of keys: an option that is added is a key, too.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, ArgAction, Command};

/// Options that are about description files, which a description file does not have.
pub const CONFIG: &str = "config";
/// See [`CONFIG`].
pub const PRINT_CONFIG: &str = "print_config";

/// Beginnings of the placeholder that the help shows for a value that is a path on the host, such
/// as `FILE[,ro]`. A path in the guest has another one.
const PATH_PLACEHOLDERS: [&str; 5] = ["FILE", "PATH", "DIR", "DIRECTORY", "HOST"];
/// What options for paths take for standard output.
const STANDARD_OUTPUT: &str = "-";

/// A key of description files, which is an option of `run`.
#[derive(Clone, Copy, Debug)]
pub struct Key<'c>(&'c Arg);

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `true` or `false`.
    Switch,
    /// How many times the option is given.
    Count,
    /// One text or number.
    One,
    /// One text or number, or several.
    Several,
}

/// Returns the keys of description files, in the order of the help. `run` is the subcommand, with
/// the options that all subcommands have.
pub fn keys(run: &Command) -> impl Iterator<Item = Key<'_>> {
    let is_key = |argument: &&Arg| {
        let id = argument.get_id();
        let has_form = argument.get_long().is_some() || argument.is_last_set();
        let is_action = matches!(
            argument.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        has_form && !is_action && id != CONFIG && id != PRINT_CONFIG
    };
    run.get_arguments().filter(is_key).map(Key)
}

impl<'c> Key<'c> {
    /// Returns the option as the parser of the command line describes it.
    pub const fn argument(self) -> &'c Arg {
        self.0
    }

    /// Returns the key's name: that of the option without its dashes, or `program-arguments` for
    /// what follows `--`.
    pub fn name(self) -> String {
        match self.0.get_long() {
            Some(name) => name.to_owned(),
            None => self.0.get_id().as_str().replace('_', "-"),
        }
    }

    /// Returns the option as messages name it, such as `--memory`, or `-- ARGUMENTS`.
    pub fn option(self) -> String {
        match self.0.get_long() {
            Some(name) => format!("--{name}"),
            None => format!("-- {}", self.placeholder()),
        }
    }

    /// Returns what values the key takes.
    pub fn takes(self) -> Takes {
        match self.0.get_action() {
            ArgAction::SetTrue | ArgAction::SetFalse => Takes::Switch,
            ArgAction::Count => Takes::Count,
            ArgAction::Append => Takes::Several,
            _ => Takes::One,
        }
    }

    /// Returns whether values are paths on the host, some of them with more behind.
    pub fn holds_paths(self) -> bool {
        let is_letter = |character: char| character.is_ascii_alphabetic();
        let placeholder = self.placeholder();
        let word = placeholder.split(|c| !is_letter(c)).next();
        word.is_some_and(|word| PATH_PLACEHOLDERS.contains(&word))
    }

    /// Returns `value` as a process in another folder means it: a path on the host that is relative
    /// to `folder` gets `folder` in front.
    pub fn placed_in(self, folder: &Path, value: OsString) -> OsString {
        if !self.holds_paths() || value.is_empty() || value == STANDARD_OUTPUT {
            return value;
        }
        let path = Path::new(&value);
        folder.join(path.strip_prefix(".").unwrap_or(path)).into()
    }

    /// Returns the values that the option has if it is not given.
    pub fn default_values(self) -> Vec<OsString> {
        // The parser gives a switch the default `false`.
        match self.takes() {
            Takes::Switch | Takes::Count => Vec::new(),
            Takes::One | Takes::Several => {
                let values = self.0.get_default_values().iter();
                values.map(|value| value.as_os_str().to_owned()).collect()
            }
        }
    }

    /// Returns the words by which the option is given on the command line. `values` are its values:
    /// the number for a count, and nothing of interest for a switch. Of what follows `--`, these
    /// are the words behind.
    pub fn words(self, values: &[OsString]) -> Vec<OsString> {
        let option = OsString::from(self.option());
        let number = || values.first()?.to_str()?.parse::<usize>().ok();
        match self.takes() {
            _ if self.follows_all() => values.to_vec(),
            Takes::Switch => vec![option],
            Takes::Count => std::iter::repeat_n(option, number().unwrap_or(0)).collect(),
            // In one word, whatever the value begins with.
            Takes::One | Takes::Several => {
                let word = |value: &OsString| {
                    let parts = [&option, OsStr::new("="), value];
                    parts.into_iter().collect()
                };
                values.iter().map(word).collect()
            }
        }
    }

    /// Returns whether the values stand behind `--`, at the end of the command line.
    pub fn follows_all(self) -> bool {
        self.0.is_last_set()
    }

    fn placeholder(self) -> String {
        let names = self.0.get_value_names().unwrap_or_default();
        names.first().map(ToString::to_string).unwrap_or_default()
    }
}
