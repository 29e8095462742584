//! Recordings: packets that are validated once and replayed many times.

use std::sync::Arc;

use causeway_protocol::message::{
    CreateRecording, Empty, HandleReply, HandleRequest, RECORDING_BYTES_MAX, Status,
};
use causeway_protocol::packet::UNIT_BYTES;
use causeway_protocol::registers::features;

use super::{check_aligned, nothing};
use crate::charged::Charged;
use crate::client_session::ClientSession;
use crate::command_buffer::compile;
use crate::object::{Object, RecordingEntry, SpaceEntry};
use crate::quota::Resource;
use crate::refusal::{Refusal, refuse_if};

/// What the host keeps of each byte of a recorded packet, at most: structures of the mediator and
/// of the back end.
const KEPT_FOR_A_PACKET_BYTE: u64 = 16;

impl ClientSession<'_> {
    /// Validates and records without the session's lock: a long recording must not block the
    /// guest's other CPUs.
    pub(super) fn create_recording(
        &self,
        request: CreateRecording,
    ) -> Result<HandleReply, Refusal> {
        self.require(features::RECORDING)?;
        let space = self.open_space(request.space)?;
        let bytes = request.bytes;
        refuse_if(bytes == 0 || bytes > RECORDING_BYTES_MAX, Status::BadRange)?;
        check_aligned(UNIT_BYTES as u64, &[bytes])?;
        let kept = bytes * KEPT_FOR_A_PACKET_BYTE;
        let packets_charge = self.account.charge(Resource::ModuleBytes, kept)?;
        let object_charge = self.account.charge(Resource::Objects, 1)?;
        let mut packets = vec![0; bytes as usize];
        self.read_guest(request.address, &mut packets)?;
        let work = compile(&packets, &space.shared)?;
        let recording = space.shared.backend.record(&work)?;
        // The size is known only now; a recording beyond the quota is dropped.
        let memory_charge = self
            .account
            .charge(Resource::MemoryBytes, recording.memory_bytes())?;
        let charges = [packets_charge, object_charge, memory_charge];
        let recording = Charged::attach(recording, charges);
        let mut state = self.lock_with(&space)?;
        let entry = RecordingEntry {
            space: request.space,
        };
        let handle = state.insert(Object::Recording(entry))?;
        space.shared.recordings.add(handle, recording);
        Ok(HandleReply {
            handle,
            reserved: 0,
        })
    }

    /// A replay under way holds the recording and its charges until it is done.
    pub(super) fn destroy_recording(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let recording = {
            let mut state = self.lock();
            let entry = state.get::<RecordingEntry>(request.handle)?;
            let space = Arc::clone(&state.get::<SpaceEntry>(entry.space)?.shared);
            state.remove(request.handle);
            space.recordings.remove(request.handle)
        };
        // This may be the last reference, and the back end may take long to end the recording.
        drop(recording);
        nothing()
    }
}
