//! Where the BARs are when the guest starts: the addresses that firmware would have assigned.

use causeway_memory::RangeAllocator;
use causeway_protocol::registers::{BAR0_BYTES, doorbells::BAR4_BYTES};
use kvm_bindings::kvm_cpuid_entry2;

/// Preferred address of the aperture.
const APERTURE_BASE: u64 = 256 << 30;
/// End of the addresses that a bare guest's page tables map (`causeway_protocol::boot`).
const MAPPED_END: u64 = 512 << 30;
/// Smallest aperture.
const APERTURE_BYTES_MIN: u64 = 64 << 20;
/// First guest-physical address for BARs with 32-bit addresses.
pub const LOW_BASE: u64 = 0xe000_0000;
/// End of the guest-physical addresses for BARs with 32-bit addresses: from here on are interrupt
/// controllers.
pub const LOW_END: u64 = 0xfec0_0000;
/// Bytes of 32-bit addresses that one Causeway function takes.
const LOW_BYTES: u64 = 2 * BAR4_BYTES;
/// Most GPUs of one VM, each a Causeway function of its own.
pub const GPUS_MAX: u32 = 8;

/// The guest-physical addresses of the BARs of a VM's Causeway functions, and those that are free
/// for other PCI functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Guest-physical address of the first function's BAR 2, its aperture. Those of the others
    /// follow.
    pub aperture: u64,
    /// Size of each aperture in bytes, a power of two. It is smaller than requested if there was
    /// no room for more.
    pub aperture_bytes: u64,
    /// Number of Causeway functions, one for each GPU of the VM.
    functions: u32,
    /// End of the guest-physical addresses: one more than the highest address.
    pub address_end: u64,
    /// Start and end of the guest-physical addresses for 64-bit BARs of other PCI functions; `None`
    /// before [`Self::with_high_window`], or if there are no such addresses.
    pub high_window: Option<(u64, u64)>,
}

/// The guest-physical addresses of the BARs of one Causeway function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionBars {
    /// Address of BAR 0, the registers.
    pub registers: u64,
    /// Address of BAR 4, the doorbells.
    pub doorbells: u64,
    /// Address of BAR 2, the aperture.
    pub aperture: u64,
    /// Size of the aperture in bytes, a power of two.
    pub aperture_bytes: u64,
}

/// Why the BARs of the Causeway functions cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The requested size of the aperture is not a power of two, or it is too small.
    #[error(
        "invalid aperture size of {bytes} bytes: it must be a power of two, {min_mib} MiB or more",
        min_mib = APERTURE_BYTES_MIN >> 20
    )]
    Size {
        /// Requested size of the aperture in bytes.
        bytes: u64,
    },
    /// There are too few guest-physical addresses above RAM for the smallest aperture.
    #[error(
        "no room for the aperture (BAR 2) between the end of the guest's memory, {ram_end:#x}, and \
         the end of its {address_bits}-bit physical addresses: give the guest less with --memory"
    )]
    NoRoom {
        /// Number of bits of a guest-physical address.
        address_bits: u32,
        /// End of the guest-physical addresses of RAM.
        ram_end: u64,
    },
}

impl Layout {
    /// Assigns guest-physical addresses to the BARs of a VM's only Causeway function. The guest has
    /// `address_bits` physical address bits, and its RAM ends at `ram_end`. If an aperture of
    /// `aperture_bytes` bytes does not fit, makes it smaller.
    ///
    /// # Errors
    /// As for [`Self::of`].
    pub fn new(address_bits: u32, ram_end: u64, aperture_bytes: u64) -> Result<Self, LayoutError> {
        Self::of(1, address_bits, ram_end, aperture_bytes)
    }

    /// Assigns guest-physical addresses to the BARs of `functions` Causeway functions, 1 to
    /// [`GPUS_MAX`]; otherwise as [`Self::new`]. All apertures have the same size.
    ///
    /// # Errors
    /// [`LayoutError::Size`] if `aperture_bytes` is not a power of two of at least 64 MiB, `NoRoom`
    /// if even apertures of 64 MiB do not fit.
    pub fn of(
        functions: u32,
        address_bits: u32,
        ram_end: u64,
        aperture_bytes: u64,
    ) -> Result<Self, LayoutError> {
        if !aperture_bytes.is_power_of_two() || aperture_bytes < APERTURE_BYTES_MIN {
            return Err(LayoutError::Size {
                bytes: aperture_bytes,
            });
        }
        let address_end = 1 << address_bits.clamp(32, 52);
        let end = MAPPED_END.min(address_end);
        let lowest = ram_end.max(4 << 30);
        let fits = |bytes: u64| {
            // A BAR is aligned to its size, so the highest place for it that fits is a multiple of
            // it.
            let all = bytes.checked_mul(functions.into())?;
            let highest = (end & !(bytes - 1)).checked_sub(all)?;
            let base = highest.min(APERTURE_BASE.next_multiple_of(bytes));
            (base >= lowest).then_some((base, bytes))
        };
        let sizes = std::iter::successors(Some(aperture_bytes), |bytes| Some(bytes / 2));
        let (aperture, aperture_bytes) = sizes
            .take_while(|bytes| *bytes >= APERTURE_BYTES_MIN)
            .find_map(fits)
            .ok_or(LayoutError::NoRoom {
                address_bits,
                ram_end,
            })?;
        Ok(Self {
            aperture,
            aperture_bytes,
            functions,
            address_end,
            high_window: None,
        })
    }

