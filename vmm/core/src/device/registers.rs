//! BAR 0: the control registers, by [`causeway_protocol::registers`].

use std::sync::Arc;

use causeway_mediator::{Client, GuestSession};
use causeway_protocol::registers::{
    CLIENTS, Direction, MAGIC, PAGE_BYTES, RESET_KEY, Register, doorbells, features, status,
};
use causeway_protocol::{VERSION_MAJOR, VERSION_MINOR};

use super::GuestHost;
use super::page::Page;
use crate::bus::{BusDevice, Refusal, Response, StrayCounters};

/// Features of these registers, with every back end.
const REGISTER_FEATURES: u64 = features::CONTROL_WINDOW;

/// BAR 0 of the Causeway function as a device on the MMIO bus: the control registers, with a page
/// of them for each client.
pub struct Registers {
    host: Arc<GuestHost>,
    session: Arc<dyn GuestSession>,
    features: u64,
    strays: Arc<StrayCounters>,
    /// The page of each client, by [`Client::index`].
    pages: Vec<Page>,
}

debug_by_name!(Registers);

impl Registers {
    /// Returns the registers by which the guest `host` uses its session `session`. `features` is a
    /// bit set of [`causeway_protocol::registers::features`], and `strays` counts the guest's stray
    /// accesses; the guest can read both from the registers.
    pub fn new(
        host: Arc<GuestHost>,
        session: Arc<dyn GuestSession>,
        features: u64,
        strays: Arc<StrayCounters>,
    ) -> Self {
        Self {
            host,
            session,
            features: features | REGISTER_FEATURES,
            strays,
            pages: Client::all().map(Page::new).collect(),
        }
    }

    fn load(&self, client: Client, register: Register) -> u32 {
        let page = &self.pages[client.index()];
        match register {
            Register::Magic => MAGIC,
            Register::Version => u32::from(VERSION_MAJOR) << 16 | u32::from(VERSION_MINOR),
            Register::FeaturesLow => low(self.features),
            Register::FeaturesHigh => high(self.features),
            Register::Status => self.status(client),
            Register::BatchStatus => page.batch_status(),
            Register::Reset | Register::ControlDoorbell => 0,
            Register::ControlBaseLow => low(page.base()),
            Register::ControlBaseHigh => high(page.base()),
            Register::ApertureLow => low(self.host.aperture.bytes()),
            Register::ApertureHigh => high(self.host.aperture.bytes()),
            Register::DoorbellCount => doorbells::COUNT,
            Register::StrayCount => u32::try_from(self.strays.total()).unwrap_or(u32::MAX),
            Register::ControlWindowLow => low(page.window_offset(&self.host)),
            Register::ControlWindowHigh => high(page.window_offset(&self.host)),
            Register::InterruptStatus => self.host.interrupts.is_pending(client).into(),
            Register::ClientCount => CLIENTS,
        }
    }

    fn store(&self, client: Client, register: Register, value: u32) {
        let page = &self.pages[client.index()];
        match register {
            Register::Reset if value == RESET_KEY => self.reset(client),
            Register::ControlBaseLow => {
                page.set_base(|base| base & !u64::from(u32::MAX) | u64::from(value));
            }
            Register::ControlBaseHigh => {
                page.set_base(|base| base & u64::from(u32::MAX) | u64::from(value) << 32);
            }
            Register::ControlDoorbell => {
                page.execute(&self.host, value, |batch| {
                    self.session.execute(client, batch)
                });
            }
            Register::InterruptStatus if value & 1 != 0 => {
                self.host.interrupts.acknowledge(client);
            }
            _ => {}
        }
    }

    /// Returns the value of the status register: whether the session can be used, and whether the
    /// client has something that its reset would end.
    fn status(&self, client: Client) -> u32 {
        let bits = self.session.status_bits();
        let owns = self.session.owners() & client.bit() != 0
            || self.pages[client.index()].has_window()
            || self.host.interrupts.is_pending(client);
        // Page 0 shows what it did when there was no other.
        if owns && client != Client::FIRST {
            bits | status::OWNS
        } else {
            bits
        }
    }

    /// Ends what `client` has; for the first client, what all clients have.
    fn reset(&self, client: Client) {
        if client != Client::FIRST {
            self.session.reset_client(client);
            let page = &self.pages[client.index()];
            page.remove_window(&self.host);
            page.clear();
            // Last, as the session may raise it until it has ended the client.
            self.host.interrupts.acknowledge(client);
            return;
        }
        self.session.reset();
        for page in &self.pages {
            page.remove_window(&self.host);
        }
        // The base of page 0 stays, as it did when there was no other.
        self.pages[1..].iter().for_each(Page::clear);
        self.host.interrupts.clear();
    }
}

impl BusDevice for Registers {
    fn name(&self) -> &'static str {
        "registers"
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Response {
        let Ok(word) = <&mut [u8; 4]>::try_from(into) else {
            return Response::refused(Refusal::BadSize);
        };
        match find(offset) {
            Ok((client, register)) => {
                *word = self.load(client, register).to_le_bytes();
                Response::ok(register.name())
            }
            Err(refusal) => Response::refused(refusal),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Response {
        let Ok(word) = <[u8; 4]>::try_from(from) else {
            return Response::refused(Refusal::BadSize);
        };
        match find(offset) {
            Ok((_, register)) if register.direction() == Direction::ReadOnly => {
                Response::refused(Refusal::ReadOnly)
            }
            Ok((client, register)) => {
                self.store(client, register, u32::from_le_bytes(word));
                Response::ok(register.name())
            }
            Err(refusal) => Response::refused(refusal),
        }
    }
}

/// Returns the register that an access at `offset` reaches, and its client.
fn find(offset: u64) -> Result<(Client, Register), Refusal> {
    if !offset.is_multiple_of(4) {
        return Err(Refusal::Misaligned);
    }
    let client = u32::try_from(offset / PAGE_BYTES)
        .ok()
        .and_then(Client::new);
    let register = Register::at(offset % PAGE_BYTES);
    client.zip(register).ok_or(Refusal::NoRegister)
}

const fn low(value: u64) -> u32 {
    value as u32
}

const fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

#[cfg(test)]
mod tests;
