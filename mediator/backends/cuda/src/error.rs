//! From what the driver says to what a guest hears.

use causeway_mediator::backend::{BackendError, Fault};
use causeway_protocol::message::Status;

use crate::driver::CudaError;

/// A request that cannot be fulfilled, without the driver's having been asked.
pub(crate) fn refused(status: Status, context: impl Into<String>) -> BackendError {
    BackendError {
        status,
        context: context.into(),
        source: None,
    }
}

/// A request that failed in the driver.
pub(crate) fn failed(context: impl Into<String>, source: CudaError) -> BackendError {
    BackendError {
        status: request_status(&source),
        context: context.into(),
        source: Some(Box::new(source)),
    }
}

/// What the failure of a request means. (Codes are those of `CUresult` in cuda.h.)
fn request_status(error: &CudaError) -> Status {
    match error.code {
        2 => Status::NoMemory,
        // NOT_PERMITTED, NOT_SUPPORTED.
        800 | 801 => Status::Unsupported,
        _ if error.is_sticky() => Status::DeviceLost,
        _ => Status::BackEnd,
    }
}

/// What an error of a queue means: it may be that of the call itself or, as the driver reports late, of earlier work.
/// `kernel` is the last that was launched.
pub(crate) fn fault(error: &CudaError, kernel: Option<&str>) -> Fault {
    let text = match kernel {
        Some(kernel) => format!("{error}; the last kernel launched was `{kernel}`"),
        None => error.to_string(),
    };
    Fault {
        status: work_status(error.code),
        text,
    }
}

fn work_status(code: u32) -> Status {
    match code {
        // ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC.
        700 | 716 | 717 | 718 => Status::MemoryFault,
        // LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, LAUNCH_FAILED, TENSOR_MEMORY_LEAK.
        702 | 710 | 714 | 715 | 719 | 721 => Status::KernelFault,
        // INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_CLUSTER_SIZE.
        1 | 701 | 720 | 912 => Status::BadLaunch,
        2 => Status::NoMemory,
        _ => Status::BackEnd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u32) -> CudaError {
        CudaError {
            call: "cuStreamQuery",
            code,
            text: String::from("CUDA_ERROR_X, what it means"),
        }
    }

    #[test]
    fn a_fault_tells_the_drivers_error_and_the_kernel() {
        let fault = fault(&error(700), Some("saxpy"));
        assert_eq!(fault.status, Status::MemoryFault);
        for part in ["cuStreamQuery", "CUDA_ERROR_X", "700", "`saxpy`"] {
            assert!(fault.text.contains(part), "{}", fault.text);
        }
    }

    #[test]
    fn codes_that_spoil_the_process_never_stop_only_a_command_buffer() {
        for code in 0..1000 {
            let stops_buffer_only = work_status(code) == Status::BadLaunch;
            assert!(!(error(code).is_sticky() && stops_buffer_only), "{code}");
            let lost = request_status(&error(code)) == Status::DeviceLost;
            assert_eq!(error(code).is_sticky(), lost, "{code}");
        }
    }

    #[test]
    fn unknown_codes_are_not_the_guests_fault() {
        for code in [123_456, u32::MAX] {
            assert_eq!(work_status(code), Status::BackEnd);
            assert_eq!(request_status(&error(code)), Status::BackEnd);
        }
    }
}
