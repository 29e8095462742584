//! Objects of the session, by their handles.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use causeway_protocol::message::{HandleRequest, Operation};

use crate::device::Device;
use crate::error::Refusal;

/// An object of the session, which the operation `End` destroys. Dropping this value destroys the
/// object as well.
#[derive(Debug)]
pub(crate) struct Object<'d, End: Operation<Request = HandleRequest>> {
    pub device: &'d Device<'d>,
    pub handle: u32,
    end: PhantomData<End>,
}

impl<'d, End: Operation<Request = HandleRequest>> Object<'d, End> {
    /// Returns the object of the session that has the handle `handle`.
    pub const fn new(device: &'d Device<'d>, handle: u32) -> Self {
        Self {
            device,
            handle,
            end: PhantomData,
        }
    }

    /// Destroys the object. One exit.
    pub fn end(self) -> Result<(), Refusal> {
        ManuallyDrop::new(self).send_end()
    }

    fn send_end(&self) -> Result<(), Refusal> {
        let request = HandleRequest {
            handle: self.handle,
            reserved: 0,
        };
        self.device.call::<End>(&request).map(drop)
    }
}

impl<End: Operation<Request = HandleRequest>> Drop for Object<'_, End> {
    fn drop(&mut self) {
        // The session or the address space may have been lost or reset, and the object with it.
        let _ = self.send_end();
    }
}
