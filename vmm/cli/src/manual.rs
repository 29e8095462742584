//! `causeway man`: manual pages of all subcommands.

use std::path::PathBuf;
use std::process::ExitCode;

use causeway_terminal::{Code, Failure, say};
use clap::{Args, Command};

/// Arguments of `causeway man`, as the user typed them.
#[derive(Debug, Args)]
pub struct ManualArguments {
    /// Directory for the pages, such as ~/.local/share/man/man1. It is created if it does not
    /// exist; pages in it are replaced.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// Writes a manual page for `command` and for each of its subcommands.
///
/// # Errors
/// A report failure if the directory or a page cannot be written.
pub fn run(arguments: &ManualArguments, command: Command) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .map_err(|e| {
            let message = format!(
                "cannot write manual pages to {} (name a directory that you can write to)",
                directory.display()
            );
            Failure::new(Code::Report, message, e)
        })?;
    say(&format!(
        "causeway: wrote manual pages to {0}; `man -l {0}/causeway.1` shows the first",
        directory.display()
    ));
    Ok(ExitCode::SUCCESS)
}
