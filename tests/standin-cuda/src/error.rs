//! What calls answer (CUDA driver API, "Data types used by CUDA driver", `CUresult`).

use crate::boundary::{Out, Text};

/// An answer other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// How an operation ends.
pub(crate) type Answer<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $symbol:literal, $text:literal;)*) => {
        impl Code {
            $(pub(crate) const $name: Self = Self($number);)*
        }

        /// Symbol and description, both ending in NUL.
        fn describe(code: u32) -> Option<(&'static str, &'static str)> {
            match code {
                0 => Some(("CUDA_SUCCESS\0", "no error\0")),
                $($number => Some((concat!("CUDA_ERROR_", $symbol, "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, "INVALID_VALUE", "invalid argument";
    OUT_OF_MEMORY = 2, "OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "NOT_INITIALIZED", "initialization error";
    NO_DEVICE = 100, "NO_DEVICE", "no CUDA-capable device is detected";
    INVALID_DEVICE = 101, "INVALID_DEVICE", "invalid device ordinal";
    INVALID_IMAGE = 200, "INVALID_IMAGE", "device kernel image is invalid";
    INVALID_CONTEXT = 201, "INVALID_CONTEXT", "invalid device context";
    NO_BINARY_FOR_GPU = 209, "NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device";
    UNSUPPORTED_LIMIT = 215, "UNSUPPORTED_LIMIT", "limit is not supported on this architecture";
    INVALID_PTX = 218, "INVALID_PTX", "a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, "UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain.";
    OPERATING_SYSTEM = 304, "OPERATING_SYSTEM", "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "INVALID_HANDLE", "invalid resource handle";
    NOT_FOUND = 500, "NOT_FOUND", "named symbol not found";
    NOT_READY = 600, "NOT_READY", "device not ready";
    ILLEGAL_ADDRESS = 700, "ILLEGAL_ADDRESS", "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch";
    CONTEXT_IS_DESTROYED = 709, "CONTEXT_IS_DESTROYED", "context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716, "MISALIGNED_ADDRESS", "misaligned address";
    LAUNCH_FAILED = 719, "LAUNCH_FAILED", "unspecified launch failure";
    NOT_PERMITTED = 800, "NOT_PERMITTED", "operation not permitted";
    NOT_SUPPORTED = 801, "NOT_SUPPORTED", "operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, "STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, "STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, "STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_IMPLICIT = 906, "STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, "CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream";
    INVALID_RESOURCE_TYPE = 914, "INVALID_RESOURCE_TYPE", "specified resource type is invalid";
    INVALID_RESOURCE_CONFIGURATION = 915, "INVALID_RESOURCE_CONFIGURATION", "specified resource configuration is invalid";
    UNKNOWN = 999, "UNKNOWN", "unknown error";
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: u32, name: Out<Text>) -> u32 {
    tell(name, describe(error).map(|(symbol, _)| symbol))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(error: u32, text: Out<Text>) -> u32 {
    tell(text, describe(error).map(|(_, text)| text))
}

/// An unknown code yields a null pointer and INVALID_VALUE.
fn tell(into: Out<Text>, text: Option<&'static str>) -> u32 {
    let set = into.set(text.map_or(Text::NULL, Text::of));
    match (set, text) {
        (Ok(()), Some(_)) => 0,
        _ => Code::INVALID_VALUE.0,
    }
}
