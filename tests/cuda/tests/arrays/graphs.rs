//! Copies of arrays in graphs.

use crate::*;

#[test]
fn graphs_copy_arrays() {
    causeway_cuda_tests::library();
    let (mut stream, mut graph, mut executable) = (0, 0, 0);
    ok!(cuStreamCreate(&raw mut stream, 1));
    let size = [128, 40, 3];
    let bytes: usize = size.iter().product();
    let [first, second] = [(); 2].map(|()| array([32, 40, 3], 1, 4, 0));
    let device = holding(&pattern(bytes, 1));
    let mut host = vec![0_u8; bytes];
    let mut found = vec![0_u8; bytes];
    let arrays = (End::Array(first, [0; 3]), End::Array(second, [0; 3]));
    // Memory of the device, arrays, memory of the process.
    ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    ok!(cuMemcpy3DAsync_v2(
        &copy(arrays.0, End::Device(device, 128, 40), size),
        stream
    ));
    ok!(cuMemcpy3DAsync_v2(&copy(arrays.1, arrays.0, size), stream));
    let to = End::Host(found.as_mut_ptr(), 128, 40);
    ok!(cuMemcpy3DAsync_v2(&copy(to, arrays.1, size), stream));
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    let (mut nodes, mut count) = ([0; 3], 3);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    assert_eq!(count, 3);
    let mut given = zeroed_copy();
    ok!(cuGraphMemcpyNodeGetParams(nodes[1], &raw mut given));
    assert_eq!(
        (given.dstArray as usize, given.srcArray as usize),
        (second, first)
    );
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, pattern(bytes, 1));
    ok!(cuMemcpyHtoD_v2(
        device,
        pattern(bytes, 2).as_ptr().cast(),
        bytes
    ));
    // The arrays stay as long as the graph has them.
    ok!(cuArrayDestroy(first));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, pattern(bytes, 2));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    // A node of its own, from memory of the process.
    host.copy_from_slice(&pattern(bytes, 3));
    ok!(cuGraphCreate(&raw mut graph, 0));
    let mut node = 0;
    let copied = copy(arrays.1, End::Host(host.as_mut_ptr(), 128, 40), size);
    ok!(cuGraphAddMemcpyNode(
        &raw mut node,
        graph,
        std::ptr::null(),
        0,
        &raw const copied,
        0
    ));
    let stale = copy(arrays.0, End::Host(host.as_mut_ptr(), 128, 40), size);
    refused!(
        INVALID_VALUE,
        cuGraphAddMemcpyNode(
            &raw mut node,
            graph,
            std::ptr::null(),
            0,
            &raw const stale,
            0
        )
    );
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(read(second, size), pattern(bytes, 3));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    ok!(cuArrayDestroy(second));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemFree_v2(device));
}
