//! `causeway initramfs`: the initramfs of a program, as a file.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::boot;
use crate::program::{self, Kernel, ProgramArguments, Sources};
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use causeway_terminal::{OutputFile, shown_path};

/// Arguments of `causeway initramfs`, as the user typed them.
#[derive(Debug, Args)]
pub struct InitramfsArguments {
    /// Program that the guest runs: an executable for x86-64. The libraries that it needs are taken
    /// from this host, and libcuda.so.1 from this command. `causeway run --initramfs` ends with the
    /// program's exit status.
    #[arg(long, value_name = "FILE")]
    pub program: PathBuf,
    /// Files, kernel modules and arguments for the program.
    #[command(flatten)]
    pub more: ProgramArguments,
    /// Linux kernel that the guest will boot. Its modules for PCI and virtio devices go into the
    /// initramfs.
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// File to write, or - for standard output. The same arguments and files always give the same
    /// bytes.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Makes the initramfs of a program, and writes it to the file of `--output`.
///
/// # Errors
/// A usage failure if an argument is invalid; an image failure if the program or kernel cannot be
/// read; a report failure if the output cannot be written.
pub fn run(arguments: &InitramfsArguments) -> Result<ExitCode, Failure> {
    let to_output = arguments.output == Path::new("-");
    if to_output && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "--output - would write an archive to the terminal: name a file, or redirect standard \
             output",
        ));
    }
    let unwritable = |e| {
        let message = format!(
            "cannot write the initramfs {}",
            shown_path(&arguments.output)
        );
        Failure::new(Code::Report, message, e)
    };
    let place = (!to_output).then(|| OutputFile::prepare(&arguments.output));
    let place = place.transpose().map_err(unwritable)?;
    let kernel = arguments.kernel.as_deref();
    let image = kernel.map(boot::read_image).transpose()?;
    let kernel = kernel
        .zip(image.as_deref())
        .map(|(path, image)| Kernel { path, image });
    let archive = program::initramfs(
        (&arguments.program, &arguments.more.program_arguments),
        &arguments.more,
        Sources::default(),
        kernel,
    )?;
    match place {
        None => terminal::print_bytes(&archive)?,
        Some(place) => {
            place
                .write(|out| out.write_all(&archive))
                .map_err(unwritable)?;
            terminal::say(&format!(
                "causeway: wrote {}: {} KiB",
                shown_path(&arguments.output),
                archive.len().div_ceil(1024)
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}
