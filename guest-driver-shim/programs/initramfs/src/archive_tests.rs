//! Archives, read back by a reader of our own and by `cpio` where it is installed.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::*;

/// An entry as it was read back.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    inode: u32,
    mode: u32,
    links: u32,
    time: u32,
    device: (u32, u32),
    content: Vec<u8>,
}

/// Reads an archive as the kernel does.
fn read(mut bytes: &[u8]) -> BTreeMap<String, Read> {
    let mut entries = BTreeMap::new();
    loop {
        assert_eq!(&bytes[..6], b"070701");
        let field = |n: usize| {
            let digits = std::str::from_utf8(&bytes[6 + 8 * n..][..8]).unwrap();
            u32::from_str_radix(digits, 16).unwrap()
        };
        let (content_bytes, name_bytes) = (field(6) as usize, field(11) as usize);
        let name = std::str::from_utf8(&bytes[110..][..name_bytes - 1]).unwrap();
        assert_eq!(bytes[110 + name_bytes - 1], 0);
        let content = (110 + name_bytes).next_multiple_of(4);
        let entry = Read {
            inode: field(0),
            mode: field(1),
            links: field(4),
            time: field(5),
            device: (field(9), field(10)),
            content: bytes[content..][..content_bytes].to_vec(),
        };
        bytes = &bytes[(content + content_bytes).next_multiple_of(4)..];
        if name == "TRAILER!!!" {
            assert!(bytes.is_empty(), "{} bytes follow", bytes.len());
            return entries;
        }
        assert!(entries.insert(name.to_owned(), entry).is_none(), "{name}");
    }
}

fn path(text: &str) -> GuestPath {
    GuestPath::new(text).unwrap()
}

fn sample() -> Archive<'static> {
    let mut archive = Archive::new();
    archive
        .file(&path("/bin/app"), 0o755, &b"program"[..])
        .unwrap();
    archive.file(&path("/a"), 0o644, Vec::new()).unwrap();
    archive
        .file(&path("/data/deep/five"), 0o600, &b"12345"[..])
        .unwrap();
    archive
        .character_device(&path("/dev/console"), 0o600, 5, 1)
        .unwrap();
    archive.link(&path("/bin/sh"), &path("/bin/app")).unwrap();
    archive.folder(&path("/tmp"), 0o1777).unwrap();
    archive
}

#[test]
fn what_was_put_in_is_read_back() {
    let archive = sample();
    let bytes = archive.to_vec();
    assert_eq!(bytes.len() as u64, archive.bytes());
    let entries = read(&bytes);
    let names: Vec<_> = entries.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "a",
            "bin",
            "bin/app",
            "bin/sh",
            "data",
            "data/deep",
            "data/deep/five",
            "dev",
            "dev/console",
            "tmp"
        ]
    );
    assert_eq!(entries["bin/app"].mode, 0o100_755);
    assert_eq!(entries["bin/app"].content, b"program");
    assert_eq!(entries["data/deep/five"].content, b"12345");
    assert_eq!(entries["data/deep"].mode, 0o040_755);
    assert_eq!(entries["tmp"].mode, 0o041_777);
    assert_eq!(entries["dev/console"].mode, 0o020_600);
    assert_eq!(entries["dev/console"].device, (5, 1));
    assert_eq!(entries["bin/sh"].mode, 0o120_777);
    assert_eq!(entries["bin/sh"].content, b"/bin/app");
    for (name, entry) in &entries {
        assert_eq!(entry.time, 0, "{name}");
        let links = if entry.mode & 0o170_000 == 0o040_000 {
            2
        } else {
            1
        };
        assert_eq!(entry.links, links, "{name}");
    }
    let mut inodes: Vec<_> = entries.values().map(|entry| entry.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    assert_eq!(inodes.len(), entries.len(), "inodes are distinct");
}

#[test]
fn folders_come_before_what_is_in_them() {
    let bytes = sample().to_vec();
    let at = |name: &str| {
        let name = format!("{name}\0");
        let mut windows = bytes.windows(name.len());
        windows
            .position(|window| window == name.as_bytes())
            .unwrap()
    };
    assert!(at("data") < at("data/deep") && at("data/deep") < at("data/deep/five"));
}

#[test]
fn the_same_content_in_another_order_gives_the_same_bytes() {
    let mut other = Archive::new();
    other.folder(&path("/tmp"), 0o1777).unwrap();
    other
        .character_device(&path("/dev/console"), 0o600, 5, 1)
        .unwrap();
    other.link(&path("/bin/sh"), &path("/bin/app")).unwrap();
    other
        .file(&path("/data/deep/five"), 0o600, &b"12345"[..])
        .unwrap();
    other.file(&path("/a"), 0o644, Vec::new()).unwrap();
    other
        .file(&path("/bin/app"), 0o755, &b"program"[..])
        .unwrap();
    assert_eq!(other.to_vec(), sample().to_vec());
}

#[test]
fn a_path_cannot_be_two_things() {
    let mut archive = sample();
    let message = |result: Result<(), ArchiveError>| result.unwrap_err().to_string();
    let twice = archive.file(&path("/bin/app"), 0o755, Vec::new());
    assert!(message(twice).contains("/bin/app is already in the guest"));
    let folder = archive.file(&path("/data"), 0o644, Vec::new());
    assert!(message(folder).contains("/data would be both a file and a folder"));
    let below = archive.file(&path("/bin/app/x/y"), 0o644, Vec::new());
    assert!(message(below).contains("/bin/app/x"));
    let link = archive.folder(&path("/bin/sh"), 0o755);
    assert!(message(link).contains("file and a folder"));
    archive.folder(&path("/data/deep"), 0o755).unwrap();
    assert_eq!(
        archive.to_vec(),
        sample().to_vec(),
        "a refusal changes nothing"
    );
}

#[test]
fn cpio_lists_the_same_files() {
    let cpio = Command::new("cpio")
        .args(["--list", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut cpio) = cpio else {
        eprintln!("skipped: cpio is not installed");
        return;
    };
    let archive = sample();
    archive.write(cpio.stdin.take().unwrap()).unwrap();
    let listed = cpio.wait_with_output().unwrap();
    assert!(listed.status.success());
    let listed = String::from_utf8(listed.stdout).unwrap();
    let names: Vec<_> = listed.lines().collect();
    assert_eq!(names, read(&archive.to_vec()).keys().collect::<Vec<_>>());
}
