//! Results of calls (CUDA driver API, "Data types used by CUDA driver", `CUresult`). Numbers and
//! names are cudarc's.

use cudarc::driver::sys::CUresult;

use crate::boundary::{Out, Text};

/// The result of a call that failed: a number, because a driver may return one that [`CUresult`]
/// does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

/// How an operation ends.
pub type Answer<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $symbol:ident, $text:literal;)*) => {
        impl Code {
            $(pub const $name: Self = Self(CUresult::$symbol as u32);)*
        }

        /// Returns the symbol and the description of a result, both ending in NUL.
        pub fn describe(code: u32) -> Option<(&'static str, &'static str)> {
            match Code(code) {
                Code(0) => Some(("CUDA_SUCCESS\0", "no error\0")),
                $(Code::$name => Some((concat!(stringify!($symbol), "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = CUDA_ERROR_INVALID_VALUE, "invalid argument";
    OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY, "out of memory";
    NOT_INITIALIZED = CUDA_ERROR_NOT_INITIALIZED, "initialization error";
    NO_DEVICE = CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected";
    INVALID_DEVICE = CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal";
    INVALID_IMAGE = CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid";
    INVALID_CONTEXT = CUDA_ERROR_INVALID_CONTEXT, "invalid device context";
    NO_BINARY_FOR_GPU = CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device";
    UNSUPPORTED_LIMIT = CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture";
    INVALID_PTX = CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.";
    FILE_NOT_FOUND = CUDA_ERROR_FILE_NOT_FOUND, "file not found";
    OPERATING_SYSTEM = CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = CUDA_ERROR_INVALID_HANDLE, "invalid resource handle";
    ILLEGAL_STATE = CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state";
    NOT_FOUND = CUDA_ERROR_NOT_FOUND, "named symbol not found";
    NOT_READY = CUDA_ERROR_NOT_READY, "device not ready";
    ILLEGAL_ADDRESS = CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch";
    CONTEXT_IS_DESTROYED = CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address";
    LAUNCH_FAILED = CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure";
    COOPERATIVE_LAUNCH_TOO_LARGE = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch";
    NOT_PERMITTED = CUDA_ERROR_NOT_PERMITTED, "operation not permitted";
    NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED, "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_EXEC_UPDATE_FAILURE = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    INVALID_RESOURCE_TYPE = CUDA_ERROR_INVALID_RESOURCE_TYPE, "specified resource type is invalid";
    INVALID_RESOURCE_CONFIGURATION = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "specified resource configuration is invalid";
    DEVICE_UNAVAILABLE = CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable";
    SYSTEM_DRIVER_MISMATCH = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination";
    UNKNOWN = CUDA_ERROR_UNKNOWN, "unknown error";
}

/// Puts the symbol of a result, such as `CUDA_ERROR_INVALID_VALUE`, as `cuGetErrorName` does. Returns
/// the result of that call: an unknown code yields a null pointer and `INVALID_VALUE`.
pub fn put_name(code: u32, into: Out<Text>) -> u32 {
    tell(into, describe(code).map(|(symbol, _)| symbol))
}

/// Puts the description of a result, as `cuGetErrorString` does. Returns the result of that call: an
/// unknown code yields a null pointer and `INVALID_VALUE`.
pub fn put_text(code: u32, into: Out<Text>) -> u32 {
    tell(into, describe(code).map(|(_, text)| text))
}

fn tell(into: Out<Text>, text: Option<&'static str>) -> u32 {
    let set = into.set(text.map_or(Text::NULL, Text::of));
    match (set, text) {
        (Ok(()), Some(_)) => 0,
        _ => Code::INVALID_VALUE.0,
    }
}
