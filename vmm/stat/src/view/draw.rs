//! Draws the live view: the table of guests, and the chosen guest below. The layout is made for 80
//! columns, but also fits other widths.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState};

use super::state::{Row, State};
use crate::columns::{COLUMNS, COUNT, texts};
use crate::text::{bytes, duration, figure, fit, part, seconds};
use causeway_publisher::rights::{Right, Rights};

/// Maximum number of lines of the table while a guest is shown below it.
const TABLE_LINES_MAX: u16 = 12;
/// Width of a bar in the lower part.
const BAR_WIDTH: usize = 10;
const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws one frame of the live view from `state`.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let rows = state.rows();
    let lines = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    let lines = lines.saturating_add(1).min(TABLE_LINES_MAX);
    let [head, table, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let guests = rows.iter().filter(|row| row.guest.gpu_index == 0);
    draw_head(frame, head, state, guests.count());
    draw_table(frame, table, &rows, state.chosen());
    match rows.get(state.chosen()) {
        Some(row) => draw_detail(frame, detail, row),
        None => frame.render_widget(
            Paragraph::new("No guests are running.").alignment(Alignment::Center),
            detail,
        ),
    }
    draw_foot(frame, foot, state);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State, guests: usize) {
    let plural = if guests == 1 { "" } else { "s" };
    let left = Line::styled(format!("causeway stat: {guests} guest{plural}"), TITLE);
    let every = format!("every {:.1} s", state.interval.as_secs_f64());
    frame.render_widget(left, area);
    frame.render_widget(Line::styled(every, QUIET).alignment(Alignment::Right), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let line = match state.trouble() {
        Some(trouble) => Line::styled(trouble.to_owned(), Style::new().fg(Color::Yellow)),
        None => Line::styled("↑ ↓ choose   q quit", QUIET),
    };
    frame.render_widget(line, area);
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, rows: &[Row<'_>], chosen: usize) {
    let cells = |texts: [String; COUNT]| {
        let cells = texts.into_iter().zip(COLUMNS);
        TableRow::new(cells.map(|(text, column)| {
            Cell::from(Line::from(text).alignment(match column.right {
                true => Alignment::Right,
                false => Alignment::Left,
            }))
        }))
    };
    let head = cells(COLUMNS.map(|column| column.title.to_owned())).style(TITLE);
    let widths = COLUMNS.map(|column| Constraint::Length(column.width as u16));
    let rows = rows
        .iter()
        .map(|row| texts(row.process, row.guest, row.rates));
    let table = Table::new(rows.map(cells), widths)
        .header(head)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, row: &Row<'_>) {
    let title = format!(
        " {} of process {}: {} on {}{}, {} ",
        row.guest.name,
        row.process.pid,
        row.process.command,
        which_gpu(row),
        row.process.gpu,
        duration(row.guest.ran_ns),
    );
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let [left, right] = Layout::horizontal(halves).spacing(2).areas(inner);
    frame.render_widget(Paragraph::new(exits(row, left.width.into())), left);
    frame.render_widget(Paragraph::new(session(row)), right);
}

/// Returns which of the GPUs of its process a guest has, if there are several.
fn which_gpu(row: &Row<'_>) -> String {
    match row.process.gpu.contains(' ') {
        true => format!("GPU {} of ", row.guest.gpu_number),
        false => String::new(),
    }
}

/// Returns the lines about exits: by reason, and those that reached the VMM.
fn exits(row: &Row<'_>, width: usize) -> Vec<Line<'static>> {
    let (Some(vm), Some(rates)) = (&row.guest.vm, &row.rates.vm) else {
        let why = match row.guest.gpu_index {
            0 => "A process, not a VM: it has no exits.",
            _ => "Exits are counted at the VM's GPU 0.",
        };
        return vec![Line::styled(why, QUIET)];
    };
    let mut lines = vec![Line::styled("Exits per second, by KVM's count", TITLE)];
    let total = rates.exits();
    match total {
        None => lines.push(Line::styled("This KVM keeps no statistics.", QUIET)),
        Some(0.0) => lines.push(Line::from("none")),
        Some(total) => {
            let reasons = rates.by_reason().into_iter();
            lines.extend(reasons.map(|(reason, rate)| bar(reason, rate, total, width)));
        }
    }
    lines.push(Line::from(""));
    lines.push(Line::styled("Of these, to the VMM", TITLE));
    let causes = rates.by_cause();
    if causes.is_empty() {
        lines.push(Line::from("none"));
    }
    let causes = causes.into_iter();
    lines.extend(causes.map(|(cause, rate)| pair(cause, &figure(rate), width)));
    lines.push(Line::from(""));
    let faults = rates.kvm.as_ref().and_then(|kvm| kvm.get("pf_taken"));
    if let Some(faults) = faults {
        lines.push(pair("page faults/s", &figure(*faults), width));
    }
    let machine = format!("{} vCPU, {}", vm.vcpus, bytes(vm.memory_bytes as f64));
    lines.push(pair("machine", &machine, width));
    lines
}

/// Returns the lines about the session.
fn session(row: &Row<'_>) -> Vec<Line<'static>> {
    let Some(session) = &row.guest.session else {
        return vec![Line::styled(
            "The worker process does not answer.",
            Style::new().fg(Color::Yellow),
        )];
    };
    let now = &session.statistics;
    let aperture = row.guest.aperture;
    let busy = row.rates.busy_share().map(|share| filled("busy", share));
    let mut lines = vec![
        Line::styled("GPU", TITLE),
        busy.unwrap_or_else(|| value("busy", "-")),
        value("kernel time", &seconds(now.kernel_ns)),
        gauge("memory", now.memory_used_bytes, now.memory_limit_bytes),
        value("", &part(now.memory_used_bytes, now.memory_limit_bytes)),
        value(
            "allocations",
            &format!(
                "{}, most {}",
                now.allocations,
                bytes(now.memory_peak_bytes as f64)
            ),
        ),
        gauge("queue", now.queued_units, now.queue_units),
        value(
            "",
            &format!(
                "{} / {} in {} buffer{}",
                now.queued_units,
                now.queue_units,
                now.command_buffers,
                if now.command_buffers == 1 { "" } else { "s" }
            ),
        ),
        value(
            "aperture",
            &format!(
                "{} in {}",
                bytes(aperture.used_bytes as f64),
                aperture.placements
            ),
        ),
        Line::styled("Per second", TITLE),
    ];
    if let Some(rates) = &row.rates.session {
        for (name, rate) in [
            ("launches", rates.launches),
            ("replays", rates.replays),
            ("copies, fills", rates.copies + rates.fills),
            ("packets", rates.packets),
            ("control batches", rates.batches),
            ("doorbells", rates.doorbell_wakeups),
            ("interrupts", rates.interrupts),
        ] {
            lines.push(value(name, &figure(rate)));
        }
        lines.push(value("written", &bytes(rates.written_bytes)));
    }
    if now.faults.saturating_add(now.failed_messages) != 0 {
        let text = format!("{} / {}", now.faults, now.failed_messages);
        let line = value("faults / refused", &text);
        lines.push(line.style(Style::new().fg(Color::Yellow)));
    }
    lines.extend(rights(&row.guest.rights));
    lines
}

/// Returns a line for each right that a guest has given to others, and has of others. They may not
/// fit on a small terminal.
fn rights(rights: &Rights) -> impl Iterator<Item = Line<'static>> {
    let line = |name: String, access: Right, of: u64| {
        value(&name, &format!("{} {}", bytes(of as f64), access.name()))
    };
    let given = rights.given.iter();
    let given = given.map(move |it| line(format!("for GPU {}", it.gpu), it.access, it.bytes));
    let held = rights.held.iter();
    let held = held.map(move |it| line(format!("of GPU {}", it.gpu), it.access, it.bytes));
    given.chain(held)
}

/// Returns a line with a name, a rate, and a bar for its share of the total.
fn bar(name: &str, rate: f64, total: f64, width: usize) -> Line<'static> {
    let filled = (rate / total * BAR_WIDTH as f64).round();
    let filled = (filled as usize).min(BAR_WIDTH);
    let mut line = pair(name, &figure(rate), width.saturating_sub(BAR_WIDTH + 1));
    line.push_span(Span::from(" "));
    line.push_span(Span::styled(
        "█".repeat(filled),
        Style::new().fg(Color::Cyan),
    ));
    line
}

/// Returns a line of `width` characters with a name at the left and a figure at the right.
fn pair(name: &str, figure: &str, width: usize) -> Line<'static> {
    let room = width.saturating_sub(figure.chars().count() + 1);
    let name = fit(name, room);
    Line::from(format!("{name:<room$} {figure}"))
}

/// Returns a line with a name and a figure beside it.
fn value(name: &str, figure: &str) -> Line<'static> {
    Line::from(format!("{name:<16} {figure}"))
}

