//! Modules, libraries, functions and the linker, from loading to unloading.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null;

use causeway_cuda_tests::library as start;
use code::*;

fn name_of(result: u32, name: *const c_char) -> CString {
    assert_eq!(result, 0);
    // SAFETY: the library has returned a name, which stays as long as the function.
    unsafe { CStr::from_ptr(name) }.to_owned()
}

#[test]
fn functions_are_found_by_name() {
    start();
    let module = module(KERNELS);
    let mut count = 0;
    assert_eq!(cuModuleGetFunctionCount(&raw mut count, module), 0);
    assert_eq!(count, 3);
    let mut functions = [0; 5];
    assert_eq!(
        cuModuleEnumerateFunctions(functions.as_mut_ptr(), 5, module),
        0
    );
    assert_eq!(functions[3..], [0, 0]);
    let mut found: Vec<CString> = Vec::new();
    for given in functions.into_iter().take(3) {
        let mut name = null();
        found.push(name_of(cuFuncGetName(&raw mut name, given), name));
        assert_eq!(function(module, found.last().unwrap()), given);
        let mut owner = 0;
        assert_eq!(cuFuncGetModule(&raw mut owner, given), 0);
        assert_eq!(owner, module);
    }
    found.sort();
    assert_eq!(
        found,
        [c"add".into(), c"bounded".into(), CString::from(c"required")]
    );
    let mut function = 7;
    for (name, result) in [
        (c"ad".as_ptr(), NOT_FOUND),
        (c"addd".as_ptr(), NOT_FOUND),
        (c"".as_ptr(), INVALID_VALUE),
        (null(), INVALID_VALUE),
    ] {
        assert_eq!(cuModuleGetFunction(&raw mut function, module, name), result);
    }
    assert_eq!(function, 7);
    assert_eq!(
        cuModuleGetFunction(nothing(), module, c"add".as_ptr()),
        INVALID_VALUE
    );
    let mut bytes = 0;
    let none = cuModuleGetGlobal_v2(nothing(), &raw mut bytes, module, c"none".as_ptr());
    assert_eq!(none, NOT_FOUND);
    let none = cuModuleGetGlobal_v2(nothing(), nothing(), module, c"none".as_ptr());
    assert_eq!(none, INVALID_VALUE);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn blocks_get_no_more_shared_memory_than_a_launch_may_have() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    let mut bytes = 0;
    let available =
        |bytes: &mut usize| cuOccupancyAvailableDynamicSMemPerBlock(bytes, bounded, 1, 32);
    assert_eq!(available(&mut bytes), 0);
    assert_eq!(bytes, (48 << 10) - 1024, "its static memory counts");
    assert_eq!(cuFuncSetAttribute(bounded, 8, 1024), 0);
    assert_eq!(available(&mut bytes), 0);
    assert_eq!(bytes, 1024);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn parameters_are_told_where_a_context_is_current() {
    start();
    let (result, library) = load_library(KERNELS, None);
    assert_eq!(result, 0);
    let (mut kernel, mut context, mut offset, mut bytes) = (0, 0, 0, 0);
    assert_eq!(
        cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()),
        0
    );
    let mut tell = || cuKernelGetParamInfo(kernel, 3, &raw mut offset, &raw mut bytes);
    assert_eq!(cuCtxGetCurrent(&raw mut context), 0);
    assert_eq!(cuCtxSetCurrent(0), 0);
    assert_eq!(tell(), INVALID_CONTEXT);
    assert_eq!(cuCtxSetCurrent(context), 0);
    assert_eq!(tell(), 0);
    assert_eq!((offset, bytes), (24, 4));
    assert_eq!(cuLibraryUnload(library), 0);
}

#[test]
fn handles_end_with_their_module() {
    start();
    let first = module(KERNELS);
    let add = function(first, c"add");
    assert_eq!(cuModuleUnload(first), 0);
    assert_eq!(cuModuleUnload(first), INVALID_HANDLE);
    let second = module(KERNELS);
    let again = function(second, c"add");
    assert_ne!((first, add), (second, again));
    let mut value = 0;
    for handle in [add, first, 0, 16, usize::MAX, add ^ 16] {
        assert_eq!(
            cuFuncGetAttribute(&raw mut value, 0, handle),
            INVALID_HANDLE
        );
        assert_eq!(launch(handle, [1; 3], [1; 3], &[]), INVALID_HANDLE);
    }
    for handle in [first, add, 0, usize::MAX] {
        let mut count = 0;
        assert_eq!(
            cuModuleGetFunctionCount(&raw mut count, handle),
            INVALID_HANDLE
        );
    }
    assert_eq!(cuModuleUnload(second), 0);
}

