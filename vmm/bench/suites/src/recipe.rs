//! Recipes: how each program of a suite is built, run and judged. They are files in format TOML;
//! those of known suites are in this program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::inputs;

/// The recipes in this program, by their names.
const EMBEDDED: [(&str, &str); 4] = [
    ("cudart", include_str!("../recipes/cudart.toml")),
    ("polybench", include_str!("../recipes/polybench.toml")),
    ("rodinia", include_str!("../recipes/rodinia.toml")),
    ("samples", include_str!("../recipes/samples.toml")),
];

/// Names of the suites whose recipes are in this program.
pub const NAMES: [&str; EMBEDDED.len()] = {
    let mut names = [""; EMBEDDED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = EMBEDDED[index].0;
        index += 1;
    }
    names
};

/// The size in which programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As a GPU takes it.
    Gpu,
    /// Smaller, where a GPU's size would take the software back end more than ten seconds.
    Software,
}

/// Why a suite is not known.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// It is neither a name nor a file.
    #[error(
        "invalid value {0} for --suite: choose one of {names}, or name a recipe that ends with \
         .toml", names = NAMES.join(", ")
    )]
    Unknown(String),
    /// The file cannot be read.
    #[error("cannot read the recipe {0}")]
    Unreadable(String, #[source] std::io::Error),
    /// The text is no recipe.
    #[error("{0} is no recipe of a suite")]
    Malformed(String, #[source] toml::de::Error),
    /// A pattern is not a regular expression.
    #[error("in the recipe {0}, a pattern of program {1} is no regular expression")]
    Pattern(String, String, #[source] regex::Error),
    /// Nothing makes an input of this name.
    #[error(
        "the recipe {0} wants the input {1:?}, which is not one that this program makes: put it \
         into the folder where the program runs"
    )]
    Input(String, String),
    /// A name would lead out of its folder, or is that of another file.
    #[error(
        "the recipe {0} has {1:?} for a name or path: choose a name of letters, digits and ._+- \
         that does not end with .txt, .log or .json, or a relative path without .. that is not \
         data"
    )]
    Place(String, String),
    /// Two programs have one name.
    #[error("the recipe {0} has two programs {1}: choose other names")]
    Twice(String, String),
}

/// A suite, with its programs in one size.
#[derive(Debug)]
pub struct Suite {
    /// Its name: that of the recipe.
    pub name: String,
    /// Where the sources are published; `None` for those of this project.
    pub repository: Option<String>,
    /// The version that the recipe was written for.
    pub commit: Option<String>,
    /// Name of the folder with the sources, among those of other suites.
    pub folder: PathBuf,
    /// Its programs, in the recipe's order.
    pub programs: Vec<Program>,
}

/// A program of a suite in one size.
#[derive(Debug)]
pub struct Program {
    /// Name of the suite.
    pub suite: String,
    /// Its name in the suite.
    pub name: String,
    /// Files that are compiled, in the folder of the suite.
    pub sources: Vec<PathBuf>,
    /// What nvcc is told besides.
    pub flags: Vec<String>,
    /// Folder of the suite in which it runs.
    pub folder: PathBuf,
    /// Its arguments; `{inputs}` in them stands for the folder of its inputs.
    pub arguments: Vec<String>,
    /// Names of inputs that have to be made.
    pub inputs: Vec<String>,
    /// What its output has if its results are right; `None` if only its exit status says so.
    pub right: Option<Regex>,
    /// What its output has if they are wrong.
    pub wrong: Option<Regex>,
    /// Whether stopping the device is its purpose.
    pub faults: bool,
    /// What it wants that Causeway does not have.
    pub lacks: Option<String>,
    /// Why it does not run in this size.
    pub skip: Option<String>,
}

impl Program {
    /// Returns its name with that of its suite.
    pub fn label(&self) -> String {
        format!("{}/{}", self.suite, self.name)
    }
}

