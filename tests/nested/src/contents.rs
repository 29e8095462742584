//! What is in a machine's initramfs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_initramfs::{
    Archive, ArchiveError, GuestPath, GuestPathError, ModuleFolder, release_of,
};
use causeway_nested_agent::MODULES_FILE;
use rustix::fs::{MemfdFlags, memfd_create};

/// The agent, which is process 1.
const AGENT: &str = env!("NESTED_AGENT");
/// The first program of guests whose boot is timed.
const FIRST_WORD: &str = env!("NESTED_FIRST_WORD");
/// The loader of a Debian's file system tree.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
/// Its libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// What the agent's port needs, then KVM.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "irqbypass",
    "kvm",
    "kvm_amd",
];

/// Why an initramfs cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// A file.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The libraries of a program.
    #[error("cannot find out which libraries {program} needs: {message}")]
    Libraries {
        /// Which.
        program: PathBuf,
        /// What the command that lists them said.
        message: String,
    },
    /// A file's place in the machine.
    #[error(transparent)]
    Place(#[from] GuestPathError),
    /// Two files for one place.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// No memory for it.
    #[error("cannot write the archive")]
    Write(#[from] io::Error),
}

/// Files of the host that a machine has beside agent and modules.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    files: BTreeMap<String, PathBuf>,
    made: BTreeMap<String, Vec<u8>>,
    modules: Vec<&'static str>,
}

impl Contents {
    /// Adds a program as `/bin/NAME`, with the libraries that it loads.
    ///
    /// # Errors
    /// [`ContentsError`], if the libraries are not all there.
    pub fn program(mut self, name: &str, program: &Path) -> Result<Self, ContentsError> {
        for library in libraries(program)? {
            self.files.insert(library.display().to_string(), library);
        }
        self.files
            .insert(format!("/bin/{name}"), program.to_owned());
        Ok(self)
    }

    /// Adds a program as `/bin/NAME` that lies in the file system tree of another Debian, whose
    /// libraries this host does not have. It runs with the loader and the libraries of that tree.
    ///
    /// # Errors
    /// [`ContentsError`], if the libraries are not all there.
    pub fn program_of(
        mut self,
        tree: &Path,
        name: &str,
        program: &Path,
    ) -> Result<Self, ContentsError> {
        let loader = tree.join(LOADER);
        let folder = format!("/opt/{name}");
        for library in libraries_by(&loader, &tree.join(LIBRARIES), program)? {
            let file = library.file_name().unwrap_or_default().display();
            self = self.file(&format!("{folder}/{file}"), &library);
        }
        let script = format!(
            "#!/bin/sh\nexec {folder}/loader --library-path {folder} {folder}/program \"$@\"\n"
        );
        Ok(self
            .file(&format!("{folder}/loader"), &loader)
            .file(&format!("{folder}/program"), program)
            .bytes(&format!("/bin/{name}"), script.into_bytes()))
    }

    /// Adds a file of the host's at a place of the machine's.
    #[must_use]
    pub fn file(mut self, place: &str, file: &Path) -> Self {
        self.files.insert(place.to_owned(), file.to_owned());
        self
    }

    /// Adds a file that is made here.
    #[must_use]
    pub fn bytes(mut self, place: &str, content: Vec<u8>) -> Self {
        self.made.insert(place.to_owned(), content);
        self
    }

    /// Adds a kernel for guests as `boot/vmlinuz` of a folder, and the modules that guests want
    /// where they are found.
    ///
    /// # Errors
    /// [`ContentsError`].
    pub fn kernel(mut self, folder: &str, kernel: &Path) -> Result<Self, ContentsError> {
        let image = read(kernel)?;
        let modules = release_of(&image).and_then(|release| ModuleFolder::find(kernel, release));
        if let Some(modules) = modules {
            let release = modules.release();
            let place = format!("{folder}/lib/modules/{release}/modules.dep");
            self.files.insert(place, modules.list());
            for module in modules.all_wanted()? {
                let place = format!("{folder}{}", module.guest);
                self.files.insert(place, module.host);
            }
        }
        Ok(self.bytes(&format!("{folder}/boot/vmlinuz"), image))
    }

    /// Has a module loaded at boot, and what it needs.
    #[must_use]
    pub fn module(mut self, name: &'static str) -> Self {
        self.modules.push(name);
        self
    }

