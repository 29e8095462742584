//! NUMA nodes of the host: which there are, which is nearest to a device, and threads and memory on
//! one (Documentation/ABI/stable/sysfs-devices-node and testing/sysfs-bus-pci in the Linux kernel).

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use causeway_memory::MemoryPolicy;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Lines of a node's `meminfo` about memory that is free, or becomes so when the kernel drops what
/// it has cached of files.
const AVAILABLE: [&str; 4] = [
    "MemFree:",
    "Active(file):",
    "Inactive(file):",
    "SReclaimable:",
];

/// Why a NUMA node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The host has no such node.
    #[error("this host has no NUMA node {wanted}: {}", have(.nodes))]
    Absent {
        /// Number of the node.
        wanted: u32,
        /// The nodes of the host.
        nodes: Vec<u32>,
    },
    /// The node has no processors.
    #[error("NUMA node {node} has no processors for virtual CPUs; {} some", have_some(.with))]
    NoProcessors {
        /// Number of the node.
        node: u32,
        /// The nodes that have some.
        with: Vec<u32>,
    },
    /// The node has no memory.
    #[error("NUMA node {node} has no memory; {} some", have_some(.with))]
    NoMemory {
        /// Number of the node.
        node: u32,
        /// The nodes that have some.
        with: Vec<u32>,
    },
    /// This process may run on none of the node's processors.
    #[error(
        "this process may run on none of the processors of NUMA node {node} (it may on {allowed}): \
         change its affinity (taskset) or the cpuset of its control group"
    )]
    ProcessorsForbidden {
        /// Number of the node.
        node: u32,
        /// The processors on which it may run, as the kernel lists them.
        allowed: String,
    },
    /// This process may use no memory of the node.
    #[error(
        "this process may use no memory of NUMA node {node} (it may of {allowed}): change the \
         cpuset of its control group"
    )]
    MemoryForbidden {
        /// Number of the node.
        node: u32,
        /// The nodes whose memory it may use, as the kernel lists them.
        allowed: String,
    },
}

/// Why a thread cannot go to a NUMA node.
#[derive(Debug, thiserror::Error)]
#[error(
    "the kernel refuses {call} for NUMA node {node}: containers allow it with CAP_SYS_NICE \
     (docker run --cap-add SYS_NICE); or leave --numa out"
)]
pub struct VisitError {
    /// Number of the node.
    node: u32,
    /// The system call.
    call: &'static str,
    /// The kernel's error.
    source: io::Error,
}

fn have(nodes: &[u32]) -> String {
    match nodes {
        [] => String::from("its kernel tells of none"),
        [one] => format!("it has node {one} only"),
        nodes => format!("it has the nodes {}", listed(nodes)),
    }
}

fn have_some(nodes: &[u32]) -> String {
    match nodes {
        [] => String::from("no node has"),
        [one] => format!("node {one} has"),
        nodes => format!("the nodes {} have", listed(nodes)),
    }
}

fn listed(nodes: &[u32]) -> String {
    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
    nodes.join(", ")
}

/// A NUMA node of the host, with processors on which this process may run, and memory that it may
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    number: u32,
    cpus: Vec<usize>,
    available_bytes: u64,
}

impl Node {
    /// Returns the number of the node.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of processors of the node on which this process may run: one or more.
    pub fn cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Returns the memory of the node in bytes that was free, or could be made free by dropping
    /// what is cached of files, when this value was made.
    pub fn available_bytes(&self) -> u64 {
        self.available_bytes
    }

    /// Moves the calling thread to the processors of this node until the result is dropped. Memory
    /// that it gets meanwhile comes from this node as long as that has some free. Threads and
    /// processes that it starts meanwhile stay there.
    ///
    /// # Errors
    /// [`VisitError`] if the kernel refuses; then the thread is where it was.
    pub fn visit(&self) -> Result<Visit, VisitError> {
        let fail = |call| {
            move |source| VisitError {
                node: self.number,
                call,
                source,
            }
        };
        let policy = MemoryPolicy::of_this_thread().map_err(fail("get_mempolicy"))?;
        let cpus = sched_getaffinity(None).map_err(io::Error::from);
        let home = Visit {
            cpus: cpus.map_err(fail("sched_getaffinity"))?,
            policy,
            _of_one_thread: PhantomData,
        };
        let mut cpus = CpuSet::new();
        self.cpus.iter().for_each(|cpu| cpus.set(*cpu));
        // From here on, a drop of `home` undoes what was done.
        let moved = sched_setaffinity(None, &cpus).map_err(io::Error::from);
        moved.map_err(fail("sched_setaffinity"))?;
        let prefer = MemoryPolicy::prefers(self.number).and_then(|policy| policy.apply());
        prefer.map_err(fail("set_mempolicy"))?;
        Ok(home)
    }
}

