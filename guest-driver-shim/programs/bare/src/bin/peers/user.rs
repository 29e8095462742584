//! The user of the memory: its kernels, on another GPU, read and write it as far as they may.

use causeway_bare::{Machine, PciTransport, figure, println};
use causeway_guests::{CaseMemory, Required, refused};
use causeway_kernels::peers::{CHECK_PATTERN, COUNT_UP, PTX, STORE_PATTERN};
use causeway_shim::{
    Access, Allocation, Buffer, Device, ExportToken, GpuMapping, MemoryKind, Module, Patience,
    Status, WaitError,
};

use super::Plan;
use super::gpu::{ONE, SHAPE, Way, Worker, open, parameters};
use super::owner::USERS;

/// How often the memory is stored, loaded and copied for the figures.
pub const PASSES: u64 = 4;

pub struct User<'a> {
    machine: Machine,
    transport: &'a PciTransport,
    kernels: &'a mut CaseMemory,
    plan: Plan,
    way: Way,
}

/// What a visit to the device has: the import and the user's own objects.
pub struct Visit<'v> {
    pub device: &'v Device<'v>,
    pub worker: Worker<'v>,
    pub module: &'v Module<'v>,
    imported: &'v Allocation<'v>,
    /// A page of host memory.
    page: &'v Buffer<'v>,
    pub bytes: u64,
}

impl<'a> User<'a> {
    pub fn new(
        machine: &Machine,
        transport: &'a PciTransport,
        kernels: &'a mut CaseMemory,
        (plan, way): (Plan, Way),
    ) -> Self {
        Self {
            machine: *machine,
            transport,
            kernels,
            plan,
            way,
        }
    }

    /// Checks that the memory has the owner's pattern, and that it cannot be written.
    pub fn takes(&mut self, token: &ExportToken) {
        match self.way {
            Way::Peer => self.reads(token),
            Way::Copies => self.copies_out(token),
        }
    }

    /// Gives the memory the user's pattern.
    pub fn gives(&mut self, token: &ExportToken) {
        match self.way {
            Way::Peer => self.writes(token),
            Way::Copies => self.copies_in(token),
        }
    }

    /// Writes the memory while `meanwhile` sees to it that the owner takes the right back.
    pub fn is_stopped(&mut self, token: &ExportToken, meanwhile: impl FnOnce()) {
        match self.way {
            Way::Peer => self.loses(token, meanwhile),
            Way::Copies => self.loses_what_it_copies_to(token, meanwhile),
        }
    }

    /// Writes what it may only read: a fault.
    pub fn goes_too_far(&mut self, token: &ExportToken) {
        match self.way {
            Way::Peer => self.writes_what_it_may_only_read(token),
            Way::Copies => self.copies_into_what_it_may_only_read(token),
        }
    }

    /// Checks that an export for the owner's own GPU is of no use here.
    pub fn is_refused(&mut self, token: ExportToken) {
        let device = open(self.transport);
        for access in [Access::Read, Access::ReadWrite] {
            let import = device.import(&token, access);
            refused("an export for another GPU", import, Status::AccessDenied);
        }
    }

    /// Reads the memory, which must have the owner's pattern, and cannot write it.
    fn reads(&mut self, token: &ExportToken) {
        self.visit(token, Access::Read, |visit| {
            visit.cannot_map_for_writes();
            let mapping = visit.map(Access::Read);
            let wrong = visit.wrong(&mapping, 0, Some("loads of a peer's memory"));
            assert_eq!(wrong, 0, "words that are not the owner's");
        });
    }

    /// Writes a pattern by kernels and by copies, and says how fast.
    fn writes(&mut self, token: &ExportToken) {
        self.visit(token, Access::ReadWrite, |visit| {
            let mapping = visit.map(Access::ReadWrite);
            visit.copies(&mapping);
            visit.measure_stores(&mapping);
            let wrong = visit.wrong(&mapping, USERS, None);
            assert_eq!(wrong, 0, "words that do not read back");
        });
    }

    /// Stores to the memory again and again, while `meanwhile` sees to it that the owner takes the
    /// right back. That costs this session its device, which is reset.
    fn loses(&mut self, token: &ExportToken, meanwhile: impl FnOnce()) {
        self.visit(token, Access::ReadWrite, |visit| {
            let mapping = visit.map(Access::ReadWrite);
            let page = visit.page;
            for offset in [0, 8] {
                page.cpu.store_u64(offset, 0).required("the page");
            }
            let kernel = visit.module.kernel(COUNT_UP).required(COUNT_UP);
            let (told, end) = (page.gpu.address(), page.gpu.address() + 8);
            let parameters = parameters(&kernel, &[mapping.address(), told, end]);
            let launched = visit.worker.pipeline.commands.launch(ONE, &parameters);
            launched.required("launching");
            let value = visit.worker.pipeline.finish();
            while page.cpu.load_u64(0).required("the page") < 2 {
                core::hint::spin_loop();
            }
            meanwhile();
            let waited = visit.worker.pipeline.wait(value, Patience::default());
            assert!(
                matches!(
                    waited,
                    Err(WaitError::Stopped { .. } | WaitError::Refused(_))
                ),
                "a kernel that uses what was taken back must stop, and not end as {waited:?}"
            );
        });
    }

