//! The owner of the memory: says who may reach it, and looks at it afterwards.

use causeway_bare::Machine;
use causeway_guests::{CaseMemory, Required, refused};
use causeway_kernels::peers::{CHECK_PATTERN, PTX, STORE_PATTERN};
use causeway_shim::{
    Access, AddressSpace, Allocation, Buffer, Device, ExportToken, GpuMapping, MemoryKind, Module,
    Status,
};

use super::Plan;
use super::gpu::{SHAPE, Worker, parameters};

/// Bits by which the user's pattern differs.
pub const USERS: u64 = u64::MAX;
/// A GPU that no run has.
const NO_GPU: u64 = 1 << 63;
/// How long a store that came too late would have time to show, in microseconds.
const LATE_US: u64 = 2_000;

pub struct Owner<'d> {
    device: &'d Device<'d>,
    machine: Machine,
    worker: Worker<'d>,
    module: Module<'d>,
    memory: Allocation<'d>,
    mapping: GpuMapping<'d>,
    /// The first word of the memory, copied for the CPU; and a counter.
    seen: Buffer<'d>,
    words: u64,
    /// The user's GPU, as an export names it.
    user: u64,
    /// The last export.
    token: Option<ExportToken>,
}

impl<'d> Owner<'d> {
    pub fn new(
        machine: &Machine,
        device: &'d Device<'d>,
        space: &'d AddressSpace<'d>,
        kernels: &mut CaseMemory,
        (plan, user): (Plan, u32),
    ) -> Self {
        let numbers = device.query_gpus().required("the number of the GPU");
        assert_ne!(
            numbers.gpu, user,
            "GPU {user} is that of the owner and of the user: this guest needs two"
        );
        assert!(numbers.gpus > user, "GPU {user} of {}", numbers.gpus);
        assert!(
            (numbers.peers | numbers.copies) & 1 << user != 0,
            "GPU {user} does not reach memory of GPU {}: peers are {:#b}, those by copies {:#b}",
            numbers.gpu,
            numbers.peers,
            numbers.copies
        );
        let memory = device.allocate(plan.bytes, MemoryKind::Device);
        let memory: Allocation<'d> = memory.required("memory of the GPU");
        let mapping = memory.map_gpu(space, 0, plan.bytes, Access::ReadWrite);
        let mapping = mapping.required("mapping it");
        let seen = Buffer::new(device, space, 4096, MemoryKind::Host).required("a page");
        seen.cpu.store_u64(0, 0).required("the page");
        let mut owner = Self {
            device,
            machine: *machine,
            worker: Worker::new(machine, device, space),
            module: kernels.load_module(space, PTX),
            memory,
            mapping,
            seen,
            words: plan.bytes / 8,
            user: 1 << user,
            token: None,
        };
        owner.store(0);
        owner
    }

    /// Exports the memory to sessions on its own GPU only.
    pub fn keep_to_itself(&mut self) -> ExportToken {
        let nobody = self.memory.export_to(Access::Read, self.user | NO_GPU);
        refused(
            "an export to a GPU that there is not",
            nobody,
            Status::BadGpu,
        );
        self.memory.export(Access::ReadWrite).required("exporting")
    }

    /// Lets the user's GPU read the memory.
    pub fn show(&mut self) -> ExportToken {
        self.export(Access::Read)
    }

    /// Lets the user's GPU read and write the memory.
    pub fn share(&mut self) -> ExportToken {
        self.export(Access::ReadWrite)
    }

    fn export(&mut self, access: Access) -> ExportToken {
        let token = self
            .memory
            .export_to(access, self.user)
            .required("exporting");
        self.token = Some(token);
        token
    }

    /// Takes the right back while the user's kernel, or copies, store to the memory. No store may
    /// land afterwards.
    pub fn takes_back(&mut self) {
        let token = self.token.take().required("an export");
        self.device.revoke(&token).required("revoking");
        let first = self.first_word();
        let clock = self.machine.clock();
        clock.spin(LATE_US * 1_000);
        let later = self.first_word();
        assert_eq!(
            later, first,
            "a store landed after the right was taken back"
        );
        assert_ne!(first, 0, "the user has stored nothing");
        self.store(0);
    }

    /// Checks that the memory still has the owner's pattern.
    pub fn is_unchanged(&mut self) {
        assert_eq!(self.wrong(0), 0, "words that somebody has changed");
    }

    /// Checks that the memory has the user's pattern.
    pub fn has_been_written(&mut self) {
        assert_eq!(self.wrong(USERS), 0, "words that the user has not stored");
        self.store(0);
    }

    /// Checks that the owner's device works, whatever happened to the user's.
    pub fn is_well(&mut self) {
        assert!(!self.device.is_lost(), "the user's fault reached the owner");
        self.is_unchanged();
        self.store(USERS);
        assert_eq!(self.wrong(USERS), 0, "words of the owner's own");
    }

    fn store(&mut self, mask: u64) {
        let kernel = self.module.kernel(STORE_PATTERN).required(STORE_PATTERN);
        let values = [self.mapping.address(), self.words, mask];
        self.worker
            .launch(SHAPE, &parameters(&kernel, &values), None);
    }

    /// Returns the number of words that are not those of the pattern.
    fn wrong(&mut self, mask: u64) -> u64 {
        let counter = self.seen.gpu.address() + 8;
        self.seen.cpu.store_u64(8, 0).required("the counter");
        let kernel = self.module.kernel(CHECK_PATTERN).required(CHECK_PATTERN);
        let values = [self.mapping.address(), self.words, mask, counter];
        let phase = Some(("the owner checks its memory", 8 * self.words));
        self.worker
            .launch(SHAPE, &parameters(&kernel, &values), phase);
        self.seen.cpu.load_u64(8).required("the counter")
    }

    /// Returns the first word of the memory.
    fn first_word(&mut self) -> u64 {
        let (to, from) = (self.seen.gpu.address(), self.mapping.address());
        self.worker.run(None, |commands| {
            commands.copy(to, from, 8).required("copying");
        });
        self.seen.cpu.load_u64(0).required("the page")
    }
}
