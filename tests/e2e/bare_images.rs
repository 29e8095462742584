//! Guest images of a few bytes, written by hand.

use causeway_protocol::boot::IMAGE_BASE;
use causeway_protocol::boot::PORT_CONSOLE;
use causeway_testdev_records::{
    Identity, PORT_EXIT, PORT_RECORD, PortStore, RecordHeader, RecordKind,
};
use zerocopy::IntoBytes;

/// Offset of the code in the file: behind the ELF header and one program header.
const CODE_OFFSET: u64 = 64 + 56;
/// Where a field of the ELF or program header lies (System V ABI).
pub const MACHINE: usize = 18;
pub const CLASS: usize = 4;
pub const KIND: usize = 16;
pub const ENTRY: usize = 24;
pub const SEGMENT_KIND: usize = 64;
pub const SEGMENT_VIRTUAL_ADDRESS: usize = 64 + 16;
pub const SEGMENT_ADDRESS: usize = 64 + 24;
pub const SEGMENT_FILE_BYTES: usize = 64 + 32;
pub const SEGMENT_BYTES: usize = 64 + 40;

/// A static executable of one segment with this code, entered at its first byte.
pub fn elf(code: &[u8]) -> Vec<u8> {
    let mut image = vec![0; CODE_OFFSET as usize];
    let bytes = CODE_OFFSET + code.len() as u64;
    image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    put(&mut image, KIND, &2u16.to_le_bytes());
    put(&mut image, MACHINE, &62u16.to_le_bytes());
    put(&mut image, 20, &1u32.to_le_bytes());
    put(&mut image, ENTRY, &(IMAGE_BASE + CODE_OFFSET).to_le_bytes());
    put(&mut image, 32, &64u64.to_le_bytes());
    for (at, value) in [(52, 64u16), (54, 56), (56, 1), (58, 64)] {
        put(&mut image, at, &value.to_le_bytes());
    }
    put(&mut image, SEGMENT_KIND, &1u32.to_le_bytes());
    put(&mut image, SEGMENT_KIND + 4, &5u32.to_le_bytes());
    for (at, value) in [
        (SEGMENT_VIRTUAL_ADDRESS, IMAGE_BASE),
        (SEGMENT_ADDRESS, IMAGE_BASE),
        (SEGMENT_FILE_BYTES, bytes),
        (SEGMENT_BYTES, bytes),
        (SEGMENT_BYTES + 8, 4096),
    ] {
        put(&mut image, at, &value.to_le_bytes());
    }
    image.extend(code);
    image
}

/// A kernel by PVH's note that does nothing, for ever: an ELF file whose one segment is a jump to
/// itself. It wants this much memory from 16 MiB on.
pub fn kernel(memory_bytes: u64) -> Vec<u8> {
    const KERNEL_ENTRY: u64 = 0x100_0000;
    let mut image = vec![0; 0x102];
    put(&mut image, 0, b"\x7fELF\x02\x01\x01");
    put(&mut image, KIND, &[2, 0, 62, 0]);
    put(&mut image, ENTRY, &KERNEL_ENTRY.to_le_bytes());
    put(&mut image, 32, &64u64.to_le_bytes());
    put(&mut image, 54, &[56, 0, 2, 0]);
    let load = [
        1 | 5 << 32,
        0x100,
        KERNEL_ENTRY,
        KERNEL_ENTRY,
        2,
        memory_bytes,
        0,
    ];
    let note = [4, 0xb0, 0, 0, 20, 20, 0];
    for (at, words) in [(64, load), (120, note)] {
        for (i, word) in words.into_iter().enumerate() {
            put(&mut image, at + 8 * i, &u64::to_le_bytes(word));
        }
    }
    put(&mut image, 0xb0, &[4, 0, 0, 0, 4, 0, 0, 0, 18, 0, 0, 0]);
    put(&mut image, 0xbc, b"Xen\0");
    put(&mut image, 0xc0, &(KERNEL_ENTRY as u32).to_le_bytes());
    put(&mut image, 0x100, &SPIN);
    image
}

