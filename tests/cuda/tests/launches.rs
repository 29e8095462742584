//! Launches: parameters in both forms, and what is refused before the device sees it.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;
use std::ptr::null;

use causeway_cuda_tests::library as start;
use code::*;

const COUNT: u32 = 1000;
const BYTES: usize = 4 * COUNT as usize;

fn allocate(bytes: usize) -> u64 {
    let mut address = 0;
    assert_eq!(cuMemAlloc_v2(&raw mut address, bytes), 0);
    address
}

fn upload(values: &[f32]) -> u64 {
    let address = allocate(size_of_val(values));
    let copied = cuMemcpyHtoD_v2(address, values.as_ptr().cast(), size_of_val(values));
    assert_eq!(copied, 0);
    address
}

fn words(address: u64, count: usize) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    assert_eq!(
        cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, 4 * count),
        0
    );
    words
}

/// Adds two vectors on the device, with the launch given: it gets the function and four parameters.
fn add(launch: impl FnOnce(usize, [u64; 3], u32) -> u32) {
    start();
    let module = module(KERNELS);
    let left: Vec<f32> = (0..COUNT).map(|n| n as f32).collect();
    let right: Vec<f32> = (0..COUNT).map(|n| 0.5 * n as f32).collect();
    let addresses = [upload(&left), upload(&right), allocate(BYTES)];
    assert_eq!(launch(function(module, c"add"), addresses, COUNT), 0);
    // The module may go at once: its work is done first.
    assert_eq!(cuModuleUnload(module), 0);
    let sums = words(addresses[2], COUNT as usize);
    for (index, sum) in sums.into_iter().enumerate() {
        assert_eq!(f32::from_bits(sum), 1.5 * index as f32);
    }
    for address in addresses {
        assert_eq!(cuMemFree_v2(address), 0);
    }
}

fn at<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}

#[test]
fn vectors_are_added_with_a_pointer_for_each_parameter() {
    add(|function, [a, b, c], n| {
        launch(
            function,
            [8, 1, 1],
            [128, 1, 1],
            &[at(&a), at(&b), at(&c), at(&n)],
        )
    });
}

#[test]
fn vectors_are_added_with_packed_parameters() {
    add(|function, [a, b, c], n| {
        // Padded to its alignment, as a C structure is.
        let (packed, bytes) = ([a, b, c, n.into()], 32_usize);
        let extra = [1, packed.as_ptr() as usize, 2, &raw const bytes as usize, 0];
        cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, 0, null(), extra.as_ptr())
    });
}

/// A kernel of 21 parameters of several sizes, which stores their sum behind the first.
fn mixed() -> String {
    let loads = [
        ("u8", "%h1", "cvt.u64.u16 %d2, %h1;"),
        ("u16", "%h1", "cvt.u64.u16 %d2, %h1;"),
        ("u32", "%r1", "cvt.u64.u32 %d2, %r1;"),
        ("u64", "%d2", ""),
    ];
    let mut declared = String::from(".param .u64 to");
    let mut body = String::from("mov.u64 %d1, 0;\n");
    for index in 0..20 {
        let (size, register, widen) = loads[index % 4];
        declared += &format!(", .param .{size} p{index}");
        body += &format!("ld.param.{size} {register}, [p{index}];\n{widen}\n");
        body += "add.u64 %d1, %d1, %d2;\n";
    }
    format!(
        ".visible .entry mixed({declared})\n{{\n.reg .b16 %h<2>; .reg .b32 %r<2>;\n\
         .reg .b64 %d<4>;\n{body}ld.param.u64 %d3, [to];\nst.global.u64 [%d3], %d1;\nret;\n}}"
    )
}

