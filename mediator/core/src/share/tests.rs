//! What a revocation waits for.

use std::any::Any;

use causeway_memory::Backing;

use super::*;
use crate::backend::{BackendError, Exported};

/// Memory without content.
struct Block;

impl Memory for Block {
    fn bytes(&self) -> u64 {
        4096
    }

    fn backing(&self) -> Option<Backing> {
        None
    }

    fn export(&self) -> Result<Exported, BackendError> {
        panic!("nobody exports it")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A session whose work holds memory until a moment after the session is lost.
struct Slow(Mutex<Option<Arc<dyn Memory>>>);

impl Importing for Slow {
    fn take(&self, _: u32, _: u64) -> Option<Taken> {
        None
    }

    fn lose(&self, _: &Taken) {
        let held = self.0.lock().take();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
    }
}

#[test]
fn a_revocation_waits_for_the_work_of_a_session_that_it_ends() {
    let memory: Arc<dyn Memory> = Arc::new(Block);
    let taken = Taken::of(&memory);
    let session: Arc<dyn Importing> = Arc::new(Slow(Mutex::new(Some(memory))));
    await_work(&[(session, taken.clone())]);
    assert!(taken.is_let_go_by(Instant::now()), "work goes on");
}
