//! Memory with fabric handles. The stand-in's machines of a fabric are processes that share its
//! folder of accounts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use causeway_cuda::{Config, Fabric, Sms};
use causeway_mediator::backend::{AllocateOptions, Backend, FabricBytes, Memory};
use causeway_mediator::{Mediator, Quota};
use causeway_protocol::Access;
use causeway_protocol::message::*;
use causeway_protocol::registers::features;

use crate::rig::Guest;
use crate::support::{GRANULE, Rig, is_child, refusal};

/// A GPU on a machine of a fabric.
const CHANNEL: (&str, &str) = ("CAUSEWAY_STANDIN_FABRIC", "1");
const OWN: &str = "CAUSEWAY_CUDA_TEST_OWN";

fn config(export: bool, import: bool) -> Config {
    Config {
        fabric: Fabric { export, import },
        ..Config::default()
    }
}

fn allocate(rig: &Rig, granules: u64) -> Arc<dyn Memory> {
    let options = AllocateOptions {
        fabric: true,
        ..AllocateOptions::default()
    };
    let bytes = granules * GRANULE;
    rig.cuda
        .allocate(MemoryKind::Device, bytes, options)
        .unwrap()
}

fn import_status(rig: &Rig, handle: &FabricBytes, bytes: u64) -> Status {
    let refused = rig.cuda.import_fabric(handle, bytes).err();
    refused.map_or(Status::Ok, |error| error.status)
}

/// The owner of memory on another machine, which tells its handle and, for each line that it gets,
/// the first word of the memory.
#[test]
fn owner() {
    if std::env::var_os(OWN).is_none() {
        return;
    }
    let mut rig = Rig::with(&config(true, false));
    let memory = allocate(&rig, 2);
    let handle = memory.fabric_handle().unwrap();
    let buffer = rig.map(memory, Access::ReadWrite);
    rig.fill(buffer.va, 8, 7).unwrap();
    rig.queue.finish().unwrap();
    println!("\nhandle {handle:?}");
    for _ in std::io::stdin().lines() {
        println!("\nword {}", rig.download(buffer.va, 1)[0]);
    }
}

struct Owner {
    process: Child,
    input: ChildStdin,
    lines: Box<dyn Iterator<Item = String>>,
    handle: FabricBytes,
}

impl Owner {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fabric::owner", "--nocapture"])
            .env(OWN, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut owner = Self {
            input: process.stdin.take().unwrap(),
            process,
            lines: Box::new(lines.map(Result::unwrap)),
            handle: [0; 64],
        };
        let told = owner.told("handle [");
        let bytes = told.trim_end_matches(']').split(", ");
        let bytes: Vec<u8> = bytes.map(|byte| byte.parse().unwrap()).collect();
        owner.handle = bytes.try_into().unwrap();
        owner
    }

    fn told(&mut self, what: &str) -> String {
        let told = |line: String| line.strip_prefix(what).map(str::to_owned);
        self.lines.find_map(told).expect("an owner that goes on")
    }

