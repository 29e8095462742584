//! What a guest is to run, and the initramfs that makes it do so.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use causeway_init::{Configuration, FILES, LIBRARIES, Layer, Network, Root, Share, User};

use crate::archive::ArchiveError;
use crate::contents::Contents;
use crate::executable::{ProgramError, check_program};
use crate::guest_path::{GuestPath, GuestPathError};
use crate::libraries::CollectError;
use crate::links::Links;
use crate::modinfo::ModuleFileError;
use crate::modules::KernelModule;

/// Where the program lies in the guest; its path there has it in `PATH`.
const PROGRAM_FOLDER: &str = "/bin";
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
    /// guest's `folder`, where the program starts. The last colon separates the two, so a file
    /// whose name has a colon needs GUEST.
    ///
    /// # Errors
    /// [`MappingError::NoHost`] if HOST is empty or has no file name, `Guest` if GUEST is not a
    /// valid path.
    pub fn parse(text: &OsStr, folder: &str) -> Result<Self, MappingError> {
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
            None => GuestPath::in_folder(folder, host.file_name().ok_or(MappingError::NoHost)?)?,
        };
        Ok(Self { host, guest })
    }
}

/// What a guest runs: a program with its arguments, files and kernel modules.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Path of the program on the host, which is copied into the guest with the libraries that it
    /// needs. With a root, path of the program there, or its name if the root is not a plain disk.
    pub program: PathBuf,
    /// The program's root file system. Without one, its root is the initramfs.
    pub root: Option<Root>,
    /// Folders of the host that the guest mounts.
    pub shares: Vec<Share>,
    /// The network interface that the guest starts.
    pub network: Option<Network>,
    /// Variables of the program's environment, as `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// Folder in which the program starts, instead of the usual one.
    pub folder: Option<PathBuf>,
    /// User as which the program runs, instead of root.
    pub user: Option<User>,
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
    /// The program needs a library that this host does not have.
    #[error(
        "{} needs the library {}, which is not on this host: install it, or name its folder in \
         LD_LIBRARY_PATH",
        needed_by.display(),
        name.display()
    )]
    Library {
        /// Name of the library.
        name: OsString,
        /// The program, or one of its libraries.
        needed_by: PathBuf,
    },
    /// The program is for another version of CUDA.
    #[error(
        "{} was built for CUDA {cuda}: it needs {}, and Causeway has the runtime libraries of CUDA \
         12 and 13: build it with nvcc of CUDA 12 or 13.0",
        needed_by.display(),
        name.display()
    )]
    Runtime {
        /// Name of the library.
        name: OsString,
        /// The program, or one of its libraries.
        needed_by: PathBuf,
        /// Its version of CUDA.
        cuda: u32,
    },
    /// A library that the program needs is damaged.
    #[error(
        "cannot read what the library {} needs: the file is cut off or damaged; install it again",
        path.display()
    )]
    DamagedLibrary {
        /// File on the host.
        path: PathBuf,
        /// What is wrong with the file.
        source: object::read::Error,
    },
    /// A file would not be seen in the root file system of the guest.
    #[error(
        "{path} lies outside of {FILES}, the only folder of a guest with --root that has files of \
         --file: write HOST:{FILES}/NAME, or HOST alone"
    )]
    Outside {
        /// Path of the file in the guest.
        path: GuestPath,
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
    /// * [`WorkloadError::Library`], [`WorkloadError::DamagedLibrary`]: a library that the program
    ///   needs does not exist, or cannot be read.
    /// * [`WorkloadError::Outside`]: the guest has a root, which would hide a file.
    /// * [`WorkloadError::Module`]: a guest cannot load a module.
    /// * [`WorkloadError::Path`]: a file's path in the guest is not valid.
    /// * [`WorkloadError::Archive`]: a path in the guest is already taken, or a file is too large.
    /// * [`WorkloadError::Hidden`]: the guest mounts a file system over a file's path.
    pub fn initramfs(&self) -> Result<Vec<u8>, WorkloadError> {
        let mut contents = Contents::new()?;
        let (program, links) = match self.root {
            None => self.add_program(&mut contents)?,
            Some(Root::Device(_, Layer::None)) => {
                let path = GuestPath::new(&self.program)?;
                (path.to_path(), Links::default())
            }
            Some(_) => (self.program.clone(), Links::default()),
        };
        let mut modules = Vec::new();
        for module in &self.modules {
            contents.add_module(module)?;
            modules.push(module.guest.to_path());
        }
        for file in &self.files {
            self.refuse_outside(&file.guest)?;
            contents.add("file", &file.host, &file.guest)?;
        }
        let configuration = Configuration {
            modules,
            root: self.root.clone(),
            libraries: self.add_libraries(&mut contents, &links)?,
            shares: self.shares.clone(),
            network: self.network,
            environment: self.environment.clone(),
            folder: self.folder.clone(),
            user: self.user.clone(),
            program,
            arguments: self.arguments.clone(),
        };
        let path = GuestPath::new(Configuration::PATH)?;
        let mut archive = contents.archive;
        archive.file(&path, 0o644, configuration.render())?;
        Ok(archive.to_vec())
    }

    /// Adds the program. Returns its path in the guest, and which libraries it needs.
    fn add_program(&self, contents: &mut Contents) -> Result<(PathBuf, Links), WorkloadError> {
        let host = &self.program;
        let guest = GuestPath::in_folder(PROGRAM_FOLDER, host.file_name().unwrap_or_default())?;
        let image = contents.read("program", host)?.content;
        let links = check_program(&image).map_err(|source| WorkloadError::Program {
            path: host.clone(),
            source,
        })?;
        // Whatever its rights are on the host: it was named as what is to run.
        contents.archive.file(&guest, 0o755, image)?;
        Ok((guest.to_path(), links))
    }

    /// Adds the libraries of the program. Returns their folders in the guest.
    fn add_libraries(
        &self,
        contents: &mut Contents,
        links: &Links,
    ) -> Result<Vec<PathBuf>, WorkloadError> {
        if self.root.is_some() {
            // The root has all others.
            contents.add_own_libraries()?;
            return Ok(vec![LIBRARIES.into()]);
        }
        match links.is_static() {
            true => Ok(Vec::new()),
            false => contents.add_libraries(&self.program, links),
        }
    }

    /// Refuses a file that the root of the guest would hide.
    fn refuse_outside(&self, path: &GuestPath) -> Result<(), WorkloadError> {
        match self.root.is_none() || path.to_path().starts_with(FILES) {
            true => Ok(()),
            false => Err(WorkloadError::Outside { path: path.clone() }),
        }
    }
}

