//! Exchanges packets with others, each pass as a phase of the data path, by these orders. ADDRESS
//! is an IP address and a port, such as `10.0.2.2:7`; for `stream` also `vsock:CID:PORT`.
//!
//! | order | what it does |
//! |---|---|
//! | `exchange ADDRESS COUNT` | sends COUNT datagrams in turn, and checks that each comes back |
//! | `stream ADDRESS MIB` | sends so much over a connection, and checks what comes back meanwhile |
//! | `answer PORT` | sends back what one TCP connection to a port of the guest brings |
//! | `answer-vsock PORT` | the same for a connection of AF_VSOCK |
//! | `unreachable ADDRESS` | checks that there is no TCP connection to it within 5 s |
//! | `nameserver ADDRESS` | checks who is asked for names |
//! | `echo PORT` | sends back all that comes to a port, until it is killed |
//!
//! Datagrams have up to 1,400 bytes. `echo` listens on the loopback address, for datagrams and TCP,
//! and on AF_VSOCK.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use causeway_linux_programs::orders::{Marks, carry_out, number, pattern, unknown};
use vsock::{VMADDR_CID_ANY, VsockListener, VsockStream};

/// Longest datagram in bytes: it fits into one packet everywhere.
const DATAGRAM_BYTES_MAX: u64 = 1400;
const PIECE_BYTES: usize = 1 << 20;
/// How long an answer may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long what is not reached may have to answer.
const SILENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    carry_out("packets", obey)
}

/// Carries out an order, and returns how many words belong to it.
fn obey(order: &str, words: &[String], marks: Marks) -> io::Result<usize> {
    match (order, words) {
        ("exchange", [address, count, ..]) => {
            let count = number(count)?;
            // The first one also asks for hardware addresses.
            exchange(address, 1)?;
            marks(order, count, &mut || exchange(address, count)).map(|()| 2)
        }
        ("stream", [address, mib, ..]) => {
            let mib = number(mib)?;
            marks(order, mib, &mut || stream(address, mib)).map(|()| 2)
        }
        ("answer", [port, ..]) => {
            let port = number(port)? as u16;
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            println!("packets: port {port} listens");
            let mut accepted = || give_back(Stream::Tcp(listener.accept()?.0));
            marks(order, 1, &mut accepted).map(|()| 1)
        }
        ("answer-vsock", [port, ..]) => {
            let port = number(port)? as u32;
            let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port)?;
            println!("packets: port {port} listens");
            let mut accepted = || give_back(Stream::Vsock(listener.accept()?.0));
            marks(order, 1, &mut accepted).map(|()| 1)
        }
        ("unreachable", [address, ..]) => unreachable(address).map(|()| 1),
        ("nameserver", [address, ..]) => nameserver(address).map(|()| 1),
        ("echo", [port, ..]) => echo(number(port)? as u16).map(|()| 1),
        _ => Err(unknown()),
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}

fn exchange(address: &str, count: u64) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut found = [0; 2 * DATAGRAM_BYTES_MAX as usize];
    for number in 0..count {
        let sent = pattern(
            number << 20,
            (number * 37 % DATAGRAM_BYTES_MAX + 1) as usize,
        );
        socket.send(&sent)?;
        let length = socket.recv(&mut found)?;
        if found[..length] != sent[..] {
            return Err(wrong(format!("datagram {number} comes back as another")));
        }
    }
    Ok(())
}

fn piece(number: u64) -> Vec<u8> {
    pattern(number << 32, PIECE_BYTES)
}

fn stream(address: &str, pieces: u64) -> io::Result<()> {
    let mut back = connected(address)?;
    let mut forth = back.try_clone()?;
    let sender = thread::spawn(move || {
        (0..pieces).try_for_each(|number| forth.write_all(&piece(number)))?;
        forth.shutdown(Shutdown::Write)
    });
    let mut found = vec![0; PIECE_BYTES];
    for number in 0..pieces {
        back.read_exact(&mut found)?;
        if found != piece(number) {
            return Err(wrong(format!("MiB {number} comes back as another")));
        }
    }
    sender
        .join()
        .map_err(|_| wrong(String::from("the sender panicked")))?
}

/// A connection of either family.
enum Stream {
    Tcp(TcpStream),
    Vsock(VsockStream),
}

impl Stream {
    fn connect(address: &str) -> io::Result<Self> {
        let Some(address) = address.strip_prefix("vsock:") else {
            return TcpStream::connect(address).map(Self::Tcp);
        };
        let (cid, port) = address.split_once(':').ok_or_else(unknown)?;
        let (cid, port) = (number(cid)? as u32, number(port)? as u32);
        VsockStream::connect_with_cid_port(cid, port).map(Self::Vsock)
    }

    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(limit),
            Self::Vsock(stream) => stream.set_read_timeout(limit),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Vsock(stream) => stream.try_clone().map(Self::Vsock),
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Vsock(stream) => stream.shutdown(how),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Vsock(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Vsock(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // Neither family keeps anything back.
    }
}

/// Connects to what may not listen yet.
fn connected(address: &str) -> io::Result<Stream> {
    let begun = Instant::now();
    loop {
        match Stream::connect(address) {
            Err(_) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
            made => {
                let stream = made?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
        }
    }
}

fn unreachable(address: &str) -> io::Result<()> {
    let parsed = address.parse().map_err(io::Error::other)?;
    match TcpStream::connect_timeout(&parsed, SILENCE) {
        Err(_) => Ok(()),
        Ok(_) => Err(wrong(format!("{address} answers"))),
    }
}

fn give_back(mut stream: Stream) -> io::Result<()> {
    let mut back = stream.try_clone()?;
    io::copy(&mut stream, &mut back)?;
    back.shutdown(Shutdown::Both)
}

fn nameserver(address: &str) -> io::Result<()> {
    let text = fs::read_to_string("/etc/resolv.conf")?;
    let wanted = format!("nameserver {address}");
    match text.lines().any(|line| line == wanted) {
        true => Ok(()),
        false => Err(wrong(format!("/etc/resolv.conf has {text:?}"))),
    }
}

fn echo(port: u16) -> io::Result<()> {
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // A host without AF_VSOCK has the rest.
    if let Ok(listener) = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port.into()) {
        thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                thread::spawn(|| give_back(Stream::Vsock(stream)));
            }
        });
    }
    println!("packets: port {port} listens");
    thread::spawn(move || -> io::Result<()> {
        let mut found = [0; 1 << 16];
        loop {
            let (length, from) = datagrams.recv_from(&mut found)?;
            datagrams.send_to(&found[..length], from)?;
        }
    });
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(|| give_back(Stream::Tcp(stream)));
    }
    Ok(())
}