    /// Makes the archive, as a memory object, with modules of `folder`.
    pub(crate) fn archive(&self, folder: &ModuleFolder) -> Result<File, ContentsError> {
        let mut archive = Archive::new();
        let mut add = |place: &str, content| -> Result<(), ContentsError> {
            Ok(archive.file(&GuestPath::new(place)?, 0o755, content)?)
        };
        add("/init", read(Path::new(AGENT))?)?;
        for (place, file) in &self.files {
            add(place, read(file)?)?;
        }
        for (place, content) in &self.made {
            add(place, content.clone())?;
        }
        let names: Vec<_> = MODULES.iter().chain(&self.modules).copied().collect();
        let mut list = String::new();
        for module in folder.named(&names)? {
            let place = module.guest.to_string();
            add(&place, read(&module.host)?)?;
            list += &format!("{place}\n");
        }
        add(MODULES_FILE, list.into_bytes())?;
        let object = memfd_create("initramfs", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut object = BufWriter::with_capacity(1 << 20, File::from(object));
        archive.write(&mut object)?;
        Ok(object
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?)
    }
}

/// An initramfs whose first program says [`causeway_nested_agent::FIRST_WORD`] and ends the
/// machine.
///
/// # Errors
/// [`ContentsError`].
pub fn first_word_initramfs() -> Result<Vec<u8>, ContentsError> {
    let mut archive = Archive::new();
    archive.file(
        &GuestPath::new("/init")?,
        0o755,
        read(Path::new(FIRST_WORD))?,
    )?;
    Ok(archive.to_vec())
}

fn read(path: &Path) -> Result<Vec<u8>, ContentsError> {
    fs::read(path).map_err(|source| ContentsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The libraries and the loader of a program, as the host's loader finds them; none if it is
/// static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, ContentsError> {
    listed(program, Command::new("ldd").arg(program))
}

/// The libraries of a program, as `loader` finds them in `folder`.
fn libraries_by(
    loader: &Path,
    folder: &Path,
    program: &Path,
) -> Result<Vec<PathBuf>, ContentsError> {
    let mut command = Command::new(loader);
    command.arg("--library-path").arg(folder);
    listed(program, command.arg("--list").arg(program))
}

/// The libraries of a program that a command lists.
fn listed(program: &Path, command: &mut Command) -> Result<Vec<PathBuf>, ContentsError> {
    let failed = |message: String| ContentsError::Libraries {
        program: program.to_owned(),
        message,
    };
    let output = command.output();
    let output = output.map_err(|error| failed(format!("{command:?}: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let is_static =
        complaint.contains("not a dynamic executable") || said.contains("statically linked");
    if is_static {
        return Ok(Vec::new());
    }
    if !output.status.success() || said.contains("not found") {
        return Err(failed(format!("{command:?} says {said}{complaint}")));
    }
    Ok(said.lines().filter_map(library).collect())
}

/// The path in a line such as `libc.so.6 => /lib/libc.so.6 (0x7f00)` or `/lib64/ld.so (0x7f00)`.
fn library(line: &str) -> Option<PathBuf> {
    let path = line.split_once("=>").map_or(line, |(_, path)| path);
    let path = path.split_whitespace().next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_what_the_loader_says() {
        let of = |line| library(line).map(|path| path.display().to_string());
        assert_eq!(
            of("\tlibc.so.6 => /lib/libc.so.6 (0x7f00)").as_deref(),
            Some("/lib/libc.so.6")
        );
        assert_eq!(
            of("\t/lib64/ld.so.2 (0x7f00)").as_deref(),
            Some("/lib64/ld.so.2")
        );
        assert_eq!(of("\tlinux-vdso.so.1 (0x7f00)"), None);
    }

    #[test]
    fn a_dynamic_program_brings_its_loader_and_a_static_one_nothing() {
        let found = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            found
                .iter()
                .any(|path| path.to_string_lossy().contains("ld-linux")),
            "{found:?}"
        );
        assert_eq!(libraries(Path::new(AGENT)).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let contents = Contents::default().file("/x", Path::new("/nonexistent/file"));
        let error = contents
            .files
            .values()
            .map(|file| read(file).unwrap_err().to_string());
        assert_eq!(error.collect::<String>(), "cannot read /nonexistent/file");
    }
}
