//! Arrays, and the textures and surfaces by which kernels access arrays and memory.

use causeway_protocol::message::{self, operation};

use crate::error::{ArrayError, TextureError};
use crate::object::Object;
use crate::space::AddressSpace;

/// An array of an address space: elements in an order that only the device knows. Packets name it
/// by its handle ([`crate::CommandBuffer::copy_array`]).
///
/// Dropping this value destroys the array: the device finishes copies that it has begun, and a
/// later packet that names the array is a fault. Recordings and textures of the array stay usable.
#[derive(Debug)]
pub struct Array<'d> {
    object: Object<'d, operation::DestroyArray>,
    bytes: u64,
}

/// A texture or a surface of an address space. Dropping this value destroys it: kernels that still
/// use it fault, or read what nobody else has.
#[derive(Debug)]
pub struct Texture<'d> {
    object: Object<'d, operation::DestroyTexture>,
    number: u64,
}

/// Which way a copy between memory and an array goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayDirection {
    /// From memory into the array.
    Into = 0,
    /// Out of the array to memory.
    OutOf = 1,
}

impl<'d> AddressSpace<'d> {
    /// Creates the array of `request` in this address space, filled with zeros. Needs the feature
    /// [`ARRAYS`](causeway_protocol::registers::features::ARRAYS). One exit.
    ///
    /// # Errors
    /// [`ArrayError`] if CUDA has no such array (`BadRange`), a limit of the session is reached, or
    /// the session lacks the feature (`Unsupported`).
    pub fn create_array(&self, request: &message::CreateArray) -> Result<Array<'d>, ArrayError> {
        let request = message::CreateArray {
            space: self.handle(),
            ..*request
        };
        let device = self.device();
        device
            .call::<operation::CreateArray>(&request)
            .map(|reply| Array {
                object: Object::new(device, reply.handle),
                bytes: reply.bytes,
            })
            .map_err(|refusal| ArrayError { refusal })
    }

    /// Creates the texture or surface of `request` in this address space: of `array`, or of memory.
    /// Needs the feature [`ARRAYS`](causeway_protocol::registers::features::ARRAYS). One exit.
    ///
    /// # Errors
    /// [`TextureError`] if CUDA does not allow such a texture (`BadRange`), a limit of the session is
    /// reached, or the session lacks the feature (`Unsupported`).
    pub fn create_texture(
        &self,
        array: Option<&Array<'d>>,
        request: &message::CreateTexture,
    ) -> Result<Texture<'d>, TextureError> {
        let request = message::CreateTexture {
            space: self.handle(),
            array: array.map_or(0, Array::handle),
            ..*request
        };
        let device = self.device();
        device
            .call::<operation::CreateTexture>(&request)
            .map(|reply| Texture {
                object: Object::new(device, reply.handle),
                number: reply.object,
            })
            .map_err(|refusal| TextureError { refusal })
    }
}

impl Array<'_> {
    /// Returns the handle that packets and messages use for this array.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Returns the memory that the array takes, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Destroys the array. One exit.
    ///
    /// # Errors
    /// [`ArrayError`] if the session is lost.
    pub fn destroy(self) -> Result<(), ArrayError> {
        let ended = self.object.end();
        ended.map_err(|refusal| ArrayError { refusal })
    }
}

