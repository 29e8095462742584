//! The workload `compute` (see `causeway_linux_programs::compute`).

fn main() -> std::process::ExitCode {
    causeway_linux_programs::run(causeway_linux_programs::compute::run)
}
