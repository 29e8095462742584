//! BAR 2 in this process.
//!
//! The kernel fills page tables for all of a device mapping at once, and checks every page of
//! `/dev/mem`: for 64 GiB that is 128 MiB of tables and minutes. So addresses are reserved for the
//! whole aperture, and pieces of it mapped when something first appears in them. They stay: what
//! goes leaves a hole, which can be touched.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;

use causeway_protocol::Access;
use causeway_protocol::pci::BAR_APERTURE;
use causeway_shim::Window;
use causeway_sysfs::{NotUsable, PciFunction, PciFunctionError, Registers};
use parking_lot::Mutex;

use crate::reserved::ReservedRange;

/// Bytes of a piece.
const PIECE_BYTES: u64 = 8 << 20;
/// The guest's physical memory as a file.
const MEMORY: &str = "/dev/mem";

/// How the CPU caches the aperture. Access to host memory in it is fast only with write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Loads and stores are cached, as for ordinary memory.
    WriteBack,
    /// Stores are combined before they go to memory. Loads are not cached, so they are slow.
    WriteCombining,
    /// Every load and store goes to memory separately, so both are slow.
    Uncached,
}

impl Caching {
    /// Returns the name of the kind of caching, such as `write-back`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write-back",
            Self::WriteCombining => "write-combining",
            Self::Uncached => "uncached",
        }
    }
}

/// The aperture (BAR 2 of the function) in this process: a range of reserved addresses, into which
/// parts of the BAR are mapped when they are needed.
#[derive(Debug)]
pub struct Aperture {
    range: ReservedRange,
    file: File,
    caching: Caching,
    address: u64,
    /// Added to an offset into the aperture, it gives the offset into the file.
    file_base: u64,
    /// Which pieces are mapped.
    mapped: Mutex<Vec<bool>>,
}

impl Aperture {
    /// Reserves addresses for the aperture, which has `bytes` bytes, and chooses the file from
    /// which to map it.
    pub fn new(function: &PciFunction, bytes: u64) -> Result<Self, PciFunctionError> {
        let bar = function.bar(BAR_APERTURE)?;
        if bar.bytes < bytes {
            return Err(function.forbidden(NotUsable::Bar(BAR_APERTURE)));
        }
        let (file, caching, file_base) = choose(function, bar.address)?;
        let range = ReservedRange::reserve(bytes)
            .map_err(|source| function.failed("resource2", source.into()))?;
        Ok(Self {
            range,
            file,
            caching,
            address: bar.address,
            file_base,
            mapped: Mutex::new(vec![false; bytes.div_ceil(PIECE_BYTES) as usize]),
        })
    }

    /// Returns how the CPU caches the aperture.
    pub const fn caching(&self) -> Caching {
        self.caching
    }

    /// Returns the guest-physical address of the aperture.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Returns a window over the whole aperture. Only ranges that [`Self::reach`] has mapped can be
    /// accessed.
    pub fn window(&self) -> Window {
        self.range.window()
    }

    /// Maps the `bytes` bytes at `offset` of the aperture into this process. Returns false if they
    /// are not inside the aperture, or the Linux kernel cannot map them.
    pub fn reach(&self, offset: u64, bytes: u64) -> bool {
        let all_bytes = self.window().bytes() as u64;
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= all_bytes) else {
            return false;
        };
        let mut mapped = self.mapped.lock();
        for piece in offset / PIECE_BYTES..end.div_ceil(PIECE_BYTES) {
            if mapped[piece as usize] {
                continue;
            }
            let start = piece * PIECE_BYTES;
            let length = PIECE_BYTES.min(all_bytes - start);
            let from = self.file_base + start;
            let access = Access::ReadWrite;
            if let Err(e) = self
                .range
                .place(start, length, self.file.as_fd(), from, access)
            {
                log::error!(
                    "cannot map {length} bytes at offset {start:#x} of the Causeway device's \
                     aperture, so this process cannot access the memory there: {e}"
                );
                return false;
            }
            mapped[piece as usize] = true;
        }
        true
    }
}

/// Chooses the file to map the aperture from. Returns it, how the CPU then caches the aperture, and
/// where in the file the aperture begins.
fn choose(function: &PciFunction, address: u64) -> Result<(File, Caching, u64), PciFunctionError> {
    // Without O_SYNC: with it, the kernel maps uncached whatever the memory type ranges say
    // (drivers/char/mem.c).
    match OpenOptions::new().read(true).write(true).open(MEMORY) {
        Ok(file) if probe(&file, address) => return Ok((file, Caching::WriteBack, address)),
        Ok(_) => log::debug!("cannot map the aperture from {MEMORY}"),
        Err(e) => log::debug!("cannot open {MEMORY}: {e}"),
    }
    match function.open("resource2_wc") {
        Ok(file) if probe(&file, 0) => return Ok((file, Caching::WriteCombining, 0)),
        Ok(_) => log::debug!("cannot map the aperture from resource2_wc"),
        Err(e) => log::debug!("{e}"),
    }
    let file = function.open("resource2")?;
    match Registers::map(&file, 0, PROBE_BYTES) {
        Ok(_) => Ok((file, Caching::Uncached, 0)),
        Err(source) => Err(function.failed("resource2", source)),
    }
}

const PROBE_BYTES: u64 = 4096;

fn probe(file: &File, offset: u64) -> bool {
    Registers::map(file, offset, PROBE_BYTES).is_ok()
}
