//! The root file system of a Linux guest's program: `--rootfs DIR|IMAGE[,rw]`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use causeway_init::{GROUPS, Layer, Root, Share, USERS, User};
use causeway_initramfs::{ProgramError, check_program};
use causeway_terminal::{Code, Failure, shown_path};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use crate::disk::{Format, ImageOptions};
use crate::share::SharedFolder;

/// Behind the name of a root that the guest changes.
const WRITABLE: &[u8] = b",rw";
/// Tag of the folder that is the root. No folder of `--share` may have one that begins like this.
const TAG: &str = "causeway-root";
/// The disk of an image: it is the first one.
const DEVICE: &str = "/dev/vda";
/// Folders in which the guest looks for programs, in the order of its `PATH`.
const PROGRAMS: [&str; 6] = [
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
];
/// Most bytes of a list of users or groups that are looked at before the guest boots.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Largest program that is looked at before the guest boots, in bytes.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;

/// A root file system, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootSource {
    /// A folder of the host.
    Folder(SharedFolder, Layer),
    /// The image of a disk without partitions.
    Image(PathBuf, Layer, Format),
}

impl RootSource {
    /// Reads the value of `--rootfs`.
    ///
    /// # Errors
    /// A usage failure if it is neither a folder nor a file.
    pub fn parse(text: &OsStr) -> Result<Self, Failure> {
        let (path, layer, format) = split(text).map_err(|why| {
            let text = text.display();
            Failure::usage(format!("invalid value {text} for --rootfs: {why}"))
        })?;
        let refuse = |error| Failure::usage_from("--rootfs", &text.to_string_lossy(), error);
        let metadata = path.metadata().map_err(refuse)?;
        if metadata.is_dir() && format != Format::Unstated {
            return Err(refuse(io::Error::other(
                "a folder has no format: leave it out",
            )));
        }
        if metadata.is_dir() {
            let share = Share::new(TAG, layer == Layer::Memory);
            let folder = SharedFolder::new(path, share).map_err(refuse)?;
            return Ok(Self::Folder(folder, layer));
        }
        match metadata.is_file() {
            true => Ok(Self::Image(path.to_owned(), layer, format)),
            false => Err(refuse(io::Error::other(
                "it is neither a folder nor the image of a disk",
            ))),
        }
    }

    /// Returns what the guest's first process makes its root.
    pub fn root(&self) -> Root {
        match self {
            Self::Folder(folder, layer) => Root::Share(folder.share.clone(), *layer),
            Self::Image(_, layer, _) => Root::Device(DEVICE.into(), *layer),
        }
    }

    /// Returns the folder that has to be served, if it is one.
    pub fn folder(&self) -> Option<&SharedFolder> {
        match self {
            Self::Folder(folder, _) => Some(folder),
            Self::Image(..) => None,
        }
    }

    /// Returns the value of `--disk` for the image, if it is one.
    pub fn disk(&self) -> Option<OsString> {
        let Self::Image(path, layer, format) = self else {
            return None;
        };
        let options = ImageOptions {
            read_only: *layer == Layer::Memory,
            format: *format,
        };
        let mut disk = path.clone().into_os_string();
        disk.push(options.suffix());
        Some(disk)
    }

    /// Refuses a program that this root does not have, or that cannot run: before a guest boots
    /// that could only say so. Only folders can be looked into.
    ///
    /// # Errors
    /// An image failure that names the program, and what is wrong with it.
    pub fn check_program(&self, program: &OsStr) -> Result<(), Failure> {
        let Self::Folder(folder, _) = self else {
            return Ok(());
        };
        let root = &folder.folder;
        let places = match program.as_bytes().contains(&b'/') {
            true => vec![PathBuf::from(program)],
            false => PROGRAMS
                .map(|place| Path::new(place).join(program))
                .to_vec(),
        };
        let found = places.iter().find_map(|place| open_inside(root, place));
        let Some(file) = found else {
            return Err(Failure::image(format!(
                "{} of --rootfs has no program {}: name one that it has behind --",
                shown_path(root),
                program.display()
            )));
        };
        check_interpreter(root, program, file)
    }

