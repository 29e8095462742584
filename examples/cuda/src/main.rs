//! Adds two vectors by the CUDA driver API and cudarc, many times, and copies them both ways. In a
//! guest of Causeway it marks phases, so that the host counts the exits of launches and copies
//! apart.
//!
//!     cargo build --release -p causeway-example-cuda
//!     causeway cuda -- target/release/cuda_vector_add
//!     causeway run --kernel vmlinuz --program target/release/cuda_vector_add

#![allow(
    unsafe_code,
    reason = "launches and fresh pinned memory are unsafe in cudarc"
)]
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::ffi::CString;
use std::sync::Arc;

use causeway_shim_linux::{Phase, PhaseError, PhasePath, Totals};
use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError, HostSlice, result, sys,
};

const PTX: &str = include_str!("../../vector_add/src/vector_add.ptx");
const LENGTH: usize = 1000;
const BYTES: u64 = 4 * LENGTH as u64;
const TIMES: u64 = 200;
/// Threads of a block.
const BLOCK: u32 = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    // A wait that sleeps takes exits in a guest.
    context.set_flags(sys::CUctx_flags::CU_CTX_SCHED_SPIN)?;
    let mut vectors = Vectors::new(&context)?;
    let mut pageable = vec![0; LENGTH];
    // SAFETY: it is written before it is read.
    let mut pinned = unsafe { context.alloc_pinned_with_flags(LENGTH, 0) }?;
    vectors.compute(&mut pageable)?;
    vectors.compute(pinned.as_mut_slice()?)?;

    in_phase("launch and wait", 0, || vectors.launch())?;
    in_phase("copies, pinned memory", 2 * BYTES, || {
        vectors.copy(&mut pinned)
    })?;
    in_phase("copies, pageable memory", 2 * BYTES, || {
        vectors.copy(&mut pageable)
    })?;

    vectors.compute(&mut pageable)?;
    vectors.compute(pinned.as_mut_slice()?)?;
    println!("{LENGTH} sums are right");
    Ok(())
}

/// Does `work`, which is two operations, many times in a phase of the data path. Outside of a guest
/// there are no phases.
fn in_phase(
    name: &str,
    bytes: u64,
    mut work: impl FnMut() -> Result<(), DriverError>,
) -> Result<(), Box<dyn Error>> {
    let phase = match Phase::begin(PhasePath::Data, name) {
        Err(PhaseError::NoGuest(_)) => None,
        begun => Some(begun?),
    };
    for _ in 0..TIMES {
        work()?;
    }
    if let Some(phase) = phase {
        phase.end(Totals {
            operations: 2 * TIMES,
            bytes: bytes * TIMES,
            ..Totals::default()
        })?;
    }
    Ok(())
}

/// Two vectors and their sum on the device, and the kernel that adds them.
struct Vectors {
    stream: Arc<CudaStream>,
    function: sys::CUfunction,
    a: CudaSlice<u32>,
    b: CudaSlice<u32>,
    sum: CudaSlice<u32>,
}

impl Vectors {
    fn new(context: &Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        let stream = context.default_stream();
        let text = CString::new(PTX)?;
        // SAFETY: the text ends with a zero byte, and the module stays loaded.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(module, CString::new("vector_add")?) };
        let vector = || stream.alloc_zeros(LENGTH);
        Ok(Self {
            function: function?,
            a: vector()?,
            b: vector()?,
            sum: vector()?,
            stream,
        })
    }

    /// Adds the vectors, and waits.
    fn launch(&self) -> Result<(), DriverError> {
        let address = |vector: &CudaSlice<u32>| vector.device_ptr(&self.stream).0;
        let mut addresses = [&self.a, &self.b, &self.sum].map(address);
        let mut length = LENGTH as u32;
        let mut parameters: Vec<_> = addresses.iter_mut().map(|a| (&raw mut *a).cast()).collect();
        parameters.push((&raw mut length).cast());
        let grid = (length.div_ceil(BLOCK), 1, 1);
        let (block, stream) = ((BLOCK, 1, 1), self.stream.cu_stream());
        // SAFETY: the kernel has these parameters, and the vectors have this length.
        unsafe { result::launch_kernel(self.function, grid, block, 0, stream, &mut parameters) }?;
        self.stream.synchronize()
    }

    /// Copies a vector to the device, and the sum back.
    fn copy(&mut self, memory: &mut (impl HostSlice<u32> + ?Sized)) -> Result<(), DriverError> {
        self.stream.memcpy_htod(memory, &mut self.a)?;
        self.stream.memcpy_dtoh(&self.sum, memory)?;
        self.stream.synchronize()
    }

    /// Adds vectors that are copied through `memory`, and checks the sum.
    fn compute(&mut self, memory: &mut [u32]) -> Result<(), Box<dyn Error>> {
        memory
            .iter_mut()
            .zip(0..)
            .for_each(|(value, i)| *value = 2 * i);
        self.stream.memcpy_htod(memory, &mut self.b)?;
        self.stream.synchronize()?;
        memory
            .iter_mut()
            .zip(0..)
            .for_each(|(value, i)| *value = 3 * i);
        self.stream.memcpy_htod(memory, &mut self.a)?;
        self.launch()?;
        memory.fill(0);
        self.stream.memcpy_dtoh(&self.sum, memory)?;
        self.stream.synchronize()?;
        match memory.iter().zip(0..).all(|(sum, i)| *sum == 5 * i) {
            true => Ok(()),
            false => Err("sums are wrong".into()),
        }
    }
}
