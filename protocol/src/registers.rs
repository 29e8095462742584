//! BAR 0: control registers. BAR 2: aperture. BAR 4: MSI-X table and doorbells.
//!
//! BAR 0 has a page for each *client*: processes of one guest that share its session. The registers
//! of page c are those of client c. A guest that is one program uses page 0 and need not know of
//! the others.
//!
//! A register is 32 bits wide and accessed with one aligned 4-byte load or store. Any other access
//! is refused: a load gives all-ones, a store does nothing, and the VMM counts it as stray. Every
//! access to BAR 0 is an exit.

/// Size in bytes of a page of registers in BAR 0. Each client has one page.
pub const PAGE_BYTES: u64 = 4096;
/// Number of register pages in BAR 0, one for each client that a session may have (since 1.2;
/// earlier versions have only page 0).
pub const CLIENTS: u32 = 64;
/// Size of BAR 0 in bytes.
pub const BAR0_BYTES: u64 = PAGE_BYTES * CLIENTS as u64;

/// Value to store to the two control base registers if the client's control area is its control
/// window, which is in the aperture, and not in guest RAM (since 1.2).
pub const CONTROL_IN_WINDOW: u64 = u64::MAX;
/// Size in bytes of a client's control window, which is a control area in the aperture.
pub const CONTROL_WINDOW_BYTES: u64 = CONTROL_BYTES_MAX as u64;
/// Value of [`Register::ControlWindowLow`] and [`Register::ControlWindowHigh`] together if the
/// aperture has no room for a control window.
pub const NO_CONTROL_WINDOW: u64 = u64::MAX;

/// Value of [`Register::Magic`]: the bytes "CWAY".
pub const MAGIC: u32 = u32::from_le_bytes(*b"CWAY");
/// Value that resets the device when it is stored to [`Register::Reset`]: the bytes "RSET". Storing
/// any other value there does nothing.
pub const RESET_KEY: u32 = u32::from_le_bytes(*b"RSET");

/// Maximum size of a batch of control messages in bytes.
pub const CONTROL_BYTES_MAX: u32 = 64 * 1024;

/// Accesses that a register allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Loads only.
    ReadOnly,
    /// Stores only. A load gives zero.
    WriteOnly,
    /// Both loads and stores.
    ReadWrite,
}

macro_rules! registers {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $offset:literal, $direction:ident, $text:literal;
    )*) => {
        /// Registers of BAR 0, by offset.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Register { $($(#[doc = $doc])* $name = $offset,)* }

        /// All registers, for tables and tests.
        pub const REGISTERS: &[Register] = &[$(Register::$name,)*];

        impl Register {
            /// Returns the register at `offset` in a client's page, or `None` if no register is
            /// there.
            pub const fn at(offset: u64) -> Option<Self> {
                match offset { $($offset => Some(Self::$name),)* _ => None }
            }

            /// Returns which accesses the register allows.
            pub const fn direction(self) -> Direction {
                match self { $(Self::$name => Direction::$direction,)* }
            }

            /// Returns the short name of the register in reports and the documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns a text for the documentation that says what the register holds.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)*),)* }
            }
        }
    };
}

registers! {
    /// The value [`MAGIC`], by which a driver recognizes the device.
    Magic = 0x00, ReadOnly, "magic";
    /// Version of the protocol: major in the upper half, minor in the lower half.
    Version = 0x04, ReadOnly, "version";
    /// Bits 31:0 of the bit set [`features`].
    FeaturesLow = 0x08, ReadOnly, "features_low";
    /// Bits 63:32 of the bit set [`features`].
    FeaturesHigh = 0x0c, ReadOnly, "features_high";
    /// Bit set [`status`]: whether the session can be used.
    Status = 0x10, ReadOnly, "status";
    /// Outcome of the last batch as a [`crate::message::Status`]. `Ok`: the device took the batch;
    /// each message has a status of its own. Any other: why the device did not take the batch,
    /// whose messages are unchanged.
    BatchStatus = 0x14, ReadOnly, "batch_status";
    /// Storing [`RESET_KEY`] to page 0 ends the session with everything that it owns, and opens a
    /// new one. Storing it to another page (since 1.2) frees what the page's client owns, and
    /// nothing else. A lost session begins again as soon as a reset leaves no client that owns
    /// anything.
    Reset = 0x18, WriteOnly, "reset";
    /// Guest-physical address of the control area, bits 31:0; a multiple of 8. All-ones in both
    /// halves stands for the client's control window (since 1.2) and is the initial value on pages
    /// other than 0.
    ControlBaseLow = 0x20, ReadWrite, "control_base_low";
    /// Guest-physical address of the control area, bits 63:32.
    ControlBaseHigh = 0x24, ReadWrite, "control_base_high";
    /// Storing the length of a batch in bytes executes the messages in the control area. When the
    /// store completes, the replies are there.
    ControlDoorbell = 0x28, WriteOnly, "control_doorbell";
    /// Size of the aperture (BAR 2) in bytes, bits 31:0.
    ApertureLow = 0x30, ReadOnly, "aperture_low";
    /// Size of the aperture (BAR 2) in bytes, bits 63:32.
    ApertureHigh = 0x34, ReadOnly, "aperture_high";
    /// Number of doorbells in BAR 4.
    DoorbellCount = 0x38, ReadOnly, "doorbell_count";
    /// Number of stray accesses of this guest so far. The count stops at the largest value of the
    /// register.
    StrayCount = 0x3c, ReadOnly, "stray_count";
    /// Offset of the client's control window in the aperture, bits 31:0. The first load creates the
    /// window, which stays until the client is reset. All-ones in both halves if the aperture has
    /// no room for it (since 1.2).
    ControlWindowLow = 0x40, ReadOnly, "control_window_low";
    /// Offset of the client's control window in the aperture, bits 63:32 (since 1.2).
    ControlWindowHigh = 0x44, ReadOnly, "control_window_high";
    /// Bit 0: an interrupt of this client is pending; storing 1 acknowledges it. The MSI-X vector
    /// of a client has the same number as the client. INTA# is asserted while an interrupt of any
    /// client is pending (since 1.2).
    InterruptStatus = 0x48, ReadWrite, "interrupt_status";
    /// Number of clients, which is also the number of register pages (since 1.2).
    ClientCount = 0x4c, ReadOnly, "client_count";
}

