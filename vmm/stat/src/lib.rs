//! `causeway stat`: shows statistics of guests in running processes.
//!
//! Each process with guests answers on a socket of its own ([`causeway_publisher`]), whose name
//! contains its process ID. A process sends counts; module `rates` computes rates from them.

mod arguments;
mod columns;
mod rates;
mod record;
mod sampler;
mod table;
mod text;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use arguments::StatArguments;

use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use record::Record;
use sampler::{Observation, Sampler};

/// Returns the JSON schema of a line of `--json`.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    terminal::schema_of::<Record<'_>>(record::SCHEMA)
}

/// Prints or shows statistics of running guests until the user stops the command or the last
/// process ends.
///
/// # Errors
/// A usage failure if an argument is invalid or no process answers; a failure with its own exit
/// code if the terminal cannot be used or the output cannot be written.
pub fn run(arguments: &StatArguments) -> Result<ExitCode, Failure> {
    arguments.check()?;
    let interval = Duration::from_millis(arguments.interval_ms);
    if !arguments.json && !arguments.once {
        check_terminal()?;
    }
    let mut sampler = Sampler::new(arguments.pid);
    let first = sampler.look()?;
    if arguments.pid.is_none() && first.processes.is_empty() {
        if !first.troubles.is_empty() {
            complain(&first.troubles);
            return Err(Failure::usage(
                "no process sent statistics: the messages above say why",
            ));
        }
        say("nothing to show: this user has no running `causeway run` or `causeway serve`");
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.once {
        complain(&first.troubles);
        match arguments.json {
            true => print(&first).map(drop)?,
            false => terminal::print_results(&table::render(&first))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.json {
        return view::show(sampler, first, interval);
    }
    follow(&mut sampler, interval, arguments.count)
}

/// Prints the statistics of each interval.
fn follow(
    sampler: &mut Sampler,
    interval: Duration,
    count: Option<u64>,
) -> Result<ExitCode, Failure> {
    let mut next = Instant::now();
    let mut troubles = Vec::new();
    for index in 0.. {
        if count == Some(index) {
            break;
        }
        // An interval that was missed because a query took long is skipped.
        next = (next + interval).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        match sampler.look() {
            Ok(seen) => {
                // Printed once, as long as the message stays the same.
                if seen.troubles != troubles {
                    complain(&seen.troubles);
                }
                troubles.clone_from(&seen.troubles);
                if !print(&seen)? {
                    break;
                }
            }
            // The process was monitored until its end, which is success.
            Err(ended) if index > 0 => {
                say(&ended.to_string());
                break;
            }
            Err(ended) => return Err(ended),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the records of all guests. Returns false if the reader has closed the pipe.
fn print(seen: &Observation) -> Result<bool, Failure> {
    let mut text = String::new();
    for (process, guest, rates) in seen.guests() {
        let record = serde_json::to_string(&Record::new(process, guest, rates));
        text += &record
            .map_err(|e| Failure::new(Code::Report, "cannot encode statistics as JSON", e))?;
        text.push('\n');
    }
    terminal::print_while_read(&text)
}

fn complain(troubles: &[String]) {
    troubles.iter().for_each(|trouble| say(trouble));
}

fn say(line: &str) {
    terminal::say(&format!("causeway: {line}"));
}

/// Refuses the live view unless standard input and output are terminals. Programs choose a format
/// by an option.
fn check_terminal() -> Result<(), Failure> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "the live view needs a terminal as standard input and output: use --once for a table, or \
         --json for one line for each guest and interval",
    ))
}
