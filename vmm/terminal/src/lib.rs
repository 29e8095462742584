//! Output of all commands: exit codes and messages ([`Failure`]), lines on the terminal ([`say`],
//! [`print_results`]), files ([`OutputFile`], [`ReportFile`]), what reports say of their making
//! ([`Origin`]), and raw mode ([`RawTerminal`]).

mod failure;
mod origin;
mod output;
mod output_file;
mod raw;
mod report_file;

pub use failure::{Code, Failure, check_range};
pub use origin::{Load, Origin, set_revision};
pub use output::{
    WIDTH_ELSEWHERE, output_width, print_bytes, print_results, print_while_read, say, set_progress,
    start_logging,
};
pub use output_file::OutputFile;
pub use raw::{KEEPER, RawTerminal, keep};
pub use report_file::ReportFile;
