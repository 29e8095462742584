//! Disks of a Linux guest: `--disk FILE[,ro][,format=FORMAT][,backing]`.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_sandbox::Sandbox;
use causeway_terminal::{Failure, shown_path};
use causeway_vmm::linux::Disk;
use causeway_vmm::virtio::DiskImage;

use crate::device_process::Processes;

mod chain;
mod daemon;
mod options;

use daemon::Daemon;
pub use options::{Format, ImageOptions};

/// Maximum number of disks of a VM: each has a thread.
pub const DISKS_MAX: usize = 16;

/// What serves disks that are not raw images.
#[derive(Clone, Copy, Debug)]
pub struct Storage<'a> {
    /// The command, if the user has named one.
    pub named: Option<&'a Path>,
    /// How it is confined.
    pub sandbox: Sandbox,
}

/// Opens and locks the disk images of `--disk`. Each of `vms` VMs gets all disks.
///
/// # Errors
/// A usage failure if there are too many images, if one cannot be opened, locked or served, or if
/// several VMs would write to one image.
pub fn open_all(given: &[OsString], vms: u32, storage: Storage<'_>) -> Result<Vec<Disk>, Failure> {
    if given.len() > DISKS_MAX {
        return Err(Failure::usage(format!(
            "{} disks are too many for a VM: give --disk at most {DISKS_MAX} times",
            given.len()
        )));
    }
    let opened = given.iter().map(|text| open(text, vms, storage));
    let (disks, files): (Vec<_>, Vec<_>) = opened.collect::<Result<_, _>>()?;
    refuse_twice(&files)?;
    let is_served = |disk: &Disk| matches!(disk, Disk::Process(_));
    match storage.named {
        Some(program) if !disks.iter().any(is_served) => Err(Failure::usage(format!(
            "--storage-daemon {} has no disk to serve: it serves those with ,format=qcow2 behind \
             their names",
            shown_path(program)
        ))),
        _ => Ok(disks),
    }
}

/// A file that a disk consists of.
#[derive(Debug)]
struct Used {
    path: PathBuf,
    is_written: bool,
}

impl Used {
    /// Returns whether both are the same file, and one of them is written.
    fn contradicts(&self, other: &Self) -> bool {
        let identity =
            |file: &Self| Some(file.path.metadata().ok()?).map(|it| (it.dev(), it.ino()));
        (self.is_written || other.is_written)
            && identity(self).is_some_and(|own| identity(other) == Some(own))
    }
}

/// Refuses a file that one disk writes and another one has, too, each with its files. The locks of
/// raw images tell that as well, but those of other processes would tell it late.
fn refuse_twice(disks: &[Vec<Used>]) -> Result<(), Failure> {
    for (number, files) in disks.iter().enumerate() {
        for file in files {
            let mut earlier = disks[..number].iter().flatten();
            if earlier.any(|other| file.contradicts(other)) {
                return Err(Failure::usage(format!(
                    "{} was given twice, as a disk or as a backing file of one: give it once, or \
                     each time with ,ro behind the name of the disk",
                    shown_path(&file.path)
                )));
            }
        }
    }
    Ok(())
}

/// Returns a disk and the files that it consists of.
fn open(text: &OsStr, vms: u32, storage: Storage<'_>) -> Result<(Disk, Vec<Used>), Failure> {
    let shown = text.display();
    let refused = |why: &str| Failure::usage(format!("invalid value {shown} for --disk: {why}"));
    let (path, options) = ImageOptions::split(text).map_err(refused)?;
    if path.as_os_str().is_empty() {
        return Err(refused(
            "write FILE, or FILE,ro for a read-only image, and ,format=qcow2 for that format",
        ));
    }
    if vms > 1 && !options.read_only {
        return Err(Failure::usage(format!(
            "--disk {shown} cannot be shared by --vms {vms}: several VMs that write to one image \
             destroy its content; add ,ro to share the image read-only"
        )));
    }
    match options.format {
        Format::Qcow2 { backing } => served(path, options.read_only, backing, storage),
        format => {
            let file = Used {
                path: path.to_owned(),
                is_written: !options.read_only,
            };
            Ok((raw(path, options.read_only, format)?, vec![file]))
        }
    }
}

/// Opens a raw image. One that begins as an image in another format must be said to be raw.
fn raw(path: &Path, read_only: bool, format: Format) -> Result<Disk, Failure> {
    let failed = |e| Failure::usage_from("--disk", &shown_path(path), e);
    if format == Format::Unstated && chain::begins_as_qcow2(path) {
        return Err(Failure::usage(format!(
            "{} begins as an image in format qcow2 does: add ,format=raw if it is a raw image, on \
             which a guest can have written that, or ,format=qcow2 if you know that it is one",
            shown_path(path)
        )));
    }
    let image = DiskImage::open(path, read_only).map_err(failed)?;
    Ok(Disk::Image(Arc::new(image)))
}

