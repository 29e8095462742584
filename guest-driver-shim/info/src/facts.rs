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
    /// Fault to which the session was lost; `None` if it is not lost.
    pub lost: Option<String>,
    /// Limit and use of this guest's GPU memory.
    pub memory: Memory,
    /// Limits of this guest other than its memory.
    pub limits: Limits,
    /// How many threads the device can execute, and in blocks of which size.
    pub compute: Compute,
    /// How this program reaches the device.
    pub path: Path,
}

/// Limit and use of the guest's GPU memory.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Most memory that the guest may have, in bytes.
    pub total_bytes: u64,
    /// Memory that all processes of the guest together have now, in bytes.
    pub used_bytes: u64,
    /// Granularity of allocations: sizes are rounded up to a multiple of this many bytes.
    pub granularity_bytes: u64,
}

/// Limits of the guest other than its memory.
#[derive(Debug, Serialize)]
pub struct Limits {
    /// Most allocations of the guest.
    pub allocations: u32,
    /// Most command buffers of the guest.
    pub queues: u32,
    /// Size of a GPU address space in bytes.
    pub address_space_bytes: u64,
}

/// Numbers that limit how the device executes kernels.
#[derive(Debug, Serialize)]
pub struct Compute {
    /// Number of multiprocessors of the GPU, or of CPU cores of the software back end.
    pub units: u32,
    /// Number of threads in a warp.
    pub warp_threads: u32,
    /// Most threads in a block.
    pub block_threads: u32,
    /// Most shared memory of a block in bytes.
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
        /// File of the UIO device that reports interrupts. With `None`, waits sleep for a while and
        /// look again.
        interrupts: Option<String>,
        /// Number of stray accesses of this guest so far.
        stray_accesses: u32,
        /// Most processes that can use the device at a time.
        clients_max: u32,
        /// Clients that a process holds or that own objects, including this program's.
        clients: Vec<ClientFacts>,
    },
}

/// A client of the device, and the process that holds it.
#[derive(Debug, Serialize)]
pub struct ClientFacts {
    /// Number of the client, which is that of its page of registers.
    pub client: u32,
    /// Process that holds the client; `None` if it has ended or cannot be seen from here.
    pub process: Option<u32>,
    /// Name of the process.
    pub name: Option<String>,
    /// Whether the client owns objects in the session.
    pub owns: bool,
}

/// Asks the device behind `transport` for everything that the program shows.
///
/// # Errors
/// The error of the device, if it cannot be opened or does not answer.
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
