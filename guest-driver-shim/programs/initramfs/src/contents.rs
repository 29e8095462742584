//! An initramfs that is being filled with files of the host.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use causeway_embedded_libraries::{LIBRARIES, Library};
use causeway_init::LIBRARIES as FOLDER;

use crate::INIT;
use crate::archive::Archive;
use crate::executable::is_for_guests;
use crate::guest_path::GuestPath;
use crate::libraries::{Search, collect};
use crate::links::Links;
use crate::modinfo::check_module;
use crate::modules::KernelModule;
use crate::read::{ALL_BYTES_MAX, HostFile, read_file};
use crate::workload::WorkloadError;

/// Folders of the guest on which the init mounts a file system: files below them would be hidden.
const HIDDEN: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Folders that programs expect, with their rights.
const FOLDERS: [(&str, u32); 4] = [
    ("/tmp", 0o1777),
    ("/run", 0o755),
    ("/proc", 0o555),
    ("/sys", 0o555),
];
/// Character devices (Documentation/admin-guide/devices.txt of Linux). The kernel opens the console
/// for the init; the others are for kernels that do not make them (`CONFIG_DEVTMPFS`).
const DEVICES: [(&str, u32, u32, u32); 10] = [
    ("/dev/console", 0o600, 5, 1),
    ("/dev/tty", 0o666, 5, 0),
    ("/dev/mem", 0o600, 1, 1),
    ("/dev/null", 0o666, 1, 3),
    ("/dev/port", 0o600, 1, 4),
    ("/dev/zero", 0o666, 1, 5),
    ("/dev/full", 0o666, 1, 7),
    ("/dev/random", 0o666, 1, 8),
    ("/dev/urandom", 0o666, 1, 9),
    ("/dev/kmsg", 0o600, 1, 11),
];

/// An archive that is being filled with files of the host.
pub(crate) struct Contents {
    pub(crate) archive: Archive<'static>,
    bytes_left: u64,
}

impl Contents {
    /// With what every guest has.
    pub(crate) fn new() -> Result<Self, WorkloadError> {
        let mut archive = Archive::new();
        archive.file(&GuestPath::new("/init")?, 0o755, INIT)?;
        for (path, rights) in FOLDERS {
            archive.folder(&GuestPath::new(path)?, rights)?;
        }
        for (path, rights, major, minor) in DEVICES {
            archive.character_device(&GuestPath::new(path)?, rights, major, minor)?;
        }
        Ok(Self {
            archive,
            bytes_left: ALL_BYTES_MAX,
        })
    }

    pub(crate) fn add(
        &mut self,
        what: &'static str,
        host: &Path,
        guest: &GuestPath,
    ) -> Result<(), WorkloadError> {
        self.refuse_hidden(guest)?;
        let file = self.read(what, host)?;
        self.place(file, guest)
    }

    fn refuse_hidden(&self, guest: &GuestPath) -> Result<(), WorkloadError> {
        let hidden = |folder: &&str| guest.to_path().starts_with(folder);
        match HIDDEN.into_iter().find(hidden) {
            None => Ok(()),
            Some(folder) => Err(WorkloadError::Hidden {
                path: guest.clone(),
                folder,
            }),
        }
    }

    pub(crate) fn add_module(&mut self, module: &KernelModule) -> Result<(), WorkloadError> {
        let path = &module.host;
        let file = self.read("kernel module", path)?;
        check_module(path, &file.content).map_err(|source| WorkloadError::Module {
            path: path.clone(),
            source,
        })?;
        self.place(file, &module.guest)
    }

    /// Adds the dynamic linker of a program, the libraries that it needs, and Causeway's own if it
    /// can load them, with what these need. Files that are in the guest already stay. Returns the
    /// folders of the libraries.
    pub(crate) fn add_libraries(
        &mut self,
        program: &Path,
        links: &Links,
    ) -> Result<Vec<PathBuf>, WorkloadError> {
        let mut folders = Vec::new();
        let (mut more, mut given) = (Vec::new(), Vec::new());
        if links.are_of_glibc() {
            self.add_own_libraries()?;
            folders.push(PathBuf::from(FOLDER));
            given.extend(LIBRARIES.iter().flat_map(Library::names));
            for library in LIBRARIES {
                let path = Path::new(FOLDER).join(library.name);
                let needs = Links::of_library(library.image);
                more.push(needs.map_err(|source| WorkloadError::DamagedLibrary { path, source })?);
            }
        }
        if let Some(linker) = &links.interpreter {
            let file = self.read("dynamic linker", linker)?;
            // The program names it, and must not get at other files of the host in this way.
            if !is_for_guests(&file.content) {
                return Err(WorkloadError::Read {
                    what: "dynamic linker",
                    path: linker.clone(),
                    source: io::Error::other("it is not an ELF file with code for x86-64"),
                });
            }
            self.place_library(linker, file)?;
        }
        // The folder of the file itself counts for its lists of folders, not that of a link to it.
        let program = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        let search = Search::of_this_host();
        let read = |path: &Path| {
            let file = read_file(path, self.bytes_left)?;
            self.bytes_left -= file.content.len() as u64;
            Ok(file)
        };
        let libraries = collect((&program, links), &more, &given, &search, read)?;
        for (path, file) in libraries {
            let guest = self.place_library(&path, file)?.to_path();
            let folder = guest.parent().unwrap_or(Path::new("/")).to_owned();
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    /// Adds a library at its path on the host.
    fn place_library(&mut self, host: &Path, file: HostFile) -> Result<GuestPath, WorkloadError> {
        let is_plain = GuestPath::new(host).is_ok();
        let folder = host.parent().filter(|_| !is_plain);
        let folder = folder.and_then(|folder| std::fs::canonicalize(folder).ok());
        let guest = match (folder, host.file_name()) {
            (Some(folder), Some(name)) => GuestPath::new(folder.join(name))?,
            _ => GuestPath::new(host)?,
        };
        if !self.archive.has(&guest) {
            self.refuse_hidden(&guest)?;
            self.place(file, &guest)?;
        }
        Ok(guest)
    }

    /// Adds the libraries that Causeway brings, under all their names.
    pub(crate) fn add_own_libraries(&mut self) -> Result<(), WorkloadError> {
        let place = |name: &str| GuestPath::in_folder(FOLDER, OsStr::new(name));
        for library in LIBRARIES {
            let file = place(library.name)?;
            if !self.archive.has(&file) {
                self.archive.file(&file, 0o755, library.image)?;
            }
            for alias in library.aliases {
                let alias = place(alias)?;
                if !self.archive.has(&alias) {
                    self.archive.link(&alias, &file)?;
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, file: HostFile, guest: &GuestPath) -> Result<(), WorkloadError> {
        let rights = if file.executable { 0o755 } else { 0o644 };
        self.archive.file(guest, rights, file.content)?;
        Ok(())
    }

    pub(crate) fn read(
        &mut self,
        what: &'static str,
        path: &Path,
    ) -> Result<HostFile, WorkloadError> {
        let file = read_file(path, self.bytes_left).map_err(|source| WorkloadError::Read {
            what,
            path: path.to_owned(),
            source,
        })?;
        self.bytes_left -= file.content.len() as u64;
        Ok(file)
    }
}
