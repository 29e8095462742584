//! Kernel modules: where those of a kernel are, and which others one needs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use causeway_init::{Layer, Root};

use crate::guest_path::{GuestPath, GuestPathError};
use crate::modinfo;

/// Where modules lie, below a root.
const FOLDERS: [&str; 2] = ["lib/modules", "usr/lib/modules"];
/// Modules that guests need, unless they are built into the kernel.
const WANTED: [&str; 4] = ["uio_pci_generic", "virtio_pci", "virtio_blk", "virtio_rng"];
/// Modules for a root file system on a disk, of the kind that most disks have.
const FOR_DISK_ROOT: [&str; 1] = ["ext4"];
/// Modules for folders of the host.
const FOR_SHARES: [&str; 1] = ["virtiofs"];
/// Modules for a network.
const FOR_NETWORK: [&str; 1] = ["virtio_net"];
/// Modules for sockets that lead to the host.
const FOR_VSOCK: [&str; 1] = ["vmw_vsock_virtio_transport"];
/// Modules for a root whose changes stay in memory.
const FOR_LAYER: [&str; 1] = ["overlay"];
/// Largest list of dependencies, in bytes.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Largest module whose dependencies are read from its file, in bytes.
const MODULE_BYTES_MAX: u64 = 256 << 20;

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

/// What a guest has, beside Causeway and disks, that needs modules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs<'a> {
    /// The root file system of its program.
    pub root: Option<&'a Root>,
    /// It mounts folders of the host.
    pub has_shares: bool,
    /// It has a network.
    pub has_network: bool,
    /// It has sockets that lead to the host.
    pub has_vsock: bool,
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
    /// `boot/vmlinuz`), in the one that contains `kernel` if that is a link to the file, then in
    /// this host's own folders. Returns `None` if none of them has modules of this release. A
    /// folder without `modules.dep` counts too, if it has a folder `kernel`: so a package is
    /// unpacked before depmod(8) has run.
    #[must_use]
    pub fn find(kernel: &Path, release: &str) -> Option<Self> {
        let paths = [kernel.canonicalize(), std::path::absolute(kernel)];
        let trees = paths.iter().flatten();
        let trees = trees.flat_map(|path| path.ancestors().skip(1).take(2));
        let trees = trees.chain([Path::new("/")]);
        let folders = trees.flat_map(|tree| FOLDERS.map(|folder| tree.join(folder)));
        folders
            .map(|folder| folder.join(release))
            .find(|folder| folder.join("modules.dep").is_file() || folder.join("kernel").is_dir())
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
    /// needs. The file may be absent.
    #[must_use]
    pub fn list(&self) -> PathBuf {
        self.folder.join("modules.dep")
    }

    /// Returns the modules that guests need for Causeway and virtio, and for what else `needs`
    /// names, each after the modules that it needs itself. Modules that this kernel does not have
    /// are left out.
    ///
    /// # Errors
    /// As for [`Self::named`].
    pub fn wanted(&self, needs: &Needs) -> io::Result<Vec<KernelModule>> {
        let root = needs.root;
        let is_on_disk = matches!(root, Some(Root::Device(..)));
        let is_shared = needs.has_shares || matches!(root, Some(Root::Share(..)));
        let has_layer = root.is_some_and(|root| root.layer() == Layer::Memory);
        let optional = [
            (is_on_disk, FOR_DISK_ROOT),
            (is_shared, FOR_SHARES),
            (needs.has_network, FOR_NETWORK),
            (needs.has_vsock, FOR_VSOCK),
            (has_layer, FOR_LAYER),
        ];
        let optional = optional.into_iter().filter(|(is_needed, _)| *is_needed);
        let names: Vec<&str> = WANTED
            .into_iter()
            .chain(optional.flat_map(|(_, names)| names))
            .collect();
        self.named(&names)
    }

    /// Returns the modules that guests need that have any root, folders of the host, a
    /// network and sockets.
    ///
    /// # Errors
    /// As for [`Self::named`].
    pub fn all_wanted(&self) -> io::Result<Vec<KernelModule>> {
        let names = [
            &WANTED[..],
            &FOR_DISK_ROOT,
            &FOR_SHARES,
            &FOR_NETWORK,
            &FOR_VSOCK,
            &FOR_LAYER,
        ];
        self.named(&names.concat())
    }

    /// Returns the modules called `names`, each after the modules that it needs itself. Modules
    /// that this kernel does not have are left out.
    ///
    /// # Errors
    /// An I/O error if `modules.dep` cannot be read. Without `modules.dep`, if the folder or one of
    /// these modules cannot be read, or if a module is compressed.
    pub fn named(&self, names: &[&str]) -> io::Result<Vec<KernelModule>> {
        let path = self.list();
        let names = if path.is_file() {
            let list = crate::read::read_file(&path, LIST_BYTES_MAX)?.content;
            in_order(&String::from_utf8_lossy(&list), names)
        } else {
            self.in_order_of_files(names)?
        };
        let place = |name: String| {
            let inside = Path::new("/lib/modules").join(&self.release).join(&name);
            let guest = GuestPath::new(inside).map_err(io::Error::other)?;
            let host = self.folder.join(name);
            Ok(KernelModule { host, guest })
        };
        names.into_iter().map(place).collect()
    }
}

