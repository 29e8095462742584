//! Findings about large pages, locked memory and file descriptors.

use std::fs;
use std::time::Instant;

use causeway_memory::{LARGE_PAGE_BYTES, PageSize, SharedMemory};
use causeway_protocol::Access;
use rustix::process::Resource;

use crate::check::Check;

/// Checks large pages and the limits on locked memory and file descriptors, and returns the
/// findings.
pub fn findings() -> Vec<Check> {
    vec![large_pages(), locked_memory(), descriptors()]
}

fn large_pages() -> Check {
    const NAME: &str = "2 MiB pages";
    const WITHOUT: &str = "guest RAM and allocations have 4 KiB pages: the first access to each \
                           page takes a page fault";
    let setting = |path: &str| -> String {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split(['[', ']']).nth(1).unwrap_or("absent").to_owned()
    };
    let thp = setting("/sys/kernel/mm/transparent_hugepage/enabled");
    let shmem = setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let settings = format!("transparent_hugepage {thp}, shmem {shmem}");
    if !causeway_memory::huge_pages_available() {
        let how = "run as root, or with CAP_SYS_ADMIN in a user namespace of its own, so that \
                   Causeway can mount a private tmpfs with huge=always; or enable shmem pages: \
                   echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
        return Check::no(NAME, settings, WITHOUT, how);
    }
    match (populate_ms(PageSize::Large), populate_ms(PageSize::Small)) {
        (Ok((large, PageSize::Large)), Ok((small, _))) => Check::yes(
            NAME,
            format!(
                "private tmpfs, {settings}; populating 64 MiB takes {large:.1} ms, in 4 KiB pages \
                 {small:.1} ms"
            ),
            "guest RAM and allocations of 2 MiB and more use 2 MiB pages, and KVM maps them as \
             such",
        ),
        (Ok(_), _) => Check::no(
            NAME,
            settings,
            WITHOUT,
            "free some memory: the Linux kernel found no contiguous 2 MiB of it",
        ),
        (Err(e), _) => Check::no(NAME, e.to_string(), WITHOUT, "free some memory"),
    }
}

fn populate_ms(pages: PageSize) -> Result<(f64, PageSize), causeway_memory::MemoryError> {
    let bytes = 32 * LARGE_PAGE_BYTES;
    let memory = SharedMemory::new("doctor", bytes, pages)?;
    let mapping = memory.map(0, bytes, Access::ReadWrite)?;
    let start = Instant::now();
    mapping.populate()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, memory.pages()))
}

fn locked_memory() -> Check {
    const NAME: &str = "locked memory";
    let limit = rustix::process::getrlimit(Resource::Memlock).current;
    match limit {
        None => Check::yes(
            NAME,
            "unlimited",
            "guest RAM can be locked for --vfio and --gpu cuda",
        ),
        Some(bytes) => Check::partly(
            NAME,
            format!("{} KiB", bytes / 1024),
            "--vfio and --gpu cuda must lock guest RAM, which this limit may forbid; --gpu \
             software locks none",
            "run `ulimit -l unlimited` first, or set LimitMEMLOCK=infinity for a service",
        ),
    }
}

fn descriptors() -> Check {
    const NAME: &str = "file descriptors";
    const WANTED: u64 = 4096;
    // `causeway run` raises its own limit to the maximum.
    let limit = rustix::process::getrlimit(Resource::Nofile)
        .maximum
        .unwrap_or(u64::MAX);
    let found = match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    };
    if limit >= WANTED {
        return Check::yes(
            NAME,
            found,
            "enough: each allocation of a guest takes one, each virtual CPU and command buffer a \
             few",
        );
    }
    let means = "each allocation of a guest takes one: allocations beyond this number are refused";
    Check::partly(
        NAME,
        found,
        means,
        format!("raise the limit as root: ulimit -Hn {WANTED}"),
    )
}