    /// Stores to memory that it may only read: a fault.
    fn writes_what_it_may_only_read(&mut self, token: &ExportToken) {
        self.visit(token, Access::Read, |visit| {
            let mapping = visit.map(Access::Read);
            let kernel = visit.module.kernel(STORE_PATTERN).required(STORE_PATTERN);
            let values = [mapping.address(), visit.bytes / 8, USERS];
            let parameters = parameters(&kernel, &values);
            let launched = visit.worker.pipeline.commands.launch(SHAPE, &parameters);
            launched.required("launching");
            let value = visit.worker.pipeline.finish();
            let waited = visit.worker.pipeline.wait(value, Patience::default());
            assert!(
                matches!(
                    waited,
                    Err(WaitError::Stopped {
                        status: Status::MemoryFault,
                        ..
                    })
                ),
                "a store to read-only memory must be a fault, and not end as {waited:?}"
            );
            println!("peers: a store to read-only memory of a peer was a fault");
        });
    }

    /// Opens the device, imports the memory, does `work`, and resets the device.
    pub fn visit(
        &mut self,
        token: &ExportToken,
        access: Access,
        work: impl FnOnce(&mut Visit<'_>),
    ) {
        {
            let device = open(self.transport);
            let space = device.create_space().required("an address space");
            let module = self.kernels.load_module(&space, PTX);
            let imported = device.import(token, access).required("importing");
            let page = Buffer::new(&device, &space, 4096, MemoryKind::Host).required("a page");
            work(&mut Visit {
                device: &device,
                worker: Worker::new(&self.machine, &device, &space),
                module: &module,
                imported: &imported,
                page: &page,
                bytes: self.plan.bytes,
            });
        }
        Device::reset(self.transport);
    }
}

impl<'v> Visit<'v> {
    pub fn map(&self, access: Access) -> GpuMapping<'v> {
        let mapping = self
            .imported
            .map_gpu(self.worker.space, 0, self.bytes, access);
        mapping.required("mapping memory of another GPU")
    }

    /// Checks that what was imported for reading is not mapped for writes.
    pub fn cannot_map_for_writes(&self) {
        let (space, write) = (self.worker.space, Access::ReadWrite);
        refused(
            "mapping read-only memory for writes",
            self.imported.map_gpu(space, 0, self.bytes, write),
            Status::AccessDenied,
        );
    }

    /// Returns the number of words that are not those of the pattern, with a figure for the loads
    /// if they have a name.
    pub fn wrong(&mut self, mapping: &GpuMapping<'_>, mask: u64, name: Option<&str>) -> u64 {
        self.page.cpu.store_u64(0, 0).required("the page");
        let kernel = self.module.kernel(CHECK_PATTERN).required(CHECK_PATTERN);
        let values = [
            mapping.address(),
            self.bytes / 8,
            mask,
            self.page.gpu.address(),
        ];
        let parameters = parameters(&kernel, &values);
        for _ in 0..PASSES {
            let phase = name.map(|name| (name, self.bytes));
            let took = self.worker.launch(SHAPE, &parameters, phase);
            name.inspect(|name| told(name, self.bytes, took));
        }
        self.page.cpu.load_u64(0).required("the page")
    }

    /// Stores the pattern with the bits of `mask` inverted.
    pub fn store(&mut self, mapping: &GpuMapping<'_>, mask: u64) {
        self.store_in_phase(mapping, mask, None);
    }

    fn measure_stores(&mut self, mapping: &GpuMapping<'_>) {
        let name = "stores to a peer's memory";
        for _ in 0..PASSES {
            let took = self.store_in_phase(mapping, USERS, Some((name, self.bytes)));
            told(name, self.bytes, took);
        }
    }

    fn store_in_phase(
        &mut self,
        mapping: &GpuMapping<'_>,
        mask: u64,
        phase: Option<(&str, u64)>,
    ) -> u64 {
        let kernel = self.module.kernel(STORE_PATTERN).required(STORE_PATTERN);
        let parameters = parameters(&kernel, &[mapping.address(), self.bytes / 8, mask]);
        self.worker.launch(SHAPE, &parameters, phase)
    }

    /// Copies memory of the own GPU to the peer's, and back.
    fn copies(&mut self, mapping: &GpuMapping<'_>) {
        let own: Allocation<'_> = self
            .device
            .allocate(self.bytes, MemoryKind::Device)
            .required("memory of the own GPU");
        let ours = own.map_gpu(self.worker.space, 0, self.bytes, Access::ReadWrite);
        let ours = ours.required("mapping it").address();
        let (theirs, bytes) = (mapping.address(), self.bytes);
        for (name, to, from) in [
            ("copies to a peer's memory", theirs, ours),
            ("copies of a peer's memory", ours, theirs),
        ] {
            for _ in 0..PASSES {
                let took = self.worker.run(Some((name, bytes)), |commands| {
                    commands.copy(to, from, bytes).required("copying");
                });
                told(name, bytes, took);
            }
        }
        own.free().required("freeing it");
    }
}

/// Reports how fast memory was moved.
pub fn told(name: &str, bytes: u64, took_ns: u64) {
    figure(name, bytes as f64 / took_ns.max(1) as f64, "GB/s");
}
