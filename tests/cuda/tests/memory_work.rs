//! Work on memory in graphs and captures, and operations of streams on words.

#![allow(unsafe_code, reason = "the driver API is a C library")]

use causeway_cuda_tests::library;
use cudarc::driver::sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemorytype};

const INVALID_VALUE: u32 = 1;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;
const BYTES: usize = 4096;

unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u64, bytes: usize, flags: u32) -> u32;
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: usize) -> u32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut u32, from: u64, bytes: usize) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamQuery(stream: usize) -> u32;
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) -> u32;
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32;
    fn cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
    fn cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
    fn cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphAddMemsetNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *const CUDA_MEMSET_NODE_PARAMS,
        context: usize,
    ) -> u32;
    fn cuGraphAddMemcpyNode(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *const [u64; 25],
        context: usize,
    ) -> u32;
    fn cuGraphExecMemsetNodeSetParams(
        executable: usize,
        node: usize,
        given: *const CUDA_MEMSET_NODE_PARAMS,
        context: usize,
    ) -> u32;
    fn cuGraphMemsetNodeGetParams(node: usize, given: *mut CUDA_MEMSET_NODE_PARAMS) -> u32;
    fn cuGraphNodeSetEnabled(executable: usize, node: usize, is_enabled: u32) -> u32;
    fn cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
}

fn stream() -> usize {
    let mut stream = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

fn memory() -> u64 {
    let mut address = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut address, BYTES) }, 0);
    address
}

fn words(address: u64) -> Vec<u32> {
    let mut words = vec![0; BYTES / 4];
    // SAFETY: the list has room for the bytes.
    let copied = unsafe { cuMemcpyDtoH_v2(words.as_mut_ptr(), address, BYTES) };
    assert_eq!(copied, 0);
    words
}

const fn fill(dst: u64, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch: 0,
        value,
        elementSize: 4,
        width: BYTES / 4,
        height: 1,
    }
}

/// A `CUDA_MEMCPY3D` in words: a side is 11 of them, its kind and its address the fifth and the
/// seventh; width in bytes, height and depth are the last.
fn copy(to: u64, from: u64) -> [u64; 25] {
    const _: () = assert!(size_of::<CUDA_MEMCPY3D>() == 25 * 8);
    let device = CUmemorytype::CU_MEMORYTYPE_DEVICE as u64;
    let mut words = [0; 25];
    (words[4], words[6]) = (device, from);
    (words[15], words[17]) = (device, to);
    words[22..].copy_from_slice(&[BYTES as u64, 1, 1]);
    words
}

#[test]
fn fills_and_copies_are_nodes_that_can_be_changed_and_switched_off() {
    library();
    let (first, second, stream) = (memory(), memory(), stream());
    let (mut graph, mut filled, mut copied, mut executable) = (0, 0, 0, 0);
    let null = std::ptr::null();
    // SAFETY: pointers are valid for the calls; addresses may be wrong.
    unsafe {
        assert_eq!(cuGraphCreate(&raw mut graph, 0), 0);
        let mut add = |given: &CUDA_MEMSET_NODE_PARAMS| {
            cuGraphAddMemsetNode(&raw mut filled, graph, null, 0, given, 0)
        };
        assert_eq!(
            add(&fill(0x1000, 1)),
            INVALID_VALUE,
            "no memory of the device"
        );
        let mut wide = fill(first, 1);
        wide.width = BYTES;
        assert_eq!(add(&wide), INVALID_VALUE, "beyond the end");
        assert_eq!(add(&fill(first, 7)), 0);
        let given = copy(second, first);
        let before = &raw const filled;
        let added = cuGraphAddMemcpyNode(&raw mut copied, graph, before, 1, &raw const given, 0);
        assert_eq!(added, 0);
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
            0
        );
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(second), [7; BYTES / 4]);
        let change = |given: &CUDA_MEMSET_NODE_PARAMS| {
            cuGraphExecMemsetNodeSetParams(executable, filled, given, 0)
        };
        assert_eq!(change(&fill(first, 8)), 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(second), [8; BYTES / 4]);
        assert_eq!(change(&fill(first, 9)), 0);
        assert_eq!(cuGraphNodeSetEnabled(executable, copied, 0), 0);
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!((words(first)[0], words(second)[0]), (9, 8));
    }
}

