//! Requests, plausible and arbitrary.

use causeway_protocol::message::*;
use zerocopy::{Immutable, IntoBytes};

use crate::PACKETS;
use crate::known::Known;
use crate::random::Random;
use crate::rig::*;

fn bytes(request: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    request.as_bytes().to_vec()
}

/// What most requests name, by a guest that has learnt something.
struct Choice {
    space: u32,
    allocation: u32,
    address: u64,
    offset: u64,
    length: u64,
    access: u32,
}

impl Choice {
    fn new(random: &mut Random, known: &Known) -> Self {
        Self {
            access: random.pick(&[0, 1, 3, 3, 3]),
            length: random.pick(&[4096, 8192, RING_BYTES, 1 << 16]),
            offset: random.pick(&[0, 0, 0, 4096, 1 << 40]),
            space: known.space(random),
            allocation: known.memory(random),
            address: Known::of(random, &known.addresses, 0),
        }
    }

    /// A place in an address space, or in the aperture.
    fn place(&self, space: u32) -> SpaceAddress {
        SpaceAddress {
            space,
            address: self.address,
            ..SpaceAddress::default()
        }
    }
}

/// A request that may well succeed.
pub fn plausible(opcode: Opcode, random: &mut Random, known: &Known) -> Vec<u8> {
    let chosen = Choice::new(random, known);
    match opcode {
        Opcode::Hello => hello(random),
        Opcode::QueryAttributes
        | Opcode::QueryFault
        | Opcode::QueryDevice
        | Opcode::QueryBusy
        | Opcode::QueryGpus
        | Opcode::CreateSpace => Vec::new(),
        Opcode::DestroySpace
        | Opcode::Free
        | Opcode::UnloadModule
        | Opcode::DestroyCommandBuffer
        | Opcode::DestroyRecording
        | Opcode::DestroyArray
        | Opcode::DestroyTexture
        | Opcode::ExportFabric => by_handle(known.any(random)),
        Opcode::ImportFabric => {
            let mut handle = [0; FABRIC_HANDLE_BYTES];
            handle[0] = random.below(4) as u8;
            bytes(&ImportFabric {
                handle,
                size: random.pick(&[0, 4096, 8192, 4097, u64::MAX]),
            })
        }
        Opcode::Allocate => allocate(&chosen, random),
        Opcode::MapGpu => map_gpu(&chosen, random),
        Opcode::MapCpu => map_cpu(&chosen),
        Opcode::UnmapGpu => bytes(&chosen.place(chosen.space)),
        Opcode::UnmapCpu => bytes(&chosen.place(0)),
        Opcode::SetAccess => set_access(&chosen, random),
        Opcode::Export => bytes(&Export {
            allocation: chosen.allocation,
            access: chosen.access,
            gpus: random.below(3) as u64,
        }),
        Opcode::Import => bytes(&Import {
            token: known.token.token,
            access: chosen.access,
            reserved: 0,
        }),
        Opcode::Revoke => bytes(&known.token),
        Opcode::LoadModule => load_module(&chosen, random),
        Opcode::GetKernel => kernel(known, random),
        Opcode::CreateCommandBuffer => bytes(&CreateCommandBuffer {
            space: chosen.space,
            allocation: chosen.allocation,
            offset: chosen.offset,
            length: RING_BYTES,
        }),
        Opcode::CreatePriorityCommandBuffer => bytes(&CreatePriorityCommandBuffer {
            space: chosen.space,
            allocation: chosen.allocation,
            offset: chosen.offset,
            length: RING_BYTES,
            priority: random.pick(&[0, -1, -5, i32::MIN, i32::MAX]),
            reserved: 0,
        }),
        Opcode::CreateRecording => recording(&chosen, random),
        Opcode::RegisterRam => bytes(&RegisterRam {
            address: random.pick(&[0, 4096, 1 << 20]),
            length: chosen.length,
        }),
        Opcode::Notify => notify(&chosen, random),
        Opcode::Wait => wait(&chosen, random),
        Opcode::GetVariable => variable(known, random),
        Opcode::QueryKernel => by_handle(Known::of(random, &known.kernels, PREVIOUS)),
        Opcode::ReadOutput => by_handle(chosen.space),
        Opcode::EncodeTensorMap => bytes(&EncodeTensorMap {
            space: chosen.space,
            kind: random.pick(&[0, 1, 2, 3]),
            rank: random.pick(&[0, 1, 5, 6, u32::MAX]),
            address: random.pick(&[0, 4096, u64::MAX]),
            ..EncodeTensorMap::default()
        }),
        Opcode::KernelName => bytes(&KernelNameAt {
            module: Known::of(random, &known.modules, PREVIOUS),
            index: random.pick(&[0, 0, 0, 1, u32::MAX]),
            offset: random.pick(&[0, 0, 3, 4, u32::MAX]),
            reserved: 0,
        }),
        Opcode::GetKernelAt => bytes(&GetKernelAt {
            module: Known::of(random, &known.modules, PREVIOUS),
            index: random.pick(&[0, 0, 0, 1, u32::MAX]),
        }),
        Opcode::CreateArray => bytes(&CreateArray {
            space: chosen.space,
            flags: random.pick(&[0, 0, 1, 2, 3, 4, 5, 8, 16, u32::MAX]),
            width: random.pick(&[1, 8, 64, 1 << 20, u64::MAX]),
            height: random.pick(&[0, 0, 8, 64, u64::MAX]),
            depth: random.pick(&[0, 0, 6, 8, u64::MAX]),
            format: random.pick(&[1, 2, 3, 8, 9, 10, 16, 32, 33]),
            channels: random.pick(&[1, 2, 4, 3]),
        }),
        Opcode::CreateTexture => texture(&chosen, known, random),
    }
}