    fn word(&mut self) -> String {
        writeln!(self.input).unwrap();
        self.told("word ")
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn memory_of_another_machine_is_mapped_like_any_other() {
    let name = "fabric::memory_of_another_machine_is_mapped_like_any_other";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let mut owner = Owner::start();
    let mut rig = Rig::with(&config(false, true));
    assert_ne!(rig.cuda.attributes().features & features::FABRIC_IMPORT, 0);
    rig.cuda.find_fabric(&owner.handle).unwrap();
    let memory = rig.cuda.import_fabric(&owner.handle, 2 * GRANULE).unwrap();
    assert_eq!(memory.bytes(), 2 * GRANULE);
    assert!(memory.backing().is_none() && memory.export().is_err());
    assert!(memory.fabric_handle().is_err());
    let readable = rig.map(Arc::clone(&memory), Access::Read);
    assert_eq!(rig.download(readable.va, 8), [7, 0, 0, 0, 7, 0, 0, 0]);
    let writable = rig.map(memory, Access::ReadWrite);
    rig.fill(writable.va, 8, 9).unwrap();
    rig.queue.finish().unwrap();
    assert_eq!(owner.word(), "9");

    // Another size would be counted wrongly, also one that could be mapped.
    for bytes in [GRANULE, 3 * GRANULE, 64 * GRANULE] {
        let status = import_status(&rig, &owner.handle, bytes);
        assert_eq!(status, Status::BadMemory, "{bytes}");
    }
    // What the owner had is kept by who has imported it, and found by nobody else.
    owner.kill();
    let status = import_status(&rig, &owner.handle, 2 * GRANULE);
    assert_eq!(status, Status::BadToken);
    assert_eq!(rig.download(writable.va, 1), [9]);
}

#[test]
fn handles_of_nothing_are_refused_with_one_status() {
    let name = "fabric::handles_of_nothing_are_refused_with_one_status";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let rig = Rig::with(&config(true, true));
    let memory = allocate(&rig, 1);
    let handle = memory.fabric_handle().unwrap();
    assert_eq!(memory.fabric_handle().unwrap(), handle);
    let mut guessed = vec![[0; 64], [0xff; 64]];
    guessed.extend((0..64).map(|index| {
        let mut near = handle;
        near[index] ^= 0x40;
        near
    }));
    for wrong in &guessed {
        assert_eq!(import_status(&rig, wrong, GRANULE), Status::BadToken);
        let refused = rig.cuda.find_fabric(wrong).unwrap_err();
        assert_eq!(refused.status, Status::BadToken);
    }
    drop(memory);
    // Not kept for reuse either: the handle would lead to the next owner's memory.
    let next = allocate(&rig, 1);
    assert_eq!(import_status(&rig, &handle, GRANULE), Status::BadToken);
    assert_ne!(next.fabric_handle().unwrap(), handle);
}

#[test]
fn memory_with_a_handle_is_never_given_out_again() {
    let name = "fabric::memory_with_a_handle_is_never_given_out_again";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let mut rig = Rig::with(&config(true, true));
    let memory = allocate(&rig, 1);
    let handle = memory.fabric_handle().unwrap();
    let imported = rig.cuda.import_fabric(&handle, GRANULE).unwrap();
    let imported = rig.map(imported, Access::ReadWrite);
    drop(memory);
    for _ in 0..8 {
        let next = allocate(&rig, 1);
        let next = rig.map(next, Access::ReadWrite);
        rig.fill(imported.va, GRANULE, 0xdead_beef).unwrap();
        rig.queue.finish().unwrap();
        assert_eq!(rig.download(next.va, 4), [0; 4]);
        rig.free(next);
    }
}

#[test]
fn memory_without_the_option_has_no_handle_also_if_it_is_reused() {
    let name = "fabric::memory_without_the_option_has_no_handle_also_if_it_is_reused";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let rig = Rig::with(&config(true, true));
    // Kept for reuse, as nobody asked for its handle.
    drop(allocate(&rig, 1));
    let plain = rig.allocate(MemoryKind::Device, GRANULE).unwrap();
    let refused = plain.fabric_handle().unwrap_err();
    assert_eq!(refused.status, Status::BadMemory);
    drop(plain);
    allocate(&rig, 1).fabric_handle().unwrap();
}

#[test]
fn memory_with_a_handle_can_also_go_to_another_worker() {
    let name = "fabric::memory_with_a_handle_can_also_go_to_another_worker";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let rig = Rig::with(&config(true, false));
    let memory = allocate(&rig, 1);
    memory.fabric_handle().unwrap();
    let imported = rig.cuda.import(memory.export().unwrap()).unwrap();
    let refused = imported.fabric_handle().unwrap_err();
    assert_eq!(
        refused.status,
        Status::BadMemory,
        "it is not the importer's"
    );
}

#[test]
fn sessions_share_memory_by_handles_within_their_quotas() {
    let name = "fabric::sessions_share_memory_by_handles_within_their_quotas";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    let cuda = causeway_cuda::Cuda::open(&config(true, true)).unwrap();
    let mediator = Mediator::new(Arc::clone(&cuda) as _);
    let quota = Quota {
        memory_bytes: 4 * GRANULE,
        ..Quota::default()
    };
    let (owner, importer) = (Guest::open(&mediator, quota), Guest::open(&mediator, quota));
    let request = Allocate {
        size: 3 * GRANULE,
        kind: MemoryKind::Device as u32,
        flags: allocate_flags::FABRIC,
    };
    let memory: AllocateReply = owner.ask(Opcode::Allocate, &request).unwrap();
    let request = HandleRequest {
        handle: memory.handle,
        ..HandleRequest::default()
    };
    let told: FabricHandle = owner.ask(Opcode::ExportFabric, &request).unwrap();
    let import = |size| {
        let handle = told.handle;
        importer.ask::<_, AllocateReply>(Opcode::ImportFabric, &ImportFabric { handle, size })
    };
    let imported = import(3 * GRANULE).unwrap();
    assert_eq!(imported.size, 3 * GRANULE);
    // Owners that free what importers keep make room for no more than their own quotas allow.
    assert_eq!(import(3 * GRANULE).unwrap_err().0, Status::QuotaBytes);
    owner.free(memory.handle).unwrap();
    let space = importer.space();
    importer
        .map_gpu(space, imported.handle, 3 * GRANULE, 3)
        .unwrap();
    importer.free(imported.handle).unwrap();
    assert_eq!(import(3 * GRANULE).unwrap_err().0, Status::BadToken);
}

#[test]
fn a_driver_without_a_channel_is_refused_with_its_word_and_the_way_out() {
    let name = "fabric::a_driver_without_a_channel_is_refused_with_its_word_and_the_way_out";
    if !is_child(name, &[("CAUSEWAY_STANDIN_FABRIC", "0")]) {
        return;
    }
    for config in [config(true, false), config(false, true)] {
        let text = refusal(&config);
        for part in ["CUDA_ERROR_NOT_PERMITTED", "IMEX channel", "fabric="] {
            assert!(text.contains(part), "{text}");
        }
    }
    // Who does not ask for it is not refused, and is told nothing of it.
    let sms = Some(Sms { count: 8, group: 0 });
    let config = Config {
        sms,
        ..Config::default()
    };
    let rig = Rig::with(&config);
    let fabric = features::FABRIC_EXPORT | features::FABRIC_IMPORT;
    assert_eq!(rig.cuda.attributes().features & fabric, 0);
    let attribute = |number: usize| rig.cuda.device_facts().attributes[number - 1];
    assert_eq!([attribute(128), attribute(132)], [Some(0); 2]);
}

#[test]
fn a_gpu_without_such_handles_is_refused_by_its_attribute() {
    let name = "fabric::a_gpu_without_such_handles_is_refused_by_its_attribute";
    if !is_child(name, &[CHANNEL, ("CAUSEWAY_STANDIN_ATTRIBUTES", "128=0")]) {
        return;
    }
    let text = refusal(&config(true, true));
    assert!(text.contains("HANDLE_TYPE_FABRIC_SUPPORTED is 0"), "{text}");
}
