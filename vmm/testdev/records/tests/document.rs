//! `docs/testdev.md` says what the code says: it is generated from the tables of this crate, and
//! this test compares. To update it: `CAUSEWAY_BLESS=1 cargo test -p causeway-testdev-records
//! --test document`.

use causeway_protocol::wire::Value;
use causeway_testdev_records as records;

#[path = "../../../../protocol/tests/markdown/mod.rs"]
mod markdown;

#[test]
fn the_document_matches_the_code() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs");
    let mut wanted = introduction();
    markdown::structure_tables(&mut wanted, "Records", records::STRUCTURES);
    markdown::compare(docs, "testdev.md", &wanted);
}

fn introduction() -> String {
    format!(
        "\
# The test device

Generated from the crate `causeway-testdev-records`, and compared with it by a test. Little-endian,
naturally aligned, no padding.

The test device is optional: `causeway run` gives one to every VM. It is not part of the Causeway
function. By it a guest reports phases and figures, exchanges mail with the other guests of its run,
and ends its VM. It has I/O ports, each of which takes 4-byte stores. Each store is one exit.

| port | a store of 4 bytes |
|---|---|
| {exit:#x} | ends the VM: zero is pass, anything else is fail |
| {record:#x} | hands over the record at this guest-physical address, which is 8-byte aligned |
| {aperture:#x} | hands over the record at this offset into the aperture, in units of {unit} bytes |
| {text:#x} | adds these four bytes, the lowest first, to the text of the next mark |
| {mark:#x} | makes the mark with this number; a 4-byte load says what became of the last mark |

The device copies a record, checks the copy, acts on it, and copies a reply back into the record. It
ignores invalid records. A process of a Linux guest does not know guest-physical addresses: its
records are in the aperture, in host memory that the guest may write. The VMs of a run share
{mailboxes} mailboxes if the guest is embedded in the command, or with `--mailboxes`. They are a
channel between VMs. Without them, the device refuses mail as an invalid record.

| kind | record | what |
|---|---|---|
| 1 | PhaseBegin | samples both counts of exits, and begins a phase |
| 2 | PhaseEnd | samples both counts of exits, and ends the phase |
| 3 | Figure | reports a figure |
| 4 | Mail | puts mail into a mailbox |
| 5 | Mail | fetches mail from a mailbox, and waits for it |
| 6 | Baseline | runs a loop on a host thread, over memory of the guest |
| 7 | Panic | reports why the guest is about to fail |
| 8 | RecordHeader | parks this virtual CPU |
| 9 | Comparison | reports a sample, which the host repeats natively |
| 10 | Identity | asks which VM of the run this is |
| 11 | Singles | reports times of single operations, which the host repeats natively |

### Marks

A program can begin and end a phase by ports alone, without the Causeway function and without
memory that the device can read. It stores the name of the phase to port {text:#x}, four bytes at a
time, up to {text_bytes} bytes; zero bytes fill the last store. Then it stores the number of the
mark to port {mark:#x}. The phase begins when the device has acted on that store. One store ends it;
its totals come after that, so that they are not part of the phase.

A load from port {mark:#x} gives {done:#x} if the device has acted on the last mark, {refused:#x} if
it has refused it (no phase is open, for example), and all-ones if the VM has no test device.
[guests.md](guests.md#phases-the-exits-of-a-part-of-your-program) shows the program that does all of
this, and the same in C.

| number | mark | what |
|---|---|---|
{marks}
",
        exit = records::PORT_EXIT,
        record = records::PORT_RECORD,
        aperture = records::PORT_RECORD_APERTURE,
        unit = records::RECORD_UNIT_BYTES,
        mailboxes = records::MAILBOXES,
        text = records::PORT_TEXT,
        mark = records::PORT_MARK,
        text_bytes = records::TEXT_BYTES,
        done = records::MARK_DONE,
        refused = records::MARK_REFUSED,
        marks = marks(),
    )
}

fn marks() -> String {
    let row = |mark: &Value| {
        let what = mark.doc.trim();
        format!("| {} | {} | {what} |\n", mark.value, mark.name)
    };
    records::Mark::VALUES.iter().map(row).collect()
}