    /// Refuses a user or a group that this root does not know. Only folders can be looked into.
    ///
    /// # Errors
    /// A usage failure that names the user or group.
    pub fn check_user(&self, user: &User) -> Result<(), Failure> {
        let Self::Folder(folder, _) = self else {
            return Ok(());
        };
        let [users, groups] = [USERS, GROUPS].map(|file| read_inside(&folder.folder, file));
        let found = user.look_up(&users, &groups);
        found.map_err(|e| Failure::usage_from("--user", &user.to_string(), e))?;
        Ok(())
    }
}

/// Reads a file of a root, which the guest's first process reads there, too. One that is missing is
/// empty.
fn read_inside(root: &Path, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(file) = open_inside(root, Path::new(path)) {
        let mut file = std::fs::File::from(file).take(LIST_BYTES_MAX);
        // What cannot be read now cannot be read by the guest, either, which tells then.
        let _ = file.read_to_end(&mut bytes);
    }
    bytes
}

/// Splits the value of `--rootfs` into the path, what happens to what the guest writes, and the
/// format of an image.
fn split(text: &OsStr) -> Result<(&Path, Layer, Format), &'static str> {
    let writable = |text: &OsStr| text.as_bytes().ends_with(WRITABLE);
    let without = |text| OsStr::from_bytes(&OsStr::as_bytes(text)[..text.len() - WRITABLE.len()]);
    let (text, is_last) = match writable(text) {
        true => (without(text), true),
        false => (text, false),
    };
    let (path, options) = ImageOptions::split(text)?;
    let (path, is_writable) = match writable(path.as_os_str()) {
        true => (Path::new(without(path.as_os_str())), true),
        false => (path, is_last),
    };
    match (options.read_only, is_writable) {
        (true, true) => Err("choose ,ro or ,rw"),
        (_, true) => Ok((path, Layer::None, options.format)),
        (_, false) => Ok((path, Layer::Memory, options.format)),
    }
}

/// Opens a file as a process whose root is `root` finds it.
fn open_inside(root: &Path, path: &Path) -> Option<OwnedFd> {
    let root = rustix::fs::openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    // A pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat2(
        root.ok()?,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )
    .ok()
}

