//! The workload `sharing` (see `causeway_linux_programs::sharing`): in each of two VMs, or as two
//! processes.

fn main() -> std::process::ExitCode {
    causeway_linux_programs::platform::run_pair(causeway_linux_programs::sharing::run)
}
