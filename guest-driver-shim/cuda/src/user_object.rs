//! User objects (CUDA driver API, "Graph Management"): data of the program that lives as long as
//! the program or a graph refers to it.
//!
//! A thread of the library calls the functions that end them, each when the work is done that may
//! use the object. It holds no lock meanwhile, so such a function may call CUDA.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::boundary::Out;
use crate::driver::{Driver, call};
use crate::error::{Answer, Code};
use crate::graph;
use crate::handles::Handles;
use crate::host_function::{self, HostFunction};
use crate::rings::Submission;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which must be given.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`
const MOVE: u32 = 1;
/// Most references at a time, as the API says.
const REFERENCES_MAX: u32 = i32::MAX as u32;

/// Data of the program, with the function that ends it.
pub(crate) struct UserObject {
    handle: usize,
    destroy: HostFunction,
    argument: usize,
    references: Mutex<References>,
    /// The last submissions that may use it, one of each ring.
    used: Mutex<Vec<Submission>>,
}

/// How often an object is referred to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct References {
    program: u32,
    graphs: u32,
}

/// References of a graph to an object.
pub(crate) struct Held {
    driver: &'static Driver,
    object: Arc<UserObject>,
    count: u32,
}

/// All user objects of the process.
#[derive(Default)]
pub(crate) struct UserObjects {
    table: Mutex<Handles<UserObject>>,
    /// To the thread that ends objects, once there is one.
    ends: OnceLock<Option<Sender<Arc<UserObject>>>>,
}

impl References {
    /// Returns them with `count` more of the program.
    fn with_program(self, count: u32) -> Answer<Self> {
        let program = self.program.checked_add(count).ok_or(Code::INVALID_VALUE)?;
        Self { program, ..self }.checked()
    }

    /// Returns them with `count` more of graphs, which are the program's before if `moves`.
    fn with_graphs(self, count: u32, moves: bool) -> Answer<Self> {
        let graphs = self.graphs.checked_add(count).ok_or(Code::INVALID_VALUE)?;
        let given = if moves { count } else { 0 };
        let program = self.program.checked_sub(given).ok_or(Code::INVALID_VALUE)?;
        Self { program, graphs }.checked()
    }

    fn checked(self) -> Answer<Self> {
        match self.program.checked_add(self.graphs) {
            Some(all) if all <= REFERENCES_MAX => Ok(self),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    const fn is_none(self) -> bool {
        self.program == 0 && self.graphs == 0
    }
}

impl UserObjects {
    fn find(&self, handle: usize) -> Answer<Arc<UserObject>> {
        let found = self.table.lock().get(handle);
        found.ok_or(Code::INVALID_VALUE)
    }

    /// Ends an object to which nothing refers any more.
    fn end(&self, driver: &'static Driver, object: Arc<UserObject>) {
        drop(self.table.lock().remove(object.handle));
        let thread = self.ends.get_or_init(|| start(driver));
        let unsent = match thread {
            Some(thread) => thread.send(object).err().map(|error| error.0),
            None => Some(object),
        };
        if let Some(object) = unsent {
            object.destroy(driver);
        }
    }
}

/// Starts the thread that ends objects.
fn start(driver: &'static Driver) -> Option<Sender<Arc<UserObject>>> {
    let (sender, ended) = mpsc::channel::<Arc<UserObject>>();
    let thread = std::thread::Builder::new().name("cuda-user-objects".to_owned());
    match thread.spawn(move || ended.iter().for_each(|object| object.destroy(driver))) {
        Ok(_) => Some(sender),
        Err(error) => {
            log::warn!("cannot start the thread that ends user objects: {error}");
            None
        }
    }
}

impl UserObject {
    /// Waits for the work that may use it, and calls the function that ends it. After a fault there
    /// is no such work.
    fn destroy(&self, driver: &Driver) {
        for submission in std::mem::take(&mut *self.used.lock()) {
            let _ = driver.rings.wait(driver, submission);
        }
        (self.destroy)(self.argument);
    }

    /// Takes `count` references of the program back.
    fn release(self: Arc<Self>, driver: &'static Driver, count: u32) -> Answer {
        let mut references = self.references.lock();
        let left = references.program.checked_sub(count);
        references.program = left.ok_or(Code::INVALID_VALUE)?;
        let is_over = references.is_none();
        drop(references);
        if is_over {
            driver.user_objects.end(driver, self);
        }
        Ok(())
    }
}

impl Held {
    /// Notes that a submission may use the object.
    pub(crate) fn note_use(&self, submission: Submission) {
        let mut used = self.object.used.lock();
        match used.iter_mut().find(|other| other.ring == submission.ring) {
            Some(before) => before.number = before.number.max(submission.number),
            None => used.push(submission),
        }
    }

    /// Returns as many references for another graph.
    pub(crate) fn again(&self) -> Answer<Self> {
        Self::new(self.driver, &self.object, (self.count, false))
    }

    fn new(
        driver: &'static Driver,
        object: &Arc<UserObject>,
        (count, moves): (u32, bool),
    ) -> Answer<Self> {
        let mut references = object.references.lock();
        *references = references.with_graphs(count, moves)?;
        drop(references);
        Ok(Self {
            driver,
            object: Arc::clone(object),
            count,
        })
    }

    /// Adds the references of `other`, which are to the same object.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }

    /// Takes `count` of the references out.
    fn split(&mut self, count: u32) -> Answer<Self> {
        self.count = self.count.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
        Ok(Self {
            driver: self.driver,
            object: Arc::clone(&self.object),
            count,
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut references = self.object.references.lock();
        references.graphs -= self.count;
        let is_over = references.is_none();
        drop(references);
        if is_over {
            let object = Arc::clone(&self.object);
            self.driver.user_objects.end(self.driver, object);
        }
    }
}

fn check_count(count: u32) -> Answer {
    match count {
        1..=REFERENCES_MAX => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuUserObjectCreate(
    object: Out<usize>,
    argument: usize,
    destroy: usize,
    count: u32,
    flags: u32,
) -> u32 {
    call(|driver| {
        if object.is_null() || flags != NO_DESTRUCTOR_SYNC {
            return Err(Code::INVALID_VALUE);
        }
        check_count(count)?;
        let handle = crate::handles::fresh();
        let made = Arc::new(UserObject {
            handle,
            destroy: host_function::of_address(destroy)?,
            argument,
            references: Mutex::new(References {
                program: count,
                graphs: 0,
            }),
            used: Mutex::default(),
        });
        driver.user_objects.table.lock().put(handle, made);
        object.set(handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuUserObjectRetain(object: usize, count: u32) -> u32 {
    call(|driver| {
        check_count(count)?;
        let object = driver.user_objects.find(object)?;
        let mut references = object.references.lock();
        *references = references.with_program(count)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuUserObjectRelease(object: usize, count: u32) -> u32 {
    call(|driver| {
        check_count(count)?;
        driver.user_objects.find(object)?.release(driver, count)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) -> u32 {
    call(|driver| {
        check_count(count)?;
        if flags & !MOVE != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let graph = graph::find(driver, graph)?;
        let object = driver.user_objects.find(object)?;
        let held = Held::new(driver, &object, (count, flags == MOVE))?;
        let mut objects = graph.objects.lock();
        match objects.get_mut(&object.handle) {
            Some(before) => before.merge(held),
            None => drop(objects.insert(object.handle, held)),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphReleaseUserObject(graph: usize, object: usize, count: u32) -> u32 {
    call(|driver| {
        check_count(count)?;
        let graph = graph::find(driver, graph)?;
        let mut objects = graph.objects.lock();
        let held = objects.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
        let released = held.split(count)?;
        if held.count == 0 {
            objects.remove(&object);
        }
        drop(objects);
        drop(released);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_move_to_graphs_and_do_not_overflow() {
        let two = References {
            program: 2,
            graphs: 0,
        };
        let moved = two.with_graphs(2, true).unwrap();
        assert_eq!((moved.program, moved.graphs), (0, 2));
        assert!(!moved.is_none());
        assert_eq!(two.with_graphs(3, true), Err(Code::INVALID_VALUE));
        assert_eq!(two.with_graphs(3, false).unwrap().graphs, 3);
        assert_eq!(two.with_program(u32::MAX), Err(Code::INVALID_VALUE));
        assert_eq!(two.with_program(REFERENCES_MAX), Err(Code::INVALID_VALUE));
        assert!(References::default().is_none());
    }
}
