//! The facts that `causeway-info` shows, as JSON.

use std::error::Error;
use std::fs;

use causeway_shim::protocol::VERSION_MAJOR;
use causeway_shim::protocol::registers::{Register, features};
use causeway_shim::{Attributes, Device, Transport};
use causeway_shim_linux::{ClientState, LinuxTransport, PciTransport, SOCKET_VARIABLE};
use serde::Serialize;

/// Everything that `causeway-info` shows about a device.
#[derive(Debug, Serialize)]
pub struct Facts {
    /// Name of the back end and the device.
    pub device: String,
    /// Version of the protocol that guest and host use, such as `1.2`.
    pub protocol: String,
    /// Names of the features that the device has.
    pub features: Vec<&'static str>,
    /// Description of the fault that caused the session to be lost; `None` if it is not lost.
    pub lost: Option<String>,
    /// Limit and use of this guest's GPU memory.
    pub memory: Memory,
    /// Limits of this guest other than its memory.
    pub limits: Limits,
    /// Limits of the device when it executes kernels, such as the size of a block.
    pub compute: Compute,
    /// How this program reaches the device.
    pub path: Path,
}

/// Limit and use of the guest's GPU memory.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Maximum GPU memory of the guest in bytes.
    pub total_bytes: u64,
    /// GPU memory that all processes of the guest together have allocated now, in bytes.
    pub used_bytes: u64,
    /// Granularity of allocations: sizes are rounded up to a multiple of this many bytes.
    pub granularity_bytes: u64,
}

/// Limits of the guest other than its memory.
#[derive(Debug, Serialize)]
pub struct Limits {
    /// Maximum number of allocations of the guest.
    pub allocations: u32,
    /// Maximum number of command buffers of the guest.
    pub queues: u32,
    /// Size of a GPU address space in bytes.
    pub address_space_bytes: u64,
}

/// Limits of the device when it executes kernels.
#[derive(Debug, Serialize)]
pub struct Compute {
    /// Number of multiprocessors of the GPU, or of CPU cores of the software back end.
    pub units: u32,
    /// Number of threads in a warp.
    pub warp_threads: u32,
    /// Maximum number of threads in a block.
    pub block_threads: u32,
    /// Maximum shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// How this program reaches the device.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Path {
    /// Over the socket of `causeway serve`.
    Socket {
        /// Path of the socket.
        socket: String,
    },
    /// As a PCI function of this guest.
    Pci {
        /// Address of the function on the bus.
        function: String,
        /// How the CPU caches the aperture, such as `write-back`.
        caching: &'static str,
        /// File of the UIO device that reports interrupts. With `None`, a process that waits for a
        /// fence sleeps for a short time and then polls the fence again.
        interrupts: Option<String>,
        /// Number of stray accesses of this guest so far.
        stray_accesses: u32,
        /// Maximum number of processes that can use the device at a time.
        clients_max: u32,
        /// Clients that a process holds or that own objects, including this program's.
        clients: Vec<ClientFacts>,
    },
}

/// A client of the device, and the process that holds it.
#[derive(Debug, Serialize)]
pub struct ClientFacts {
    /// Number of the client, from 1. It is also the number of the client's register page in BAR 0.
    pub client: u32,
    /// ID of the process that holds the client; `None` if the process has ended, or this program
    /// may not see it.
    pub process: Option<u32>,
    /// Name of the process that holds the client, if it is known.
    pub name: Option<String>,
    /// Whether the client owns objects in the session, such as allocations.
    pub owns: bool,
}

/// Opens the device that `transport` reaches, and asks it for everything that `causeway-info`
/// shows.
///
/// # Errors
/// An error if the device cannot be opened, or refuses a request.
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
        (features::PRIORITIES, "priorities"),
        (features::PEERS, "peers"),
        (features::FABRIC_EXPORT, "fabric_export"),
        (features::FABRIC_IMPORT, "fabric_import"),
        (features::ARRAYS, "arrays"),
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
