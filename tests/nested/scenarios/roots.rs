//! Root file systems on disks.

use std::path::Path;
use std::process;

use causeway_initramfs::INIT;
use causeway_nested::Lease;

use crate::image::elf;
use crate::machines::{KERNEL, machine, run};
use crate::programs::{exit, make_folder, say};

/// The disk, in the machine.
const ROOT: &str = "/tmp/root.img";
/// Size of the disk.
const SIZE: &str = "4M";
/// The folder that the program makes.
const FOLDER: &str = "/made-by-a-guest";
/// Where ext4 keeps the state of a file system, and its value for one that was unmounted (Linux,
/// Documentation/filesystems/ext4/super.rst).
const STATE_OFFSET: usize = 1024 + 0x3a;
const CLEAN: u8 = 1;

/// Makes a disk with an ext4 file system that has this program as `/app`, and puts it into the
/// machine.
fn install(machine: &Lease, program: &[u8]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("root");
    let (tree, image) = (folder.join("tree"), folder.join("root.img"));
    for name in ["dev", "proc", "sys", "run", "tmp"] {
        std::fs::create_dir_all(tree.join(name)).expect("a folder can be made");
    }
    let app = tree.join("app");
    std::fs::write(&app, program).expect("a file can be written");
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&app, rights).expect("it is this process's file");
    let _ = std::fs::remove_file(&image);
    let path = format!(
        "{}:/sbin:/usr/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let mut maker = process::Command::new("sh");
    maker.args([
        "-c",
        r#"PATH=$1 mke2fs -q -t ext4 -O ^has_journal -d "$2" "$3" "$4""#,
        "sh",
        &path,
    ]);
    let made = maker.arg(&tree).arg(&image).arg(SIZE).output();
    let made = made.expect("sh can be started");
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "mke2fs: {error}");
    machine.write(ROOT, 0o644, &std::fs::read(&image).expect("mke2fs made it"));
}

/// Words of a run of `/app` on the root `root`.
fn words(root: &str) -> [&str; 8] {
    [
        "--kernel",
        KERNEL,
        "--disk",
        ROOT,
        "--root",
        root,
        "--program",
        "/app",
    ]
}

#[test]
fn what_a_program_makes_in_its_root_is_in_the_image_which_is_clean() {
    let Some(machine) = machine("a root on a disk") else {
        return;
    };
    let code = [make_folder(FOLDER), say("it is made\n"), exit(7)].concat();
    install(&machine, &elf(&code));
    let (outcome, report) = run(&machine, &words("/dev/vda"));
    outcome.assert_code(7);
    let text = outcome.text();
    assert!(text.contains("it is made"), "{text}");
    assert!(!text.contains("causeway-init"), "{text}");
    assert_eq!(report.0["vms"][0]["program_status"], 7);
    let image = machine.read(ROOT).unwrap();
    let name = FOLDER.trim_start_matches('/').as_bytes();
    let places = image.windows(name.len()).filter(|part| *part == name);
    // One is in the program itself.
    assert_eq!(places.count(), 2);
    assert_eq!(image[STATE_OFFSET], CLEAN);
}

#[test]
fn a_root_that_does_not_exist_or_is_none_is_told() {
    let Some(machine) = machine("roots that are none") else {
        return;
    };
    machine.write(ROOT, 0o644, INIT.get(..512 * 100).unwrap());
    for (root, parts) in [
        (
            "/dev/vdb",
            ["cannot use /dev/vdb", "block devices: /dev/vda"],
        ),
        ("/dev/vda", ["cannot mount /dev/vda", "ext4"]),
    ] {
        let (outcome, _) = run(&machine, &words(root));
        outcome.assert_code(5);
        for part in parts {
            assert!(
                outcome.text().contains(part),
                "`{part}`: {}",
                outcome.text()
            );
        }
    }
}
