use std::process::{Command, Stdio};

use crate::support::{
    GRANULE, READ_WRITE, access, context, download, is_child, made, mapped, reserve, sys, upload,
};
use crate::{ok, refused};

const POSIX: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The importer of the next test, in a process of its own: its standard input is the memory.
#[test]
fn importer() {
    if std::env::var_os("STANDIN_TEST_IMPORT").is_none() {
        return;
    }
    context();
    let handle =
        made(|v| unsafe { sys::cuMemImportFromShareableHandle(v, std::ptr::null_mut(), POSIX) });
    let properties = made(|v| unsafe { sys::cuMemGetAllocationPropertiesFromHandle(v, handle) });
    assert_eq!(properties.requestedHandleTypes, POSIX);
    let address = reserve(GRANULE);
    ok!(sys::cuMemMap(address, GRANULE, 0, handle, 0));
    ok!(sys::cuMemSetAccess(
        address,
        GRANULE,
        &access(READ_WRITE),
        1
    ));
    assert_eq!(download(address, 2), [11, 12]);
    upload(address + 4096, &[13]);
    let (mut free, mut total) = (0, 0);
    ok!(sys::cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(total - free, GRANULE, "the exporter's memory counts once");
}

#[test]
fn memory_is_shared_between_processes() {
    if !is_child("sharing::memory_is_shared_between_processes", &[]) {
        return;
    }
    context();
    let (handle, address) = mapped(GRANULE);
    upload(address, &[11, 12]);
    let mut descriptor = -1_i32;
    let into = std::ptr::from_mut(&mut descriptor).cast();
    ok!(sys::cuMemExportToShareableHandle(into, handle, POSIX, 0));
    let file = unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) };
    let file: std::fs::File = file;
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::importer", "--nocapture"])
        .env("STANDIN_TEST_IMPORT", "1")
        .stdin(Stdio::from(file))
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(download(address + 4096, 1), [13]);
}

/// Takes memory and stays until it is killed.
#[test]
fn holder() {
    if std::env::var_os("STANDIN_TEST_HOLD").is_none() {
        return;
    }
    context();
    mapped(8 * GRANULE);
    println!("\nholding");
    loop {
        std::thread::park();
    }
}

#[test]
fn memory_of_a_killed_process_comes_back() {
    let settings = [("CAUSEWAY_STANDIN_MEMORY", "33554432")];
    if !is_child("sharing::memory_of_a_killed_process_comes_back", &settings) {
        return;
    }
    context();
    let free = || {
        let (mut free, mut total) = (0, 0);
        ok!(sys::cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(total, 16 * GRANULE);
        free
    };
    assert_eq!(free(), 16 * GRANULE);
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::holder", "--nocapture"])
        .env("STANDIN_TEST_HOLD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(holder.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output);
    assert!(lines.any(|line| line.unwrap() == "holding"));
    assert_eq!(free(), 8 * GRANULE);
    let mut handle = 0;
    let all = crate::support::properties();
    refused!(2, sys::cuMemCreate(&mut handle, 9 * GRANULE, &all, 0));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(free(), 16 * GRANULE);
    ok!(sys::cuMemCreate(&mut handle, 9 * GRANULE, &all, 0));
}
