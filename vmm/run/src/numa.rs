//! `--numa`: on which NUMA nodes of the host the VMs of a run are.

use std::str::FromStr;

use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use causeway_vmm::numa::{Node, Nodes};

use crate::gpu::{Gpu, Kind};
use crate::gpus::unavailable;
use crate::rooms::RoomsError;

/// Values of `--numa`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// Each VM is on the node of its first GPU.
    Gpu,
    /// All VMs are on the node with this number.
    Node(u32),
}

impl FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("gpu", _) => Ok(Self::Gpu),
            (_, Ok(number)) => Ok(Self::Node(number)),
            _ => Err(String::from("choose gpu, or the number of a NUMA node")),
        }
    }
}

impl Numa {
    fn text(self) -> String {
        match self {
            Self::Gpu => String::from("gpu"),
            Self::Node(number) => number.to_string(),
        }
    }
}

/// Finds the node of each VM, in the order of the VMs, and prints it. `gpus` has the first GPU of
/// each VM, with its text in the syntax of `--gpu`; each VM has `memory_mib` MiB of RAM. `host`
/// tells about nodes; `addresses` returns the PCI addresses of the driver's GPUs, in their order.
///
/// # Errors
/// A usage failure if a node cannot be used, if a GPU has none, or if VMs do not fit; a GPU failure
/// if the host has no usable driver.
pub(crate) fn place(
    numa: Numa,
    gpus: &[(&Gpu, &str)],
    memory_mib: u64,
    host: &Nodes,
    addresses: impl FnOnce() -> Result<Vec<String>, RoomsError>,
) -> Result<Vec<Node>, Failure> {
    let (nodes, shown) = (nodes(numa, gpus, host, addresses)?, numa.text());
    let placed = by_node(&nodes);
    for (node, vms) in &placed {
        fit(&shown, node, vms.len() as u32, memory_mib)?;
        // The run would fail at its first VM.
        let visit = node.visit();
        drop(visit.map_err(|e| Failure::usage_from("--numa", &shown, e))?);
    }
    for (node, vms) in &placed {
        terminal::say(&line(&shown, node, vms));
    }
    Ok(nodes)
}

fn nodes(
    numa: Numa,
    gpus: &[(&Gpu, &str)],
    host: &Nodes,
    addresses: impl FnOnce() -> Result<Vec<String>, RoomsError>,
) -> Result<Vec<Node>, Failure> {
    match numa {
        Numa::Node(number) => {
            let node = host.find(number);
            let node = node.map_err(|e| Failure::usage_from("--numa", &numa.text(), e))?;
            Ok(vec![node; gpus.len()])
        }
        Numa::Gpu => {
            let addresses = addresses_of(gpus, addresses)?;
            let found = gpus.iter().zip(addresses);
            let found = found.map(|((_, text), address)| of_gpu(host, text, &address));
            found.collect()
        }
    }
}

/// Returns the PCI address of each of `gpus`. Asks the driver if it has to.
fn addresses_of(
    gpus: &[(&Gpu, &str)],
    ask: impl FnOnce() -> Result<Vec<String>, RoomsError>,
) -> Result<Vec<String>, Failure> {
    let text = gpus.first().map_or("", |(_, text)| *text);
    let by_driver = match gpus.first().map(|(gpu, _)| gpu.kind) {
        Some(Kind::Cuda(_)) => ask().map_err(|error| unavailable(text, error))?,
        _ => Vec::new(),
    };
    let address = |(gpu, text): &(&Gpu, &str)| match gpu.kind {
        Kind::Software(_) => Err(Failure::usage(format!(
            "--numa gpu needs a GPU, and --gpu {text} is a device without one: name a node, such \
             as --numa 0, or leave --numa out"
        ))),
        Kind::Vfio(options) => Ok(options.address.to_string()),
        Kind::Cuda(options) => by_driver
            .get(options.device as usize)
            .cloned()
            .ok_or_else(|| {
                Failure::usage(format!(
                    "--numa gpu with --gpu {text}: the driver has {} GPUs, counted from 0",
                    by_driver.len()
                ))
            }),
    };
    gpus.iter().map(address).collect()
}

