//! From the first instruction to the guest's main function.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use causeway_protocol::boot::{BootInfo, MAGIC};
use causeway_testdev_records::{PORT_RECORD, RecordHeader};

use crate::machine::Machine;
use crate::record;

/// Maximum number of virtual CPUs that have a stack; all others are parked at once.
const CPUS_MAX: usize = 32;
/// Bytes of a stack. Untouched pages cost nothing.
const STACK_BYTES: usize = 256 << 10;

#[repr(C, align(4096))]
struct Stacks(UnsafeCell<[[u8; STACK_BYTES]; CPUS_MAX]>);

// SAFETY: never accessed as Rust data; each CPU's entry takes the address of the stack with its own
// index.
unsafe impl Sync for Stacks {}

#[unsafe(no_mangle)]
static CAUSEWAY_STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_BYTES]; CPUS_MAX]));

#[unsafe(no_mangle)]
static CAUSEWAY_PARK: RecordHeader = RecordHeader::park();

/// Masks every SSE exception, round to nearest: the state that compiled code expects.
#[unsafe(no_mangle)]
static CAUSEWAY_MXCSR: u32 = 0x1f80;

// rdi: boot page; rsi: index of the CPU (causeway_protocol::boot). The image lies below 2 GiB.
global_asm!(
    ".globl _start",
    "_start:",
    "cmp rsi, {cpus}",
    "jae 2f",
    "lea rax, [rsi + 1]",
    "imul rax, rax, {stack}",
    "lea rsp, [rip + CAUSEWAY_STACKS]",
    "add rsp, rax",
    "xor ebp, ebp",
    "cld",
    "ldmxcsr [rip + CAUSEWAY_MXCSR]",
    "call {start}",
    "ud2",
    "2:",
    "lea rax, [rip + CAUSEWAY_PARK]",
    "mov edx, {park_port}",
    "out dx, eax",
    "3:",
    "pause",
    "jmp 3b",
    cpus = const CPUS_MAX,
    stack = const STACK_BYTES,
    park_port = const PORT_RECORD,
    start = sym start,
);

unsafe extern "Rust" {
    /// Defined by [`crate::main!`].
    safe fn causeway_main(machine: &Machine);
}

unsafe extern "C" fn start(boot_page: *const BootInfo, cpu: u64) -> ! {
    // SAFETY: the boot protocol puts a boot page there, which nobody writes after the start.
    let boot = unsafe { boot_page.read_volatile() };
    assert_eq!(boot.magic, MAGIC, "the boot page does not have its magic");
    let machine = Machine::new(boot, cpu as u32);
    causeway_main(&machine);
    if cpu == 0 {
        record::exit(0)
    } else {
        record::park()
    }
}
