//! Finds the kernel modules that belong to a kernel image, and the modules on which each depends.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::guest_path::{GuestPath, GuestPathError};

/// Folders that have kernel modules, relative to the root of a file tree.
const FOLDERS: [&str; 2] = ["lib/modules", "usr/lib/modules"];
/// Modules that guests need, unless they are built into the Linux kernel.
const WANTED: [&str; 4] = ["uio_pci_generic", "virtio_pci", "virtio_blk", "virtio_rng"];
/// Largest list of dependencies, in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// A kernel module of the host that is copied into the guest and loaded there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelModule {
    /// Path of the module's file on the host.
    pub host: PathBuf,
    /// Path of the copy in the guest.
    pub guest: GuestPath,
}

impl KernelModule {
    /// Returns the module in the file `host`. Its copy in the guest lies in `/lib/modules`, with
    /// the same file name.
    ///
    /// # Errors
    /// [`GuestPathError`] if `host` has no file name.
    pub fn new(host: &Path) -> Result<Self, GuestPathError> {
        let name = host.file_name().unwrap_or_default();
        Ok(Self {
            host: host.to_owned(),
            guest: GuestPath::in_folder("/lib/modules", name)?,
        })
    }
}

/// A folder of the host that has the modules for one release of the Linux kernel.
#[derive(Clone, Debug)]
pub struct ModuleFolder {
    folder: PathBuf,
    release: String,
}

impl ModuleFolder {
    /// Finds the modules for the kernel image `kernel`, whose release is `release`. Looks in the
    /// file tree that contains the image (`boot/vmlinuz` beside `lib/modules`, as in an unpacked
    /// package), and then in the host's own folders. Returns `None` if neither has this release.
    #[must_use]
    pub fn find(kernel: &Path, release: &str) -> Option<Self> {
        let kernel = std::path::absolute(kernel).ok()?;
        let trees = kernel.ancestors().skip(1).take(2).chain([Path::new("/")]);
        let folders = trees.flat_map(|tree| FOLDERS.map(|folder| tree.join(folder)));
        folders
            .map(|folder| folder.join(release))
            .find(|folder| folder.join("modules.dep").is_file())
            .map(|folder| Self {
                folder,
                release: release.to_owned(),
            })
    }

    /// Returns the release of Linux for which the modules are, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns the path of `modules.dep`, the list of dependencies among the modules.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        self.folder.join("modules.dep")
    }

    /// Returns the modules that Causeway's guests use, each after those on which it depends. Left
    /// out are those that this kernel does not have as a module.
    ///
    /// # Errors
    /// The error of reading `modules.dep`.
    pub fn wanted(&self) -> io::Result<Vec<KernelModule>> {
        self.named(&WANTED)
    }

    /// Returns the modules called `names`, each after those on which it depends. Left out are names
    /// that this kernel does not have as a module.
    ///
    /// # Errors
    /// The error of reading `modules.dep`.
    pub fn named(&self, names: &[&str]) -> io::Result<Vec<KernelModule>> {
        let path = self.list();
        let list = crate::read::read_file(&path, LIST_BYTES_MAX)?.content;
        let names = in_order(&String::from_utf8_lossy(&list), names);
        let place = |name: String| {
            let inside = Path::new("/lib/modules").join(&self.release).join(&name);
            let guest = GuestPath::new(inside).map_err(io::Error::other)?;
            let host = self.folder.join(name);
            Ok(KernelModule { host, guest })
        };
        names.into_iter().map(place).collect()
    }
}

/// Returns the paths of the modules called `wanted`, each after those on which it depends. `list`
/// is the content of `modules.dep`, as depmod(8) writes it: a line for each module, with its path,
/// a colon, and the paths of all modules on which it depends, the innermost last.
fn in_order(list: &str, wanted: &[&str]) -> Vec<String> {
    let lines = list.lines().filter_map(|line| line.split_once(':'));
    let by_name: HashMap<String, (&str, &str)> = lines
        .map(|(path, needs)| (name_of(path), (path, needs)))
        .collect();
    let mut order: Vec<String> = Vec::new();
    let found = wanted.iter().filter_map(|name| by_name.get(&name_of(name)));
    for (path, needs) in found {
        let needs = needs.split_ascii_whitespace().rev();
        for path in needs.chain([*path]) {
            if !order.iter().any(|known| known == path) {
                order.push(path.to_owned());
            }
        }
    }
    order
}

/// Returns the name of the module in the file `path`. File names may have `-` where module names
/// have `_`.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split('.').next().unwrap_or(file);
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
kernel/drivers/uio/uio.ko:
kernel/drivers/uio/uio_pci_generic.ko: kernel/drivers/uio/uio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/net/virtio_net.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
nonsense without a colon
";

    #[test]
    fn modules_follow_those_that_they_need_and_come_once() {
        let order = in_order(LIST, &WANTED);
        let names: Vec<_> = order.iter().map(|path| name_of(path)).collect();
        assert_eq!(
            names,
            [
                "uio",
                "uio_pci_generic",
                "virtio",
                "virtio_ring",
                "virtio_pci",
                "virtio_rng"
            ],
            "virtio_blk is not in this list"
        );
        assert_eq!(in_order("", &WANTED), [""; 0]);
        assert_eq!(in_order(LIST, &["virtio-net"]).len(), 3, "either dash");
    }

    #[test]
    fn modules_of_the_kernels_own_tree_come_first() {
        let tree = std::env::temp_dir().join(format!("causeway-modules-{}", std::process::id()));
        let modules = tree.join("lib/modules/1.2.3");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::write(modules.join("modules.dep"), LIST).unwrap();
        let found = ModuleFolder::find(&tree.join("boot/vmlinuz"), "1.2.3").unwrap();
        let wanted = found.wanted().unwrap();
        std::fs::remove_dir_all(&tree).unwrap();
        assert_eq!(wanted[0].host, modules.join("kernel/drivers/uio/uio.ko"));
        assert_eq!(
            wanted[0].guest.to_string(),
            "/lib/modules/1.2.3/kernel/drivers/uio/uio.ko"
        );
        assert!(ModuleFolder::find(&tree.join("boot/vmlinuz"), "1.2.3").is_none());
    }

    #[test]
    fn a_module_of_ones_own_keeps_its_name() {
        let module = KernelModule::new(Path::new("build/my.ko")).unwrap();
        assert_eq!(module.guest.to_string(), "/lib/modules/my.ko");
        assert!(KernelModule::new(Path::new("/")).is_err());
    }
}