#[test]
fn modules_end_with_their_context() {
    start();
    let (mut before, mut context) = (0, 0);
    assert_eq!(cuCtxGetCurrent(&raw mut before), 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
    let module = module(KERNELS);
    let add = function(module, c"add");
    assert_eq!(cuCtxDestroy_v2(context), 0);
    assert_eq!(cuCtxSetCurrent(before), 0);
    let mut value = 0;
    assert_eq!(cuFuncGetAttribute(&raw mut value, 0, add), INVALID_HANDLE);
    assert_eq!(cuModuleUnload(module), INVALID_HANDLE);
}

#[test]
fn bad_images_are_refused_with_their_reason() {
    start();
    let newer = CString::new(".version 99.0\n.target sm_70\n").unwrap();
    let other = CString::new(".version 8.0\n.target sm_999\n").unwrap();
    for (image, result) in [
        (
            text(".visible .entry k() { no.such.operation; }"),
            INVALID_PTX,
        ),
        (newer, UNSUPPORTED_PTX_VERSION),
        (other, INVALID_PTX),
        (CString::from(c"no PTX at all"), INVALID_IMAGE),
        (CString::from(c""), INVALID_IMAGE),
    ] {
        assert_eq!(load(&image), (result, 0), "{image:?}");
    }
    let mut module = 0;
    assert_eq!(cuModuleLoadData(&raw mut module, null()), INVALID_VALUE);
    assert_eq!(
        cuModuleLoadData(nothing(), text("").as_ptr().cast()),
        INVALID_VALUE
    );
}

#[test]
fn the_reason_goes_to_the_callers_log() {
    start();
    let bad = text(".visible .entry k() {\n  no.such.operation;\n}");
    let good = text(KERNELS);
    let mut log = [1_u8; 400];
    let options = [3, 4, 6, 5, 7];
    let mut values = [0, 0, log.len(), log.as_mut_ptr() as usize, 3];
    let mut module = 0;
    let loaded = |module: &mut usize, image: &CStr, values: &mut [usize; 5]| {
        let values = values.as_mut_ptr();
        cuModuleLoadDataEx(module, image.as_ptr().cast(), 5, options.as_ptr(), values)
    };
    assert_eq!(loaded(&mut module, &bad, &mut values), INVALID_PTX);
    let written = CStr::from_bytes_until_nul(&log).unwrap().to_string_lossy();
    assert!(
        written.contains("no.such") || written.contains("line"),
        "{written}"
    );
    assert_eq!(values[2], written.len() + 1);
    values[2] = log.len();
    assert_eq!(loaded(&mut module, &good, &mut values), 0);
    assert_eq!((values[2], log[0]), (0, 0));
    assert_eq!(cuModuleUnload(module), 0);
    let none = cuModuleLoadDataEx(&raw mut module, good.as_ptr().cast(), 1, null(), nothing());
    assert_eq!(none, INVALID_VALUE);
}

/// Returns a fat binary with one uncompressed entry of PTX for `architecture`.
fn fatbin(architecture: u32, text: &CStr) -> Vec<u8> {
    let mut content = text.to_bytes_with_nul().to_vec();
    content.resize(content.len().next_multiple_of(8), 0);
    let mut entry = [0_u8; 64];
    entry[..8].copy_from_slice(&[1, 0, 1, 1, 64, 0, 0, 0]);
    entry[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
    entry[28..32].copy_from_slice(&architecture.to_le_bytes());
    let mut image = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    image.extend_from_slice(&(64 + content.len() as u64).to_le_bytes());
    image.extend_from_slice(&entry);
    image.extend_from_slice(&content);
    image
}

#[test]
fn fat_binaries_and_wrappers_are_opened() {
    start();
    let image = fatbin(70, &text(KERNELS));
    let wrapper = [0x1_4662_43b1, image.as_ptr() as usize, 0];
    for address in [image.as_ptr() as usize, wrapper.as_ptr() as usize] {
        let mut module = 0;
        assert_eq!(
            cuModuleLoadFatBinary(&raw mut module, address as *const c_void),
            0
        );
        assert_ne!(function(module, c"add"), 0);
        assert_eq!(cuModuleUnload(module), 0);
    }
    let newer = fatbin(999, &text(KERNELS));
    let mut module = 0;
    let refused = cuModuleLoadData(&raw mut module, newer.as_ptr().cast());
    assert_eq!(refused, NO_BINARY_FOR_GPU);
}

#[test]
fn files_are_loaded() {
    start();
    let path = std::env::temp_dir().join(format!("causeway-module-{}", std::process::id()));
    std::fs::write(&path, format!("{HEAD}{KERNELS}")).unwrap();
    let name = CString::new(path.to_str().unwrap()).unwrap();
    let mut module = 0;
    assert_eq!(cuModuleLoad(&raw mut module, name.as_ptr()), 0);
    assert_eq!(cuModuleUnload(module), 0);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(cuModuleLoad(&raw mut module, name.as_ptr()), FILE_NOT_FOUND);
    assert_eq!(cuModuleLoad(&raw mut module, null()), INVALID_VALUE);
}

fn load_library(body: &str, log: Option<&mut [u8]>) -> (u32, usize) {
    let image = text(body);
    let options = [5, 6];
    let (mut values, count) = match log {
        Some(log) => ([log.as_mut_ptr() as usize, log.len()], 2),
        None => ([0, 0], 0),
    };
    let (mut library, values) = (0, values.as_mut_ptr());
    let (image, options) = (image.as_ptr().cast(), options.as_ptr());
    let result = cuLibraryLoadData(
        &raw mut library,
        image,
        options,
        values,
        count,
        null(),
        null(),
        0,
    );
    (result, library)
}

#[test]
fn libraries_have_kernels() {
    start();
    let (result, library) = load_library(KERNELS, None);
    assert_eq!(result, 0);
    let (mut count, mut kernels) = (0, [0; 3]);
    assert_eq!(cuLibraryGetKernelCount(&raw mut count, library), 0);
    assert_eq!(
        cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 3, library),
        0
    );
    assert_eq!(count, 3);
    let (mut kernel, mut owner, mut function) = (0, 0, 0);
    assert_eq!(
        cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()),
        0
    );
    assert!(kernels.contains(&kernel));
    assert_eq!(cuKernelGetLibrary(&raw mut owner, kernel), 0);
    assert_eq!(owner, library);
    let mut name = null();
    let result = cuKernelGetName(&raw mut name, kernel);
    assert_eq!(name_of(result, name).as_c_str(), c"add");
    assert_eq!(cuKernelGetFunction(&raw mut function, kernel), 0);
    let mut module = 0;
    assert_eq!(cuLibraryGetModule(&raw mut module, library), 0);
    assert_eq!(code::function(module, c"add"), function);
    assert_eq!(cuModuleUnload(module), NOT_PERMITTED);
    let none = cuLibraryGetKernel(&raw mut kernel, library, c"none".as_ptr());
    assert_eq!(none, NOT_FOUND);
    assert_eq!(cuLibraryUnload(library), 0);
    assert_eq!(
        cuKernelGetFunction(&raw mut function, kernel),
        INVALID_HANDLE
    );
    assert_eq!(cuLibraryUnload(library), INVALID_HANDLE);
    assert_eq!(cuLibraryGetModule(&raw mut module, library), INVALID_HANDLE);
}

