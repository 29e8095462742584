//! Description files: `--config FILE` and `--print-config`.
//!
//! A key of a description file is an option of `run` ([`keys`]). The file becomes words of the
//! command line for the options that the user did not type, and then everything is parsed and
//! checked once, as if it had been typed.

mod file;
mod keys;
mod origin;
mod print;
#[cfg(feature = "schema")]
mod schema;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use causeway_terminal::{Code, Failure};
use clap::builder::Resettable;
use clap::{ArgMatches, Command, Id};

use file::Entry;
use keys::{CONFIG, Key, PRINT_CONFIG, Takes, keys};
use origin::FileOrigin;
#[cfg(feature = "schema")]
pub use schema::schema;

/// Name of the subcommand that description files are for.
const SUBCOMMAND: &str = "run";
/// Beginnings of the options that this module is about.
const OPTIONS: [&str; 2] = ["--config", "--print-config"];

/// A command line with what its description file says.
#[derive(Debug)]
pub struct Completed {
    /// The words of the whole command line.
    pub words: Vec<OsString>,
    /// Where they come from.
    pub described: Described,
}

/// How the arguments of a run are described, beside the arguments themselves.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// The file of `--config`.
    file: Option<FileOrigin>,
    /// What `--print-config` prints.
    text: String,
}

/// Options with their values, as words have them.
type Settings<'c> = Vec<(Key<'c>, Vec<OsString>)>;

/// Returns the command line that the user typed, `words`, with what the file of `--config` says
/// beside. `command` is the whole command as its parser knows it. Other command lines stay as they
/// are, also those with a mistake.
///
/// # Errors
/// A usage failure if the file cannot be read or is not a description, or if `--print-config` is
/// typed and cannot print a value.
pub fn complete(command: &Command, words: Vec<OsString>) -> Result<Completed, Failure> {
    if words.iter().any(|word| may_be_option(word))
        && let Some(matches) = matches(command, &words)
    {
        let mut built = command.clone();
        built.build();
        if let Some(run) = built.find_subcommand(SUBCOMMAND) {
            return complete_run(run, &matches, words);
        }
    }
    Ok(Completed {
        words,
        described: Described::default(),
    })
}

/// As [`complete`], for the subcommand `run` with these `matches`.
fn complete_run(
    run: &Command,
    matches: &ArgMatches,
    words: Vec<OsString>,
) -> Result<Completed, Failure> {
    let known: Vec<_> = keys(run).collect();
    let typed = typed(run, matches);
    let path = matches.get_one::<PathBuf>(CONFIG);
    let mut entries = path.map_or_else(|| Ok(Vec::new()), |path| file::read(path, &known))?;
    entries.retain(|it| !it.values.is_empty() && !is_overruled(it.key, &typed, run));
    let settings = merged(&known, &typed, &entries);
    let prints = matches.get_flag(PRINT_CONFIG);
    Ok(Completed {
        words: match path {
            Some(path) => complete_words(&words, path, prints, &settings),
            None => words,
        },
        described: Described {
            file: path.map(|path| FileOrigin::new(path, &entries)),
            text: match prints {
                true => print::print(&with_defaults(settings), &current_folder()?)?,
                false => String::new(),
            },
        },
    })
}

/// Returns whether a word may be one of the options that this module is about. It saves all other
/// command lines a second parse.
fn may_be_option(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    OPTIONS.iter().any(|o| bytes.starts_with(o.as_bytes()))
}

/// Parses the words of the user, without that options require others, which the file may have.
/// Returns `None` if there is another mistake, or another subcommand.
fn matches(command: &Command, words: &[OsString]) -> Option<ArgMatches> {
    let command = command.clone().mut_subcommand(SUBCOMMAND, |run| {
        run.mut_args(|argument| argument.requires(Resettable::<Id>::Reset).required(false))
    });
    let mut matches = command.try_get_matches_from(words).ok()?;
    let (name, of_subcommand) = matches.remove_subcommand()?;
    (name == SUBCOMMAND).then_some(of_subcommand)
}

