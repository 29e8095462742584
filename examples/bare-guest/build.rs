//! Links the program as a bare guest.

fn main() {
    causeway_guest_build::link_bare_guest();
}