impl ModuleFolder {
    /// Returns the folder of the kernel's release.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns whether a guest has the module called `name`: it is one of `modules`, or the kernel
    /// contains it (`modules.builtin`, a list that the kernel's build makes).
    #[must_use]
    pub fn provides(&self, name: &str, modules: &[KernelModule]) -> bool {
        let mut given = modules
            .iter()
            .map(|module| name_of(&module.guest.to_string()));
        let is_built_in = || {
            let list = self.folder.join("modules.builtin");
            crate::read::read_file(&list, LIST_BYTES_MAX).is_ok_and(|list| {
                let list = String::from_utf8_lossy(&list.content).into_owned();
                list.lines().any(|path| name_of(path) == name)
            })
        };
        given.any(|given| given == name) || is_built_in()
    }

    /// Paths of the modules called `wanted`, each behind those that it needs, from the modules' own
    /// files.
    fn in_order_of_files(&self, wanted: &[&str]) -> io::Result<Vec<String>> {
        let mut files = HashMap::new();
        find_modules(&self.folder, Path::new(""), &mut files)?;
        let mut order = Vec::new();
        let mut open: Vec<(String, bool)> =
            wanted.iter().rev().map(|n| (name_of(n), false)).collect();
        // Each module is removed when its turn comes, so that this ends for modules in a circle.
        let mut ready = HashMap::new();
        while let Some((name, is_ready)) = open.pop() {
            if is_ready {
                order.extend(ready.remove(&name));
                continue;
            }
            let Some(path) = files.remove(&name) else {
                continue;
            };
            let needs = self.depends(&path)?;
            ready.insert(name.clone(), path);
            open.push((name, true));
            open.extend(needs.iter().rev().map(|need| (name_of(need), false)));
        }
        Ok(order)
    }

    /// Returns the names of the modules that the module at `path` in this folder needs.
    fn depends(&self, path: &str) -> io::Result<Vec<String>> {
        let file = self.folder.join(path);
        if modinfo::is_compressed(&file) {
            // The tree of `lib/modules/RELEASE`.
            let tree = self.folder.ancestors().nth(3).unwrap_or(Path::new("/"));
            return Err(io::Error::other(format!(
                "{path} is compressed and {} has no modules.dep: run `depmod -b {} {}`",
                self.folder.display(),
                tree.display(),
                self.release
            )));
        }
        let image = crate::read::read_file(&file, MODULE_BYTES_MAX)?.content;
        modinfo::depends(&image).map_err(|e| io::Error::other(format!("{path}: {e}")))
    }
}

/// Adds the modules in folder `inside` of `root` to `found`: by their names, their paths below
/// `root`. Does not follow links.
fn find_modules(root: &Path, inside: &Path, found: &mut HashMap<String, String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(inside))? {
        let entry = entry?;
        let path = inside.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            find_modules(root, &path, found)?;
        } else if kind.is_file() && is_module(&entry.file_name()) {
            // Names of modules are ASCII; another could not be one that is wanted.
            let path = path.to_string_lossy().into_owned();
            found.insert(name_of(&path), path);
        }
    }
    Ok(())
}

