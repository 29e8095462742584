use std::ptr::null_mut;

use crate::support::{
    GRANULE, MIB, NONE, PTX, READ, READ_WRITE, access, context, create, download, function,
    is_child, launch, made, mapped, module, properties, reserve, sys, upload,
};
use crate::{ok, refused};

#[test]
fn memory_is_made_mapped_and_given_back() {
    if !is_child("virtual_memory::memory_is_made_mapped_and_given_back", &[]) {
        return;
    }
    context();
    let granularity = made(|v| unsafe {
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        sys::cuMemGetAllocationGranularity(v, &properties(), option)
    });
    assert_eq!(granularity, GRANULE);
    let (handle, first) = mapped(2 * GRANULE);
    upload(first, &[1, 2, 3]);
    let second = reserve(2 * GRANULE);
    ok!(sys::cuMemMap(second, GRANULE, 0, handle, 0));
    ok!(sys::cuMemSetAccess(second, GRANULE, &access(READ_WRITE), 1));
    assert_eq!(
        download(second, 3),
        [1, 2, 3],
        "two mappings of one allocation"
    );
    let again = made(|v| unsafe { sys::cuMemRetainAllocationHandle(v, (second + 8) as *mut _) });
    assert_eq!(again, handle);
    ok!(sys::cuMemRelease(handle));
    ok!(sys::cuMemRelease(handle));
    refused!(1, sys::cuMemRelease(handle));
    assert_eq!(download(first, 2), [1, 2], "mappings keep memory");
    let used = || {
        let (mut free, mut total) = (0, 0);
        ok!(sys::cuMemGetInfo_v2(&mut free, &mut total));
        total - free
    };
    assert_eq!(used(), 2 * GRANULE);
    ok!(sys::cuMemUnmap(first, 2 * GRANULE));
    assert_eq!(used(), 2 * GRANULE);
    ok!(sys::cuMemUnmap(second, GRANULE));
    assert_eq!(used(), 0);
    refused!(1, sys::cuMemAddressFree(first, GRANULE));
    ok!(sys::cuMemAddressFree(first, 2 * GRANULE));
    refused!(1, sys::cuMemAddressFree(first, 2 * GRANULE));
}

#[test]
fn what_the_documentation_refuses_is_refused() {
    if !is_child(
        "virtual_memory::what_the_documentation_refuses_is_refused",
        &[],
    ) {
        return;
    }
    context();
    let bytes = 2 * GRANULE;
    let mut handle = 0;
    refused!(1, sys::cuMemCreate(&mut handle, MIB, &properties(), 0));
    refused!(1, sys::cuMemCreate(&mut handle, 0, &properties(), 0));
    refused!(1, sys::cuMemCreate(&mut handle, bytes, &properties(), 1));
    refused!(1, sys::cuMemCreate(null_mut(), bytes, &properties(), 0));
    refused!(2, sys::cuMemCreate(&mut handle, 5 << 30, &properties(), 0));
    let mut fabric = properties();
    fabric.requestedHandleTypes = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
    refused!(800, sys::cuMemCreate(&mut handle, bytes, &fabric, 0));
    let mut elsewhere = properties();
    elsewhere.location.id = 3;
    refused!(101, sys::cuMemCreate(&mut handle, bytes, &elsewhere, 0));
    elsewhere.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    refused!(801, sys::cuMemCreate(&mut handle, bytes, &elsewhere, 0));

    let (handle, address) = (create(bytes), reserve(2 * bytes));
    refused!(1, sys::cuMemMap(address, bytes, GRANULE, handle, 0));
    refused!(1, sys::cuMemMap(address, MIB, 0, handle, 0));
    refused!(
        1,
        sys::cuMemMap(address + MIB as u64, GRANULE, 0, handle, 0)
    );
    refused!(1, sys::cuMemMap(address, 2 * bytes, 0, handle, 0));
    refused!(1, sys::cuMemMap(address, bytes, 0, handle + 1, 0));
    let last = address + (2 * bytes - GRANULE) as u64;
    refused!(1, sys::cuMemMap(last, bytes, 0, handle, 0));
    refused!(1, sys::cuMemMap(1 << 40, bytes, 0, handle, 0));
    ok!(sys::cuMemMap(address, bytes, 0, handle, 0));
    refused!(
        1,
        sys::cuMemMap(address + GRANULE as u64, bytes, 0, handle, 0)
    );
    ok!(sys::cuMemMap(address + bytes as u64, bytes, 0, handle, 0));

    let rights = access(READ_WRITE);
    refused!(1, sys::cuMemSetAccess(address, GRANULE, &rights, 1));
    refused!(1, sys::cuMemSetAccess(address, 3 * bytes, &rights, 1));
    refused!(1, sys::cuMemsetD32_v2(address, 1, 1));
    ok!(sys::cuMemSetAccess(address, 2 * bytes, &rights, 1));
    let flags = |at| made(|v| unsafe { sys::cuMemGetAccess(v, &properties().location, at) });
    assert_eq!(flags(address), 3);
    ok!(sys::cuMemSetAccess(address, bytes, &access(READ), 1));
    assert_eq!(flags(address), 1);
    ok!(sys::cuMemSetAccess(address, bytes, &access(NONE), 1));
    assert_eq!(flags(address), 0);
    refused!(1, sys::cuMemsetD32_v2(address, 1, 1));

    refused!(1, sys::cuMemUnmap(address, GRANULE));
    refused!(1, sys::cuMemUnmap(address + GRANULE as u64, bytes));
    refused!(1, sys::cuMemAddressFree(address, 2 * bytes));
    ok!(sys::cuMemUnmap(address, 2 * bytes));
    refused!(1, sys::cuMemUnmap(address, bytes));
    ok!(sys::cuMemAddressFree(address, 2 * bytes));

    let mut private = properties();
    private.requestedHandleTypes = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    let private = made(|v| unsafe { sys::cuMemCreate(v, bytes, &private, 0) });
    let posix = properties().requestedHandleTypes;
    let mut descriptor = -1_i32;
    let into = std::ptr::from_mut(&mut descriptor).cast();
    refused!(
        1,
        sys::cuMemExportToShareableHandle(into, private, posix, 0)
    );
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let foreign = std::os::fd::AsRawFd::as_raw_fd(&file) as usize as *mut _;
    let mut imported = 0;
    refused!(
        1,
        sys::cuMemImportFromShareableHandle(&mut imported, foreign, posix)
    );
}

