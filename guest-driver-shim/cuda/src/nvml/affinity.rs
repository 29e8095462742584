//! Processors and memory nodes near a device (NVML API Reference, "CPU and Memory Affinity").
//!
//! How the host places the device is not told, so that all of them are as near.

use std::fs;

use crate::boundary::Out;

use super::code::{Answer, Code};
use super::handle::{Handle, device_call};
use super::library::call;

/// Number of the last scope, that of a socket. The other is a node.
const LAST_SCOPE: u32 = 1;
/// The kernel's lists of what is online, such as `0-3,8`.
const PROCESSORS: &str = "/sys/devices/system/cpu/online";
const NODES: &str = "/sys/devices/system/node/online";

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCpuAffinity(device: Handle, words: u32, set: Out<u64>) -> u32 {
    device_call(device, |_| put(PROCESSORS, words, set))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCpuAffinityWithinScope(
    device: Handle,
    words: u32,
    set: Out<u64>,
    scope: u32,
) -> u32 {
    device_call(device, |_| put_in(scope, PROCESSORS, words, set))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: Handle,
    words: u32,
    set: Out<u64>,
    scope: u32,
) -> u32 {
    device_call(device, |_| put_in(scope, NODES, words, set))
}

/// Gives all devices if the processor is online. Without a place for them, it gives their number.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetTopologyGpuSet(
    processor: u32,
    count: Out<u32>,
    into: Out<Handle>,
) -> u32 {
    call(|devices| {
        let is_online = online(PROCESSORS).contains(&processor);
        let near = if is_online { devices } else { &[] };
        if !into.is_null() {
            for (index, device) in near.iter().take(count.get()? as usize).enumerate() {
                into.set_at(index, Handle::of(device))?;
            }
        }
        Ok(count.set(near.len() as u32)?)
    })
}

fn put_in(scope: u32, list: &str, words: u32, set: Out<u64>) -> Answer {
    if scope > LAST_SCOPE {
        return Err(Code::INVALID_ARGUMENT);
    }
    put(list, words, set)
}

/// Puts the bits of all numbers of a list of the kernel's that the caller has room for.
fn put(list: &str, words: u32, set: Out<u64>) -> Answer {
    if words == 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let numbers = online(list);
    for word in 0..words {
        let in_word = numbers.iter().filter(|number| *number / 64 == word);
        let bits = in_word.fold(0, |bits, number| bits | 1u64 << (number % 64));
        set.set_at(word as usize, bits)?;
    }
    Ok(())
}

/// Returns the numbers of a list of the kernel's. A kernel without NUMA has no list of nodes, and
/// one node.
fn online(list: &str) -> Vec<u32> {
    let text = fs::read_to_string(list).unwrap_or_default();
    match numbers(&text) {
        none if none.is_empty() => vec![0],
        numbers => numbers,
    }
}

fn numbers(list: &str) -> Vec<u32> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_ranges_and_numbers() {
        assert_eq!(numbers("0-3,8,62-65\n"), [0, 1, 2, 3, 8, 62, 63, 64, 65]);
        assert_eq!(numbers("0\n"), [0]);
        assert_eq!(numbers("\n"), [0; 0]);
    }
}