fn texture(chosen: &Choice, known: &Known, random: &mut Random) -> Vec<u8> {
    let source = random.pick(&[0, 1, 2, 3, 4]);
    let is_of_array = source == 0 || source == 3;
    let in_memory = |number| if is_of_array { 0 } else { number };
    bytes(&CreateTexture {
        space: chosen.space,
        source,
        array: match is_of_array {
            true => Known::of(random, &known.arrays, PREVIOUS),
            false => random.pick(&[0, 0, 0, 1]),
        },
        flags: in_memory(random.pick(&[0, 1, 3, u32::MAX]).into()) as u32,
        address: in_memory(chosen.address),
        width: in_memory(random.pick(&[4, 64, 4096, u64::MAX])),
        height: if source == 2 { 4 } else { 0 },
        pitch: if source == 2 { 4096 } else { 0 },
        format: in_memory(random.pick(&[1, 3, 32])) as u32,
        channels: in_memory(random.pick(&[1, 2, 4])) as u32,
        ..CreateTexture::default()
    })
}

fn by_handle(handle: u32) -> Vec<u8> {
    bytes(&HandleRequest {
        handle,
        reserved: 0,
    })
}

fn variable(known: &Known, random: &mut Random) -> Vec<u8> {
    let mut request = GetVariable {
        module: Known::of(random, &known.modules, PREVIOUS),
        name_bytes: random.pick(&[1, 1, 1, 2, 600]),
        ..GetVariable::default()
    };
    request.name[0] = b'v';
    bytes(&request)
}

fn hello(random: &mut Random) -> Vec<u8> {
    bytes(&Hello {
        major: 1,
        minor: random.pick(&[0, 1, 2, 3]),
        reserved: 0,
    })
}

fn allocate(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&Allocate {
        size: chosen.length,
        kind: random.pick(&[0, 1, 2, 2, 2]),
        flags: random.pick(&[0, 0, 0, 0, 1, 2, 2]),
    })
}

fn map_gpu(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&MapGpu {
        space: chosen.space,
        allocation: chosen.allocation,
        offset: chosen.offset,
        length: chosen.length,
        address: random.pick(&[0, 0, 0x20_0000, 4096, u64::MAX - 4095]),
        access: chosen.access,
        reserved: 0,
    })
}

fn map_cpu(chosen: &Choice) -> Vec<u8> {
    bytes(&MapCpu {
        allocation: chosen.allocation,
        access: chosen.access,
        offset: chosen.offset,
        length: chosen.length,
    })
}

fn set_access(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&SetAccess {
        space: random.pick(&[0, chosen.space]),
        access: chosen.access,
        address: chosen.address,
    })
}

fn load_module(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    let in_aperture = APERTURE_ADDRESS | chosen.address;
    bytes(&LoadModule {
        space: chosen.space,
        log_bytes: 64,
        image_address: random.pick(&[0, 0, 0, in_aperture, u64::MAX - 9]),
        image_bytes: random.pick(&[23, 23, 10, 9]),
        log_address: random.pick(&[4096, 4096, in_aperture]),
    })
}

fn kernel(known: &Known, random: &mut Random) -> Vec<u8> {
    let mut request = GetKernel {
        module: Known::of(random, &known.modules, PREVIOUS),
        name_bytes: 3,
        ..GetKernel::default()
    };
    request.name[..3].copy_from_slice(b"add");
    bytes(&request)
}

fn recording(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&CreateRecording {
        space: chosen.space,
        reserved: 0,
        address: random.pick(&[PACKETS, PACKETS, APERTURE_ADDRESS | chosen.address]),
        bytes: random.pick(&[64, 640, 4096, 4160, 1 << 20]),
    })
}

fn notify(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&Notify {
        space: chosen.space,
        reserved: 0,
        address: chosen.address,
        value: random.pick(&[0, 1]),
    })
}

fn wait(chosen: &Choice, random: &mut Random) -> Vec<u8> {
    bytes(&Wait {
        space: chosen.space,
        reserved: 0,
        address: chosen.address,
        value: random.pick(&[0, 1]),
        timeout_ns: u64::MAX,
    })
}

/// A request of the right size, and of anything else.
pub fn arbitrary(opcode: Opcode, random: &mut Random, known: &Known) -> Vec<u8> {
    let mut body = vec![0; opcode.request_bytes()];
    for bytes in body.chunks_mut(4) {
        bytes.copy_from_slice(&word(random, &known.memories).to_le_bytes());
    }
    body
}

/// A word that has a chance to mean something.
fn word(random: &mut Random, handles: &[u32]) -> u32 {
    match random.below(10) {
        0..=2 if !handles.is_empty() => random.pick(handles),
        0..=4 => random.pick(&[0, 1, 2, 3, PREVIOUS]),
        5 | 6 => random.pick(&[4096, 8192, 0x1_0000, 10, 64, 4096 + 16384]),
        7 => random.pick(&[u32::MAX, 0x8000_0000, 4095, 1 << 20]),
        8 => random.next() as u32,
        _ => 0,
    }
}
