//! `docs/protocol.md` says what the code says: it is generated from the tables of this crate, and
//! this test compares. To update it: `CAUSEWAY_BLESS=1 cargo test -p causeway-protocol --test
//! document`.

use std::fmt::Write as _;

use causeway_protocol::message::{self, Opcode};
use causeway_protocol::registers::{self, Direction};
use causeway_protocol::wire::Value;
use causeway_protocol::{boot, packet, pci, ring};
use markdown::{plain, structure_tables};

mod markdown;

#[test]
fn the_document_matches_the_code() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    markdown::compare(docs, "protocol.md", &document());
}

fn document() -> String {
    let mut out = String::from(INTRODUCTION);
    identity(&mut out);
    register_table(&mut out);
    out.push_str(CONTROL);
    value_table(&mut out, "Operations", message::Opcode::VALUES);
    operation_bodies(&mut out);
    value_table(&mut out, "Statuses", message::Status::VALUES);
    structure_tables(&mut out, "Control structures", message::STRUCTURES);
    out.push_str(RING);
    for (name, offset, writer) in [
        ("producer position", ring::PRODUCER, "guest"),
        ("consumer position", ring::CONSUMER, "host"),
        ("wake position", ring::WAKE, "host"),
        ("fault status", ring::FAULT_STATUS, "host"),
        ("fault position", ring::FAULT_POSITION, "host"),
    ] {
        writeln!(out, "| {offset:#04x} | {name} | {writer} |").unwrap();
    }
    writeln!(
        out,
        "\nA ring has a power of two of units, {} to {}.\n",
        ring::UNITS_MIN,
        ring::UNITS_MAX
    )
    .unwrap();
    packet_table(&mut out);
    structure_tables(&mut out, "Packet structures", packet::STRUCTURES);
    out.push_str(BARE_GUESTS);
    structure_tables(&mut out, "Boot page", boot::STRUCTURES);
    out
}

fn identity(out: &mut String) {
    writeln!(out, "## PCI function\n").unwrap();
    writeln!(out, "Vendor {:04x}, device {:04x} (not assigned by the PCI-SIG: experimental), class {:02x}{:02x}.\n", pci::VENDOR_ID, pci::DEVICE_ID, pci::CLASS, pci::SUBCLASS).unwrap();
    writeln!(out, "| BAR | holds | size |\n|---|---|---|").unwrap();
    writeln!(
        out,
        "| {} | control registers, a page for each of {} clients; every access exits | {} KiB |",
        pci::BAR_REGISTERS,
        registers::CLIENTS,
        registers::BAR0_BYTES / 1024
    )
    .unwrap();
    writeln!(out, "| {} | aperture: allocations mapped for the CPU; no access to a mapping exits | tens of GiB, see `aperture_low` |", pci::BAR_APERTURE).unwrap();
    writeln!(
        out,
        "| {} | MSI-X table at {:#x}, pending bits at {:#x}, {} doorbells from {:#x} in steps of {:#x} | {} KiB |\n",
        pci::BAR_DOORBELLS,
        registers::doorbells::MSIX_TABLE,
        registers::doorbells::MSIX_PENDING,
        registers::doorbells::COUNT,
        registers::doorbells::FIRST,
        registers::doorbells::STRIDE,
        registers::doorbells::BAR4_BYTES / 1024
    )
    .unwrap();
}

fn register_table(out: &mut String) {
    writeln!(out, "## Registers (BAR 0)\n\n32 bits wide, reached by aligned 4-byte accesses. Anything else loads all-ones, stores nothing, and is counted as stray.\nPage c of {} bytes holds the registers of client c.\n", registers::PAGE_BYTES).unwrap();
    writeln!(out, "| offset | name | | what |\n|---|---|---|---|").unwrap();
    for register in registers::REGISTERS {
        let direction = match register.direction() {
            Direction::ReadOnly => "RO",
            Direction::WriteOnly => "WO",
            Direction::ReadWrite => "RW",
        };
        writeln!(
            out,
            "| {:#04x} | `{}` | {direction} | {} |",
            *register as u32,
            register.name(),
            plain(register.doc())
        )
        .unwrap();
    }
    writeln!(
        out,
        "\n`magic` is {:#010x} (\"CWAY\"); `reset` wants {:#010x} (\"RSET\").\n",
        registers::MAGIC,
        registers::RESET_KEY
    )
    .unwrap();
}

fn value_table(out: &mut String, title: &str, values: &[Value]) {
    writeln!(
        out,
        "### {title}\n\n| value | name | meaning |\n|---|---|---|"
    )
    .unwrap();
    for value in values {
        writeln!(
            out,
            "| {} | {} | {} |",
            value.value,
            value.name,
            plain(value.doc)
        )
        .unwrap();
    }
    out.push('\n');
}