/// Returns a disk in format qcow2, which a process serves, and its files.
fn served(
    path: &Path,
    read_only: bool,
    backing: bool,
    storage: Storage<'_>,
) -> Result<(Disk, Vec<Used>), Failure> {
    let shown = shown_path(path);
    let files = chain::files(path, read_only, backing)
        .map_err(|e| Failure::usage_from("--disk", &shown, e))?;
    let used = files.iter().enumerate().map(|(number, file)| Used {
        path: file.path.clone(),
        is_written: number == 0 && !read_only,
    });
    let used = used.collect();
    let daemon = Daemon::new(files, read_only, storage.named, storage.sandbox)
        .map_err(|e| Failure::usage_from("--disk", &shown, e))?;
    Ok((Disk::Process(Arc::new(Processes::of(daemon))), used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    /// An image that goes with its test.
    struct Image(std::path::PathBuf);

    impl Image {
        fn new(name: &str) -> Self {
            let name = format!("causeway-cli-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, [0; 512]).unwrap();
            Self(path)
        }

        fn text(&self, behind: &str) -> OsString {
            let mut text = self.0.clone().into_os_string();
            text.push(behind);
            text
        }
    }

    impl Drop for Image {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn open(given: &[OsString], vms: u32) -> Result<Vec<Disk>, Failure> {
        let is_named = |text: &OsString| text.to_string_lossy().contains("format=qcow2");
        let storage = Storage {
            named: Some(Path::new("/proc/self/exe")).filter(|_| given.iter().any(is_named)),
            sandbox: Sandbox::On,
        };
        open_all(given, vms, storage)
    }

    fn images(given: &[OsString], vms: u32) -> Vec<Arc<DiskImage>> {
        let disks = open(given, vms).unwrap().into_iter();
        let image = |disk| match disk {
            Disk::Image(image) => image,
            Disk::Process(it) => panic!("{it:?}"),
        };
        disks.map(image).collect()
    }

    fn message(given: &[OsString], vms: u32) -> String {
        let failure = open(given, vms).expect_err("refused");
        let cause = failure.source().map(|cause| format!(": {cause}"));
        format!("{failure}{}", cause.unwrap_or_default())
    }

    #[test]
    fn an_image_is_written_unless_ro_stands_behind_its_name() {
        let image = Image::new("plain");
        assert!(!images(&[image.text("")], 1)[0].is_read_only());
        assert!(images(&[image.text(",ro")], 1)[0].is_read_only());
        let text = message(&[image.text(",rw")], 1);
        assert!(
            text.contains(",rw") && text.contains("must exist"),
            "{text}"
        );
    }

    #[test]
    fn an_image_in_format_qcow2_is_not_taken_for_a_raw_one() {
        let image = Image::new("qcow2");
        std::fs::write(&image.0, [&chain::MAGIC[..], &[0; 508]].concat()).unwrap();
        let text = message(&[image.text("")], 1);
        assert!(text.contains(",format=qcow2"), "{text}");
        assert_eq!(images(&[image.text(",format=raw")], 1).len(), 1);
        let text = message(&[image.text(",format=qcow2")], 1);
        assert!(text.contains("version"), "{text}");
    }

    #[test]
    fn only_what_is_read_is_shared() {
        let image = Image::new("shared");
        let text = message(&[image.text("")], 2);
        assert!(text.contains("--vms 2") && text.contains(",ro"), "{text}");
        assert_eq!(images(&[image.text(",ro"), image.text(",ro")], 2).len(), 2);
        let text = message(&[image.text(""), image.text(",ro")], 1);
        assert!(text.contains("given twice"), "{text}");
    }

    #[test]
    fn a_file_of_two_disks_is_named_if_one_of_them_is_written() {
        let image = Image::new("twice");
        chain::tests::write_empty(&image.0);
        let name = image.0.display().to_string();
        for others in [
            [",format=qcow2", ",format=qcow2"],
            [",format=qcow2,ro", ",format=qcow2"],
            [",format=qcow2", ",format=raw,ro"],
        ] {
            let text = message(&others.map(|behind| image.text(behind)), 1);
            assert!(text.contains("given twice"), "{text}");
            assert!(text.contains(&name), "{text}");
        }
        let reads = [",format=qcow2,ro", ",format=qcow2,ro"].map(|behind| image.text(behind));
        assert_eq!(open(&reads, 1).unwrap().len(), 2);
    }

    #[test]
    fn a_daemon_without_a_disk_to_serve_is_refused() {
        let image = Image::new("unserved");
        let storage = Storage {
            named: Some(Path::new("/x/daemon")),
            sandbox: Sandbox::On,
        };
        let failure = open_all(&[image.text("")], 1, storage).expect_err("refused");
        let text = failure.to_string();
        assert!(text.contains("/x/daemon has no disk"), "{text}");
    }

    #[test]
    fn too_many_are_counted() {
        let many = vec![OsString::from("x,ro"); 17];
        assert!(message(&many, 1).starts_with("17 disks"));
    }
}
