//! Output of all commands: exit codes and messages ([`Failure`]), lines on the terminal ([`say`],
//! [`print_results`]), files ([`OutputFile`], [`ReportFile`]) and raw mode ([`RawTerminal`]). Also
//! values of options that several commands have ([`number`], [`TimeLimit`]).

mod escape;
mod failure;
mod output;
mod output_file;
mod raw;
mod report_file;
mod values;

pub use escape::{escaped, shown_path};
pub use failure::{Code, Failure, check_range};
pub use output::{
    WIDTH_ELSEWHERE, output_width, print_bytes, print_results, print_while_read, say, set_progress,
    start_logging,
};
pub use output_file::{OutputFile, refuse_same_file};
pub use raw::{KEEPER, RawTerminal, keep};
pub use report_file::ReportFile;
pub use values::{TimeLimit, number};
