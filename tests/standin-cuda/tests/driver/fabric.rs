//! Fabric handles: memory of one process in another that knows 64 bytes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{
    GRANULE, READ_WRITE, access, context, download, is_child, made, properties, reserve, sys,
    upload,
};
use crate::{ok, refused};

const FABRIC: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
const CHANNEL: (&str, &str) = ("CAUSEWAY_STANDIN_FABRIC", "1");
const OWN: &str = "STANDIN_TEST_OWN";

type Handle = [u8; 64];

fn create() -> u64 {
    let mut properties = properties();
    properties.requestedHandleTypes = FABRIC;
    made(|into| unsafe { sys::cuMemCreate(into, GRANULE, &properties, 0) })
}

fn map(handle: u64) -> u64 {
    let address = reserve(GRANULE);
    ok!(sys::cuMemMap(address, GRANULE, 0, handle, 0));
    let rights = access(READ_WRITE);
    ok!(sys::cuMemSetAccess(address, GRANULE, &rights, 1));
    address
}

fn export(memory: u64) -> Handle {
    let mut handle: Handle = [0xee; 64];
    let into = handle.as_mut_ptr().cast();
    ok!(sys::cuMemExportToShareableHandle(into, memory, FABRIC, 0));
    handle
}

fn import(mut handle: Handle) -> Result<u64, u32> {
    let mut memory = 0;
    let from = handle.as_mut_ptr().cast();
    match unsafe { sys::cuMemImportFromShareableHandle(&mut memory, from, FABRIC) } as u32 {
        0 => Ok(memory),
        code => Err(code),
    }
}

/// The owner of memory in a process of its own, which tells its handle and stays.
#[test]
fn owner() {
    if std::env::var_os(OWN).is_none() {
        return;
    }
    context();
    let memory = create();
    upload(map(memory), &[21, 22]);
    println!("\nhandle {:?}", export(memory));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Starts an owner; returns it with the handle of its memory.
fn start_owner() -> (Child, Handle) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fabric::owner", "--nocapture"])
        .env(OWN, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let told = lines.find_map(|line| line.strip_prefix("handle [").map(str::to_owned));
    let told = told.expect("a handle");
    let bytes = told.trim_end_matches(']').split(", ");
    let bytes: Vec<u8> = bytes.map(|byte| byte.parse().unwrap()).collect();
    (owner, bytes.try_into().unwrap())
}

#[test]
fn memory_is_found_by_its_handle_while_its_owner_lives() {
    let name = "fabric::memory_is_found_by_its_handle_while_its_owner_lives";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    context();
    let (mut owner, handle) = start_owner();
    let memory = import(handle).unwrap();
    let told = made(|v| unsafe { sys::cuMemGetAllocationPropertiesFromHandle(v, memory) });
    assert_eq!(told.requestedHandleTypes, FABRIC);
    let address = map(memory);
    assert_eq!(download(address, 2), [21, 22]);
    let other = map(import(handle).unwrap());
    upload(address + 4096, &[23]);
    assert_eq!(download(other + 4096, 1), [23]);
    let mut again: Handle = [0; 64];
    let into = again.as_mut_ptr().cast();
    refused!(
        1,
        sys::cuMemExportToShareableHandle(into, memory, FABRIC, 0)
    );
    for index in [0, 15, 16, 31, 32, 63] {
        let mut wrong = handle;
        wrong[index] ^= 1;
        assert_eq!(import(wrong), Err(1), "byte {index}");
    }
    // Killed, it removes nothing: the file of its memory is still there.
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(import(handle), Err(1));
    assert_eq!(download(address, 2), [21, 22], "importers keep it");
}

#[test]
fn freed_memory_has_no_handle_and_its_importer_keeps_it() {
    let name = "fabric::freed_memory_has_no_handle_and_its_importer_keeps_it";
    if !is_child(name, &[CHANNEL]) {
        return;
    }
    context();
    let memory = create();
    let handle = export(memory);
    assert_eq!(export(memory), handle);
    let imported = map(import(handle).unwrap());
    upload(imported, &[5]);
    ok!(sys::cuMemRelease(memory));
    assert_eq!(import(handle), Err(1));
    assert_eq!(download(imported, 1), [5]);
    // The next allocation of that size is other memory.
    upload(map(create()), &[6]);
    assert_eq!(download(imported, 1), [5]);
}

#[test]
fn without_a_channel_or_the_wish_there_are_no_handles() {
    let name = "fabric::without_a_channel_or_the_wish_there_are_no_handles";
    if !is_child(name, &[]) {
        return;
    }
    context();
    let mut memory = 0;
    let mut wanted = properties();
    wanted.requestedHandleTypes = FABRIC;
    refused!(800, sys::cuMemCreate(&mut memory, GRANULE, &wanted, 0));
    assert_eq!(import([0; 64]), Err(800));
    let plain = crate::support::create(GRANULE);
    let mut handle: Handle = [0; 64];
    let into = handle.as_mut_ptr().cast();
    refused!(1, sys::cuMemExportToShareableHandle(into, plain, FABRIC, 0));
}
