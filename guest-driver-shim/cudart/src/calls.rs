//! The functions of the runtime that are functions of the driver with another name (CUDA Runtime
//! API; the driver's are described in "CUDA Driver API").
//!
//! Addresses and handles are `usize`. A function with a second name behind `/` is there for
//! programs whose default stream is one for each thread, too; [`own`] stands where its stream is.

use crate::context::answer;
use crate::driver::driver;
use crate::shapes::own;

macro_rules! calls {
    ($(fn $name:ident $parameters:tt $(/ $per_thread:ident $passed:tt)?
       = $function:ident $given:tt;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name $parameters -> u32 {
                answer(|| driver!($function $given))
            }

            $(#[unsafe(no_mangle)]
            extern "C" fn $per_thread $parameters -> u32 {
                $name $passed
            })?
        )*
    };
}

/// No flags.
const NONE: u32 = 0;

// Devices.
calls! {
    fn cudaDeviceSynchronize() = cuCtxSynchronize();
    fn cudaDeviceGetLimit(value: usize, limit: u32) = cuCtxGetLimit(value, limit);
    fn cudaDeviceSetLimit(limit: u32, value: usize) = cuCtxSetLimit(limit, value);
    fn cudaDeviceGetCacheConfig(preference: usize) = cuCtxGetCacheConfig(preference);
    fn cudaDeviceSetCacheConfig(preference: u32) = cuCtxSetCacheConfig(preference);
    fn cudaGetDeviceFlags(flags: usize) = cuCtxGetFlags(flags);
    fn cudaDeviceGetStreamPriorityRange(least: usize, greatest: usize)
        = cuCtxGetStreamPriorityRange(least, greatest);
    fn cudaDeviceCanAccessPeer(can: usize, device: i32, peer: i32)
        = cuDeviceCanAccessPeer(can, device, peer);
    fn cudaDeviceGetP2PAttribute(value: usize, attribute: u32, from: i32, to: i32)
        = cuDeviceGetP2PAttribute(value, attribute, from, to);
    fn cudaDeviceGetPCIBusId(text: usize, room: i32, device: i32)
        = cuDeviceGetPCIBusId(text, room, device);
    fn cudaDeviceGetByPCIBusId(device: usize, text: usize) = cuDeviceGetByPCIBusId(device, text);
    fn cudaCtxResetPersistingL2Cache() = cuCtxResetPersistingL2Cache();
    fn cudaProfilerStart() = cuProfilerStart();
    fn cudaProfilerStop() = cuProfilerStop();
}

