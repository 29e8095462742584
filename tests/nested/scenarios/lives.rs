//! Linux guests come and go, well or not, and nothing is left of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use causeway_nested::{Command, FIRST_WORD};

use crate::leftovers::{after_a_first, assert_nothing_left, kill_after};
use crate::machines::{CAUSEWAY, FIRST_WORD_INITRAMFS, KERNEL, machine};

/// How many in a row, unless `CAUSEWAY_NESTED_LIVES` says otherwise: few, because each takes some
/// ten seconds.
const LIVES: u32 = 2;
/// About the time that a boot takes in the emulated machine, in milliseconds.
const BOOT_MS: u64 = 4000;
const GUEST: [&str; 4] = ["--kernel", KERNEL, "--initramfs", FIRST_WORD_INITRAMFS];

#[test]
fn boots_in_a_row_come_to_their_end_and_leave_nothing() {
    let Some(machine) = machine("boots in a row") else {
        return;
    };
    let words = ["run"].iter().chain(&GUEST).copied();
    let command =
        Command::new(CAUSEWAY, &words.collect::<Vec<_>>()).limit(Duration::from_secs(250));
    let boot = |number| {
        let outcome = machine.run(&command);
        outcome.assert_code(0);
        let said = outcome.stderr.contains(FIRST_WORD);
        assert!(said, "boot {number}: {}", outcome.text());
        println!("boot {} of {} came to its end", number + 1, lives());
    };
    let before = after_a_first(&machine, || boot(0));
    (1..lives()).for_each(boot);
    assert_nothing_left(&machine, &before);
}

#[test]
fn guests_killed_at_random_moments_leave_nothing() {
    let Some(machine) = machine("kills at random moments") else {
        return;
    };
    let before = after_a_first(&machine, || kill_after(&machine, &GUEST, BOOT_MS / 2));
    let mut random = seed();
    for _ in 0..lives() {
        random = next(random);
        let milliseconds = random % BOOT_MS;
        kill_after(&machine, &GUEST, milliseconds);
        let after = assert_nothing_left(&machine, &before);
        let available = after.available_kib;
        println!("killed after {milliseconds} ms: {available} KiB are available");
    }
}

fn lives() -> u32 {
    let wanted = std::env::var("CAUSEWAY_NESTED_LIVES");
    wanted.map_or(LIVES, |text| {
        text.parse().expect("CAUSEWAY_NESTED_LIVES is no number")
    })
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64) | 1
}

/// A step of xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
