//! What is in the way of having a device, on hosts that are a folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_host_vfio::{Address, Host, PciFunction, PreflightError};

const NETWORK: u32 = 0x02_0000;
const BRIDGE: u32 = 0x06_0400;

/// A host in a folder, which goes away with it.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("causeway-host-vfio-host-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
        let tree = Self { root };
        tree.file(
            "proc/self/status",
            "VmLck:\t0 kB\nCapEff:\t000001ffffffffff\n",
        );
        tree
    }

    fn host(&self) -> Host {
        Host::at(&self.root)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn function(&self, address: &str, class: u32, driver: Option<&str>, group: Option<u32>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/vendor"), "0x1af4\n");
        self.file(&format!("{folder}/device"), "0x1110\n");
        self.file(&format!("{folder}/class"), &format!("0x{class:06x}\n"));
        if let Some(driver) = driver {
            let target = format!("../../../bus/pci/drivers/{driver}");
            self.link(&format!("{folder}/driver"), &target);
            fs::create_dir_all(self.root.join("sys/bus/pci/drivers").join(driver)).unwrap();
        }
        if let Some(group) = group {
            let target = format!("../../../kernel/iommu_groups/{group}");
            self.link(&format!("{folder}/iommu_group"), &target);
            let member = format!("sys/kernel/iommu_groups/{group}/devices/{address}");
            self.link(&member, &format!("/{folder}"));
        }
    }

    /// A function that can be had.
    fn ready() -> Self {
        let tree = Self::new();
        tree.function("0000:00:03.0", NETWORK, Some("vfio-pci"), Some(7));
        tree.file("dev/vfio/vfio", "");
        tree.file("dev/vfio/7", "");
        tree
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn check(tree: &Tree) -> Result<PciFunction, PreflightError> {
    tree.host().preflight(address("0000:00:03.0"), 1 << 30)
}

fn message(tree: &Tree) -> String {
    check(tree).unwrap_err().to_string()
}

#[test]
fn a_device_that_can_be_had_is_described() {
    let tree = Tree::ready();
    let function = check(&tree).unwrap();
    assert_eq!((function.vendor, function.device), (0x1af4, 0x1110));
    assert_eq!((function.class, function.group), (NETWORK, Some(7)));
    assert!(function.is_for_vfio());
    assert_eq!(tree.host().functions(), [function]);
    assert_eq!(tree.host().groups(), 1);
}

#[test]
fn drivers_for_particular_devices_are_vfios_too() {
    for driver in ["mlx5_vfio_pci", "nvgrace-gpu-vfio-pci"] {
        let tree = Tree::new();
        tree.function("0000:00:03.0", NETWORK, Some(driver), Some(7));
        tree.file("dev/vfio/vfio", "");
        tree.file("dev/vfio/7", "");
        check(&tree).unwrap();
    }
}

#[test]
fn a_device_that_there_is_not_is_named() {
    let tree = Tree::new();
    assert!(matches!(check(&tree), Err(PreflightError::Absent { .. })));
    assert!(message(&tree).contains("0000:00:03.0"));
}

#[test]
fn without_an_iommu_it_is_said_how_to_enable_it() {
    let tree = Tree::new();
    tree.function("0000:00:03.0", NETWORK, Some("vfio-pci"), None);
    assert!(matches!(check(&tree), Err(PreflightError::NoIommu { .. })));
    assert!(message(&tree).contains("intel_iommu=on"));
}

#[test]
fn a_device_that_another_driver_has_comes_with_the_commands_that_bind_it() {
    let tree = Tree::new();
    tree.function("0000:00:03.0", NETWORK, Some("e1000e"), Some(7));
    let text = message(&tree);
    let commands = "modprobe vfio-pci && \
        echo vfio-pci > /sys/bus/pci/devices/0000:00:03.0/driver_override && \
        echo 0000:00:03.0 > /sys/bus/pci/devices/0000:00:03.0/driver/unbind && \
        echo 0000:00:03.0 > /sys/bus/pci/drivers_probe";
    assert!(
        text.contains("driver e1000e") && text.ends_with(commands),
        "{text}"
    );
    // Neither a module to load nor a driver to unbind.
    let tree = Tree::new();
    tree.function("0000:00:03.0", NETWORK, None, Some(7));
    fs::create_dir_all(tree.root.join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    let text = message(&tree);
    assert!(text.contains("no driver"), "{text}");
    assert!(
        !text.contains("modprobe") && !text.contains("unbind"),
        "{text}"
    );
}

#[test]
fn others_of_the_group_that_the_host_uses_are_named_and_bridges_are_not() {
    let tree = Tree::ready();
    tree.function("0000:00:02.0", BRIDGE, Some("pcieport"), Some(7));
    tree.function("0000:00:03.1", NETWORK, None, Some(7));
    tree.function("0000:00:03.2", NETWORK, Some("vfio-pci"), Some(7));
    check(&tree).unwrap();
    tree.function("0000:00:03.3", NETWORK, Some("snd_hda_intel"), Some(7));
    let error = check(&tree).unwrap_err();
    let text = error.to_string();
    let PreflightError::NotViable { group, others, .. } = error else {
        panic!("{text}");
    };
    assert_eq!((group, others.len()), (7, 1));
    assert!(
        text.contains("0000:00:03.3 (driver snd_hda_intel)"),
        "{text}"
    );
    assert!(
        !text.contains("0000:00:02.0") && !text.contains("0000:00:03.1"),
        "{text}"
    );
}

#[test]
fn a_bridge_cannot_be_handed_out() {
    let tree = Tree::new();
    tree.function("0000:00:03.0", BRIDGE, Some("pcieport"), Some(7));
    assert!(matches!(check(&tree), Err(PreflightError::Bridge { .. })));
}

#[test]
fn missing_files_are_named() {
    let tree = Tree::ready();
    fs::remove_file(tree.root.join("dev/vfio/7")).unwrap();
    let text = message(&tree);
    assert!(matches!(check(&tree), Err(PreflightError::NoFile { .. })));
    assert!(text.contains("dev/vfio/7"), "{text}");
}

#[test]
fn files_that_may_not_be_opened_are_named() {
    let tree = Tree::ready();
    if rustix::process::getuid().is_root() {
        eprintln!("skipped: root may open everything");
        return;
    }
    let file = tree.root.join("dev/vfio/7");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
    let text = message(&tree);
    assert!(matches!(
        check(&tree),
        Err(PreflightError::Permission { .. })
    ));
    assert!(text.contains("chown"), "{text}");
}

#[test]
fn the_process_that_has_the_device_is_named() {
    let tree = Tree::ready();
    tree.file("proc/4242/comm", "qemu-system-x86\n");
    tree.link("proc/4242/fd/11", "/dev/vfio/vfio");
    check(&tree).unwrap();
    tree.link("proc/4242/fd/12", "/dev/vfio/7");
    let text = message(&tree);
    assert!(text.contains("process 4242 (qemu-system-x86)"), "{text}");
}

#[test]
fn a_device_with_a_file_of_its_own_needs_no_group_file() {
    let tree = Tree::ready();
    fs::remove_file(tree.root.join("dev/vfio/7")).unwrap();
    let cdev = tree
        .root
        .join("sys/bus/pci/devices/0000:00:03.0/vfio-dev/vfio0");
    fs::create_dir_all(cdev).unwrap();
    tree.file("dev/iommu", "");
    check(&tree).unwrap_err();
    tree.file("dev/vfio/devices/vfio0", "");
    assert_eq!(check(&tree).unwrap().cdev.as_deref(), Some("vfio0"));
}

#[test]
fn the_limit_of_locked_memory_comes_with_both_numbers() {
    let tree = Tree::ready();
    tree.file(
        "proc/self/status",
        "VmLck:\t16 kB\nCapEff:\t0000000000000000\n",
    );
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Memlock).current else {
        eprintln!("skipped: there is no limit of locked memory here");
        return;
    };
    let wanted = limit + 4096;
    let error = tree.host().preflight(address("0000:00:03.0"), wanted);
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains(&wanted.to_string()) && text.contains(&limit.to_string()),
        "{text}"
    );
    let kib = (wanted + (16 << 10)).div_ceil(1024);
    assert!(text.contains(&format!("ulimit -l {kib}")), "{text}");
}

#[test]
fn a_host_without_pci_has_nothing() {
    let host = Host::at(Path::new("/nonexistent"));
    assert_eq!((host.functions(), host.groups()), (Vec::new(), 0));
    assert!(!host.has_vfio_pci());
}