fn of_gpu(host: &Nodes, text: &str, address: &str) -> Result<Node, Failure> {
    let number = host.of_device(address).ok_or_else(|| {
        Failure::usage(format!(
            "--numa gpu: this host does not tell the NUMA node of --gpu {text} (numa_node of PCI \
             device {address} is missing or -1): name a node, such as --numa 0, or leave --numa out"
        ))
    })?;
    host.find(number).map_err(|e| {
        let what = format!(
            "--numa gpu cannot be used with --gpu {text}, which is on NUMA node {number}: name \
             another node, such as --numa 0, or leave --numa out"
        );
        Failure::new(Code::Usage, what, e)
    })
}

/// Returns each node that has VMs, in the order of their first VMs, with the numbers of its VMs.
pub(crate) fn by_node(nodes: &[Node]) -> Vec<(&Node, Vec<u32>)> {
    let mut found: Vec<(&Node, Vec<u32>)> = Vec::new();
    for (vm, node) in (0..).zip(nodes) {
        match found
            .iter_mut()
            .find(|(it, _)| it.number() == node.number())
        {
            Some((_, vms)) => vms.push(vm),
            None => found.push((node, vec![vm])),
        }
    }
    found
}

/// Refuses VMs whose RAM a node does not have: their memory comes from nowhere else, so the kernel
/// would kill processes.
fn fit(shown: &str, node: &Node, vms: u32, memory_mib: u64) -> Result<(), Failure> {
    let (wanted_mib, number) = (memory_mib.saturating_mul(vms.into()), node.number());
    let available_mib = node.available_bytes() >> 20;
    if wanted_mib <= available_mib {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--numa {shown} with --memory {memory_mib} needs {wanted_mib} MiB of NUMA node {number} \
         for {vms} VM{}, but {available_mib} MiB are available there: choose fewer or smaller VMs, \
         another node, or leave --numa out",
        plural(vms)
    )))
}

