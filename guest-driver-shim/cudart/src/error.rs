//! Errors of calls, and the last one of each thread (CUDA Runtime API, "Error Handling").
//!
//! Numbers of the driver's results and of the runtime's errors agree, but for those here, which
//! the driver does not have.

use std::cell::Cell;
use std::ffi::c_char;

use causeway_cuda_abi::error::{Answer, Code, describe};

thread_local! {
    /// What the thread's last call that failed said, until the program asks.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// Returns a result of the driver as an [`Answer`].
#[inline]
pub fn answer_of(result: u32) -> Answer {
    match result {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// Returns the number of an outcome, and remembers it for the thread if it is an error. That work
/// is still under way is none.
#[inline]
pub fn record(outcome: Answer) -> u32 {
    match outcome {
        Ok(()) => 0,
        Err(code) => remember(code),
    }
}

// Apart, so that a call that succeeds keeps no registers for this.
#[cold]
#[inline(never)]
fn remember(Code(code): Code) -> u32 {
    if code != Code::NOT_READY.0 {
        LAST.set(code);
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> u32 {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> u32 {
    LAST.get()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: u32) -> *const c_char {
    name(code).unwrap_or(UNRECOGNIZED).as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: u32) -> *const c_char {
    text(code).unwrap_or(UNRECOGNIZED).as_ptr().cast()
}

/// What both say of a number that is no error.
const UNRECOGNIZED: &str = "unrecognized error code\0";

/// The text of an error, which ends in NUL: the driver's for the same number.
fn text(code: u32) -> Option<&'static str> {
    own_text(code).or_else(|| describe(code).map(|(_, text)| text))
}

pub const INVALID_CONFIGURATION: Code = Code(9);
pub const INVALID_PITCH: Code = Code(12);
pub const INVALID_SYMBOL: Code = Code(13);
pub const INVALID_CHANNELS: Code = Code(20);
pub const INVALID_DIRECTION: Code = Code(21);
pub const INVALID_FILTER: Code = Code(26);
pub const INVALID_FRACTIONS: Code = Code(27);
pub const INSUFFICIENT_DRIVER: Code = Code(35);
pub const MISSING_CONFIGURATION: Code = Code(52);
pub const INVALID_DEVICE_FUNCTION: Code = Code(98);

/// The text of an error that the driver does not have, which ends in NUL.
fn own_text(code: u32) -> Option<&'static str> {
    Some(match code {
        9 => "invalid configuration argument\0",
        10 => "structures of this version cannot be converted\0",
        12 => "invalid pitch argument\0",
        13 => "invalid device symbol\0",
        16 => "invalid host pointer\0",
        17 => "invalid device pointer\0",
        18 => "invalid texture reference\0",
        19 => "texture is not bound to a pointer\0",
        20 => "invalid channel descriptor\0",
        21 => "invalid copy direction for memcpy\0",
        22 => "a constant's address was taken\0",
        23 => "a texture could not be read\0",
        24 => "a texture that is not bound was used\0",
        25 => "a synchronization failed\0",
        26 => "linear filtering is not supported for this type\0",
        27 => "a read cannot be normalized for this type\0",
        28 => "code for devices and for their emulation cannot be mixed\0",
        31 => "the feature is not yet implemented\0",
        32 => "a memory size or an address is too large\0",
        35 => "CUDA driver version is insufficient for CUDA runtime version\0",
        37 => "invalid surface reference\0",
        43 => "several global or constant variables have one name\0",
        44 => "several textures have one name\0",
        45 => "several surfaces have one name\0",
        49 => "the context of the driver API does not fit the runtime\0",
        52 => "__global__ function call is not configured\0",
        53 => "an earlier launch failed\0",
        65 => "launches of kernels by kernels are nested too deeply\0",
        66 => "textures of a file's scope cannot be used in launches by kernels\0",
        67 => "surfaces of a file's scope cannot be used in launches by kernels\0",
        68 => "waits of kernels for kernels are nested too deeply\0",
        69 => "too many launches by kernels are pending\0",
        98 => "invalid device function\0",
        103 => "the validity of the software is not established\0",
        127 => "the runtime could not start\0",
        227 => "the loader's version is insufficient\0",
        917 => "the stream is detached\0",
        918 => "a new capture of the graph failed\0",
        919 => "the fabric is not ready\0",
        10000 => "base of errors of earlier versions\0",
        _ => return None,
    })
}

macro_rules! names {
    ($($name:ident $number:literal)*) => {
        /// The name of an error, which ends in NUL.
        fn name(code: u32) -> Option<&'static str> {
            match code {
                $($number => Some(concat!(stringify!($name), "\0")),)*
                _ => None,
            }
        }

        /// Numbers of all errors.
        #[cfg(test)]
        const ALL: &[u32] = &[$($number),*];
    };
}

// `enum cudaError` of driver_types.h, up to version 13.5.
names! {
    cudaSuccess 0
    cudaErrorInvalidValue 1
    cudaErrorMemoryAllocation 2
    cudaErrorInitializationError 3
    cudaErrorCudartUnloading 4
    cudaErrorProfilerDisabled 5
    cudaErrorProfilerNotInitialized 6
    cudaErrorProfilerAlreadyStarted 7
    cudaErrorProfilerAlreadyStopped 8
    cudaErrorInvalidConfiguration 9
    cudaErrorVersionTranslation 10
    cudaErrorInvalidPitchValue 12
    cudaErrorInvalidSymbol 13
    cudaErrorInvalidHostPointer 16
    cudaErrorInvalidDevicePointer 17
    cudaErrorInvalidTexture 18
    cudaErrorInvalidTextureBinding 19
    cudaErrorInvalidChannelDescriptor 20
    cudaErrorInvalidMemcpyDirection 21
    cudaErrorAddressOfConstant 22
    cudaErrorTextureFetchFailed 23
    cudaErrorTextureNotBound 24
    cudaErrorSynchronizationError 25
    cudaErrorInvalidFilterSetting 26
    cudaErrorInvalidNormSetting 27
    cudaErrorMixedDeviceExecution 28
    cudaErrorNotYetImplemented 31
    cudaErrorMemoryValueTooLarge 32
    cudaErrorStubLibrary 34
    cudaErrorInsufficientDriver 35
    cudaErrorCallRequiresNewerDriver 36
    cudaErrorInvalidSurface 37
    cudaErrorDuplicateVariableName 43
    cudaErrorDuplicateTextureName 44
    cudaErrorDuplicateSurfaceName 45
    cudaErrorDevicesUnavailable 46
    cudaErrorIncompatibleDriverContext 49
    cudaErrorMissingConfiguration 52
    cudaErrorPriorLaunchFailure 53
    cudaErrorLaunchMaxDepthExceeded 65
    cudaErrorLaunchFileScopedTex 66
    cudaErrorLaunchFileScopedSurf 67
    cudaErrorSyncDepthExceeded 68
    cudaErrorLaunchPendingCountExceeded 69
    cudaErrorInvalidDeviceFunction 98
    cudaErrorNoDevice 100
    cudaErrorInvalidDevice 101
    cudaErrorDeviceNotLicensed 102
    cudaErrorSoftwareValidityNotEstablished 103
    cudaErrorStartupFailure 127
    cudaErrorInvalidKernelImage 200
    cudaErrorDeviceUninitialized 201
    cudaErrorMapBufferObjectFailed 205
    cudaErrorUnmapBufferObjectFailed 206
    cudaErrorArrayIsMapped 207
    cudaErrorAlreadyMapped 208
    cudaErrorNoKernelImageForDevice 209
    cudaErrorAlreadyAcquired 210
    cudaErrorNotMapped 211
    cudaErrorNotMappedAsArray 212
    cudaErrorNotMappedAsPointer 213
    cudaErrorECCUncorrectable 214
    cudaErrorUnsupportedLimit 215
    cudaErrorDeviceAlreadyInUse 216
    cudaErrorPeerAccessUnsupported 217
    cudaErrorInvalidPtx 218
    cudaErrorInvalidGraphicsContext 219
    cudaErrorNvlinkUncorrectable 220
    cudaErrorJitCompilerNotFound 221
    cudaErrorUnsupportedPtxVersion 222
    cudaErrorJitCompilationDisabled 223
    cudaErrorUnsupportedExecAffinity 224
    cudaErrorUnsupportedDevSideSync 225
    cudaErrorContained 226
    cudaErrorInsufficientLoaderVersion 227
    cudaErrorInvalidSource 300
    cudaErrorFileNotFound 301
    cudaErrorSharedObjectSymbolNotFound 302
    cudaErrorSharedObjectInitFailed 303
    cudaErrorOperatingSystem 304
    cudaErrorInvalidResourceHandle 400
    cudaErrorIllegalState 401
    cudaErrorLossyQuery 402
    cudaErrorSymbolNotFound 500
    cudaErrorNotReady 600
    cudaErrorIllegalAddress 700
    cudaErrorLaunchOutOfResources 701
    cudaErrorLaunchTimeout 702
    cudaErrorLaunchIncompatibleTexturing 703
    cudaErrorPeerAccessAlreadyEnabled 704
    cudaErrorPeerAccessNotEnabled 705
    cudaErrorSetOnActiveProcess 708
    cudaErrorContextIsDestroyed 709
    cudaErrorAssert 710
    cudaErrorTooManyPeers 711
    cudaErrorHostMemoryAlreadyRegistered 712
    cudaErrorHostMemoryNotRegistered 713
    cudaErrorHardwareStackError 714
    cudaErrorIllegalInstruction 715
    cudaErrorMisalignedAddress 716
    cudaErrorInvalidAddressSpace 717
    cudaErrorInvalidPc 718
    cudaErrorLaunchFailure 719
    cudaErrorCooperativeLaunchTooLarge 720
    cudaErrorTensorMemoryLeak 721
    cudaErrorNotPermitted 800
    cudaErrorNotSupported 801
    cudaErrorSystemNotReady 802
    cudaErrorSystemDriverMismatch 803
    cudaErrorCompatNotSupportedOnDevice 804
    cudaErrorMpsConnectionFailed 805
    cudaErrorMpsRpcFailure 806
    cudaErrorMpsServerNotReady 807
    cudaErrorMpsMaxClientsReached 808
    cudaErrorMpsMaxConnectionsReached 809
    cudaErrorMpsClientTerminated 810
    cudaErrorCdpNotSupported 811
    cudaErrorCdpVersionMismatch 812
    cudaErrorStreamCaptureUnsupported 900
    cudaErrorStreamCaptureInvalidated 901
    cudaErrorStreamCaptureMerge 902
    cudaErrorStreamCaptureUnmatched 903
    cudaErrorStreamCaptureUnjoined 904
    cudaErrorStreamCaptureIsolation 905
    cudaErrorStreamCaptureImplicit 906
    cudaErrorCapturedEvent 907
    cudaErrorStreamCaptureWrongThread 908
    cudaErrorTimeout 909
    cudaErrorGraphExecUpdateFailure 910
    cudaErrorExternalDevice 911
    cudaErrorInvalidClusterSize 912
    cudaErrorFunctionNotLoaded 913
    cudaErrorInvalidResourceType 914
    cudaErrorInvalidResourceConfiguration 915
    cudaErrorStreamDetached 917
    cudaErrorGraphRecaptureFailure 918
    cudaErrorFabricNotReady 919
    cudaErrorUnknown 999
    cudaErrorApiFailureBase 10000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_until_it_is_asked_for_and_is_of_its_thread() {
        assert_eq!(record(Err(INVALID_SYMBOL)), 13);
        assert_eq!(record(Ok(())), 0);
        assert_eq!(record(Err(Code::NOT_READY)), 600);
        std::thread::spawn(|| assert_eq!(cudaPeekAtLastError(), 0))
            .join()
            .unwrap();
        assert_eq!(cudaPeekAtLastError(), 13);
        assert_eq!(cudaGetLastError(), 13);
        assert_eq!(cudaGetLastError(), 0);
    }

    #[test]
    fn names_and_texts_end_in_nul_and_every_error_of_the_driver_has_a_name() {
        let nul_is_last = |text: &str| text.find('\0') == Some(text.len() - 1);
        for &code in ALL {
            assert!(nul_is_last(name(code).unwrap()), "{code}");
            assert!(nul_is_last(text(code).unwrap()), "{code}");
        }
        // Not in the runtime: 202 (a context is current already), 916 (rotation of keys).
        let of_driver = (0..1000).filter(|&code| describe(code).is_some());
        let without: Vec<_> = of_driver.filter(|&code| name(code).is_none()).collect();
        assert_eq!(without, [202, 916]);
        assert_eq!(text(12345), None);
    }
}
