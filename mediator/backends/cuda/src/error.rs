//! Translates errors of the driver to the statuses and faults that a guest gets.

use causeway_mediator::backend::{BackendError, Fault};
use causeway_protocol::message::Status;

use crate::driver::{CudaError, code};
use crate::support::Attribute;

/// Returns the error for a request that this back end refuses without asking the driver.
pub(crate) fn refused(status: Status, context: impl Into<String>) -> BackendError {
    BackendError::new(status, context)
}

/// Returns the error for a request that needs an attribute that the GPU does not have.
pub(crate) fn lacks(attribute: Attribute) -> BackendError {
    refused(
        Status::Unsupported,
        format!(
            "the GPU lacks the CUDA device attribute {}",
            attribute.name()
        ),
    )
}

/// Returns the error for a request that failed in the driver. `context` names the request, and
/// `source`, which is the driver's error, decides the status.
pub(crate) fn failed(context: impl Into<String>, source: CudaError) -> BackendError {
    BackendError::new(request_status(&source), context).because(source)
}

/// Returns the status for a guest whose request failed in the driver.
fn request_status(error: &CudaError) -> Status {
    match error.code {
        code::CUDA_ERROR_OUT_OF_MEMORY => Status::NoMemory,
        code::CUDA_ERROR_NOT_PERMITTED | code::CUDA_ERROR_NOT_SUPPORTED => Status::Unsupported,
        _ if error.is_sticky() => Status::DeviceLost,
        _ => Status::BackEnd,
    }
}

/// Returns the fault for an error that a call on a queue returned. The driver reports late: the
/// error may be that of earlier work. `kernel` is the name of the kernel that was launched last.
pub(crate) fn fault(error: &CudaError, kernel: Option<&str>) -> Fault {
    let text = match kernel {
        Some(kernel) => format!("{error}; the last kernel launched was `{kernel}`"),
        None => error.to_string(),
    };
    Fault::new(work_status(error.code), text).with_cuda_result(error.code)
}

fn work_status(result: u32) -> Status {
    match result {
        code::CUDA_ERROR_ILLEGAL_ADDRESS
        | code::CUDA_ERROR_MISALIGNED_ADDRESS
        | code::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | code::CUDA_ERROR_INVALID_PC => Status::MemoryFault,
        code::CUDA_ERROR_LAUNCH_TIMEOUT
        | code::CUDA_ERROR_ASSERT
        | code::CUDA_ERROR_HARDWARE_STACK_ERROR
        | code::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | code::CUDA_ERROR_LAUNCH_FAILED
        | code::CUDA_ERROR_TENSOR_MEMORY_LEAK => Status::KernelFault,
        code::CUDA_ERROR_INVALID_VALUE
        | code::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        | code::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        | code::CUDA_ERROR_INVALID_CLUSTER_SIZE => Status::BadLaunch,
        code::CUDA_ERROR_OUT_OF_MEMORY => Status::NoMemory,
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
        assert_eq!(fault.cuda_result, 700);
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
