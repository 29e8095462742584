//! Kicks: a signal that makes a virtual CPU's thread leave guest code.
//!
//! A kick is a real-time signal to the thread. If it arrives inside `KVM_RUN`, that returns EINTR.
//! If it arrives just before, when the thread has already looked whether to stop, the handler sets
//! `immediate_exit` in the vCPU's `kvm_run`, so that `KVM_RUN` returns at once
//! (Documentation/virt/kvm/api.rst, 5, `immediate_exit`). No kick is lost.
#![allow(unsafe_code)] // A signal handler, and the pointer that it stores to.

use std::cell::Cell;
use std::io;
use std::os::raw::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use kvm_ioctls::VcpuFd;
use libc::siginfo_t;
use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

thread_local! {
    /// `immediate_exit` of the vCPU that this thread runs, or null. Initialized at compile time and
    /// never dropped, so that a signal handler may read it.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Installs the handler of the signal that [`kick`] sends. Later calls in the same process do
/// nothing.
///
/// # Errors
/// The kernel's error if it refuses the handler.
pub fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    INSTALLED
        .get_or_init(|| register_signal_handler(signal(), on_kick).map_err(|e| e.errno()))
        .map_err(io::Error::from_raw_os_error)
}

/// Sends `thread`, which runs a virtual CPU, a signal that makes it leave guest code. Does nothing
/// if the thread has ended.
pub fn kick<T>(thread: &JoinHandle<T>) {
    if let Err(e) = thread.kill(signal()) {
        log::debug!("cannot kick a thread: {e}");
    }
}

fn signal() -> c_int {
    SIGRTMIN()
}

extern "C" fn on_kick(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let immediate_exit = IMMEDIATE_EXIT.get();
    if !immediate_exit.is_null() {
        // SAFETY: `Kickable` set the pointer on this very thread and clears it before the vCPU can
        // go away.
        unsafe { immediate_exit.write_volatile(1) };
    }
}

/// The virtual CPU that the current thread runs. While this value lives, a [`kick`] of the thread
/// makes the virtual CPU leave guest code.
#[derive(Debug)]
pub struct Kickable {
    vcpu: VcpuFd,
    // The pointer belongs to the thread that stored it.
    not_send: std::marker::PhantomData<*mut u8>,
}

impl Kickable {
    /// Makes each [`kick`] of the current thread stop `vcpu` from now on. Only this thread may run
    /// `vcpu`.
    pub fn new(mut vcpu: VcpuFd) -> Self {
        IMMEDIATE_EXIT.set(&raw mut vcpu.get_kvm_run().immediate_exit);
        Self {
            vcpu,
            not_send: std::marker::PhantomData,
        }
    }

    /// Clears the effect of earlier kicks, so that the virtual CPU can run again. After this call
    /// and before it runs the virtual CPU, the caller checks whether it must stop: a kick before
    /// this call is forgotten.
    pub fn rearm(&mut self) {
        self.vcpu.set_kvm_immediate_exit(0);
    }

    /// Returns the virtual CPU.
    pub fn vcpu(&mut self) -> &mut VcpuFd {
        &mut self.vcpu
    }
}

impl Drop for Kickable {
    fn drop(&mut self) {
        // Before the fields go, hence before `kvm_run` is unmapped.
        IMMEDIATE_EXIT.set(ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_kick_interrupts_a_thread_and_hurts_nobody_without_a_vcpu() {
        install_handler().unwrap();
        install_handler().unwrap();
        let (ready, wait) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            ready.send(()).unwrap();
            // SAFETY: a sleep with valid arguments, to be interrupted.
            unsafe { libc::usleep(60_000_000) }
        });
        wait.recv().unwrap();
        // The thread may not have fallen asleep yet: kick until it has woken.
        while !thread.is_finished() {
            kick(&thread);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(thread.join().unwrap(), -1, "interrupted");
    }
}
