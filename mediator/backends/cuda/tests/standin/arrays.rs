use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_cuda::Cuda;
use causeway_mediator::backend::{
    AddressMode, Array, ArrayCopy, ArrayShape, Backend as _, Element, Fault, MemoryWork, Recorded,
    Sampling, TextureSource, Work,
};
use causeway_protocol::Access;
use causeway_protocol::message::array_flags::{CUBEMAP, GATHER, LAYERED, SURFACE};
use causeway_protocol::message::{MemoryKind, Status};
use causeway_protocol::packet::{ArrayBox, RectSide};
use causeway_protocol::registers::features;

use crate::machine::{self, Driver};
use crate::support::{GRANULE, Rig, host, is_child, is_on_standin};

/// Formats of `cuda.h`.
pub const U8: u32 = 1;
pub const U32: u32 = 3;
pub const FLOAT: u32 = 32;

pub fn element(format: u32, channels: u32) -> Element {
    Element::from_wire(format, channels).unwrap()
}

pub fn shape(size: [u64; 3], format: u32, channels: u32, flags: u32) -> ArrayShape {
    ArrayShape::new(size, element(format, channels), flags).unwrap()
}

/// All of an array, and rows at an address that are `gap` bytes longer.
fn whole(shape: &ArrayShape, address: u64, gap: u32) -> ArrayBox {
    let (width, height) = (shape.row_bytes() as u32, shape.rows() as u32);
    ArrayBox {
        memory: RectSide {
            address,
            pitch: width + gap,
            rows: height,
        },
        origin: [0; 3],
        width,
        height,
        depth: shape.slices() as u32,
    }
}

/// How many arrays, textures and surfaces the stand-in has.
pub fn live_objects() -> u64 {
    let folder = std::env::var_os("CAUSEWAY_STANDIN_STATE").expect("a folder of accounts");
    let account = Path::new(&folder).join(format!("process-{}", std::process::id()));
    let account = std::fs::read(account).unwrap();
    let (_, last) = account.split_at(account.len() - 8);
    u64::from_le_bytes(last.try_into().unwrap())
}

/// Nothing is left, if that can be told.
pub fn assert_no_objects() {
    if is_on_standin() {
        assert_eq!(live_objects(), 0);
    }
}

impl Rig {
    pub fn copy_array(
        &mut self,
        array: &Arc<dyn Array>,
        part: ArrayBox,
        is_into_array: bool,
    ) -> Result<(), Fault> {
        let copy = ArrayCopy::new(array, part, is_into_array).unwrap();
        self.queue.submit(Work::Array(copy))
    }

    /// What all of an array is.
    fn read_array(&mut self, array: &Arc<dyn Array>) -> Vec<u8> {
        let bytes = array.shape().bytes();
        let buffer = self.buffer(MemoryKind::Host, bytes);
        self.copy_array(array, whole(array.shape(), buffer.va, 0), false)
            .unwrap();
        self.queue.finish().unwrap();
        let content = host(&buffer.memory).bytes(bytes);
        self.free(buffer);
        content
    }

    pub fn write_array(&mut self, array: &Arc<dyn Array>, content: &[u8]) {
        let buffer = self.buffer(MemoryKind::Device, content.len() as u64);
        self.upload(buffer.va, content);
        self.copy_array(array, whole(array.shape(), buffer.va, 0), true)
            .unwrap();
        self.queue.finish().unwrap();
        self.free(buffer);
    }
}

fn shapes() -> [ArrayShape; 8] {
    [
        shape([1, 0, 0], U8, 1, 0),
        shape([1000, 0, 0], U8, 1, 0),
        shape([33, 17, 0], FLOAT, 1, SURFACE),
        shape([64, 64, 0], U8, 4, GATHER),
        shape([7, 5, 3], FLOAT, 4, 0),
        shape([20, 0, 9], U32, 2, LAYERED),
        shape([8, 8, 6], FLOAT, 1, CUBEMAP),
        // Larger than the memory of zeros that it is filled from.
        shape([2048, 1031, 3], U32, 1, 0),
    ]
}

#[test]
fn arrays_are_zeros_and_keep_what_is_copied_to_them() {
    let name = "arrays::arrays_are_zeros_and_keep_what_is_copied_to_them";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    assert_ne!(rig.cuda.attributes().features & features::ARRAYS, 0);
    // Twice: the second may get memory that the first has used.
    for shape in shapes().iter().chain(&shapes()) {
        let array = rig.space.create_array(shape, Arc::new(())).unwrap();
        assert_eq!(array.shape(), shape);
        assert!(array.memory_bytes() >= shape.bytes());
        let zeros = rig.read_array(&array);
        assert!(zeros.iter().all(|byte| *byte == 0), "{shape:?}");
        let content: Vec<u8> = (0..shape.bytes()).map(|n| (n % 251 + 1) as u8).collect();
        rig.write_array(&array, &content);
        assert!(rig.read_array(&array) == content, "{shape:?}");
    }
    assert_no_objects();
}

