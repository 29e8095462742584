//! `docs/first-program.md` leads to this program: it must show the same text.

use std::fs;
use std::path::Path;

/// Returns the text of a block of code in the document as the file has it: without its fence.
fn blocks(document: &str) -> Vec<&str> {
    document
        .split("```")
        .skip(1)
        .step_by(2)
        .map(contents)
        .collect()
}

/// Returns a block without the line that names its language.
fn contents(block: &str) -> &str {
    block.split_once('\n').map_or("", |(_, contents)| contents)
}

#[test]
fn the_document_has_the_program_and_its_kernel_as_they_are() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = package.join("../../docs/first-program.md");
    let document = fs::read_to_string(document).unwrap();
    let blocks = blocks(&document);
    for name in ["src/main.rs", "src/vector_add.ptx"] {
        let file = fs::read_to_string(package.join(name)).unwrap();
        assert!(
            blocks.contains(&&*file),
            "docs/first-program.md must show {name} as it is"
        );
    }
}
