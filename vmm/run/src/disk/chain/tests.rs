use super::*;
use std::fs;

/// A folder with images, which goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("causeway-chain-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder.canonicalize().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where the tests' images name their backing file.
const NAME_AT: usize = 0x180;

/// Returns the first 512 bytes of an image of version 3, with a backing file and its format.
fn image(backing: &str, format: &str) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, MAGIC);
    put(4, &3u32.to_be_bytes());
    put(20, &16u32.to_be_bytes());
    put(100, &104u32.to_be_bytes());
    if !backing.is_empty() {
        put(8, &(NAME_AT as u64).to_be_bytes());
        put(16, &(backing.len() as u32).to_be_bytes());
        put(NAME_AT, backing.as_bytes());
    }
    // One that nobody knows comes first.
    put(
        104,
        &[0x12345678u32.to_be_bytes(), 3u32.to_be_bytes()].concat(),
    );
    if !format.is_empty() {
        let length = format.len() as u32;
        put(
            120,
            &[BACKING_FORMAT.to_be_bytes(), length.to_be_bytes()].concat(),
        );
        put(128, format.as_bytes());
    }
    bytes
}

/// Writes the header of an image without a backing file.
pub fn write_empty(path: &Path) {
    fs::write(path, image("", "")).unwrap();
}

#[test]
fn an_image_has_its_backing_files_in_their_order_and_with_their_formats() {
    let folder = Folder::new("order");
    let last = folder.write("last", b"QFI\xfb, but raw");
    let middle = folder.write("middle", &image("last", "raw"));
    let first = folder.write("first", &image(middle.to_str().unwrap(), "qcow2"));
    let found = files(&first, false, true).unwrap();
    let file = |path: &PathBuf, is_qcow2| ImageFile {
        path: path.clone(),
        is_qcow2,
    };
    assert_eq!(
        found,
        [file(&first, true), file(&middle, true), file(&last, false)]
    );
    let alone = folder.write("alone", &image("", ""));
    assert_eq!(files(&alone, true, false).unwrap(), [file(&alone, true)]);
    // Only the files themselves are opened for writing.
    fs::set_permissions(&last, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(files(&first, false, true).unwrap().len(), 3);
}

#[test]
fn what_a_guest_must_not_reach_or_cannot_use_is_refused_with_the_way_out() {
    let folder = Folder::new("refused");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = image("base", "raw");
        change(&mut bytes);
        bytes
    };
    let number = |at: usize, value: u32| {
        with(&|bytes| bytes[at..at + 4].copy_from_slice(&value.to_be_bytes()))
    };
    for (bytes, backing, parts) in [
        (image("base", "raw"), false, ["file base", ",backing"]),
        (image("base", ""), true, ["qemu-img rebase", "base"]),
        (image("base", "vmdk"), true, ["qemu-img convert", "vmdk"]),
        (image("base", "raw"), true, ["/base", "must exist"]),
        (image("json:{}", "raw"), true, ["/json:{}", "must exist"]),
        (number(0, 0), true, ["does not begin", "check"]),
        (number(4, 1), true, ["version", "check"]),
        (number(20, 8), true, ["clusters", "check"]),
        (number(20, 22), true, ["clusters", "check"]),
        (number(100, 71), true, ["does not fit", "check"]),
        (number(100, u32::MAX), true, ["does not fit", "check"]),
        (number(108, 1000), true, ["extensions", "check"]),
        (number(108, u32::MAX), true, ["extensions", "check"]),
        (number(124, 1000), true, ["extensions", "check"]),
        (number(8, 1), true, ["does not fit", "check"]),
        (number(12, 65536), true, ["does not fit", "check"]),
        (number(16, 1000), true, ["no name", "check"]),
        (
            with(&|bytes| bytes[NAME_AT + 1] = 0),
            true,
            ["no name", "check"],
        ),
        (number(32, 1), true, ["is encrypted", "convert"]),
        (number(76, 4), true, ["another file", "convert"]),
        (b"QFI".to_vec(), true, ["does not begin", "check"]),
        (MAGIC.to_vec(), true, ["version", "check"]),
    ] {
        let path = folder.write("image", &bytes);
        let error = files(&path, false, backing).unwrap_err();
        let text = crate::image_opener::chain(&error);
        for part in parts {
            assert!(text.contains(part), "{parts:?}: {text}");
        }
    }
    let text = files(Path::new("/dev/null"), true, false)
        .unwrap_err()
        .to_string();
    assert!(text.contains("not a regular file"), "{text}");
}

#[test]
fn a_backing_file_is_beside_the_name_of_an_image_even_if_that_is_a_link() {
    let folder = Folder::new("link");
    let inside = folder.0.join("inside");
    fs::create_dir(&inside).unwrap();
    let real = folder.write("inside/image", &image("base", "raw"));
    folder.write("inside/base", b"another");
    let base = folder.write("base", b"the one");
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let found = files(&link, true, true).unwrap();
    assert_eq!([&found[0].path, &found[1].path], [&real, &base]);
}

#[test]
fn an_image_that_is_its_own_backing_file_ends() {
    let folder = Folder::new("circle");
    let path = folder.write("image", &image("image", "qcow2"));
    let text = files(&path, false, true).unwrap_err().to_string();
    assert!(text.contains("more than 16 backing files"), "{text}");
}
