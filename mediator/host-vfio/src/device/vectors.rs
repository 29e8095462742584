//! Interrupts of a device: one kind at a time.

use std::os::fd::{AsRawFd, BorrowedFd};

use vmm_sys_util::eventfd::EventFd;

use crate::device::Device;
use crate::interrupts::{Action, InterruptError, InterruptInfo, InterruptKind};
use crate::statistics::Counters;

impl Device {
    /// Returns the number and the properties of the device's interrupts of kind `kind`. If the
    /// device has none, their number ([`InterruptInfo::count`]) is 0.
    pub fn interrupts(&self, kind: InterruptKind) -> InterruptInfo {
        let mut all = self.description.interrupts.iter();
        let found = all.find(|info| info.kind == kind);
        found.copied().unwrap_or(InterruptInfo::none(kind))
    }

    /// Sets up the interrupt pin (INTx) of the device in place of the interrupts set up before:
    /// when the device asserts the pin, the kernel masks the pin and signals the event `trigger`.
    /// When `unmask` is signalled, the kernel unmasks the pin again. For a guest, `unmask` is the
    /// resampling event of KVM's irqfd.
    ///
    /// # Errors
    /// [`InterruptError`] if the device has no interrupt pin or the kernel refuses. The pin stays
    /// disabled then.
    pub fn set_intx(
        &self,
        trigger: &EventFd,
        unmask: Option<&EventFd>,
    ) -> Result<(), InterruptError> {
        const KIND: InterruptKind = InterruptKind::Intx;
        self.check_vectors(KIND, 1)?;
        let mut enabled = self.enabled.lock();
        self.disable(&mut enabled)?;
        self.act(KIND, Action::Signal(&[Some(lend(trigger))]), "set up")?;
        *enabled = Some(KIND);
        if let Some(unmask) = unmask {
            let result = self.act(KIND, Action::UnmaskOn(lend(unmask)), "let an event unmask");
            if let Err(e) = result {
                self.disable(&mut enabled)?;
                return Err(e);
            }
        }
        Counters::add(&self.counters.vectors, 1);
        Ok(())
    }

    /// Sets up the first `events.len()` vectors of kind `kind` (MSI or MSI-X), in place of the
    /// interrupts set up before. Vector `i` signals `events[i]`; its interrupts are discarded if
    /// that is `None`. If `events` is empty, all interrupts are disabled.
    ///
    /// # Errors
    /// [`InterruptError`] if `kind` is another kind, if the device has fewer vectors of it, or if
    /// the kernel refuses. If the kernel refuses, all interrupts are disabled.
    pub fn set_vectors(
        &self,
        kind: InterruptKind,
        events: &[Option<&EventFd>],
    ) -> Result<(), InterruptError> {
        if !matches!(kind, InterruptKind::Msi | InterruptKind::Msix) {
            let address = self.address;
            return Err(InterruptError::NotMessages { address, kind });
        }
        self.check_vectors(kind, events.len() as u64)?;
        let mut enabled = self.enabled.lock();
        self.disable(&mut enabled)?;
        if events.is_empty() {
            return Ok(());
        }
        let lent: Vec<_> = events.iter().map(|event| event.map(lend)).collect();
        self.act(kind, Action::Signal(&lent), "set up")?;
        *enabled = Some(kind);
        let signalled = events.iter().flatten().count();
        Counters::add(&self.counters.vectors, signalled as u64);
        Ok(())
    }

    /// Disables the interrupts that [`Self::set_intx`] or [`Self::set_vectors`] set up. Has no
    /// effect on the events of [`Self::watch`].
    ///
    /// # Errors
    /// [`InterruptError`] if the kernel refuses.
    pub fn disable_interrupts(&self) -> Result<(), InterruptError> {
        self.disable(&mut self.enabled.lock())
    }

    fn disable(&self, enabled: &mut Option<InterruptKind>) -> Result<(), InterruptError> {
        if let Some(kind) = *enabled {
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
