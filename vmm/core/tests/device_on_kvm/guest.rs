//! Guests of a few instructions. In all: r12 = a hole, r13 = a read-only placement, r14 = a
//! writable one of one page (or what else the test says), rbp = a count, rbx = where results go.
//! Each ends, or pauses, with a store to [`DONE`].

use std::arch::global_asm;

/// Port by which a guest says that it is done.
pub const DONE: u16 = 0xca0;

global_asm!(
    ".pushsection .rodata, \"a\"",
    // Global, because code generation may put their users into another object file.
    ".globl strays_begin",
    "strays_begin:",
    "mov rax, [r12]", // hole load
    "mov [rbx], rax",
    "mov dword ptr [r12 + 8], 5", // hole store
    "mov eax, [r13]",             // good
    "mov [rbx + 8], rax",
    "mov dword ptr [r13], 5", // refused store
    "mov eax, [r13]",
    "mov [rbx + 16], rax",
    "mov rax, 0x1122334455667788",
    "mov [r14], rax",
    "mov [r14 + 0xff8], rax",
    "mov rax, [r14 + 0xffc]", // half of it good, the other half a hole load
    "mov [rbx + 24], rax",
    "mov rsi, r12", // hole load, into a good place
    "lea rdi, [r14 + 64]",
    "movsq",
    "mov rax, [r14 + 64]",
    "mov [rbx + 32], rax",
    "mov rax, [r14]",
    "mov [rbx + 40], rax",
    "mov dx, 0xca0",
    "out dx, eax",
    ".globl strays_end",
    "strays_end:",
    // Stores rbp consecutive numbers all over the writable page, and counts those that it does not
    // find again.
    ".globl worker_begin",
    "worker_begin:",
    "xor ecx, ecx",
    "xor r15d, r15d",
    "2:",
    "inc rcx",
    "mov rax, rcx",
    "and eax, 511",
    "mov [r14 + rax * 8], rcx",
    "cmp [r14 + rax * 8], rcx",
    "je 3f",
    "inc r15",
    "3:",
    "cmp rcx, rbp",
    "jb 2b",
    "mov [rbx], r15",
    "mov dx, 0xca0",
    "out dx, eax",
    ".globl worker_end",
    "worker_end:",
    // rbp loads from a hole.
    ".globl prober_begin",
    "prober_begin:",
    "2:",
    "mov rax, [r12]",
    "dec rbp",
    "jnz 2b",
    "mov [rbx], rax",
    "mov dx, 0xca0",
    "out dx, eax",
    ".globl prober_end",
    "prober_end:",
    ".globl avx_begin",
    "avx_begin:",
    "vmovdqu ymm0, [r12]",
    "mov dx, 0xca0",
    "out dx, eax",
    ".globl avx_end",
    "avx_end:",
    ".globl jump_begin",
    "jump_begin:",
    "jmp r12",
    ".globl jump_end",
    "jump_end:",
    // One load from each of rbp pages at r14; again whenever it is resumed.
    ".globl touch_begin",
    "touch_begin:",
    "2:",
    "mov rcx, rbp",
    "mov rsi, r14",
    "3:",
    "mov rax, [rsi]",
    "add rsi, 4096",
    "dec rcx",
    "jnz 3b",
    "mov dx, 0xca0",
    "out dx, eax",
    "jmp 2b",
    ".globl touch_end",
    "touch_end:",
    // A 4-byte store to the address in r14; again whenever it is resumed.
    ".globl ring_begin",
    "ring_begin:",
    "2:",
    "mov dword ptr [r14], 1",
    "mov dx, 0xca0",
    "out dx, eax",
    "jmp 2b",
    ".globl ring_end",
    "ring_end:",
    ".popsection",
);

macro_rules! guests {
    ($($(#[$doc:meta])* $name:ident = $begin:ident, $end:ident;)*) => {
        $($(#[$doc])*
        pub fn $name() -> &'static [u8] {
            unsafe extern "C" {
                static $begin: u8;
                static $end: u8;
            }
            let (begin, end) = (&raw const $begin, &raw const $end);
            // SAFETY: the symbols delimit constant bytes of this program.
            unsafe { std::slice::from_raw_parts(begin, end.offset_from(begin) as usize) }
        })*
    };
}

guests! {
    /// Strays of several kinds among good accesses.
    strays = strays_begin, strays_end;
    /// Good stores and loads only.
    worker = worker_begin, worker_end;
    /// Strays only.
    prober = prober_begin, prober_end;
    /// A load from a hole that KVM cannot emulate.
    avx = avx_begin, avx_end;
    /// A jump into a hole.
    jump = jump_begin, jump_end;
    /// A load from each page.
    touch = touch_begin, touch_end;
    /// A doorbell.
    ring = ring_begin, ring_end;
}
