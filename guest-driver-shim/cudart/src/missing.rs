//! Functions of the runtime that this library does not have yet. They are there so that a program
//! that is linked with them starts. They answer `cudaErrorNotSupported`, and the log names each one
//! that is called, once.

use std::sync::Once;

use causeway_cuda_abi::error::Code;

use crate::error::record;

/// Answers a call of a function that is missing; `called` is its own.
#[cold]
fn answer(name: &str, called: &Once) -> u32 {
    causeway_cuda_abi::logging::start("libcudart");
    called.call_once(|| {
        log::warn!(
            "{} is not implemented: the program gets cudaErrorNotSupported (801) from \
             Causeway's libcudart",
            // As programs of CUDA 12 know it.
            name.replace("cuda12_", "cuda")
        );
    });
    record(Err(Code::NOT_SUPPORTED))
}

macro_rules! missing {
    ($($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            static CALLED: Once = Once::new();
            answer(stringify!($name), &CALLED)
        })*
    };
}

// Of CUDA 12.
missing! {
    cuda12_LaunchCooperativeKernelMultiDevice cuda12_SignalExternalSemaphoresAsync_v2
    cuda12_SignalExternalSemaphoresAsync_v2_ptsz cuda12_WaitExternalSemaphoresAsync_v2
    cuda12_WaitExternalSemaphoresAsync_v2_ptsz
}

// Of CUDA 13, and of both.
missing! {
    __cudaGetProcAddress cudaArrayGetPlane cudaArrayGetSparseProperties cudaDestroyExternalMemory
    cudaDestroyExternalSemaphore cudaDevResourceGenerateDesc cudaDevSmResourceSplit
    cudaDevSmResourceSplitByCount cudaDeviceGetDevResource cudaDeviceGetExecutionCtx
    cudaDeviceGetNvSciSyncAttributes cudaEGLStreamConsumerAcquireFrame cudaEGLStreamConsumerConnect
    cudaEGLStreamConsumerConnectWithFlags cudaEGLStreamConsumerDisconnect
    cudaEGLStreamConsumerReleaseFrame cudaEGLStreamProducerConnect cudaEGLStreamProducerDisconnect
    cudaEGLStreamProducerPresentFrame cudaEGLStreamProducerReturnFrame cudaEventCreateFromEGLSync
    cudaExecutionCtxDestroy cudaExecutionCtxGetDevResource cudaExecutionCtxGetDevice
    cudaExecutionCtxGetId cudaExecutionCtxRecordEvent cudaExecutionCtxStreamCreate
    cudaExecutionCtxSynchronize cudaExecutionCtxWaitEvent cudaExternalMemoryGetMappedBuffer
    cudaExternalMemoryGetMappedMipmappedArray cudaFuncGetParamCount
    cudaGLGetDevices cudaGLMapBufferObject cudaGLMapBufferObjectAsync cudaGLRegisterBufferObject
    cudaGLSetBufferObjectMapFlags cudaGLSetGLDevice cudaGLUnmapBufferObject
    cudaGLUnmapBufferObjectAsync cudaGLUnregisterBufferObject cudaGetExportTable
    cudaGetMipmappedArrayLevel cudaGraphAddExternalSemaphoresSignalNode
    cudaGraphAddExternalSemaphoresWaitNode cudaGraphConditionalHandleCreate_v2
    cudaGraphExecExternalSemaphoresSignalNodeSetParams
    cudaGraphExecExternalSemaphoresWaitNodeSetParams cudaGraphExecGetId
    cudaGraphExternalSemaphoresSignalNodeGetParams cudaGraphExternalSemaphoresSignalNodeSetParams
    cudaGraphExternalSemaphoresWaitNodeGetParams cudaGraphExternalSemaphoresWaitNodeSetParams
    cudaGraphGetId cudaGraphNodeGetContainingGraph
    cudaGraphNodeGetLocalId cudaGraphNodeGetParams cudaGraphNodeGetToolsId
    cudaGraphicsEGLRegisterImage cudaGraphicsGLRegisterBuffer cudaGraphicsGLRegisterImage
    cudaGraphicsMapResources cudaGraphicsResourceGetMappedEglFrame
    cudaGraphicsResourceGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer
    cudaGraphicsResourceSetMapFlags cudaGraphicsSubResourceGetMappedArray cudaGraphicsUnmapResources
    cudaGraphicsUnregisterResource cudaGraphicsVDPAURegisterOutputSurface
    cudaGraphicsVDPAURegisterVideoSurface cudaGreenCtxCreate cudaImportExternalMemory
    cudaImportExternalSemaphore cudaLaunchHostFunc_v2 cudaLaunchHostFunc_v2_ptsz
    cudaMallocMipmappedArray cudaMemGetLocationInfo cudaMemcpy3DWithAttributesAsync
    cudaMemcpy3DWithAttributesAsync_ptsz cudaMemcpyWithAttributesAsync
    cudaMemcpyWithAttributesAsync_ptsz cudaMipmappedArrayGetMemoryRequirements
    cudaMipmappedArrayGetSparseProperties cudaSignalExternalSemaphoresAsync
    cudaSignalExternalSemaphoresAsync_ptsz cudaStreamBeginRecaptureToGraph
    cudaStreamBeginRecaptureToGraph_ptsz cudaStreamGetDevResource cudaStreamGetDevResource_ptsz
    cudaSubgridCreate cudaSubgridWorkerGridCreate cudaSubgridWorksetCreate cudaVDPAUGetDevice
    cudaVDPAUSetVDPAUDevice cudaWaitExternalSemaphoresAsync cudaWaitExternalSemaphoresAsync_ptsz
}
