//! Gives the guest's network interface its addresses, by rtnetlink(7).

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::mount::mount_bind;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily as Family, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

use crate::configuration::FILES;
use crate::console::say;
use crate::network::{Mac, Network};
use crate::sources::{Layer, Root};

/// Where the kernel lists interfaces.
const INTERFACES: &str = "/sys/class/net";
/// The interface by which processes of the guest reach each other.
const LOOPBACK: &str = "lo";
/// The file that names what answers questions for names (resolv.conf(5)).
const RESOLVER: &str = "/etc/resolv.conf";
/// The routing table that all packets see (`RT_TABLE_MAIN`, include/uapi/linux/rtnetlink.h).
const MAIN_TABLE: u8 = 254;
/// Longest answer of the kernel, in bytes: an error, and the message that it is about.
const ANSWER_BYTES_MAX: usize = 4096;

/// Why the guest has no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// No interface has the hardware address.
    #[error(
        "the guest has no network interface {0}: its kernel needs virtio-net (CONFIG_VIRTIO_NET, \
         or its module virtio_net, which --module adds)"
    )]
    Interface(Mac),
    /// The kernel refuses a step.
    #[error("network interface {interface}: cannot {step}: {source}")]
    Refused {
        step: &'static str,
        interface: String,
        source: io::Error,
    },
}

/// Starts the guest's interface, and gives it its addresses. `root` is where the program runs.
pub(crate) fn start(network: &Network, root: Option<&Root>) -> Result<(), NetworkError> {
    let interface = find(network.mac).ok_or(NetworkError::Interface(network.mac))?;
    let refused = |step| {
        let interface = interface.clone();
        move |source| NetworkError::Refused {
            step,
            interface,
            source,
        }
    };
    start_loopback().map_err(refused("start the loopback interface"))?;
    let kernel = Kernel::open().map_err(refused("open a netlink socket"))?;
    let number = number(&interface).map_err(refused("read its number"))?;
    let started = kernel.start(number);
    started.map_err(refused("start it"))?;
    if let Some((address, bits)) = network.address {
        let set = kernel.set_address(number, address, bits);
        set.map_err(refused("set its address"))?;
    }
    if let Some(gateway) = network.gateway {
        let set = kernel.set_gateway(number, gateway);
        set.map_err(refused("set its gateway"))?;
    }
    if let Some(nameserver) = network.nameserver
        && let Err(error) = name(nameserver, root)
    {
        // A guest without names has a network.
        say(&format!(
            "cannot write the name server {nameserver} to {RESOLVER}, which must be a file or a \
             link to one: {error}"
        ));
    }
    Ok(())
}

/// Starts the interface by which processes of a machine reach each other.
///
/// # Errors
/// The kernel's error.
pub fn start_loopback() -> io::Result<()> {
    Kernel::open()?.start(number(LOOPBACK)?)
}

/// Returns the name of the interface with a hardware address.
fn find(mac: Mac) -> Option<String> {
    let mut entries = fs::read_dir(INTERFACES).ok()?.filter_map(Result::ok);
    let has_address = |folder: &Path| {
        let text = fs::read_to_string(folder.join("address")).unwrap_or_default();
        text.trim().parse() == Ok(mac)
    };
    let found = entries.find(|entry| has_address(&entry.path()))?;
    found.file_name().into_string().ok()
}

/// Returns the number by which the kernel knows an interface.
fn number(interface: &str) -> io::Result<u32> {
    let text = fs::read_to_string(format!("{INTERFACES}/{interface}/ifindex"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Names what answers questions for names. A root that the guest may change keeps its own file: it
/// is covered, not written to.
fn name(nameserver: Ipv4Addr, root: Option<&Root>) -> io::Result<()> {
    let line = format!("nameserver {nameserver}\n");
    if root.is_some_and(|root| root.layer() == Layer::None) {
        let own = Path::new(FILES).join("resolv.conf");
        fs::write(&own, line)?;
        return Ok(mount_bind(own, RESOLVER)?);
    }
    fs::create_dir_all("/etc")?;
    // It can be a link to a file of a service that does not run here.
    match fs::remove_file(RESOLVER) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::write(RESOLVER, line),
    }
}

/// A conversation with the kernel about interfaces.
struct Kernel(OwnedFd);

impl Kernel {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // No protocol: NETLINK_ROUTE is number 0.
        let socket = socket_with(Family::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self(socket))
    }

    fn start(&self, number: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = number;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn set_address(&self, number: u32, address: Ipv4Addr, bits: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = bits;
        message.header.index = number;
        let address = address.into();
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        let new = NLM_F_CREATE | NLM_F_EXCL;
        self.ask(RouteNetlinkMessage::NewAddress(message), new)
    }

    fn set_gateway(&self, number: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = MAIN_TABLE;
        message.header.protocol = RouteProtocol::Boot;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)),
            RouteAttribute::Oif(number),
        ];
        let new = NLM_F_CREATE | NLM_F_EXCL;
        self.ask(RouteNetlinkMessage::NewRoute(message), new)
    }

    /// Sends one request, and reads whether it was carried out.
    fn ask(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &bytes, SendFlags::empty(), &kernel)?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let (length, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        refusal(&answer[..length])
    }
}

/// Returns the error that an answer of the kernel contains.
fn refusal(answer: &[u8]) -> io::Result<()> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer);
    match message.map_err(io::Error::other)?.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with the error number `code`, as the kernel writes it (netlink(7)).
    fn answer(code: i32) -> Vec<u8> {
        let request = [16u32, 0, 0, 0].map(u32::to_le_bytes).concat();
        let header = [36u32, 2, 0, 0].map(u32::to_le_bytes).concat();
        [header, code.to_le_bytes().to_vec(), request].concat()
    }

    #[test]
    fn what_the_kernel_refuses_is_told() {
        assert!(refusal(&answer(0)).is_ok());
        let exists = refusal(&answer(-17)).unwrap_err();
        assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
        assert!(refusal(&[0; 3]).is_err());
    }

    #[test]
    fn the_kernel_answers_questions_of_this_form() {
        let kernel = Kernel::open().unwrap();
        // No machine has an interface with this number.
        let refused = kernel.start(u32::MAX >> 1).unwrap_err();
        let known = [libc::ENODEV, libc::EPERM];
        assert!(
            known.contains(&refused.raw_os_error().unwrap()),
            "{refused}"
        );
    }

    #[test]
    fn the_loopback_interface_has_a_number() {
        assert_eq!(number(LOOPBACK).unwrap(), 1);
        assert!(find(Mac([0xff; 6])).is_none());
    }
}
