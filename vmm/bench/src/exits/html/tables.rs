//! The tables of the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::figure::escaped;
use crate::exits::cells::CellReport;
use crate::exits::report::ExitsReport;
use crate::exits::table;
use causeway_bench_medians::figures::count;

/// Adds the table of all cells to the page `out`, and the list of those that were not measured.
pub fn every_cell(out: &mut String, report: &ExitsReport) {
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<h2>Every cell</h2>\n<p class=\"quiet\">{}.</p>\n",
        escaped(&table::legend(&report.cells))
    );
    if let Some(crowded) = table::crowded(report) {
        let _ = writeln!(out, "<p>{}.</p>", escaped(&crowded));
    }
    begin_table(out, "", "Times and exits of every cell", &table::COLUMNS);
    for (begins, cell, texts) in table::rows(&report.cells) {
        begin_row(out, begins);
        for (index, text) in texts.iter().enumerate() {
            let class = match index {
                2 => format!(" class=\"{}\"", cell.mechanism),
                _ => String::new(),
            };
            let _ = write!(out, "<td{class}>{}</td>", escaped(text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    alone(out, report);
    out.push_str("<ul class=\"quiet\">\n");
    for missing in &report.missing {
        let _ = writeln!(
            out,
            "<li>not measured: {} by {}: {}</li>",
            escaped(&missing.what),
            missing.mechanism,
            escaped(&missing.reason)
        );
    }
    out.push_str("</ul>\n");
}

/// Begins a table, which scrolls sideways on narrow screens, also by keys.
pub fn begin_table(out: &mut String, class: &str, caption: &str, columns: &[&str]) {
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\
         <table{class}><caption>{caption}</caption><thead><tr>"
    );
    for column in columns {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(column));
    }
    out.push_str("</tr></thead><tbody>\n");
}

/// What a table ends with.
pub const END_TABLE: &str = "</tbody></table></div>\n";

/// Adds the table of cells that were measured alone, if there are any.
fn alone(out: &mut String, report: &ExitsReport) {
    let mut rows = table::alone_rows(&report.cells).peekable();
    if rows.peek().is_none() {
        return;
    }
    out.push_str("<h2>Alone and in turn</h2>\n");
    let _ = writeln!(out, "<p class=\"quiet\">{}.</p>", escaped(table::ALONE));
    begin_table(out, "", "Alone and in turn", &table::ALONE_COLUMNS);
    for texts in rows {
        out.push_str("<tr>");
        for text in texts {
            let _ = write!(out, "<td>{}</td>", escaped(&text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// Begins a row, with a line above it if a group of rows begins.
pub fn begin_row(out: &mut String, begins: bool) {
    out.push_str(match begins {
        true => "<tr class=\"begins\">",
        false => "<tr>",
    });
}

/// Adds the table of exits by reason to the page `out`. The table is folded until the reader opens
/// it.
pub fn reasons(out: &mut String, report: &ExitsReport) {
    let counted = report.cells.iter().filter(|cell| cell.exits.is_some());
    let counted: Vec<&CellReport> = counted.collect();
    if counted.is_empty() {
        return;
    }
    out.push_str("<details><summary>Exits by reason</summary>\n");
    out.push_str(
        "<p class=\"quiet\">For one operation: KVM's statistics by their names, and the VMM's own \
         count by reason, device and register. What did not count is left out.</p>\n",
    );
    let columns = ["workload", "size", "mechanism", "KVM", "VMM"];
    begin_table(
        out,
        " class=\"reasons\"",
        "Exits of every cell by reason",
        &columns,
    );
    let mut row = None;
    for cell in counted {
        let begins = row.replace((cell.workload, cell.size)) != Some((cell.workload, cell.size));
        begin_row(out, begins);
        reasons_of(out, begins, cell);
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div></details>\n");
}

fn reasons_of(out: &mut String, begins: bool, cell: &CellReport) {
    let Some(exits) = &cell.exits else {
        return;
    };
    let (workload, size) = match begins {
        true => (cell.workload, table::size(cell)),
        false => ("", String::new()),
    };
    let _ = write!(
        out,
        "<td>{workload}</td><td>{}</td><td class=\"{}\">{}</td><td>{}</td><td>{}</td>",
        escaped(&size),
        cell.mechanism,
        cell.mechanism,
        escaped(&each(&exits.kvm, exits.operations)),
        escaped(&each(&exits.vmm, exits.operations))
    );
}

/// Returns counts of one operation by name. KVM's statistics of the whole VM (`vm:`), for example
/// of pages, are no exits and left out.
fn each(counts: &BTreeMap<String, u64>, operations: u64) -> String {
    let counts = counts.iter().filter(|(name, _)| !name.starts_with("vm:"));
    let counts = counts.map(|(name, n)| {
        let each = count(*n as f64 / operations.max(1) as f64);
        format!("{name} {each}")
    });
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::cell;
    use super::*;
    use crate::exits::report::tests::empty;

    #[test]
    fn exits_are_listed_by_the_names_that_kvm_gives_them() {
        let mut trapped = cell("load", "trap", Some([1.0, 0.0]), [1000.0; 6]);
        let exits = trapped.exits.as_mut().unwrap();
        exits.operations = 10;
        exits.kvm = [("mmio_exits", 10), ("irq_exits", 5), ("vm:pages_4k", 3)]
            .map(|(name, n)| (name.to_owned(), n))
            .into();
        exits.vmm = [(String::from("mmio:trap:memory"), 10)].into();
        let mut report = empty();
        report.cells.push(trapped);
        let mut page = String::new();
        reasons(&mut page, &report);
        assert!(page.contains("<td>irq_exits 0.50, mmio_exits 1</td><td>mmio:trap:memory 1</td>"));
        report.cells[0].exits = None;
        page.clear();
        reasons(&mut page, &report);
        assert_eq!(page, "");
    }
}
