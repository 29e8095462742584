//! Dependencies between the repository's own crates, as `cargo metadata` tells them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A crate of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the repository, with `/` between names.
    pub folder: String,
    /// Folders of the repository's crates that it needs to be built or run; those that only its
    /// tests need are not among them.
    pub needs: Vec<String>,
}

/// Names of all crates that `package` is built of, directly or by way of others.
///
/// # Panics
/// If cargo does not know the package.
#[must_use]
pub fn tree(repository: &Path, package: &str) -> Vec<String> {
    let options = [
        "--prefix",
        "none",
        "--edges",
        "normal,build",
        "--format",
        "{p}",
    ];
    let text = cargo(
        repository,
        &[&["tree", "--locked", "-p", package], &options[..]].concat(),
    );
    let lines = text.lines().filter_map(|line| line.split(' ').next());
    lines.map(str::to_owned).collect()
}

/// The crates of the workspace whose manifest is `folder/Cargo.toml`.
///
/// # Panics
/// If cargo cannot read the workspace, or describes it in an unknown way.
#[must_use]
pub fn packages(repository: &Path, folder: &str) -> Vec<Package> {
    let arguments = ["metadata", "--locked", "--no-deps", "--format-version", "1"];
    let text = cargo(&repository.join(folder), &arguments);
    let metadata: Value = serde_json::from_str(&text).expect("cargo prints no JSON");
    let packages = metadata["packages"].as_array().expect("no packages");
    packages
        .iter()
        .map(|package| read_package(repository, package))
        .collect()
}

/// What cargo prints when it is run in `folder`.
fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("cannot run cargo");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo {arguments:?} failed: {words}"
    );
    String::from_utf8(output.stdout).expect("cargo prints no UTF-8")
}

fn read_package(repository: &Path, package: &Value) -> Package {
    let manifest = Path::new(package["manifest_path"].as_str().expect("no manifest"));
    let folder = manifest.parent().expect("a manifest without a folder");
    let dependencies = package["dependencies"].as_array().expect("no dependencies");
    let needs = dependencies
        .iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .filter_map(|dependency| dependency["path"].as_str())
        .map(|path| relative(repository, Path::new(path)))
        .collect();
    Package {
        name: package["name"].as_str().expect("no name").to_owned(),
        folder: relative(repository, folder),
        needs,
    }
}

fn relative(repository: &Path, path: &Path) -> String {
    let within = path.strip_prefix(repository).unwrap_or(path);
    within.to_string_lossy().into_owned()
}

/// A folder of crates, and the folders that crates in it may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The folder.
    pub folder: &'static str,
    /// Folders of crates that it may need; itself is always among them.
    pub may_need: &'static [&'static str],
}

/// Dependencies that `rules` do not allow, as lines of text. The first rule whose folder holds a
/// crate counts for it. A crate that no rule names may need nothing of the repository.
#[must_use]
pub fn forbidden(packages: &[Package], rules: &[Rule]) -> Vec<String> {
    let mut lines = Vec::new();
    for package in packages {
        let rule = rules.iter().find(|r| is_within(&package.folder, r.folder));
        for need in &package.needs {
            let allowed = rule.is_some_and(|rule| {
                is_within(need, rule.folder) || rule.may_need.iter().any(|f| is_within(need, f))
            });
            if !allowed {
                lines.push(format!("{} needs {need}", package.folder));
            }
        }
    }
    lines
}

/// Whether `path` is `folder` or lies in it.
fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, needs: &[&str]) -> Package {
        Package {
            name: folder.replace('/', "-"),
            folder: folder.to_owned(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        }
    }

    #[test]
    fn a_dependency_that_no_rule_allows_is_named() {
        let rules = [
            Rule {
                folder: "a",
                may_need: &["b/core"],
            },
            Rule {
                folder: "b",
                may_need: &[],
            },
        ];
        let packages = [
            package("a/x", &["a/y", "b/core", "b/core/inner"]),
            package("a/z", &["b/corelike", "tests/t"]),
            package("b/core", &["a/x"]),
            package("c", &["a/x"]),
        ];
        let wanted = [
            "a/z needs b/corelike",
            "a/z needs tests/t",
            "b/core needs a/x",
            "c needs a/x",
        ];
        assert_eq!(forbidden(&packages, &rules), wanted);
    }
}