impl Suite {
    /// Returns the suite that `named` is: one of [`NAMES`], or the path of a recipe. Its programs
    /// have this size.
    ///
    /// # Errors
    /// Why there is none.
    pub fn named(named: &str, scale: Scale) -> Result<Self, RecipeError> {
        if let Some((name, text)) = EMBEDDED.iter().find(|(name, _)| *name == named) {
            return Self::parse(name, named, text, scale);
        }
        let path = Path::new(named);
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.filter(|_| path.extension().is_some_and(|it| it == "toml"));
        let stem = stem.ok_or_else(|| RecipeError::Unknown(named.to_owned()))?;
        let text =
            fs::read_to_string(path).map_err(|e| RecipeError::Unreadable(named.to_owned(), e))?;
        Self::parse(stem, named, &text, scale)
    }

    /// Parses a recipe. `origin` names it in messages.
    fn parse(name: &str, origin: &str, text: &str, scale: Scale) -> Result<Self, RecipeError> {
        let recipe: Recipe =
            toml::from_str(text).map_err(|e| RecipeError::Malformed(origin.to_owned(), e))?;
        let folder = recipe.folder.clone().or_else(|| {
            let (_, last) = recipe.repository.as_deref()?.rsplit_once('/')?;
            Some(PathBuf::from(last))
        });
        let folder = folder.unwrap_or_else(|| PathBuf::from(name));
        recipe.check(name, origin, &folder)?;
        let entries = recipe.program.into_iter();
        let programs = entries.map(|entry| entry.sized(name, origin, &recipe.flags, scale));
        Ok(Self {
            name: name.to_owned(),
            repository: recipe.repository,
            commit: recipe.commit,
            folder,
            programs: programs.collect::<Result<_, _>>()?,
        })
    }
}

/// A recipe as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    repository: Option<String>,
    commit: Option<String>,
    folder: Option<PathBuf>,
    #[serde(default)]
    flags: Vec<String>,
    program: Vec<Entry>,
}

impl Recipe {
    /// Checks that names and paths lead to no other place, and that all inputs can be made.
    fn check(&self, name: &str, origin: &str, folder: &Path) -> Result<(), RecipeError> {
        let names = self.program.iter().map(|entry| &*entry.name);
        let mut names = names.chain([name]);
        if let Some(bad) = names.find(|name| !is_name(name)) {
            return Err(RecipeError::Place(origin.to_owned(), bad.to_owned()));
        }
        let mut paths = self.program.iter().flat_map(Entry::paths).chain([folder]);
        if let Some(bad) = paths.find(|path| !is_inside(path)) {
            let shown = bad.to_string_lossy().into_owned();
            return Err(RecipeError::Place(origin.to_owned(), shown));
        }
        let mut known = BTreeSet::new();
        let mut names = self.program.iter().map(|entry| &entry.name);
        if let Some(twice) = names.find(|name| !known.insert(*name)) {
            return Err(RecipeError::Twice(origin.to_owned(), twice.clone()));
        }
        let mut inputs = self.program.iter().flat_map(Entry::inputs);
        match inputs.find(|input| !inputs::is_known(input)) {
            Some(bad) => Err(RecipeError::Input(origin.to_owned(), bad.clone())),
            None => Ok(()),
        }
    }
}

/// A program as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sources: Vec<PathBuf>,
    #[serde(default)]
    flags: Vec<String>,
    folder: Option<PathBuf>,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    inputs: Vec<String>,
    right: Option<String>,
    wrong: Option<String>,
    #[serde(default)]
    faults: bool,
    lacks: Option<String>,
    #[serde(default)]
    software: Differences,
}

/// What is different on the software back end.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    flags: Option<Vec<String>>,
    arguments: Option<Vec<String>>,
    inputs: Option<Vec<String>>,
    skip: Option<String>,
}

