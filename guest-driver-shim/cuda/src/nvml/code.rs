//! Results of calls (`nvmlReturn_t`).

use crate::boundary::Text;

/// The result of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

/// A value, or the result that says why there is none.
pub(super) type Answer<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "some results are only described")]
        impl Code {
            $(pub(super) const $name: Self = Self($number);)*
        }

        fn describe(code: u32) -> &'static str {
            match code {
                0 => "Success\0",
                $($number => concat!($text, "\0"),)*
                _ => "Unknown Error\0",
            }
        }
    };
}

codes! {
    UNINITIALIZED = 1, "Uninitialized";
    INVALID_ARGUMENT = 2, "Invalid Argument";
    NOT_SUPPORTED = 3, "Not Supported";
    NO_PERMISSION = 4, "Insufficient Permissions";
    ALREADY_INITIALIZED = 5, "Already Initialized";
    NOT_FOUND = 6, "Not Found";
    INSUFFICIENT_SIZE = 7, "Insufficient Size";
    INSUFFICIENT_POWER = 8, "Insufficient External Power";
    DRIVER_NOT_LOADED = 9, "Driver Not Loaded";
    TIMEOUT = 10, "Timeout";
    IRQ_ISSUE = 11, "Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, "Library Not Found";
    FUNCTION_NOT_FOUND = 13, "Function Not Found";
    CORRUPTED_INFOROM = 14, "Corrupted infoROM";
    GPU_IS_LOST = 15, "GPU is lost";
    RESET_REQUIRED = 16, "GPU requires reset";
    OPERATING_SYSTEM = 17, "Operating System Refused Access";
    LIB_RM_VERSION_MISMATCH = 18, "Driver/library version mismatch";
    IN_USE = 19, "In use by another client";
    MEMORY = 20, "Insufficient Memory";
    NO_DATA = 21, "No data";
    VGPU_ECC_NOT_SUPPORTED = 22, "vGPU with ECC not supported";
    INSUFFICIENT_RESOURCES = 23, "Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24, "Frequency Not Supported";
    ARGUMENT_VERSION_MISMATCH = 25, "Argument Version Mismatch";
    DEPRECATED = 26, "Deprecated";
    NOT_READY = 27, "Not Ready";
    GPU_NOT_FOUND = 28, "GPU Not Found";
    INVALID_STATE = 29, "Invalid State";
    RESET_TYPE_NOT_SUPPORTED = 30, "Reset Type Not Supported";
    UNKNOWN = 999, "Unknown Error";
}

/// Callers' pointers are the types of the CUDA driver API. All that can be wrong with one is an
/// argument.
impl From<crate::error::Code> for Code {
    fn from(_: crate::error::Code) -> Self {
        Self::INVALID_ARGUMENT
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: u32) -> Text {
    Text::of(describe(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_has_a_text_of_its_own() {
        let mut texts: Vec<_> = (0..=30).map(describe).collect();
        texts.push(describe(999));
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 32);
        assert!(texts.iter().all(|text| text.ends_with('\0')));
        assert_eq!(describe(31), describe(999));
        assert_eq!(Code::NOT_SUPPORTED.0, 3);
    }
}
