use super::*;

/// A made-up sysfs.
struct Sysfs(PathBuf);

impl Sysfs {
    /// Nodes 0 and 2 have two processors and 1 MiB each, node 3 has memory only, and node 4 has
    /// processors only.
    fn new(test: &str) -> Self {
        let name = format!("causeway-numa-{}-{test}", std::process::id());
        let sysfs = Self(std::env::temp_dir().join(name));
        for (file, text) in [
            ("online", "0,2-4\n"),
            ("has_cpu", "0,2,4\n"),
            ("has_memory", "0,2-3\n"),
        ] {
            sysfs.write(&format!("devices/system/node/{file}"), text);
        }
        for (node, cpus, kib) in [(0, "0-1", 1024), (2, "2,8", 1024), (3, "", 9), (4, "4", 0)] {
            sysfs.write(&format!("devices/system/node/node{node}/cpulist"), cpus);
            let meminfo = format!("Node {node} MemTotal: 99 kB\nNode {node} MemFree: {kib} kB\n");
            sysfs.write(&format!("devices/system/node/node{node}/meminfo"), &meminfo);
        }
        sysfs
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn nodes(&self, cpus: &str, nodes: &str) -> Nodes {
        Nodes::of(&self.0, cpus, nodes)
    }
}

impl Drop for Sysfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lists_have_numbers_and_ranges() {
    assert_eq!(parse_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
    assert_eq!(parse_list("5"), Some(vec![5]));
    assert_eq!(parse_list("\n"), Some(vec![]));
    assert_eq!(parse_list("0-x"), None);
    assert_eq!(parse_list("-1"), None);
}

#[test]
fn a_node_has_the_processors_on_which_this_process_may_run() {
    let sysfs = Sysfs::new("cpus");
    let node = sysfs.nodes("1-7", "0,2").find(2).unwrap();
    assert_eq!((node.number, &node.cpus[..]), (2, &[2][..]));
    assert_eq!(node.available_bytes, 1 << 20);
    let node = sysfs.nodes("0-63", "0,2").find(2).unwrap();
    assert_eq!(node.cpus, [2, 8]);
}

#[test]
fn nodes_that_cannot_be_used_are_refused_with_the_reason() {
    let sysfs = Sysfs::new("refused");
    for (node, cpus, nodes, words) in [
        (
            1,
            "0-9",
            "0-4",
            "no NUMA node 1: it has the nodes 0, 2, 3, 4",
        ),
        (
            3,
            "0-9",
            "0-4",
            "node 3 has no processors for virtual CPUs; the nodes 0, 2, 4 have some",
        ),
        (
            4,
            "0-9",
            "0-4",
            "node 4 has no memory; the nodes 0, 2, 3 have some",
        ),
        (0, "2-8", "0-4", "of NUMA node 0 (it may on 2-8)"),
        (2, "0-9", "0", "no memory of NUMA node 2 (it may of 0)"),
    ] {
        let message = sysfs.nodes(cpus, nodes).find(node).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let none = Sysfs(sysfs.0.join("nothing"));
    let message = none.nodes("0", "0").find(0).unwrap_err().to_string();
    assert_eq!(
        message,
        "this host has no NUMA node 0: its kernel tells of none"
    );
    assert_eq!(have(&[0]), "it has node 0 only");
}

#[test]
fn memory_counts_that_the_kernel_can_free() {
    let meminfo = "Node 1 MemTotal:       100 kB\nNode 1 MemFree:         10 kB\n\
                   Node 1 Active(anon):    20 kB\nNode 1 Active(file):     1 kB\n\
                   Node 1 Inactive(file):   2 kB\nNode 1 SReclaimable:     4 kB\n";
    assert_eq!(available_bytes(meminfo), 17 << 10);
    assert_eq!(available_bytes(""), 0);
}

#[test]
fn a_device_is_on_the_node_that_its_file_names() {
    let sysfs = Sysfs::new("devices");
    let of = |text: &str| {
        sysfs.write("bus/pci/devices/0000:01:00.0/numa_node", text);
        sysfs.nodes("0", "0").of_device("0000:01:00.0")
    };
    assert_eq!(of("2\n"), Some(2));
    assert_eq!(of("-1\n"), None);
    assert_eq!(sysfs.nodes("0", "0").of_device("0000:02:00.0"), None);
}

/// What the calling thread may do.
fn allowed() -> (Vec<usize>, MemoryPolicy) {
    let cpus = sched_getaffinity(None).unwrap();
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
    (cpus.collect(), MemoryPolicy::of_this_thread().unwrap())
}

#[test]
fn threads_that_start_during_a_visit_stay_and_the_visitor_goes_home() {
    let host = Nodes::of_host();
    let Some(first) = host.list("online").first().copied() else {
        eprintln!("skipped: this kernel tells of no NUMA nodes");
        return;
    };
    let mut node = host.find(first).unwrap();
    assert!(node.cpus() != 0 && node.available_bytes() != 0);
    // One processor, to tell it from what the thread may use without.
    node.cpus.truncate(1);
    let before = allowed();
    let visit = node.visit().unwrap();
    let there = (node.cpus.clone(), MemoryPolicy::prefers(first).unwrap());
    assert_eq!(allowed(), there);
    let started = std::thread::spawn(allowed);
    drop(visit);
    assert_eq!(allowed(), before);
    assert_eq!(started.join().unwrap(), there);
}

#[test]
fn a_visit_that_is_refused_leaves_the_thread_where_it_was() {
    let before = allowed();
    // It has processors that there are, and a number that no kernel has.
    let node = Node {
        number: u32::MAX,
        cpus: vec![before.0[0]],
        available_bytes: 0,
    };
    let message = node.visit().unwrap_err().to_string();
    assert!(
        message.contains("refuses set_mempolicy for NUMA node"),
        "{message}"
    );
    assert_eq!(allowed(), before);
}