#[test]
fn boxes_are_copied_and_nothing_beside_them() {
    let name = "arrays::boxes_are_copied_and_nothing_beside_them";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let shape = shape([8, 6, 4], U8, 1, 0);
    let array = rig.space.create_array(&shape, Arc::new(())).unwrap();
    let content: Vec<u8> = (0..192).collect();
    rig.write_array(&array, &content);
    let buffer = rig.buffer(MemoryKind::Host, GRANULE);
    let part = ArrayBox {
        memory: RectSide {
            address: buffer.va + 3,
            pitch: 10,
            rows: 4,
        },
        origin: [2, 1, 1],
        width: 5,
        height: 3,
        depth: 2,
    };
    rig.copy_array(&array, part, false).unwrap();
    rig.queue.finish().unwrap();
    let mut wanted = vec![0; 100];
    for (offset, row, slice) in part.rows() {
        let first = (slice as usize + 1) * 48 + (row as usize + 1) * 8 + 2;
        let at = 3 + offset as usize;
        wanted[at..at + 5].copy_from_slice(&content[first..first + 5]);
    }
    assert_eq!(host(&buffer.memory).bytes(100), wanted);

    // Back to the beginning.
    let back = ArrayBox {
        origin: [0; 3],
        ..part
    };
    rig.copy_array(&array, back, true).unwrap();
    let mut content = content;
    for (offset, row, slice) in part.rows() {
        let first = slice as usize * 48 + row as usize * 8;
        let at = 3 + offset as usize;
        content[first..first + 5].copy_from_slice(&wanted[at..at + 5]);
    }
    assert_eq!(rig.read_array(&array), content);
}

#[test]
fn copies_need_memory_that_is_mapped() {
    if !is_child("arrays::copies_need_memory_that_is_mapped", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let shape = shape([64, 0, 0], U8, 1, 0);
    let array = rig.space.create_array(&shape, Arc::new(())).unwrap();
    let secret = [7_u8; 64];
    let memory = rig.allocate(MemoryKind::Device, GRANULE).unwrap();
    let readable = rig.map(Arc::clone(&memory), Access::Read);
    let gone = rig.buffer(MemoryKind::Device, GRANULE);
    let gone_va = gone.va;
    rig.free(gone);
    for (address, is_into_array) in [
        (gone_va, true),
        (gone_va, false),
        (secret.as_ptr() as u64, true),
        (secret.as_ptr() as u64, false),
        (readable.va, false),
        (readable.va + GRANULE - 63, true),
        (0, true),
    ] {
        let part = whole(&shape, address, 0);
        let fault = rig.copy_array(&array, part, is_into_array).unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault, "{address:#x}: {fault}");
        rig.renew_queue();
        let copy = ArrayCopy::new(&array, part, is_into_array).unwrap();
        let refused = rig.space.record(&[copy.into()]).err().unwrap();
        assert_eq!(refused.status, Status::MemoryFault);
    }
    assert_eq!(secret, [7; 64]);
    rig.copy_array(&array, whole(&shape, readable.va, 0), true)
        .unwrap();
    rig.queue.finish().unwrap();
    assert!(!rig.cuda.is_poisoned());
}

#[test]
fn a_box_of_rows_lies_in_one_mapping() {
    if !is_child("arrays::a_box_of_rows_lies_in_one_mapping", &[]) {
        return;
    }
    let mut rig = Rig::new();
    let shape = shape([64, 2, 0], U8, 1, 0);
    let array = rig.space.create_array(&shape, Arc::new(())).unwrap();
    let memory = rig.allocate(MemoryKind::Host, 2 * GRANULE).unwrap();
    let map = |wanted, offset| {
        let access = Access::ReadWrite;
        rig.space.map(wanted, &memory, offset, GRANULE, access)
    };
    let first = map(None, 0).unwrap();
    // Where the driver gives host memory addresses of its own, there is no second one beside it.
    let Ok(second) = map(Some(first + GRANULE), GRANULE) else {
        return;
    };
    let fault = rig.copy_array(&array, whole(&shape, second - 64, 0), true);
    let fault = fault.unwrap_err();
    assert_eq!(fault.status, Status::MemoryFault);
    assert!(fault.text.contains("more than one mapping"), "{fault}");
}

#[test]
fn errors_of_the_driver_have_their_statuses() {
    let name = "arrays::errors_of_the_driver_have_their_statuses";
    if !is_child(name, &[("CAUSEWAY_STANDIN_MEMORY", "67108864")]) {
        return;
    }
    let rig = Rig::new();
    let status = |shape: &ArrayShape| {
        rig.space
            .create_array(shape, Arc::new(()))
            .err()
            .map(|e| e.status)
    };
    let huge = shape([16_384; 3], FLOAT, 4, 0);
    assert_eq!(status(&huge), Some(Status::NoMemory));
    // Gathering has smaller limits than all else.
    let wide = shape([40_000, 10, 0], FLOAT, 1, GATHER);
    assert_eq!(status(&wide), Some(Status::Unsupported));
    // Memory that is kept for reuse makes room.
    drop(rig.allocate(MemoryKind::Device, 48 << 20).unwrap());
    let large = shape([4096, 2048, 0], FLOAT, 1, 0);
    assert_eq!(status(&large), None);
    assert_no_objects();
}

