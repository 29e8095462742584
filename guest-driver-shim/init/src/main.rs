//! `/init` of a guest that runs one program.

fn main() {
    causeway_init::run()
}