fn line(shown: &str, node: &Node, vms: &[u32]) -> String {
    let names: Vec<String> = vms.iter().map(|vm| format!("vm{vm}")).collect();
    format!(
        "causeway: --numa {shown} places {} on NUMA node {} ({} processor{}, {} MiB available)",
        names.join(", "),
        node.number(),
        node.cpus(),
        plural(node.cpus()),
        node.available_bytes() >> 20
    )
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::error::Error;
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A made-up sysfs: node 0 has 2 processors and 300 MiB, and node 1 has one processor and
    /// 600 MiB. Device 0000:01:00.0 is on node 1, 0000:02:00.0 on node 0, 0000:03:00.0 on node 7,
    /// and 0000:04:00.0 on none.
    pub struct Sysfs(PathBuf);

    impl Sysfs {
        pub fn new(test: &str) -> Self {
            let name = format!("causeway-run-numa-{}-{test}", std::process::id());
            let sysfs = Self(std::env::temp_dir().join(name));
            let node = "devices/system/node";
            for list in ["online", "has_cpu", "has_memory"] {
                sysfs.write(&format!("{node}/{list}"), "0-1");
            }
            for (number, cpus, mib) in [(0, "0-1", 300), (1, "2", 600)] {
                sysfs.write(&format!("{node}/node{number}/cpulist"), cpus);
                let meminfo = format!("Node {number} MemFree: {} kB", mib << 10);
                sysfs.write(&format!("{node}/node{number}/meminfo"), &meminfo);
            }
            for (bus, node) in [(1, "1"), (2, "0"), (3, "7"), (4, "-1")] {
                let device = format!("bus/pci/devices/0000:{bus:02}:00.0");
                sysfs.write(&format!("{device}/numa_node"), node);
            }
            sysfs
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// The nodes of VMs whose first GPUs these are.
        pub fn nodes(&self, numa: &str, gpus: &[&str]) -> Result<Vec<Node>, String> {
            let parsed: Vec<Gpu> = gpus.iter().map(|text| text.parse().unwrap()).collect();
            let gpus: Vec<(&Gpu, &str)> = parsed.iter().zip(gpus.iter().copied()).collect();
            let host = Nodes::of(&self.0, "0-2", "0-1");
            let addresses = || Ok((1..=4).map(|bus| format!("0000:{bus:02}:00.0")).collect());
            nodes(numa.parse().unwrap(), &gpus, &host, addresses).map_err(|failure| {
                let source = failure.source().map(ToString::to_string);
                format!("{failure}: {}", source.unwrap_or_default())
            })
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn numbers(nodes: &[Node]) -> Vec<u32> {
        nodes.iter().map(Node::number).collect()
    }

    #[test]
    fn values_are_gpu_or_a_number() {
        assert_eq!("gpu".parse(), Ok(Numa::Gpu));
        assert_eq!("12".parse(), Ok(Numa::Node(12)));
        for text in ["", "GPU", "-1", "0-1", "4294967296"] {
            let message = text.parse::<Numa>().unwrap_err();
            assert!(message.contains("number of a NUMA node"), "{text}");
        }
    }

    #[test]
    fn each_vm_is_on_the_node_of_its_first_gpu() {
        let sysfs = Sysfs::new("gpus");
        let found = sysfs.nodes("gpu", &["cuda:0", "cuda:1,memory=1G", "cuda:0"]);
        assert_eq!(numbers(&found.unwrap()), [1, 0, 1]);
        let found = sysfs.nodes("gpu", &["vfio:0000:02:00.0"]);
        assert_eq!(numbers(&found.unwrap()), [0]);
        let found = sysfs.nodes("1", &["software", "software"]);
        assert_eq!(numbers(&found.unwrap()), [1, 1]);
    }

    #[test]
    fn nodes_that_vms_cannot_have_are_refused_with_the_values_and_a_way_out() {
        let sysfs = Sysfs::new("refused");
        for (numa, gpu, words) in [
            (
                "5",
                "software",
                "invalid value 5 for --numa: this host has no NUMA node 5",
            ),
            (
                "gpu",
                "software:3",
                "--gpu software:3 is a device without one",
            ),
            ("gpu", "cuda:2", "--gpu cuda:2, which is on NUMA node 7"),
            (
                "gpu",
                "cuda:3",
                "NUMA node of --gpu cuda:3 (numa_node of PCI device 0000:04:00.0",
            ),
            ("gpu", "cuda:9", "--gpu cuda:9: the driver has 4 GPUs"),
            (
                "gpu",
                "vfio:0000:09:00.0",
                "PCI device 0000:09:00.0 is missing",
            ),
        ] {
            let message = sysfs.nodes(numa, &[gpu]).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn vms_whose_memory_a_node_does_not_have_are_refused_with_what_it_has() {
        let sysfs = Sysfs::new("memory");
        let found = sysfs.nodes("gpu", &["cuda:0", "cuda:1", "cuda:0"]).unwrap();
        let placed = by_node(&found);
        let vms: Vec<_> = placed
            .iter()
            .map(|(node, vms)| (node.number(), &vms[..]))
            .collect();
        assert_eq!(vms, [(1, &[0, 2][..]), (0, &[1])]);
        // As many MiB as node 0 has, and half of what node 1 has.
        for (node, vms) in &placed {
            fit("gpu", node, vms.len() as u32, 300).unwrap();
        }
        let message = fit("gpu", placed[0].0, 2, 301).unwrap_err().to_string();
        let words = "--numa gpu with --memory 301 needs 602 MiB of NUMA node 1 for 2 VMs, but 600";
        assert!(message.contains(words), "{message}");
        let line = line("gpu", placed[0].0, &placed[0].1);
        let words = "--numa gpu places vm0, vm2 on NUMA node 1 (1 processor, 600 MiB available)";
        assert!(line.contains(words), "{line}");
    }
}
