//! Folders in which programs lie, run, and leave what they write.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::inputs;
use crate::recipe::{Program, Scale};

/// The folders of one program, below that of all work.
#[derive(Clone, Debug)]
pub struct Place {
    /// Folder of the program's executable, logs and reports.
    own: PathBuf,
    name: String,
    /// Folder with the copied part of the suite and, in `data`, inputs that were made.
    copies: PathBuf,
}

impl Place {
    /// Returns the place of a program, whose own folder is made.
    ///
    /// # Errors
    /// The error of making the folder.
    pub fn prepare(work: &Path, program: &Program, scale: Scale) -> io::Result<Self> {
        let suite = match scale {
            Scale::Gpu => program.suite.clone(),
            Scale::Software => format!("{}-software", program.suite),
        };
        let own = work.join(suite).join(&program.name);
        fs::create_dir_all(&own)?;
        Ok(Self {
            name: program.name.clone(),
            copies: own.join(".run"),
            own,
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
        // What the last run has left and changed, inputs among them.
        match fs::remove_dir_all(&self.copies) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err((folder, e)),
            _ => {}
        }
        copy_folder(&from, &folder, 0).map_err(|e| (from, e))?;
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

/// Deepest folder that is copied: links may lead in circles.
const DEPTH_MAX: u32 = 32;

/// Copies a folder with all that is below it. Links are followed, so that nothing in the copy leads
/// back; those that lead nowhere, and what is neither file nor folder, is left out.
fn copy_folder(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    if depth == DEPTH_MAX {
        return Err(io::Error::other(
            "its folders are too deep, or lead in a circle",
        ));
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match fs::metadata(entry.path()) {
            Ok(kind) if kind.is_dir() => copy_folder(&entry.path(), &target, depth + 1)?,
            Ok(kind) if kind.is_file() => {
                fs::copy(entry.path(), target)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns all files below a folder.
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
    use crate::recipe::Suite;

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
        let one = source.join("cuda/bfs/deeper/one");
        fs::write(&one, "1").unwrap();
        std::os::unix::fs::symlink(&one, source.join("cuda/bfs/link")).unwrap();
        let place = Place::prepare(&root.join("work"), program, Scale::Software).unwrap();
        let folder = place.furnish(program, &source).unwrap();
        fs::write(folder.join("result.txt"), "left").unwrap();
        let again = place.furnish(program, &source).unwrap();
        let copied = [folder.join("deeper/one"), folder.join("link")];
        assert_eq!(files_below(&again).unwrap(), copied);
        fs::write(&copied[1], "2").unwrap();
        assert_eq!(fs::read(&one).unwrap(), b"1", "the source is as before");
        let graph = place.inputs().join("bfs/graph65536.txt");
        assert!(graph.is_file());
        assert_eq!(Place::arguments(program, "/in"), ["/in/bfs/graph65536.txt"]);
        fs::remove_dir_all(root).unwrap();
    }
}
