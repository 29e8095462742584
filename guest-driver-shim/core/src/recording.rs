//! Recordings: packets that the device validates once, and replays by one packet each time.

use causeway_protocol::message::{self, operation};
use causeway_protocol::packet::{LaunchShape, UNIT_BYTES};
use zerocopy::IntoBytes;

use crate::error::RecordingError;
use crate::module::Parameters;
use crate::object::Object;
use crate::packets::{self, packet_methods};
use crate::producer::Unit;
use crate::space::AddressSpace;
use crate::window::Window;

/// Why a packet was not added to a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The recorder's memory has no room for the packet.
    #[error(
        "the recording needs {wanted_bytes} bytes, but its memory has {room_bytes} bytes: give \
         the recording more memory, up to 1 MiB, or divide it into several recordings"
    )]
    Full {
        /// Size that the recording would have with the packet, in bytes.
        wanted_bytes: usize,
        /// Size of the memory in bytes.
        room_bytes: usize,
    },
    /// The parameters of a launch are not all set.
    #[error(
        "cannot record the launch of the kernel: its parameter {index}, counted from 0, is not \
         set; set it first"
    )]
    ParameterMissing {
        /// Index of the first parameter that is not set, from 0.
        index: usize,
    },
}

/// Writes packets one after the other into memory, to make a recording of them.
///
/// The methods that write packets are those of [`crate::CommandBuffer`], except `acquire` and
/// `replay`: a recording cannot contain these packets.
#[derive(Debug)]
pub struct Recorder {
    memory: Window,
    address: u64,
    used_bytes: usize,
}

impl Recorder {
    /// Returns a recorder without packets. The recorder writes packets to `memory`, which must be
    /// contiguous guest RAM that begins at guest-physical `address`. It uses at most
    /// [`message::RECORDING_BYTES_MAX`] bytes. After [`Self::record`], the caller may reuse the
    /// memory.
    #[must_use]
    pub const fn new(memory: Window, address: u64) -> Self {
        Self {
            memory,
            address,
            used_bytes: 0,
        }
    }

    /// Returns the size in bytes of all packets written so far.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.used_bytes
    }

    /// Removes all packets.
    pub const fn clear(&mut self) {
        self.used_bytes = 0;
    }

    /// Writes a packet that launches the kernel for which `parameters` was created, with the grid,
    /// block and shared memory in `shape`.
    ///
    /// # Errors
    /// [`RecordError::ParameterMissing`] if a parameter of the kernel is not set;
    /// [`RecordError::Full`] if the memory has no room for the packet.
    pub fn launch<const UNITS: usize>(
        &mut self,
        shape: LaunchShape,
        parameters: &Parameters<'_, UNITS>,
    ) -> Result<(), RecordError> {
        let (head, tail_units) = packets::launch(shape, parameters)
            .map_err(|index| RecordError::ParameterMissing { index })?;
        let wanted_bytes = self.used_bytes + (1 + tail_units as usize) * UNIT_BYTES;
        self.check_room(wanted_bytes)?;
        self.push(head)?;
        (0..tail_units as usize).try_for_each(|index| self.push(parameters.unit(index)))
    }

    packet_methods!(RecordError);

    /// Writes one unit (64 bytes) of packet data unchanged, for packets that have no method of
    /// their own.
    ///
    /// # Errors
    /// [`RecordError::Full`] if the memory has no room.
    pub fn push(&mut self, unit: Unit) -> Result<(), RecordError> {
        let wanted_bytes = self.used_bytes + UNIT_BYTES;
        self.check_room(wanted_bytes)?;
        // It fits, as was just checked.
        let _ = self.memory.write(self.used_bytes, unit.as_bytes());
        self.used_bytes = wanted_bytes;
        Ok(())
    }

    /// Makes a recording of the packets, which the device copies and validates. Afterwards the
    /// recorder can be cleared and used again. One exit.
    ///
    /// # Errors
    /// [`RecordingError`] if a packet is malformed (the refusal's detail is the packet's offset in
    /// bytes), or a limit of the session is reached.
    pub fn record<'d>(&self, space: &AddressSpace<'d>) -> Result<Recording<'d>, RecordingError> {
        let device = space.device();
        let bytes = self.used_bytes as u64;
        let request = message::CreateRecording {
            space: space.handle(),
            reserved: 0,
            address: self.address,
            bytes,
        };
        match device.call::<operation::CreateRecording>(&request) {
            Ok(reply) => Ok(Recording {
                object: Object::new(device, reply.handle),
                bytes,
            }),
            Err(refusal) => Err(RecordingError { bytes, refusal }),
        }
    }

    fn check_room(&self, wanted_bytes: usize) -> Result<(), RecordError> {
        let most = message::RECORDING_BYTES_MAX as usize;
        let room_bytes = self.memory.bytes().min(most);
        if wanted_bytes <= room_bytes {
            Ok(())
        } else {
            Err(RecordError::Full {
                wanted_bytes,
                room_bytes,
            })
        }
    }
}

/// Packets that the device has validated, and that one packet ([`crate::CommandBuffer::replay`])
/// executes. Dropping this value destroys the recording: the device finishes replays that it has
/// begun, and a later replay is a fault. The recording keeps its kernels usable even if their
/// module is unloaded.
#[derive(Debug)]
pub struct Recording<'d> {
    object: Object<'d, operation::DestroyRecording>,
    bytes: u64,
}

impl Recording<'_> {
    /// Returns the handle that replay packets use for this recording.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Returns the size in bytes of all packets in the recording.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Destroys the recording. The device finishes replays that it has begun; a later replay is a
    /// fault. One exit.
    ///
    /// # Errors
    /// [`RecordingError`] if the session is lost.
    pub fn destroy(self) -> Result<(), RecordingError> {
        let Self { object, bytes } = self;
        let ended = object.end();
        ended.map_err(|refusal| RecordingError { bytes, refusal })
    }
}
