//! Memory that nodes of graphs allocate and free, and objects to which graphs refer.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_cuda_tests::alone;
use cudarc::driver::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUmemAllocationType as AllocationKind,
    CUmemLocation, CUmemLocationType,
};

const INVALID_VALUE: u32 = 1;
const NOT_FOUND: u32 = 500;
const NOT_SUPPORTED: u32 = 801;
const ALLOCATES: u32 = 10;
const FREES: u32 = 11;
const AUTO_FREE: u64 = 1;
const MOVE: u32 = 1;
/// Mode of a capture that forbids nothing to other threads, such as those of other tests.
const THREAD_LOCAL: u32 = 1;
const WORDS: usize = 1024;

unsafe extern "C" {
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphDestroy(graph: usize) -> u32;
    fn cuGraphClone(clone: *mut usize, graph: usize) -> u32;
    fn cuGraphAddMemAllocNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> u32;
    fn cuGraphAddMemsetNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *const CUDA_MEMSET_NODE_PARAMS,
        context: usize,
    ) -> u32;
    fn cuGraphAddMemFreeNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        address: u64,
    ) -> u32;
    fn cuGraphAddChildGraphNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        child: usize,
    ) -> u32;
    fn cuGraphMemAllocNodeGetParams(node: usize, into: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> u32;
    fn cuGraphMemFreeNodeGetParams(node: usize, into: *mut u64) -> u32;
    fn cuGraphNodeGetType(node: usize, kind: *mut u32) -> u32;
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphDestroyNode(node: usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphExecDestroy(executable: usize) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
    fn cuGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) -> u32;
    fn cuGraphReleaseUserObject(graph: usize, object: usize, count: u32) -> u32;
    fn cuUserObjectCreate(
        object: *mut usize,
        argument: usize,
        destroy: extern "C" fn(usize),
        count: u32,
        flags: u32,
    ) -> u32;
    fn cuUserObjectRetain(object: usize, count: u32) -> u32;
    fn cuUserObjectRelease(object: usize, count: u32) -> u32;
    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: *mut u64) -> u32;
    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: *const u64) -> u32;
    fn cuDeviceGraphMemTrim(device: i32) -> u32;
    fn cuGraphDebugDotPrint(graph: usize, path: *const c_char, flags: u32) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut u32, from: u64, bytes: usize) -> u32;
    fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> u32;
    fn cuMemFreeAsync(address: u64, stream: usize) -> u32;
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: usize) -> u32;
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32) -> u32;
    fn cuPointerGetAttribute(value: *mut u8, attribute: u32, address: u64) -> u32;
}

fn graph() -> usize {
    let mut graph = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
    graph
}

/// Adds a node that allocates [`WORDS`] words. Returns it and the address.
fn allocation(graph: usize) -> (usize, u64) {
    allocation_of(graph, AllocationKind::CU_MEM_ALLOCATION_TYPE_PINNED)
}

fn allocation_of(graph: usize, kind: AllocationKind) -> (usize, u64) {
    // SAFETY: zeros are right for all fields.
    let mut given: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let device = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    given.poolProps.allocType = kind;
    given.poolProps.location = CUmemLocation {
        type_: device,
        id: 0,
    };
    given.bytesize = 4 * WORDS;
    let mut node = 0;
    // SAFETY: pointers are valid for the calls.
    unsafe {
        let given = &raw mut given;
        assert_eq!(
            cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, given),
            0
        );
        (node, (*given).dptr)
    }
}

/// Adds a node that fills the words of a node with `value`.
fn fill(graph: usize, (before, address): (usize, u64), value: u32) -> usize {
    // SAFETY: zeros are right for all fields.
    let mut given: CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
    given.dst = address;
    given.value = value;
    given.elementSize = 4;
    (given.width, given.height) = (WORDS, 1);
    let (mut node, given) = (0, &raw const given);
    // SAFETY: pointers are valid for the call.
    let added =
        unsafe { cuGraphAddMemsetNode(&raw mut node, graph, &raw const before, 1, given, 0) };
    assert_eq!(added, 0);
    node
}

