//! What a guest is to run, and the initramfs that makes it do so.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use causeway_init::Configuration;

use crate::INIT;
use crate::archive::{Archive, ArchiveError};
use crate::executable::{ProgramError, check_program};
use crate::guest_path::{GuestPath, GuestPathError};
use crate::modinfo::{ModuleFileError, check_module};
use crate::modules::KernelModule;
use crate::read::{ALL_BYTES_MAX, HostFile, read_file};

/// Where the program lies in the guest; its path there has it in `PATH`.
const PROGRAM_FOLDER: &str = "/bin";
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

/// A file of the host, and its path in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// Path of the file on the host.
    pub host: PathBuf,
    /// Path of the file in the guest.
    pub guest: GuestPath,
}

/// Why an argument `HOST[:GUEST]` is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The argument does not name a file of the host.
    #[error("the path on the host is empty: write HOST or HOST:GUEST")]
    NoHost,
    /// The argument's path in the guest is not valid.
    #[error(transparent)]
    Guest(#[from] GuestPathError),
}

impl FileMapping {
    /// Reads an argument `HOST` or `HOST:GUEST`. Without GUEST, the file has its own name in the
    /// guest's root, where the program starts. The last colon separates the two, so a file whose
    /// name has a colon needs GUEST.
    ///
    /// # Errors
    /// [`MappingError::NoHost`] if HOST is empty or has no file name, `Guest` if GUEST is not a
    /// valid path.
    pub fn parse(text: &OsStr) -> Result<Self, MappingError> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().rposition(|byte| *byte == b':');
        let (host, guest) = match colon {
            Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]))),
            None => (bytes, None),
        };
        if host.is_empty() {
            return Err(MappingError::NoHost);
        }
        let host = PathBuf::from(OsStr::from_bytes(host));
        let guest = match guest {
            Some(path) => GuestPath::new(path)?,
            None => GuestPath::in_folder("/", host.file_name().ok_or(MappingError::NoHost)?)?,
        };
        Ok(Self { host, guest })
    }
}

/// What a guest runs: a program with its arguments, files and kernel modules.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Path of the program on the host. It must be a static executable; it is copied into the
    /// guest.
    pub program: PathBuf,
    /// Arguments of the program, without its name.
    pub arguments: Vec<OsString>,
    /// Files of the host that are copied into the guest for the program.
    pub files: Vec<FileMapping>,
    /// Linux kernel modules for the guest, in the order in which it loads them.
    pub modules: Vec<KernelModule>,
}

/// Why no initramfs can be made for a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A file of the host cannot be read.
    #[error("cannot read the {what} {}", path.display())]
    Read {
        /// Kind of the file, such as `kernel module`.
        what: &'static str,
        /// File on the host.
        path: PathBuf,
        /// The kernel's error, or what is wrong with the file.
        source: io::Error,
    },
    /// A guest cannot run the program.
    #[error("the program {} cannot run in a guest", path.display())]
    Program {
        /// File on the host.
        path: PathBuf,
        /// Why a guest cannot run it.
        source: ProgramError,
    },
    /// A guest cannot load a kernel module.
    #[error("the guest cannot load the kernel module {}", path.display())]
    Module {
        /// File on the host.
        path: PathBuf,
        /// Why a guest cannot load it.
        source: ModuleFileError,
    },
    /// A file cannot have its path in the guest.
    #[error(transparent)]
    Path(#[from] GuestPathError),
    /// A file does not fit the initramfs: its path is taken, or it is too large.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The guest mounts a file system over the file, which would hide it.
    #[error(
        "the guest mounts a file system on {folder}, which would hide {path}: choose another path \
         in the guest"
    )]
    Hidden {
        /// Path of the file in the guest.
        path: GuestPath,
        /// Folder on which the guest mounts the file system.
        folder: &'static str,
    },
}

