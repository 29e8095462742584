//! Adds two vectors on the GPU, and checks every sum.

use causeway_shim_linux::shim::{Buffer, CommandBuffer, Device, LaunchShape, MemoryKind, Patience};
use causeway_shim_linux::{LinuxTransport, load_module};

const LENGTH: u32 = 100_000;
const BYTES: u64 = 4 * LENGTH as u64;
const SHAPE: LaunchShape = LaunchShape {
    grid: [LENGTH.div_ceil(256), 1, 1],
    block: [256, 1, 1],
    shared_bytes: 0,
};

fn main() {
    if let Err(error) = add_vectors() {
        eprintln!("vector_add: {error}");
        std::process::exit(1);
    }
}

fn add_vectors() -> Result<(), Box<dyn std::error::Error>> {
    // The PCI function of a guest, or the socket that CAUSEWAY_SOCKET names.
    let transport = LinuxTransport::find()?;
    let device = Device::open(&transport)?;
    let space = device.create_space()?;
    let module = load_module(&space, include_bytes!("vector_add.ptx"))?;
    let kernel = module.kernel("vector_add")?;

    // Memory that GPU and CPU share: the vectors, and a word that the GPU sets when it is done.
    let vector = || Buffer::new(&device, &space, BYTES, MemoryKind::Host);
    let (a, b, sum) = (vector()?, vector()?, vector()?);
    let word = Buffer::new(&device, &space, 8, MemoryKind::Host)?;
    let done = word.fence(0)?;
    for i in 0..LENGTH {
        a.cpu.store_u32(4 * i as usize, i)?;
        b.cpu.store_u32(4 * i as usize, 2 * i)?;
    }

    let parameters = kernel.parameters()?.with(0, &a.gpu.address())?;
    let parameters = parameters.with(1, &b.gpu.address())?;
    let parameters = parameters.with(2, &sum.gpu.address())?.with(3, &LENGTH)?;
    let mut queue = CommandBuffer::new(&space, 256)?;
    queue.launch(SHAPE, &parameters)?;
    queue.release(&done, 1)?;
    queue.submit();
    queue.wait(&done, 1, Patience::default())?;

    for i in 0..LENGTH {
        assert_eq!(sum.cpu.load_u32(4 * i as usize)?, 3 * i, "sum {i}");
    }
    println!("{LENGTH} sums are right");
    Ok(())
}
