//! The I/O ports of the test device.

use std::sync::Arc;

use causeway_testdev_records::{
    PORT_EXIT, PORT_MARK, PORT_RECORD, PORT_RECORD_APERTURE, PORT_TEXT,
};
use causeway_vmm::bus::{BusDevice, Effect, Refusal, Response};

use crate::interval::MARKER;
use crate::record::Recorded;
use crate::recorder::Recorder;

const EXIT: u64 = 0;
const RECORD: u64 = (PORT_RECORD - PORT_EXIT) as u64;
const RECORD_APERTURE: u64 = (PORT_RECORD_APERTURE - PORT_EXIT) as u64;
const TEXT: u64 = (PORT_TEXT - PORT_EXIT) as u64;
const MARK: u64 = (PORT_MARK - PORT_EXIT) as u64;

/// The I/O ports of the test device, from [`PORT_EXIT`] on, as a device on the VM's port bus. The
/// ports act on 4-byte accesses only. Only the port of marks can be loaded from.
#[derive(Debug)]
pub struct Ports(pub Arc<Recorder>);

impl BusDevice for Ports {
    fn name(&self) -> &'static str {
        MARKER.device
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        if offset != MARK || into.len() != 4 {
            return Response::refused(Refusal::NoRegister);
        }
        into.copy_from_slice(&self.0.mark_answer().to_le_bytes());
        Response::ok(MARKER.register)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let register = match offset {
            EXIT => "exit",
            RECORD | RECORD_APERTURE | TEXT | MARK => MARKER.register,
            _ => return Response::refused(Refusal::NoRegister),
        };
        let response = Response::ok(register);
        let Ok(value) = from.try_into().map(u32::from_le_bytes) else {
            log::debug!("a {}-byte store to a port of the test device", from.len());
            return response;
        };
        let recorded = match offset {
            EXIT => return response.with(Effect::End(value)),
            TEXT => {
                self.0.mark_text(value);
                return response;
            }
            MARK => {
                self.0.mark(value);
                return response;
            }
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
