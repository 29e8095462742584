//! The workload `compute` (see `causeway_guests::compute`).
#![no_std]
#![no_main]

causeway_bare::main!(causeway_guests::compute::run);
