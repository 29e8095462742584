//! Functions that programs of CUDA 12 know otherwise than those of CUDA 13 (CUDA Runtime API 12.9,
//! `cuda_runtime_api.h`). All others are the same for both.
//!
//! A function `cuda12_Name` is `cudaName` in the `libcudart` for CUDA 12, in place of the one for
//! CUDA 13 if that has this name, too: the linker renames it (`embedded-libcudart`), and
//! `__cuda12_Name` likewise. So both libraries have the same code, which is compiled once. Since a
//! call from inside the library means the function for CUDA 13, nothing here calls a function of
//! the API.

use causeway_cuda_abi::boundary::{Out, Text};
use causeway_cuda_abi::structures::NodeParameters;

use crate::context;
use crate::driver::driver;
use crate::entry_point::{find, of_own_streams};
use crate::node::converted;
use crate::shapes::own;
use crate::table::calls;

/// Version of the API, as [`VERSION`](crate::VERSION): the last of CUDA 12.
const VERSION: i32 = 12_090;

// Versions.
calls! {
    fn cuda12_RuntimeGetVersion(version: Out<i32>) => version.set(VERSION);
    fn cuda12_GetDriverEntryPoint(name: Text, function: Out<usize>, flags: u64, status: Out<u32>)
        => find(name, function, VERSION, flags, status);
    fn cuda12_GetDriverEntryPoint_ptsz(name: Text, function: Out<usize>, flags: u64,
                                       status: Out<u32>)
        => find(name, function, VERSION, of_own_streams(flags), status);
}

// Names of before CUDA 4.0, and what CUDA 13 does not have any more.
calls! {
    fn cuda12_ThreadExit() => context::reset();
    fn cuda12_ThreadSynchronize() = cuCtxSynchronize();
    fn cuda12_ThreadGetLimit(value: usize, limit: u32) = cuCtxGetLimit(value, limit);
    fn cuda12_ThreadSetLimit(limit: u32, value: usize) = cuCtxSetLimit(limit, value);
    fn cuda12_ThreadGetCacheConfig(preference: usize) = cuCtxGetCacheConfig(preference);
    fn cuda12_ThreadSetCacheConfig(preference: u32) = cuCtxSetCacheConfig(preference);
    // These were for devices without `double`. All devices have it, so they do nothing.
    fn cuda12_SetDoubleForDevice(_number: usize) => Ok(());
    fn cuda12_SetDoubleForHost(_number: usize) => Ok(());
}

