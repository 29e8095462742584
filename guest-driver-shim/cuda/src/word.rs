//! Words of memory that streams store and wait for.

use std::ptr::NonNull;

use causeway_shim_linux::shim::Window;

use crate::driver::Driver;
use crate::error::{Answer, Code};

/// A word that the device reaches.
pub(crate) struct Word {
    /// The device's address.
    pub(crate) address: u64,
    /// The same word for the process, if it sees it.
    pub(crate) window: Option<Window>,
}

/// Returns the word of `bytes` bytes at an address that programs use.
pub(crate) fn find(driver: &Driver, address: u64, bytes: u64) -> Answer<Word> {
    let regions = driver.memory.regions.lock();
    let (start, region) = regions.find(address).ok_or(Code::INVALID_VALUE)?;
    let inside = address - start;
    let gpu = region.gpu.filter(|_| regions.covers(address, bytes));
    let host = region.host.map(|host| host + inside);
    let window = host.and_then(|host| NonNull::new(host as *mut u8));
    // SAFETY: the region is mapped for the process, as long as the program does not free it. A
    // program frees memory only when the work on it is done, as the API asks.
    let window = window.map(|base| unsafe { Window::new(base, bytes as usize) });
    Ok(Word {
        address: gpu.ok_or(Code::INVALID_VALUE)? + inside,
        window,
    })
}
