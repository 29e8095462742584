//! The workload `sharing` (see `causeway_guests::sharing`).
#![no_std]
#![no_main]

causeway_bare::main!(causeway_guests::sharing::run);