/// The image with some bytes replaced.
pub fn changed(mut image: Vec<u8>, at: usize, value: &[u8]) -> Vec<u8> {
    put(&mut image, at, value);
    image
}

fn put(image: &mut [u8], at: usize, value: &[u8]) {
    image[at..at + value.len()].copy_from_slice(value);
}

/// `mov edx, port; mov eax, value; out dx, eax`.
fn out_dword(port: u16, value: u32) -> Vec<u8> {
    let mut code = vec![0xba];
    code.extend(u32::from(port).to_le_bytes());
    code.push(0xb8);
    code.extend(value.to_le_bytes());
    code.push(0xef);
    code
}

/// Makes these stores to ports, one after the other.
pub fn stores(stores: impl IntoIterator<Item = PortStore>) -> Vec<u8> {
    let code = stores
        .into_iter()
        .map(|store| out_dword(store.port, store.value));
    code.flatten().collect()
}

/// Ends the VM with this value, zero being pass; and should it go on, stays where it is.
pub fn exit(value: u32) -> Vec<u8> {
    let mut code = out_dword(PORT_EXIT, value);
    code.extend(SPIN);
    code
}

/// Prints a text on the console, one port exit a byte.
pub fn print(text: &str) -> Vec<u8> {
    // mov edx, port; then for each byte: mov al, byte; out dx, al
    let mut code = vec![0xba];
    code.extend(u32::from(PORT_CONSOLE).to_le_bytes());
    code.extend(text.bytes().flat_map(|byte| [0xb0, byte, 0xee]));
    code
}

/// Stores 8 bytes to a fixed address this many times.
pub fn store_loop(address: u64, times: u32) -> Vec<u8> {
    // mov rbx, address; mov ecx, times; 1: mov [rbx], rcx; sub ecx, 1; jnz 1b
    let mut code = vec![0x48, 0xbb];
    code.extend(address.to_le_bytes());
    code.push(0xb9);
    code.extend(times.to_le_bytes());
    code.extend([0x48, 0x89, 0x0b, 0x83, 0xe9, 0x01, 0x75, 0xf8]);
    code
}

/// Does this code `times` times. It must leave `ecx` as it is.
pub fn repeat(times: u32, body: &[u8]) -> Vec<u8> {
    // mov ecx, times; 1: body; sub ecx, 1; jnz 1b
    let mut code = vec![0xb9];
    code.extend(times.to_le_bytes());
    code.extend(body);
    code.extend([0x83, 0xe9, 0x01, 0x0f, 0x85]);
    let back = i32::try_from(body.len() + 9).expect("code is short");
    code.extend((-back).to_le_bytes());
    code
}

/// Does this code in the first VM of a run only, and ends every VM with zero.
pub fn in_first_vm(body: &[u8]) -> Vec<u8> {
    let ask = |record: u32| out_dword(PORT_RECORD, record);
    // mov eax, [rdx]; test eax, eax; jnz over
    let mut skip = vec![0x8b, 0x02, 0x85, 0xc0, 0x0f, 0x85];
    skip.extend(
        u32::try_from(body.len())
            .expect("code is short")
            .to_le_bytes(),
    );
    let end = exit(0);
    // mov edx, the answer's address
    let load_bytes = 5;
    let code_bytes = ask(0).len() + load_bytes + skip.len() + body.len() + end.len();
    let at = CODE_OFFSET as usize + code_bytes.next_multiple_of(8);
    let record = IMAGE_BASE as u32 + at as u32;
    let mut code = [&ask(record)[..], &[0xba], &(record + 8).to_le_bytes()].concat();
    code.extend([&skip[..], body, &end].concat());
    code.resize(code_bytes.next_multiple_of(8), 0);
    let identity = Identity {
        header: RecordHeader {
            kind: RecordKind::Identity as u32,
            bytes: size_of::<Identity>() as u32,
        },
        vm: u32::MAX,
        vms: 0,
    };
    code.extend(identity.as_bytes());
    code
}

/// `jmp .`
pub const SPIN: [u8; 2] = [0xeb, 0xfe];
/// `ud2`: an exception, for which a bare guest has no handler.
pub const CRASH: [u8; 2] = [0x0f, 0x0b];
