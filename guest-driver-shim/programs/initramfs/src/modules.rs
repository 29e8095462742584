//! Kernel modules: where those of a kernel are, and which others one needs.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::guest_path::{GuestPath, GuestPathError};

/// Where modules lie, below a root.
const FOLDERS: [&str; 2] = ["lib/modules", "usr/lib/modules"];
/// Modules that guests need, unless they are built into the kernel.
const WANTED: [&str; 4] = ["uio_pci_generic", "virtio_pci", "virtio_blk", "virtio_rng"];
/// Largest list of dependencies, in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;

/// A kernel module for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelModule {
    /// Path of the module's file on the host.
    pub host: PathBuf,
    /// Path at which the guest has that file.
    pub guest: GuestPath,
}

impl KernelModule {
    /// Returns the module in the host's file `host`. In the guest it has the same name in
    /// `/lib/modules`.
    ///
    /// # Errors
    /// [`GuestPathError`] if `host` has no file name, or one that is too long.
    pub fn new(host: &Path) -> Result<Self, GuestPathError> {
        let name = host.file_name().unwrap_or_default();
        Ok(Self {
            host: host.to_owned(),
            guest: GuestPath::in_folder("/lib/modules", name)?,
        })
    }
}

/// The folder with the kernel modules for one release of the kernel.
#[derive(Clone, Debug)]
pub struct ModuleFolder {
    folder: PathBuf,
    release: String,
}

impl ModuleFolder {
    /// Finds the modules of release `release` for the kernel file `kernel`. It looks in the folder
    /// tree that contains the file, as an unpacked package has it (`lib/modules` beside
    /// `boot/vmlinuz`), then in this host's own folders. Returns `None` if neither has modules of
    /// this release.
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

    /// Returns the kernel release that the modules are for.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns the path of `modules.dep`, the file that lists which other modules each module
    /// needs.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        self.folder.join("modules.dep")
    }

    /// Returns the modules that guests need for Causeway and virtio, each after the modules that it
    /// needs itself. Modules that this kernel does not have are left out.
    ///
    /// # Errors
    /// An I/O error if `modules.dep` cannot be read.
    pub fn wanted(&self) -> io::Result<Vec<KernelModule>> {
        self.named(&WANTED)
    }

    /// Returns the modules called `names`, each after the modules that it needs itself. Modules
    /// that this kernel does not have are left out.
    ///
    /// # Errors
    /// An I/O error if `modules.dep` cannot be read.
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

/// Paths of the modules called `wanted`, each behind those that it needs, from a list as depmod(8)
/// makes it: a line for each module, with its path, a colon, and the paths of all that it needs,
/// the innermost last.
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

/// Name of a module, in which file names have either of two dashes.
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
kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko \
    kernel/drivers/virtio/virtio.ko
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio_ring.ko \
    kernel/drivers/virtio/virtio.ko
kernel/drivers/net/virtio_net.ko: kernel/drivers/virtio/virtio_ring.ko \
    kernel/drivers/virtio/virtio.ko
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