impl From<CollectError> for WorkloadError {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::Missing { name, needed_by } => Self::Library { name, needed_by },
            CollectError::Runtime {
                name,
                needed_by,
                cuda,
            } => Self::Runtime {
                name,
                needed_by,
                cuda,
            },
            CollectError::Damaged { path, source } => Self::DamagedLibrary { path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INIT;
    use std::error::Error;
    use std::fs;
    use std::path::Path;

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
        FileMapping::parse(OsStr::new(text), "/")
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

    #[test]
    fn a_dynamic_program_brings_its_libraries_and_ours_and_a_static_one_does_not() {
        let folder = Folder::new("dynamic");
        let own = Workload {
            program: std::env::current_exe().unwrap(),
            ..Workload::default()
        };
        let archive = own.initramfs().unwrap();
        for part in [
            &b"lib64/ld-linux-x86-64.so.2\0"[..],
            b"/libc.so.6\0",
            b"/libgcc_s.so.1\0",
            b"run/causeway/lib/libcuda.so.1\0",
            b"run/causeway/lib/libcuda.so\0",
            b"run/causeway/lib/libnvidia-ml.so.1\0",
            b"run/causeway/lib/libcudart.so.13\0",
            b"library=/run/causeway/lib\0",
        ] {
            let text = String::from_utf8_lossy(part);
            assert!(contains(&archive, part), "{text}");
        }
        assert_eq!(archive, own.initramfs().unwrap());
        let archive = folder.workload().initramfs().unwrap();
        assert!(!contains(&archive, b"libcuda.so.1\0"));
        assert!(!contains(&archive, b"library=/run/causeway"));
    }

    #[test]
    fn a_library_that_is_given_as_a_file_is_not_replaced() {
        let folder = Folder::new("given");
        let other = folder.file("other", b"another driver");
        let mut own = Workload {
            program: std::env::current_exe().unwrap(),
            ..Workload::default()
        };
        let text = format!("{}:{LIBRARIES}/libcuda.so.1", other.display());
        own.files = vec![mapping(&text).unwrap()];
        assert!(contains(&own.initramfs().unwrap(), b"another driver"));
    }

    #[test]
    fn with_a_root_the_program_is_there_and_files_lie_where_it_sees_them() {
        let folder = Folder::new("root");
        let data = folder.file("data", b"data of the host");
        let in_guest = |text: &OsStr| FileMapping::parse(text, FILES).unwrap();
        let mut workload = Workload {
            program: "/usr/bin/python3".into(),
            root: Some(Root::Device("/dev/vda1".into(), Layer::None)),
            files: vec![in_guest(data.as_os_str())],
            ..Workload::default()
        };
        let archive = workload.initramfs().unwrap();
        for part in [
            &b"run/causeway/data\0"[..],
            b"data of the host",
            b"run/causeway/lib/libcuda.so.1\0",
            b"root=/dev/vda1\0library=/run/causeway/lib\0program=/usr/bin/python3\0",
        ] {
            let text = String::from_utf8_lossy(part);
            assert!(contains(&archive, part), "{text}");
        }
        workload.files = vec![mapping(&format!("{}:/etc/data", data.display())).unwrap()];
        let text = workload.initramfs().unwrap_err().to_string();
        assert!(
            text.contains("/etc/data lies outside of /run/causeway"),
            "{text}"
        );
        workload.files = Vec::new();
        workload.program = "python3".into();
        let text = workload.initramfs().unwrap_err().to_string();
        assert!(text.contains("must begin with /"), "{text}");
    }
}
