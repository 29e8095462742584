//! The workload `stream` (see `causeway_linux_programs::stream`).

fn main() -> std::process::ExitCode {
    causeway_linux_programs::run(causeway_linux_programs::stream::run)
}
