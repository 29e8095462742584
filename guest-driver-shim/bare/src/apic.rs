//! The local interrupt controller, which a guest has where a device is passed through to it (AMD64
//! APM volume 2, 16.3; Intel SDM volume 3, 11.4). Its registers are the hypervisor's own: an access
//! is an exit, but none to user space.
//!
//! Guests run with interrupts disabled, and poll for those that wait. At CPL 0 a guest can also
//! take interrupts.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use causeway_shim::Window;

use crate::transport::device_memory;

/// Address of the controller's registers for every CPU after a reset.
const BASE: u64 = 0xfee0_0000;
const BYTES: u64 = 4096;

const REG_ID: usize = 0x20;
const REG_END_OF_INTERRUPT: u64 = 0xb0;
const REG_SPURIOUS: usize = 0xf0;
const REG_REQUESTS: usize = 0x200;

/// Value of the spurious interrupt register: enabled, with vector 255 for spurious interrupts.
const ENABLED: u32 = 1 << 8 | 0xff;
/// First vector that no exception uses.
const VECTOR_MIN: u8 = 32;

/// Selector bits that say the privilege level.
const LEVEL_MASK: u16 = 0b11;
/// Gate: present, of type interrupt gate, for CPL 0.
const INTERRUPT_GATE: u16 = 0x8e00;

/// The local interrupt controller (local APIC) of this CPU.
#[derive(Clone, Copy, Debug)]
pub struct LocalApic(Window);

impl LocalApic {
    /// Enables the controller. Returns `None` if the guest's page tables do not map its registers.
    /// A bare guest has an interrupt controller only if a device is passed through to its VM. In
    /// any other VM, accesses to the registers are stray accesses, and no interrupt arrives.
    #[must_use]
    pub fn enable() -> Option<Self> {
        let registers = device_memory(BASE, BYTES)?;
        registers.store_u32(REG_SPURIOUS, ENABLED).ok()?;
        Some(Self(registers))
    }

    /// Returns the controller's APIC ID, by which the interrupt messages (MSI) of devices address
    /// it.
    #[must_use]
    pub fn id(&self) -> u8 {
        let id = self.0.load_u32(REG_ID).unwrap_or(u32::MAX);
        (id >> 24) as u8
    }

    /// Returns the guest-physical address to which a device writes an interrupt message (MSI) for
    /// this controller, in physical destination mode (PCI Local Bus Specification 3.0, 6.8; Intel
    /// SDM volume 3, 11.11).
    #[must_use]
    pub fn message_address(&self) -> u32 {
        BASE as u32 | u32::from(self.id()) << 12
    }

    /// Returns whether an interrupt with vector `vector` is pending at this controller.
    #[must_use]
    pub fn is_requested(&self, vector: u8) -> bool {
        let word = REG_REQUESTS + 16 * usize::from(vector / 32);
        let bits = self.0.load_u32(word).unwrap_or(0);
        bits & 1 << (vector % 32) != 0
    }

    /// Returns the number of interrupts that the guest has handled in [`Self::taking`] so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        CAUSEWAY_TAKEN.load(Ordering::Acquire)
    }

    /// Runs `work` with interrupts enabled, and returns its result. [`Self::taken`] counts the
    /// interrupts that the CPU takes meanwhile, including those that were pending before. Returns
    /// `None` without running `work` if the guest runs at CPL 3, where it cannot enable interrupts.
    pub fn taking<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if code_selector() & LEVEL_MASK != 0 {
            return None;
        }
        for vector in VECTOR_MIN..=u8::MAX {
            TABLE.set(vector, handler());
        }
        TABLE.load();
        // SAFETY: the table has a handler for every interrupt, which leaves all registers but flags
        // as they were, and those are saved; exceptions end the guest, as without the table.
        unsafe { asm!("sti") };
        let outcome = work();
        // SAFETY: back to how guests run.
        unsafe { asm!("cli") };
        Some(outcome)
    }
}

fn code_selector() -> u16 {
    let selector;
    // SAFETY: reads a register.
    unsafe { asm!("mov {0:x}, cs", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    selector
}

/// Incremented by the handler.
#[unsafe(no_mangle)]
static CAUSEWAY_TAKEN: AtomicU64 = AtomicU64::new(0);

// Counts, and tells the controller that it is done. There is no red zone below the stack pointer on
// this target.
global_asm!(
    ".globl causeway_on_interrupt",
    "causeway_on_interrupt:",
    "lock inc qword ptr [rip + CAUSEWAY_TAKEN]",
    "push rax",
    "mov eax, {end}",
    "mov dword ptr [rax], 0",
    "pop rax",
    "iretq",
    end = const BASE + REG_END_OF_INTERRUPT,
);

unsafe extern "C" {
    safe fn causeway_on_interrupt();
}

fn handler() -> u64 {
    causeway_on_interrupt as *const () as u64
}

/// A descriptor table of interrupts: two words for each vector.
#[repr(C, align(16))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written by `set` with interrupts off, by words that the processor reads afterwards;
// guests that take interrupts do so on one CPU.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

/// What LIDT loads.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

impl Table {
    /// Sets the handler of a vector.
    fn set(&self, vector: u8, handler: u64) {
        let low = handler & 0xffff
            | u64::from(code_selector()) << 16
            | u64::from(INTERRUPT_GATE) << 32
            | (handler >> 16 & 0xffff) << 48;
        let entry = self.0.get().cast::<[u64; 2]>();
        // SAFETY: 256 entries; a vector is below that. No reference is made.
        unsafe {
            entry
                .add(vector.into())
                .write_volatile([low, handler >> 32])
        };
    }

    /// Loads the table on this CPU.
    fn load(&self) {
        let pointer = Pointer {
            limit: (size_of::<Self>() - 1) as u16,
            base: self.0.get() as u64,
        };
        // SAFETY: CPL 0, as the caller has checked; the table lives as long as the guest.
        unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack, preserves_flags)) };
    }
}
