//! What calls of the CUDA driver API cost, in nanoseconds: with whatever `libcuda.so.1` the loader
//! finds. Run it natively and through `causeway cuda`, each alone on the GPU, and compare.
//!
//!     cargo build --release -p causeway-cuda-command --example costs
//!     target/release/examples/costs
//!     causeway cuda --gpu cuda -- target/release/examples/costs

#![allow(unsafe_code, reason = "the driver API is a C library")]
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

/// A kernel with eight parameters that does nothing.
const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d,
    .param .u64 e, .param .u64 f, .param .u64 g, .param .u64 h)
{ ret; }
";

/// What a result that is not success ends: the program.
fn check(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

/// Median time of `call` in nanoseconds.
fn median(samples: usize, mut call: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..samples + 3)
        .map(|_| {
            let begun = Instant::now();
            call();
            begun.elapsed()
        })
        .skip(3)
        .collect();
    times.sort();
    times[samples / 2].as_nanos() as f64
}

fn show(name: &str, nanoseconds: f64) {
    println!("{name:48} {nanoseconds:>14.1} ns");
}

/// The kernel, and the arguments of its launches.
struct Launches {
    function: sys::CUfunction,
    stream: sys::CUstream,
    values: [u64; 8],
}

impl Launches {
    fn launch(&mut self) {
        let mut pointers = [null_mut::<c_void>(); 8];
        for (pointer, value) in pointers.iter_mut().zip(&mut self.values) {
            *pointer = std::ptr::from_mut(value).cast();
        }
        // SAFETY: the kernel has eight parameters of 8 bytes.
        check(unsafe {
            sys::cuLaunchKernel(
                self.function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                self.stream,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        });
    }

    fn wait(&self) {
        // SAFETY: the stream exists.
        check(unsafe { sys::cuStreamSynchronize(self.stream) });
    }
}

fn main() {
    let begun = Instant::now();
    let mut launches = start();
    launches.launch();
    launches.wait();
    show("cuInit to the first kernel done", nanoseconds(begun));
    queries(&launches);
    show("cuLaunchKernel, 8 parameters", submitted(&mut launches));
    let waited = median(2001, || {
        launches.launch();
        launches.wait();
    });
    show("launch and cuStreamSynchronize", waited);
    let all = median(5, || {
        (0..20_000).for_each(|_| launches.launch());
        launches.wait();
    });
    show("20,000 launches and one wait, each", all / 20_000.0);
    for bytes in [1 << 20, 64 << 20] {
        show(
            &format!("cuMemAlloc and cuMemFree, {} MiB", bytes >> 20),
            allocated(bytes),
        );
    }
    for (bytes, samples) in [(4 << 10, 501), (1 << 20, 101), (256 << 20, 5)] {
        copies(bytes, samples);
    }
}

fn nanoseconds(begun: Instant) -> f64 {
    begun.elapsed().as_nanos() as f64
}

/// Makes the primary context current, loads the kernel and makes a stream.
fn start() -> Launches {
    let image = CString::new(PTX).expect("a text without NUL");
    let (mut context, mut module) = (null_mut(), null_mut());
    let (mut function, mut stream) = (null_mut(), null_mut());
    // SAFETY: pointers are valid for the calls, and texts end in NUL.
    unsafe {
        check(sys::cuInit(0));
        check(sys::cuDevicePrimaryCtxRetain(&raw mut context, 0));
        check(sys::cuCtxSetCurrent(context));
        check(sys::cuModuleLoadData(
            &raw mut module,
            image.as_ptr().cast(),
        ));
        let name = c"nothing".as_ptr();
        check(sys::cuModuleGetFunction(&raw mut function, module, name));
        check(sys::cuStreamCreate(&raw mut stream, 1));
    }
    Launches {
        function,
        stream,
        values: [7; 8],
    }
}

/// Calls that only ask.
fn queries(launches: &Launches) {
    let each = |call: &dyn Fn()| median(101, || (0..1000).for_each(|_| call())) / 1000.0;
    let current = each(&|| {
        let mut context = null_mut();
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cuCtxGetCurrent(&raw mut context) });
    });
    show("cuCtxGetCurrent", current);
    let device = each(&|| {
        let mut device = 0;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cuCtxGetDevice(&raw mut device) });
    });
    show("cuCtxGetDevice", device);
    let queried = each(&|| {
        // SAFETY: the stream exists.
        check(unsafe { sys::cuStreamQuery(launches.stream) });
    });
    show("cuStreamQuery, of a stream without work", queried);
}

/// Time of one launch, of a hundred in a row, in nanoseconds. The wait for them is not in it.
fn submitted(launches: &mut Launches) -> f64 {
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            launches.wait();
            let begun = Instant::now();
            (0..100).for_each(|_| launches.launch());
            nanoseconds(begun) / 100.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn allocated(bytes: usize) -> f64 {
    median(201, || {
        let mut address = 0;
        // SAFETY: the pointer is valid for the call, and the memory is the one allocated.
        unsafe {
            check(sys::cuMemAlloc_v2(&raw mut address, bytes));
            check(sys::cuMemFree_v2(address));
        }
    })
}

/// Copies of pinned and of pageable memory, both ways.
fn copies(bytes: usize, samples: usize) {
    let mut pageable = vec![1_u8; bytes];
    let (mut device, mut pinned) = (0, null_mut());
    // SAFETY: pointers are valid for the calls.
    unsafe {
        check(sys::cuMemAlloc_v2(&raw mut device, bytes));
        check(sys::cuMemHostAlloc(&raw mut pinned, bytes, 0));
        pinned.cast::<u8>().write_bytes(2, bytes);
    }
    let sides = [
        ("pinned", pinned),
        ("pageable", pageable.as_mut_ptr().cast()),
    ];
    for (name, host) in sides {
        let to = median(samples, || {
            // SAFETY: both sides have as many bytes.
            check(unsafe { sys::cuMemcpyHtoD_v2(device, host, bytes) });
        });
        show(
            &format!("{name} memory to the device, {} KiB", bytes >> 10),
            to,
        );
        let from = median(samples, || {
            // SAFETY: both sides have as many bytes.
            check(unsafe { sys::cuMemcpyDtoH_v2(host, device, bytes) });
        });
        show(
            &format!("the device to {name} memory, {} KiB", bytes >> 10),
            from,
        );
    }
    // SAFETY: allocated above.
    unsafe {
        check(sys::cuMemFree_v2(device));
        check(sys::cuMemFreeHost(pinned));
    }
}
