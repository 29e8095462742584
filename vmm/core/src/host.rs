//! What kind of host this is, for reports.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// How KVM on this host runs guest code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KvmKind {
    /// KVM uses Intel's VMX on a physical machine.
    Vmx,
    /// KVM uses AMD's SVM on a physical machine.
    Svm,
    /// KVM uses VMX or SVM on a machine that is itself virtual.
    Nested,
    /// KVM uses no hardware virtualization (PVM, "pagetable virtual machine"): guest code at CPL 3
    /// runs at full speed, code at CPL 0 is interpreted.
    Software,
    /// It is not known how KVM runs guest code.
    Unknown,
    /// The host has no KVM.
    Absent,
}

impl KvmKind {
    /// Returns this kind of KVM in words, for messages and reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Vmx => "hardware (VMX)",
            Self::Svm => "hardware (SVM)",
            Self::Nested => "hardware, nested in a virtual machine",
            Self::Software => "software (PVM): no hardware virtualization used",
            Self::Unknown => "of unknown kind",
            Self::Absent => "absent",
        }
    }
}

/// The machine on which the VMM runs, as reports describe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// How KVM runs guest code on this host.
    pub kvm: KvmKind,
    /// Name and version of the operating system kernel.
    pub kernel: String,
    /// Name of the CPU model.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Size of the host's physical memory in bytes.
    pub memory_bytes: u64,
    /// Whether this host can provide shared memory in 2 MiB pages.
    pub large_pages: bool,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gib, kvm) = (self.memory_bytes >> 30, self.kvm.text());
        let Self {
            cpu, cpus, kernel, ..
        } = self;
        write!(f, "{cpu}, {cpus} CPUs, {gib} GiB, {kernel}, KVM: {kvm}")
    }
}

impl Host {
    /// Finds out what kind of machine this host is, by reading a few files in `/proc` and `/sys`.
    pub fn probe() -> Self {
        let uname = rustix::system::uname();
        let info = rustix::system::sysinfo();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kvm: kvm_kind(&cpuinfo, |path| Path::new(path).exists()),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            cpu: field(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)),
            large_pages: causeway_memory::huge_pages_available(),
        }
    }
}

/// Returns how much memory of this process is neither guest memory nor GPU memory, in bytes. Guest
/// and GPU memory are shared memory objects, which the kernel counts separately (proc(5),
/// `RssShmem`), so this is the sum of the process's anonymous pages and file pages. Returns `None`
/// if `/proc/self/status` lacks these two figures.
pub fn own_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(kib(&status, "RssAnon")? + kib(&status, "RssFile")?)
}

fn kib(status: &str, name: &str) -> Option<u64> {
    let number = field(status, name)?.split_whitespace().next()?;
    Some(number.parse::<u64>().ok()? << 10)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn kvm_kind(cpuinfo: &str, exists: impl Fn(&str) -> bool) -> KvmKind {
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|f| f == flag);
    let (vmx, svm) = (has("vmx"), has("svm"));
    match (vmx, svm, has("hypervisor")) {
        _ if !exists("/dev/kvm") => KvmKind::Absent,
        _ if exists("/sys/module/kvm_pvm") && !exists("/sys/module/kvm_amd") => KvmKind::Software,
        (false, false, _) => KvmKind::Unknown,
        (_, _, true) => KvmKind::Nested,
        (true, _, false) => KvmKind::Vmx,
        (false, true, false) => KvmKind::Svm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(flags: &str, paths: &[&str]) -> KvmKind {
        let cpuinfo = format!("model name : Some CPU\nflags\t\t: fpu {flags} sse\n");
        kvm_kind(&cpuinfo, |path| paths.contains(&path))
    }

    #[test]
    fn kinds_of_kvm_are_told_apart() {
        let kvm = "/dev/kvm";
        assert_eq!(kind("vmx", &[]), KvmKind::Absent);
        assert_eq!(kind("vmx", &[kvm]), KvmKind::Vmx);
        assert_eq!(kind("svm", &[kvm]), KvmKind::Svm);
        assert_eq!(kind("svm hypervisor", &[kvm]), KvmKind::Nested);
        assert_eq!(
            kind("hypervisor", &[kvm, "/sys/module/kvm_pvm"]),
            KvmKind::Software
        );
        assert_eq!(kind("hypervisor", &[kvm]), KvmKind::Unknown);
    }

    #[test]
    fn this_host_has_a_kernel_and_a_processor() {
        let host = Host::probe();
        assert!(host.kernel.starts_with("Linux "), "{}", host.kernel);
        assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20);
        assert!(own_memory_bytes().unwrap() > 4096);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "RssAnonX:\t 1 kB\nRssAnon:\t  300 kB\n";
        assert_eq!(kib(status, "RssAnon"), Some(300 << 10));
        assert_eq!(kib(status, "RssFile"), None);
    }
}
