//! Destinations of the reports.

use std::path::{Path, PathBuf};

use super::report::ExitsReport;
use super::text_file::TextFile;
use super::{csv, html, table};
use crate::arguments::ExitsArguments;
use causeway_terminal as terminal;
use causeway_terminal::Failure;
use causeway_terminal::{ReportFile, refuse_same_file};

/// The files to which one report of `bench exits` goes, and standard output.
pub struct Outputs {
    json: ReportFile,
    csv: TextFile,
    html: TextFile,
}

impl Outputs {
    /// Checks that all files of the arguments can be written. `also` is the name of a back end that
    /// is not the first; it becomes part of the file names.
    ///
    /// # Errors
    /// A usage failure if two outputs go to one file or to standard output; a report failure that
    /// names the first file that cannot be written.
    pub fn prepare(arguments: &ExitsArguments, also: Option<&str>) -> Result<Self, Failure> {
        refuse_same_file(&[
            ("--json", arguments.json.as_deref()),
            ("--csv", arguments.csv.as_deref()),
            ("--html", arguments.html.as_deref()),
        ])?;
        let place = |path: &Option<PathBuf>| {
            let path = path.as_deref()?;
            Some(also.map_or_else(|| path.to_owned(), |name| named_after(path, name)))
        };
        Ok(Self {
            json: ReportFile::prepare(place(&arguments.json).as_deref())?,
            csv: TextFile::prepare("--csv", place(&arguments.csv).as_deref())?,
            html: TextFile::prepare("--html", place(&arguments.html).as_deref())?,
        })
    }

    /// Prints the report and writes all its files. If a file fails, the others are still written.
    ///
    /// # Errors
    /// The first report failure; others are printed.
    pub fn deliver(self, report: &ExitsReport) -> Result<(), Failure> {
        let is_output = self.json.is_output() || self.csv.is_output() || self.html.is_output();
        let printed = match is_output {
            true => Ok(()),
            false => terminal::print_results(&table::render(report)),
        };
        let json = self.json.write(report);
        let csv = self.csv.write(|out| csv::write(out, report));
        let html = self.html.write(|out| html::write(out, report));
        let results = [json, csv, html, printed].into_iter();
        let mut failed = results.filter_map(Result::err);
        let first = failed.next();
        failed.for_each(|failure| failure.print());
        first.map_or(Ok(()), Err)
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
    use crate::exits::report::tests::empty;
    use std::fs;

    #[test]
    fn what_cannot_be_written_keeps_nothing_else_from_being_written() {
        let name = format!("causeway-outputs-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let gone = directory.join("gone");
        fs::create_dir_all(&gone).unwrap();
        let file = |name: &str| directory.join(name);
        let outputs = Outputs {
            json: ReportFile::prepare(Some(&gone.join("a.json"))).unwrap(),
            csv: TextFile::prepare("--csv", Some(&file("a.csv"))).unwrap(),
            html: TextFile::prepare("--html", Some(&file("a.html"))).unwrap(),
        };
        fs::remove_dir(&gone).unwrap();
        let failure = outputs.deliver(&empty()).unwrap_err();
        assert!(failure.text().contains("a.json"), "{}", failure.text());
        for name in ["a.csv", "a.html"] {
            assert_ne!(fs::metadata(file(name)).unwrap().len(), 0, "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_name_of_a_back_end_stands_before_the_extension() {
        let named = |path: &str| named_after(Path::new(path), "cuda");
        assert_eq!(named("/a/b.json"), Path::new("/a/b.cuda.json"));
        assert_eq!(named("b"), Path::new("b.cuda"));
        assert_eq!(named("-"), Path::new("-"));
    }
}
