//! The user of memory of a GPU that cannot be a peer: copies reach it, through the host's memory,
//! and kernels do not.

use causeway_bare::println;
use causeway_guests::Required;
use causeway_kernels::peers::STORE_PATTERN;
use causeway_shim::{
    Access, Allocation, ExportToken, GpuMapping, MemoryKind, Patience, Status, WaitError,
};

use super::gpu::{SHAPE, parameters};
use super::owner::USERS;
use super::user::{PASSES, User, Visit, told};

/// Copies that wait when the right is taken back.
const WAITING: u32 = 32;

/// Memory of the user's own GPU.
struct Own<'v> {
    _memory: Allocation<'v>,
    mapping: GpuMapping<'v>,
}

impl User<'_> {
    /// Copies the memory, which must have the owner's pattern.
    pub fn copies_out(&mut self, token: &ExportToken) {
        self.visit(token, Access::Read, |visit| {
            visit.cannot_map_for_writes();
            let theirs = visit.map(Access::Read);
            let ours = visit.own();
            let name = "copies of memory of a GPU that is no peer";
            visit.measure(name, ours.mapping.address(), theirs.address());
            let wrong = visit.wrong(&ours.mapping, 0, None);
            assert_eq!(wrong, 0, "words that are not the owner's");
        });
    }

    /// Copies a pattern to the memory, and back.
    pub fn copies_in(&mut self, token: &ExportToken) {
        self.visit(token, Access::ReadWrite, |visit| {
            let theirs = visit.map(Access::ReadWrite);
            let (ours, back) = (visit.own(), visit.own());
            visit.store(&ours.mapping, USERS);
            let name = "copies to memory of a GPU that is no peer";
            visit.measure(name, theirs.address(), ours.mapping.address());
            visit.copy(back.mapping.address(), theirs.address());
            let wrong = visit.wrong(&back.mapping, USERS, None);
            assert_eq!(wrong, 0, "words that do not read back");
        });
    }

    /// Copies to the memory again and again, while `meanwhile` sees to it that the owner takes the
    /// right back. No copy gets there afterwards.
    pub fn loses_what_it_copies_to(&mut self, token: &ExportToken, meanwhile: impl FnOnce()) {
        self.visit(token, Access::ReadWrite, |visit| {
            let theirs = visit.map(Access::ReadWrite).address();
            let ours = visit.own();
            visit.store(&ours.mapping, USERS);
            let ours = ours.mapping.address();
            visit.copy(theirs, ours);
            for _ in 0..WAITING {
                let copied = visit
                    .worker
                    .pipeline
                    .commands
                    .copy(theirs, ours, visit.bytes);
                copied.required("copying");
            }
            let value = visit.worker.pipeline.finish();
            meanwhile();
            // They were done before, or they stopped.
            let waited = visit.worker.pipeline.wait(value, Patience::default());
            if waited.is_ok() {
                let last = visit.try_copy(theirs, ours);
                assert_stopped("a copy to what was taken back", last);
            }
        });
    }

    /// Launches a kernel that stores to the memory, which is a fault.
    pub fn touches(&mut self, token: &ExportToken) {
        self.visit(token, Access::ReadWrite, |visit| {
            let theirs = visit.map(Access::ReadWrite);
            let kernel = visit.module.kernel(STORE_PATTERN).required(STORE_PATTERN);
            let values = [theirs.address(), visit.bytes / 8, USERS];
            let parameters = parameters(&kernel, &values);
            let launched = visit.worker.pipeline.commands.launch(SHAPE, &parameters);
            launched.required("launching");
            let value = visit.worker.pipeline.finish();
            let waited = visit.worker.pipeline.wait(value, Patience::default());
            assert_stopped("a kernel that uses memory for copies", waited);
            println!("peers: a store of a kernel to memory for copies was a fault");
        });
    }

    /// Copies to memory that it may only read: a fault.
    pub fn copies_into_what_it_may_only_read(&mut self, token: &ExportToken) {
        self.visit(token, Access::Read, |visit| {
            let theirs = visit.map(Access::Read).address();
            let ours = visit.own().mapping.address();
            let waited = visit.try_copy(theirs, ours);
            assert_stopped("a copy to read-only memory", waited);
            println!("peers: a copy to read-only memory of another GPU was a fault");
        });
    }
}

impl<'v> Visit<'v> {
    /// Returns fresh memory of the own GPU.
    fn own(&self) -> Own<'v> {
        let memory = self.device.allocate(self.bytes, MemoryKind::Device);
        let memory: Allocation<'v> = memory.required("memory of the own GPU");
        let mapping = memory.map_gpu(self.worker.space, 0, self.bytes, Access::ReadWrite);
        Own {
            mapping: mapping.required("mapping it"),
            _memory: memory,
        }
    }

    /// Copies all bytes several times, and reports how fast.
    fn measure(&mut self, name: &str, to: u64, from: u64) {
        let bytes = self.bytes;
        for _ in 0..PASSES {
            let took = self.worker.run(Some((name, bytes)), |commands| {
                commands.copy(to, from, bytes).required("copying");
            });
            told(name, bytes, took);
        }
    }

    fn copy(&mut self, to: u64, from: u64) {
        self.try_copy(to, from).required("copying");
    }

    fn try_copy(&mut self, to: u64, from: u64) -> Result<(), WaitError> {
        let pipeline = &mut self.worker.pipeline;
        let copied = pipeline.commands.copy(to, from, self.bytes);
        copied.required("writing a copy");
        let value = pipeline.finish();
        pipeline.wait(value, Patience::default())
    }
}

fn assert_stopped(what: &str, waited: Result<(), WaitError>) {
    assert!(
        matches!(
            waited,
            Err(WaitError::Stopped {
                status: Status::MemoryFault,
                ..
            })
        ),
        "{what} must be a fault, and not end as {waited:?}"
    );
}
