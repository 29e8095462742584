//! Mailboxes in which the guests of one run leave each other 64 bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_testdev_records::{MAILBOXES, NoMail};
use parking_lot::{Condvar, Mutex};

/// Mailboxes of 64 bytes each, in which the guests of one run leave each other mail. Mail stays in
/// its mailbox, for any number of guests to fetch, until other mail replaces it.
#[derive(Debug, Default)]
pub struct Mailboxes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The mail in each mailbox that has any, by the mailbox's number.
    mail: BTreeMap<u32, [u8; 64]>,
    /// Whether a VM has failed, so that nobody waits any more.
    sender_failed: bool,
}

impl Mailboxes {
    /// Puts `mail` into mailbox number `mailbox`. Returns `None` if no mailbox has this number.
    pub fn post(&self, mailbox: u32, mail: [u8; 64]) -> Option<()> {
        if mailbox as usize >= MAILBOXES {
            return None;
        }
        self.state.lock().mail.insert(mailbox, mail);
        self.changed.notify_all();
        Some(())
    }

    /// Returns a copy of the mail in mailbox number `mailbox`. If the mailbox is empty, this call
    /// waits for mail, until the time `wait` has passed, another VM of the run fails
    /// ([`Self::sender_failed`]), or `stop` is set and [`Self::wake`] is called.
    ///
    /// # Errors
    /// [`NoMail::SenderFailed`] if the mailbox is empty and a VM has failed; [`NoMail::NotYet`] if
    /// the mailbox stayed empty for another reason, or does not exist.
    pub fn fetch(
        &self,
        mailbox: u32,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Result<[u8; 64], NoMail> {
        if mailbox as usize >= MAILBOXES {
            return Err(NoMail::NotYet);
        }
        let deadline = Instant::now() + wait;
        let mut state = self.state.lock();
        loop {
            if let Some(mail) = state.mail.get(&mailbox) {
                return Ok(*mail);
            }
            if state.sender_failed {
                return Err(NoMail::SenderFailed);
            }
            if Instant::now() >= deadline || stop.load(Ordering::Acquire) {
                return Err(NoMail::NotYet);
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    /// Wakes every waiting [`Self::fetch`]. Those whose `stop` is set return without mail; the
    /// others continue to wait.
    pub fn wake(&self) {
        // Under the lock, or a waiter that has just looked would sleep through it.
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Ends every [`Self::fetch`] that waits for mail, and makes later ones return at once. Call
    /// this function when a VM of the run has failed, because mail from that VM may never come.
    /// Guests can still post mail, and fetch mail that is already there.
    pub fn sender_failed(&self) {
        self.state.lock().sender_failed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    static RUN: AtomicBool = AtomicBool::new(false);

    #[test]
    fn mail_stays_until_replaced() {
        let mailboxes = Mailboxes::default();
        assert_eq!(
            mailboxes.fetch(1, Duration::ZERO, &RUN),
            Err(NoMail::NotYet)
        );
        mailboxes.post(1, [1; 64]).unwrap();
        assert_eq!(mailboxes.fetch(1, Duration::ZERO, &RUN), Ok([1; 64]));
        mailboxes.post(1, [2; 64]).unwrap();
        assert_eq!(mailboxes.fetch(1, Duration::ZERO, &RUN), Ok([2; 64]));
        assert_eq!(mailboxes.post(64, [0; 64]), None);
        let no_box = mailboxes.fetch(64, Duration::from_secs(9), &RUN);
        assert_eq!(no_box, Err(NoMail::NotYet));
    }

    #[test]
    fn waiters_wake_for_mail_and_for_the_end() {
        let mailboxes = Arc::new(Mailboxes::default());
        let stop = Arc::new(AtomicBool::new(false));
        let wait = |slot| {
            let (mailboxes, stop) = (Arc::clone(&mailboxes), Arc::clone(&stop));
            std::thread::spawn(move || mailboxes.fetch(slot, Duration::from_secs(60), &stop))
        };
        let (served, abandoned) = (wait(0), wait(1));
        mailboxes.post(0, [7; 64]).unwrap();
        assert_eq!(served.join().unwrap(), Ok([7; 64]));
        stop.store(true, Ordering::Release);
        mailboxes.wake();
        assert_eq!(abandoned.join().unwrap(), Err(NoMail::NotYet));
    }

    #[test]
    fn after_a_failure_only_mail_that_is_there_is_fetched() {
        let mailboxes = Arc::new(Mailboxes::default());
        mailboxes.post(0, [7; 64]).unwrap();
        let waiter = Arc::clone(&mailboxes);
        let minute = Duration::from_secs(60);
        let waiter = std::thread::spawn(move || waiter.fetch(1, minute, &RUN));
        let begin = Instant::now();
        mailboxes.sender_failed();
        assert_eq!(waiter.join().unwrap(), Err(NoMail::SenderFailed));
        assert_eq!(mailboxes.fetch(2, minute, &RUN), Err(NoMail::SenderFailed));
        assert_eq!(mailboxes.fetch(0, minute, &RUN), Ok([7; 64]));
        mailboxes.post(1, [8; 64]).unwrap();
        assert_eq!(mailboxes.fetch(1, minute, &RUN), Ok([8; 64]));
        assert!(begin.elapsed() < minute / 2);
    }
}
