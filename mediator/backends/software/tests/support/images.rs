//! Arrays with content, and kernels that get an object.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use causeway_mediator::backend::{
    Array, ArrayBox, ArrayCopy, ArrayShape, Element, ElementFormat, Fault, Space, Work,
};
use causeway_protocol::Access;
use causeway_protocol::packet::RectSide;

use crate::support::Device;

pub fn element(format: ElementFormat, channels: u32) -> Element {
    Element { format, channels }
}

pub fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// The box that is the whole array, with its rows at `address`.
pub fn whole(shape: &ArrayShape, address: u64) -> ArrayBox {
    let [width, height, depth] =
        [shape.row_bytes(), shape.rows(), shape.slices()].map(|side| side as u32);
    ArrayBox {
        memory: RectSide {
            address,
            pitch: width,
            rows: height,
        },
        origin: [0; 3],
        width,
        height,
        depth,
    }
}

/// An array with this content.
pub fn array(
    device: &mut Device,
    size: [u64; 3],
    element: Element,
    flags: u32,
    content: &[u8],
) -> Arc<dyn Array> {
    let shape = ArrayShape::new(size, element, flags).expect("CUDA has such an array");
    assert_eq!(content.len() as u64, shape.bytes());
    let array = device.space.create_array(&shape, Arc::new(())).unwrap();
    let memory = device.buffer(shape.bytes(), Access::Read);
    memory.write(content);
    let copy = ArrayCopy::new(&array, whole(&shape, memory.va), true).unwrap();
    device.queue.submit(Work::Array(copy)).unwrap();
    array
}

/// The content of an array.
pub fn content(device: &mut Device, array: &Arc<dyn Array>) -> Vec<u8> {
    let shape = *array.shape();
    let memory = device.buffer(shape.bytes(), Access::ReadWrite);
    let copy = ArrayCopy::new(array, whole(&shape, memory.va), false).unwrap();
    device.queue.submit(Work::Array(copy)).unwrap();
    memory.bytes(shape.bytes() as usize)
}

/// Runs the body with the object in `%d9` and the input behind `%in`, on a thread for each of its
/// words.
pub fn run(
    device: &mut Device,
    object: u64,
    body: &str,
    input: &[u32],
    output_words: usize,
) -> Result<Vec<u32>, Fault> {
    let threads = input.len().max(1) as u32;
    let body = format!("mov.u64 %d9, {object};\n{body}");
    device.run(&body, (1, threads), input, output_words)
}