/// A stay of the calling thread on a node. When it is dropped, the thread may run where it could
/// before, and gets memory as before.
#[must_use]
#[derive(Debug)]
pub struct Visit {
    cpus: CpuSet,
    policy: MemoryPolicy,
    /// What it restores is that of one thread.
    _of_one_thread: PhantomData<*const ()>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let restored = self.policy.apply();
        let restored = restored.and(sched_setaffinity(None, &self.cpus).map_err(Into::into));
        if let Err(e) = restored {
            log::warn!("a thread stays on the NUMA node of a VM: {e}");
        }
    }
}

/// What this process may use, as the kernel lists it in `/proc/PID/status`.
#[derive(Clone, Debug)]
struct Allowed {
    cpus: String,
    nodes: String,
}

/// What the kernel tells about NUMA nodes.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// Where sysfs is.
    sysfs: PathBuf,
    allowed: Allowed,
}

impl Nodes {
    /// Returns the nodes of this host, and what the calling thread may use of them.
    pub fn of_host() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let cpus = field(&status, "Cpus_allowed_list:");
        let nodes = field(&status, "Mems_allowed_list:");
        Self::of(Path::new("/sys"), cpus, nodes)
    }

    /// Returns the nodes that the sysfs at this path shows, to a process that may use these
    /// processors and the memory of these nodes, both lists such as `0-3,8`.
    pub fn of(sysfs: &Path, cpus: &str, nodes: &str) -> Self {
        Self {
            sysfs: sysfs.to_owned(),
            allowed: Allowed {
                cpus: cpus.to_owned(),
                nodes: nodes.to_owned(),
            },
        }
    }

    /// Returns the node with this number.
    ///
    /// # Errors
    /// The variant of [`NodeError`] that says what the node or this process lacks.
    pub fn find(&self, number: u32) -> Result<Node, NodeError> {
        let nodes = self.list("online");
        if !nodes.contains(&number) {
            return Err(NodeError::Absent {
                wanted: number,
                nodes,
            });
        }
        let file = |name: &str| self.folder().join(format!("node{number}/{name}"));
        let has = read_list(&file("cpulist"));
        if has.is_empty() {
            return Err(NodeError::NoProcessors {
                node: number,
                with: self.list("has_cpu"),
            });
        }
        let may = parse_list(&self.allowed.cpus).unwrap_or_default();
        let both = has.iter().filter(|cpu| may.contains(cpu));
        let cpus = both.map(|cpu| *cpu as usize);
        let cpus: Vec<usize> = cpus.filter(|cpu| *cpu < CpuSet::MAX_CPU).collect();
        if cpus.is_empty() {
            return Err(NodeError::ProcessorsForbidden {
                node: number,
                allowed: self.allowed.cpus.clone(),
            });
        }
        let with = self.list("has_memory");
        if !with.contains(&number) {
            return Err(NodeError::NoMemory { node: number, with });
        }
        let may = parse_list(&self.allowed.nodes).unwrap_or_default();
        if !may.contains(&number) {
            return Err(NodeError::MemoryForbidden {
                node: number,
                allowed: self.allowed.nodes.clone(),
            });
        }
        let meminfo = fs::read_to_string(file("meminfo")).unwrap_or_default();
        Ok(Node {
            number,
            cpus,
            available_bytes: available_bytes(&meminfo),
        })
    }

    /// Returns the number of the node that is nearest to the PCI device with this address, such as
    /// `0000:01:00.0`; `None` if the host does not tell.
    pub fn of_device(&self, address: &str) -> Option<u32> {
        let device = self.sysfs.join("bus/pci/devices").join(address);
        // -1 where the firmware does not tell.
        let text = fs::read_to_string(device.join("numa_node")).ok()?;
        text.trim().parse().ok()
    }

    fn folder(&self) -> PathBuf {
        self.sysfs.join("devices/system/node")
    }

    /// Returns the nodes that one of the kernel's lists has.
    fn list(&self, name: &str) -> Vec<u32> {
        read_list(&self.folder().join(name))
    }
}

/// Returns the number of the host's node that is nearest to the PCI device with this address, such
/// as `0000:01:00.0`; `None` if the host does not tell.
pub fn of_device(address: &str) -> Option<u32> {
    Nodes::of_host().of_device(address)
}

/// Returns the value of a field of `/proc/PID/status`; an empty one if there is none.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim()
}

/// Returns the bytes that a node has free or can free, by its `meminfo`.
fn available_bytes(meminfo: &str) -> u64 {
    // Node 0 MemFree:        15304856 kB
    let kib = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let (name, kib) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        AVAILABLE.contains(&name).then_some(kib)
    };
    meminfo.lines().filter_map(kib).sum::<u64>() << 10
}

fn read_list(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    parse_list(&text).unwrap_or_default()
}

/// Returns the numbers in a list of the kernel, such as `0-3,8`; `None` if it is none.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests;
