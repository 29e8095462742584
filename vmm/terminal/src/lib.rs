//! Output of all commands: exit codes and messages ([`Failure`]), lines on the terminal ([`say`],
//! [`print_results`]), log lines ([`start_logging`]), files ([`OutputFile`], [`ReportFile`]), what
//! reports say of their making ([`Origin`]), raw mode ([`RawTerminal`]), work in the background of
//! a terminal ([`unstopped`]), and what must be undone when the process ends ([`Leftover`]). Also
//! values of options that several commands have ([`number`], [`TimeLimit`]).

mod background;
mod columns;
mod escape;
mod failure;
mod leftovers;
mod limit;
mod logs;
mod origin;
mod output;
mod output_file;
mod raw;
mod report_file;
mod report_keeper;
#[cfg(feature = "schema")]
mod schema;
mod time;
mod values;

pub use background::unstopped;
pub use columns::in_columns;
pub use escape::{escaped, shown_path};
pub use failure::{Code, Failure, check_range};
pub use leftovers::{Leftover, undo_leftovers};
pub use logs::{LogSettings, log_arguments, start_logging};
pub use origin::{Load, Origin, set_revision};
pub use output::{
    WIDTH_ELSEWHERE, output_width, print_bytes, print_results, print_while_read, say, set_progress,
};
pub use output_file::{OutputFile, refuse_same_file};
pub use raw::{KEEPER, RawTerminal, keep};
pub use report_file::ReportFile;
pub use report_keeper::{ReportKeeper, keep_report};
#[cfg(feature = "schema")]
pub use schema::schema_of;
pub use time::utc_text;
pub use values::{TimeLimit, number};