// Streams.
calls! {
    fn cudaStreamCreate(stream: usize) = cuStreamCreate(stream, NONE);
    fn cudaStreamCreateWithFlags(stream: usize, flags: u32) = cuStreamCreate(stream, flags);
    fn cudaStreamCreateWithPriority(stream: usize, flags: u32, priority: i32)
        = cuStreamCreateWithPriority(stream, flags, priority);
    fn cudaStreamDestroy(stream: usize) = cuStreamDestroy_v2(stream);
    fn cudaStreamQuery(stream: usize) / cudaStreamQuery_ptsz(own(stream)) = cuStreamQuery(stream);
    fn cudaStreamSynchronize(stream: usize) / cudaStreamSynchronize_ptsz(own(stream))
        = cuStreamSynchronize(stream);
    fn cudaStreamWaitEvent(stream: usize, event: usize, flags: u32)
        / cudaStreamWaitEvent_ptsz(own(stream), event, flags)
        = cuStreamWaitEvent(stream, event, flags);
    fn cudaStreamAddCallback(stream: usize, function: usize, data: usize, flags: u32)
        / cudaStreamAddCallback_ptsz(own(stream), function, data, flags)
        = cuStreamAddCallback(stream, function, data, flags);
    fn cudaLaunchHostFunc(stream: usize, function: usize, data: usize)
        / cudaLaunchHostFunc_ptsz(own(stream), function, data)
        = cuLaunchHostFunc(stream, function, data);
    fn cudaStreamGetFlags(stream: usize, flags: usize)
        / cudaStreamGetFlags_ptsz(own(stream), flags) = cuStreamGetFlags(stream, flags);
    fn cudaStreamGetPriority(stream: usize, priority: usize)
        / cudaStreamGetPriority_ptsz(own(stream), priority) = cuStreamGetPriority(stream, priority);
    fn cudaStreamGetId(stream: usize, id: usize)
        / cudaStreamGetId_ptsz(own(stream), id) = cuStreamGetId(stream, id);
    fn cudaStreamGetDevice(stream: usize, device: usize)
        / cudaStreamGetDevice_ptsz(own(stream), device) = cuStreamGetDevice(stream, device);
    fn cudaStreamGetAttribute(stream: usize, attribute: u32, value: usize)
        / cudaStreamGetAttribute_ptsz(own(stream), attribute, value)
        = cuStreamGetAttribute(stream, attribute, value);
    fn cudaStreamSetAttribute(stream: usize, attribute: u32, value: usize)
        / cudaStreamSetAttribute_ptsz(own(stream), attribute, value)
        = cuStreamSetAttribute(stream, attribute, value);
    fn cudaStreamCopyAttributes(to: usize, from: usize)
        / cudaStreamCopyAttributes_ptsz(own(to), own(from)) = cuStreamCopyAttributes(to, from);
    fn cudaStreamAttachMemAsync(stream: usize, address: usize, bytes: usize, flags: u32)
        / cudaStreamAttachMemAsync_ptsz(own(stream), address, bytes, flags)
        = cuStreamAttachMemAsync(stream, address, bytes, flags);
    fn cudaStreamBeginCapture(stream: usize, mode: u32)
        / cudaStreamBeginCapture_ptsz(own(stream), mode) = cuStreamBeginCapture_v2(stream, mode);
    fn cudaStreamEndCapture(stream: usize, graph: usize)
        / cudaStreamEndCapture_ptsz(own(stream), graph) = cuStreamEndCapture(stream, graph);
    fn cudaStreamIsCapturing(stream: usize, status: usize)
        / cudaStreamIsCapturing_ptsz(own(stream), status) = cuStreamIsCapturing(stream, status);
    fn cudaStreamGetCaptureInfo(stream: usize, status: usize, id: usize, graph: usize,
                                nodes: usize, edges: usize, count: usize)
        / cudaStreamGetCaptureInfo_ptsz(own(stream), status, id, graph, nodes, edges, count)
        = cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count);
    fn cudaStreamUpdateCaptureDependencies(stream: usize, nodes: usize, edges: usize, count: usize,
                                           flags: u32)
        / cudaStreamUpdateCaptureDependencies_ptsz(own(stream), nodes, edges, count, flags)
        = cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags);
    fn cudaStreamBeginCaptureToGraph(stream: usize, graph: usize, nodes: usize, edges: usize,
                                     count: usize, mode: u32)
        / cudaStreamBeginCaptureToGraph_ptsz(own(stream), graph, nodes, edges, count, mode)
        = cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode);
    fn cudaThreadExchangeStreamCaptureMode(mode: usize) = cuThreadExchangeStreamCaptureMode(mode);
}

// Events.
calls! {
    fn cudaEventCreate(event: usize) = cuEventCreate(event, NONE);
    fn cudaEventCreateWithFlags(event: usize, flags: u32) = cuEventCreate(event, flags);
    fn cudaEventDestroy(event: usize) = cuEventDestroy_v2(event);
    fn cudaEventQuery(event: usize) = cuEventQuery(event);
    fn cudaEventSynchronize(event: usize) = cuEventSynchronize(event);
    fn cudaEventElapsedTime(milliseconds: usize, from: usize, to: usize)
        = cuEventElapsedTime_v2(milliseconds, from, to);
    fn cudaEventRecord(event: usize, stream: usize) / cudaEventRecord_ptsz(event, own(stream))
        = cuEventRecord(event, stream);
    fn cudaEventRecordWithFlags(event: usize, stream: usize, flags: u32)
        / cudaEventRecordWithFlags_ptsz(event, own(stream), flags)
        = cuEventRecordWithFlags(event, stream, flags);
}

