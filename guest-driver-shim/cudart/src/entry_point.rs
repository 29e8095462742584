//! Functions of the driver by name (CUDA Runtime API, "Driver Entry Point Access").

use causeway_cuda_abi::boundary::{Out, Text};
use causeway_cuda_abi::error::{Answer, Code};

use crate::VERSION;
use crate::driver::driver;
use crate::table::calls;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;

calls! {
    fn cudaGetDriverEntryPoint(name: Text, function: Out<usize>, flags: u64, status: Out<u32>)
        => find(name, function, VERSION, flags, status);
    fn cudaGetDriverEntryPoint_ptsz(name: Text, function: Out<usize>, flags: u64,
                                    status: Out<u32>)
        => find(name, function, VERSION, of_own_streams(flags), status);
    fn cudaGetDriverEntryPointByVersion(name: Text, function: Out<usize>, version: u32, flags: u64,
                                        status: Out<u32>)
        => find(name, function, version as i32, flags, status);
    fn cudaGetDriverEntryPointByVersion_ptsz(name: Text, function: Out<usize>, version: u32,
                                             flags: u64, status: Out<u32>)
        => find(name, function, version as i32, of_own_streams(flags), status);
}

/// A name that the driver does not have is no error: `status` says so, and the function is null.
pub fn find(
    name: Text,
    function: Out<usize>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> Answer {
    match driver!(cuGetProcAddress_v2(name, function, version, flags, status)) {
        Err(Code::NOT_FOUND) => function.set(0),
        outcome => outcome,
    }
}

/// What a program gets by default whose default stream is one for each thread.
pub fn of_own_streams(flags: u64) -> u64 {
    if flags == 0 { PER_THREAD } else { flags }
}
