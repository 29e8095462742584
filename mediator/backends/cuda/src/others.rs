//! The other GPUs of the run, of whose memory only copies of this one reach something.
//!
//! Such memory is mapped for its own GPU, in a context there. So kernels of this GPU fault where it
//! is, and the driver copies from and to it through memory of the host.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use causeway_mediator::backend::BackendError;
use causeway_protocol::message::Status;
use parking_lot::Mutex;

use crate::driver::{Context, Device, Driver};
use crate::error::{failed, refused};

/// Contexts on other GPUs of the run, by the numbers of the GPUs in it.
pub(crate) struct Others {
    /// Numbers counted by PCI address.
    devices: Vec<u32>,
    /// Each exists as long as memory is imported that needs it: it takes some hundred MiB of its
    /// GPU, which no quota counts. A leaf lock.
    contexts: Mutex<BTreeMap<u32, Weak<Context>>>,
}

impl Others {
    /// Returns the GPUs with the numbers `devices` counted by PCI address, without contexts.
    pub(crate) fn new(devices: Vec<u32>) -> Self {
        Self {
            devices,
            contexts: Mutex::default(),
        }
    }

    /// Returns the context on GPU number `gpu` of the run, and creates it if there is none.
    ///
    /// # Errors
    /// `BadMemory` if the run has no such GPU; the status of the driver's error if it cannot create
    /// a context there.
    pub(crate) fn context(&self, gpu: u32) -> Result<Arc<Context>, BackendError> {
        if let Some(context) = self.existing(gpu) {
            return Ok(context);
        }
        let what = || format!("create a context on GPU {gpu} of the run, for copies of its memory");
        let device = self.devices.get(gpu as usize);
        let device = *device.ok_or_else(|| refused(Status::BadMemory, what()))?;
        let driver = Driver::get().map_err(|e| refused(Status::BackEnd, what()).because(e))?;
        // Without the lock: it takes some hundred milliseconds. Several are one to the driver.
        let created = Device::get(driver, device).and_then(Context::primary);
        let created = created.map_err(|e| failed(what(), e))?;
        let mut contexts = self.contexts.lock();
        // Another thread may have been faster. All imports hold the same one, so that it is found
        // for as long as any needs it.
        if let Some(context) = contexts.get(&gpu).and_then(Weak::upgrade) {
            return Ok(context);
        }
        contexts.insert(gpu, Arc::downgrade(&created));
        Ok(created)
    }

    /// Returns the context on GPU number `gpu` of the run; `None` if no memory needs one.
    pub(crate) fn existing(&self, gpu: u32) -> Option<Arc<Context>> {
        self.contexts.lock().get(&gpu)?.upgrade()
    }
}
