//! Takes the device from the sessions when the host wants it back, or when it was reset.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, Builder, JoinHandle};

use causeway_host_vfio::{DeviceEvent, Watch};
use causeway_mediator::backend::Fault;
use causeway_protocol::message::Status;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::backend::Shared;
use crate::pool::End;

/// Time without a further event after which a reset is over. A reset by a shell, through sysfs'
/// `reset`, causes an event before the reset and one after it.
const SETTLING: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The thread that waits for events of the device. Dropping this value ends the thread.
pub(crate) struct Watcher {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts a thread that waits for events from `watch`. When the device is reset, fails or is
    /// wanted back by the host, the thread takes the device away from all sessions.
    ///
    /// # Errors
    /// The Linux kernel's error, if it cannot create an eventfd or a thread.
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
            log::error!(
                "cannot stop the thread that waits for events of the PCI device of --gpu vfio, so \
                 it runs until this process ends: {e}"
            );
            return;
        }
        // A session that loses the device may drop the last owner of the back end. Then this runs
        // on the thread itself, which cannot wait for its own end.
        let own = thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
            && thread.join().is_err()
        {
            log::error!(
                "the thread that waits for events of the PCI device of --gpu vfio panicked, so \
                 resets of the device may have gone unnoticed; this is a bug in Causeway"
            );
        }
    }
}

/// Waits for events until `stop` is set or the device was given back.
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
                log::error!(
                    "cannot wait for events of device {address}, so its resets and the host's \
                     requests to return it go unnoticed from now on: {e}",
                    address = shared.address
                );
                shared.pool.resume();
                return;
            }
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        for event in watch.take() {
            if event == DeviceEvent::AskedBack {
                // The watch keeps the device open, too.
                drop(watch);
                give_back(shared);
                return;
            }
            restart(shared, event, settling);
            settling = true;
        }
    }
}

/// Takes the device from all sessions for good. It goes back to the host when nothing uses it and
/// all memory was scrubbed.
fn give_back(shared: &Shared) {
    let address = shared.address;
    log::warn!(
        "device {address} goes back to the host, because {event}: all guests lose it now",
        event = DeviceEvent::AskedBack
    );
    shared.pool.end(End::AllBack);
    lose(shared, DeviceEvent::AskedBack, "it does not come back");
    drop(shared.bar.lock().take());
    let taken_bytes = shared.pool.taken_bytes();
    if taken_bytes != 0 {
        log::info!(
            "device {address} goes back later: guests' work on {taken_bytes} bytes of it is still \
             under way"
        );
    }
}

/// Takes all memory from all sessions after a reset or an error. A session that was reset gets
/// memory again when it was scrubbed and no further event comes.
fn restart(shared: &Shared, event: DeviceEvent, again: bool) {
    let level = match again {
        true => log::Level::Debug,
        false => log::Level::Warn,
    };
    log::log!(
        level,
        "device {}: {event}: its memory may have lost its content, so all guests lose the device; \
         a guest that resets its session can go on",
        shared.address
    );
    shared.pool.pause();
    // After the first event, the pool is paused, so no session has a partition that the second
    // event could take.
    if !again {
        lose(shared, event, "reset the session to go on");
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

/// Takes the device from all sessions, which get a fault with the event and the way out.
fn lose(shared: &Shared, event: DeviceEvent, way_out: &str) {
    if let Some(lost) = shared.loss.get() {
        let text = format!("device {}: {event}; {way_out}", shared.address);
        lost(&Fault::new(Status::DeviceLost, text));
    }
}