// Memory.
calls! {
    fn cudaMallocManaged(address: usize, bytes: usize, flags: u32)
        = cuMemAllocManaged(address, bytes, flags);
    fn cudaHostRegister(address: usize, bytes: usize, flags: u32)
        = cuMemHostRegister_v2(address, bytes, flags);
    fn cudaHostUnregister(address: usize) = cuMemHostUnregister(address);
    fn cudaHostGetDevicePointer(device: usize, host: usize, flags: u32)
        = cuMemHostGetDevicePointer_v2(device, host, flags);
    fn cudaHostGetFlags(flags: usize, host: usize) = cuMemHostGetFlags(flags, host);
    fn cudaMemGetInfo(free: usize, total: usize) = cuMemGetInfo_v2(free, total);
    fn cudaMemAdvise(address: usize, bytes: usize, advice: u32, place: u64)
        = cuMemAdvise_v2(address, bytes, advice, place);
    fn cudaMemPrefetchAsync(address: usize, bytes: usize, place: u64, flags: u32, stream: usize)
        / cudaMemPrefetchAsync_ptsz(address, bytes, place, flags, own(stream))
        = cuMemPrefetchAsync_v2(address, bytes, place, flags, stream);
    fn cudaMemRangeGetAttribute(into: usize, room: usize, attribute: u32, address: usize,
                                bytes: usize)
        = cuMemRangeGetAttribute(into, room, attribute, address, bytes);
    fn cudaMemRangeGetAttributes(into: usize, rooms: usize, attributes: usize, count: usize,
                                 address: usize, bytes: usize)
        = cuMemRangeGetAttributes(into, rooms, attributes, count, address, bytes);
    fn cudaMallocAsync(address: usize, bytes: usize, stream: usize)
        / cudaMallocAsync_ptsz(address, bytes, own(stream))
        = cuMemAllocAsync(address, bytes, stream);
    fn cudaMallocFromPoolAsync(address: usize, bytes: usize, pool: usize, stream: usize)
        / cudaMallocFromPoolAsync_ptsz(address, bytes, pool, own(stream))
        = cuMemAllocFromPoolAsync(address, bytes, pool, stream);
    fn cudaFreeAsync(address: usize, stream: usize) / cudaFreeAsync_ptsz(address, own(stream))
        = cuMemFreeAsync(address, stream);
    fn cudaDeviceGetDefaultMemPool(pool: usize, device: i32)
        = cuDeviceGetDefaultMemPool(pool, device);
    fn cudaDeviceGetMemPool(pool: usize, device: i32) = cuDeviceGetMemPool(pool, device);
    fn cudaDeviceSetMemPool(device: i32, pool: usize) = cuDeviceSetMemPool(device, pool);
    fn cudaMemPoolCreate(pool: usize, properties: usize) = cuMemPoolCreate(pool, properties);
    fn cudaMemPoolDestroy(pool: usize) = cuMemPoolDestroy(pool);
    fn cudaMemPoolTrimTo(pool: usize, bytes: usize) = cuMemPoolTrimTo(pool, bytes);
    fn cudaMemPoolGetAttribute(pool: usize, attribute: u32, value: usize)
        = cuMemPoolGetAttribute(pool, attribute, value);
    fn cudaMemPoolSetAttribute(pool: usize, attribute: u32, value: usize)
        = cuMemPoolSetAttribute(pool, attribute, value);
    fn cudaMemPoolGetAccess(flags: usize, pool: usize, place: usize)
        = cuMemPoolGetAccess(flags, pool, place);
    fn cudaMemPoolSetAccess(pool: usize, accesses: usize, count: usize)
        = cuMemPoolSetAccess(pool, accesses, count);
}

