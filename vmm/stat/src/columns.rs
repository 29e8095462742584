//! The columns of the table of guests, in the live view and in the plain table.

use causeway_publisher::snapshot::{Guest, Session, Snapshot};

use crate::rates::Rates;
use crate::text::{figure, fit, part, percent, seconds};

/// Number of columns.
pub const COUNT: usize = 9;

/// A column: its title, its width in characters, and whether it contains figures, which stand at
/// its right.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Title of the column.
    pub title: &'static str,
    /// Width in characters.
    pub width: usize,
    /// Whether the texts stand at the right.
    pub right: bool,
}

/// All columns, which with a blank between them take 80 characters.
pub const COLUMNS: [Column; COUNT] = [
    column("PID", 7, true),
    column("GUEST", 9, false),
    column("STATE", 5, false),
    column("EXITS/s", 7, true),
    column("LAUNCH/s", 8, true),
    column("GPU", 4, true),
    column("KERNELS", 9, true),
    column("QUEUE", 5, true),
    column("GPU MEMORY", 18, true),
];

const fn column(title: &'static str, width: usize, right: bool) -> Column {
    Column {
        title,
        width,
        right,
    }
}

/// Returns the texts of a guest's row, each cut to its column's width. `rates` are those of the
/// guest, which is one of `process`.
pub fn texts(process: &Snapshot, guest: &Guest, rates: &Rates) -> [String; COUNT] {
    let absent = || "-".to_owned();
    let exits = rates.vm.as_ref().and_then(|vm| vm.exits());
    let session = |show: fn(&Session) -> String| guest.session.as_ref().map_or_else(absent, show);
    let rate = |show: fn(&Rates) -> Option<String>| show(rates).unwrap_or_else(absent);
    let mut texts = [
        process.pid.to_string(),
        guest.name.clone(),
        state(guest).to_owned(),
        exits.map_or_else(absent, figure),
        rate(|rates| Some(figure(rates.session?.launches))),
        rate(|rates| Some(percent(rates.busy_share()?))),
        session(|s| seconds(s.statistics.kernel_ns)),
        session(|s| figure(s.statistics.queued_units as f64)),
        session(|s| {
            part(
                s.statistics.memory_used_bytes,
                s.statistics.memory_limit_bytes,
            )
        }),
    ];
    for (text, column) in texts.iter_mut().zip(COLUMNS) {
        *text = fit(text, column.width);
    }
    texts
}

/// Returns whether the guest runs, in a word.
fn state(guest: &Guest) -> &'static str {
    match (guest.ended, guest.session) {
        (true, _) => "ended",
        (false, Some(session)) if session.lost => "lost",
        (false, Some(_)) if guest.paused => "pause",
        (false, Some(_)) => "runs",
        (false, None) => "mute",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_take_eighty_characters() {
        let widths: usize = COLUMNS.iter().map(|column| column.width).sum();
        assert_eq!(widths + COUNT - 1, 80);
        let fits = |column: &Column| column.title.len() <= column.width;
        assert!(COLUMNS.iter().all(fits));
    }
}
