//! nvcc, as it is told to build a program.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use causeway_vmm::signals::Signals;

use crate::folders::Place;
use crate::recipe::Program;

/// What a program is built with.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The compiler: a path, or a name that is searched for in `PATH`.
    pub nvcc: PathBuf,
    /// The value of its option `-arch`, such as `sm_90`.
    pub code: String,
    /// Folders with headers.
    pub includes: Vec<PathBuf>,
    /// Folders of libraries with which programs are linked; the first has `libcudart.so`.
    pub libraries: Vec<PathBuf>,
}

/// Why a program was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// nvcc could not be started.
    #[error("cannot start {0} (--nvcc names it)")]
    NoCompiler(PathBuf, #[source] io::Error),
    /// nvcc found an error.
    #[error("nvcc: {message} ({log} has all)", log = log.display())]
    Failed {
        /// Its first message of an error.
        message: String,
        /// The file with what it was told and what it said.
        log: PathBuf,
    },
    /// The program's folder could not be written.
    #[error("cannot write {0}")]
    Unwritable(PathBuf, #[source] io::Error),
    /// It was to be there.
    #[error("{0} is not there: leave --built away")]
    Absent(PathBuf),
}

impl Compiler {
    /// Builds a program from the folder `source` of its suite, unless the same command has built it
    /// before.
    pub(crate) fn build(
        &self,
        program: &Program,
        source: &Path,
        place: &Place,
        signals: &Signals,
    ) -> Result<(), BuildError> {
        let (target, mark, log) = (
            place.program(),
            place.file("command.txt"),
            place.file("build.log"),
        );
        let words = self.words(program, &target);
        let line = words.join(&OsString::from(" "));
        let known = fs::read(&mark).is_ok_and(|known| known == line.as_encoded_bytes());
        if known && target.exists() {
            return Ok(());
        }
        let unwritable = |path: &Path, e| BuildError::Unwritable(path.to_owned(), e);
        // Nothing says that what is there is whole.
        fs::remove_file(&mark)
            .or_else(absent)
            .map_err(|e| unwritable(&mark, e))?;
        let mut command = Command::new(&self.nvcc);
        command
            .args(&words)
            .current_dir(source)
            .stdin(Stdio::null());
        signals.let_through(&mut command);
        let done = command.output();
        let done = done.map_err(|e| BuildError::NoCompiler(self.nvcc.clone(), e))?;
        let said = [line.as_encoded_bytes(), b"\n", &done.stdout, &done.stderr].concat();
        fs::write(&log, said).map_err(|e| unwritable(&log, e))?;
        if !done.status.success() {
            let message = first_error(&String::from_utf8_lossy(&done.stderr));
            return Err(BuildError::Failed { message, log });
        }
        fs::write(&mark, line.as_encoded_bytes()).map_err(|e| unwritable(&mark, e))
    }

    /// Returns the arguments of nvcc.
    fn words(&self, program: &Program, target: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["-cudart".into(), "shared".into()];
        words.push(format!("-arch={}", self.code).into());
        words.extend(program.flags.iter().map(OsString::from));
        let mut folder = |option: &str, path: &Path| {
            words.extend([OsString::from(option), path.into()]);
        };
        self.includes.iter().for_each(|path| folder("-I", path));
        self.libraries.iter().for_each(|path| folder("-L", path));
        folder("-o", target);
        words.extend(program.sources.iter().map(OsString::from));
        words
    }
}

/// Takes a file that is not there for one that was removed.
fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// Returns the first line that tells of an error.
fn first_error(said: &str) -> String {
    let tells = |line: &&str| {
        ["error", "fatal", "cannot find"]
            .iter()
            .any(|it| line.contains(it))
    };
    let found = said.lines().find(tells);
    found
        .unwrap_or("it failed and said no error")
        .trim()
        .to_owned()
}
