//! What others do to a device that is held: want it back, or reset it.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::inotify;

use crate::Address;
use crate::hardware::{Description, Hardware};
use crate::interrupts::{Action, InterruptKind};

/// Something that happened to an open device, but was not caused by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The host wants the device back: it is being unbound or removed, which waits until the device
    /// is closed. The event is repeated until then.
    AskedBack,
    /// The device was reset through sysfs. Its registers have lost their contents, and its memory
    /// may have.
    Reset,
    /// The device reported an error that it does not recover from by itself.
    Error,
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AskedBack => "the host wants it back",
            Self::Reset => "it was reset through sysfs",
            Self::Error => "it reported an uncorrectable error",
        })
    }
}

/// Why the events of a device cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch device {address} for resets and errors: {what} failed")]
pub struct WatchError {
    /// PCI address of the device.
    pub address: Address,
    /// What failed while the watch was set up, for example the name of a system call.
    pub what: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

/// A source of [`DeviceEvent`]s of one device. Its file descriptor is readable while [`Self::take`]
/// would return events. A watch does not keep the device open.
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
    sources: Vec<(DeviceEvent, OwnedFd)>,
}

impl Watch {
    pub(crate) fn new(
        address: Address,
        hardware: &dyn Hardware,
        description: &Description,
    ) -> Result<Self, WatchError> {
        let fail = |what| {
            move |source: rustix::io::Errno| WatchError {
                address,
                what,
                source: source.into(),
            }
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail("epoll_create"))?;
        let mut watch = Self {
            epoll,
            sources: Vec::new(),
        };
        for (event, kind) in NOTIFICATIONS {
            let mut known = description.interrupts.iter();
            if known.any(|info| info.kind == kind && info.count != 0) {
                let source = notification(hardware, kind).map_err(|source| WatchError {
                    address,
                    what: "setting up a notification",
                    source,
                })?;
                watch.add(event, source).map_err(fail("epoll_ctl"))?;
            }
        }
        if let Some(path) = &description.reset_attribute {
            let stores = stores_of(path).map_err(fail("watching sysfs"))?;
            watch
                .add(DeviceEvent::Reset, stores)
                .map_err(fail("epoll_ctl"))?;
        }
        Ok(watch)
    }

    /// Returns the kinds of events that have happened since the last call. Does not wait.
    pub fn take(&self) -> Vec<DeviceEvent> {
        let mut happened = Vec::new();
        for (event, source) in &self.sources {
            let some = match event {
                DeviceEvent::AskedBack | DeviceEvent::Error => drain_notification(source),
                DeviceEvent::Reset => drain_stores(source),
            };
            if some {
                happened.push(*event);
            }
        }
        happened
    }

    fn add(&mut self, event: DeviceEvent, source: OwnedFd) -> rustix::io::Result<()> {
        let data = epoll::EventData::new_u64(self.sources.len() as u64);
        epoll::add(&self.epoll, &source, data, epoll::EventFlags::IN)?;
        self.sources.push((event, source));
        Ok(())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

const NOTIFICATIONS: [(DeviceEvent, InterruptKind); 2] = [
    (DeviceEvent::AskedBack, InterruptKind::Request),
    (DeviceEvent::Error, InterruptKind::Error),
];

/// Returns an event that the kernel signals.
fn notification(hardware: &dyn Hardware, kind: InterruptKind) -> io::Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    hardware.set_interrupts(kind, Action::Signal(&[Some(event.as_fd())]))?;
    Ok(event)
}

/// Tells of stores to a file of sysfs: the kernel tells of what user space writes there, when it
/// was carried out.
fn stores_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let stores = inotify::init(flags)?;
    inotify::add_watch(&stores, path, inotify::WatchFlags::MODIFY)?;
    Ok(stores)
}

/// Returns whether it was signalled.
fn drain_notification(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// Returns whether there were any.
fn drain_stores(stores: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut reader = inotify::Reader::new(stores, &mut buffer);
    let mut some = false;
    while let Ok(event) = reader.next() {
        some |= event.events().contains(inotify::ReadFlags::MODIFY);
    }
    some
}
