//! BAR 0: control registers. BAR 2: aperture. BAR 4: MSI-X table and doorbells.
//!
//! A register is 32 bits wide and accessed with one aligned 4-byte load or store. Any other access is
//! refused: a load gives all-ones, a store does nothing, and the VMM counts it as stray.
//! Every access to BAR 0 is an exit.

/// Size of BAR 0 in bytes.
pub const BAR0_BYTES: u64 = 4096;

/// Value of [`Register::Magic`]: the bytes "CWAY".
pub const MAGIC: u32 = u32::from_le_bytes(*b"CWAY");
/// Value that [`Register::Reset`] wants; any other store to it does nothing.
pub const RESET_KEY: u32 = u32::from_le_bytes(*b"RSET");

/// Largest control batch in bytes.
pub const CONTROL_BYTES_MAX: u32 = 64 * 1024;

/// Who may do what with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Loads only.
    ReadOnly,
    /// Stores only; a load gives zero.
    WriteOnly,
    /// Both.
    ReadWrite,
}

macro_rules! registers {
    ($($(#[doc = $doc:literal])* $name:ident = $offset:literal, $direction:ident, $text:literal;)*) => {
        /// Registers of BAR 0, by offset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Register { $($(#[doc = $doc])* $name = $offset,)* }

        /// Every register, for tables and tests.
        pub const REGISTERS: &[Register] = &[$(Register::$name,)*];

        impl Register {
            /// The register at `offset`, if there is one.
            pub const fn at(offset: u64) -> Option<Self> {
                match offset { $($offset => Some(Self::$name),)* _ => None }
            }

            /// Loads, stores, or both.
            pub const fn direction(self) -> Direction {
                match self { $(Self::$name => Direction::$direction,)* }
            }

            /// Short name, as reports and the documentation print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it holds, for the documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*),)* }
            }
        }
    };
}

registers! {
    /// [`MAGIC`].
    Magic = 0x00, ReadOnly, "magic";
    /// Major version in the upper, minor in the lower half.
    Version = 0x04, ReadOnly, "version";
    /// Bit set of [`features`], lower half.
    FeaturesLow = 0x08, ReadOnly, "features_low";
    /// Bit set of [`features`], upper half.
    FeaturesHigh = 0x0c, ReadOnly, "features_high";
    /// Bit set of [`status`].
    Status = 0x10, ReadOnly, "status";
    /// Outcome of the last control batch as a [`crate::message::Status`]: `Ok`, or why the batch
    /// as a whole could not be taken (its messages then are as they were). A batch that was taken is
    /// `Ok` even if a message of it failed: each message has a status of its own.
    BatchStatus = 0x14, ReadOnly, "batch_status";
    /// Storing [`RESET_KEY`] ends the session with all it owns and opens a fresh one.
    Reset = 0x18, WriteOnly, "reset";
    /// Guest-physical address of the control area, bits 31:0; 8-byte aligned.
    ControlBaseLow = 0x20, ReadWrite, "control_base_low";
    /// Guest-physical address of the control area, bits 63:32.
    ControlBaseHigh = 0x24, ReadWrite, "control_base_high";
    /// Storing the length of a batch in bytes executes the messages in the control area. When the
    /// store completes, replies are in place.
    ControlDoorbell = 0x28, WriteOnly, "control_doorbell";
    /// Size of the aperture (BAR 2), bits 31:0.
    ApertureLow = 0x30, ReadOnly, "aperture_low";
    /// Size of the aperture (BAR 2), bits 63:32.
    ApertureHigh = 0x34, ReadOnly, "aperture_high";
    /// Number of doorbells in BAR 4.
    DoorbellCount = 0x38, ReadOnly, "doorbell_count";
    /// Stray accesses of this guest so far, saturating.
    StrayCount = 0x3c, ReadOnly, "stray_count";
}

/// Bits of the feature registers.
pub mod features {
    /// The back end executes PTX.
    pub const KERNELS: u64 = 1 << 0;
    /// Guest RAM can be registered and mapped at a GPU virtual address.
    pub const GUEST_RAM: u64 = 1 << 1;
    /// Allocations can be exported to and imported from other sessions.
    pub const SHARING: u64 = 1 << 2;
    /// Packets can be recorded, and replayed as one (since 1.1).
    pub const RECORDING: u64 = 1 << 3;
    /// Device memory can be allocated in compressible form (since 1.1).
    pub const COMPRESSION: u64 = 1 << 4;
    /// There is device memory that the guest's CPU can see (since 1.1).
    pub const DEVICE_VISIBLE: u64 = 1 << 5;
}

/// Bits of [`Register::Status`].
pub mod status {
    /// The session can be used.
    pub const READY: u32 = 1 << 0;
    /// The session was lost to a fault; only reset helps. `QueryFault` says what happened.
    pub const LOST: u32 = 1 << 1;
}

/// BAR 4: where things are.
pub mod doorbells {
    /// Size of BAR 4 in bytes.
    pub const BAR4_BYTES: u64 = 2 << 20;
    /// Offset of the MSI-X table.
    pub const MSIX_TABLE: u64 = 0;
    /// Offset of the MSI-X pending bits.
    pub const MSIX_PENDING: u64 = 0x1000;
    /// Offset of doorbell 0. A doorbell rings when any 4-byte value is stored to its first word.
    pub const FIRST: u64 = 0x2000;
    /// Distance of doorbells: a page each, so that each can be given to one process.
    pub const STRIDE: u64 = 0x1000;
    /// Number of doorbells.
    pub const COUNT: u32 = 256;
}

const _: () = {
    assert!(
        doorbells::FIRST + doorbells::STRIDE * doorbells::COUNT as u64 <= doorbells::BAR4_BYTES
    );
    assert!((Register::StrayCount as u64) < BAR0_BYTES);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_aligned_and_distinct() {
        for (i, a) in REGISTERS.iter().copied().enumerate() {
            assert_eq!(a as u32 % 4, 0, "{}", a.name());
            assert_eq!(Register::at(u64::from(a as u32)), Some(a));
            for b in &REGISTERS[i + 1..] {
                assert_ne!(a as u32, *b as u32);
                assert_ne!(a.name(), b.name());
            }
        }
        assert_eq!(Register::at(0x1c), None);
        assert_eq!(Register::at(1), None);
    }
}