#[test]
fn twenty_one_parameters_of_all_sizes_arrive() {
    start();
    let module = module(&mixed());
    let function = function(module, c"mixed");
    let to = allocate(8);
    let values: Vec<u64> = (1..=20).map(|n| n * 11).collect();
    let mut pointers = vec![at(&to)];
    pointers.extend(values.iter().map(at));
    assert_eq!(launch(function, [1; 3], [1; 3], &pointers), 0);
    assert_eq!(words(to, 2), [11 * 210, 0]);
    pointers[20] = null();
    assert_eq!(launch(function, [1; 3], [1; 3], &pointers), INVALID_VALUE);
    assert_eq!(cuMemFree_v2(to), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn large_parameters_arrive_whole() {
    start();
    let body = ".visible .entry large(.param .u64 to, .param .align 4 .b8 p[3000])
    {
        .reg .b32 %r<2>;
        .reg .b64 %d<2>;
        ld.param.u32 %r1, [p+2996];
        ld.param.u64 %d1, [to];
        st.global.u32 [%d1], %r1;
        ret;
    }";
    let module = module(body);
    let to = allocate(4);
    let given: Vec<u32> = (0..750).map(|n| n * 3).collect();
    let pointers = [at(&to), given.as_ptr().cast()];
    assert_eq!(
        launch(function(module, c"large"), [1; 3], [1; 3], &pointers),
        0
    );
    assert_eq!(words(to, 1), [3 * 749]);
    assert_eq!(cuMemFree_v2(to), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn parameters_of_the_wrong_form_or_size_are_refused() {
    start();
    let module = module(KERNELS);
    let add = function(module, c"add");
    let zero = [0_u64; 4];
    let pointers = [at(&zero); 4];
    let launched = |given: *const *const c_void, extra: *const usize| {
        cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, 0, given, extra)
    };
    let packed = |bytes: usize| {
        let size = &raw const bytes as usize;
        launched(null(), [1, zero.as_ptr() as usize, 2, size, 0].as_ptr())
    };
    assert_eq!(launched(null(), null()), INVALID_VALUE);
    assert_eq!(launched(pointers.as_ptr(), [0].as_ptr()), INVALID_VALUE);
    for bytes in [0, 27, 33, usize::MAX] {
        assert_eq!(packed(bytes), INVALID_VALUE, "{bytes}");
    }
    // None of its elements is to be added: nothing is read.
    assert_eq!((packed(28), packed(32)), (0, 0));
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn launches_beyond_the_limits_are_refused_and_the_device_goes_on() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    let required = function(module, c"required");
    for (function, grid, block, result) in [
        (bounded, [0, 1, 1], [1, 1, 1], INVALID_VALUE),
        (bounded, [1, 1, 1], [1, 1, 0], INVALID_VALUE),
        (bounded, [1, 65536, 1], [1, 1, 1], INVALID_VALUE),
        (bounded, [1, 1, 65536], [1, 1, 1], INVALID_VALUE),
        (bounded, [u32::MAX, 1, 1], [1, 1, 1], INVALID_VALUE),
        (bounded, [1, 1, 1], [1025, 1, 1], INVALID_VALUE),
        (bounded, [1, 1, 1], [32, 32, 2], INVALID_VALUE),
        (bounded, [1, 1, 1], [65, 1, 1], INVALID_VALUE),
        (bounded, [1, 1, 1], [64, 1, 1], 0),
        (required, [1, 1, 1], [64, 1, 1], INVALID_VALUE),
        (required, [2, 1, 1], [32, 2, 1], 0),
    ] {
        assert_eq!(
            launch(function, grid, block, &[]),
            result,
            "{grid:?} {block:?}"
        );
    }
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn dynamic_shared_memory_is_what_the_function_allows() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    let with = |bytes| cuLaunchKernel(bounded, 1, 1, 1, 32, 1, 1, bytes, 0, null(), null());
    let usual = (48 << 10) - 1024;
    assert_eq!((with(usual), with(usual + 1)), (0, INVALID_VALUE));
    assert_eq!(cuFuncSetAttribute(bounded, 8, 64 << 10), 0);
    assert_eq!((with(64 << 10), with((64 << 10) + 1)), (0, INVALID_VALUE));
    assert_eq!(cuFuncSetAttribute(bounded, 8, 100), 0);
    assert_eq!((with(100), with(101)), (0, INVALID_VALUE));
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

unsafe extern "C" {
    safe fn cuFuncSetBlockShape(function: usize, x: i32, y: i32, z: i32) -> u32;
    safe fn cuFuncSetSharedSize(function: usize, bytes: u32) -> u32;
    safe fn cuParamSetSize(function: usize, bytes: u32) -> u32;
    safe fn cuParamSeti(function: usize, offset: i32, value: u32) -> u32;
    safe fn cuParamSetv(function: usize, offset: i32, value: *const c_void, bytes: u32) -> u32;
    safe fn cuLaunchGrid(function: usize, width: i32, height: i32) -> u32;
}

#[test]
fn vectors_are_added_by_functions_of_the_first_version() {
    add(|function, addresses, n| {
        assert_eq!(cuLaunchGrid(function, 8, 1), INVALID_VALUE, "no shape");
        assert_eq!(cuFuncSetBlockShape(function, 128, 0, 1), INVALID_VALUE);
        assert_eq!(cuFuncSetBlockShape(function, 128, 1, 1), 0);
        assert_eq!(cuLaunchGrid(function, 8, 1), INVALID_VALUE, "no parameters");
        assert_eq!(cuParamSetv(function, -8, at(&addresses), 24), INVALID_VALUE);
        assert_eq!(cuParamSetv(function, 0, null(), 24), INVALID_VALUE);
        assert_eq!(cuParamSetSize(function, 1 << 20), INVALID_VALUE);
        assert_eq!(cuParamSetSize(function + 1, 28), INVALID_HANDLE);
        assert_eq!(cuFuncSetSharedSize(function, 0), 0);
        assert_eq!(cuParamSetSize(function, 28), 0);
        assert_eq!(cuParamSetv(function, 0, at(&addresses), 24), 0);
        assert_eq!(cuParamSeti(function, 24, n), 0);
        cuLaunchGrid(function, 8, 1)
    });
}

#[test]
fn functions_belong_to_their_context_and_kernels_to_none() {
    start();
    let of_primary = module(KERNELS);
    let function = function(of_primary, c"bounded");
    let (mut library, mut kernel) = (0, 0);
    let image = text(KERNELS);
    let (at, none) = (image.as_ptr().cast(), null());
    let loaded = cuLibraryLoadData(&raw mut library, at, none, nothing(), 0, none, null(), 0);
    assert_eq!(loaded, 0);
    assert_eq!(
        cuLibraryGetKernel(&raw mut kernel, library, c"bounded".as_ptr()),
        0
    );
    let (mut before, mut context) = (0, 0);
    assert_eq!(cuCtxGetCurrent(&raw mut before), 0);
    assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
    assert_eq!(launch(function, [1; 3], [1; 3], &[]), INVALID_HANDLE);
    assert_eq!(launch(kernel, [1; 3], [1; 3], &[]), 0);
    assert_eq!(cuCtxDestroy_v2(context), 0);
    assert_eq!(cuCtxSetCurrent(before), 0);
    assert_eq!(launch(function, [1; 3], [1; 3], &[]), 0);
    assert_eq!(launch(kernel, [1; 3], [1; 3], &[]), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuLibraryUnload(library), 0);
    assert_eq!(launch(kernel, [1; 3], [1; 3], &[]), INVALID_HANDLE);
    assert_eq!(cuModuleUnload(of_primary), 0);
}

#[test]
fn cooperative_grids_must_fit_the_device() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    let with = |blocks| cuLaunchCooperativeKernel(bounded, blocks, 1, 1, 32, 1, 1, 0, 0, null());
    assert_eq!((with(1), with(1 << 30)), (0, COOPERATIVE_LAUNCH_TOO_LARGE));
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn a_refused_launch_ends_the_capture_of_its_stream() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    let (mut stream, mut graph) = (0, 0);
    assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    let plain = |threads, shared_bytes| {
        let parameters = null();
        cuLaunchKernel(
            bounded,
            1,
            1,
            1,
            threads,
            1,
            1,
            shared_bytes,
            stream,
            parameters,
            null(),
        )
    };
    let together = |blocks, shared_bytes| {
        cuLaunchCooperativeKernel(bounded, blocks, 1, 1, 1, 1, 1, shared_bytes, stream, null())
    };
    let refused: [(&dyn Fn() -> u32, u32); 5] = [
        (&|| plain(0, 0), INVALID_VALUE),
        (&|| plain(5000, 0), INVALID_VALUE),
        (&|| plain(1, 1 << 30), INVALID_VALUE),
        (&|| together(1, 1 << 30), INVALID_VALUE),
        (&|| together(1 << 30, 0), COOPERATIVE_LAUNCH_TOO_LARGE),
    ];
    for (launched, code) in refused {
        assert_eq!(cuStreamBeginCapture_v2(stream, 2), 0);
        assert_eq!(plain(1, 0), 0);
        assert_eq!(launched(), code);
        assert_eq!(plain(1, 0), STREAM_CAPTURE_INVALIDATED);
        assert_eq!(
            cuStreamEndCapture(stream, &raw mut graph),
            STREAM_CAPTURE_INVALIDATED
        );
    }
    // Without a capture, no block of such a launch can run.
    assert_eq!(together(1, 1 << 30), COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(together(0, 1 << 30), INVALID_VALUE);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

/// Each block adds to a word, and waits until all have.
const MEETING: &str = ".visible .entry meet(.param .u64 to)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    mov.u32 %r1, %nctaid.x;
    atom.release.gpu.global.add.u32 %r2, [%d1], 1;
wait:
    ld.acquire.gpu.global.u32 %r3, [%d1];
    setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra wait;
    ret;
}";

#[test]
fn blocks_of_cooperative_launches_meet_also_in_graphs() {
    start();
    let module = module(MEETING);
    let meet = function(module, c"meet");
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
    let to = upload(&[0.0]);
    let pointers = [at(&to)];
    let parameters = pointers.as_ptr().cast();
    let launched = || cuLaunchCooperativeKernel(meet, 24, 1, 1, 1, 1, 1, 0, stream, parameters);
    assert_eq!(launched(), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(words(to, 1), [24]);
    assert_eq!(cuMemcpyHtoD_v2(to, [0_u32].as_ptr().cast(), 4), 0);
    assert_eq!(cuStreamBeginCapture_v2(stream, 2), 0);
    assert_eq!(launched(), 0);
    assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
    assert_eq!(
        cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
        0
    );
    assert_eq!(cuGraphLaunch(executable, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(words(to, 1), [24]);
    assert_eq!(cuMemFree_v2(to), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

/// Stores the last word of its large parameter.
const LARGE: &str = ".visible .entry large(.param .u64 to, .param .align 4 .b8 block[32756])
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [block+32752];
    st.global.u32 [%d1], %r1;
    ret;
}";

#[test]
fn kernels_have_parameters_of_up_to_32764_bytes() {
    start();
    let module = module(LARGE);
    let large = function(module, c"large");
    let to = upload(&[0.0]);
    let block: Vec<u32> = (0..8189).collect();
    let pointers = [at(&to), block.as_ptr().cast()];
    for _ in 0..100 {
        assert_eq!(launch(large, [1; 3], [1; 3], &pointers), 0);
    }
    assert_eq!(words(to, 1), [8188]);
    assert_eq!(cuMemFree_v2(to), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

/// Launches `function` with attributes: the number of each, and the first three words of its value.
fn launch_with(function: usize, attributes: &[(u32, [u32; 3])]) -> u32 {
    let mut list = vec![[0_u32; 18]; attributes.len()];
    for (place, (number, value)) in list.iter_mut().zip(attributes) {
        place[0] = *number;
        place[2..5].copy_from_slice(value);
    }
    let (address, count) = (list.as_ptr() as u64, list.len() as u64);
    // Grid, block, shared memory and padding, stream, attributes and their number.
    let pair = |low: u64, high: u64| low | high << 32;
    let ones = pair(1, 1);
    let configuration = [ones, ones, ones, 0, 0, address, count];
    cuLaunchKernelEx(configuration.as_ptr().cast(), function, null(), null())
}

#[test]
fn attributes_of_launches_are_read() {
    start();
    let module = module(KERNELS);
    let bounded = function(module, c"bounded");
    for (attributes, result) in [
        (vec![], 0),
        (vec![(4, [1, 1, 1]), (6, [1, 0, 0]), (8, [2, 0, 0])], 0),
        (vec![(2, [1, 0, 0])], 0),
        (vec![(2, [1, 0, 0]), (4, [1, 1, 1])], 0),
        (vec![(4, [2, 1, 1])], INVALID_CLUSTER_SIZE),
        (vec![(4, [0; 3])], 0),
        (vec![(4, [0, 1, 1])], INVALID_CLUSTER_SIZE),
        (vec![(4, [64, 1, 1])], INVALID_CLUSTER_SIZE),
        (vec![(7, [0; 3])], NOT_SUPPORTED),
        (vec![(999, [0; 3])], INVALID_VALUE),
    ] {
        assert_eq!(launch_with(bounded, &attributes), result, "{attributes:?}");
    }
    assert_eq!(
        cuLaunchKernelEx(null(), bounded, null(), null()),
        INVALID_VALUE
    );
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!(cuModuleUnload(module), 0);
}

#[test]
fn clusters_that_a_kernel_requires_are_refused_where_there_are_none() {
    start();
    let kernel =
        |cluster: &str| format!(".visible .entry k() .reqnctapercluster {cluster} {{ ret; }}");
    let (pairs, single) = (module(&kernel("2, 1, 1")), module(&kernel("1")));
    let (pair, one) = (function(pairs, c"k"), function(single, c"k"));
    let mut side = 0;
    // `CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH`
    assert_eq!(cuFuncGetAttribute(&raw mut side, 11, pair), 0);
    assert_eq!(side, 2);
    for (function, value) in [(pair, 2), (pair, 0), (one, 1)] {
        assert_eq!(cuFuncSetAttribute(function, 11, value), NOT_PERMITTED);
    }
    let launched = |function| launch(function, [4, 1, 1], [1; 3], &[]);
    assert_eq!(launched(pair), INVALID_CLUSTER_SIZE);
    assert_eq!(launched(one), 0);
    assert_eq!(cuCtxSynchronize(), 0);
    assert_eq!((cuModuleUnload(pairs), cuModuleUnload(single)), (0, 0));
}

const COUNTING: &str = ".visible .entry count(.param .u64 to, .param .u32 step)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [step];
    atom.global.add.u32 %r2, [%d1], %r1;
    ret;
}";

#[test]
fn threads_launch_at_the_same_time() {
    start();
    let module = module(COUNTING);
    let count = function(module, c"count");
    let to = upload(&[0.0]);
    std::thread::scope(|scope| {
        for step in 1..=4_u32 {
            scope.spawn(move || {
                start();
                for _ in 0..500 {
                    let pointers = [at(&to), at(&step)];
                    assert_eq!(launch(count, [1; 3], [1; 3], &pointers), 0);
                }
            });
        }
    });
    assert_eq!(words(to, 1), [10 * 500]);
    assert_eq!(cuMemFree_v2(to), 0);
    assert_eq!(cuModuleUnload(module), 0);
}