fn operation_bodies(out: &mut String) {
    writeln!(
        out,
        "| operation | request | reply | message bytes |\n|---|---|---|---|"
    )
    .unwrap();
    for opcode in message::OPCODES {
        let (request, reply) = opcode.structures();
        writeln!(
            out,
            "| {} | {request} | {reply} | {} |",
            Opcode::name(*opcode),
            message::message_bytes(*opcode)
        )
        .unwrap();
    }
    out.push('\n');
}

fn packet_table(out: &mut String) {
    value_table(out, "Packets", packet::Opcode::VALUES);
    value_table(
        out,
        "Conditions of fence acquires",
        packet::Condition::VALUES,
    );
    writeln!(out, "| packet | structure |\n|---|---|").unwrap();
    for opcode in packet::OPCODES {
        writeln!(out, "| {} | {} |", opcode.name(), opcode.structure()).unwrap();
    }
    out.push('\n');
}

const INTRODUCTION: &str = "\
# Protocol

Generated from the crate `causeway-protocol`, and compared with it by a test. Little-endian,
naturally aligned, no padding. Reserved fields are zero; a receiver refuses anything else. Version
1.5.

";

const CONTROL: &str = "\
## Control path

The guest writes a batch of messages into its control area (guest RAM, named by `control_base_*`)
and stores the length of the batch to `control_doorbell`: one exit for the batch, however large it
is. Each message is a `Header` and a body of the fixed size of its operation, the request, which the
reply overwrites; what the shorter of the two leaves over is zero. Messages run in order, the first
that fails ends the batch, and those behind it get `NotRun`. Handle 0xffffffff stands for the handle
that the most recent creating message of the same batch returned.

The first message of a session is `hello`. Sides with different major versions do not talk: the
refusal carries the host's version. Of two minors the smaller is used.

### Clients

The processes of one guest share its session as clients (since 1.2). Each has a page of BAR 0, and
objects that are created through that page belong to it: a batch can name only objects of the client
that it comes from. Quotas and the loss of the device are common to all. Address spaces, memory,
mappings, modules, command buffers, recordings, arrays, textures, exports and imports end with their
client, by a reset of its page.

A client without guest RAM that stays where it is (a process, whose pages are given to others when
it is killed) uses its control window: 64 KiB of host memory in the aperture, for batches; and
allocations of host kind, mapped for the CPU, for everything else that the device reads: rings,
fences, module images, packets to record. Such memory ends only when the client is reset. Addresses
in messages then are offsets into the aperture with bit 63 set; the memory behind them must be host
memory that this client has allocated and mapped.

### Interrupts

A client that wants to sleep until a fence has reached a value sends `notify` and looks at the
reply: the fence may have the value already. An interrupt only says that a look is worthwhile:
clients acknowledge it (`interrupt_status`), look at their fences, and ask again if necessary.

";

const RING: &str = "\
## Command buffers

A command buffer is host memory (or registered guest RAM): one header page, then 64-byte units.
Positions count units since creation and do not wrap; the unit at position p lies at `4096 + 64 * (p
% units)`. A packet is a whole number of units and does not straddle the end of the ring: a no-op
fills what is left. So a packet of more than half the ring may never fit.

Before the consumer sleeps it stores its position plus one as wake position, makes a full fence, and
looks at the producer position again. The producer stores its position with release ordering, makes
a full fence, and rings the doorbell only if the wake position lies in (old, new]. A busy queue
never rings.

A malformed packet, or an impossible producer position, ends its command buffer: the fault status
and the position of the packet appear in the header page. A fault of the GPU ends the session: all
its command buffers show `DeviceLost`.

A recording is made of packets in guest RAM, one after the other as in a ring, without a header page
and without an end to wrap at. They are copied once, when it is created, and may be no-ops,
launches, copies, fills, fence releases and timestamps. A recording keeps the kernels that it
launches, even if their module is unloaded, and the arrays that it copies.

An array (since 1.5) holds elements in an order that only the device knows, and has no address:
packets copy between it and memory, and kernels read and write it by the numbers of textures and
surfaces, which they get as parameters. A texture keeps its array. Packets and textures reach only
arrays of their address space.

| offset | word (u64) | written by |
|---|---|---|
";

const BARE_GUESTS: &str = "\
## Bare guests

Not a part of the device. `boot` describes the state in which a bare guest starts. A bare guest prints to
the serial console at port 0x3f8. [testdev.md](testdev.md) has the ports by which it reports and ends.

";
