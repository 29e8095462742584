//! What each module of a crate takes from the others: by `use`, and by paths in its code.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::modules::ModulePath;

/// A path as it is written: its segments, and `*` for a glob.
type Written = Vec<String>;

/// The names that one module's file mentions.
#[derive(Debug, Default)]
struct Mentions {
    /// Names that `use` brings in, with what they stand for.
    names: BTreeMap<String, Written>,
    /// Names among them that the module hands on (`pub use`).
    handed_on: BTreeSet<String>,
    /// Modules whose every name is brought in.
    globs: Vec<Written>,
    /// Paths of two segments or more in code.
    paths: Vec<Written>,
}

/// For each module, the modules that it takes something from. What a module merely hands on is not
/// its own import: a user of the name depends on where it is defined.
pub fn imports(
    modules: &BTreeMap<ModulePath, Vec<Item>>,
) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mentions: BTreeMap<&ModulePath, Mentions> = modules
        .iter()
        .map(|(path, items)| (path, mentions_of(items)))
        .collect();
    let resolver = Resolver {
        modules,
        mentions: &mentions,
    };
    let mut imports = BTreeMap::new();
    for (path, own) in &mentions {
        let used = own
            .names
            .iter()
            .filter(|(name, _)| !own.handed_on.contains(*name));
        let written = used
            .map(|(_, written)| written)
            .chain(&own.globs)
            .chain(&own.paths);
        let targets = written
            .filter_map(|written| resolver.resolve(path, written, 0))
            .filter(|target| target != *path);
        imports.insert((*path).clone(), targets.collect());
    }
    imports
}

struct Resolver<'a> {
    modules: &'a BTreeMap<ModulePath, Vec<Item>>,
    mentions: &'a BTreeMap<&'a ModulePath, Mentions>,
}

/// Longest chain of names handed on that is followed.
const HOPS_MAX: u32 = 8;

impl Resolver<'_> {
    /// The module that defines what `written` means in module `from`; none for another crate's.
    fn resolve(&self, from: &ModulePath, written: &[String], hops: u32) -> Option<ModulePath> {
        if hops > HOPS_MAX {
            return None;
        }
        let (mut at, mut rest) = self.start(from, written, hops)?;
        while let Some((first, behind)) = rest.split_first() {
            let mut child = at.clone();
            child.push(first.clone());
            if !self.modules.contains_key(&child) {
                break;
            }
            at = child;
            rest = behind;
        }
        let next = rest.first().and_then(|name| {
            let mentions = self.mentions.get(&at)?;
            mentions
                .handed_on
                .contains(name)
                .then(|| &mentions.names[name])
        });
        match next {
            Some(target) if at != *from => {
                let longer: Vec<String> = target.iter().chain(&rest[1..]).cloned().collect();
                self.resolve(&at, &longer, hops + 1).or(Some(at))
            }
            _ => Some(at),
        }
    }

    /// Where the first segments lead, and the segments behind them.
    fn start<'w>(
        &self,
        from: &ModulePath,
        written: &'w [String],
        hops: u32,
    ) -> Option<(ModulePath, &'w [String])> {
        let (first, rest) = written.split_first()?;
        match first.as_str() {
            "crate" => Some((ModulePath::new(), rest)),
            "self" => Some((from.clone(), rest)),
            "super" => {
                let ups = written.iter().take_while(|s| *s == "super").count();
                let depth = from.len().checked_sub(ups)?;
                Some((from[..depth].to_vec(), &written[ups..]))
            }
            name => {
                let mut child = from.clone();
                child.push(name.to_owned());
                if self.modules.contains_key(&child) {
                    return Some((child, rest));
                }
                let target = self.mentions.get(from)?.names.get(name)?;
                if target.first() == Some(first) {
                    return None;
                }
                Some((self.resolve(from, target, hops + 1)?, rest))
            }
        }
    }
}

fn mentions_of(items: &[Item]) -> Mentions {
    let mut mentions = Mentions::default();
    for item in items {
        mentions.visit_item(item);
    }
    mentions
}

impl Mentions {
    fn add(&mut self, tree: &UseTree, before: &mut Written, public: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add(&path.tree, before, public);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add(tree, before, public);
                }
            }
            UseTree::Name(name) => self.note(name.ident.to_string(), None, before, public),
            UseTree::Rename(rename) => {
                let known_as = rename.rename.to_string();
                self.note(rename.ident.to_string(), Some(known_as), before, public);
            }
            UseTree::Glob(_) => self.globs.push(before.clone()),
        }
    }

    fn note(&mut self, name: String, known_as: Option<String>, before: &Written, public: bool) {
        let mut written = before.clone();
        let last = if name == "self" {
            before.last().cloned()
        } else {
            Some(name.clone())
        };
        if name != "self" {
            written.push(name);
        }
        let Some(known_as) = known_as.or(last) else {
            return;
        };
        if public {
            self.handed_on.insert(known_as.clone());
        }
        self.names.insert(known_as, written);
    }
}

impl<'a> Visit<'a> for Mentions {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.add(&item.tree, &mut Written::new(), public);
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        // Modules within a file count as part of it, but for tests.
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let segments = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string());
            self.paths.push(segments.collect());
        }
        visit::visit_path(self, path);
    }
}
