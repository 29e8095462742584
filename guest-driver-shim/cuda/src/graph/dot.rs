//! Descriptions of graphs in the DOT language of Graphviz.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::boundary::In;
use crate::driver::call;
use crate::error::{Answer, Code};
use crate::graph::node::Kind;
use crate::graph::{self, Graph};

/// All of `CUgraphDebugDot_flags`.
const FLAGS: u32 = 0xffff;
/// `CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE` and `…_HANDLES`: handles too.
const HANDLES: u32 = 1 | 1024;
/// Longest path, with its NUL byte (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4096;

impl Graph {
    /// Returns its nodes and edges, and those of the graphs in it.
    fn dot(&self, has_handles: bool) -> String {
        let mut text = String::from("digraph dot {\n");
        self.add_dot(&mut text, has_handles);
        text + "}\n"
    }

    fn add_dot(&self, text: &mut String, has_handles: bool) {
        let content = self.content.lock();
        let _ = writeln!(text, "subgraph cluster_{} {{", self.handle);
        for (handle, node) in &*content {
            let what = describe(&node.kind);
            let handle_text = match has_handles {
                true => format!("\\n{handle:#x}"),
                false => String::new(),
            };
            let _ = writeln!(
                text,
                "node_{handle} [shape=\"box\" label=\"{what}{handle_text}\"];"
            );
            for before in &node.dependencies {
                let _ = writeln!(text, "node_{before} -> node_{handle};");
            }
            for graph in node.kind.graphs() {
                graph.add_dot(text, has_handles);
            }
        }
        text.push_str("}\n");
    }
}

/// Returns what a node does, in a form that DOT takes within quotes.
fn describe(kind: &Kind) -> String {
    match kind {
        Kind::Kernel(call) => {
            let ([x, y, z], [bx, by, bz]) = (call.shape.grid, call.shape.block);
            let name = call.kernel.name_text();
            format!("KERNEL\\n{name}\\n<<<({x},{y},{z}), ({bx},{by},{bz})>>>")
        }
        Kind::Copy { .. } => "MEMCPY".to_owned(),
        Kind::Fill { .. } => "MEMSET".to_owned(),
        Kind::Host(_) => "HOST".to_owned(),
        Kind::Child(_) => "GRAPH".to_owned(),
        Kind::Empty => "EMPTY".to_owned(),
        Kind::Wait(_) => "EVENT_WAIT".to_owned(),
        Kind::Record(_) => "EVENT_RECORD".to_owned(),
        Kind::Allocate(_) => "MEM_ALLOC".to_owned(),
        Kind::Free { address } => format!("MEM_FREE\\n{address:#x}"),
        Kind::Batch { .. } => "BATCH_MEM_OP".to_owned(),
        Kind::Conditional(node) => format!("CONDITIONAL\\n{}", node.rule.name()),
    }
}

/// Reads a path, up to its NUL byte.
fn path(given: In<u8>) -> Answer<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < PATH_BYTES_MAX {
        match given.get_at(bytes.len())? {
            0 => return Ok(bytes),
            byte => bytes.push(byte),
        }
    }
    Err(Code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDebugDotPrint(graph: usize, into: In<u8>, flags: u32) -> u32 {
    call(|driver| {
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let graph = graph::find(driver, graph)?;
        let path = path(into)?;
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        fs::write(path, graph.dot(flags & HANDLES != 0)).map_err(|error| {
            log::warn!("cannot write {}: {error}", path.display());
            Code::OPERATING_SYSTEM
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_edges_and_graphs_within_are_described() {
        let inner = Graph::new();
        inner.add(Kind::Empty, &[]).unwrap();
        let graph = Graph::new();
        let first = graph.add(Kind::Child(inner), &[]).unwrap();
        let second = graph.add(Kind::Empty, &[first]).unwrap();
        let text = graph.dot(true);
        assert!(text.starts_with("digraph dot {\n"), "{text}");
        assert_eq!(text.matches("subgraph").count(), 2, "{text}");
        assert_eq!(text.matches("EMPTY").count(), 2, "{text}");
        let edge = format!("node_{first} -> node_{second};");
        assert!(text.contains(&edge), "{text}");
        assert!(text.contains(&format!("GRAPH\\n{first:#x}")), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert!(!graph.dot(false).contains("0x"));
    }
}
