//! The entropy device (Virtual I/O Device Version 1.2, 5.4): random numbers of the host's kernel.

use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;
use vm_memory::GuestMemoryMmap;

use super::chain::Chain;
use super::device::{Kind, ServeError, VirtioDevice};

/// Most bytes for one request. A driver that asks for more gets as many, which is allowed
/// (5.4.6.1), and asks again.
const REQUEST_BYTES_MAX: usize = 4096;

/// A virtio device that gives the guest random numbers from the host's kernel.
#[derive(Debug, Default)]
pub struct Entropy;

impl VirtioDevice for Entropy {
    fn kind(&self) -> Kind {
        Kind {
            id: VIRTIO_ID_RNG as u16,
            class: (0xff, 0x00),
            name: "virtio-rng",
        }
    }

    fn features(&self) -> u64 {
        0
    }

    fn configuration(&self) -> &[u8] {
        &[]
    }

    fn begin(&mut self, _features: u64) {}

    fn serve(
        &mut self,
        _: u16,
        request: &Chain,
        memory: &GuestMemoryMmap,
    ) -> Result<u32, ServeError> {
        if request.readable.bytes() != 0 {
            let rule = "a request for random numbers must not have buffers that the device reads";
            return Err(ServeError::Malformed { rule });
        }
        let wanted = request.writable.bytes().min(REQUEST_BYTES_MAX as u64);
        let mut numbers = [0; REQUEST_BYTES_MAX];
        let numbers = &mut numbers[..wanted as usize];
        getrandom::fill(numbers).map_err(ServeError::Entropy)?;
        Ok(request.writable.write(memory, numbers)? as u32)
    }
}