/// Refuses a program for another processor, and one whose dynamic linker the root does not have.
fn check_interpreter(root: &Path, program: &OsStr, file: OwnedFd) -> Result<(), Failure> {
    let mut image = Vec::new();
    let file = std::fs::File::from(file);
    // What cannot be read here, the guest may be able to run.
    if file
        .take(PROGRAM_BYTES_MAX)
        .read_to_end(&mut image)
        .is_err()
    {
        return Ok(());
    }
    let refused = |error: ProgramError| {
        let message = format!(
            "the program {} of {} cannot run in a guest",
            program.display(),
            shown_path(root)
        );
        Failure::new(Code::Image, message, error)
    };
    let interpreter = match check_program(&image) {
        Ok(links) => links.interpreter,
        Err(ProgramError::Script { interpreter }) => Some(interpreter.into()),
        Err(error) => return Err(refused(error)),
    };
    match interpreter {
        Some(interpreter) if open_inside(root, Path::new(&interpreter)).is_none() => {
            Err(Failure::image(format!(
                "the program {} of --rootfs needs the interpreter {}, which {} does not have: put \
                 it there, or name another program behind --",
                program.display(),
                Path::new(&interpreter).display(),
                shown_path(root)
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A root that goes with its test.
    struct Tree(PathBuf);

    impl Tree {
        /// Makes a root with this test's own program as `/usr/bin/app`, behind a link as well, and
        /// with a script whose interpreter is missing.
        fn new(test: &str) -> Self {
            let name = format!("causeway-root-{test}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(root.join("usr/bin")).unwrap();
            fs::copy("/proc/self/exe", root.join("usr/bin/app")).unwrap();
            // As a process in the root sees it: this host has no such file.
            symlink("/usr/bin", root.join("bin")).unwrap();
            fs::write(root.join("usr/bin/script"), "#!/opt/missing\n").unwrap();
            fs::write(root.join("usr/bin/text"), "no program").unwrap();
            symlink("../../../../../../etc/passwd", root.join("usr/bin/out")).unwrap();
            Self(root)
        }

        fn check(&self, program: &str) -> Result<(), String> {
            let source = RootSource::parse(self.0.as_os_str()).unwrap();
            let checked = source.check_program(OsStr::new(program));
            checked.map_err(|failure| failure.text())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_program_is_looked_for_as_in_the_guest_and_refused_without_its_interpreter() {
        let tree = Tree::new("programs");
        for (program, part) in [
            ("nothing", "has no program nothing"),
            ("/usr/bin/out", "has no program /usr/bin/out"),
            ("script", "interpreter /opt/missing"),
            ("text", "not an ELF executable"),
            ("app", "interpreter /lib64/ld-linux"),
        ] {
            let message = tree.check(program).unwrap_err();
            assert!(message.contains(part), "{program}: {message}");
        }
        let linker = tree.0.join("lib64/ld-linux-x86-64.so.2");
        fs::create_dir(linker.parent().unwrap()).unwrap();
        fs::write(linker, "").unwrap();
        for program in ["app", "/bin/app", "/usr/bin/app"] {
            assert_eq!(tree.check(program), Ok(()), "{program}");
        }
    }

    #[test]
    fn a_user_that_a_folder_does_not_know_is_refused() {
        let tree = Tree::new("users");
        fs::create_dir(tree.0.join("etc")).unwrap();
        fs::write(tree.0.join("etc/passwd"), "me:x:1:2::/:\n").unwrap();
        let source = RootSource::parse(tree.0.as_os_str()).unwrap();
        let check = |user: &str| {
            let checked = source.check_user(&user.parse().unwrap());
            checked.map_err(|failure| failure.text())
        };
        for good in ["me", "me:7", "65534"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, part) in [("you", "no user you"), ("me:users", "no group users")] {
            let text = check(bad).unwrap_err();
            assert!(text.contains("--user") && text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_root_stays_as_it_is_unless_rw_stands_behind_its_name() {
        let tree = Tree::new("kinds");
        let with = |path: &Path, suffix: &str| {
            let mut text = path.as_os_str().to_owned();
            text.push(suffix);
            RootSource::parse(&text).map_err(|failure| failure.text())
        };
        let root = |suffix| with(&tree.0, suffix).unwrap().root();
        assert_eq!(root(""), Root::Share(Share::new(TAG, true), Layer::Memory));
        assert_eq!(
            root(",rw"),
            Root::Share(Share::new(TAG, false), Layer::None)
        );
        let image = tree.0.join("usr/bin/text");
        let [kept, changed] = ["", ",rw"].map(|suffix| with(&image, suffix).unwrap());
        let shown = image.display();
        assert_eq!(kept.disk(), Some(format!("{shown},ro").into()));
        assert_eq!(changed.disk(), Some(image.clone().into()));
        assert_eq!(kept.root(), Root::Device(DEVICE.into(), Layer::Memory));
        for (given, disk) in [
            (",format=qcow2", ",format=qcow2,ro"),
            (",rw,format=qcow2", ",format=qcow2"),
            (",format=qcow2,backing,rw", ",format=qcow2,backing"),
        ] {
            let disk = Some(format!("{shown}{disk}").into());
            assert_eq!(with(&image, given).unwrap().disk(), disk, "{given}");
        }
        for (path, part) in [
            (tree.0.join("gone"), "No such file"),
            (PathBuf::from("/dev/null"), "neither a folder nor"),
        ] {
            let message = with(&path, "").unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        let of_folder = with(&tree.0, ",format=raw").unwrap_err();
        assert!(of_folder.contains("a folder has no format"), "{of_folder}");
        let both = with(&image, ",ro,rw").unwrap_err();
        assert!(both.contains("choose ,ro or ,rw"), "{both}");
    }
}
