//! The driver's entry points, by the names that `cuda.h` of CUDA 13.0 gives them.
//!
//! Every result is a plain `u32`: a newer driver may answer with a code that the enumeration of the
//! header does not have, and such a value of a Rust enumeration would be undefined behaviour.
//! Enumerations among the arguments are plain integers for the same reason.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER,
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray, CUcontext,
    CUdevResource, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph,
    CUgraphExec, CUgraphNode, CUgreenCtx, CUlaunchConfig, CUlinkState, CUmemAccessDesc,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmodule, CUstream, CUsurfObject,
    CUtexObject, CUuuid,
};

use super::{CudaError, Driver};

macro_rules! calls {
    ($table:ident, $field:ident: $(
        $method:ident = $symbol:literal ($($argument:ident: $type:ty),* $(,)?);
    )*) => {
        /// Addresses of functions of the driver library.
        pub(super) struct $table {
            $(pub(super) $method: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl $table {
            /// Names of the functions.
            #[cfg(test)]
            pub(super) const SYMBOLS: &'static [&'static str] = &[$($symbol),*];

            /// Looks up all functions of the table. Returns, as an error, the name of the first
            /// function that is missing.
            ///
            /// # Safety
            /// `find` must return, for a name, the function that the CUDA driver has under this
            /// name, or `None`.
            pub(super) unsafe fn load(
                find: impl Fn(&str) -> Option<*const c_void>,
            ) -> Result<Self, &'static str> {
                $(
                    let address = find($symbol).ok_or($symbol)?;
                    // SAFETY: by this function's contract it is that function, whose type is the
                    // one in cuda.h.
                    let $method = unsafe {
                        std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($type),*) -> u32,
                        >(address)
                    };
                )*
                Ok(Self { $($method),* })
            }
        }

        impl Driver {
            $(
                /// Calls the driver's function and checks its result.
                ///
                /// # Safety
                /// The caller must follow the driver's documentation: handles are live, pointers
                /// are valid for what the call reads or writes there, and what work under way still
                /// uses is not destroyed.
                #[allow(clippy::too_many_arguments)]
                #[allow(
                    dead_code,
                    reason = "some are called through the table, where a result is no error"
                )]
                pub(super) unsafe fn $method(
                    &self,
                    $($argument: $type),*
                ) -> Result<(), CudaError> {
                    // SAFETY: by this function's contract.
                    let code = unsafe { (self.$field()?.$method)($($argument),*) };
                    if code == 0 { Ok(()) } else { Err(self.error($symbol, code)) }
                }
            )*
        }
    };
}

