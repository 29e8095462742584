//! Event descriptors on their way to another process and back.
#![allow(unsafe_code)] // The types of vmm-sys-util take and give plain numbers.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use vmm_sys_util::eventfd::EventFd;

/// Returns the descriptor of an event.
pub(crate) fn descriptor(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the event keeps its descriptor open for as long as it is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// Returns the event behind a descriptor that another process sent; `None` if it is not an eventfd.
pub(crate) fn adopt(descriptor: OwnedFd) -> Option<EventFd> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let target = std::fs::read_link(path).ok()?;
    if target.to_str() != Some("anon_inode:[eventfd]") {
        return None;
    }
    // SAFETY: the descriptor is open and an event's, and the event becomes its only owner.
    Some(unsafe { EventFd::from_raw_fd(descriptor.into_raw_fd()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_are_adopted() {
        let event = EventFd::new(0).unwrap();
        let copy = descriptor(&event).try_clone_to_owned().unwrap();
        adopt(copy).unwrap().write(3).unwrap();
        assert_eq!(event.read().unwrap(), 3);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(adopt(reader.into()).is_none());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(adopt(file.into()).is_none());
    }
}