impl Entry {
    /// Returns all paths that lead into the folder of the suite.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let sources = self.sources.iter().map(PathBuf::as_path);
        sources.chain([self.place()])
    }

    /// Returns the folder in which the program runs.
    fn place(&self) -> &Path {
        let first = self.sources.first().and_then(|source| source.parent());
        self.folder.as_deref().or(first).unwrap_or(Path::new(""))
    }

    /// Returns the names of the inputs of both sizes.
    fn inputs(&self) -> impl Iterator<Item = &String> {
        self.inputs
            .iter()
            .chain(self.software.inputs.iter().flatten())
    }

    fn sized(
        self,
        suite: &str,
        origin: &str,
        flags: &[String],
        scale: Scale,
    ) -> Result<Program, RecipeError> {
        let folder = self.place().to_owned();
        let other = match scale {
            Scale::Gpu => Differences::default(),
            Scale::Software => self.software,
        };
        let pattern = |text: Option<String>| {
            let built = text.map(|text| RegexBuilder::new(&text).multi_line(true).build());
            built
                .transpose()
                .map_err(|e| RecipeError::Pattern(origin.to_owned(), self.name.clone(), e))
        };
        Ok(Program {
            suite: suite.to_owned(),
            right: pattern(self.right)?,
            wrong: pattern(self.wrong)?,
            folder,
            flags: [flags, &other.flags.unwrap_or(self.flags)].concat(),
            arguments: other.arguments.unwrap_or(self.arguments),
            inputs: other.inputs.unwrap_or(self.inputs),
            skip: other.skip,
            name: self.name,
            sources: self.sources,
            faults: self.faults,
            lacks: self.lacks,
        })
    }
}

/// Whether a text can be the name of a file in any folder.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    let is_own = [".txt", ".log", ".json"]
        .iter()
        .any(|end| name.ends_with(end));
    !name.is_empty() && name.chars().all(allowed) && !name.starts_with('.') && !is_own
}

/// Whether a path leads to a place in the folder where it begins, and not to that of inputs.
fn is_inside(path: &Path) -> bool {
    let mut parts = path.components();
    !path.as_os_str().is_empty()
        && !path.starts_with("data")
        && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_here_are_whole_in_both_sizes() {
        for name in NAMES {
            for scale in [Scale::Gpu, Scale::Software] {
                let suite = Suite::named(name, scale).unwrap();
                assert!(suite.programs.len() >= 12, "{name}");
                for program in &suite.programs {
                    assert!(!program.sources.is_empty(), "{}", program.label());
                }
            }
        }
    }

    const RECIPE: &str = r#"
        repository = "https://example.org/a/programs"
        flags = ["-O3"]
        [[program]]
        name = "one"
        sources = ["in/a/one.cu"]
        arguments = ["8"]
        right = "^fine$"
        software = { arguments = ["2"], flags = ["-g"] }
    "#;

    fn parsed(text: &str, scale: Scale) -> Result<Suite, RecipeError> {
        Suite::parse("own", "own.toml", text, scale)
    }

    #[test]
    fn the_software_back_end_has_arguments_and_flags_of_its_own() {
        let program = |scale| parsed(RECIPE, scale).unwrap().programs.remove(0);
        let (gpu, software) = (program(Scale::Gpu), program(Scale::Software));
        assert_eq!(
            (&*gpu.arguments, &*gpu.flags),
            (&["8".into()][..], &["-O3".into()][..])
        );
        assert_eq!(software.arguments, ["2"]);
        assert_eq!(software.flags, ["-O3", "-g"]);
        assert_eq!(gpu.folder, Path::new("in/a"));
        assert!(gpu.right.unwrap().is_match("well\nfine\n"));
        let suite = parsed(RECIPE, Scale::Gpu).unwrap();
        assert_eq!(suite.folder, Path::new("programs"));
    }

    #[test]
    fn what_is_wrong_in_a_recipe_is_said_with_its_value() {
        for (from, to, said) in [
            ("\"one\"", "\"../one\"", "\"../one\""),
            ("in/a/one.cu", "/etc/passwd", "\"/etc/passwd\""),
            ("in/a/one.cu", "in/../../one.cu", "\"in/../../one.cu\""),
            ("^fine$", "(fine", "program one"),
            ("right", "rihgt", "own.toml"),
            (
                "arguments = [\"8\"]",
                "inputs = [\"bfs/graph.txt\"]",
                "\"bfs/graph.txt\"",
            ),
        ] {
            let error = parsed(&RECIPE.replace(from, to), Scale::Gpu).unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
        let error = Suite::named("rodina", Scale::Gpu).unwrap_err();
        assert!(error.to_string().contains("polybench, rodinia"), "{error}");
    }
}
