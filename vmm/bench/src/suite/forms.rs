//! The forms of the report.

use std::io::{self, Write};

use super::report::SuiteReport;
use super::{csv, html, table};
use crate::outputs::Forms;

impl Forms for SuiteReport {
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
