//! Arrays and textures: what can be made, what copies reach, and who pays for how long.

mod copies;
mod lives;
mod making;
#[path = "../rig/mod.rs"]
mod rig;

use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_mediator::{GuestSession, Quota};
use causeway_mediator_testing::{FakeBackend, Live};
use causeway_protocol::message::*;
use causeway_protocol::packet::{self, UNIT_BYTES};
use causeway_protocol::registers::features;
use rig::*;
use zerocopy::IntoBytes;

/// What an array of the fake back end takes more than its elements.
const MORE_BYTES: u64 = 512;
/// Numbers of `cuda.h`.
const UNSIGNED_8: u32 = 1;
const FLOAT: u32 = 32;

fn array_of(space: u32, size: [u64; 3], flags: u32) -> CreateArray {
    CreateArray {
        space,
        flags,
        width: size[0],
        height: size[1],
        depth: size[2],
        format: FLOAT,
        channels: 1,
    }
}

fn create(guest: &Guest, request: &CreateArray) -> Result<ArrayReply, Refused> {
    guest.ask(Opcode::CreateArray, request)
}

fn create_texture(guest: &Guest, request: &CreateTexture) -> Result<TextureReply, Refused> {
    guest.ask(Opcode::CreateTexture, request)
}

/// A texture of rows of memory.
fn rows(space: u32, address: u64) -> CreateTexture {
    CreateTexture {
        space,
        source: TextureSource::Rows as u32,
        address,
        width: 16,
        height: 4,
        pitch: 64,
        format: FLOAT,
        channels: 1,
        ..CreateTexture::default()
    }
}

fn of_array(space: u32, array: u32, source: TextureSource) -> CreateTexture {
    CreateTexture {
        space,
        source: source as u32,
        array,
        ..CreateTexture::default()
    }
}
