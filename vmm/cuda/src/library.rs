//! The libraries as files, under the names by which programs and linkers look for NVIDIA's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use causeway_embedded_libraries::{ARCHIVES, Archive, LIBRARIES, Library, is_ours};
use causeway_terminal::{Code, Failure, shown_path};

/// Writes the libraries that programs load to a folder.
///
/// # Errors
/// A report failure that names a library that cannot be written.
pub fn write(folder: &Path) -> Result<(), Failure> {
    LIBRARIES.iter().try_for_each(|library| {
        let placed = place(folder, library.name, library.image, library.aliases);
        placed.map_err(|e| unwritable(library.name, folder, e))
    })
}

/// Writes all libraries to a folder, which is created if it does not exist: also those that linkers
/// put into programs. Another driver's or runtime's library is not replaced.
pub fn install(folder: &Path) -> Result<(), Failure> {
    let names = LIBRARIES.iter().flat_map(Library::names).map(PathBuf::from);
    let archives = ARCHIVES.map(|archive| Path::new(archive.folder).join(Archive::NAME));
    let mut names = names.chain(archives);
    if let Some(name) = names.find(|name| is_foreign(&folder.join(name))) {
        return Err(Failure::usage(format!(
            "invalid value {} for --install: {} there is not Causeway's: choose another directory",
            shown_path(folder),
            name.display()
        )));
    }
    create(folder)?;
    write(folder)?;
    ARCHIVES.iter().try_for_each(|archive| {
        let folder = folder.join(archive.folder);
        create(&folder)?;
        place(&folder, Archive::NAME, archive.content, &[])
            .map_err(|e| unwritable(Archive::NAME, &folder, e))
    })
}

fn create(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|e| {
        let message = format!("cannot create the directory {}", shown_path(folder));
        Failure::new(Code::Report, message, e)
    })
}

fn is_foreign(path: &Path) -> bool {
    fs::read(path).is_ok_and(|content| !is_ours(&content))
}

fn unwritable(name: &str, folder: &Path, error: io::Error) -> Failure {
    let message = format!("cannot write {name} to {}", shown_path(folder));
    Failure::new(Code::Report, message, error)
}

/// Replaces what the names stand for in one step each, because a program may have the old library
/// open.
fn place(folder: &Path, name: &str, content: &[u8], aliases: &[&str]) -> io::Result<()> {
    let fresh = folder.join(format!(".{name}.{}", std::process::id()));
    let named = |name: &str| fs::rename(&fresh, folder.join(name));
    let link = |alias: &&str| std::os::unix::fs::symlink(name, &fresh).and_then(|()| named(alias));
    fs::write(&fresh, content)
        .and_then(|()| named(name))
        .and_then(|()| aliases.iter().try_for_each(link))
        .inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_replace_themselves_and_no_others() {
        let name = format!("causeway-library-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("inner");
        for _ in 0..2 {
            install(&folder).unwrap();
            for library in LIBRARIES {
                for name in library.names() {
                    let content = fs::read(folder.join(name)).unwrap();
                    assert!(content == library.image, "{name}");
                }
            }
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 9);
        }
        let others = [
            "libcudart.so",
            "libnvidia-ml.so.1",
            "libcuda.so.1",
            "libcudart_static.a",
            "cuda-12/libcudart_static.a",
        ];
        for name in others {
            fs::remove_file(folder.join(name)).unwrap();
            fs::write(folder.join(name), "another library").unwrap();
            let text = install(&folder).unwrap_err().text();
            assert!(
                text.contains(name) && text.contains("not Causeway's"),
                "{text}"
            );
            let kept = fs::read(folder.join(name)).unwrap();
            assert_eq!(kept, b"another library");
            fs::remove_file(folder.join(name)).unwrap();
        }
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