/// Returns whether a file name is that of a module, which may be compressed.
fn is_module(name: &OsString) -> bool {
    let name = Path::new(name);
    let plain = match modinfo::is_compressed(name) {
        true => name.file_stem().map(Path::new),
        false => Some(name),
    };
    plain
        .and_then(Path::extension)
        .is_some_and(|extension| extension == "ko")
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
        let wanted = found.wanted(&Needs::default()).unwrap();
        let (kernel, link) = (tree.join("boot/vmlinuz"), tree.join("a/b/c/link"));
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::fs::create_dir(tree.join("boot")).unwrap();
        std::fs::write(&kernel, "").unwrap();
        std::os::unix::fs::symlink(&kernel, &link).unwrap();
        let behind = ModuleFolder::find(&link, "1.2.3").unwrap();
        assert_eq!(behind.list(), modules.join("modules.dep"));
        std::fs::remove_dir_all(&tree).unwrap();
        assert_eq!(wanted[0].host, modules.join("kernel/drivers/uio/uio.ko"));
        assert_eq!(
            wanted[0].guest.to_string(),
            "/lib/modules/1.2.3/kernel/drivers/uio/uio.ko"
        );
        assert!(ModuleFolder::find(&tree.join("boot/vmlinuz"), "1.2.3").is_none());
    }

    /// A folder that goes with its test.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let name = format!("causeway-modules-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        /// Writes a module, as a package has it.
        fn module(&self, path: &str, depends: &str) {
            let path = self.0.join("usr/lib/modules/1.2.3/kernel").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let information = format!("license=GPL\0depends={depends}\0");
            std::fs::write(path, modinfo::tests::module(information.as_bytes())).unwrap();
        }

        fn found(&self) -> ModuleFolder {
            ModuleFolder::find(&self.0.join("boot/vmlinuz"), "1.2.3").unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn without_a_list_modules_name_those_that_they_need_themselves() {
        let tree = Tree::new("unlisted");
        tree.module("drivers/uio/uio.ko", "");
        tree.module("drivers/uio/uio_pci_generic.ko", "uio");
        tree.module(
            "drivers/virtio/virtio_pci.ko",
            "virtio_ring,virtio,virtio-absent",
        );
        tree.module("drivers/virtio/virtio.ko", "");
        tree.module("drivers/virtio/virtio_ring.ko", "virtio");
        // A circle, which no real modules have.
        tree.module("drivers/char/virtio-rng.ko", "virtio_blk");
        tree.module("drivers/block/virtio_blk.ko", "virtio_rng");
        tree.module("drivers/net/unreadable.ko.txt", "");
        let wanted = tree.found().wanted(&Needs::default()).unwrap();
        let names: Vec<String> = wanted
            .iter()
            .map(|m| name_of(&m.guest.to_string()))
            .collect();
        assert_eq!(
            names,
            [
                "uio",
                "uio_pci_generic",
                "virtio",
                "virtio_ring",
                "virtio_pci",
                "virtio_rng",
                "virtio_blk"
            ]
        );
        assert!(
            wanted.iter().all(|module| module.host.is_file()),
            "{wanted:?}"
        );
        let place = "/lib/modules/1.2.3/kernel/drivers/uio/uio.ko";
        assert_eq!(wanted[0].guest.to_string(), place);
    }

    #[test]
    fn a_module_is_there_as_a_file_or_in_the_kernel() {
        let tree = Tree::new("provided");
        tree.module("drivers/uio/uio.ko", "");
        let folder = tree.found();
        assert!(!folder.provides(
            "uio_pci_generic",
            &folder.wanted(&Needs::default()).unwrap()
        ));
        let list = tree.0.join("usr/lib/modules/1.2.3/modules.builtin");
        std::fs::write(&list, "kernel/drivers/uio/uio_pci_generic.ko\n").unwrap();
        assert!(folder.provides("uio_pci_generic", &[]));
        std::fs::remove_file(&list).unwrap();
        tree.module("drivers/uio/uio_pci_generic.ko", "uio");
        assert!(folder.provides(
            "uio_pci_generic",
            &folder.wanted(&Needs::default()).unwrap()
        ));
    }

    #[test]
    fn compressed_modules_without_a_list_need_depmod() {
        let tree = Tree::new("compressed");
        tree.module("drivers/uio/uio_pci_generic.ko.xz", "uio");
        let message = tree
            .found()
            .wanted(&Needs::default())
            .unwrap_err()
            .to_string();
        let way_out = format!("run `depmod -b {} 1.2.3`", tree.0.join("usr").display());
        assert!(message.contains(&way_out), "{message}");
    }

    #[test]
    fn a_module_of_ones_own_keeps_its_name() {
        let module = KernelModule::new(Path::new("build/my.ko")).unwrap();
        assert_eq!(module.guest.to_string(), "/lib/modules/my.ko");
        assert!(KernelModule::new(Path::new("/")).is_err());
    }
}
