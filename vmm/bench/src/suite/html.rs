//! The report of `bench suite` as a page in one file.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::report::SuiteReport;
use super::table;
use crate::exits::html::figure::escaped;
use crate::exits::html::tables::{END_TABLE, begin_row, begin_table};
use crate::exits::html::{END_PAGE, begin_page};

/// Writes the report as an HTML page.
///
/// # Errors
/// The error of `out`.
pub fn write(out: &mut dyn Write, report: &SuiteReport) -> io::Result<()> {
    out.write_all(page(report).as_bytes())
}

fn page(report: &SuiteReport) -> String {
    let mut out = begin_page("Programs of benchmark suites");
    out.push_str("<h1>Programs of benchmark suites, unmodified</h1>\n");
    head(&mut out, report);
    out.push_str("<h2>Times and exits</h2>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<p class=\"quiet\">{}.</p>", escaped(table::LEGEND));
    begin_table(
        &mut out,
        "",
        "Times and exits of every program",
        &table::COLUMNS,
    );
    for (begins, texts) in table::rows(&report.cells) {
        begin_row(&mut out, begins);
        for text in texts {
            let _ = write!(out, "<td>{}</td>", escaped(&text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str(END_TABLE);
    if !report.missing.is_empty() {
        out.push_str("<h2>What did not pass</h2>\n<ul>\n");
        for missing in &report.missing {
            let _ = writeln!(out, "<li>{}</li>", escaped(&missing.to_string()));
        }
        out.push_str("</ul>\n");
    }
    out.push_str(END_PAGE);
    out
}

/// Writes the settings of the benchmark.
fn head(out: &mut String, report: &SuiteReport) {
    let (host, origin) = (&report.host, &report.origin);
    let suites = report.suites.iter().map(|suite| {
        let version = suite.commit.as_deref().unwrap_or("of this revision");
        ("suite", format!("{} ({version})", suite.name))
    });
    let rows = [
        ("back end", report.backend.clone()),
        ("processor", format!("{}, {} CPUs", host.cpu, host.cpus)),
        ("kernel", host.kernel.clone()),
        ("KVM", host.kvm.text().to_string()),
        ("date", origin.time.clone()),
        ("load", format!("{} (mean of a minute)", origin.load_text())),
        (
            "causeway",
            format!("{} ({})", report.causeway, origin.revision),
        ),
        ("command", origin.command.join(" ")),
        ("result", report.result.clone()),
    ];
    out.push_str("<dl>\n");
    for (name, value) in rows.into_iter().chain(suites) {
        let class = match name == "result" && !report.passed {
            true => " class=\"failed\"",
            false => "",
        };
        let _ = writeln!(out, "<dt>{name}</dt><dd{class}>{}</dd>", escaped(&value));
    }
    out.push_str("</dl>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::report::tests::report;

    #[test]
    fn the_page_has_every_row_and_what_failed() {
        let page = page(&report([10.0; 3], [20.0; 3], 9));
        assert_eq!(page.matches("<tr class=\"begins\">").count(), 1);
        assert!(
            page.contains("<dd class=\"failed\">1 passed, 1 failed</dd>"),
            "{page}"
        );
        assert!(
            page.contains("by guest failed: exit status 9</li>"),
            "{page}"
        );
        assert!(page.ends_with(END_PAGE));
    }
}
