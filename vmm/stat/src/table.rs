//! The plain table of `causeway stat --once`.

use crate::columns::{COLUMNS, COUNT, texts};
use crate::sampler::Observation;

/// Returns the table of all guests that were seen: a line with the titles, and a line for each
/// guest.
pub fn render(seen: &Observation) -> String {
    let rows = seen.guests();
    let rows = rows.map(|(process, guest, rates)| texts(process, guest, rates));
    let titles = COLUMNS.map(|column| column.title.to_owned());
    let lines = std::iter::once(titles).chain(rows);
    lines.map(|texts| line(&texts)).collect()
}

fn line(texts: &[String; COUNT]) -> String {
    let cells = texts.iter().zip(COLUMNS).map(|(text, column)| {
        let width = column.width;
        match column.right {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        }
    });
    let line = cells.collect::<Vec<_>>().join(" ");
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Rates;
    use causeway_publisher::fixture;

    #[test]
    fn a_line_for_each_guest_stands_under_the_titles() {
        let mut process = fixture::snapshot();
        process.guests[0] = fixture::later();
        let before = fixture::guest();
        let rates = vec![
            Rates::between(Some(&before), &process.guests[0]),
            Rates::between(None, &process.guests[1]),
        ];
        let seen = Observation {
            processes: vec![(process, rates)],
            troubles: Vec::new(),
        };
        let table = render(&seen);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "    PID GUEST     STATE EXITS/s LAUNCH/s  GPU   KERNELS QUEUE         GPU MEMORY",
                "   4711 vm0       runs      250     1500  42%    2.65 s    12    128 MiB / 1 GiB",
                "   4711 vm1       ended     250        -    -         -     -                  -",
            ]
        );
    }
}
