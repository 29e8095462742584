//! Work on the terminal while this process may be in its background.

use rustix::process::Signal;
use vmm_sys_util::signal::{block_signal, unblock_signal};

/// Runs `work`, which may write to the terminal or set its modes although another program has the
/// terminal's foreground. Otherwise the Linux kernel sends SIGTTOU for that, which stops a process
/// in the middle of its end.
pub fn unstopped<T>(work: impl FnOnce() -> T) -> T {
    let signal = Signal::TTOU.as_raw();
    // Refused if the signal is blocked already, which then is not ours to unblock.
    let is_blocked = block_signal(signal).is_ok();
    let done = work();
    if is_blocked && let Err(e) = unblock_signal(signal) {
        log::debug!("cannot unblock SIGTTOU: {e}");
    }
    done
}
