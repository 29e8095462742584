//! Managed variables of modules and libraries: kernels and the CPU share them.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

use causeway_cuda_tests::alone;
use code::*;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `CU_POINTER_ATTRIBUTE_IS_MANAGED` and
/// `CU_POINTER_ATTRIBUTE_RANGE_SIZE`
const MEMORY_TYPE: u32 = 2;
const IS_MANAGED: u32 = 8;
const RANGE_SIZE: u32 = 12;
/// `CU_MEMORYTYPE_DEVICE`
const DEVICE: u32 = 2;

mod raw {
    use super::{c_char, c_void};
    unsafe extern "C" {
        pub fn cuLibraryGetManaged(
            address: *mut u64,
            bytes: *mut usize,
            library: usize,
            name: *const c_char,
        ) -> u32;
        pub fn cuLibraryGetGlobal(
            address: *mut u64,
            bytes: *mut usize,
            library: usize,
            name: *const c_char,
        ) -> u32;
        pub fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, address: u64) -> u32;
    }
}

/// Adds to the variables, by all forms in which code names them.
const ADDING: &str = "
.global .attribute(.managed) .align 4 .u32 count = 5;
.visible .global .attribute(.managed) .align 16 .b32 four[4] = {1, 2, 3, 4};
.global .attribute(.managed) .align 8 .b8 cleared[24];
.global .align 4 .u32 plain = 7;
.visible .entry add()
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    atom.global.add.u32 %r2, [count], 1;
    bar.sync 0;
AGAIN:
    @%p1 ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [four];
    @!%p1 bra DONE;
    mov.u64 %d1, four+4;
    add.u32 %r4, %r4, 10;
    st.global.u32 [%d1], %r4;
    { .reg .b64 count; mov.u64 count, 77; st.global.u64 [cleared+8], count; }
    cvta.global.u64 %d2, cleared;
    st.u64 [%d2+16], %d2;
    ld.global.u32 %r7, [plain];
    st.global.u32 [cleared], %r7;
DONE:
    ret;
}
";

fn add(module: usize) {
    let add = function(module, c"add");
    assert_eq!(launch(add, [1; 3], [64, 1, 1], &[]), 0);
    assert_eq!(cuCtxSynchronize(), 0);
}

/// Returns address and size of a variable of a module.
fn global(module: usize, name: &CStr) -> (u64, usize) {
    let (mut address, mut bytes) = (0, 0);
    let result = cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr());
    assert_eq!(result, 0, "{name:?}");
    (address, bytes)
}

/// Reads a managed variable, as the CPU does.
fn read<T: Copy>(address: u64) -> T {
    // SAFETY: the variable is that long, and no kernel is running.
    unsafe { (address as *const T).read() }
}

fn attribute(attribute: u32, address: u64) -> (u32, u64) {
    let mut value = 0_u64;
    let into = (&raw mut value).cast();
    // SAFETY: no attribute is longer.
    (
        unsafe { raw::cuPointerGetAttribute(into, attribute, address) },
        value,
    )
}

/// Returns result, address and size of a managed variable of a library.
fn managed(library: usize, name: &CStr) -> (u32, u64, usize) {
    let (mut address, mut bytes) = (0, 0);
    let into = (&raw mut address, &raw mut bytes);
    // SAFETY: the pointers are valid for the call.
    let result = unsafe { raw::cuLibraryGetManaged(into.0, into.1, library, name.as_ptr()) };
    (result, address, bytes)
}

fn library_of(text: &CStr) -> (u32, usize) {
    let (mut library, image) = (0, text.as_ptr().cast());
    let (no, none) = (null(), nothing());
    let result = cuLibraryLoadData(&raw mut library, image, no, none, 0, null(), null(), 0);
    (result, library)
}

