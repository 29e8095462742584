use std::ffi::CStr;
use std::ptr::null_mut;

use crate::support::{
    PTX, allocate, context, download, function, is_child, launch, made, module, sys,
};
use crate::{ok, refused};

#[test]
fn a_module_tells_of_its_functions_and_variables() {
    if !is_child(
        "modules::a_module_tells_of_its_functions_and_variables",
        &[],
    ) {
        return;
    }
    context();
    let module = module(PTX);
    let count = function(module, "count");
    assert_eq!(function(module, "count"), count, "one handle per function");
    let mut missing = null_mut();
    refused!(
        500,
        sys::cuModuleGetFunction(&mut missing, module, c"none".as_ptr())
    );
    assert_eq!(
        made(|v| unsafe { sys::cuModuleGetFunctionCount(v, module) }),
        4
    );
    let mut all = [null_mut(); 4];
    ok!(sys::cuModuleEnumerateFunctions(all.as_mut_ptr(), 4, module));
    let name_of = |function| {
        let name = made(|v| unsafe { sys::cuFuncGetName(v, function) });
        unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned()
    };
    let names: Vec<String> = all.into_iter().map(name_of).collect();
    assert_eq!(names, ["add", "count", "ids", "stop"]);
    let add = function(module, "add");
    let (mut offset, mut size) = (1, 1);
    ok!(sys::cuFuncGetParamInfo(add, 0, &mut offset, &mut size));
    assert_eq!((offset, size), (0, 8));
    refused!(1, sys::cuFuncGetParamInfo(add, 1, &mut offset, &mut size));
    let (mut address, mut bytes) = (0, 0);
    ok!(sys::cuModuleGetGlobal_v2(
        &mut address,
        &mut bytes,
        module,
        c"counter".as_ptr()
    ));
    assert_eq!(bytes, 4);
    assert_eq!(launch(count, (2, 3), null_mut(), &mut []), 0);
    assert_eq!(download(address, 1), [7 + 6]);
    ok!(sys::cuModuleUnload(module));
    assert_eq!(launch(count, (1, 1), null_mut(), &mut []), 400);
    refused!(400, sys::cuModuleUnload(module));
}

/// Loads with a buffer for errors; the code and what the buffer then holds.
fn load(image: &[u8]) -> (u32, String) {
    let mut log = [0_u8; 256];
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast(), 256 as *mut _];
    let (mut module, image) = (null_mut(), image.as_ptr().cast());
    let code = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        sys::cuModuleLoadDataEx(&mut module, image, 2, options, values) as u32
    };
    let text = CStr::from_bytes_until_nul(&log).unwrap();
    (code, text.to_str().unwrap().to_owned())
}

#[test]
fn images_that_cannot_be_loaded_say_why() {
    if !is_child("modules::images_that_cannot_be_loaded_say_why", &[]) {
        return;
    }
    context();
    let bad = PTX.replace("add.u32 %r2, %r2, 1;", "add.u32 %r2, %nothing, 1;");
    let (code, log) = load(format!("{bad}\0").as_bytes());
    assert_eq!(code, 218);
    assert!(log.contains("line 14; error"), "{log}");
    let later = PTX.replace("8.0", "99.0");
    assert_eq!(load(format!("{later}\0").as_bytes()).0, 222);
    let newer = PTX.replace("sm_90", "sm_100");
    assert_eq!(load(format!("{newer}\0").as_bytes()).0, 218);
    assert_eq!(load(b"hello\0").0, 200);
    let foreign = causeway_standin_cuda::cubin(PTX, 80, 0, 0);
    assert_eq!(load(&foreign).0, 209);
    let fat = causeway_standin_cuda::fatbin(&[(true, 80, &foreign)]);
    assert_eq!(load(&fat).0, 209);
    let own = causeway_standin_cuda::cubin(PTX, 90, 4, 0);
    assert_eq!(load(&own).0, 0);
    let fat = causeway_standin_cuda::fatbin(&[(true, 80, &foreign), (false, 90, PTX.as_bytes())]);
    assert_eq!(load(&fat).0, 0);
}

#[test]
fn the_linker_makes_cubins_with_the_sizes_of_their_variables() {
    let name = "modules::the_linker_makes_cubins_with_the_sizes_of_their_variables";
    if !is_child(name, &[]) {
        return;
    }
    context();
    let link = |text: &str| {
        let state = made(|v| unsafe { sys::cuLinkCreate_v2(0, null_mut(), null_mut(), v) });
        let text = format!("{text}\0");
        let code = unsafe {
            sys::cuLinkAddData_v2(
                state,
                sys::CUjitInputType::CU_JIT_INPUT_PTX,
                text.as_ptr().cast_mut().cast(),
                text.len(),
                c"input".as_ptr(),
                0,
                null_mut(),
                null_mut(),
            ) as u32
        };
        (state, code)
    };
    let (bad, code) = link(".version 8.0\n.target sm_90\n.address_size 64\nnonsense");
    // What a text lacks may come with another one, so that the last call finds the error.
    assert_eq!(code, 0);
    let (mut image, mut bytes) = (null_mut(), 0);
    let completed = unsafe { sys::cuLinkComplete(bad, &mut image, &mut bytes) };
    assert_eq!(completed as u32, 218);
    ok!(sys::cuLinkDestroy(bad));
    let (state, code) = link(PTX);
    assert_eq!(code, 0);
    ok!(sys::cuLinkComplete(state, &mut image, &mut bytes));
    let content = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
    let wanted = causeway_standin_cuda::cubin(PTX, 90, 4, 0);
    assert_eq!(content, wanted);
    let module = made(|v| unsafe { sys::cuModuleLoadData(v, image) });
    ok!(sys::cuLinkDestroy(state));
    let words = allocate(4096);
    ok!(sys::cuMemsetD32_v2(words, 3, 1));
    let add = function(module, "add");
    assert_eq!(launch(add, (1, 1), null_mut(), &mut [words]), 0);
    assert_eq!(download(words, 1), [4]);
}