fn free(graph: usize, before: usize, address: u64) -> Result<usize, u32> {
    let mut node = 0;
    let (before, node_at) = (&raw const before, &raw mut node);
    // SAFETY: pointers are valid for the call.
    match unsafe { cuGraphAddMemFreeNode(node_at, graph, before, 1, address) } {
        0 => Ok(node),
        code => Err(code),
    }
}

fn instantiate(graph: usize, flags: u64) -> usize {
    let mut executable = 0;
    // SAFETY: the pointer is valid for the call.
    let made = unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, flags) };
    assert_eq!(made, 0);
    executable
}

fn read(address: u64) -> Result<Vec<u32>, u32> {
    let mut words = vec![0; WORDS];
    // SAFETY: there is room for the words.
    match unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr(), address, 4 * WORDS) } {
        0 => Ok(words),
        code => Err(code),
    }
}

fn is_known(address: u64) -> bool {
    // SAFETY: the pointers are valid for the call.
    match unsafe { cuMemGetAddressRange_v2(&mut 0, &mut 0, address) } {
        0 => true,
        code => {
            assert_eq!(code, NOT_FOUND);
            false
        }
    }
}

#[test]
fn memory_is_the_programs_from_a_launch_until_it_is_freed() {
    let _alone = alone();
    let graph = graph();
    let (node, address) = allocation(graph);
    fill(graph, (node, address), 7);
    let executable = instantiate(graph, 0);
    // SAFETY: handles are right, addresses may be wrong.
    unsafe {
        assert_eq!(cuMemFree_v2(address), INVALID_VALUE, "nothing was launched");
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(read(address), Ok(vec![7; WORDS]));
        assert_eq!(
            cuGraphLaunch(executable, 0),
            INVALID_VALUE,
            "it is allocated"
        );
        assert_eq!(cuMemFree_v2(address), 0);
        assert_eq!(cuMemFree_v2(address), INVALID_VALUE);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        // The memory survives its graphs as long as it is allocated.
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(read(address), Ok(vec![7; WORDS]));
        assert_eq!(cuMemFreeAsync(address, 0), 0);
    }
    assert!(!is_known(address));
}