#[test]
fn kernels_and_the_cpu_share_the_variables_of_a_module() {
    let _alone = alone();
    let module = module(ADDING);
    let (count, bytes) = global(module, c"count");
    assert_eq!((read(count), bytes), (5_u32, 4));
    let (four, bytes) = global(module, c"four");
    assert_eq!((read(four), bytes), ([1_u32, 2, 3, 4], 16));
    let (cleared, bytes) = global(module, c"cleared");
    assert_eq!((read(cleared), bytes), ([0_u64; 3], 24));
    // SAFETY: the variable is a word, and no kernel is running.
    unsafe { (count as *mut u32).write(100) };
    add(module);
    assert_eq!(read::<u32>(count), 164);
    assert_eq!(read::<[u32; 4]>(four), [1, 12, 3, 4]);
    assert_eq!(read::<[u64; 3]>(cleared), [7, 77, cleared]);
    let mut copied = 0_u32;
    let into = (&raw mut copied).cast::<c_void>();
    assert_eq!(cuMemcpyDtoH_v2(into, count, 4), 0);
    assert_eq!(copied, 164);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn pointers_to_them_are_managed_until_the_module_ends() {
    let _alone = alone();
    let module = module(ADDING);
    let (four, _) = global(module, c"four");
    for address in [four, four + 15] {
        assert_eq!(attribute(IS_MANAGED, address), (0, 1));
        assert_eq!(attribute(MEMORY_TYPE, address), (0, DEVICE.into()));
        assert_eq!(attribute(RANGE_SIZE, address), (0, 16));
    }
    let (plain, _) = global(module, c"plain");
    assert_eq!(attribute(IS_MANAGED, plain), (0, 0));
    assert_eq!(cuMemFree_v2(four), INVALID_VALUE);
    assert_eq!(cuModuleUnload(module), 0);
    assert_eq!(attribute(IS_MANAGED, four).0, INVALID_VALUE);
}

#[test]
fn every_module_has_its_own() {
    let _alone = alone();
    let modules = [module(ADDING), module(ADDING)];
    let counts = modules.map(|module| global(module, c"count").0);
    add(modules[1]);
    assert_eq!(counts.map(read::<u32>), [5, 69]);
    assert_eq!(cuModuleUnload(modules[0]), 0);
    assert_eq!(read::<u32>(counts[1]), 69);
    assert_eq!(cuModuleUnload(modules[1]), 0);
}

#[test]
fn their_memory_goes_with_the_module() {
    let _alone = alone();
    // 32 MiB, more often than a device of a gigabyte has room for.
    let body = ".visible .global .attribute(.managed) .align 4 .b8 large[33554432];";
    for _ in 0..40 {
        let module = module(body);
        let (large, bytes) = global(module, c"large");
        assert_eq!((read::<u8>(large), bytes), (0, 32 << 20));
        assert_eq!(cuModuleUnload(module), 0);
    }
    let (mut before, mut context) = (0, 0);
    assert_eq!(cuCtxGetCurrent(&raw mut before), 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
    let (large, _) = global(module(body), c"large");
    assert_eq!(cuCtxDestroy_v2(context), 0);
    assert_eq!(cuCtxSetCurrent(before), 0);
    assert_eq!(attribute(IS_MANAGED, large).0, INVALID_VALUE);
}

#[test]
fn contexts_share_those_of_a_library() {
    let _alone = alone();
    let (result, library) = library_of(&text(ADDING));
    assert_eq!(result, 0);
    let (result, count, bytes) = managed(library, c"count");
    assert_eq!((result, bytes, read::<u32>(count)), (0, 4, 5));
    assert_eq!(managed(library, c"plain").0, NOT_FOUND);
    assert_eq!(managed(library, c"none").0, NOT_FOUND);
    let (mut address, mut bytes) = (0, 0);
    let (into, name) = ((&raw mut address, &raw mut bytes), c"count".as_ptr());
    // SAFETY: the pointers are valid for the call.
    let result = unsafe { raw::cuLibraryGetGlobal(into.0, into.1, library, name) };
    assert_eq!((result, address, bytes), (0, count, 4));
    let (mut before, mut context, mut module) = (0, 0, 0);
    assert_eq!(cuCtxGetCurrent(&raw mut before), 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
    assert_eq!(managed(library, c"count"), (0, count, 4));
    assert_eq!(cuLibraryGetModule(&raw mut module, library), 0);
    add(module);
    assert_eq!(cuCtxDestroy_v2(context), 0);
    assert_eq!(cuCtxSetCurrent(before), 0);
    assert_eq!(read::<u32>(count), 69);
    assert_eq!(cuLibraryUnload(library), 0);
    assert_eq!(attribute(IS_MANAGED, count).0, INVALID_VALUE);
}

#[test]
fn linked_texts_share_a_variable() {
    let _alone = alone();
    let (mut linker, mut image, mut bytes) = (0, null(), 0);
    let (none, no) = (null(), nothing());
    assert_eq!(cuLinkCreate_v2(0, none, no, &raw mut linker), 0);
    for body in [
        ".visible .global .attribute(.managed) .align 4 .u32 shared = 3;",
        ".extern .global .attribute(.managed) .align 4 .u32 shared;
        .visible .entry add() {
            .reg .b32 %r<2>;
            ld.global.u32 %r1, [shared];
            add.u32 %r1, %r1, 4;
            st.global.u32 [shared], %r1;
            ret;
        }",
    ] {
        let text = text(body);
        let given = text.as_bytes_with_nul();
        let (data, length) = (given.as_ptr().cast(), given.len());
        let result = cuLinkAddData_v2(linker, 1, data, length, null(), 0, none, no);
        assert_eq!(result, 0, "{body}");
    }
    assert_eq!(cuLinkComplete(linker, &raw mut image, &raw mut bytes), 0);
    let mut module = 0;
    assert_eq!(cuModuleLoadData(&raw mut module, image), 0);
    assert_eq!(cuLinkDestroy(linker), 0);
    let (shared, bytes) = global(module, c"shared");
    assert_eq!((read::<u32>(shared), bytes), (3, 4));
    let add = function(module, c"add");
    assert_eq!(launch(add, [1; 3], [1; 3], &[]), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(read::<u32>(shared), 7);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn what_cannot_be_expressed_is_refused() {
    let _alone = alone();
    let body = ".global .attribute(.managed) .u32 x; .global .u64 y = x;";
    assert_eq!(load(&text(body)).0, NOT_SUPPORTED);
    assert_eq!(library_of(&text(body)).0, NOT_SUPPORTED);
}