    /// Returns the addresses of each function's BARs, the first function first.
    pub fn functions(&self) -> impl Iterator<Item = FunctionBars> {
        let Self {
            aperture,
            aperture_bytes,
            ..
        } = *self;
        (0..u64::from(self.functions)).map(move |index| {
            let registers = LOW_BASE + index * LOW_BYTES;
            FunctionBars {
                registers,
                doorbells: registers + BAR4_BYTES,
                aperture: aperture + index * aperture_bytes,
                aperture_bytes,
            }
        })
    }

    /// Returns the end of the guest-physical addresses of all apertures.
    pub fn apertures_end(&self) -> u64 {
        self.aperture + u64::from(self.functions) * self.aperture_bytes
    }

    /// Returns this layout with guest-physical addresses for 64-bit BARs of other PCI functions.
    /// They lie above the aperture, or between the end of RAM, `ram_end`, and the aperture if that
    /// range is larger and less than 64 GiB is free above the aperture.
    pub fn with_high_window(self, ram_end: u64) -> Self {
        let end = MAPPED_END.min(self.address_end);
        let above = (self.apertures_end(), end);
        let below = (
            ram_end.max(4 << 30).next_multiple_of(2 << 20),
            self.aperture,
        );
        let bytes = |(start, end): (u64, u64)| end.saturating_sub(start);
        let window = if bytes(above) >= bytes(below).min(64 << 30) {
            above
        } else {
            below
        };
        Self {
            high_window: (bytes(window) != 0).then_some(window),
            ..self
        }
    }

    /// Returns an allocator of guest-physical addresses for 64-bit BARs of other PCI functions. It
    /// has no addresses if [`Self::high_window`] is `None`.
    pub fn high_bars(&self) -> BarAllocator {
        let (start, end) = self.high_window.unwrap_or((0, 0));
        BarAllocator(RangeAllocator::new(start..end))
    }

    /// Returns an allocator of guest-physical addresses for 32-bit BARs of other PCI functions.
    pub fn low_bars(&self) -> BarAllocator {
        let taken = u64::from(self.functions) * LOW_BYTES;
        BarAllocator(RangeAllocator::new(LOW_BASE + taken..LOW_END))
    }
}

/// An allocator of guest-physical addresses for BARs of PCI functions other than Causeway's.
#[derive(Clone, Debug)]
pub struct BarAllocator(RangeAllocator);

impl BarAllocator {
    /// Takes the lowest free addresses for a BAR of `bytes` bytes, a power of two, and returns the
    /// first of them, a multiple of `bytes`. Returns `None` if there is no room.
    pub fn place(&mut self, bytes: u64) -> Option<u64> {
        self.0.take_lowest(bytes, bytes)
    }
}

const _: () = {
    assert!(LOW_BASE.is_multiple_of(BAR0_BYTES) && BAR0_BYTES <= BAR4_BYTES);
    assert!(LOW_BASE.is_multiple_of(BAR4_BYTES));
    assert!(LOW_BASE + GPUS_MAX as u64 * LOW_BYTES <= LOW_END);
};

