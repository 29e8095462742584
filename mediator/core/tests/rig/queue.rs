//! Command buffers, packets, and waiting for what comes of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_mediator_testing::{FakeHost, Producer};
use causeway_protocol::message::{CommandBufferReply, Status};
use causeway_protocol::packet;
use zerocopy::IntoBytes;

/// A guest's view of a command buffer.
pub struct Queue {
    pub handle: u32,
    pub doorbell: u32,
    pub memory: u32,
    pub producer: Producer,
    host: Arc<FakeHost>,
}

impl Queue {
    /// The command buffer that `reply` tells of, in `memory` at `offset` of the aperture.
    pub fn new(host: &Arc<FakeHost>, reply: &CommandBufferReply, memory: u32, offset: u64) -> Self {
        Self {
            handle: reply.handle,
            doorbell: reply.doorbell,
            memory,
            producer: Producer::new(host.map(offset).unwrap()).unwrap(),
            host: Arc::clone(host),
        }
    }

    /// Pushes and publishes packets, and rings if need be.
    pub fn submit(&mut self, packets: &[&[u8]]) {
        for packet in packets {
            self.producer.push(packet);
        }
        if self.producer.publish() {
            assert!(self.host.ring(self.doorbell));
        }
    }

    /// The fault, once there is one.
    pub fn wait_for_fault(&self) -> Option<Status> {
        eventually("a fault word", || self.producer.fault() != 0);
        Status::from_wire(self.producer.fault() as u32)
    }
}

pub fn release(address: u64, value: u64) -> packet::Fence {
    fence(packet::Opcode::FenceRelease, address, value)
}

pub fn fence(opcode: packet::Opcode, address: u64, value: u64) -> packet::Fence {
    packet::Fence {
        header: header(opcode, 1),
        address,
        value,
        ..packet::Fence::default()
    }
}

pub fn replay(recording: u32) -> packet::Replay {
    packet::Replay {
        header: header(packet::Opcode::Replay, 1),
        recording,
        ..packet::Replay::default()
    }
}

pub fn copy_rect(shape: packet::CopyShape) -> packet::CopyRect {
    packet::CopyRect {
        header: header(packet::Opcode::CopyRect, 1),
        shape,
        ..packet::CopyRect::default()
    }
}

/// A copy into an array (0) or out of it (1).
pub fn copy_array(array: u32, direction: u32, part: packet::ArrayBox) -> packet::CopyArray {
    packet::CopyArray {
        header: header(packet::Opcode::CopyArray, 1),
        array,
        direction,
        part,
        reserved: 0,
    }
}

pub fn header(opcode: packet::Opcode, units: u32) -> packet::Header {
    packet::Header {
        opcode: opcode as u16,
        reserved: 0,
        units,
    }
}

/// A launch packet of one thread.
pub fn launch(kernel: u32, parameters: &[u8]) -> Vec<u8> {
    let launch = packet::Launch {
        header: header(
            packet::Opcode::Launch,
            packet::launch_units(parameters.len()),
        ),
        kernel,
        shape: packet::LaunchShape {
            shared_bytes: 0,
            grid: [1; 3],
            block: [1; 3],
        },
        parameter_bytes: parameters.len() as u32,
        ..packet::Launch::default()
    };
    let mut bytes = launch.as_bytes().to_vec();
    bytes.extend(parameters);
    bytes.resize(bytes.len().next_multiple_of(packet::UNIT_BYTES), 0);
    bytes
}

/// Waits for something that happens by itself.
#[track_caller]
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !happened() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::yield_now();
    }
}
