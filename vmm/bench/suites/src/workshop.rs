//! Builds programs and runs them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use causeway_vmm::signals::Signals;

use crate::compiler::{BuildError, Compiler};
use crate::folders::Place;
use crate::life::{Life, LifeError};
use crate::recipe::{Program, Suite};
use crate::ways::{Host, Way};

/// Where programs are built and run.
#[derive(Debug)]
pub struct Workshop {
    /// Folder with the folders of suites.
    source: PathBuf,
    /// Folder of everything that is made.
    work: PathBuf,
}

/// Why there is no workshop.
#[derive(Debug, thiserror::Error)]
pub enum WorkshopError {
    /// A folder is not there, or cannot be made.
    #[error("invalid value {1} for {0}")]
    Folder(&'static str, PathBuf, #[source] io::Error),
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
    /// The folder that is not there or cannot be made.
    pub fn open(source: &Path, work: &Path) -> Result<Self, WorkshopError> {
        let whole = |option, path: &Path| {
            let whole = path.canonicalize();
            whole.map_err(|e| WorkshopError::Folder(option, path.to_owned(), e))
        };
        let made = std::fs::create_dir_all(work);
        made.map_err(|e| WorkshopError::Folder("--work", work.to_owned(), e))?;
        Ok(Self {
            source: whole("--source", source)?,
            work: whole("--work", work)?,
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
        if self.has(suite) {
            return Ok(());
        }
        let folder = self.source.join(&suite.folder);
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

    /// Builds the programs of all suites, `jobs` at a time, and calls `report` with each that is
    /// built or not. With `is_built`, only looks whether they are there. Stops early if `stops`
    /// returns true.
    pub fn build(
        &self,
        suites: &[Suite],
        compiler: Option<&Compiler>,
        (jobs, signals): (usize, &Signals),
        report: &(dyn Fn(&Program, Result<(), BuildError>) + Sync),
    ) {
        let all = suites
            .iter()
            .flat_map(|suite| suite.programs.iter().map(move |it| (suite, it)));
        let all: Vec<_> = all.collect();
        let next = AtomicUsize::new(0);
        // One at a time speaks.
        let speech = Mutex::new(());
        let work = || {
            while let Some((suite, program)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let built = self.build_one(suite, program, compiler, signals);
                let _turn = speech.lock();
                report(program, built);
            }
        };
        thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, all.len().max(1)) {
                scope.spawn(work);
            }
        });
    }

    fn build_one(
        &self,
        suite: &Suite,
        program: &Program,
        compiler: Option<&Compiler>,
        signals: &Signals,
    ) -> Result<(), BuildError> {
        let place = self
            .place(program)
            .map_err(|(path, e)| BuildError::Unwritable(path, e))?;
        let Some(compiler) = compiler else {
            let there = place.program();
            return if there.exists() {
                Ok(())
            } else {
                Err(BuildError::Absent(there))
            };
        };
        compiler.build(program, &self.source.join(&suite.folder), &place, signals)
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
        let made = Place::prepare(&self.work, program);
        made.map_err(|e| (self.work.join(&program.suite), e))
    }
}