#[test]
fn libraries_are_compiled_when_they_are_used_or_a_log_is_wanted() {
    start();
    let bad = ".visible .entry k() { no.such.operation; }";
    let (result, library) = load_library(bad, None);
    assert_eq!(result, 0);
    let mut kernel = 0;
    let refused = cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr());
    assert_eq!(refused, INVALID_PTX);
    assert_eq!(cuLibraryUnload(library), 0);
    let mut log = [0; 200];
    assert_eq!(load_library(bad, Some(&mut log)).0, INVALID_PTX);
    assert_ne!(log[0], 0);
}

const CALLER: &str = ".extern .func (.param .b32 out) twice(.param .b32 in);
.visible .entry k(.param .u64 to)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    .param .b32 given;
    .param .b32 got;
    mov.u32 %r1, 21;
    st.param.b32 [given], %r1;
    call (got), twice, (given);
    ld.param.b32 %r2, [got];
    ld.param.u64 %d1, [to];
    st.global.u32 [%d1], %r2;
    ret;
}";
const CALLED: &str = ".visible .func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [in];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [out], %r2;
    ret;
}";

/// Links inputs of PTX. Returns the result of `cuLinkComplete`, and the module that it yields.
fn link(inputs: &[&str]) -> (u32, usize) {
    let mut linker = 0;
    assert_eq!(cuLinkCreate_v2(0, null(), nothing(), &raw mut linker), 0);
    for input in inputs {
        let given = text(input);
        let bytes = given.as_bytes_with_nul();
        let (data, count) = (bytes.as_ptr().cast(), bytes.len());
        let added = cuLinkAddData_v2(linker, 1, data, count, c"x".as_ptr(), 0, null(), nothing());
        assert_eq!(added, 0);
    }
    let (mut image, mut bytes, mut module) = (null(), 0, 0);
    let result = cuLinkComplete(linker, &raw mut image, &raw mut bytes);
    if result == 0 {
        // A program may keep a copy and end the linker.
        // SAFETY: the library has returned an image of this length.
        let copy = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec();
        assert_eq!(cuLinkDestroy(linker), 0);
        assert_eq!(cuModuleLoadData(&raw mut module, copy.as_ptr().cast()), 0);
    } else {
        assert_eq!(cuLinkDestroy(linker), 0);
    }
    (result, module)
}

