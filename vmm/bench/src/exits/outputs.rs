//! Where the report of each back end goes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::report::ExitsReport;
use super::{csv, html, table};
use crate::arguments::ExitsArguments;
use crate::outputs::{Forms, Outputs};
use causeway_terminal::Failure;

/// Checks that all files of the arguments can be written. `also` is the name of a back end that is
/// not the first; it becomes part of the file names.
///
/// # Errors
/// As those of [`Outputs::prepare`].
pub fn prepare(arguments: &ExitsArguments, also: Option<&str>) -> Result<Outputs, Failure> {
    let paths = [&arguments.json, &arguments.csv, &arguments.html];
    let paths = paths.map(|path| {
        let path = path.as_deref()?;
        Some(also.map_or_else(|| path.to_owned(), |name| named_after(path, name)))
    });
    Outputs::prepare(paths.each_ref().map(Option::as_deref))
}

impl Forms for ExitsReport {
    fn table(&self) -> String {
        table::render(self)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        csv::write(out, self)
    }

    fn html(&self, out: &mut dyn Write) -> io::Result<()> {
        html::write(out, self)
    }
}

/// Returns `a.cuda.json` for `a.json` and back end `cuda`; `-` stays `-`.
fn named_after(path: &Path, back_end: &str) -> PathBuf {
    if path == Path::new("-") {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(back_end);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_back_end_stands_before_the_extension() {
        let named = |path: &str| named_after(Path::new(path), "cuda");
        assert_eq!(named("/a/b.json"), Path::new("/a/b.cuda.json"));
        assert_eq!(named("b"), Path::new("b.cuda"));
        assert_eq!(named("-"), Path::new("-"));
    }
}
