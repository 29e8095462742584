//! Folders in which programs lie, run, and leave what they write.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::inputs;
use crate::recipe::Program;

/// The folders of one program, below that of all work.
#[derive(Clone, Debug)]
pub struct Place {
    /// Folder of the program's executable, logs and reports.
    own: PathBuf,
    name: String,
    /// Folder with copied parts of the suite and, in `data`, inputs that were made.
    copies: PathBuf,
}

impl Place {
    /// Returns the place of a program, whose own folder is made.
    ///
    /// # Errors
    /// The error of making the folder.
    pub fn prepare(work: &Path, program: &Program) -> io::Result<Self> {
        let suite = work.join(&program.suite);
        let own = suite.join(&program.name);
        fs::create_dir_all(&own)?;
        Ok(Self {
            own,
            name: program.name.clone(),
            copies: suite.join("copies"),
        })
    }

    /// Returns the path of the executable.
    pub fn program(&self) -> PathBuf {
        self.own.join(&self.name)
    }

    /// Returns the path of a file beside the executable.
    pub fn file(&self, name: &str) -> PathBuf {
        self.own.join(name)
    }

    /// Returns the folder of the copies, below which are that where the program runs and that of
    /// its inputs.
    pub fn copies(&self) -> &Path {
        &self.copies
    }

    /// Returns the folder of the inputs.
    pub fn inputs(&self) -> PathBuf {
        self.copies.join("data")
    }

    /// Copies the folder in which the program runs, so that it does not write into the sources, and
    /// makes its inputs. Returns the copy.
    ///
    /// # Errors
    /// Errors of reading and writing, with the path or name.
    pub fn furnish(
        &self,
        program: &Program,
        source: &Path,
    ) -> Result<PathBuf, (PathBuf, io::Error)> {
        let folder = self.copies.join(&program.folder);
        let from = source.join(&program.folder);
        // What the last run has left.
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err((folder, e)),
            _ => {}
        }
        copy_folder(&from, &folder).map_err(|e| (from, e))?;
        for name in &program.inputs {
            inputs::make(&self.inputs(), name).map_err(|e| (self.inputs().join(name), e))?;
        }
        Ok(folder)
    }

    /// Returns what stands for `{inputs}` in arguments, and then all arguments.
    pub fn arguments(program: &Program, inputs: &str) -> Vec<OsString> {
        let given = program.arguments.iter();
        given
            .map(|text| text.replace("{inputs}", inputs).into())
            .collect()
    }
}

/// Copies a folder with all that is below it. Symbolic links stay links.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Returns all files below a folder, links among them if they lead to files.
///
/// # Errors
/// Errors of reading folders.
pub fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()?.is_dir() {
            true => found.extend(files_below(&path)?),
            false if path.is_file() => found.push(path),
            false => {}
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Scale, Suite};

    #[test]
    fn a_program_runs_in_a_fresh_copy_beside_its_inputs() {
        let name = format!("causeway-suites-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let source = root.join("source");
        let suite = Suite::named("rodinia", Scale::Software).unwrap();
        let program = suite
            .programs
            .iter()
            .find(|program| program.name == "bfs")
            .unwrap();
        fs::create_dir_all(source.join("cuda/bfs/deeper")).unwrap();
        fs::write(source.join("cuda/bfs/deeper/one"), "1").unwrap();
        let place = Place::prepare(&root.join("work"), program).unwrap();
        let folder = place.furnish(program, &source).unwrap();
        fs::write(folder.join("result.txt"), "left").unwrap();
        let again = place.furnish(program, &source).unwrap();
        assert_eq!(files_below(&again).unwrap(), [folder.join("deeper/one")]);
        assert_eq!(
            files_below(&source).unwrap().len(),
            1,
            "the source is as before"
        );
        let graph = place.inputs().join("bfs/graph65536.txt");
        assert!(graph.is_file());
        assert_eq!(Place::arguments(program, "/in"), ["/in/bfs/graph65536.txt"]);
        fs::remove_dir_all(root).unwrap();
    }
}
