//! Measures what kernels and copies of one GPU do with memory of another, in both directions, and
//! the same within each GPU.

mod crossing;

use core::array;

use causeway_bare::{Machine, PciTransport};
use causeway_bench_workloads::{Line, PEER_LINES, PeerLine, PeerWork};
use causeway_guests::{CaseMemory, Pipeline, Required};
use causeway_kernels::peers::{PTX, STEPS, copy_sizes};
use causeway_shim::{
    Access, AddressSpace, Allocation, Buffer, Device, GpuMapping, MemoryKind, Module,
};
use causeway_testdev_records::PhasePath;

use crate::Bench;
use crate::line::{Sample, Selection};
use crossing::{Crossing, Kernels, Reach};

/// What a guest says that has one GPU.
const NEEDS_TWO: &str =
    "finding the GPU: peers= needs two, such as --gpu software:0 --gpu software:1";

/// Memory in the address space of one GPU.
struct Mapped<'d> {
    allocation: Allocation<'d>,
    mapping: GpuMapping<'d>,
}

impl<'d> Mapped<'d> {
    fn new(allocation: Allocation<'d>, space: &AddressSpace<'d>, bytes: u64) -> Self {
        let mapping = allocation.map_gpu(space, 0, bytes, Access::ReadWrite);
        Self {
            mapping: mapping.required("mapping memory"),
            allocation,
        }
    }

    fn of_own(device: &'d Device<'d>, space: &AddressSpace<'d>, bytes: u64) -> Self {
        let memory = device.allocate(bytes, MemoryKind::Device);
        Self::new(memory.required("memory of the GPU"), space, bytes)
    }
}

/// Memory that one GPU reaches.
struct Memory<'d> {
    /// Memory of its own, which the other GPU reaches, too.
    shared: Mapped<'d>,
    /// Memory that only it reaches.
    own: Mapped<'d>,
    /// A page of host memory, for results of kernels.
    page: Buffer<'d>,
}

/// Measures all lines of two GPUs that share `bytes` bytes of each.
pub fn measure(machine: &Machine, selection: Selection, bytes: u64) {
    let transports = [0, 1].map(|place| PciTransport::find_nth(machine, place).required(NEEDS_TWO));
    let devices = transports.each_ref().map(open);
    let spaces = devices
        .each_ref()
        .map(|device| device.create_space().required("an address space"));
    let mut ram = CaseMemory::new(machine);
    let modules: [Module<'_>; 2] = array::from_fn(|gpu| ram.load_module(&spaces[gpu], PTX));
    let kernels = modules.each_ref().map(Kernels::of);
    let memory: [Memory<'_>; 2] = array::from_fn(|gpu| {
        let (device, space) = (&devices[gpu], &spaces[gpu]);
        Memory {
            shared: Mapped::of_own(device, space, bytes),
            own: Mapped::of_own(device, space, bytes),
            page: Buffer::new(device, space, 4096, MemoryKind::Host).required("a page"),
        }
    });
    let theirs: [Mapped<'_>; 2] = array::from_fn(|gpu| {
        let imported = shared(&devices, &memory[1 - gpu].shared.allocation, gpu);
        Mapped::new(imported, &spaces[gpu], bytes)
    });
    let mut benches: [Bench<'_>; 2] = array::from_fn(|gpu| Bench {
        machine: *machine,
        device: &devices[gpu],
        space: &spaces[gpu],
        selection,
        pipeline: Pipeline::new(&devices[gpu], &spaces[gpu], 4096),
        module: &modules[gpu],
    });
    for line in PEER_LINES {
        let peers = line.peers().required("a line of two GPUs");
        let reach = |gpu: usize, at: &Mapped<'_>| Reach {
            kernels: &kernels[gpu],
            page: &memory[gpu].page,
            at: at.mapping.address(),
        };
        let owner = reach(peers.owner, &memory[peers.owner].shared);
        let user = match peers.user == peers.owner {
            true => owner,
            false => reach(peers.user, &theirs[peers.user]),
        };
        let own = memory[peers.user].own.mapping.address();
        let (bench, mut other) = of_line(&mut benches, peers);
        for bytes in sizes(peers.work, bytes) {
            let other = other.as_deref_mut();
            let mut crossing = Crossing::new((peers.work, bytes), (user, owner), own, other);
            bench.measure(sample(*line, peers.work, bytes), &mut crossing);
        }
    }
}

/// Opens a session.
fn open(transport: &PciTransport) -> Device<'_> {
    Device::open(transport).required("opening the device")
}

/// Imports `memory` of the other GPU to that with this place.
fn shared<'d>(
    devices: &'d [Device<'d>; 2],
    memory: &Allocation<'_>,
    user: usize,
) -> Allocation<'d> {
    let numbers = devices[user].query_gpus();
    let number = numbers.required("the number of the GPU").gpu;
    let token = memory.export_to(Access::ReadWrite, 1 << number);
    let token = token.required("exporting memory to the other GPU");
    let imported = devices[user].import(&token, Access::ReadWrite);
    imported.required("importing memory of the other GPU")
}

/// Returns the GPU that does what a line says, and that with the memory, if it is another one.
fn of_line<'b, 'd>(
    [first, second]: &'b mut [Bench<'d>; 2],
    line: PeerLine,
) -> (&'b mut Bench<'d>, Option<&'b mut Bench<'d>>) {
    let (user, other) = match line.user {
        0 => (first, second),
        _ => (second, first),
    };
    (user, (line.user != line.owner).then_some(other))
}

/// Returns the sizes of a line in bytes, of which there are `most`.
fn sizes(work: PeerWork, most: u64) -> impl Iterator<Item = u64> {
    let copies = matches!(work, PeerWork::CopyTo | PeerWork::CopyOf);
    copy_sizes(most).filter(move |bytes| copies || *bytes == most)
}

fn sample(line: Line, work: PeerWork, bytes: u64) -> Sample {
    let (operations, bytes) = match work {
        // Of a single word each, which is no size to be shown.
        PeerWork::Follow => (STEPS, 0),
        _ => (1, bytes),
    };
    Sample {
        line,
        path: PhasePath::Data,
        operations,
        bytes,
    }
}
