//! The ways to run a program: each is a command that a user can type.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use causeway_vmm::signals::Signals;

use crate::folders::{Place, files_below};
use crate::life::{Life, LifeError};
use crate::limited::{self, Ended, OUTPUT_BYTES_MAX};
use crate::recipe::Program;
use crate::told::{GuestReport, ProcessReport, Told, read};

/// Folder of a guest with what the program has on the host in [`Place::copies`].
const GUEST_FOLDER: &str = "/suite";

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it is, with the libraries that the loader finds: NVIDIA's, on a host with a GPU.
    Native,
    /// By `causeway cuda`: as a process of the host, over a socket.
    Process,
    /// By `causeway run`: in a Linux guest.
    Guest,
}

impl Way {
    /// All ways, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Native, Self::Process, Self::Guest];

    /// Returns the name of the way.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Process => "process",
            Self::Guest => "guest",
        }
    }

    /// Returns the way of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }
}

/// What all programs are run on.
#[derive(Clone, Debug)]
pub struct Host {
    /// The `causeway` command.
    pub causeway: PathBuf,
    /// Its `--gpu`.
    pub gpu: String,
    /// The Linux kernel of guests, and further options of `causeway run`.
    pub guest: Vec<OsString>,
    /// Most time that a program may take.
    pub limit: Duration,
}

impl Way {
    /// Runs a program, whose files are in `place`, in `folder`.
    pub(crate) fn live(
        self,
        program: &Program,
        (place, folder): (&Place, &Path),
        host: &Host,
        signals: &mut Signals,
    ) -> Result<Life, LifeError> {
        let files = |path: &Path, e| LifeError::Files(path.to_owned(), e);
        let [report, said] = ["report.json", "warnings.txt"].map(|name| place.file(name));
        for old in [&report, &said] {
            match fs::remove_file(old) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(files(old, e)),
                _ => {}
            }
        }
        let mut command = self.command(program, (place, folder), host, &report)?;
        let shown = PathBuf::from(command.get_program());
        let log = place.file(&format!("output-{}.txt", self.name()));
        let output = File::create(&log).map_err(|e| files(&log, e))?;
        let errors = output.try_clone().map_err(|e| files(&log, e))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        command.current_dir(folder).env("CAUSEWAY_CUDA_LOG", &said);
        let ended = limited::run(&mut command, &log, host.limit, signals);
        let (status, time) = match ended.map_err(|e| LifeError::Command(shown, e))? {
            Ended::Alone(status, time) => (status, time),
            Ended::Overdue => return Err(LifeError::Overdue(host.limit)),
            Ended::Noisy => return Err(LifeError::Noisy(OUTPUT_BYTES_MAX)),
            Ended::Signal(signal) => return Err(LifeError::Signal(signal)),
        };
        let output = read_start(&log).map_err(|e| files(&log, e))?;
        // A guest's console ends lines with both characters.
        let output = String::from_utf8_lossy(&output).replace("\r\n", "\n");
        let told = match self {
            Self::Native => Told::native(status, time),
            Self::Process => read::<ProcessReport>(&report, &output)?.told(time),
            Self::Guest => read::<GuestReport>(&report, &output)?.told()?,
        };
        let said = read_start(&said).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        Ok(told.life(output, said.lines().map(str::to_owned).collect()))
    }

    fn command(
        self,
        program: &Program,
        (place, folder): (&Place, &Path),
        host: &Host,
        report: &Path,
    ) -> Result<Command, LifeError> {
        let inputs = place.inputs();
        let arguments = Place::arguments(program, &inputs.to_string_lossy());
        let causeway = |subcommand: &str| {
            let mut command = Command::new(&host.causeway);
            command.arg(subcommand).args(["--gpu", &host.gpu]);
            command.arg("--json").arg(report);
            command
        };
        Ok(match self {
            Self::Native => {
                let mut command = Command::new(place.program());
                command.args(arguments);
                command
            }
            Self::Process => {
                let mut command = causeway("cuda");
                command.arg("--").arg(place.program()).args(arguments);
                command
            }
            Self::Guest => {
                let mut command = causeway("run");
                command.args(&host.guest);
                command.args(["--timeout", &host.limit.as_secs().to_string()]);
                command.arg("--program").arg(place.program());
                let files = guest_files(program, place, folder);
                let files = files.map_err(|e| LifeError::Files(folder.to_owned(), e))?;
                for file in files {
                    command.arg("--file").arg(file);
                }
                let cwd = Path::new(GUEST_FOLDER).join(&program.folder);
                let inputs = format!("{GUEST_FOLDER}/data");
                command.arg("--cwd").arg(cwd).arg("--");
                command.args(Place::arguments(program, &inputs));
                command
            }
        })
    }
}

/// Reads a file, as far as a program may print.
fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(OUTPUT_BYTES_MAX)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the files that a program finds in its guest, each with its place there.
fn guest_files(program: &Program, place: &Place, folder: &Path) -> io::Result<Vec<OsString>> {
    let inputs = program.inputs.iter().map(|name| place.inputs().join(name));
    let files = files_below(folder)?.into_iter().chain(inputs);
    let mapped = files.filter_map(|file| {
        let inside = file.strip_prefix(place.copies()).ok()?;
        let there = Path::new(GUEST_FOLDER).join(inside);
        let mut text = file.clone().into_os_string();
        text.push(":");
        text.push(there);
        Some(text)
    });
    Ok(mapped.collect())
}
