//! A `libcuda.so.1` for tests on machines without a GPU.
//!
//! It answers the CUDA driver API as NVIDIA documents it, refusals included, and executes kernels
//! on the engine of the software back end: asynchronously, in the order that streams ask for. It is
//! for testing programs that drive a GPU; it says nothing about how fast a GPU is, and its device
//! is called `Causeway stand-in (no GPU)`.
//!
//! A test that starts programs puts [`directory`] on their `LD_LIBRARY_PATH`; one that uses the
//! driver in its own process calls [`preload`] before anything loads `libcuda`.
//!
//! # What is like a GPU's driver, because programs must not count on the opposite
//!
//! * Memory and arrays come with garbage in them, and what was freed may come back as it was.
//! * An array is destroyed, and a module unloaded, when all work of its context is done, and the
//!   call waits for that.
//! * A device address is a reservation without rights in the process: following it is a fault.
//! * After a fault of a kernel every call answers its error, in all contexts, until the process
//!   ends.
//! * `cuMemMap` takes no offset; ranges are unmapped, and given rights, by whole mappings.
//! * Fabric handles are said to be supported, and refused with `NOT_PERMITTED` without an IMEX
//!   channel (`FABRIC`).
//! * A pointer that is neither the device's nor registered is pageable memory of the host, and
//!   copied as such.
//!
//! # What is not
//!
//! * Machine code is not executed: [`cubin`] makes ELF files that carry PTX instead.
//! * Textures and surfaces in kernels, mipmapped arrays, arrays in nodes that are added to graphs,
//!   memory pools, managed memory, inter-process events, launch attributes, nested graphs.
//! * All streams of a context that have no handle are the legacy default stream.
//! * Imported memory counts for the process that made it.
//! * A kernel that runs on while imported memory is unmapped is taken for one that uses it, and
//!   faults. The engine would let it go on.
//!
//! # Environment
//!
//! | variable (`CAUSEWAY_STANDIN_…`) | meaning | usually |
//! |---|---|---|
//! | `DEVICES` | number of devices, up to 16; with 0, `cuInit` says `NO_DEVICE` | 1 |
//! | `PEERS` | 0 lets no device reach the memory of another: kernels and `cuMemSetAccess` are refused, and copies but `cuMemcpyPeerAsync` and `cuMemcpy3DPeerAsync` | 1 |
//! | `REVERSED` | 1 counts devices from the one with the highest PCI address, unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID` | 0 |
//! | `NVLINK` | 1 makes NVML say that devices are linked by NVLink, for tests that give the library its name | 0 |
//! | `FABRIC` | 1 is an IMEX channel: all processes that share `STATE` are machines of a fabric | 0 |
//! | `DRIVER_VERSION` | version of the driver | 13000 |
//! | `MEMORY` | bytes of memory of each device, or a list by commas, whose last number is for all devices that follow | 4 GiB |
//! | `SMS` | multiprocessors | 132 |
//! | `UUID` | UUID of the first device, 32 hexadecimal digits | text |
//! | `VULKAN` | how memory files are marked for a Vulkan driver to import them, 32 hexadecimal digits: [`Lavapipe`] | not |
//! | `ATTRIBUTES` | other values of attributes, by number: `102=0,88=1` | an H200's |
//! | `LOCKED_BYTES` | host memory that may be registered at a time | any |
//! | `FULL` | 1 has each kernel take the whole GPU, so that fills and other kernels wait for it | 0 |
//! | `STRICT` | 1 ends the process when it copies pageable memory | 0 |
//! | `PROMPT` | 1 ends the process when it has to wait for work before it destroys an array or unloads a module | 0 |
//! | `HANG` | seconds for which `cuInit` does nothing first | 0 |
//! | `HANG_LOAD`, `HANG_KERNEL`, `HANG_WORD` | seconds for which each load of a module but the first of a process, each kernel, or each copy of 8 bytes does nothing first; the file `hangs` in `STATE` tells that one does, as with `HANG` | 0 |
//! | `STATE` | folder where processes account for device memory and contexts; the file `contexts` there has a line for each context ever made: the process, and how many contexts other processes had; the file `priorities` has a line for each stream that has had a kernel: its priority; those that share the folder share the devices | one per user |
//!
//! A setting that makes no sense ends the process. Tests that count memory give themselves a
//! `STATE` of their own.

#![allow(
    unsafe_code,
    reason = "a C library: calls take pointers, which callers answer for"
)]
#![allow(
    clippy::cast_possible_wrap,
    reason = "the driver API's integers are signed, and all values here are small"
)]
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and arguments are those of cuda.h"
)]

mod across;
mod addresses;
mod array;
mod attributes;
mod capture;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod fabric;
mod function;
mod graph;
mod green;
mod host_memory;
mod host_ranges;
mod image;
mod launch;
mod lavapipe;
mod ledger;
mod link;
mod locate;
mod lookup;
mod memory;
mod module;
mod nvml;
mod physical;
mod primary;
mod queue;
mod rectangle;
mod settings;
mod stream;
mod tensor_map;
mod texture;
mod virtual_memory;
mod work;

use causeway_cuda_abi::{boundary, error, handles, structures};

pub use image::{cubin, fatbin};
pub use lavapipe::{Lavapipe, LavapipeError};
pub use locate::{directory, library, preload};
