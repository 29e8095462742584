//! Builds programs and runs them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use causeway_vmm::signals::Signals;
use parking_lot::Mutex;

use crate::compiler::{self, BuildError, Compiler};
use crate::folders::Place;
use crate::life::{Life, LifeError};
use crate::recipe::{Program, Scale, Suite};
use crate::ways::{Host, Way};

/// Where programs are built and run.
#[derive(Debug)]
pub struct Workshop {
    /// Folder with the folders of suites.
    source: PathBuf,
    /// Folder of everything that is made.
    work: PathBuf,
    /// Size of the programs: each has a folder of its own.
    scale: Scale,
    /// Keeps others out while it is open.
    _lock: File,
}

/// Why there is no workshop.
#[derive(Debug, thiserror::Error)]
pub enum WorkshopError {
    /// A folder is not there, or cannot be made.
    #[error("invalid value {1} for {0}")]
    Folder(&'static str, PathBuf, #[source] io::Error),
    /// What is made would be copied with the sources.
    #[error(
        "invalid value {work} for --work: it is in {folder}, parts of which are copied: choose \
         another folder", work = .0.display(), folder = .1.display()
    )]
    Inside(PathBuf, PathBuf),
    /// Another benchmark works there.
    #[error(
        "invalid value {work} for --work: another `bench suite` uses it: choose another folder",
        work = .0.display()
    )]
    Taken(PathBuf),
    /// The sources of a suite are not there.
    #[error(
        "the sources of {name} are not in {folder}: {how}", name = .0, folder = .1.display(),
        how = .2
    )]
    NoSources(String, PathBuf, String),
}

impl Workshop {
    /// Returns the workshop that has the sources of suites in folders below `source`, and makes
    /// everything in `work`.
    ///
    /// # Errors
    /// The folder that is not there, cannot be made, or is used by another.
    pub fn open(source: &Path, work: &Path, scale: Scale) -> Result<Self, WorkshopError> {
        let whole = |option, path: &Path| {
            let whole = path.canonicalize();
            whole.map_err(|e| WorkshopError::Folder(option, path.to_owned(), e))
        };
        let made = std::fs::create_dir_all(work);
        let unusable = |e| WorkshopError::Folder("--work", work.to_owned(), e);
        made.map_err(unusable)?;
        let lock = File::create(work.join(".lock")).map_err(unusable)?;
        lock.try_lock()
            .map_err(|_| WorkshopError::Taken(work.to_owned()))?;
        Ok(Self {
            source: whole("--source", source)?,
            work: whole("--work", work)?,
            scale,
            _lock: lock,
        })
    }

    /// Returns the folder of everything that is made.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Returns whether the sources of a suite are there.
    pub fn has(&self, suite: &Suite) -> bool {
        self.source.join(&suite.folder).is_dir()
    }

    /// Checks that the sources of a suite are there.
    ///
    /// # Errors
    /// How to get them.
    pub fn check(&self, suite: &Suite) -> Result<(), WorkshopError> {
        let folder = self.source.join(&suite.folder);
        if self.work.starts_with(&folder) {
            return Err(WorkshopError::Inside(self.work.clone(), folder));
        }
        if self.has(suite) {
            return Ok(());
        }
        let how = suite.repository.as_ref().map(|repository| {
            let shown = folder.display();
            let commit = suite.commit.as_ref();
            let commit = commit.map(|commit| format!(" && git -C {shown} checkout {commit}"));
            format!(
                "git clone {repository} {shown}{}",
                commit.unwrap_or_default()
            )
        });
        let how = how.unwrap_or_else(|| String::from("name another folder with --source"));
        Err(WorkshopError::NoSources(suite.name.clone(), folder, how))
    }

    /// Builds the programs of all suites that are not skipped, `jobs` at a time, and calls `report`
    /// with each that is built or not. Without a compiler, only looks whether they are there.
    /// Returns the signal that came meanwhile, if one did: then not all are built.
    pub fn build(
        &self,
        suites: &[Suite],
        compiler: Option<&Compiler>,
        (jobs, signals): (usize, &mut Signals),
        report: &(dyn Fn(&Program, Result<(), BuildError>) + Sync),
    ) -> Option<i32> {
        let all = suites
            .iter()
            .flat_map(|suite| suite.programs.iter().map(move |it| (suite, it)));
        let all: Vec<_> = all.filter(|(_, program)| program.skip.is_none()).collect();
        let (next, stopped) = (AtomicUsize::new(0), OnceLock::new());
        let signals = Mutex::new(signals);
        // One at a time speaks.
        let speech = Mutex::new(());
        let work = || {
            while let Some((suite, program)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(signal) = signals.lock().take() {
                    let _ = stopped.set(signal);
                }
                if stopped.get().is_some() {
                    return;
                }
                let built = self.build_one(suite, program, compiler, &signals);
                let _turn = speech.lock();
                report(program, built);
            }
        };
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, all.len().max(1)) {
                scope.spawn(work);
            }
        });
        let late = signals.lock().take();
        stopped.into_inner().or(late)
    }

    fn build_one(
        &self,
        suite: &Suite,
        program: &Program,
        compiler: Option<&Compiler>,
        signals: &Mutex<&mut Signals>,
    ) -> Result<(), BuildError> {
        let place = self
            .place(program)
            .map_err(|(path, e)| BuildError::Unwritable(path, e))?;
        match compiler {
            Some(compiler) => {
                let source = self.source.join(&suite.folder);
                compiler.build(program, &source, &place, signals)
            }
            None if compiler::is_built(&place) => Ok(()),
            None => Err(BuildError::Absent(place.program())),
        }
    }

    /// Runs a program of a suite by `way`.
    ///
    /// # Errors
    /// Why it has no life to be judged.
    pub fn run(
        &self,
        (suite, program): (&Suite, &Program),
        way: Way,
        host: &Host,
        signals: &mut Signals,
    ) -> Result<Life, LifeError> {
        let place = self
            .place(program)
            .map_err(|(path, e)| LifeError::Files(path, e))?;
        let source = self.source.join(&suite.folder);
        let folder = place.furnish(program, &source);
        let folder = folder.map_err(|(path, e)| LifeError::Files(path, e))?;
        way.live(program, (&place, &folder), host, signals)
    }

    fn place(&self, program: &Program) -> Result<Place, (PathBuf, io::Error)> {
        let made = Place::prepare(&self.work, program, self.scale);
        made.map_err(|e| (self.work.join(&program.suite), e))
    }
}
