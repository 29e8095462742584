//! Device memory for other processes (`cuIpc…MemHandle`). A handle holds the token of an export, so
//! it is good for processes that use the same server or VM, and until the memory is freed.

use super::regions::{Backing, Region};
use crate::boundary::Out;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use causeway_shim_linux::shim::{Access, ExportToken};

/// Says that a handle is of this library.
const MAGIC: u32 = 0x4943_5743;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
const PEER_ACCESS: u32 = 1;

/// `CUipcMemHandle`, as this library fills it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct MemoryHandle {
    token: [u8; 32],
    offset: u64,
    bytes: u64,
    chunk_bytes: u64,
    magic: u32,
    /// Of the process that exports. It cannot open its own handles.
    process: u32,
}

const _: () = assert!(size_of::<MemoryHandle>() == 64);

impl MemoryHandle {
    /// Refuses handles of others, and those whose numbers do not agree.
    fn check(&self) -> Answer {
        let end = self.offset.checked_add(self.bytes);
        let is_inside = end.is_some_and(|end| end <= self.chunk_bytes);
        let is_fine = self.magic == MAGIC && self.bytes != 0 && is_inside;
        is_fine.then_some(()).ok_or(Code::INVALID_VALUE)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcGetMemHandle(into: Out<MemoryHandle>, address: u64) -> u32 {
    call_in_context(|driver, _| {
        let driver = driver.owner_at(address);
        if into.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let regions = driver.memory.regions.lock();
        let found = regions.find(address).map(|(_, region)| region);
        let Some(Region {
            bytes,
            backing: Backing::Piece { piece, pool: 0 },
            ..
        }) = found
        else {
            return Err(Code::INVALID_VALUE);
        };
        let bytes = *bytes;
        let exported = driver.memory.device.lock().export(piece)?;
        into.set(MemoryHandle {
            token: exported.token.0,
            offset: exported.offset,
            bytes,
            chunk_bytes: exported.chunk_bytes,
            magic: MAGIC,
            process: std::process::id(),
        })
    })
}

fn open(driver: &Driver, handle: &MemoryHandle, context: usize) -> Answer<u64> {
    handle.check()?;
    if handle.process == std::process::id() {
        return Err(Code::INVALID_CONTEXT);
    }
    let access = Access::ReadWrite;
    let imported = driver.device.import(&ExportToken(handle.token), access);
    let memory = imported.map_err(|error| {
        log::debug!("cannot open memory of another process: {error}");
        Code::INVALID_VALUE
    })?;
    if memory.bytes() < handle.chunk_bytes {
        return Err(Code::INVALID_VALUE);
    }
    let mapping = memory.map_gpu(driver.space, 0, handle.chunk_bytes, access);
    let mapping = mapping.map_err(|error| {
        log::debug!("cannot map memory of another process: {error}");
        Code::OUT_OF_MEMORY
    })?;
    let region = Region {
        bytes: handle.bytes,
        gpu: Some(mapping.address() + handle.offset),
        host: None,
        context,
        flags: 0,
        backing: Backing::Imported { _memory: memory },
    };
    Ok(driver.memory.regions.lock().insert(region))
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: MemoryHandle, flags: u32) -> u32 {
    call_in_context(|driver, context| {
        if address.is_null() || flags != PEER_ACCESS {
            return Err(Code::INVALID_VALUE);
        }
        address.set(open(driver, &handle, context.handle)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(address: u64) -> u32 {
    call_in_context(|driver, _| {
        let is_imported = |region: &Region| matches!(region.backing, Backing::Imported { .. });
        let taken = driver.memory.regions.lock().take(address, is_imported);
        let taken = taken.ok_or(Code::INVALID_VALUE)?;
        let drained = driver.rings.drain(driver);
        drop(taken);
        drained
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_handles_are_refused() {
        let good = MemoryHandle {
            token: [1; 32],
            offset: 4096,
            bytes: 4096,
            chunk_bytes: 8192,
            magic: MAGIC,
            process: 1,
        };
        assert_eq!(good.check(), Ok(()));
        let offset = u64::MAX;
        for forged in [
            MemoryHandle { magic: 0, ..good },
            MemoryHandle { bytes: 0, ..good },
            MemoryHandle {
                bytes: 4097,
                ..good
            },
            MemoryHandle { offset, ..good },
        ] {
            assert_eq!(forged.check(), Err(Code::INVALID_VALUE));
        }
    }
}
