//! nvcc, as it is told to build a program.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use causeway_vmm::signals::Signals;
use parking_lot::Mutex;

use crate::folders::{Place, files_below};
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
    /// since its sources were changed.
    pub(crate) fn build(
        &self,
        program: &Program,
        source: &Path,
        place: &Place,
        signals: &Mutex<&mut Signals>,
    ) -> Result<(), BuildError> {
        let (target, mark, log) = (place.program(), place.file(MARK), place.file("build.log"));
        let words = self.words(program, &target);
        let whole = [source.into(), self.nvcc.clone().into()];
        let line = [&whole, &words[..]].concat().join(&OsString::from(" "));
        let known = fs::read(&mark).is_ok_and(|known| known == line.as_encoded_bytes());
        if known && is_newer(&target, source, program) {
            return Ok(());
        }
        let unwritable = |path: &Path, e| BuildError::Unwritable(path.to_owned(), e);
        // Nothing says that what is there is whole.
        for old in [&mark, &target] {
            fs::remove_file(old)
                .or_else(absent)
                .map_err(|e| unwritable(old, e))?;
        }
        let mut command = Command::new(&self.nvcc);
        command
            .args(&words)
            .current_dir(source)
            .stdin(Stdio::null());
        signals.lock().let_through(&mut command);
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

/// Name of the file that says how an executable was built. It is there if the executable is whole.
const MARK: &str = "command.txt";

/// Returns whether the executable of a program is there and whole.
pub fn is_built(place: &Place) -> bool {
    place.program().exists() && place.file(MARK).exists()
}

/// Returns whether an executable is there and newer than the sources of its program, and than what
/// is in the folder where it runs, as its headers often are.
fn is_newer(target: &Path, source: &Path, program: &Program) -> bool {
    let changed = |path: &Path| fs::metadata(path)?.modified();
    let Ok(built) = changed(target) else {
        return false;
    };
    let sources = program.sources.iter().map(|path| source.join(path));
    let beside = files_below(&source.join(&program.folder)).unwrap_or_default();
    let mut all = sources.chain(beside);
    all.all(|path| changed(&path).is_ok_and(|changed| changed < built))
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
