//! `causeway completions`: completions of the command line, for shells.

use std::process::ExitCode;

use causeway_terminal::{Failure, print_bytes};
use clap::{Args, Command};
use clap_complete::Shell;

/// Name of the executable, which shells complete.
const NAME: &str = "causeway";

/// Arguments of `causeway completions`, as the user typed them.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// Shell that completes the command line.
    pub shell: Shell,
}

/// Prints a script by which a shell completes the command line `command`.
///
/// # Errors
/// A report failure if standard output cannot be written.
pub fn run(arguments: &CompletionsArguments, command: &Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut shown = shown(command);
    clap_complete::generate(arguments.shell, &mut shown, NAME, &mut script);
    print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command without its hidden subcommands, which clap_complete would propose.
fn shown(command: &Command) -> Command {
    let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set());
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(subcommands.cloned())
}
