//! Documents that are generated from tables of the code. The test device's records use this, too.

use std::fmt::Write as _;
use std::path::Path;

use causeway_protocol::wire::Structure;

/// Compares `docs/NAME` with `wanted`, or writes it if `CAUSEWAY_BLESS` is set.
pub fn compare(docs: &str, name: &str, wanted: &str) {
    let path = Path::new(docs).join(name);
    if std::env::var_os("CAUSEWAY_BLESS").is_some() {
        std::fs::write(&path, wanted).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = wanted.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(
        found == wanted,
        "docs/{name} is out of date (first at line {line:?}); run with CAUSEWAY_BLESS=1"
    );
}

/// Appends the tables of all structures of a module.
pub fn structure_tables(out: &mut String, title: &str, structures: &[Structure]) {
    writeln!(out, "### {title}\n").unwrap();
    for structure in structures {
        writeln!(
            out,
            "**{}** ({} bytes). {}\n",
            structure.name,
            structure.bytes,
            plain(structure.doc)
        )
        .unwrap();
        if structure.fields.is_empty() {
            continue;
        }
        writeln!(out, "| offset | field | type | what |\n|---|---|---|---|").unwrap();
        for field in structure.fields {
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                field.offset,
                field.name,
                field.kind,
                plain(field.doc)
            )
            .unwrap();
        }
        out.push('\n');
    }
}

/// Returns rustdoc text without its link syntax.
pub fn plain(doc: &str) -> String {
    doc.trim()
        .replace("[`", "`")
        .replace("`]", "`")
        .replace("crate::", "")
        .replace('|', "\\|")
}
