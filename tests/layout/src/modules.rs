//! The modules of a crate: one for each source file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta, Token};

/// A module's place in its crate: `["a", "b"]` is `crate::a::b`, and the crate's root is empty.
pub type ModulePath = Vec<String>;

/// The parsed files of a crate's library or program by the modules that they hold, without tests.
///
/// # Panics
/// If a file of the crate is missing or cannot be parsed.
pub fn read(root: &Path) -> BTreeMap<ModulePath, Vec<Item>> {
    let mut modules = BTreeMap::new();
    let folder = root.parent().expect("a source file without a folder");
    read_file(root, folder, Vec::new(), &mut modules);
    modules
}

fn read_file(
    file: &Path,
    children: &Path,
    path: ModulePath,
    modules: &mut BTreeMap<ModulePath, Vec<Item>>,
) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|e| panic!("cannot read {}: {e}", file.display()));
    let parsed =
        syn::parse_file(&text).unwrap_or_else(|e| panic!("cannot parse {}: {e}", file.display()));
    let items: Vec<Item> = parsed.items.into_iter().filter(|i| !is_test(i)).collect();
    for item in &items {
        if let Item::Mod(module) = item
            && module.content.is_none()
        {
            let name = module.ident.to_string();
            let flat = children.join(format!("{name}.rs"));
            let nested = children.join(&name);
            let (file, nested) = match path_attribute(&module.attrs) {
                Some(elsewhere) => {
                    let file = file.parent().unwrap_or(children).join(elsewhere);
                    let nested = file.parent().unwrap_or(children).to_owned();
                    (file, nested)
                }
                None if flat.is_file() => (flat, nested),
                None => (nested.join("mod.rs"), nested),
            };
            let mut path = path.clone();
            path.push(name);
            read_file(&file, &nested, path, modules);
        }
    }
    modules.insert(path, items);
}

/// The file that `#[path = "…"]` names.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

/// Whether an item is compiled for tests only.
fn is_test(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => needs_test(&list.parse_args().ok()),
        _ => false,
    })
}

/// Whether a condition holds in tests only: `test`, or `all(test, …)`.
fn needs_test(condition: &Option<Meta>) -> bool {
    match condition {
        Some(Meta::Path(path)) => path.is_ident("test"),
        Some(Meta::List(list)) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|all| all.into_iter().any(|one| needs_test(&Some(one)))),
        _ => false,
    }
}
