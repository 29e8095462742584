//! The facts that `causeway-info` shows, as JSON.

use std::error::Error;
use std::fs;

use causeway_shim::protocol::VERSION_MAJOR;
use causeway_shim::protocol::registers::{Register, features};
use causeway_shim::{Attributes, Device, Transport};
use causeway_shim_linux::{ClientState, LinuxTransport, PciTransport, SOCKET_VARIABLE};
use serde::Serialize;

/// All facts.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Back end and device.
    pub device: String,
    /// Version of the protocol that both sides speak.
    pub protocol: String,
    /// Features, by name.
    pub features: Vec<&'static str>,
    /// Whether the session is lost, and to what.
    pub lost: Option<String>,
    /// GPU memory of this guest: its limit, and what is in use.
    pub memory: Memory,
    /// Other limits of this guest.
    pub limits: Limits,
    /// What the device can execute.
    pub compute: Compute,
    /// How the device is reached.
    pub path: Path,
}

/// Memory in bytes.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Limit.
    pub total_bytes: u64,
    /// In use by all processes of the guest together.
    pub used_bytes: u64,
    /// Sizes of allocations are rounded up to this.
    pub granularity_bytes: u64,
}

/// Limits of the guest.
#[derive(Debug, Serialize)]
pub struct Limits {
    /// Allocations.
    pub allocations: u32,
    /// Command buffers, each of which is a queue of its own.
    pub queues: u32,
    /// Bytes of a GPU address space.
    pub address_space_bytes: u64,
}

/// The device's size.
#[derive(Debug, Serialize)]
pub struct Compute {
    /// Multiprocessors, or cores of a CPU.
    pub units: u32,
    /// Threads of a warp.
    pub warp_threads: u32,
    /// Threads of a block, at most.
    pub block_threads: u32,
    /// Shared memory of a block in bytes, at most.
    pub shared_bytes: u32,
}

/// How the device is reached.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Path {
    /// Over a socket of the host.
    Socket {
        /// The socket.
        socket: String,
    },
    /// As a PCI function.
    Pci {
        /// Its address on the bus.
        function: String,
        /// How the CPU caches the aperture.
        caching: &'static str,
        /// Where interrupts come from; without, waits sleep for a while and look.
        interrupts: Option<String>,
        /// Stray accesses of this guest so far.
        stray_accesses: u32,
        /// How many processes can use the device at a time.
        clients_max: u32,
        /// The processes that use it, this program included.
        clients: Vec<ClientFacts>,
    },
}

/// A process that uses the device.
#[derive(Debug, Serialize)]
pub struct ClientFacts {
    /// Number of its page of registers.
    pub client: u32,
    /// The process; `None` if it has ended.
    pub process: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// Whether it owns anything.
    pub owns: bool,
}

/// Asks the device for all facts.
///
/// # Errors
/// The device cannot be opened or does not answer.
pub fn gather(transport: &LinuxTransport) -> Result<Facts, Box<dyn Error>> {
    let device = Device::open(transport)?;
    let attributes = device.attributes()?;
    let bits = device.features() | registers_features(transport);
    Ok(Facts {
        device: name(&attributes),
        protocol: format!("{VERSION_MAJOR}.{}", device.minor_version()),
        features: feature_names(bits),
        lost: lost(&device)?,
        memory: Memory {
            total_bytes: attributes.memory_bytes,
            used_bytes: attributes.memory_used_bytes,
            granularity_bytes: attributes.granularity_bytes,
        },
        limits: Limits {
            allocations: attributes.allocations_max,
            queues: attributes.command_buffers_max,
            address_space_bytes: attributes.va_bytes,
        },
        compute: Compute {
            units: attributes.compute_units,
            warp_threads: attributes.warp_threads,
            block_threads: attributes.block_threads_max,
            shared_bytes: attributes.shared_bytes_max,
        },
        path: match transport {
            LinuxTransport::Pci(pci) => pci_path(pci),
            LinuxTransport::Socket(_) => Path::Socket {
                socket: std::env::var(SOCKET_VARIABLE).unwrap_or_default(),
            },
        },
    })
}

fn registers_features(transport: &LinuxTransport) -> u64 {
    let low = transport.read_register(Register::FeaturesLow);
    let high = transport.read_register(Register::FeaturesHigh);
    u64::from(high) << 32 | u64::from(low)
}

fn name(attributes: &Attributes) -> String {
    let end = attributes.name.iter().position(|byte| *byte == 0);
    let used = &attributes.name[..end.unwrap_or(attributes.name.len())];
    String::from_utf8_lossy(used).into_owned()
}

fn lost(device: &Device<'_>) -> Result<Option<String>, Box<dyn Error>> {
    if !device.is_lost() {
        return Ok(None);
    }
    let fault = device.fault()?;
    let used = (fault.text_bytes as usize).min(fault.text.len());
    Ok(Some(
        String::from_utf8_lossy(&fault.text[..used]).into_owned(),
    ))
}

fn feature_names(bits: u64) -> Vec<&'static str> {
    const NAMES: &[(u64, &str)] = &[
        (features::KERNELS, "kernels"),
        (features::GUEST_RAM, "guest_ram"),
        (features::SHARING, "sharing"),
        (features::RECORDING, "recording"),
        (features::COMPRESSION, "compression"),
        (features::DEVICE_VISIBLE, "device_visible_memory"),
        (features::CLIENTS, "clients"),
        (features::CONTROL_WINDOW, "control_windows"),
        (features::NOTIFY, "interrupts"),
    ];
    let known = NAMES.iter().filter(|(bit, _)| bits & bit != 0);
    known.map(|(_, name)| *name).collect()
}

fn pci_path(pci: &PciTransport) -> Path {
    let clients = pci.clients();
    Path::Pci {
        function: pci.function().name(),
        caching: pci.caching().name(),
        interrupts: pci
            .interrupts()
            .path()
            .map(|path| path.display().to_string()),
        stray_accesses: pci.read_register(Register::StrayCount),
        clients_max: clients.count() - 1,
        clients: clients.states().iter().map(client).collect(),
    }
}

fn client(state: &ClientState) -> ClientFacts {
    let name = |process| fs::read_to_string(format!("/proc/{process}/comm")).ok();
    ClientFacts {
        client: state.number,
        process: state.process,
        name: state
            .process
            .and_then(name)
            .map(|name| name.trim().to_owned()),
        owns: state.owns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_zero_and_features_are_named() {
        let mut attributes = Attributes::default();
        attributes.name[..8].copy_from_slice(b"software");
        assert_eq!(name(&attributes), "software");
        let bits = features::KERNELS | features::SHARING | 1 << 63;
        assert_eq!(feature_names(bits), ["kernels", "sharing"]);
    }
}
