//! Tests a guest's disks and random numbers: its arguments are orders, which are carried out one
//! after the other.
//!
//! | order | what it does |
//! |---|---|
//! | `write DEVICE SEED` | fills a disk with the pattern of a seed, and flushes it |
//! | `read DEVICE SEED` | checks that a disk has that pattern, without the page cache |
//! | `refuse DEVICE` | checks that a disk refuses to be written |
//! | `trim DEVICE` | discards all space of a disk, and checks that it reads as zero |
//! | `random` | checks that the machine's random numbers differ |
//! | `hold DEVICE` | opens a disk, prints a line, and waits until it is killed |
#![allow(unsafe_code)] // Discarding is an ioctl.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// Bytes of a pattern that are computed at a time.
const PIECE_BYTES: usize = 1 << 20;
/// `BLKDISCARD` of linux/fs.h: `_IO(0x12, 119)`.
const DISCARD: libc::c_ulong = 0x1277;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    while let Some(order) = words.next() {
        if let Err(e) = obey(&order, &mut words) {
            println!("disk: {order}: {e}");
            return ExitCode::FAILURE;
        }
        println!("disk: {order}: done");
    }
    ExitCode::SUCCESS
}

fn obey(order: &str, words: &mut impl Iterator<Item = String>) -> io::Result<()> {
    if order == "random" {
        return random();
    }
    let mut word = |what| {
        words
            .next()
            .ok_or_else(|| io::Error::other(format!("give a {what}")))
    };
    let device = word("device")?;
    match order {
        "write" => write(&device, seed(&word("seed")?)?),
        "read" => read(&device, seed(&word("seed")?)?),
        "refuse" => refuse(&device),
        "trim" => trim(&device),
        "hold" => hold(&device),
        _ => Err(io::Error::other("there is no such order")),
    }
}

fn seed(text: &str) -> io::Result<u64> {
    text.parse().map_err(io::Error::other)
}

fn write(device: &str, seed: u64) -> io::Result<()> {
    let mut disk = OpenOptions::new().write(true).open(device)?;
    for (at, bytes) in pieces(device)? {
        disk.write_all(&pattern(seed, at, bytes))?;
    }
    disk.sync_all()
}

fn read(device: &str, seed: u64) -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let mut disk = File::open(device)?;
    for (at, bytes) in pieces(device)? {
        let mut found = vec![0; bytes];
        disk.read_exact(&mut found)?;
        if found != pattern(seed, at, bytes) {
            return Err(io::Error::other(format!(
                "wrong content within 1 MiB from {at:#x}"
            )));
        }
    }
    Ok(())
}

fn refuse(device: &str) -> io::Result<()> {
    let name = device.rsplit('/').next().unwrap_or(device);
    let read_only = fs::read_to_string(format!("/sys/block/{name}/ro"))?;
    if read_only.trim() != "1" {
        return Err(io::Error::other(
            "the Linux kernel treats it as a disk that can be written",
        ));
    }
    let written = OpenOptions::new()
        .write(true)
        .open(device)
        .and_then(|mut disk| disk.write_all(&[7; 512]).and_then(|()| disk.sync_all()));
    match written {
        Err(_) => Ok(()),
        Ok(()) => Err(io::Error::other("it was written")),
    }
}

fn trim(device: &str) -> io::Result<()> {
    let mut disk = OpenOptions::new().read(true).write(true).open(device)?;
    let range = [0, disk.seek(SeekFrom::End(0))?];
    // SAFETY: the range outlives the call, which reads it; the descriptor is open.
    if unsafe { libc::ioctl(disk.as_raw_fd(), DISCARD, range.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    disk.rewind()?;
    for (at, bytes) in pieces(device)? {
        let mut found = vec![1; bytes];
        disk.read_exact(&mut found)?;
        if found.iter().any(|byte| *byte != 0) {
            return Err(io::Error::other(format!(
                "not zero within 1 MiB from {at:#x}"
            )));
        }
    }
    Ok(())
}

fn random() -> io::Result<()> {
    let mut source = File::open("/dev/hwrng")?;
    let mut numbers = [[0; 32]; 2];
    for number in &mut numbers {
        source.read_exact(number)?;
    }
    let name = fs::read_to_string("/sys/class/misc/hw_random/rng_current")?;
    println!("disk: random numbers come from {}", name.trim());
    if numbers[0] == numbers[1] || numbers[0] == [0; 32] {
        return Err(io::Error::other("they are not random"));
    }
    Ok(())
}

fn hold(device: &str) -> io::Result<()> {
    let _disk = File::open(device)?;
    println!("disk: {device} is held");
    loop {
        std::thread::park();
    }
}

/// Returns the offsets and lengths of the pieces of a disk.
fn pieces(device: &str) -> io::Result<Vec<(u64, usize)>> {
    let end = File::open(device)?.seek(SeekFrom::End(0))?;
    let piece = |at: u64| (at, (end - at).min(PIECE_BYTES as u64) as usize);
    Ok((0..end).step_by(PIECE_BYTES).map(piece).collect())
}

/// Returns `bytes` bytes of the pattern from offset `at`. Each byte depends on the seed and its
/// offset.
fn pattern(seed: u64, at: u64, bytes: usize) -> Vec<u8> {
    let byte = |place: u64| ((place + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (at..at + bytes as u64).map(byte).collect()
}
