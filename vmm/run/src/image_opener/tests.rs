//! What is opened, and what is not.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

/// A folder with files, which goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("causeway-images-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("inner")).unwrap();
        std::fs::write(path.join("good.img"), [7; 1024]).unwrap();
        Self(path)
    }

    fn open(&self, name: &str, read_only: bool) -> Result<File, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&self.0, flags, Mode::empty()).unwrap();
        image(root.as_fd(), &self.0, Path::new(name), read_only)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn images_of_the_folder_are_opened_and_stay_locked_with_who_has_the_file() {
    let folder = Folder::new("locked");
    symlink("../good.img", folder.0.join("inner/link.img")).unwrap();
    let file = folder.open("inner/link.img", false).unwrap();
    let refused = folder.open("good.img", true).unwrap_err();
    let is_in_use = matches!(refused, ImageError::Disk(DiskError::InUse { .. }));
    assert!(is_in_use, "{refused}");
    // As if it had come from another process.
    let image = DiskImage::of(Path::new("x"), file, false).unwrap();
    assert_eq!(image.sectors(), 2);
    drop(image);
    folder.open("good.img", true).unwrap();
}

#[test]
fn nothing_outside_of_the_folder_is_opened() {
    let folder = Folder::new("inside");
    let other = Folder::new("outside");
    let target = other.0.join("good.img");
    symlink(&target, folder.0.join("absolute.img")).unwrap();
    symlink("../..", folder.0.join("inner/up")).unwrap();
    let name = other.0.file_name().unwrap().to_str().unwrap();
    for name in [
        target.to_str().unwrap(),
        &format!("../{name}/good.img"),
        &format!("inner/up/{name}/good.img"),
        "absolute.img",
    ] {
        let refused = folder.open(name, true).unwrap_err();
        assert!(
            matches!(refused, ImageError::Outside(_)),
            "{name}: {refused}"
        );
        assert!(refused.to_string().contains(name), "{name}: {refused}");
    }
}

#[test]
fn what_is_no_image_is_refused_by_its_name() {
    let folder = Folder::new("others");
    std::fs::write(folder.0.join("odd.img"), [7; 1000]).unwrap();
    std::fs::write(folder.0.join("empty.img"), []).unwrap();
    for (name, part) in [
        ("odd.img", "is not a multiple of 512"),
        ("empty.img", "is empty"),
        ("none.img", "must exist"),
        ("inner", "regular file"),
    ] {
        let refused = chain(&folder.open(name, false).unwrap_err());
        assert!(refused.contains(part), "{name}: {refused}");
        assert!(refused.contains(name), "{refused}");
    }
}

/// An opener that the test answers for, and the test's end of its socket.
fn opener() -> (Opener, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (socket, ours) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let opener = Opener {
        child: Command::new("true").spawn().unwrap(),
        socket,
        owes: false,
    };
    (opener, ours)
}

#[test]
fn an_answer_that_comes_too_late_is_not_one_to_the_next_request() {
    let folder = Folder::new("late");
    let (mut opener, ours) = opener();
    let open = |opener: &mut Opener| opener.open(Path::new("x"), Path::new("/images/x"), true);
    opener.owes = true;
    assert!(matches!(open(&mut opener), Err(OpenerError::Silent)));
    let file = folder.open("good.img", true).unwrap();
    send(ours.as_fd(), &[0], &[file.as_fd()]).unwrap();
    drop(file);
    send(ours.as_fd(), &[&[0][..], b"not now"].concat(), &[]).unwrap();
    let refused = open(&mut opener).unwrap_err();
    assert_eq!(refused.to_string(), "not now");
    // The file that came too late is closed, so nobody has a lock of it.
    folder.open("good.img", false).unwrap();
    let request = receive(ours.as_fd(), REQUEST_BYTES_MAX, RecvFlags::empty()).unwrap();
    assert_eq!(request.bytes, b"\x01x");
    drop(ours);
    assert!(matches!(open(&mut opener), Err(OpenerError::Gone(_))));
}

#[test]
fn a_file_for_which_there_is_no_descriptor_is_told() {
    let (mut opener, ours) = opener();
    let files = [ours.as_fd(); 9];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(9))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // More than there is place for: the kernel cuts the message, as it does without a descriptor.
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    let bytes = [IoSlice::new(&[0])];
    sendmsg(&ours, &bytes, &mut ancillary, SendFlags::empty()).unwrap();
    let refused = opener.open(Path::new("x"), Path::new("x"), true);
    assert!(
        matches!(refused, Err(OpenerError::NoDescriptor)),
        "{refused:?}"
    );
}
