//! The workload `stream` (see `causeway_guests::stream`).
#![no_std]
#![no_main]

causeway_bare::main!(causeway_guests::stream::run);
