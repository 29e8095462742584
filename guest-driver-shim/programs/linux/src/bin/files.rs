//! Writes and checks files of a shared folder, each pass as a phase of the data path: its arguments
//! are orders, which are carried out one after the other. On a host, which has no phases, the first
//! argument is `--host`.
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

use causeway_shim_linux::{Phase, PhasePath, Totals};

/// Longest small file in bytes.
const FILE_BYTES_MAX: u64 = 600;
const PIECE_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut rest, mut marks) = (&words[..], counted as Marks);
    if let [first, behind @ ..] = rest
        && first == "--host"
    {
        (rest, marks) = (behind, uncounted);
    }
    while let [order, behind @ ..] = rest {
        match obey(order, behind, marks) {
            Ok(taken) => rest = &behind[taken..],
            Err(e) => {
                println!("files: {order}: {e}");
                return ExitCode::FAILURE;
            }
        }
        println!("files: {order}: done");
    }
    ExitCode::SUCCESS
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
                _ => return Err(io::Error::other("there is no such order")),
            };
            marks(order, count, &mut || work(path, count, seed)).map(|()| 3)
        }
        _ => Err(io::Error::other(
            "there is no such order, or it has too few words",
        )),
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}

/// How work with a name and a number of operations is marked.
type Marks = fn(&str, u64, &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;

fn uncounted(_: &str, _: u64, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    work()
}

/// Calls `work` in a phase of the data path with `operations` operations.
fn counted(
    name: &str,
    operations: u64,
    work: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    // What was printed before must not be sent by interrupts in the phase.
    io::stdout().flush()?;
    let phase = Phase::begin(PhasePath::Data, name).map_err(io::Error::other)?;
    work()?;
    let totals = Totals {
        operations,
        ..Totals::default()
    };
    phase.end(totals).map_err(io::Error::other)
}

fn file_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{number}"))
}

/// Returns the content of a file. Its length depends on the number, too.
fn content(number: u64, seed: u64) -> Vec<u8> {
    let bytes = (number.wrapping_mul(37) + seed) % (FILE_BYTES_MAX + 1);
    pattern(seed.wrapping_add(number << 20), bytes as usize)
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..bytes as u64).map(byte).collect()
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