#[test]
fn a_recording_keeps_the_arrays_that_it_copies() {
    let name = "arrays::a_recording_keeps_the_arrays_that_it_copies";
    if !is_child(name, &[]) {
        return;
    }
    let mut rig = Rig::new();
    let shape = shape([256, 4, 0], U8, 1, 0);
    let array = rig.space.create_array(&shape, Arc::new(())).unwrap();
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let result = rig.buffer(MemoryKind::Host, GRANULE);
    let copy = |address, is_into_array| -> Recorded {
        let part = whole(&shape, address, 0);
        ArrayCopy::new(&array, part, is_into_array).unwrap().into()
    };
    let fill = MemoryWork::Fill {
        destination: memory.va,
        bytes: 1024,
        pattern: 0x2a2a_2a2a,
        width: 4,
    };
    let work = [
        copy(result.va, false),
        Recorded::Memory(fill),
        copy(memory.va, true),
        copy(result.va + 1024, false),
    ];
    let recording = rig.space.record(&work).unwrap();
    drop((work, array));
    let replay = |rig: &mut Rig| {
        let recording = &recording;
        rig.queue.submit(Work::Replay { recording })
    };
    for before in [0, 0x2a] {
        replay(&mut rig).unwrap();
        rig.queue.finish().unwrap();
        let bytes = host(&result.memory).bytes(2048);
        assert!(bytes[..1024].iter().all(|byte| *byte == before));
        assert!(bytes[1024..].iter().all(|byte| *byte == 0x2a));
    }
    rig.free(memory);
    assert_eq!(replay(&mut rig).unwrap_err().status, Status::MemoryFault);
    rig.renew_queue();
    drop(recording);
    assert_no_objects();
}

#[test]
fn textures_and_surfaces_end() {
    if !is_child("arrays::textures_and_surfaces_end", &[]) {
        return;
    }
    let rig = Rig::new();
    let array = rig
        .space
        .create_array(&shape([64, 64, 0], FLOAT, 1, SURFACE), Arc::new(()));
    let array = array.unwrap();
    let memory = rig.buffer(MemoryKind::Device, GRANULE);
    let row = |address| TextureSource::Linear {
        address,
        bytes: 4096,
        element: element(U32, 4),
    };
    let rows = |address, pitch| TextureSource::Rows {
        address,
        width: 60,
        height: 10,
        pitch,
        element: element(U8, 4),
    };
    let sampling = Sampling {
        address_modes: [AddressMode::Border; 3],
        border: [1.0; 4],
        ..Sampling::default()
    };
    let make = |source| rig.space.create_texture(source, &sampling);
    let made = [
        make(TextureSource::Array(&array)).unwrap(),
        make(TextureSource::Surface(&array)).unwrap(),
        make(row(memory.va)).unwrap(),
        make(rows(memory.va, 256)).unwrap(),
        // A kernel that reads it would fault.
        make(row(memory.va + (64 << 30))).unwrap(),
    ];
    assert!(made.iter().all(|texture| texture.object() != 0));
    for refused in [row(memory.va + 16), rows(memory.va, 244)] {
        let refused = make(refused).err().unwrap();
        assert_eq!(refused.status, Status::Unsupported);
    }
    if is_on_standin() {
        assert_eq!(live_objects(), 6);
    }
    // Textures keep their array.
    drop(array);
    drop(made);
    assert_no_objects();
}

/// A copy of the stand-in, one of whose functions has another name.
fn crippled() -> Option<PathBuf> {
    let Ok(Driver::StandIn(folder)) = machine::driver() else {
        return None;
    };
    let (lacks, other) = (b"cuSurfObjectCreate", b"cuSurfObjectCleate");
    let mut library = std::fs::read(folder.join("libcuda.so.1")).unwrap();
    let places: Vec<usize> = (0..library.len() - lacks.len())
        .filter(|at| library[*at..].starts_with(lacks))
        .collect();
    for at in places {
        library[at..at + other.len()].copy_from_slice(other);
    }
    let copy = std::env::temp_dir().join(format!("cuda-{}-crippled", std::process::id()));
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::write(copy.join("libcuda.so.1"), library).unwrap();
    Some(copy)
}

#[test]
fn a_driver_without_the_functions_has_no_arrays() {
    let name = "arrays::a_driver_without_the_functions_has_no_arrays";
    let folder = crippled();
    let path = folder.as_deref().and_then(Path::to_str).unwrap_or_default();
    let is_child = is_child(name, &[("LD_LIBRARY_PATH", path)]);
    if let Some(folder) = folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    if !is_child {
        return;
    }
    let rig = Rig::new();
    let cuda: &Cuda = &rig.cuda;
    assert_eq!(cuda.attributes().features & features::ARRAYS, 0);
    let refused = rig
        .space
        .create_array(&shape([1, 0, 0], U8, 1, 0), Arc::new(()));
    assert_eq!(refused.err().unwrap().status, Status::Unsupported);
}