calls! { Table, table:
    init = "cuInit" (flags: c_uint);
    get_error_name = "cuGetErrorName" (error: c_uint, text: *mut *const c_char);
    get_error_string = "cuGetErrorString" (error: c_uint, text: *mut *const c_char);
    device_get_count = "cuDeviceGetCount" (count: *mut c_int);
    device_get = "cuDeviceGet" (device: *mut CUdevice, ordinal: c_int);
    device_get_name = "cuDeviceGetName" (name: *mut c_char, bytes: c_int, device: CUdevice);
    device_get_uuid = "cuDeviceGetUuid_v2" (uuid: *mut CUuuid, device: CUdevice);
    device_can_access_peer = "cuDeviceCanAccessPeer" (
        can: *mut c_int, device: CUdevice, peer: CUdevice,
    );
    device_get_p2p_attribute = "cuDeviceGetP2PAttribute" (
        value: *mut c_int, attribute: c_uint, device: CUdevice, peer: CUdevice,
    );
    device_total_mem = "cuDeviceTotalMem_v2" (bytes: *mut usize, device: CUdevice);
    device_get_attribute = "cuDeviceGetAttribute" (
        value: *mut c_int, attribute: c_uint, device: CUdevice,
    );
    primary_ctx_retain = "cuDevicePrimaryCtxRetain" (context: *mut CUcontext, device: CUdevice);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2" (device: CUdevice);
    ctx_create = "cuCtxCreate_v2" (context: *mut CUcontext, flags: c_uint, device: CUdevice);
    ctx_destroy = "cuCtxDestroy_v2" (context: CUcontext);
    ctx_set_current = "cuCtxSetCurrent" (context: CUcontext);
    ctx_set_limit = "cuCtxSetLimit" (limit: c_uint, value: usize);
    mem_get_info = "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    mem_get_granularity = "cuMemGetAllocationGranularity" (
        bytes: *mut usize, properties: *const CUmemAllocationProp, option: c_uint,
    );
    mem_address_reserve = "cuMemAddressReserve" (
        address: *mut CUdeviceptr, bytes: usize, alignment: usize, wanted: CUdeviceptr,
        flags: c_ulonglong,
    );
    mem_address_free = "cuMemAddressFree" (address: CUdeviceptr, bytes: usize);
    mem_create = "cuMemCreate" (
        handle: *mut CUmemGenericAllocationHandle, bytes: usize,
        properties: *const CUmemAllocationProp, flags: c_ulonglong,
    );
    mem_release = "cuMemRelease" (handle: CUmemGenericAllocationHandle);
    mem_map = "cuMemMap" (
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    );
    mem_unmap = "cuMemUnmap" (address: CUdeviceptr, bytes: usize);
    mem_set_access = "cuMemSetAccess" (
        address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize,
    );
    mem_export = "cuMemExportToShareableHandle" (
        shareable: *mut c_void, handle: CUmemGenericAllocationHandle, kind: c_uint,
        flags: c_ulonglong,
    );
    mem_import = "cuMemImportFromShareableHandle" (
        handle: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: c_uint,
    );
    mem_alloc = "cuMemAlloc_v2" (address: *mut CUdeviceptr, bytes: usize);
    mem_free = "cuMemFree_v2" (address: CUdeviceptr);
    mem_host_alloc = "cuMemHostAlloc" (address: *mut *mut c_void, bytes: usize, flags: c_uint);
    mem_free_host = "cuMemFreeHost" (address: *mut c_void);
    mem_host_register = "cuMemHostRegister_v2" (address: *mut c_void, bytes: usize, flags: c_uint);
    mem_host_unregister = "cuMemHostUnregister" (address: *mut c_void);
    mem_host_get_device_pointer = "cuMemHostGetDevicePointer_v2" (
        device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint,
    );
    memcpy_async = "cuMemcpyAsync" (
        destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream,
    );
    memcpy_peer_async = "cuMemcpyPeerAsync" (
        destination: CUdeviceptr, destination_context: CUcontext, source: CUdeviceptr,
        source_context: CUcontext, bytes: usize, stream: CUstream,
    );
    memset_d8_async = "cuMemsetD8Async" (
        destination: CUdeviceptr, value: u8, count: usize, stream: CUstream,
    );
    memset_d16_async = "cuMemsetD16Async" (
        destination: CUdeviceptr, value: u16, count: usize, stream: CUstream,
    );
    memset_d32_async = "cuMemsetD32Async" (
        destination: CUdeviceptr, value: c_uint, count: usize, stream: CUstream,
    );
    memcpy3d_async = "cuMemcpy3DAsync_v2" (copy: *const CUDA_MEMCPY3D, stream: CUstream);
    memcpy3d_peer_async = "cuMemcpy3DPeerAsync" (
        copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream,
    );
    memset_d2d8_async = "cuMemsetD2D8Async" (
        destination: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
        stream: CUstream,
    );
    memset_d2d16_async = "cuMemsetD2D16Async" (
        destination: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize,
        stream: CUstream,
    );
    memset_d2d32_async = "cuMemsetD2D32Async" (
        destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: CUstream,
    );
    ctx_get_stream_priority_range = "cuCtxGetStreamPriorityRange" (
        least: *mut c_int, greatest: *mut c_int,
    );
    stream_create = "cuStreamCreateWithPriority" (
        stream: *mut CUstream, flags: c_uint, priority: c_int,
    );
    stream_destroy = "cuStreamDestroy_v2" (stream: CUstream);
    stream_query = "cuStreamQuery" (stream: CUstream);
    stream_synchronize = "cuStreamSynchronize" (stream: CUstream);
    stream_write_value32 = "cuStreamWriteValue32_v2" (
        stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint,
    );
    stream_write_value64 = "cuStreamWriteValue64_v2" (
        stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint,
    );
    stream_begin_capture = "cuStreamBeginCapture_v2" (stream: CUstream, mode: c_uint);
    stream_end_capture = "cuStreamEndCapture" (stream: CUstream, graph: *mut CUgraph);
    event_create = "cuEventCreate" (event: *mut CUevent, flags: c_uint);
    event_record = "cuEventRecord" (event: CUevent, stream: CUstream);
    event_query = "cuEventQuery" (event: CUevent);
    event_elapsed_time = "cuEventElapsedTime" (
        milliseconds: *mut f32, begin: CUevent, end: CUevent,
    );
    event_destroy = "cuEventDestroy_v2" (event: CUevent);
    module_load_data_ex = "cuModuleLoadDataEx" (
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void,
    );
    module_unload = "cuModuleUnload" (module: CUmodule);
    module_get_function = "cuModuleGetFunction" (
        function: *mut CUfunction, module: CUmodule, name: *const c_char,
    );
    module_get_global = "cuModuleGetGlobal_v2" (
        address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char,
    );
    module_get_function_count = "cuModuleGetFunctionCount" (count: *mut c_uint, module: CUmodule);
    module_enumerate_functions = "cuModuleEnumerateFunctions" (
        functions: *mut CUfunction, count: c_uint, module: CUmodule,
    );
    func_get_name = "cuFuncGetName" (name: *mut *const c_char, function: CUfunction);
    func_get_attribute = "cuFuncGetAttribute" (
        value: *mut c_int, attribute: c_uint, function: CUfunction,
    );
    func_set_attribute = "cuFuncSetAttribute" (
        function: CUfunction, attribute: c_uint, value: c_int,
    );
    func_get_param_info = "cuFuncGetParamInfo" (
        function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize,
    );
    link_create = "cuLinkCreate_v2" (
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: *mut CUlinkState,
    );
    link_add_data = "cuLinkAddData_v2" (
        state: CUlinkState, kind: c_uint, data: *mut c_void, bytes: usize, name: *const c_char,
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    link_complete = "cuLinkComplete" (
        state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize,
    );
    link_destroy = "cuLinkDestroy" (state: CUlinkState);
    tensor_map_encode_tiled = "cuTensorMapEncodeTiled" (
        map: *mut c_void, data_type: c_uint, rank: c_uint, address: *mut c_void,
        dimensions: *const u64, strides: *const u64, box_elements: *const c_uint,
        element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, promotion: c_uint,
        fill: c_uint,
    );
    tensor_map_encode_im2col = "cuTensorMapEncodeIm2col" (
        map: *mut c_void, data_type: c_uint, rank: c_uint, address: *mut c_void,
        dimensions: *const u64, strides: *const u64, lower_corner: *const c_int,
        upper_corner: *const c_int, channels: c_uint, pixels: c_uint,
        element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint, promotion: c_uint,
        fill: c_uint,
    );
    tensor_map_replace_address = "cuTensorMapReplaceAddress" (
        map: *mut c_void, address: *mut c_void,
    );
    launch_kernel = "cuLaunchKernel" (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream,
        parameters: *mut *mut c_void, extra: *mut *mut c_void,
    );
    launch_kernel_ex = "cuLaunchKernelEx" (
        configuration: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    graph_create = "cuGraphCreate" (graph: *mut CUgraph, flags: c_uint);
    graph_add_kernel_node = "cuGraphAddKernelNode_v2" (
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS,
    );
    graph_exec_kernel_node_set_params = "cuGraphExecKernelNodeSetParams_v2" (
        executable: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS,
    );
    graph_instantiate = "cuGraphInstantiateWithFlags" (
        executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong,
    );
    graph_launch = "cuGraphLaunch" (executable: CUgraphExec, stream: CUstream);
    graph_destroy = "cuGraphDestroy" (graph: CUgraph);
    graph_exec_destroy = "cuGraphExecDestroy" (executable: CUgraphExec);
}

// Green contexts came with CUDA 12.4, their streams with 12.5: asked for only when multiprocessors
// are limited.
calls! { GreenTable, green_table:
    device_get_dev_resource = "cuDeviceGetDevResource" (
        device: CUdevice, resource: *mut CUdevResource, kind: c_uint,
    );
    sm_resource_split = "cuDevSmResourceSplitByCount" (
        groups: *mut CUdevResource, count: *mut c_uint, input: *const CUdevResource,
        remaining: *mut CUdevResource, flags: c_uint, least: c_uint,
    );
    resource_generate_desc = "cuDevResourceGenerateDesc" (
        description: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint,
    );
    green_ctx_create = "cuGreenCtxCreate" (
        context: *mut CUgreenCtx, description: CUdevResourceDesc, device: CUdevice, flags: c_uint,
    );
    green_ctx_destroy = "cuGreenCtxDestroy" (context: CUgreenCtx);
    green_ctx_stream_create = "cuGreenCtxStreamCreate" (
        stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int,
    );
}

// Other libraries by the driver's name may have no textures.
calls! { ArrayTable, array_table:
    array_create = "cuArray3DCreate_v2" (
        array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR,
    );
    array_destroy = "cuArrayDestroy" (array: CUarray);
    tex_object_create = "cuTexObjectCreate" (
        object: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC,
        texture: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC,
    );
    tex_object_destroy = "cuTexObjectDestroy" (object: CUtexObject);
    surf_object_create = "cuSurfObjectCreate" (
        object: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC,
    );
    surf_object_destroy = "cuSurfObjectDestroy" (object: CUsurfObject);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_symbol_is_named() {
        for missing in ["cuGetErrorName", "cuMemMap", "cuGraphExecDestroy"] {
            let find = |name: &str| (name != missing).then_some(std::ptr::dangling());
            // SAFETY: nothing that it finds is ever called.
            let loaded = unsafe { Table::load(find) };
            assert_eq!(loaded.err(), Some(missing));
        }
    }

    #[test]
    fn no_symbol_is_there_twice() {
        let mut symbols: Vec<&str> =
            [Table::SYMBOLS, GreenTable::SYMBOLS, ArrayTable::SYMBOLS].concat();
        let count = symbols.len();
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols.len(), count);
        assert!(symbols.iter().all(|name| name.starts_with("cu")));
    }
}
