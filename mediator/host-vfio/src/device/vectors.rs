//! Interrupts of a device: one kind at a time.

use std::os::fd::{AsRawFd, BorrowedFd};

use vmm_sys_util::eventfd::EventFd;

use crate::device::Device;
use crate::interrupts::{Action, InterruptError, InterruptInfo, InterruptKind};
use crate::statistics::Counters;

/// The kind of interrupts that is enabled, and how many vectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enabled {
    kind: InterruptKind,
    vectors: u32,
}

impl Device {
    /// Returns the number and the properties of the device's interrupts of one kind.
    pub fn interrupts(&self, kind: InterruptKind) -> InterruptInfo {
        let mut all = self.description.interrupts.iter();
        let found = all.find(|info| info.kind == kind);
        found.copied().unwrap_or(InterruptInfo::new(kind, 0, 0))
    }

    /// Makes the device's interrupt pin (INTx) signal `trigger`, and disables its other interrupts.
    /// The kernel masks the pin each time that it signals (if the pin is
    /// [`InterruptInfo::automasked`], as level-triggered pins are) until `unmask` is signalled, as
    /// KVM's irqfd does by its resampling event.
    ///
    /// # Errors
    /// [`InterruptError`]: the device has no pin, or the kernel refuses. The pin is then disabled.
    pub fn set_intx(
        &self,
        trigger: &EventFd,
        unmask: Option<&EventFd>,
    ) -> Result<(), InterruptError> {
        const KIND: InterruptKind = InterruptKind::Intx;
        self.check_vectors(KIND, 1)?;
        let mut enabled = self.enabled.lock();
        self.disable(&mut enabled)?;
        let action = Action::Signal {
            start: 0,
            events: &[Some(lend(trigger))],
        };
        self.act(KIND, action, "set up")?;
        *enabled = Some(Enabled {
            kind: KIND,
            vectors: 1,
        });
        if let Some(unmask) = unmask {
            let result = self.act(KIND, Action::UnmaskOn(lend(unmask)), "resample");
            if let Err(e) = result {
                self.disable(&mut enabled)?;
                return Err(e);
            }
        }
        Counters::add(&self.counters.vectors, 1);
        Ok(())
    }

    /// Masks the device's pin.
    ///
    /// # Errors
    /// [`InterruptError`].
    pub fn mask_intx(&self) -> Result<(), InterruptError> {
        self.act(InterruptKind::Intx, Action::Mask, "mask")
    }

    /// Unmasks the device's pin. If it is asserted still, it is signalled again.
    ///
    /// # Errors
    /// [`InterruptError`].
    pub fn unmask_intx(&self) -> Result<(), InterruptError> {
        self.act(InterruptKind::Intx, Action::Unmask, "unmask")
    }

    /// Sets up the first `events.len()` vectors of kind `kind` (MSI or MSI-X), in place of the
    /// interrupts that were set up before. Each vector signals its event; messages of a vector with
    /// `None` are lost. An empty `events` disables interrupts.
    ///
    /// # Errors
    /// [`InterruptError`]: the device has fewer vectors of this kind, or the kernel refuses. If the
    /// kernel refuses, all interrupts are disabled.
    pub fn set_vectors(
        &self,
        kind: InterruptKind,
        events: &[Option<&EventFd>],
    ) -> Result<(), InterruptError> {
        self.check_messages(kind)?;
        self.check_vectors(kind, events.len() as u64)?;
        let mut enabled = self.enabled.lock();
        self.disable(&mut enabled)?;
        if events.is_empty() {
            return Ok(());
        }
        let lent: Vec<_> = events.iter().map(|event| event.map(lend)).collect();
        let action = Action::Signal {
            start: 0,
            events: &lent,
        };
        self.act(kind, action, "set up")?;
        *enabled = Some(Enabled {
            kind,
            // Checked above.
            vectors: events.len() as u32,
        });
        let signalled = events.iter().flatten().count();
        Counters::add(&self.counters.vectors, signalled as u64);
        Ok(())
    }

    /// Changes the event of one vector, or has it signal none. The others are not disturbed.
    ///
    /// A vector beyond those that [`Self::set_vectors`] has set up is added, where the device's can
    /// be (not [`InterruptInfo::fixed`]).
    ///
    /// # Errors
    /// [`InterruptError`]: [`InterruptError::NotEnabled`] for a vector that cannot be added.
    pub fn set_vector(
        &self,
        kind: InterruptKind,
        vector: u32,
        event: Option<&EventFd>,
    ) -> Result<(), InterruptError> {
        self.check_messages(kind)?;
        self.check_vectors(kind, u64::from(vector) + 1)?;
        let mut enabled = self.enabled.lock();
        let vectors = enabled.filter(|e| e.kind == kind).map_or(0, |e| e.vectors);
        let can_add = vectors != 0 && !self.interrupts(kind).fixed;
        if vector >= vectors && !can_add {
            return Err(InterruptError::NotEnabled {
                address: self.address,
                kind,
                vector,
                enabled: vectors,
            });
        }
        let action = Action::Signal {
            start: vector,
            events: &[event.map(lend)],
        };
        self.act(kind, action, "change")?;
        *enabled = Some(Enabled {
            kind,
            vectors: vectors.max(vector + 1),
        });
        Counters::add(&self.counters.vectors, u64::from(event.is_some()));
        Ok(())
    }

    /// Disables the interrupts that [`Self::set_intx`] or [`Self::set_vectors`] has set up. The
    /// notifications of [`Self::watch`] stay.
    ///
    /// # Errors
    /// [`InterruptError`].
    pub fn disable_interrupts(&self) -> Result<(), InterruptError> {
        self.disable(&mut self.enabled.lock())
    }

    /// Returns the kind of interrupts that is set up, and how many vectors.
    pub fn enabled_interrupts(&self) -> Option<(InterruptKind, u32)> {
        let enabled = *self.enabled.lock();
        enabled.map(|enabled| (enabled.kind, enabled.vectors))
    }

    fn disable(&self, enabled: &mut Option<Enabled>) -> Result<(), InterruptError> {
        if let Some(Enabled { kind, .. }) = *enabled {
            self.act(kind, Action::Disable, "disable")?;
            *enabled = None;
        }
        Ok(())
    }

    fn act(
        &self,
        kind: InterruptKind,
        action: Action<'_>,
        what: &'static str,
    ) -> Result<(), InterruptError> {
        self.hardware
            .set_interrupts(kind, action)
            .map_err(|source| InterruptError::Failed {
                address: self.address,
                kind,
                what,
                source,
            })
    }

    fn check_messages(&self, kind: InterruptKind) -> Result<(), InterruptError> {
        match kind {
            InterruptKind::Msi | InterruptKind::Msix => Ok(()),
            InterruptKind::Intx | InterruptKind::Error | InterruptKind::Request => {
                Err(InterruptError::NotMessages {
                    address: self.address,
                    kind,
                })
            }
        }
    }

    /// Refuses more vectors than there are.
    fn check_vectors(&self, kind: InterruptKind, vectors: u64) -> Result<(), InterruptError> {
        let (address, info) = (self.address, self.interrupts(kind));
        if info.count == 0 || !info.eventfd {
            return Err(InterruptError::Absent { address, kind });
        }
        if vectors > u64::from(info.count) {
            return Err(InterruptError::Vector {
                address,
                kind,
                vector: vectors - 1,
                count: info.count,
            });
        }
        Ok(())
    }
}

#[allow(unsafe_code)] // Lends a descriptor that vmm-sys-util shows as a number.
pub(crate) fn lend(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the event is open for as long as it is lent.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}
