//! Tests of memory with a host that has none of the features which the library can do without: the
//! answers are the same, but for waits for memory that the process does not see.

#![allow(unsafe_code, reason = "the driver API is a C library")]

#[path = "memory.rs"]
mod memory;
#[path = "rectangles.rs"]
mod rectangles;

unsafe extern "C" {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    fn cuMemHostAlloc(address: *mut *mut u32, bytes: usize, flags: u32) -> u32;
    fn cuStreamCreate(stream: *mut usize, flags: u32) -> u32;
    fn cuStreamSynchronize(stream: usize) -> u32;
    fn cuStreamWriteValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, flags: u32) -> u32;
}

const NOT_SUPPORTED: u32 = 801;

#[test]
fn the_librarys_thread_waits_for_words_that_it_sees() {
    causeway_cuda_tests::library();
    let (mut device, mut stream, mut host) = (0, 0, std::ptr::null_mut());
    // SAFETY: pointers are valid for the calls; the word is the program's.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut device, 64), 0);
        assert_eq!(cuMemHostAlloc(&raw mut host, 64, 0), 0);
        assert_eq!(cuStreamCreate(&raw mut stream, 1), 0);
        assert_eq!(cuStreamWaitValue32_v2(stream, device, 0, 1), NOT_SUPPORTED);
        assert_eq!(cuStreamWriteValue32_v2(stream, host as u64, 9, 0), 0);
        assert_eq!(cuStreamWaitValue32_v2(stream, host as u64, 9, 1), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
        assert_eq!(host.read_volatile(), 9);
    }
}
