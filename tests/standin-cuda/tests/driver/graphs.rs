use std::ptr::{null, null_mut};

use crate::support::{
    PTX, allocate, context, download, function, is_child, launch, made, module, stream, sys, upload,
};
use crate::{ok, refused};

const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn instantiate(graph: sys::CUgraph) -> sys::CUgraphExec {
    made(|v| unsafe { sys::cuGraphInstantiateWithFlags(v, graph, 0) })
}

#[test]
fn what_is_captured_runs_when_it_is_launched() {
    if !is_child("graphs::what_is_captured_runs_when_it_is_launched", &[]) {
        return;
    }
    context();
    let add = function(module(PTX), "add");
    let words = allocate(4096);
    upload(words, &[0; 64]);
    let (first, second) = (stream(), stream());
    let event = made(|v| unsafe { sys::cuEventCreate(v, 2) });
    refused!(900, sys::cuStreamBeginCapture_v2(null_mut(), RELAXED));
    ok!(sys::cuStreamBeginCapture_v2(first, RELAXED));
    assert_eq!(launch(add, (1, 4), first, &mut [words]), 0);
    ok!(sys::cuEventRecord(event, first));
    ok!(sys::cuStreamWaitEvent(second, event, 0));
    assert_eq!(launch(add, (1, 4), second, &mut [words]), 0);
    ok!(sys::cuMemcpyDtoDAsync_v2(words + 64, words, 16, first));
    ok!(sys::cuMemsetD32Async(words + 128, 9, 1, first));
    ok!(sys::cuStreamWriteValue64_v2(first, words + 192, 5, 0));
    refused!(900, sys::cuStreamSynchronize(first));
    refused!(900, sys::cuStreamQuery(second));
    let status = made(|v| unsafe { sys::cuStreamIsCapturing(first, v) });
    assert_eq!(status as u32, 1);
    let graph = made(|v| unsafe { sys::cuStreamEndCapture(first, v) });
    ok!(sys::cuStreamQuery(second));
    assert_eq!(download(words, 64), [0; 64], "nothing has run");
    let mut nodes = 0;
    ok!(sys::cuGraphGetNodes(graph, null_mut(), &mut nodes));
    assert_eq!(nodes, 5);
    let executable = instantiate(graph);
    ok!(sys::cuGraphDestroy(graph));
    for stream in [first, second, first] {
        ok!(sys::cuGraphLaunch(executable, stream));
    }
    ok!(sys::cuCtxSynchronize());
    let found = download(words, 64);
    assert_eq!(found[..5], [6, 6, 6, 6, 0]);
    assert_eq!(found[16..20], [6, 6, 6, 6]);
    assert_eq!([found[32], found[48]], [9, 5]);
    ok!(sys::cuGraphExecDestroy(executable));
    refused!(1, sys::cuGraphLaunch(executable, first));
}

#[test]
fn captures_end_as_documented() {
    if !is_child("graphs::captures_end_as_documented", &[]) {
        return;
    }
    context();
    let (first, second) = (stream(), stream());
    let mut graph = null_mut();
    refused!(1, sys::cuStreamEndCapture(first, &mut graph));
    let event = made(|v| unsafe { sys::cuEventCreate(v, 2) });
    ok!(sys::cuStreamBeginCapture_v2(first, RELAXED));
    refused!(1, sys::cuStreamBeginCapture_v2(first, RELAXED));
    ok!(sys::cuEventRecord(event, first));
    refused!(907, sys::cuEventSynchronize(event));
    ok!(sys::cuStreamWaitEvent(second, event, 0));
    refused!(903, sys::cuStreamEndCapture(second, &mut graph));
    refused!(901, sys::cuStreamEndCapture(first, &mut graph));
    assert!(graph.is_null());
    ok!(sys::cuStreamSynchronize(second));
    // Pageable memory cannot be captured: it might be gone when the graph runs.
    let device = allocate(4096);
    ok!(sys::cuStreamBeginCapture_v2(first, RELAXED));
    let word = 5_u32;
    refused!(
        900,
        sys::cuMemcpyHtoDAsync_v2(device, std::ptr::from_ref(&word).cast(), 4, first)
    );
    ok!(sys::cuStreamEndCapture(first, &mut graph));
}

