//! Circles: modules of a crate that import each other, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::imports::imports;
use crate::modules;

/// The circles of the crate whose root file is `root`, the largest first, each as sorted module
/// names. The root itself is named `crate`.
///
/// # Panics
/// If a file of the crate cannot be read.
#[must_use]
pub fn circles(root: &Path) -> Vec<Vec<String>> {
    let imports = imports(&modules::read(root));
    let name = |path: &Vec<String>| match path.is_empty() {
        true => "crate".to_owned(),
        false => path.join("::"),
    };
    let named = imports
        .iter()
        .map(|(from, to)| (name(from), to.iter().map(name).collect()))
        .collect();
    circles_of(&named)
}

/// The sets of two or more nodes of a graph that reach each other, the largest first.
fn circles_of(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|from| (from, reachable(edges, from)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (from, to) in &reachable {
        if !to.contains(*from) || seen.contains(*from) {
            continue;
        }
        let circle: Vec<String> = to
            .iter()
            .filter(|other| {
                reachable
                    .get(*other)
                    .is_some_and(|back| back.contains(*from))
            })
            .map(|other| (*other).clone())
            .collect();
        seen.extend(circle.iter().cloned());
        circles.push(circle);
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// What one comes to from `from` by one step or more.
fn reachable<'a>(
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = edges.get(from).into_iter().flatten().collect();
    while let Some(node) = next.pop() {
        if found.insert(node) {
            next.extend(edges.get(node).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The circles of a crate of files with these names and contents.
    fn circles_in(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("causeway-layout-{process}-{name}"));
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = circles(&folder.join("lib.rs"));
        fs::remove_dir_all(&folder).unwrap();
        found
    }

    #[test]
    fn a_circle_is_found_through_uses_paths_and_names_handed_on() {
        let found = circles_in(
            "circle",
            &[
                ("lib.rs", "mod a; mod b; mod c; mod d; pub use c::Third;"),
                ("a.rs", "use crate::b::Second; pub struct First;"),
                ("b.rs", "use super::Third; pub struct Second;"),
                ("c.rs", "pub struct Third; fn f() { crate::a::First; }"),
                ("d.rs", "use crate::a::First; mod inner; pub struct Fourth;"),
                ("d/inner.rs", "use super::Fourth;"),
            ],
        );
        assert_eq!(found, [["a", "b", "c"]]);
    }

    #[test]
    fn what_only_tests_import_is_no_circle() {
        let found = circles_in(
            "tested",
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b::B; pub struct A;"),
                (
                    "b.rs",
                    "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
                ),
            ],
        );
        assert!(found.is_empty(), "{found:?}");
    }
}
