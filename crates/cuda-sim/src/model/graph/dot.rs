//! Graphs as DOT text, in the shape in which the driver prints them: one cluster for each graph, children after the
//! graph they are in, nodes numbered by age.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cuda_sys::driver::types::CUmemorytype;

use super::{Copy3d, Fill, Graph, NodeId, NodeKind, Operand};

/// Flag of `cuGraphDebugDotPrint` that asks for everything; the other flags are not told apart from none.
const VERBOSE: u32 = 1;

impl Graph {
    /// The graph and its children as DOT text. Clusters are named by the graphs' ids.
    pub(crate) fn to_dot(&self, flags: u32) -> String {
        let mut text = String::from("digraph dot {\n");
        self.print_cluster(flags & VERBOSE != 0, &mut text);
        text.push_str("}\n");
        text
    }

    fn print_cluster(&self, verbose: bool, text: &mut String) {
        let name = self.dot_name();
        let number = self.id().0;
        line(text, format_args!("subgraph cluster_{number} {{\nlabel=\"{name}\" graph[style=\"dashed\"];"));
        let indices: BTreeMap<NodeId, usize> = self.nodes().enumerate().map(|(index, (id, _))| (id, index)).collect();
        let topological: BTreeMap<NodeId, usize> =
            self.sinks_first().into_iter().enumerate().map(|(index, id)| (id, index)).collect();
        for (index, (id, node)) in self.nodes().enumerate() {
            let shape = shape(node.kind());
            let label = if verbose {
                let order = topological.get(&id).map_or_else(|| "-".to_owned(), ToString::to_string);
                format!("{index} (topoId: {order})\\nhandle: {:#x}\\n{}", id.0, verbose_label(node.kind()))
            } else {
                format!("{index}\\n{}", brief_label(node.kind()))
            };
            line(text, format_args!("\"{name}_node_{index}\"[style=\"solid\" shape=\"{shape}\" label=\"{label}\"];"));
        }
        for (id, node) in self.nodes() {
            for to in node.dependents() {
                let (from, to_index) = (indices.get(&id).copied(), indices.get(to).copied());
                let (Some(from), Some(to_index)) = (from, to_index) else { continue };
                let edge = format!("\"{name}_node_{from}\" -> \"{name}_node_{to_index}\"");
                let place = self.node(*to).ok().and_then(|end| end.dependencies().iter().position(|&d| d == id));
                match place.filter(|_| verbose) {
                    Some(place) => line(text, format_args!("{edge} [headlabel={place}];")),
                    None => line(text, format_args!("{edge};")),
                }
            }
        }
        text.push_str("}\n");
        for (_, child) in self.children() {
            child.print_cluster(verbose, text);
        }
    }

    fn dot_name(&self) -> String {
        format!("graph_{}", self.id().0)
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{arguments}");
}

fn shape(kind: &NodeKind<Graph>) -> &'static str {
    match kind {
        NodeKind::Memcpy(_) => "trapezium",
        NodeKind::Memset(_) => "invtrapezium",
        NodeKind::Kernel(_) => "octagon",
        NodeKind::Empty
        | NodeKind::Host(_)
        | NodeKind::Child(_)
        | NodeKind::EventRecord(_)
        | NodeKind::EventWait(_)
        | NodeKind::Value(_)
        | NodeKind::MemAlloc(_)
        | NodeKind::MemFree(_)
        | NodeKind::Conditional(_) => "rectangle",
    }
}

fn brief_label(kind: &NodeKind<Graph>) -> String {
    match kind {
        NodeKind::Empty => "EMPTY".to_owned(),
        NodeKind::Memcpy(copy) => format!("MEMCPY\\n({},{})", direction(copy), extent(copy)),
        NodeKind::Memset(fill) => format!("MEMSET\\n({},{})", fill.value, fill_extent(fill)),
        NodeKind::Kernel(launch) => {
            let count = |sizes: [u32; 3]| sizes.map(|size| size.to_string()).join(",");
            let (grid, block) = (count(launch.grid), count(launch.block));
            format!("{}\\<\\<\\<{grid},{block},{}\\>\\>\\>", launch.kernel.name, launch.shared_bytes)
        }
        NodeKind::Host(_) => "HOST".to_owned(),
        NodeKind::Child(graph) => graph.dot_name(),
        NodeKind::EventRecord(_) => "EVENT_RECORD".to_owned(),
        NodeKind::EventWait(_) => "EVENT_WAIT".to_owned(),
        NodeKind::Value(_) => "BATCH_MEM_OP".to_owned(),
        NodeKind::MemAlloc(alloc) => format!("MEM_ALLOC\\n({})", alloc.bytes),
        NodeKind::MemFree(_) => "MEM_FREE".to_owned(),
        NodeKind::Conditional(conditional) => format!("CONDITIONAL\\n({})", conditional.kind.name()),
    }
}

fn verbose_label(kind: &NodeKind<Graph>) -> String {
    let brief = brief_label(kind);
    match kind {
        NodeKind::Empty | NodeKind::Child(_) => brief,
        NodeKind::Memcpy(copy) => format!("{brief}\\nsrc: {}\\ndst: {}", operand(&copy.src), operand(&copy.dst)),
        NodeKind::Memset(fill) => {
            format!("{brief}\\ndst: {:#x} pitch: {} element size: {}", fill.dst, fill.pitch, fill.element_bytes)
        }
        NodeKind::Kernel(launch) => format!("{brief}\\nfunc: {:#x}", launch.function),
        NodeKind::Host(call) => format!("{brief}\\nfn: {:#x}\\nuserData: {:#x}", call.address(), call.user_data),
        NodeKind::EventRecord(event) | NodeKind::EventWait(event) => format!("{brief}\\nevent: {event:#x}"),
        NodeKind::Value(op) => format!("{brief}\\naddress: {:#x} value: {:#x}", op.address, op.value),
        NodeKind::MemAlloc(alloc) => format!("{brief}\\ndptr: {:#x}", alloc.address),
        NodeKind::MemFree(address) => format!("{brief}\\ndptr: {address:#x}"),
        NodeKind::Conditional(conditional) => format!("{brief}\\nhandle: {:#x}", conditional.condition),
    }
}

fn operand(side: &Operand) -> String {
    let place = (side.x_bytes, side.y, side.z);
    format!("{} {:#x} at {place:?} pitch: {} height: {}", memory_type(side), side.base(), side.pitch, side.height)
}

fn memory_type(side: &Operand) -> &'static str {
    match side.memory_type {
        CUmemorytype::CU_MEMORYTYPE_HOST => "HOST",
        CUmemorytype::CU_MEMORYTYPE_DEVICE => "DEVICE",
        _ => "UNIFIED",
    }
}

fn direction(copy: &Copy3d) -> String {
    let letter = |side: &Operand| match side.memory_type {
        CUmemorytype::CU_MEMORYTYPE_HOST => 'H',
        CUmemorytype::CU_MEMORYTYPE_DEVICE => 'D',
        _ if side.owner.is_some() => 'D',
        _ => 'H',
    };
    format!("{}to{}", letter(&copy.src), letter(&copy.dst))
}

fn extent(copy: &Copy3d) -> String {
    match (copy.height, copy.depth) {
        (1, 1) => copy.width_bytes.to_string(),
        (height, 1) => format!("{}x{height}", copy.width_bytes),
        (height, depth) => format!("{}x{height}x{depth}", copy.width_bytes),
    }
}

fn fill_extent(fill: &Fill) -> String {
    if fill.height == 1 { fill.width.to_string() } else { format!("{}x{}", fill.width, fill.height) }
}