// Graphs.
calls! {
    fn cudaGraphCreate(graph: usize, flags: u32) = cuGraphCreate(graph, flags);
    fn cudaGraphDestroy(graph: usize) = cuGraphDestroy(graph);
    fn cudaGraphClone(clone: usize, graph: usize) = cuGraphClone(clone, graph);
    fn cudaGraphInstantiate(executable: usize, graph: usize, flags: u64)
        = cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphInstantiateWithFlags(executable: usize, graph: usize, flags: u64)
        = cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphExecDestroy(executable: usize) = cuGraphExecDestroy(executable);
    fn cudaGraphExecUpdate(executable: usize, graph: usize, result: usize)
        = cuGraphExecUpdate_v2(executable, graph, result);
    fn cudaGraphExecGetFlags(executable: usize, flags: usize)
        = cuGraphExecGetFlags(executable, flags);
    fn cudaGraphLaunch(executable: usize, stream: usize)
        / cudaGraphLaunch_ptsz(executable, own(stream)) = cuGraphLaunch(executable, stream);
    fn cudaGraphUpload(executable: usize, stream: usize)
        / cudaGraphUpload_ptsz(executable, own(stream)) = cuGraphUpload(executable, stream);
    fn cudaGraphGetNodes(graph: usize, nodes: usize, count: usize)
        = cuGraphGetNodes(graph, nodes, count);
    fn cudaGraphGetRootNodes(graph: usize, nodes: usize, count: usize)
        = cuGraphGetRootNodes(graph, nodes, count);
    fn cudaGraphGetEdges(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphGetEdges_v2(graph, from, to, edges, count);
    fn cudaGraphAddDependencies(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphAddDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphRemoveDependencies(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphRemoveDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphNodeGetType(node: usize, kind: usize) = cuGraphNodeGetType(node, kind);
    fn cudaGraphNodeGetDependencies(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependencies_v2(node, nodes, edges, count);
    fn cudaGraphNodeGetDependentNodes(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
    fn cudaGraphNodeSetEnabled(executable: usize, node: usize, is_enabled: u32)
        = cuGraphNodeSetEnabled(executable, node, is_enabled);
    fn cudaGraphNodeGetEnabled(executable: usize, node: usize, is_enabled: usize)
        = cuGraphNodeGetEnabled(executable, node, is_enabled);
    fn cudaGraphNodeFindInClone(found: usize, node: usize, clone: usize)
        = cuGraphNodeFindInClone(found, node, clone);
    fn cudaGraphDestroyNode(node: usize) = cuGraphDestroyNode(node);
    fn cudaGraphAddEmptyNode(node: usize, graph: usize, after: usize, count: usize)
        = cuGraphAddEmptyNode(node, graph, after, count);
    fn cudaGraphAddChildGraphNode(node: usize, graph: usize, after: usize, count: usize,
                                  child: usize)
        = cuGraphAddChildGraphNode(node, graph, after, count, child);
    fn cudaGraphAddEventRecordNode(node: usize, graph: usize, after: usize, count: usize,
                                   event: usize)
        = cuGraphAddEventRecordNode(node, graph, after, count, event);
    fn cudaGraphAddEventWaitNode(node: usize, graph: usize, after: usize, count: usize,
                                 event: usize)
        = cuGraphAddEventWaitNode(node, graph, after, count, event);
    fn cudaGraphAddHostNode(node: usize, graph: usize, after: usize, count: usize,
                            parameters: usize)
        = cuGraphAddHostNode(node, graph, after, count, parameters);
    fn cudaGraphHostNodeGetParams(node: usize, parameters: usize)
        = cuGraphHostNodeGetParams(node, parameters);
    fn cudaGraphHostNodeSetParams(node: usize, parameters: usize)
        = cuGraphHostNodeSetParams(node, parameters);
    fn cudaGraphInstantiateWithParams(executable: usize, graph: usize, parameters: usize)
        = cuGraphInstantiateWithParams(executable, graph, parameters);
    fn cudaGraphAddMemFreeNode(node: usize, graph: usize, after: usize, count: usize,
                               address: usize)
        = cuGraphAddMemFreeNode(node, graph, after, count, address);
    fn cudaGraphMemFreeNodeGetParams(node: usize, address: usize)
        = cuGraphMemFreeNodeGetParams(node, address);
    fn cudaGraphChildGraphNodeGetGraph(node: usize, graph: usize)
        = cuGraphChildGraphNodeGetGraph(node, graph);
    fn cudaGraphEventRecordNodeGetEvent(node: usize, event: usize)
        = cuGraphEventRecordNodeGetEvent(node, event);
    fn cudaGraphEventRecordNodeSetEvent(node: usize, event: usize)
        = cuGraphEventRecordNodeSetEvent(node, event);
    fn cudaGraphEventWaitNodeGetEvent(node: usize, event: usize)
        = cuGraphEventWaitNodeGetEvent(node, event);
    fn cudaGraphEventWaitNodeSetEvent(node: usize, event: usize)
        = cuGraphEventWaitNodeSetEvent(node, event);
    fn cudaGraphExecEventRecordNodeSetEvent(executable: usize, node: usize, event: usize)
        = cuGraphExecEventRecordNodeSetEvent(executable, node, event);
    fn cudaGraphExecEventWaitNodeSetEvent(executable: usize, node: usize, event: usize)
        = cuGraphExecEventWaitNodeSetEvent(executable, node, event);
    fn cudaGraphExecChildGraphNodeSetParams(executable: usize, node: usize, child: usize)
        = cuGraphExecChildGraphNodeSetParams(executable, node, child);
    fn cudaGraphExecHostNodeSetParams(executable: usize, node: usize, parameters: usize)
        = cuGraphExecHostNodeSetParams(executable, node, parameters);
    fn cudaGraphKernelNodeGetAttribute(node: usize, attribute: u32, value: usize)
        = cuGraphKernelNodeGetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeSetAttribute(node: usize, attribute: u32, value: usize)
        = cuGraphKernelNodeSetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeCopyAttributes(to: usize, from: usize)
        = cuGraphKernelNodeCopyAttributes(to, from);
    fn cudaGraphDebugDotPrint(graph: usize, path: usize, flags: u32)
        = cuGraphDebugDotPrint(graph, path, flags);
    fn cudaDeviceGraphMemTrim(device: i32) = cuDeviceGraphMemTrim(device);
    fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: usize)
        = cuDeviceGetGraphMemAttribute(device, attribute, value);
    fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: usize)
        = cuDeviceSetGraphMemAttribute(device, attribute, value);
    fn cudaUserObjectCreate(object: usize, pointer: usize, destroy: usize, count: u32, flags: u32)
        = cuUserObjectCreate(object, pointer, destroy, count, flags);
    fn cudaUserObjectRetain(object: usize, count: u32) = cuUserObjectRetain(object, count);
    fn cudaUserObjectRelease(object: usize, count: u32) = cuUserObjectRelease(object, count);
    fn cudaGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32)
        = cuGraphRetainUserObject(graph, object, count, flags);
    fn cudaGraphReleaseUserObject(graph: usize, object: usize, count: u32)
        = cuGraphReleaseUserObject(graph, object, count);
}

// Libraries that a program loads itself.
calls! {
    fn cudaLibraryLoadData(library: usize, code: usize, jit_options: usize, jit_values: usize,
                           jit_count: u32, options: usize, values: usize, count: u32)
        = cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values,
                            count);
    fn cudaLibraryLoadFromFile(library: usize, path: usize, jit_options: usize, jit_values: usize,
                               jit_count: u32, options: usize, values: usize, count: u32)
        = cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options,
                                values, count);
    fn cudaLibraryUnload(library: usize) = cuLibraryUnload(library);
    fn cudaLibraryGetKernelCount(count: usize, library: usize)
        = cuLibraryGetKernelCount(count, library);
    fn cudaLibraryGetGlobal(address: usize, bytes: usize, library: usize, name: usize)
        = cuLibraryGetGlobal(address, bytes, library, name);
    fn cudaLibraryGetManaged(address: usize, bytes: usize, library: usize, name: usize)
        = cuLibraryGetManaged(address, bytes, library, name);
}
