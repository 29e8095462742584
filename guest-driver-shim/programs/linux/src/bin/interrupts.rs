//! Sleeps until interrupts, and counts them (see `causeway_linux_programs::interrupts`).

fn main() -> std::process::ExitCode {
    causeway_linux_programs::run(causeway_linux_programs::interrupts::run)
}
