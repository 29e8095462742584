//! Disks of a Linux guest: `--disk FILE[,ro]`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use causeway_vmm::virtio::DiskImage;

use causeway_terminal::Failure;

/// Maximum number of disks of a VM: each has a thread.
pub const DISKS_MAX: usize = 16;
/// Suffix of the name of a read-only image.
const READ_ONLY: &[u8] = b",ro";

/// Opens and locks the disk images of `--disk`. Each of `vms` VMs gets all disks.
///
/// # Errors
/// A usage failure if there are too many images, if one cannot be opened or locked, or if several
/// VMs would write to one image.
pub fn open_all(given: &[OsString], vms: u32) -> Result<Vec<Arc<DiskImage>>, Failure> {
    if given.len() > DISKS_MAX {
        return Err(Failure::usage(format!(
            "{} disks are too many for a VM: give --disk at most {DISKS_MAX} times",
            given.len()
        )));
    }
    given.iter().map(|text| open(text, vms)).collect()
}

fn open(text: &OsStr, vms: u32) -> Result<Arc<DiskImage>, Failure> {
    let (path, read_only) = match text.as_bytes().strip_suffix(READ_ONLY) {
        Some(path) => (Path::new(OsStr::from_bytes(path)), true),
        None => (Path::new(text), false),
    };
    let shown = text.display();
    if path.as_os_str().is_empty() {
        return Err(Failure::usage(format!(
            "invalid value {shown} for --disk: write FILE, or FILE,ro for a read-only image"
        )));
    }
    if vms > 1 && !read_only {
        return Err(Failure::usage(format!(
            "--disk {shown} cannot be shared by --vms {vms}: several VMs that write to one image \
             destroy its content; add ,ro to share the image read-only"
        )));
    }
    DiskImage::open(path, read_only)
        .map(Arc::new)
        .map_err(|e| Failure::usage_from("--disk", &shown.to_string(), e))
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

    fn message(given: &[OsString], vms: u32) -> String {
        let failure = open_all(given, vms).expect_err("refused");
        let cause = failure.source().map(|cause| format!(": {cause}"));
        format!("{failure}{}", cause.unwrap_or_default())
    }

    #[test]
    fn an_image_is_written_unless_ro_stands_behind_its_name() {
        let image = Image::new("plain");
        assert!(!open_all(&[image.text("")], 1).unwrap()[0].is_read_only());
        assert!(open_all(&[image.text(",ro")], 1).unwrap()[0].is_read_only());
        let text = message(&[image.text(",rw")], 1);
        assert!(
            text.contains(",rw") && text.contains("must exist"),
            "{text}"
        );
    }

    #[test]
    fn only_what_is_read_is_shared() {
        let image = Image::new("shared");
        let text = message(&[image.text("")], 2);
        assert!(text.contains("--vms 2") && text.contains(",ro"), "{text}");
        assert_eq!(
            open_all(&[image.text(",ro"), image.text(",ro")], 2)
                .unwrap()
                .len(),
            2
        );
        let text = message(&[image.text(""), image.text(",ro")], 1);
        assert!(text.contains("given twice"), "{text}");
    }

    #[test]
    fn too_many_are_counted() {
        let many = vec![OsString::from("x,ro"); 17];
        assert!(message(&many, 1).starts_with("17 disks"));
    }
}
