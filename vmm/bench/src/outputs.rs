//! Destinations of the reports of benchmarks.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::text_file::TextFile;
use causeway_terminal as terminal;
use causeway_terminal::{Failure, ReportFile, refuse_same_file};

/// The files to which one report goes, and standard output.
pub struct Outputs {
    json: ReportFile,
    csv: TextFile,
    html: TextFile,
}

/// A report that has all forms.
pub trait Forms: Serialize {
    /// Returns the table for people.
    fn table(&self) -> String;

    /// Writes comma-separated values.
    ///
    /// # Errors
    /// The error of `out`.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Writes an HTML page.
    ///
    /// # Errors
    /// The error of `out`, or of drawing.
    fn html(&self, out: &mut dyn Write) -> io::Result<()>;
}

impl Outputs {
    /// Checks that the files of `--json`, `--csv` and `--html` can be written.
    ///
    /// # Errors
    /// A usage failure if two outputs go to one file or to standard output; a report failure that
    /// names the first file that cannot be written.
    pub fn prepare([json, csv, html]: [Option<&Path>; 3]) -> Result<Self, Failure> {
        refuse_same_file(&[("--json", json), ("--csv", csv), ("--html", html)])?;
        Ok(Self {
            json: ReportFile::prepare(json)?,
            csv: TextFile::prepare("--csv", csv)?,
            html: TextFile::prepare("--html", html)?,
        })
    }

    /// Prints the report and writes all its files. If a file fails, the others are still written.
    ///
    /// # Errors
    /// The first report failure; others are printed.
    pub fn deliver(self, report: &impl Forms) -> Result<(), Failure> {
        let is_output = self.json.is_output() || self.csv.is_output() || self.html.is_output();
        let printed = match is_output {
            true => Ok(()),
            false => terminal::print_results(&report.table()),
        };
        let json = self.json.write(report);
        let csv = self.csv.write(|out| report.csv(out));
        let html = self.html.write(|out| report.html(out));
        let results = [json, csv, html, printed].into_iter();
        let mut failed = results.filter_map(Result::err);
        let first = failed.next();
        failed.for_each(|failure| failure.print());
        first.map_or(Ok(()), Err)
    }
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
        let paths = [gone.join("a.json"), file("a.csv"), file("a.html")];
        let outputs = Outputs::prepare(paths.each_ref().map(|path| Some(&**path))).unwrap();
        fs::remove_dir(&gone).unwrap();
        let failure = outputs.deliver(&empty()).unwrap_err();
        assert!(failure.text().contains("a.json"), "{}", failure.text());
        for name in ["a.csv", "a.html"] {
            assert_ne!(fs::metadata(file(name)).unwrap().len(), 0, "{name}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