fn typed<'c>(run: &'c Command, matches: &ArgMatches) -> Settings<'c> {
    use clap::parser::ValueSource::CommandLine;
    let is_typed = |key: &Key<'_>| matches.value_source(id(*key)) == Some(CommandLine);
    let typed = keys(run).filter(is_typed);
    let values = |key: Key<'_>| match key.takes() {
        Takes::Switch => vec![OsString::from("true")],
        Takes::Count => vec![matches.get_count(id(key)).to_string().into()],
        Takes::One | Takes::Several => {
            let raw = matches.get_raw(id(key)).into_iter().flatten();
            raw.map(OsStr::to_owned).collect()
        }
    };
    typed.map(|key| (key, values(key))).collect()
}

fn id(key: Key<'_>) -> &str {
    key.argument().get_id().as_str()
}

/// Returns whether the user typed the option `key`, or one that excludes it.
fn is_overruled(key: Key<'_>, typed: &Settings<'_>, run: &Command) -> bool {
    let excludes = |one: Key<'_>, other: Key<'_>| {
        let excluded = run.get_arg_conflicts_with(one.argument());
        excluded
            .iter()
            .any(|a| a.get_id() == other.argument().get_id())
    };
    typed
        .iter()
        .any(|(typed, _)| id(*typed) == id(key) || excludes(*typed, key) || excludes(key, *typed))
}

/// Returns all keys with their values: those that the user typed, else those of the file.
fn merged<'c>(known: &[Key<'c>], typed: &Settings<'c>, entries: &[Entry<'c>]) -> Settings<'c> {
    let of_file = entries.iter().map(|entry| (entry.key, &entry.values));
    let given = typed.iter().map(|(key, values)| (*key, values));
    let given: Vec<_> = given.chain(of_file).collect();
    let values = |key: Key<'_>| {
        let mut given = given.iter();
        let found = given.find(|(other, _)| id(*other) == id(key));
        found.map_or_else(Vec::new, |(_, values)| (*values).clone())
    };
    known.iter().map(|key| (*key, values(*key))).collect()
}

fn with_defaults(settings: Settings<'_>) -> Settings<'_> {
    let whole = settings
        .into_iter()
        .map(|(key, values)| match values.is_empty() {
            true => (key, key.default_values()),
            false => (key, values),
        });
    whole.collect()
}

/// Returns the words of a command line with these settings. The first of `typed` is the name of the
/// program.
fn complete_words(
    typed: &[OsString],
    path: &Path,
    prints: bool,
    settings: &Settings<'_>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = typed.iter().take(1).cloned().collect();
    words.push(SUBCOMMAND.into());
    words.push(
        [OsStr::new("--config="), path.as_os_str()]
            .into_iter()
            .collect(),
    );
    words.extend(prints.then(|| "--print-config".into()));
    let set = settings.iter().filter(|(_, values)| !values.is_empty());
    let (last, options): (Vec<_>, Vec<_>) = set.partition(|(key, _)| key.follows_all());
    words.extend(options.iter().flat_map(|(key, values)| key.words(values)));
    for (key, values) in last {
        words.push("--".into());
        words.extend(key.words(values));
    }
    words
}

fn current_folder() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|e| {
        let message = "cannot find out the working directory, which --print-config needs for \
                       relative paths";
        Failure::new(Code::Usage, message, e)
    })
}

impl Described {
    /// Returns what `--print-config` prints: a description file with all settings of the run.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns `failure` with the file, lines and keys in front that its message is about, if it is
    /// about any that the user did not type.
    pub fn explain(&self, failure: Failure) -> Failure {
        let place = self.file.as_ref();
        match place.and_then(|file| file.place(&failure.text())) {
            Some(place) => failure.at(&place),
            None => failure,
        }
    }

    /// Returns `failure`, which the parser of the command line found in [`Completed::words`], with
    /// at least the file in front: what was typed alone has no such mistake.
    pub fn explain_words(&self, failure: Failure) -> Failure {
        let Some(file) = &self.file else {
            return failure;
        };
        let place = file.place(&failure.text());
        failure.at(place.as_deref().unwrap_or(file.file()))
    }
}