impl Workload {
    /// Returns an initramfs that runs the workload. The same workload gives the same bytes.
    ///
    /// # Errors
    /// * [`WorkloadError::Read`]: a file of the host cannot be read.
    /// * [`WorkloadError::Program`]: a guest cannot run the program.
    /// * [`WorkloadError::Module`]: a guest cannot load a module.
    /// * [`WorkloadError::Path`]: a file's path in the guest is not valid.
    /// * [`WorkloadError::Archive`]: a path in the guest is already taken, or a file is too large.
    /// * [`WorkloadError::Hidden`]: the guest mounts a file system over a file's path.
    pub fn initramfs(&self) -> Result<Vec<u8>, WorkloadError> {
        let mut contents = Contents::new()?;
        let program = self.add_program(&mut contents)?;
        let mut modules = Vec::new();
        for module in &self.modules {
            contents.add_module(module)?;
            modules.push(module.guest.to_path());
        }
        for file in &self.files {
            contents.add("file", &file.host, &file.guest)?;
        }
        let configuration = Configuration {
            modules,
            program: program.to_path(),
            arguments: self.arguments.clone(),
        };
        let path = GuestPath::new(Configuration::PATH)?;
        let mut archive = contents.archive;
        archive.file(&path, 0o644, configuration.render())?;
        Ok(archive.to_vec())
    }

    fn add_program(&self, contents: &mut Contents) -> Result<GuestPath, WorkloadError> {
        let host = &self.program;
        let guest = GuestPath::in_folder(PROGRAM_FOLDER, host.file_name().unwrap_or_default())?;
        let image = contents.read("program", host)?.content;
        check_program(&image).map_err(|source| WorkloadError::Program {
            path: host.clone(),
            source,
        })?;
        // Whatever its rights are on the host: it was named as what is to run.
        contents.archive.file(&guest, 0o755, image)?;
        Ok(guest)
    }
}

/// An archive that is being filled with files of the host.
struct Contents {
    archive: Archive<'static>,
    bytes_left: u64,
}

