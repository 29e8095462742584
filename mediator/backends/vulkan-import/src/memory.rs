//! Imported memory, and its mappings.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use causeway_memory::{DeviceMapping, DeviceMemory, MemoryError, PAGE_BYTES};

use crate::VulkanDevice;
use crate::device::HANDLE;

/// GPU memory that was exported as a descriptor. Each mapping imports the descriptor once more,
/// because Vulkan maps a memory object only once.
#[derive(Debug)]
pub(crate) struct ImportedMemory {
    pub device: Arc<VulkanDevice>,
    /// The descriptor, which was checked.
    pub file: OwnedFd,
    pub bytes: u64,
}

impl ImportedMemory {
    /// Hands the driver a duplicate of the descriptor, which the driver closes after the import.
    fn import(&self) -> Result<Import, String> {
        let file = self
            .file
            .try_clone()
            .map_err(|e| format!("cannot duplicate the file descriptor of GPU memory: {e}"))?;
        let mut import = Import {
            device: Arc::clone(&self.device),
            memory: vk::DeviceMemory::null(),
            buffer: vk::Buffer::null(),
        };
        if self.device.dedicated {
            let buffer = self.device.create_buffer(self.bytes);
            import.buffer = buffer.map_err(|e| format!("vkCreateBuffer failed: {e}"))?;
        }
        import.memory = self.allocate(file, import.buffer)?;
        Ok(import)
    }

    fn allocate(&self, file: OwnedFd, buffer: vk::Buffer) -> Result<vk::DeviceMemory, String> {
        let _one_at_a_time = self.device.importing.lock();
        let file = file.into_raw_fd();
        let mut handle = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(HANDLE)
            .fd(file);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default().buffer(buffer);
        let mut allocate = vk::MemoryAllocateInfo::default()
            .allocation_size(self.bytes)
            .memory_type_index(self.device.memory_type)
            .push_next(&mut handle);
        if self.device.dedicated {
            allocate = allocate.push_next(&mut dedicated);
        }
        // SAFETY: the structures are live. The driver has to find out whether the descriptor is
        // memory of this device, of this size: see the crate's documentation for what it is trusted
        // with.
        unsafe { self.device.device.allocate_memory(&allocate, None) }.map_err(|e| {
            self.take_back(file);
            let device = self.device.name();
            format!("Vulkan device '{device}' refuses to import the memory: {e}")
        })
    }

    /// Closes a descriptor that was not imported. By the specification it still belongs to this
    /// process, but lavapipe has closed it already; its number may be that of another file by now.
    fn take_back(&self, file: RawFd) {
        // SAFETY: the descriptor is only examined; `fstat` fails if it is not open.
        let there = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(file) });
        let ours = rustix::fs::fstat(&self.file);
        let same = matches!((there, ours), (Ok(there), Ok(ours))
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        if same {
            // SAFETY: it is the duplicate that was made for this import, and not used again.
            drop(unsafe { OwnedFd::from_raw_fd(file) });
        }
    }
}

impl DeviceMemory for ImportedMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn map(&self, offset: u64, bytes: u64) -> Result<Box<dyn DeviceMapping>, MemoryError> {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        if !inside || bytes == 0 || !(offset | bytes).is_multiple_of(PAGE_BYTES) {
            return Err(MemoryError::Range {
                offset,
                bytes,
                size: self.bytes,
            });
        }
        let mapped = self.import().and_then(|import| import.map(offset, bytes));
        let mapping = mapped.map_err(|reason| MemoryError::Device { bytes, reason })?;
        Ok(Box::new(mapping))
    }
}

/// A memory object of Vulkan. Dropping it unmaps and frees the memory.
#[derive(Debug)]
struct Import {
    device: Arc<VulkanDevice>,
    memory: vk::DeviceMemory,
    /// The buffer to which the memory belongs; null if the driver does not demand one.
    buffer: vk::Buffer,
}

impl Import {
    fn map(self, offset: u64, bytes: u64) -> Result<VulkanMapping, String> {
        // SAFETY: the memory is ours alone, not mapped yet, visible to the host, and has the range.
        let base = unsafe {
            let device = &self.device.device;
            device.map_memory(self.memory, offset, bytes, vk::MemoryMapFlags::empty())
        }
        .map_err(|e| format!("vkMapMemory failed: {e}"))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or("vkMapMemory gave a null address")?;
        if !(base.as_ptr() as u64).is_multiple_of(PAGE_BYTES) {
            return Err("vkMapMemory gave an address that is not the start of a page".to_owned());
        }
        Ok(VulkanMapping {
            base,
            _import: self,
        })
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // SAFETY: both are ours, or null, and nobody uses them any more. Freeing memory unmaps it.
        unsafe {
            self.device.device.free_memory(self.memory, None);
            self.device.device.destroy_buffer(self.buffer, None);
        }
    }
}

#[derive(Debug)]
struct VulkanMapping {
    base: NonNull<u8>,
    _import: Import,
}

// SAFETY: an address range that is not dereferenced here, and handles that are used by one thread:
// the last owner.
unsafe impl Send for VulkanMapping {}
// SAFETY: as above.
unsafe impl Sync for VulkanMapping {}

impl DeviceMapping for VulkanMapping {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }
}