#[test]
fn captured_fills_and_copies_run_when_the_graph_is_launched() {
    library();
    let (first, second, stream) = (memory(), memory(), stream());
    let (mut graph, mut executable, mut nodes, mut count) = (0, 0, [0; 2], 2);
    let mut given = fill(0, 0);
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuMemsetD32Async(second, 1, BYTES / 4, stream), 0);
        assert_eq!(cuStreamBeginCapture_v2(stream, 2), 0);
        assert_eq!(cuMemsetD32Async(first, 5, BYTES / 4, stream), 0);
        assert_eq!(cuMemcpyDtoDAsync_v2(second, first, BYTES, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &raw mut graph), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(second)[0], 1);
        assert_eq!(
            cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count),
            0
        );
        assert_eq!(count, 2);
        assert_eq!(cuGraphMemsetNodeGetParams(nodes[0], &raw mut given), 0);
        assert_eq!((given.dst, given.value, given.width), (first, 5, BYTES / 4));
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
            0
        );
        assert_eq!(cuGraphLaunch(executable, stream), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(second), [5; BYTES / 4]);
    }
}

#[test]
fn streams_store_words_and_wait_for_them() {
    library();
    let (device, stream) = (memory(), stream());
    let mut host = std::ptr::null_mut();
    // SAFETY: pointers are valid for the calls; the word is the program's.
    unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut host, BYTES, 0), 0);
        host.write_volatile(0);
        let word = host as u64;
        assert_eq!(cuStreamWriteValue32_v2(stream, device, 0x1234, 0), 0);
        assert_eq!(
            cuStreamWriteValue64_v2(stream, device + 8, 0x5_0000_0006, 0),
            0
        );
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(words(device)[..4], [0x1234, words(device)[1], 6, 5]);
        assert_eq!(
            cuStreamWriteValue64_v2(stream, device + 4, 0, 0),
            INVALID_VALUE
        );
        assert_eq!(cuStreamWriteValue64_v2(stream, 0x1000, 0, 0), INVALID_VALUE);
        for (wait, value) in [(1, 17), (0, 23)] {
            assert_eq!(cuStreamWaitValue64_v2(stream, word, value, wait), 0);
            assert_eq!(cuStreamQuery(stream), NOT_READY);
            host.write_volatile(value);
            assert_eq!(cuStreamSynchronize(stream), 0);
        }
    }
}

/// Each condition with a value that the word does not meet at first, and then the word that does.
#[test]
fn streams_wait_for_words_of_both_sizes_under_all_conditions() {
    library();
    let (device, first, second) = (memory(), stream(), stream());
    let mut host = std::ptr::null_mut();
    // SAFETY: pointers are valid for the calls; the word is the program's.
    unsafe {
        assert_eq!(cuMemHostAlloc(&raw mut host, BYTES, 0), 0);
        for (condition, value, before, after) in [
            (0, 5, 4, 5),
            (0, 5, 4, 100),
            (0, 0xffff_ffff, 0xffff_fffe, 1),
            (1, 7, 8, 7),
            (2, 6, 9, 4),
            (3, 0xffff_0000, 0x0000_ffff, 0x0000_fffe),
        ] {
            let halves = host.cast::<u32>();
            halves.add(1).write_volatile(before);
            let word = host as u64 + 4;
            assert_eq!(cuStreamWaitValue32_v2(first, word, value, condition), 0);
            assert_eq!(cuStreamQuery(first), NOT_READY, "{condition} {value:#x}");
            halves.add(1).write_volatile(after);
            assert_eq!(cuStreamSynchronize(first), 0);
        }
        for (condition, value, before, after) in [
            (0, u64::MAX, u64::MAX - 1, 1),
            (1, 1 << 40, 0, 1 << 40),
            (2, 1 << 40, 1, 3 << 40),
            (3, u64::MAX << 1, 1, 0),
        ] {
            host.write_volatile(before);
            let word = host as u64;
            assert_eq!(cuStreamWaitValue64_v2(first, word, value, condition), 0);
            assert_eq!(cuStreamQuery(first), NOT_READY, "{condition} {value:#x}");
            host.write_volatile(after);
            assert_eq!(cuStreamSynchronize(first), 0);
        }
        // Memory that only the device sees.
        assert_eq!(cuStreamWriteValue32_v2(first, device + 4, 3, 0), 0);
        let unseen = cuStreamWaitValue32_v2(second, device + 4, 3, 1);
        assert_eq!(unseen, NOT_SUPPORTED);
        assert_eq!(cuStreamSynchronize(first), 0);
        assert_eq!(cuStreamSynchronize(second), 0);
        assert_eq!(words(device)[1], 3);
        let wrong = cuStreamWaitValue32_v2(first, device + 2, 0, 0);
        assert_eq!(wrong, INVALID_VALUE);
    }
}
