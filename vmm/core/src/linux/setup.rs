//! Bringing a kernel into guest memory, with everything that it wants to find there.

use std::io::Cursor;
use std::sync::Arc;

use causeway_mediator::host::RamError;

use linux_loader::loader::{BzImage, Elf, KernelLoader};
use vm_memory::GuestAddress;

use super::boot_params::{self, BootInformation};
use super::kernel::Content;
use super::memory_map::memory_map;
use super::payload::{Payload, PayloadError};
use super::placement::{self, PlacementError};
use super::{BootProtocol, Kernel, acpi, power, processor};
use crate::memory::GuestRam;
use crate::pci::Layout;
use crate::virtio::{DiskImage, DiskSlot, OutsideSource};

/// A disk whose content is there from the start.
#[derive(Clone, Debug)]
pub enum Disk {
    /// A raw image, which a thread of this process reads and writes.
    Image(Arc<DiskImage>),
    /// Another process serves it.
    Process(Arc<dyn OutsideSource>),
}

/// A Linux system to boot in a VM: a kernel, its command line, an initramfs and disks.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The kernel to boot.
    pub kernel: Kernel,
    /// Content of the initramfs; empty without an initramfs.
    pub initramfs: Arc<[u8]>,
    /// The whole command line of the kernel.
    pub command_line: String,
    /// Disks, in the order of the guest's `/dev/vda`, `/dev/vdb`, …
    pub disks: Arc<[Disk]>,
    /// Disks whose images come and go while the guest runs, behind the others. A VM has its own.
    pub slots: Arc<[Arc<DiskSlot>]>,
    /// Virtio devices whose requests other processes execute, in the order in which the guest finds
    /// them, behind the disks. Each VM that is built connects to them once.
    pub processes: Arc<[Arc<dyn OutsideSource>]>,
}

impl Linux {
    /// Returns what has to be prepared before VMs are built: the processes of disks and of other
    /// devices.
    pub fn sources(&self) -> impl Iterator<Item = &dyn OutsideSource> {
        let of_disks = self.disks.iter().filter_map(|disk| match disk {
            Disk::Process(source) => Some(source),
            Disk::Image(_) => None,
        });
        of_disks.chain(&*self.processes).map(|source| &**source)
    }
}

/// Why a Linux system cannot be loaded into guest memory.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The kernel, its initramfs or its command line does not fit into guest memory.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The kernel's file cannot be copied into guest memory.
    #[error("cannot copy the kernel into guest memory")]
    Load(#[from] linux_loader::loader::Error),
    /// The compressed kernel in a bzImage is damaged.
    #[error("cannot decompress the Linux kernel given with --kernel")]
    Payload(#[from] PayloadError),
    /// The kernel's boot parameters cannot be written.
    #[error("cannot write the kernel's boot parameters into guest memory")]
    Parameters(#[from] linux_loader::configurator::Error),
    /// The crate `vm-memory`, through which guest memory is written, does not accept the guest's
    /// RAM.
    #[error("cannot access guest memory to load the kernel")]
    View(#[from] vm_memory::mmap::FromRangesError),
    /// The tables that the kernel needs do not fit into guest memory.
    #[error(
        "guest memory has no room for the page and ACPI tables that the Linux kernel needs to \
         boot: give the guest more memory with --memory"
    )]
    Tables(#[from] RamError),
}

/// Loads the Linux system `linux` into guest memory `ram`: the kernel, the initramfs, the command
/// line, ACPI tables, page tables and boot parameters. `vcpus` is the number of virtual CPUs;
/// `layout` contains the PCI addresses that the ACPI tables describe.
///
/// # Errors
/// [`SetupError::Placement`] if the kernel, the initramfs or the command line does not fit, `Load`
/// or `Payload` if the kernel is damaged, `Parameters`, `View` or `Tables` if guest memory cannot
/// be written.
pub fn prepare(
    ram: &GuestRam,
    linux: &Linux,
    vcpus: u32,
    layout: &Layout,
) -> Result<(), SetupError> {
    let kernel = &linux.kernel;
    let initramfs = placement::place(kernel, linux.initramfs.len() as u64, ram.low_end())?;
    let command_line = placement::command_line(kernel, &linux.command_line)?;
    load(ram, kernel)?;
    if !initramfs.is_empty() {
        ram.write(initramfs.start, &linux.initramfs)?;
    }
    ram.write(boot_params::COMMAND_LINE, &command_line)?;
    processor::write_tables(ram)?;
    power::write_reset_vector(ram)?;
    let information = BootInformation {
        header: kernel.header,
        initramfs,
        command_line_bytes: command_line.len(),
        acpi_root: acpi::write(ram, vcpus, layout)?,
        memory: &memory_map(ram),
    };
    ram.with_view(|view| match kernel.protocol {
        BootProtocol::Pvh => information.write_pvh(view),
        BootProtocol::BzImage | BootProtocol::Linux64 => information.write_linux(view),
    })??;
    Ok(())
}

fn load(ram: &GuestRam, kernel: &Kernel) -> Result<(), SetupError> {
    if let Content::Payload { range, segments } = &kernel.content {
        let payload = Payload::new(&kernel.image[range.clone()])?;
        return payload.for_each_block(|offset, block| {
            for segment in segments {
                if let Some((address, part)) = segment.part(offset, block) {
                    ram.write(address, part)?;
                }
            }
            Ok(())
        });
    }
    let image = &mut Cursor::new(&*kernel.image);
    ram.with_view(|view| match kernel.protocol {
        BootProtocol::BzImage => {
            BzImage::load(view, Some(GuestAddress(kernel.range.start)), image, None)
        }
        BootProtocol::Linux64 | BootProtocol::Pvh => Elf::load(view, None, image, None),
    })??;
    Ok(())
}