// Captures and graphs, with edges that are all alike, or with those of CUDA 13 under other names.
calls! {
    fn cuda12_StreamGetCaptureInfo(stream: usize, status: usize, id: usize)
        / cuda12_StreamGetCaptureInfo_ptsz(own(stream), status, id)
        = cuStreamGetCaptureInfo(stream, status, id);
    fn cuda12_StreamGetCaptureInfo_v2(stream: usize, status: usize, id: usize, graph: usize,
                                      nodes: usize, count: usize)
        / cuda12_StreamGetCaptureInfo_v2_ptsz(own(stream), status, id, graph, nodes, count)
        = cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
    fn cuda12_StreamGetCaptureInfo_v3(stream: usize, status: usize, id: usize, graph: usize,
                                      nodes: usize, edges: usize, count: usize)
        / cuda12_StreamGetCaptureInfo_v3_ptsz(own(stream), status, id, graph, nodes, edges, count)
        = cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count);
    fn cuda12_StreamUpdateCaptureDependencies(stream: usize, nodes: usize, count: usize, flags: u32)
        / cuda12_StreamUpdateCaptureDependencies_ptsz(own(stream), nodes, count, flags)
        = cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
    fn cuda12_StreamUpdateCaptureDependencies_v2(stream: usize, nodes: usize, edges: usize,
                                                 count: usize, flags: u32)
        / cuda12_StreamUpdateCaptureDependencies_v2_ptsz(own(stream), nodes, edges, count, flags)
        = cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags);
    fn cuda12_GraphGetEdges(graph: usize, from: usize, to: usize, count: usize)
        = cuGraphGetEdges(graph, from, to, count);
    fn cuda12_GraphGetEdges_v2(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphGetEdges_v2(graph, from, to, edges, count);
    fn cuda12_GraphAddDependencies(graph: usize, from: usize, to: usize, count: usize)
        = cuGraphAddDependencies(graph, from, to, count);
    fn cuda12_GraphAddDependencies_v2(graph: usize, from: usize, to: usize, edges: usize,
                                      count: usize)
        = cuGraphAddDependencies_v2(graph, from, to, edges, count);
    fn cuda12_GraphRemoveDependencies(graph: usize, from: usize, to: usize, count: usize)
        = cuGraphRemoveDependencies(graph, from, to, count);
    fn cuda12_GraphRemoveDependencies_v2(graph: usize, from: usize, to: usize, edges: usize,
                                         count: usize)
        = cuGraphRemoveDependencies_v2(graph, from, to, edges, count);
    fn cuda12_GraphNodeGetDependencies(node: usize, nodes: usize, count: usize)
        = cuGraphNodeGetDependencies(node, nodes, count);
    fn cuda12_GraphNodeGetDependencies_v2(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependencies_v2(node, nodes, edges, count);
    fn cuda12_GraphNodeGetDependentNodes(node: usize, nodes: usize, count: usize)
        = cuGraphNodeGetDependentNodes(node, nodes, count);
    fn cuda12_GraphNodeGetDependentNodes_v2(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
    fn cuda12_GraphAddNode(node: usize, graph: usize, after: usize, count: usize,
                           parameters: Out<NodeParameters>) => {
        converted(parameters, |parameters| {
            driver!(cuGraphAddNode(node, graph, after, count, parameters))
        })
    };
    fn cuda12_GraphAddNode_v2(node: usize, graph: usize, after: usize, edges: usize, count: usize,
                              parameters: Out<NodeParameters>) => {
        converted(parameters, |parameters| {
            driver!(cuGraphAddNode_v2(node, graph, after, edges, count, parameters))
        })
    };
    fn cuda12_EventElapsedTime_v2(milliseconds: usize, from: usize, to: usize)
        = cuEventElapsedTime_v2(milliseconds, from, to);
}

// Managed memory, whose places were devices, or with those of CUDA 13 under other names.
calls! {
    fn cuda12_MemAdvise(address: usize, bytes: usize, advice: u32, device: i32)
        = cuMemAdvise(address, bytes, advice, device);
    fn cuda12_MemAdvise_v2(address: usize, bytes: usize, advice: u32, place: u64)
        = cuMemAdvise_v2(address, bytes, advice, place);
    fn cuda12_MemPrefetchAsync(address: usize, bytes: usize, device: i32, stream: usize)
        / cuda12_MemPrefetchAsync_ptsz(address, bytes, device, own(stream))
        = cuMemPrefetchAsync(address, bytes, device, stream);
    fn cuda12_MemPrefetchAsync_v2(address: usize, bytes: usize, place: u64, flags: u32,
                                  stream: usize)
        / cuda12_MemPrefetchAsync_v2_ptsz(address, bytes, place, flags, own(stream))
        = cuMemPrefetchAsync_v2(address, bytes, place, flags, stream);
}

// Batches of copies, which told which of them failed.
calls! {
    fn cuda12_MemcpyBatchAsync(to: usize, from: usize, bytes: usize, count: usize,
                               attributes: usize, first: usize, attribute_count: usize,
                               failed: usize, stream: usize)
        / cuda12_MemcpyBatchAsync_ptsz(to, from, bytes, count, attributes, first, attribute_count,
                                       failed, own(stream))
        = cuMemcpyBatchAsync(to, from, bytes, count, attributes, first, attribute_count, failed,
                             stream);
    fn cuda12_Memcpy3DBatchAsync(count: usize, copies: usize, failed: usize, flags: u64,
                                 stream: usize)
        / cuda12_Memcpy3DBatchAsync_ptsz(count, copies, failed, flags, own(stream))
        = cuMemcpy3DBatchAsync(count, copies, failed, flags, stream);
}