/// Returns the number of physical address bits of a guest whose CPUID leaves are `cpuid`: bits 7:0
/// of EAX in leaf 0x8000_0008, or 36 without that leaf.
pub fn physical_address_bits(cpuid: &[kvm_cpuid_entry2]) -> u32 {
    let leaf = cpuid.iter().find(|entry| entry.function == 0x8000_0008);
    leaf.map_or(36, |entry| entry.eax & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn place(bits: u32, ram_end: u64, bytes: u64) -> Result<(u64, u64), LayoutError> {
        Layout::new(bits, ram_end, bytes).map(|l| (l.aperture, l.aperture_bytes))
    }

    #[test]
    fn the_usual_place_is_at_256_gib() {
        for bits in [39, 40, 46, 48, 52] {
            assert_eq!(
                place(bits, GIB, 64 * GIB),
                Ok((256 * GIB, 64 * GIB)),
                "{bits}"
            );
        }
    }

    #[test]
    fn few_address_bits_move_it_down_and_make_it_smaller() {
        assert_eq!(place(38, GIB, 64 * GIB), Ok((192 * GIB, 64 * GIB)));
        assert_eq!(place(37, GIB, 64 * GIB), Ok((64 * GIB, 64 * GIB)));
        assert_eq!(place(36, GIB, 64 * GIB), Ok((32 * GIB, 32 * GIB)));
        assert_eq!(place(36, 33 * GIB, 64 * GIB), Ok((48 * GIB, 16 * GIB)));
        assert_eq!(place(33, GIB, 64 * GIB), Ok((4 * GIB, 4 * GIB)));
        let none = place(32, GIB, 64 * GIB);
        assert!(matches!(
            none,
            Err(LayoutError::NoRoom {
                address_bits: 32,
                ..
            })
        ));
    }

    #[test]
    fn very_large_ones_stay_within_what_bare_guests_map() {
        assert_eq!(place(48, GIB, 256 * GIB), Ok((256 * GIB, 256 * GIB)));
        assert_eq!(place(48, GIB, 1024 * GIB), Ok((256 * GIB, 256 * GIB)));
    }

    #[test]
    fn sizes_that_no_bar_can_have_are_refused() {
        for bytes in [0, 1, GIB + 1, 3 * GIB, APERTURE_BYTES_MIN / 2] {
            assert_eq!(place(48, GIB, bytes), Err(LayoutError::Size { bytes }));
        }
    }

    #[test]
    fn other_functions_get_what_is_left_below_the_interrupt_controllers() {
        let layout = Layout::new(48, GIB, GIB).unwrap();
        let mut bars = layout.low_bars();
        let first = bars.place(0x1000).unwrap();
        let own = layout.functions().next().unwrap();
        assert!(first >= own.doorbells + BAR4_BYTES);
        let large = bars.place(1 << 24).unwrap();
        assert!(large.is_multiple_of(1 << 24) && large > first);
        assert_eq!(bars.place(1 << 29), None);
        assert_eq!(bars.place(0x1000), Some(first + 0x1000), "a gap is used");
        assert_eq!(bars.place(1 << 24), Some(large + (1 << 24)));
    }

    #[test]
    fn functions_have_addresses_of_their_own() {
        let layout = Layout::of(3, 48, GIB, 64 * GIB).unwrap();
        let bars: Vec<_> = layout.functions().collect();
        let apertures: Vec<u64> = bars.iter().map(|bars| bars.aperture / GIB).collect();
        assert_eq!(apertures, [256, 320, 384]);
        assert_eq!(layout.apertures_end(), 448 * GIB);
        assert_eq!(bars[2].registers, LOW_BASE + 2 * LOW_BYTES);
        assert_eq!(bars[2].doorbells, bars[2].registers + BAR4_BYTES);
        let other = layout.low_bars().place(0x1000).unwrap();
        assert!(other >= bars[2].doorbells + BAR4_BYTES);
        let high = layout.with_high_window(GIB).high_bars().place(GIB);
        assert_eq!(high, Some(448 * GIB));
        // Where less fits, all have less.
        let layout = Layout::of(8, 48, GIB, 64 * GIB).unwrap();
        assert_eq!(layout.aperture_bytes, 32 * GIB);
        assert_eq!(layout.apertures_end(), 512 * GIB);
    }

    #[test]
    fn large_bars_of_other_functions_go_where_ram_and_aperture_are_not() {
        let layout = Layout::new(48, GIB, 64 * GIB).unwrap();
        assert_eq!(layout.high_bars().place(GIB), None, "only if asked for");
        let mut bars = layout.with_high_window(GIB).high_bars();
        assert_eq!(bars.place(64 << 20), Some(320 * GIB));
        assert_eq!(bars.place(64 * GIB), Some(384 * GIB));
        assert_eq!(bars.place(128 * GIB), None);
        // Nothing is above an aperture that was moved down.
        let layout = Layout::new(38, GIB, 64 * GIB).unwrap();
        let mut bars = layout.with_high_window(GIB).high_bars();
        assert_eq!(bars.place(GIB), Some(4 * GIB));
        let layout = Layout::new(33, GIB, 64 * GIB).unwrap();
        assert_eq!(layout.with_high_window(GIB).high_bars().place(4096), None);
    }

    #[test]
    fn address_bits_come_from_cpuid() {
        let entry = kvm_cpuid_entry2 {
            function: 0x8000_0008,
            eax: 0x3930,
            ..Default::default()
        };
        assert_eq!(physical_address_bits(&[entry]), 48);
        assert_eq!(physical_address_bits(&[]), 36);
    }
}
