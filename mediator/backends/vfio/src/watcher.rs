//! What becomes of the sessions when others want the device, or reset it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};

use causeway_host_vfio::{DeviceEvent, Watch};
use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::backend::Shared;

/// How long there must be no further event until a reset is over: who opens sysfs' `reset` by a
/// shell is heard before, and after.
const SETTLING: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The thread that watches, until dropped.
pub(crate) struct Watcher {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts it.
    pub fn start(watch: Watch, shared: Arc<Shared>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let own = stop.try_clone()?;
        let thread = Builder::new().name("vfio-watch".to_owned());
        Ok(Self {
            thread: Some(thread.spawn(move || run(watch, &own, &shared))?),
            stop,
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Err(e) = rustix::io::write(&self.stop, &1_u64.to_ne_bytes()) {
            log::error!("cannot stop the thread that watches a device: {e}");
            return;
        }
        // A session that is told of a loss may drop the last owner of the back end: then this is
        // the thread itself, which ends next, and cannot wait for that.
        let own = thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
            && thread.join().is_err()
        {
            log::error!("the thread that watches a device panicked");
        }
    }
}

/// Waits for what happens, until told to stop, or the device was given back.
fn run(watch: Watch, stop: &OwnedFd, shared: &Shared) {
    let mut settling = false;
    loop {
        let mut polled = [
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, settling.then_some(&SETTLING)) {
            Ok(0) => {
                settling = false;
                shared.pool.resume();
                continue;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => {
                log::error!("device {} is not watched any more: {e}", shared.address);
                shared.pool.resume();
                return;
            }
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        for event in watch.take() {
            if event == DeviceEvent::AskedBack {
                // It holds on to the device as well.
                drop(watch);
                give_back(shared);
                return;
            }
            restart(shared, event, settling);
            settling = true;
        }
    }
}

/// Takes the device from all sessions for good, and lets go of it once nothing of it is used and
/// all was scrubbed.
fn give_back(shared: &Shared) {
    let address = shared.address;
    log::warn!(
        "device {address} is given back, because {}: all guests lose it now",
        DeviceEvent::AskedBack
    );
    shared.pool.end();
    shared.lose(&lost(
        shared,
        DeviceEvent::AskedBack,
        "it does not come back",
    ));
    drop(shared.take_bar());
    let taken_bytes = shared.pool.taken_bytes();
    if taken_bytes != 0 {
        log::info!("device {address}: work on {taken_bytes} bytes is under way still");
    }
}

/// Takes all memory from all sessions after a reset or an error. The sessions can be reset, and get
/// memory again once it was scrubbed and no further event comes.
fn restart(shared: &Shared, event: DeviceEvent, again: bool) {
    let level = match again {
        true => log::Level::Debug,
        false => log::Level::Warn,
    };
    log::log!(
        level,
        "device {}: {event}: its memory may have lost its contents, so all guests lose the device; a guest that resets its session can go on",
        shared.address
    );
    shared.pool.pause();
    // A session that was reset since the first event has no partition yet, and loses nothing by the
    // second.
    if !again {
        shared.lose(&lost(shared, event, "reset the session to go on"));
    }
    let Some(bar) = shared.bar() else { return };
    let device = bar.device();
    if event == DeviceEvent::Error
        && let Err(e) = device.reset()
    {
        log::warn!("{e}");
    }
    if let Err(e) = device.set_bus_mastering(false) {
        log::warn!("{e}");
    }
}

/// Returns the fault that guests are told of.
fn lost(shared: &Shared, event: DeviceEvent, way_out: &str) -> Fault {
    Fault::new(
        Status::DeviceLost,
        format!("device {}: {event}; {way_out}", shared.address),
    )
}
