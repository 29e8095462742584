//! What can be a disk, and who may have it.

use std::process::{Command, Stdio};

use super::*;
use crate::virtio::block::tests::Scratch;
use parking_lot::{Mutex, MutexGuard};

/// A process that is being started has copies of all descriptors, and with them of locks, until it
/// executes its program. So those tests that start one, and those that let go of a lock, run one at
/// a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
}

fn error(path: &Path, read_only: bool) -> String {
    DiskImage::open(path, read_only).unwrap_err().to_string()
}

#[test]
fn what_is_no_image_is_refused_by_name_and_reason() {
    let missing = std::env::temp_dir().join("causeway-no-such-image");
    let text = error(&missing, false);
    assert!(
        text.contains("causeway-no-such-image") && text.contains("must exist"),
        "{text}"
    );
    for read_only in [false, true] {
        let text = error(&std::env::temp_dir(), read_only);
        assert!(text.contains("regular file"), "{text}");
    }
    assert!(error(Path::new("/dev/null"), false).contains("regular file"));
    let odd = Scratch::new("odd", 1000);
    let text = error(&odd.0, true);
    assert!(
        text.contains("1000 bytes") && text.contains("512"),
        "{text}"
    );
    let empty = Scratch::new("empty", 0);
    assert!(error(&empty.0, false).contains("is empty, so"));
}

#[test]
fn a_pipe_without_a_writer_keeps_nobody_waiting() {
    let _alone = alone();
    let path = std::env::temp_dir().join(format!("causeway-pipe-{}", std::process::id()));
    let made = Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mkfifo");
        return;
    }
    let text = error(&path, true);
    std::fs::remove_file(&path).unwrap();
    assert!(text.contains("regular file"), "{text}");
}

#[test]
fn many_read_or_one_writes() {
    let _alone = alone();
    let scratch = Scratch::new("lock", 4096);
    let readers = [(); 2].map(|()| DiskImage::open(&scratch.0, true).unwrap());
    let refused = DiskImage::open(&scratch.0, false).unwrap_err();
    assert!(
        matches!(
            refused,
            DiskError::InUse {
                holder: Holder::Myself,
                ..
            }
        ),
        "{refused}"
    );
    drop(readers);
    let writer = DiskImage::open(&scratch.0, false).unwrap();
    for read_only in [false, true] {
        let text = error(&scratch.0, read_only);
        assert!(text.contains("given twice"), "{text}");
    }
    drop(writer);
    DiskImage::open(&scratch.0, true).unwrap();
}

#[test]
fn the_process_that_has_it_is_named() {
    let _alone = alone();
    let scratch = Scratch::new("holder", 4096);
    let image = DiskImage::open(&scratch.0, false).unwrap();
    // A process that has our open description has our lock.
    let child = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(image.file))
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: no sleep");
        return;
    };
    let refused = DiskImage::open(&scratch.0, false);
    child.kill().unwrap();
    child.wait().unwrap();
    let expected = Holder::Process {
        pid: child.id(),
        name: "sleep".to_owned(),
    };
    match refused {
        Err(DiskError::InUse { holder, .. }) => assert_eq!(holder, expected),
        other => panic!("{other:?}"),
    }
}