#[test]
fn read_only_mappings_fault_on_stores() {
    if !is_child("virtual_memory::read_only_mappings_fault_on_stores", &[]) {
        return;
    }
    context();
    let add = function(module(PTX), "add");
    let (_, address) = mapped(GRANULE);
    upload(address, &[5]);
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [address]), 0);
    assert_eq!(download(address, 1), [6]);
    ok!(sys::cuMemSetAccess(address, GRANULE, &access(READ), 1));
    assert_eq!(download(address, 1), [6]);
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [address]), 0);
    refused!(700, sys::cuCtxSynchronize());
}

#[test]
fn memory_comes_with_what_others_left_in_it() {
    if !is_child(
        "virtual_memory::memory_comes_with_what_others_left_in_it",
        &[],
    ) {
        return;
    }
    context();
    let (handle, address) = mapped(GRANULE);
    assert!(download(address, 1024).iter().any(|word| *word != 0));
    upload(address, &[0xfeed_f00d]);
    ok!(sys::cuMemUnmap(address, GRANULE));
    ok!(sys::cuMemRelease(handle));
    let (_, address) = mapped(GRANULE);
    assert_eq!(download(address, 1), [0xfeed_f00d]);
}

#[test]
fn host_memory_has_one_address_for_all() {
    if !is_child("virtual_memory::host_memory_has_one_address_for_all", &[]) {
        return;
    }
    context();
    let mut near = properties();
    near.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
    let handle = made(|v| unsafe { sys::cuMemCreate(v, GRANULE, &near, 0) });
    let address = reserve(GRANULE);
    ok!(sys::cuMemMap(address, GRANULE, 0, handle, 0));
    let rights = [
        access(READ_WRITE),
        sys::CUmemAccessDesc {
            location: near.location,
            flags: READ_WRITE,
        },
    ];
    ok!(sys::cuMemSetAccess(address, GRANULE, rights.as_ptr(), 2));
    let word = address as *mut u32;
    unsafe { word.write_volatile(41) };
    let add = function(module(PTX), "add");
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [address]), 0);
    ok!(sys::cuCtxSynchronize());
    assert_eq!(unsafe { word.read_volatile() }, 42);
    ok!(sys::cuMemUnmap(address, GRANULE));
}

#[test]
fn hints_are_followed_where_addresses_are_free() {
    if !is_child(
        "virtual_memory::hints_are_followed_where_addresses_are_free",
        &[],
    ) {
        return;
    }
    context();
    let hint = 0x1234_4000_0000;
    let at = |hint| made(|v| unsafe { sys::cuMemAddressReserve(v, GRANULE, 0, hint, 0) });
    assert_eq!(at(hint), hint);
    assert_ne!(at(hint), hint);
    let aligned = made(|v| unsafe { sys::cuMemAddressReserve(v, GRANULE, 1 << 30, 0, 0) });
    assert_eq!(aligned % (1 << 30), 0);
    let mut address = 0;
    refused!(1, sys::cuMemAddressReserve(&mut address, MIB, 0, 0, 0));
    refused!(1, sys::cuMemAddressReserve(&mut address, GRANULE, 3, 0, 0));
}
