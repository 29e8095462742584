//! The table of limits.

use causeway_publisher::limits::{Limits, names};
use causeway_terminal::in_columns;

/// Returns a table of limits: a line with the titles, and a line for each guest.
pub fn render(limits: &Limits) -> String {
    let titles = names().into_iter().map(str::to_uppercase);
    let mut lines = vec![line("GUEST", titles)];
    for guest in &limits.guests {
        let value = |name| guest.limits.get(name).map_or("-", String::as_str);
        let values = names().into_iter().map(value).map(str::to_owned);
        lines.push(line(&guest.guest, values));
    }
    in_columns(&lines)
}

fn line(guest: &str, values: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(guest.to_owned()).chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_publisher::limits::{GuestLimits, SCHEMA};

    #[test]
    fn every_guest_has_a_line_under_the_titles() {
        let guest = |name: &str, weight: &str| {
            let texts = [
                ("memory", "1536MiB"),
                ("allocations", "1024"),
                ("queues", "64"),
                ("weight", weight),
                ("timeout", "3600000"),
                ("requests", "none"),
            ];
            let owned = texts.map(|(name, text)| (name.to_owned(), text.to_owned()));
            GuestLimits {
                guest: name.to_owned(),
                limits: owned.into(),
                is_late: false,
            }
        };
        let limits = Limits {
            schema: SCHEMA.to_owned(),
            pid: 1,
            guests: vec![guest("vm0", "none"), guest("process10", "10000")],
            warning: None,
        };
        let table = render(&limits);
        assert_eq!(
            table.lines().collect::<Vec<_>>(),
            [
                "GUEST       MEMORY  ALLOCATIONS  QUEUES  WEIGHT  SHARE  TIMEOUT  REQUESTS",
                "vm0        1536MiB         1024      64    none      -  3600000      none",
                "process10  1536MiB         1024      64   10000      -  3600000      none",
            ]
        );
    }
}