#[test]
fn nodes_are_added_one_by_one_and_changed() {
    if !is_child("graphs::nodes_are_added_one_by_one_and_changed", &[]) {
        return;
    }
    context();
    let add = function(module(PTX), "add");
    let words = allocate(4096);
    upload(words, &[0; 64]);
    let graph = made(|v| unsafe { sys::cuGraphCreate(v, 0) });
    let mut destination = words;
    let mut pointers = [std::ptr::from_mut(&mut destination).cast::<std::ffi::c_void>()];
    let mut kernel: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    kernel.func = add;
    (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
    (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (2, 1, 1);
    kernel.kernelParams = pointers.as_mut_ptr();
    let first = made(|v| unsafe { sys::cuGraphAddKernelNode_v2(v, graph, null(), 0, &kernel) });
    let mut fill: sys::CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
    (fill.dst, fill.value, fill.elementSize) = (words + 64, 3, 4);
    (fill.width, fill.height) = (2, 1);
    let none = null_mut();
    ok!(sys::cuGraphAddMemsetNode(
        &mut null_mut(),
        graph,
        &first,
        1,
        &fill,
        none
    ));
    let mut copy = std::mem::MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
    let on_device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let mut copy = unsafe {
        (*copy.as_mut_ptr()).srcMemoryType = on_device;
        (*copy.as_mut_ptr()).dstMemoryType = on_device;
        copy.assume_init()
    };
    (copy.srcDevice, copy.dstDevice) = (words, words + 128);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 1, 1);
    ok!(sys::cuGraphAddMemcpyNode(
        &mut null_mut(),
        graph,
        &first,
        1,
        &copy,
        none
    ));
    let mut write: sys::CUstreamBatchMemOpParams = unsafe { std::mem::zeroed() };
    write.writeValue.operation = sys::CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write.writeValue.address = words + 192;
    write.writeValue.__bindgen_anon_1.value64 = 1 << 40;
    let batch = sys::CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: null_mut(),
        count: 1,
        paramArray: &mut write,
        flags: 0,
    };
    ok!(sys::cuGraphAddBatchMemOpNode(
        &mut null_mut(),
        graph,
        null(),
        0,
        &batch
    ));
    let unknown = 0x77 as sys::CUgraphNode;
    refused!(
        1,
        sys::cuGraphAddKernelNode_v2(&mut null_mut(), graph, &unknown, 1, &kernel)
    );
    let executable = instantiate(graph);
    let stream = stream();
    ok!(sys::cuGraphLaunch(executable, stream));
    unsafe { pointers[0].cast::<u64>().write(words + 16) };
    ok!(sys::cuGraphExecKernelNodeSetParams_v2(
        executable, first, &kernel
    ));
    ok!(sys::cuGraphLaunch(executable, stream));
    ok!(sys::cuStreamSynchronize(stream));
    let found = download(words, 64);
    assert_eq!(found[..7], [1, 1, 0, 0, 1, 1, 0]);
    assert_eq!(found[16..19], [3, 3, 0]);
    assert_eq!(found[32..35], [1, 1, 0]);
    assert_eq!(found[48..50], [0, 1 << 8]);
}

fn whole_device() -> sys::CUdevResource {
    let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    made(|v| unsafe { sys::cuDeviceGetDevResource(0, v, kind) })
}

fn count(resource: &sys::CUdevResource) -> u32 {
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

#[test]
fn green_contexts_have_some_of_the_multiprocessors() {
    if !is_child(
        "graphs::green_contexts_have_some_of_the_multiprocessors",
        &[],
    ) {
        return;
    }
    ok!(sys::cuInit(0));
    let whole = whole_device();
    assert_eq!(count(&whole), 132);
    let mut groups = [whole; 8];
    let (mut made_groups, mut left) = (8, whole);
    let split = |groups: *mut _, made_groups: &mut u32, left: *mut _, least| unsafe {
        sys::cuDevSmResourceSplitByCount(groups, made_groups, &whole, left, 0, least)
    };
    assert_eq!(
        split(groups.as_mut_ptr(), &mut made_groups, &mut left, 32) as u32,
        0
    );
    assert_eq!((made_groups, count(&groups[3]), count(&left)), (4, 32, 4));
    assert_eq!(split(null_mut(), &mut made_groups, null_mut(), 1) as u32, 0);
    assert_eq!(made_groups, 132 / 8, "partitions are of 8 at least");
    made_groups = 1;
    assert_eq!(
        split(groups.as_mut_ptr(), &mut made_groups, &mut left, 9) as u32,
        0
    );
    assert_eq!((count(&groups[0]), count(&left)), (16, 116));
    assert_eq!(
        split(groups.as_mut_ptr(), &mut made_groups, &mut left, 133) as u32,
        915
    );

    made_groups = 2;
    assert_eq!(
        split(groups.as_mut_ptr(), &mut made_groups, &mut left, 32) as u32,
        0
    );
    let mut description = null_mut();
    ok!(sys::cuDevResourceGenerateDesc(
        &mut description,
        &mut groups[1],
        1
    ));
    let mut green = null_mut();
    refused!(1, sys::cuGreenCtxCreate(&mut green, description, 0, 0));
    ok!(sys::cuGreenCtxCreate(&mut green, description, 0, 1));
    let context = made(|v| unsafe { sys::cuCtxFromGreenCtx(v, green) });
    ok!(sys::cuCtxSetCurrent(context));
    let ids = function(module(PTX), "ids");
    let words = allocate(4096);
    let stream = made(|v| unsafe { sys::cuGreenCtxStreamCreate(v, green, 1, 0) });
    assert_eq!(launch(ids, (500, 1), stream, &mut [words]), 0);
    ok!(sys::cuStreamSynchronize(stream));
    let mut seen = download(words, 500);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (32..64).collect::<Vec<u32>>());
    ok!(sys::cuStreamDestroy_v2(stream));
    ok!(sys::cuGreenCtxDestroy(green));
    refused!(201, sys::cuGreenCtxDestroy(green));
}