#[test]
fn one_input_is_linked() {
    start();
    let (result, module) = link(&[KERNELS]);
    assert_eq!(result, 0);
    assert_ne!(function(module, c"add"), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn a_linked_kernel_has_the_registers_that_were_asked_for() {
    start();
    // CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL
    let (options, mut values) = ([0, 7], [24, 1]);
    let mut linker = 0;
    let made = cuLinkCreate_v2(2, options.as_ptr(), values.as_mut_ptr(), &raw mut linker);
    assert_eq!(made, 0);
    let given = text(KERNELS);
    let bytes = given.as_bytes_with_nul();
    let (data, count) = (bytes.as_ptr().cast(), bytes.len());
    let added = cuLinkAddData_v2(linker, 1, data, count, c"x".as_ptr(), 0, null(), nothing());
    assert_eq!(added, 0);
    let (mut image, mut module) = (null(), 0);
    assert_eq!(cuLinkComplete(linker, &raw mut image, nothing()), 0);
    assert_eq!(cuModuleLoadData(&raw mut module, image), 0);
    assert_eq!(cuLinkDestroy(linker), 0);
    let mut registers = 0;
    let add = function(module, c"add");
    // CU_FUNC_ATTRIBUTE_NUM_REGS
    assert_eq!(cuFuncGetAttribute(&raw mut registers, 4, add), 0);
    assert!(registers >= 1);
    if causeway_cuda_tests::is_on_gpu() {
        assert!(registers <= 24, "{registers}");
    }
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn several_inputs_are_linked() {
    start();
    let (result, module) = link(&[CALLER, CALLED]);
    assert_eq!(result, 0);
    let k = function(module, c"k");
    let (mut address, mut value) = (0_u64, 0_u32);
    assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
    let pointers = [(&raw const address).cast::<c_void>()];
    assert_eq!(launch(k, [1; 3], [1; 3], &pointers), 0);
    assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), address, 4), 0);
    assert_eq!(value, 42);
    assert_eq!(cuMemFree_v2(address), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn links_that_lack_something_are_refused() {
    start();
    assert_eq!(link(&[]).0, INVALID_VALUE);
    assert_eq!(link(&[CALLER]).0, INVALID_PTX);
    let mut linker = 0;
    assert_eq!(cuLinkCreate_v2(0, null(), nothing(), &raw mut linker), 0);
    let add = |kind, bytes: &[u8]| {
        let (data, count) = (bytes.as_ptr().cast(), bytes.len());
        cuLinkAddData_v2(linker, kind, data, count, null(), 0, null(), nothing())
    };
    assert_eq!(add(1, b"no PTX"), INVALID_IMAGE);
    assert_eq!(add(1, b""), INVALID_VALUE);
    assert_eq!(add(5, b"BC"), NOT_SUPPORTED);
    assert_eq!(add(9, b".version 8.0"), INVALID_VALUE);
    assert_eq!(add(2, &fatbin(999, &text(KERNELS))), NO_BINARY_FOR_GPU);
    assert_eq!(cuLinkDestroy(linker), 0);
    assert_eq!(cuLinkDestroy(linker), INVALID_HANDLE);
    assert_eq!(add(1, b".version 8.0"), INVALID_HANDLE);
}

#[test]
fn functions_tell_their_parameters_and_attributes() {
    start();
    let module = module(KERNELS);
    let (add, bounded) = (function(module, c"add"), function(module, c"bounded"));
    let (mut offset, mut bytes) = (0, 0);
    for (index, place) in [(0, 8), (8, 8), (16, 8), (24, 4)].into_iter().enumerate() {
        assert_eq!(
            cuFuncGetParamInfo(add, index, &raw mut offset, &raw mut bytes),
            0
        );
        assert_eq!((offset, bytes), place);
    }
    let beyond = cuFuncGetParamInfo(add, 4, &raw mut offset, &raw mut bytes);
    assert_eq!(beyond, INVALID_VALUE);
    let value = |attribute, function| {
        let mut value = 0;
        let result = cuFuncGetAttribute(&raw mut value, attribute, function);
        (result, value)
    };
    assert_eq!((value(0, add), value(0, bounded)), ((0, 1024), (0, 64)));
    assert_eq!((value(1, add), value(1, bounded)), ((0, 0), (0, 1024)));
    assert_eq!(value(16, add).0, INVALID_VALUE);
    assert_eq!(cuFuncSetAttribute(add, 8, 60 << 10), 0);
    assert_eq!(value(8, add), (0, 60 << 10));
    assert_eq!(cuFuncSetAttribute(add, 8, i32::MAX), INVALID_VALUE);
    assert_eq!(cuFuncSetAttribute(add, 0, 1), INVALID_VALUE);
    assert_eq!(cuModuleUnload(module), 0);
}

extern "C" fn shared_of(threads: i32) -> usize {
    1024 * threads as usize
}

#[test]
fn occupancy_follows_from_the_kernels_limits() {
    start();
    let module = module(KERNELS);
    let (add, bounded) = (function(module, c"add"), function(module, c"bounded"));
    let blocks = |function, threads, shared| {
        let mut blocks = -1;
        let into = &raw mut blocks;
        let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(into, function, threads, shared);
        (result, blocks)
    };
    assert!(blocks(add, 128, 0).1 >= 1);
    assert_eq!(blocks(bounded, 65, 0), (0, 0));
    assert_eq!(blocks(add, 128, 1 << 30), (0, 0));
    assert_eq!(blocks(add, 0, 0).0, INVALID_VALUE);
    let best = |function, shared_of, threads_max| {
        let (mut grid, mut block) = (0, 0);
        let (into, of_block) = (&raw mut grid, &raw mut block);
        let result =
            cuOccupancyMaxPotentialBlockSize(into, of_block, function, shared_of, 0, threads_max);
        (result, grid, block)
    };
    let (result, grid, block) = best(bounded, null(), 0);
    assert_eq!((result, block), (0, 64));
    assert!(grid >= 1);
    assert!((1..=96).contains(&best(add, null(), 96).2));
    // 32 KiB for a warp: less than all threads fit.
    let (result, _, block) = best(add, shared_of as *const c_void, 0);
    assert_eq!(result, 0);
    assert!((32..1024).contains(&block), "{block}");
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn code_is_loaded_lazily() {
    start();
    let mut mode = 0;
    assert_eq!(cuModuleGetLoadingMode(&raw mut mode), 0);
    let eager = std::env::var_os("CUDA_MODULE_LOADING").is_some_and(|mode| mode == "EAGER");
    assert_eq!(mode, if eager { 1 } else { 2 });
}
