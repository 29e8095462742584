//! Output of all commands: exit codes and messages ([`Failure`]), lines on the terminal ([`say`],
//! [`print_results`]), log lines ([`start_logging`]), files ([`OutputFile`], [`ReportFile`]) and raw
//! mode ([`RawTerminal`]).

mod failure;
mod logs;
mod output;
mod output_file;
mod raw;
mod report_file;
mod time;

pub use failure::{Code, Failure, check_range};
pub use logs::{LogSettings, log_arguments, start_logging};
pub use output::{
    WIDTH_ELSEWHERE, output_width, print_bytes, print_results, print_while_read, say, set_progress,
};
pub use output_file::OutputFile;
pub use raw::{KEEPER, RawTerminal, keep};
pub use report_file::ReportFile;
pub use time::utc_text;