/// Returns a line with a name, and a bar that shows which share of `all` is used.
fn gauge(name: &str, used: u64, all: u64) -> Line<'static> {
    match all {
        0 => filled(name, 0.0),
        all => filled(name, used as f64 / all as f64),
    }
}

/// Returns a line with a name, and a bar that shows `share`, where 1 is all.
fn filled(name: &str, share: f64) -> Line<'static> {
    let filled = ((share * BAR_WIDTH as f64).ceil() as usize).min(BAR_WIDTH);
    let bar = "█".repeat(filled) + &"·".repeat(BAR_WIDTH - filled);
    let mut line = Line::from(format!("{name:<16} "));
    line.push_span(Span::styled(bar, Style::new().fg(Color::Cyan)));
    let percent = (share * 100.0).clamp(0.0, 100.0);
    line.push_span(Span::from(format!(" {percent:.0} %")));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Rates;
    use crate::sampler::Observation;
    use causeway_publisher::fixture;
    use causeway_publisher::snapshot::Snapshot;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn seen() -> Observation {
        let mut process = fixture::snapshot();
        process.guests[0] = fixture::later();
        let before = [Some(fixture::guest()), None];
        let rates = process.guests.iter().zip(&before);
        let rates = rates.map(|(now, before)| Rates::between(before.as_ref(), now));
        let rates = rates.collect();
        Observation {
            processes: vec![(process, rates)],
            troubles: Vec::new(),
        }
    }

    /// What a screen of this size shows, line by line.
    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        (0..height).map(line).collect()
    }

    #[track_caller]
    fn assert_shows(screen: &[String], texts: &[&str]) {
        for text in texts {
            let shown = screen.iter().any(|line| line.contains(text));
            assert!(shown, "no `{text}` in\n{}", screen.join("\n"));
        }
    }

    #[test]
    fn eighty_columns_are_enough_for_everything() {
        let state = State::new(seen(), Duration::from_secs(1));
        let screen = screen(&state, 80, 24);
        assert_shows(
            &screen,
            &[
                "causeway stat: 2 guests",
                "every 1.0 s",
                "   4711 vm0       runs      250     1500  42%    2.65 s    12    128 MiB / 1 GiB",
                "   4711 vm1       ended     250        -    -         -     -                  -",
                " vm0 of process 4711: run on software, 11 s ",
                "q quit",
                "launches         1500",
                "written          1 MiB",
                "12 / 256 in 1 buffer",
                "busy             █████····· 42 %",
                "kernel time      2.65 s",
                "io:testdev:record",
                "2 vCPU, 256 MiB",
                "12 %",
            ],
        );
        // The most frequent reason is the first.
        let line = |text: &str| screen.iter().position(|line| line.starts_with(text));
        assert!(line("irq").unwrap() < line("io ").unwrap());
    }

    #[test]
    fn rights_to_memory_follow_if_there_is_room() {
        let state = State::new(seen(), Duration::from_secs(1));
        let shown = [
            "for GPU 1        2 MiB read",
            "for GPU 1        4 MiB read-write",
            "of GPU 1         8 MiB read",
        ];
        assert_shows(&screen(&state, 80, 30), &shown);
    }

    #[test]
    fn the_chosen_guest_is_the_one_in_detail() {
        let mut state = State::new(seen(), Duration::from_secs(1));
        state.step(true);
        let screen = screen(&state, 80, 24);
        assert_shows(
            &screen,
            &[
                " vm1 of process 4711",
                "The worker process does not answer.",
            ],
        );
    }

    #[test]
    fn any_size_of_screen_is_survived() {
        let mut state = State::new(seen(), Duration::from_secs(1));
        for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 10), (80, 2), (300, 100)] {
            screen(&state, width, height);
        }
        state.update(Observation {
            processes: Vec::new(),
            troubles: vec!["process 4711 does not answer".to_owned()],
        });
        let screen = screen(&state, 80, 24);
        assert_shows(
            &screen,
            &["No guests are running.", "does not answer", "0 guests"],
        );
    }

    #[test]
    fn a_guest_says_which_of_several_gpus_it_has() {
        let shown = |gpu: &str| {
            let process = Snapshot {
                gpu: gpu.to_owned(),
                guests: vec![fixture::guest()],
                ..fixture::snapshot()
            };
            let rates = vec![Rates::between(None, &process.guests[0])];
            let seen = Observation {
                processes: vec![(process, rates)],
                troubles: Vec::new(),
            };
            screen(&State::new(seen, Duration::from_secs(1)), 80, 24)
        };
        assert_shows(
            &shown("cuda:0 cuda:1"),
            &["run on GPU 0 of cuda:0 cuda:1, "],
        );
        assert_shows(&shown("cuda:0"), &["run on cuda:0, "]);
    }

    #[test]
    fn a_further_gpu_is_in_the_table_but_is_no_further_guest() {
        let process = Snapshot {
            guests: vec![fixture::guest(), fixture::further_gpu()],
            ..fixture::snapshot()
        };
        let rates = process.guests.iter().map(|g| Rates::between(None, g));
        let rates = rates.collect();
        let seen = Observation {
            processes: vec![(process, rates)],
            troubles: Vec::new(),
        };
        let mut state = State::new(seen, Duration::from_secs(1));
        state.step(true);
        let screen = screen(&state, 80, 24);
        assert_shows(&screen, &["stat: 1 guest ", "vm0.gpu1", "the VM's GPU 0."]);
    }

    #[test]
    fn a_process_that_is_served_has_no_exits_and_many_guests_scroll() {
        let mut guest = fixture::guest();
        guest.vm = None;
        let named = |n| causeway_publisher::snapshot::Guest {
            name: format!("process{n}"),
            ..guest.clone()
        };
        let process = Snapshot {
            guests: (0..40).map(named).collect(),
            ..fixture::snapshot()
        };
        let rates = process.guests.iter().map(|g| Rates::between(None, g));
        let rates = rates.collect();
        let seen = Observation {
            processes: vec![(process, rates)],
            troubles: Vec::new(),
        };
        let mut state = State::new(seen, Duration::from_secs(1));
        (0..39).for_each(|_| state.step(true));
        let screen = screen(&state, 80, 24);
        assert_shows(&screen, &["process39 runs        -", "A process, not a VM"]);
    }
}
