//! KVM's binary statistics: the referee on how often guests exit.
//!
//! `KVM_GET_STATS_FD` gives a file per VM and per virtual CPU: a header, a string, descriptors with
//! names, and a block of 64-bit data that reads as the current values
//! (Documentation/virt/kvm/api.rst, 4.133). Layouts are read once; a sample is one `pread` per
//! file.
#![allow(unsafe_code)] // An ioctl that has no wrapper, and the descriptor that it returns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use kvm_ioctls::{VcpuFd, VmFd};
use vmm_sys_util::ioctl::ioctl;

mod layout;

pub use layout::{Layout, LayoutError};

mod request {
    #![allow(missing_docs)] // The macro writes a public function.
    vmm_sys_util::ioctl_io_nr!(KVM_GET_STATS_FD, kvm_bindings::KVMIO, 0xce);
}

/// Why KVM's statistics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StatisticsError {
    /// KVM gives no statistics file.
    #[error("KVM has no statistics (KVM_GET_STATS_FD) for this VM (use Linux 5.14 or later)")]
    Open(#[source] io::Error),
    /// A statistics file cannot be read.
    #[error("cannot read {bytes} bytes at offset {offset} of KVM's statistics file")]
    Read {
        /// Offset in the file at which reading failed.
        offset: u64,
        /// Number of bytes to read.
        bytes: usize,
        /// The error of the read.
        source: io::Error,
    },
    /// A statistics file does not have the documented layout.
    #[error("KVM's statistics file does not have the documented layout")]
    Layout(#[from] LayoutError),
}

/// KVM's statistics of one VM, read from a file for the VM and a file for each virtual CPU. The
/// default value has no files, for a KVM without statistics, and all its samples are empty.
#[derive(Debug, Default)]
pub struct VmStatistics {
    vm: Option<Source>,
    vcpus: Vec<Source>,
}

/// The values of KVM's statistics at one moment; those of virtual CPUs are added up.
/// [`VmStatistics::sample`] takes a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    vcpus: Vec<u64>,
    vm: Vec<u64>,
}

#[derive(Debug)]
struct Source {
    file: File,
    layout: Arc<Layout>,
}

impl VmStatistics {
    /// Opens KVM's statistics of `vm` and of its virtual CPUs `vcpus`.
    ///
    /// # Errors
    /// [`StatisticsError::Open`] if KVM has no statistics, `Read` if a file cannot be read,
    /// `Layout` if a file does not have the documented layout.
    pub fn open<'a>(
        vm: &VmFd,
        vcpus: impl IntoIterator<Item = &'a VcpuFd>,
    ) -> Result<Self, StatisticsError> {
        let mut sources: Vec<Source> = Vec::new();
        for vcpu in vcpus {
            let file = statistics_file(vcpu)?;
            let layout = match sources.first() {
                // Every virtual CPU has the same counters.
                Some(first) => Arc::clone(&first.layout),
                None => Arc::new(read_layout(&file)?),
            };
            sources.push(Source { file, layout });
        }
        let file = statistics_file(vm)?;
        let layout = Arc::new(read_layout(&file)?);
        Ok(Self {
            vm: Some(Source { file, layout }),
            vcpus: sources,
        })
    }

    /// Returns whether KVM keeps statistics of this VM.
    pub fn is_available(&self) -> bool {
        self.vm.is_some()
    }

    /// Reads the current values of all counters.
    ///
    /// # Errors
    /// [`StatisticsError::Read`] if a statistics file cannot be read.
    pub fn sample(&self) -> Result<Sample, StatisticsError> {
        let mut sample = self.zero();
        for vcpu in &self.vcpus {
            vcpu.add_to(&mut sample.vcpus)?;
        }
        if let Some(vm) = &self.vm {
            vm.add_to(&mut sample.vm)?;
        }
        Ok(sample)
    }

    /// Returns how far each counter grew from sample `earlier` to sample `later`, by KVM's name for
    /// the counter. Counters of the VM as a whole have `vm:` before their names; all others are
    /// sums over the virtual CPUs.
    pub fn difference(&self, earlier: &Sample, later: &Sample) -> BTreeMap<String, u64> {
        let mut named = BTreeMap::new();
        let parts = [
            (self.vcpus.first(), &earlier.vcpus, &later.vcpus, ""),
            (self.vm.as_ref(), &earlier.vm, &later.vm, "vm:"),
        ];
        for (source, earlier, later, prefix) in parts {
            let names = source.map_or(&[][..], |s| s.layout.counters());
            for ((counter, earlier), later) in names.iter().zip(earlier).zip(later) {
                let name = format!("{prefix}{}", counter.name);
                named.insert(name, later.saturating_sub(*earlier));
            }
        }
        named
    }

    /// Returns a sample in which all values are zero.
    pub fn zero(&self) -> Sample {
        let zeros = |s: Option<&Source>| vec![0; s.map_or(0, |s| s.layout.counters().len())];
        Sample {
            vcpus: zeros(self.vcpus.first()),
            vm: zeros(self.vm.as_ref()),
        }
    }
}

impl Source {
    fn add_to(&self, sums: &mut [u64]) -> Result<(), StatisticsError> {
        // The layout bounds this to a few KiB, so a sample allocates nothing for it.
        let mut buffer = [0; layout::DATA_BYTES_MAX];
        let bytes = self.layout.data_bytes();
        let data = &mut buffer[..bytes];
        read_at(&self.file, data, self.layout.data_offset())?;
        for (sum, counter) in sums.iter_mut().zip(self.layout.counters()) {
            *sum = sum.wrapping_add(counter.value(data));
        }
        Ok(())
    }
}

fn statistics_file(of: &impl AsRawFd) -> Result<File, StatisticsError> {
    // SAFETY: the request takes no argument and changes nothing but our table of descriptors.
    let fd = unsafe { ioctl(of, request::KVM_GET_STATS_FD()) };
    if fd < 0 {
        return Err(StatisticsError::Open(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is fresh, and nobody else knows of it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn read_layout(file: &File) -> Result<Layout, StatisticsError> {
    let mut head = [0; layout::HEADER_BYTES];
    read_at(file, &mut head, 0)?;
    let header = layout::Header::parse(&head)?;
    let mut descriptors = vec![0; header.descriptors_bytes()];
    read_at(file, &mut descriptors, header.descriptors_offset())?;
    Ok(Layout::parse(&header, &descriptors)?)
}

fn read_at(file: &File, into: &mut [u8], offset: u64) -> Result<(), StatisticsError> {
    file.read_exact_at(into, offset)
        .map_err(|source| StatisticsError::Read {
            offset,
            bytes: into.len(),
            source,
        })
}