impl Texture<'_> {
    /// Returns the number that kernels get as a parameter (`CUtexObject`, `CUsurfObject`).
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Destroys the texture or surface. One exit.
    ///
    /// # Errors
    /// [`TextureError`] if the session is lost.
    pub fn destroy(self) -> Result<(), TextureError> {
        let ended = self.object.end();
        ended.map_err(|refusal| TextureError { refusal })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;

    use causeway_protocol::message::{Opcode, Status};
    use causeway_protocol::packet::{self, ArrayBox, RectSide};
    use causeway_protocol::ring;
    use zerocopy::FromBytes;

    use super::*;
    use crate::fake::{FakeDevice, answer};
    use crate::{CommandBuffer, Device, Recorder, Window};

    /// What messages about arrays and textures said, by their opcodes.
    #[derive(Default)]
    struct Seen {
        opcodes: Vec<Opcode>,
        array: Option<message::CreateArray>,
        texture: Option<message::CreateTexture>,
        ended: Vec<u32>,
    }

    /// A device that gives arrays handle 40 and textures handle 50, or refuses them.
    fn device(seen: &Arc<Mutex<Seen>>, refuses: bool) -> FakeDevice {
        let seen = Arc::clone(seen);
        FakeDevice::new(move |opcode, body| {
            let mut seen = seen.lock().unwrap();
            seen.opcodes.push(opcode);
            match opcode {
                Opcode::CreateSpace => answer(
                    body,
                    &message::HandleReply {
                        handle: 9,
                        reserved: 0,
                    },
                ),
                Opcode::CreateArray | Opcode::CreateTexture if refuses => (Status::QuotaBytes, 3),
                Opcode::CreateArray => {
                    seen.array = Some(message::CreateArray::read_from_prefix(body).unwrap().0);
                    let reply = message::ArrayReply {
                        handle: 40,
                        reserved: 0,
                        bytes: 65_536,
                    };
                    answer(body, &reply)
                }
                Opcode::CreateTexture => {
                    seen.texture = Some(message::CreateTexture::read_from_prefix(body).unwrap().0);
                    let reply = message::TextureReply {
                        handle: 50,
                        reserved: 0,
                        object: 0x1_0000_0002,
                    };
                    answer(body, &reply)
                }
                Opcode::DestroyArray | Opcode::DestroyTexture => {
                    let request = message::HandleRequest::read_from_prefix(body).unwrap().0;
                    seen.ended.push(request.handle);
                    (Status::Ok, 0)
                }
                Opcode::CreateCommandBuffer => answer(
                    body,
                    &message::CommandBufferReply {
                        handle: 60,
                        doorbell: 1,
                    },
                ),
                Opcode::Allocate => answer(
                    body,
                    &message::AllocateReply {
                        handle: 61,
                        access: 3,
                        size: 1 << 16,
                    },
                ),
                Opcode::MapCpu => answer(body, &message::AddressReply { address: 0 }),
                _ => (Status::Ok, 0),
            }
        })
    }

    fn description() -> message::CreateArray {
        message::CreateArray {
            width: 16,
            height: 8,
            format: 1,
            channels: 4,
            ..message::CreateArray::default()
        }
    }

    #[test]
    fn arrays_and_textures_belong_to_the_space_and_end_when_dropped() {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let fake = device(&seen, false);
        let device = Device::open(&fake).unwrap();
        let space = device.create_space().unwrap();
        let array = space.create_array(&description()).unwrap();
        assert_eq!((array.handle(), array.bytes()), (40, 65_536));
        let request = message::CreateTexture {
            filter: 1,
            ..message::CreateTexture::default()
        };
        let texture = space.create_texture(Some(&array), &request).unwrap();
        assert_eq!(texture.number(), 0x1_0000_0002);
        drop(texture);
        space
            .create_texture(None, &request)
            .unwrap()
            .destroy()
            .unwrap();
        assert_eq!(seen.lock().unwrap().texture.unwrap().array, 0);
        space.create_texture(Some(&array), &request).unwrap();
        drop(array);
        let seen = seen.lock().unwrap();
        let wanted = message::CreateArray {
            space: 9,
            ..description()
        };
        assert_eq!(seen.array, Some(wanted));
        let wanted = message::CreateTexture {
            space: 9,
            array: 40,
            ..request
        };
        assert_eq!(seen.texture, Some(wanted));
        assert_eq!(seen.ended, [50, 50, 50, 40]);
    }

    #[test]
    fn a_refusal_is_told_and_destroys_nothing() {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let fake = device(&seen, true);
        let device = Device::open(&fake).unwrap();
        let space = device.create_space().unwrap();
        let refused = space.create_array(&description()).unwrap_err();
        assert_eq!(refused.status(), Status::QuotaBytes);
        let request = message::CreateTexture::default();
        let refused = space.create_texture(None, &request).unwrap_err();
        assert_eq!(refused.refusal.opcode, Some(Opcode::CreateTexture));
        assert_eq!(seen.lock().unwrap().ended, []);
    }

    #[test]
    fn rings_and_recordings_get_the_same_packet() {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let fake = device(&seen, false);
        let device = Device::open(&fake).unwrap();
        let space = device.create_space().unwrap();
        let array = space.create_array(&description()).unwrap();
        let part = ArrayBox {
            memory: RectSide {
                address: 0x2_0000,
                pitch: 64,
                rows: 3,
            },
            origin: [4, 1, 0],
            width: 8,
            height: 3,
            depth: 1,
        };
        let mut commands = CommandBuffer::new(&space, 256).unwrap();
        let copied = commands.copy_array(&array, part, ArrayDirection::OutOf);
        copied.unwrap();
        let mut unit = [0; 64];
        let aperture: Window = device.aperture();
        let at = ring::HEADER_BYTES as usize;
        aperture.read(at, &mut unit).unwrap();
        let packet = packet::CopyArray::read_from_bytes(&unit).unwrap();
        assert_eq!(packet.header.opcode, packet::Opcode::CopyArray as u16);
        assert_eq!((packet.array, packet.direction), (40, 1));
        assert_eq!((packet.part, packet.reserved), (part, 0));

        let mut recorder = Recorder::new(aperture, 0x5000);
        let copied = recorder.copy_array(&array, part, ArrayDirection::Into);
        copied.unwrap();
        let mut recorded = [0; 64];
        aperture.read(0, &mut recorded).unwrap();
        let recorded = packet::CopyArray::read_from_bytes(&recorded).unwrap();
        let wanted = packet::CopyArray {
            direction: 0,
            ..packet
        };
        assert_eq!(recorded, wanted);
    }
}
