//! The contexts that a thread has made current.
//!
//! A thread keeps its contexts alive, also after their end, until it makes others current. A call
//! looks at the current one without counting references, which takes two loads.

use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::sync::Arc;

use super::Context;
use crate::error::{Answer, Code};

/// The contexts of a thread, the latest last.
struct Stack(RefCell<Vec<Arc<Context>>>);

/// The last of them.
struct Last {
    /// Null if there is none.
    context: Cell<*const Context>,
    /// How many callers on the thread's stack look at it.
    looks: Cell<u32>,
}

thread_local! {
    static STACK: Stack = const { Stack(RefCell::new(Vec::new())) };
    // Without a destructor it is one load away, and outlives the stack.
    static LAST: Last = const {
        Last {
            context: Cell::new(null()),
            looks: Cell::new(0),
        }
    };
}

/// Calls `look` with the current context of the calling thread, if there is one.
#[inline]
pub(super) fn look<T>(look: impl FnOnce(Option<&Context>) -> T) -> T {
    LAST.with(|last| {
        let _looking = Looking::begin(last);
        // SAFETY: the thread's stack has a reference to the context; while somebody looks, none is
        // dropped.
        look(unsafe { last.context.get().as_ref() })
    })
}

/// Somebody looks at the current context until this is dropped.
struct Looking<'a>(&'a Last);

impl<'a> Looking<'a> {
    fn begin(last: &'a Last) -> Self {
        last.looks.set(last.looks.get() + 1);
        Self(last)
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.looks.set(self.0.looks.get() - 1);
    }
}

/// Calls `use_stack`, which changes the contexts of the calling thread. Destructors of static
/// objects run after a thread has lost its contexts: they get [`Code::DEINITIALIZED`].
pub(super) fn on_stack<T>(use_stack: impl FnOnce(&mut Vec<Arc<Context>>) -> T) -> Answer<T> {
    let used = STACK.try_with(|Stack(stack)| {
        let mut stack = stack.borrow_mut();
        keep_if_looked_at(&stack);
        LAST.with(|known| known.context.set(null()));
        let used = use_stack(&mut stack);
        let last = stack.last().map_or(null(), Arc::as_ptr);
        LAST.with(|known| known.context.set(last));
        used
    });
    used.map_err(|_| Code::DEINITIALIZED)
}

/// Keeps the contexts for ever if a caller of this function still looks at one. That is a program
/// that changes its contexts in a function which this library calls.
fn keep_if_looked_at(stack: &[Arc<Context>]) {
    if LAST.with(|last| last.looks.get()) != 0 {
        std::mem::forget(stack.to_vec());
    }
}

impl Drop for Stack {
    /// Destructors of static objects run after this in the main thread, and may still use the
    /// current context.
    fn drop(&mut self) {
        let stack = self.0.get_mut();
        if is_main_thread() {
            std::mem::forget(std::mem::take(stack));
            return;
        }
        keep_if_looked_at(stack);
        LAST.with(|last| last.context.set(null()));
    }
}

fn is_main_thread() -> bool {
    // SAFETY: returns a number, and cannot fail.
    let thread = unsafe { libc::gettid() };
    u32::try_from(thread) == Ok(std::process::id())
}
