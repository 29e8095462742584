//! The I/O ports of the test device.

use std::sync::Arc;

use causeway_testdev_records::{PORT_EXIT, PORT_RECORD, PORT_RECORD_APERTURE};
use causeway_vmm::bus::{BusDevice, Effect, Refusal, Response};

use crate::phases::MARKER;
use crate::record::Recorded;
use crate::recorder::Recorder;

const EXIT: u64 = 0;
const RECORD: u64 = (PORT_RECORD - PORT_EXIT) as u64;
const RECORD_APERTURE: u64 = (PORT_RECORD_APERTURE - PORT_EXIT) as u64;

/// The I/O ports of the test device, from [`PORT_EXIT`] on, as a device on the VM's port bus. The
/// ports act on 4-byte stores only.
#[derive(Debug)]
pub struct Ports(pub Arc<Recorder>);

impl BusDevice for Ports {
    fn name(&self) -> &'static str {
        MARKER.device
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Response {
        Response::refused(Refusal::NoRegister)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let register = match offset {
            EXIT => "exit",
            RECORD | RECORD_APERTURE => MARKER.register,
            _ => return Response::refused(Refusal::NoRegister),
        };
        let response = Response::ok(register);
        let Ok(value) = from.try_into().map(u32::from_le_bytes) else {
            log::debug!("a {}-byte store to a port of the test device", from.len());
            return response;
        };
        let recorded = match offset {
            EXIT => return response.with(Effect::End(value)),
            RECORD => self.0.record(value),
            _ => self.0.record_in_aperture(value),
        };
        match recorded {
            // A guest notices that a record was refused: it gets no reply. The debug log says why.
            Recorded::Done | Recorded::Refused(_) => response,
            Recorded::Park => response.with(Effect::Park),
        }
    }
}