#[test]
fn a_launch_may_free_what_the_one_before_has_allocated() {
    let _alone = alone();
    let graph = graph();
    let (node, address) = allocation(graph);
    fill(graph, (node, address), 9);
    let executable = instantiate(graph, AUTO_FREE);
    // SAFETY: handles are right.
    unsafe {
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(read(address), Ok(vec![9; WORDS]));
        assert_eq!(cuMemFree_v2(address), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert!(is_known(address), "a graph has the node");
        assert_eq!(cuGraphDestroy(graph), 0);
    }
    assert!(!is_known(address));
}

#[test]
fn what_nodes_of_memory_forbid_is_refused() {
    let _alone = alone();
    let (graph, other) = (graph(), graph());
    let (node, address) = allocation(graph);
    let mut found = 0;
    // SAFETY: pointers are valid for the calls, handles and addresses may be wrong.
    unsafe {
        assert_eq!(cuGraphNodeGetType(node, &raw mut found), 0);
        assert_eq!(found, ALLOCATES);
        let mut given: CUDA_MEM_ALLOC_NODE_PARAMS = std::mem::zeroed();
        assert_eq!(cuGraphMemAllocNodeGetParams(node, &raw mut given), 0);
        assert_eq!((given.dptr, given.bytesize), (address, 4 * WORDS));
        let unbehind = cuGraphAddMemFreeNode(&mut 0, graph, null(), 0, address);
        assert_eq!(unbehind, INVALID_VALUE, "not behind the allocation");
        let freed = free(graph, node, address).unwrap();
        assert_eq!(cuGraphNodeGetType(freed, &raw mut found), 0);
        assert_eq!(found, FREES);
        let mut told = 0;
        assert_eq!(cuGraphMemFreeNodeGetParams(freed, &raw mut told), 0);
        assert_eq!(told, address);
        assert_eq!(
            cuGraphMemFreeNodeGetParams(node, &raw mut told),
            INVALID_VALUE
        );
        assert_eq!(free(graph, node, address), Err(INVALID_VALUE), "twice");
        assert_eq!(free(graph, node, address + 4), Err(INVALID_VALUE));
        assert_eq!(free(graph, node, 0), Err(INVALID_VALUE));
        assert_eq!(cuGraphClone(&mut 0, graph), NOT_SUPPORTED);
        let child = cuGraphAddChildGraphNode(&mut 0, other, null(), 0, graph);
        assert_eq!(child, NOT_SUPPORTED);
        assert_eq!(cuGraphDestroyNode(node), NOT_SUPPORTED);
        given.bytesize = 0;
        let empty = cuGraphAddMemAllocNode(&mut 0, graph, null(), 0, &raw mut given);
        assert_eq!(empty, INVALID_VALUE);
        given.bytesize = usize::MAX;
        let huge = cuGraphAddMemAllocNode(&mut 0, graph, null(), 0, &raw mut given);
        assert_eq!(huge, 2, "more than the device has");
        given.bytesize = 64;
        given.accessDescCount = usize::MAX;
        let accesses = cuGraphAddMemAllocNode(&mut 0, graph, null(), 0, &raw mut given);
        assert_eq!(accesses, INVALID_VALUE);
        // A graph that frees what it allocates can be launched again and again.
        let executable = instantiate(graph, 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuGraphDestroy(other), 0);
    }
}

#[test]
fn captured_allocations_become_nodes() {
    let _alone = alone();
    let (mut stream, mut graph, mut address) = (0, 0, 0);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        assert_eq!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
        assert_eq!(cuMemAllocAsync(&raw mut address, 4 * WORDS, stream), 0);
        assert_eq!(cuMemsetD32Async(address, 5, WORDS, stream), 0);
        assert_eq!(cuMemFreeAsync(address, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
        let (mut nodes, mut count) = ([0; 3], 3);
        assert_eq!(
            cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count),
            0
        );
        let kinds = nodes.map(|node| {
            let mut kind = 0;
            assert_eq!(cuGraphNodeGetType(node, &raw mut kind), 0);
            kind
        });
        assert_eq!((count, kinds), (3, [ALLOCATES, 2, FREES]));
        let executable = instantiate(graph, 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert!(!is_known(address));
    }
}

#[test]
fn memory_of_graphs_is_counted() {
    let _alone = alone();
    let mut value = 0;
    let graph = graph();
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(
            cuDeviceGetGraphMemAttribute(0, 4, &raw mut value),
            INVALID_VALUE
        );
        allocation(graph);
        for attribute in 0..4 {
            value = 0;
            let told = cuDeviceGetGraphMemAttribute(0, attribute, &raw mut value);
            assert!(told == 0 && value >= 4096, "{attribute}: {told}, {value}");
        }
        let one = 1;
        assert_eq!(
            cuDeviceSetGraphMemAttribute(0, 1, &raw const one),
            INVALID_VALUE
        );
        assert_eq!(cuDeviceSetGraphMemAttribute(0, 0, &0), INVALID_VALUE);
        assert_eq!(cuDeviceSetGraphMemAttribute(0, 3, &0), 0);
        assert_eq!(cuDeviceGraphMemTrim(0), 0);
        assert_eq!(cuDeviceGraphMemTrim(1), 101);
        assert_eq!(cuGraphDestroy(graph), 0);
    }
}

static ENDED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn end(argument: usize) {
    ENDED.fetch_or(argument, Ordering::Relaxed);
}

/// Waits until the objects of the bits have ended.
fn wait_for(bits: usize) {
    let start = Instant::now();
    while ENDED.load(Ordering::Relaxed) & bits != bits {
        assert!(start.elapsed() < Duration::from_secs(20), "no object ended");
        std::thread::yield_now();
    }
}

fn object(bit: usize, count: u32) -> usize {
    let mut object = 0;
    // SAFETY: the pointer is valid for the call.
    let made = unsafe { cuUserObjectCreate(&raw mut object, bit, end, count, 1) };
    assert_eq!(made, 0);
    object
}

#[test]
fn objects_end_with_the_last_reference() {
    let _alone = alone();
    let (graph, mut clone) = (graph(), 0);
    let (moved, shared, own) = (object(1, 1), object(2, 1), object(4, 2));
    // SAFETY: pointers are valid for the calls, handles may be wrong.
    unsafe {
        assert_eq!(cuUserObjectCreate(&mut 0, 0, end, 0, 1), INVALID_VALUE);
        assert_eq!(cuUserObjectCreate(&mut 0, 0, end, 1, 0), INVALID_VALUE);
        assert_eq!(cuUserObjectRetain(own, 1), 0);
        assert_eq!(
            cuUserObjectRelease(own, 4),
            INVALID_VALUE,
            "more than there are"
        );
        assert_eq!(cuUserObjectRelease(own, 3), 0);
        wait_for(4);
        assert_eq!(cuUserObjectRelease(own, 1), INVALID_VALUE, "it has ended");
        assert_eq!(
            cuGraphRetainUserObject(graph, moved, 2, MOVE),
            INVALID_VALUE
        );
        assert_eq!(cuGraphRetainUserObject(graph, moved, 1, MOVE), 0);
        assert_eq!(
            cuUserObjectRelease(moved, 1),
            INVALID_VALUE,
            "the graph has it"
        );
        assert_eq!(cuGraphRetainUserObject(graph, shared, 2, 0), 0);
        assert_eq!(cuGraphReleaseUserObject(graph, shared, 3), INVALID_VALUE);
        assert_eq!(cuGraphReleaseUserObject(graph, shared, 2), 0);
        assert_eq!(cuGraphReleaseUserObject(graph, shared, 1), INVALID_VALUE);
        assert_eq!(cuGraphClone(&raw mut clone, graph), 0);
        let executable = instantiate(clone, 0);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuGraphDestroy(clone), 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        // The functions are called in order, so this would come after those of the graphs.
        let last = object(8, 1);
        assert_eq!(cuUserObjectRelease(last, 1), 0);
        wait_for(8);
        assert_eq!(ENDED.load(Ordering::Relaxed) & 3, 0, "both are referred to");
        assert_eq!(cuGraphExecDestroy(executable), 0);
        wait_for(1);
        assert_eq!(cuUserObjectRelease(shared, 1), 0);
        wait_for(2);
    }
}

#[test]
fn a_graph_is_described_in_a_file() {
    let _alone = alone();
    let graph = graph();
    let (node, address) = allocation(graph);
    fill(graph, (node, address), 1);
    let path = std::env::temp_dir().join(format!("causeway-{}.dot", std::process::id()));
    let text = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path ends with a NUL byte.
    unsafe {
        assert_eq!(cuGraphDebugDotPrint(graph, text.as_ptr(), 0), 0);
        assert_eq!(cuGraphDebugDotPrint(graph, null(), 0), INVALID_VALUE);
        let nowhere = c"/no/such/folder/graph.dot".as_ptr();
        assert_eq!(cuGraphDebugDotPrint(graph, nowhere, 0), 304);
        assert_eq!(cuGraphDestroy(graph), 0);
    }
    let found = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for part in ["digraph", "MEM_ALLOC", "MEMSET", " -> "] {
        assert!(found.contains(part), "{part} is not in {found}");
    }
}

#[test]
fn a_node_may_allocate_managed_memory() {
    let _alone = alone();
    let mut managed = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuDeviceGetAttribute(&raw mut managed, 83, 0) }, 0);
    if managed == 0 {
        return;
    }
    let graph = graph();
    let (node, address) = allocation_of(graph, AllocationKind::CU_MEM_ALLOCATION_TYPE_MANAGED);
    fill(graph, (node, address), 6);
    let executable = instantiate(graph, 0);
    // SAFETY: handles are right, and the memory has as many words.
    unsafe {
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(cuStreamSynchronize(0), 0);
        let words = std::slice::from_raw_parts(address as *const u32, WORDS);
        assert!(words.iter().all(|word| *word == 6));
        let mut is_managed = 0_u8;
        assert_eq!(cuPointerGetAttribute(&raw mut is_managed, 8, address), 0);
        assert_eq!(is_managed, 1);
        assert_eq!(cuMemFree_v2(address), 0);
        assert_eq!(cuGraphExecDestroy(executable), 0);
        assert_eq!(cuGraphDestroy(graph), 0);
    }
    assert!(!is_known(address));
}
