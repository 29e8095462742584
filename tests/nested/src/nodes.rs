//! NUMA nodes of a machine that has several, and PCI ports near them.

/// The node with processor 0.
pub const NODE_OF_PROCESSOR_0: u32 = 0;
/// The node with processor 1.
pub const NODE_OF_PROCESSOR_1: u32 = 1;
/// A node that has memory and no processor.
pub const WITHOUT_PROCESSORS: u32 = 2;

/// Memory of [`WITHOUT_PROCESSORS`], in MiB. The other two have half of the rest each.
const SMALL_MIB: u32 = 256;

/// PCI roots: the bus of each, on which device 0 is a port, and its node; `None` stands for a root
/// of which the firmware does not tell. The bus behind the port has the next number.
pub const ROOTS: [(u32, Option<u32>); 4] = [
    (1, Some(NODE_OF_PROCESSOR_1)),
    (3, Some(NODE_OF_PROCESSOR_0)),
    (5, None),
    (7, Some(WITHOUT_PROCESSORS)),
];

/// Arguments of the emulator, with their values, for a machine with so much memory.
pub(crate) fn arguments(memory_mib: u32) -> Vec<(&'static str, String)> {
    let half_mib = (memory_mib - SMALL_MIB) / 2;
    let large_mib = memory_mib - SMALL_MIB - half_mib;
    let mut words = Vec::new();
    for (node, mib, cpus) in [
        (NODE_OF_PROCESSOR_0, large_mib, ",cpus=0"),
        (NODE_OF_PROCESSOR_1, half_mib, ",cpus=1"),
        (WITHOUT_PROCESSORS, SMALL_MIB, ""),
    ] {
        let memory = format!("memory-backend-ram,id=ram{node},size={mib}M");
        words.push(("-object", memory));
        words.push((
            "-numa",
            format!("node,nodeid={node},memdev=ram{node}{cpus}"),
        ));
    }
    for (bus, node) in ROOTS {
        let near = node.map_or_else(String::new, |node| format!(",numa_node={node}"));
        let root = format!("pxb-pcie,id=root{bus},bus=pcie.0,bus_nr={bus}{near}");
        let port = format!("pcie-root-port,id=port{bus},bus=root{bus},addr=0,chassis={bus}");
        words.extend([("-device", root), ("-device", port)]);
    }
    words
}
