//! Root file systems in memory (initramfs) for Linux guests that run one program.
//!
//! [`Archive`] writes the format that the Linux kernel reads. [`Workload`] describes what a guest
//! runs: a program with its libraries, its arguments, files and kernel modules. It becomes an
//! archive with `causeway-init` as the guest's first process. The same workload always gives the
//! same bytes: entries are sorted, and the archive contains no time, owner or inode number of the
//! host.

mod archive;
mod contents;
mod executable;
mod guest_path;
mod kernel;
mod libraries;
mod links;
mod loader_cache;
mod modinfo;
mod modules;
mod read;
mod workload;

pub use archive::{Archive, ArchiveError};
pub use executable::{ProgramError, check_program, is_linux_program};
pub use guest_path::{GuestPath, GuestPathError};
pub use kernel::release_of;
pub use links::Links;
pub use modinfo::ModuleFileError;
pub use modules::{KernelModule, ModuleFolder, Needs};
pub use workload::{FileMapping, MappingError, Workload, WorkloadError};

pub use causeway_embedded::INIT;
