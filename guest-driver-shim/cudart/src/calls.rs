//! The functions of the runtime that are functions of the driver with another name (CUDA Runtime
//! API; the driver's are described in "CUDA Driver API").
//!
//! Addresses and handles are `usize`. [`own`] stands where the stream is of a function that is
//! there for programs whose default stream is one for each thread, too.

use crate::shapes::{IpcHandle, own};
use crate::table::calls;

/// No flags.
const NONE: u32 = 0;

// Devices.
calls! {
    fn cudaDeviceSynchronize() = cuCtxSynchronize();
    fn cudaDeviceGetLimit(value: usize, limit: u32) = cuCtxGetLimit(value, limit);
    fn cudaDeviceSetLimit(limit: u32, value: usize) = cuCtxSetLimit(limit, value);
    fn cudaDeviceGetCacheConfig(preference: usize) = cuCtxGetCacheConfig(preference);
    fn cudaDeviceSetCacheConfig(preference: u32) = cuCtxSetCacheConfig(preference);
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
    fn cudaDeviceGetSharedMemConfig(banks: usize) = cuCtxGetSharedMemConfig(banks);
    fn cudaDeviceSetSharedMemConfig(banks: u32) = cuCtxSetSharedMemConfig(banks);
    fn cudaDeviceFlushGPUDirectRDMAWrites(target: u32, scope: u32)
        = cuFlushGPUDirectRDMAWrites(target, scope);
    fn cudaDeviceRegisterAsyncNotification(device: i32, function: usize, data: usize,
                                           handle: usize)
        = cuDeviceRegisterAsyncNotification(device, function, data, handle);
    fn cudaDeviceUnregisterAsyncNotification(device: i32, handle: usize)
        = cuDeviceUnregisterAsyncNotification(device, handle);
    fn cudaDeviceGetHostAtomicCapabilities(can: usize, operations: usize, count: u32, device: i32)
        = cuDeviceGetHostAtomicCapabilities(can, operations, count, device);
    fn cudaDeviceGetP2PAtomicCapabilities(can: usize, operations: usize, count: u32, from: i32,
                                          to: i32)
        = cuDeviceGetP2PAtomicCapabilities(can, operations, count, from, to);
    fn cudaLogsRegisterCallback(function: usize, data: usize, handle: usize)
        = cuLogsRegisterCallback(function, data, handle);
    fn cudaLogsUnregisterCallback(handle: usize) = cuLogsUnregisterCallback(handle);
    fn cudaLogsCurrent(place: usize, flags: u32) = cuLogsCurrent(place, flags);
    fn cudaLogsDumpToFile(place: usize, path: usize, flags: u32)
        = cuLogsDumpToFile(place, path, flags);
    fn cudaLogsDumpToMemory(place: usize, text: usize, bytes: usize, flags: u32)
        = cuLogsDumpToMemory(place, text, bytes, flags);
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
    fn cudaMemGetDefaultMemPool(pool: usize, place: usize, kind: u32)
        = cuMemGetDefaultMemPool(pool, place, kind);
    fn cudaMemGetMemPool(pool: usize, place: usize, kind: u32) = cuMemGetMemPool(pool, place, kind);
    fn cudaMemSetMemPool(place: usize, kind: u32, pool: usize) = cuMemSetMemPool(place, kind, pool);
    fn cudaMemPoolExportToShareableHandle(handle: usize, pool: usize, kind: u32, flags: u32)
        = cuMemPoolExportToShareableHandle(handle, pool, kind, u64::from(flags));
    fn cudaMemPoolImportFromShareableHandle(pool: usize, handle: usize, kind: u32, flags: u32)
        = cuMemPoolImportFromShareableHandle(pool, handle, kind, u64::from(flags));
    fn cudaMemPoolExportPointer(data: usize, address: usize)
        = cuMemPoolExportPointer(data, address);
    fn cudaMemPoolImportPointer(address: usize, pool: usize, data: usize)
        = cuMemPoolImportPointer(address, pool, data);
}

// Memory and events of other processes.
calls! {
    fn cudaIpcGetMemHandle(handle: usize, address: usize) = cuIpcGetMemHandle(handle, address);
    fn cudaIpcOpenMemHandle(address: usize, handle: IpcHandle, flags: u32)
        = cuIpcOpenMemHandle_v2(address, handle, flags);
    fn cudaIpcCloseMemHandle(address: usize) = cuIpcCloseMemHandle(address);
    fn cudaIpcGetEventHandle(handle: usize, event: usize) = cuIpcGetEventHandle(handle, event);
    fn cudaIpcOpenEventHandle(event: usize, handle: IpcHandle)
        = cuIpcOpenEventHandle(event, handle);
}

// Batches of copies, and of changes to managed memory.
calls! {
    fn cudaMemcpyBatchAsync(to: usize, from: usize, bytes: usize, count: usize, attributes: usize,
                            first: usize, attribute_count: usize, stream: usize)
        / cudaMemcpyBatchAsync_ptsz(to, from, bytes, count, attributes, first, attribute_count,
                                    own(stream))
        = cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, first, attribute_count,
                                stream);
    fn cudaMemcpy3DBatchAsync(count: usize, copies: usize, flags: u64, stream: usize)
        / cudaMemcpy3DBatchAsync_ptsz(count, copies, flags, own(stream))
        = cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
    fn cudaMemPrefetchBatchAsync(addresses: usize, bytes: usize, count: usize, places: usize,
                                 first: usize, place_count: usize, flags: u64, stream: usize)
        / cudaMemPrefetchBatchAsync_ptsz(addresses, bytes, count, places, first, place_count,
                                         flags, own(stream))
        = cuMemPrefetchBatchAsync(addresses, bytes, count, places, first, place_count, flags,
                                  stream);
    fn cudaMemDiscardBatchAsync(addresses: usize, bytes: usize, count: usize, flags: u64,
                                stream: usize)
        / cudaMemDiscardBatchAsync_ptsz(addresses, bytes, count, flags, own(stream))
        = cuMemDiscardBatchAsync(addresses, bytes, count, flags, stream);
    fn cudaMemDiscardAndPrefetchBatchAsync(addresses: usize, bytes: usize, count: usize,
                                           places: usize, first: usize, place_count: usize,
                                           flags: u64, stream: usize)
        / cudaMemDiscardAndPrefetchBatchAsync_ptsz(addresses, bytes, count, places, first,
                                                   place_count, flags, own(stream))
        = cuMemDiscardAndPrefetchBatchAsync(addresses, bytes, count, places, first, place_count,
                                            flags, stream);
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
    fn cudaLibraryGetUnifiedFunction(function: usize, library: usize, name: usize)
        = cuLibraryGetUnifiedFunction(function, library, name);
}