/// Bits of [`Register::FeaturesLow`] and [`Register::FeaturesHigh`]: what the device can do.
pub mod features {
    /// The back end can execute kernels that are written in PTX.
    pub const KERNELS: u64 = 1 << 0;
    /// Guest RAM can be registered and mapped at a GPU virtual address.
    pub const GUEST_RAM: u64 = 1 << 1;
    /// Allocations can be exported to and imported from other sessions.
    pub const SHARING: u64 = 1 << 2;
    /// Packets can be recorded, and one packet can replay all of them (since 1.1).
    pub const RECORDING: u64 = 1 << 3;
    /// The guest can allocate memory that the GPU may store compressed (since 1.1).
    pub const COMPRESSION: u64 = 1 << 4;
    /// The guest can allocate GPU memory that its CPU can access (since 1.1).
    pub const DEVICE_VISIBLE: u64 = 1 << 5;
    /// Several clients can share the session (since 1.2).
    pub const CLIENTS: u64 = 1 << 6;
    /// A client can have a control window, which is a control area in the aperture (since 1.2).
    /// Only the feature registers have this bit; the reply to `hello` does not.
    pub const CONTROL_WINDOW: u64 = 1 << 7;
    /// The device can raise an interrupt when a fence reaches a value (since 1.2).
    pub const NOTIFY: u64 = 1 << 8;
    /// Addresses in messages can be offsets into the aperture, if they have the bit
    /// [`crate::message::APERTURE_ADDRESS`] (since 1.2).
    pub const APERTURE_ADDRESSES: u64 = 1 << 9;
    /// The guest can choose GPU virtual addresses of host memory in
    /// [`crate::message::HOST_ADDRESSES`], whatever the range of an address space is (since 1.3).
    pub const HOST_ADDRESSES: u64 = 1 << 10;
    /// Packets can copy and fill the rows of rectangles (since 1.3).
    pub const RECTANGLES: u64 = 1 << 16;
    /// Launches can be cooperative, and can have clusters (since 1.3).
    pub const LAUNCH_OPTIONS: u64 = 1 << 17;
    /// Fences can be words of 32 bits, and acquires can wait for other conditions than a value that
    /// is reached (since 1.3).
    pub const WORDS: u64 = 1 << 18;
    /// Launches can have up to [`crate::packet::PARAMETER_BYTES_MAX`] bytes of parameters (since
    /// 1.3).
    pub const LARGE_PARAMETERS: u64 = 1 << 19;
    /// Command buffers can have priorities; the reply to `hello` has the most urgent one (since
    /// 1.4).
    pub const PRIORITIES: u64 = 1 << 20;
    /// Exports name the GPUs that they are for (since 1.4).
    pub const PEERS: u64 = 1 << 21;
    /// Memory can have fabric handles, by which other machines of an NVLink fabric import it (since
    /// 1.4).
    pub const FABRIC_EXPORT: u64 = 1 << 22;
    /// Memory of other processes and machines can be imported by its fabric handle (since 1.4).
    pub const FABRIC_IMPORT: u64 = 1 << 23;
    /// There are arrays, and kernels access them and memory by textures and surfaces (since 1.5).
    pub const ARRAYS: u64 = 1 << 24;
}

/// Bits of [`Register::Status`].
pub mod status {
    /// The session can be used.
    pub const READY: u32 = 1 << 0;
    /// A fault has caused the session to be lost, so it must be reset. The message `query_fault`
    /// returns the fault.
    pub const LOST: u32 = 1 << 1;
    /// The client of this register page owns objects, which a reset of the client frees (since 1.2;
    /// never set on page 0).
    pub const OWNS: u32 = 1 << 2;
}

/// Layout of BAR 4: MSI-X structures, then a page for each doorbell.
pub mod doorbells {
    /// Size of BAR 4 in bytes.
    pub const BAR4_BYTES: u64 = 2 << 20;
    /// Offset of the MSI-X table in BAR 4.
    pub const MSIX_TABLE: u64 = 0;
    /// Offset of the MSI-X pending bits in BAR 4.
    pub const MSIX_PENDING: u64 = 0x1000;
    /// Offset of doorbell 0 in BAR 4. Storing any 4-byte value to a doorbell's first word rings it.
    pub const FIRST: u64 = 0x2000;
    /// Distance between two doorbells in bytes: a page, so that each doorbell can be mapped into
    /// another process.
    pub const STRIDE: u64 = 0x1000;
    /// Number of doorbells.
    pub const COUNT: u32 = 256;
}

const _: () = {
    assert!(
        doorbells::FIRST + doorbells::STRIDE * doorbells::COUNT as u64 <= doorbells::BAR4_BYTES
    );
    assert!((Register::ClientCount as u64) < PAGE_BYTES);
    assert!(BAR0_BYTES.is_power_of_two(), "the size of a BAR");
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
