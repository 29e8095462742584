//! Writes and checks files of a shared folder, each pass as a phase of the data path, by these
//! orders.
//!
//! | order | what it does |
//! |---|---|
//! | `write DIR COUNT SEED` | makes COUNT files of up to 600 bytes, with the pattern of a seed |
//! | `check DIR COUNT SEED` | checks that the folder has exactly these files, byte for byte |
//! | `send FILE MIB SEED` | writes one large file, and has it synced |
//! | `fetch FILE MIB SEED` | checks that file, without the page cache |
//! | `refuse DIR` | checks that no file can be made in the folder |
//! | `hold DIR` | makes a synced file after the other, and prints its number, until it is killed |

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_linux_programs::orders::{Marks, carry_out, number, pattern, unknown};

/// Longest small file in bytes.
const FILE_BYTES_MAX: u64 = 600;
const PIECE_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    carry_out("files", obey)
}

/// Carries out an order, and returns how many words belong to it.
fn obey(order: &str, words: &[String], marks: Marks) -> io::Result<usize> {
    match (order, words) {
        ("refuse", [folder, ..]) => refuse(Path::new(folder)).map(|()| 1),
        ("hold", [folder, ..]) => hold(Path::new(folder)).map(|()| 1),
        (_, [path, count, seed, ..]) => {
            let (path, count, seed) = (Path::new(path), number(count)?, number(seed)?);
            let work = match order {
                "write" => write,
                "check" => check,
                "send" => send,
                "fetch" => fetch,
                _ => return Err(unknown()),
            };
            marks(order, count, &mut || work(path, count, seed)).map(|()| 3)
        }
        _ => Err(unknown()),
    }
}

fn file_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{number}"))
}

/// Returns the content of a file. Its length depends on the number, too.
fn content(number: u64, seed: u64) -> Vec<u8> {
    let bytes = (number.wrapping_mul(37) + seed) % (FILE_BYTES_MAX + 1);
    pattern(seed.wrapping_add(number << 20), bytes as usize)
}

fn write(folder: &Path, count: u64, seed: u64) -> io::Result<()> {
    (0..count).try_for_each(|number| fs::write(file_of(folder, number), content(number, seed)))
}

fn check(folder: &Path, count: u64, seed: u64) -> io::Result<()> {
    let found = fs::read_dir(folder)?.count() as u64;
    if found != count {
        return Err(io::Error::other(format!(
            "{found} files instead of {count}"
        )));
    }
    for number in 0..count {
        if fs::read(file_of(folder, number))? != content(number, seed) {
            let text = format!("file {number} has another content");
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

fn piece(seed: u64, number: u64) -> Vec<u8> {
    pattern(seed.wrapping_add(number << 32), PIECE_BYTES)
}

fn send(path: &Path, pieces: u64, seed: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    (0..pieces).try_for_each(|number| file.write_all(&piece(seed, number)))?;
    file.sync_all()
}

fn fetch(path: &Path, pieces: u64, seed: u64) -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mut file = File::open(path)?;
    let mut found = vec![0; PIECE_BYTES];
    for number in 0..pieces {
        file.read_exact(&mut found)?;
        if found != piece(seed, number) {
            let text = format!("wrong content within 1 MiB from MiB {number}");
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

fn refuse(folder: &Path) -> io::Result<()> {
    match File::create(file_of(folder, 0)) {
        Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::other("a file can be made")),
    }
}

fn hold(folder: &Path) -> io::Result<()> {
    for number in 0.. {
        let mut file = File::create(file_of(folder, number))?;
        file.write_all(&content(number, 0))?;
        file.sync_all()?;
        println!("files: synced {number}");
    }
    Ok(())
}