impl Contents {
    /// With what every guest has.
    fn new() -> Result<Self, WorkloadError> {
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

    fn add(
        &mut self,
        what: &'static str,
        host: &Path,
        guest: &GuestPath,
    ) -> Result<(), WorkloadError> {
        let hidden = |folder: &&str| guest.to_path().starts_with(folder);
        if let Some(folder) = HIDDEN.into_iter().find(hidden) {
            let path = guest.clone();
            return Err(WorkloadError::Hidden { path, folder });
        }
        let file = self.read(what, host)?;
        self.place(file, guest)
    }

    fn add_module(&mut self, module: &KernelModule) -> Result<(), WorkloadError> {
        let path = &module.host;
        let file = self.read("kernel module", path)?;
        check_module(path, &file.content).map_err(|source| WorkloadError::Module {
            path: path.clone(),
            source,
        })?;
        self.place(file, &module.guest)
    }

    fn place(&mut self, file: HostFile, guest: &GuestPath) -> Result<(), WorkloadError> {
        let rights = if file.executable { 0o755 } else { 0o644 };
        self.archive.file(guest, rights, file.content)?;
        Ok(())
    }

    fn read(&mut self, what: &'static str, path: &Path) -> Result<HostFile, WorkloadError> {
        let file = read_file(path, self.bytes_left).map_err(|source| WorkloadError::Read {
            what,
            path: path.to_owned(),
            source,
        })?;
        self.bytes_left -= file.content.len() as u64;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("causeway-workload-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, content).unwrap();
            path
        }

        /// Returns a workload with a program that is good.
        fn workload(&self) -> Workload {
            Workload {
                program: self.file("app", INIT),
                ..Workload::default()
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn contains(archive: &[u8], part: &[u8]) -> bool {
        archive.windows(part.len()).any(|window| window == part)
    }

    fn mapping(text: &str) -> Result<FileMapping, MappingError> {
        FileMapping::parse(OsStr::new(text))
    }

    #[test]
    fn a_workload_has_the_init_the_program_its_arguments_and_files() {
        let folder = Folder::new("whole");
        let data = folder.file("data.bin", b"some data of the host");
        let module = folder.file("my.ko", &crate::modinfo::tests::module(b"depends=\0"));
        let mut workload = folder.workload();
        workload.arguments = vec!["--size".into(), "12 MiB".into()];
        workload.files = vec![mapping(&format!("{}:/data/in", data.display())).unwrap()];
        workload.modules = vec![KernelModule::new(&module).unwrap()];
        let archive = workload.initramfs().unwrap();
        for part in [
            &b"init\0"[..],
            b"bin/app\0",
            b"data/in\0",
            b"some data of the host",
            b"module=/lib/modules/my.ko\0program=/bin/app\0argument=--size\0argument=12 MiB\0",
            b"dev/console\0",
        ] {
            assert!(
                contains(&archive, part),
                "{}",
                String::from_utf8_lossy(part)
            );
        }
        assert_eq!(archive, workload.initramfs().unwrap());
        // Nothing of when and as what the files lie on the host.
        fs::remove_file(&data).unwrap();
        folder.file("data.bin", b"some data of the host");
        assert_eq!(archive, workload.initramfs().unwrap());
    }

    #[test]
    fn mappings_say_what_goes_where() {
        let plain = mapping("some/data.bin").unwrap();
        assert_eq!(plain.host, Path::new("some/data.bin"));
        assert_eq!(plain.guest.to_string(), "/data.bin");
        let placed = mapping("a:b:/x/y").unwrap();
        assert_eq!(
            (placed.host.as_path(), placed.guest.to_string()),
            (Path::new("a:b"), "/x/y".into())
        );
        let message = |text| mapping(text).unwrap_err().to_string();
        assert!(message("").contains("the path on the host is empty"));
        assert!(message(":/x").contains("the path on the host is empty"));
        assert!(message("/").contains("the path on the host is empty"));
        assert!(message("data:x").contains("must begin with /"));
        assert!(message("data:/../x").contains("must not contain .."));
        assert!(message("data:/x/").contains("end with the name of a file"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let folder = Folder::new("refused");
        let data = folder.file("data", b"data");
        let with = |guests: &[&str]| {
            let mut workload = folder.workload();
            let text = |guest| format!("{}:{guest}", data.display());
            workload.files = guests.iter().map(|g| mapping(&text(g)).unwrap()).collect();
            workload.initramfs().unwrap_err().to_string()
        };
        assert!(with(&["/x", "/x"]).contains("/x is already in the guest"));
        assert!(with(&["/init"]).contains("/init is already in the guest"));
        assert!(with(&["/bin/app"]).contains("/bin/app is already in the guest"));
        assert!(with(&["/causeway/run"]).contains("/causeway/run is already in the guest"));
        assert!(with(&["/bin/app/data"]).contains("/bin/app/data"));
        assert!(with(&["/dev/data"]).contains("mounts a file system on /dev"));
        let mut workload = folder.workload();
        workload.files = vec![mapping("/nonexistent/file").unwrap()];
        let error = workload.initramfs().unwrap_err();
        assert_eq!(error.to_string(), "cannot read the file /nonexistent/file");
        assert!(error.source().unwrap().to_string().contains("No such file"));
        let mut workload = folder.workload();
        let noise = folder.file("random.bin", b"\x12\x34");
        workload.modules = vec![KernelModule::new(&noise).unwrap()];
        let error = workload.initramfs().unwrap_err();
        assert!(error.to_string().ends_with("random.bin"), "{error}");
        let source = error.source().unwrap().to_string();
        assert!(
            source.contains("not a kernel module: it has 2 bytes"),
            "{source}"
        );
        let mut workload = folder.workload();
        workload.program = folder.file("script", b"#!/bin/sh\n");
        let error = workload.initramfs().unwrap_err();
        assert!(error.to_string().contains("script cannot run in a guest"));
        assert!(error.source().unwrap().to_string().contains("/bin/sh"));
    }
}
