//! Links the programs as bare guests.

fn main() {
    causeway_guest_build::link_bare_guest();
}
