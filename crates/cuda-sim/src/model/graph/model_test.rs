//! Random edits of a graph against a table of edges.

use proptest::prelude::*;

use super::*;

const NODES_MAX: usize = 12;

#[derive(Clone, Debug)]
enum Edit {
    Add(Vec<usize>),
    Remove(usize),
    Connect(usize, usize),
    Disconnect(usize, usize),
    Clone,
}

fn edit() -> impl Strategy<Value = Edit> {
    let node = 0..NODES_MAX;
    prop_oneof![
        4 => prop::collection::vec(node.clone(), 0..4).prop_map(Edit::Add),
        1 => node.clone().prop_map(Edit::Remove),
        6 => (node.clone(), node.clone()).prop_map(|(from, to)| Edit::Connect(from, to)),
        2 => (node.clone(), node).prop_map(|(from, to)| Edit::Disconnect(from, to)),
        1 => Just(Edit::Clone),
    ]
}

/// Which nodes there are, and which edges, by the place a node got when it was added.
struct Table {
    alive: Vec<bool>,
    edge: [[bool; 64]; 64],
}

impl Table {
    fn is_alive(&self, node: usize) -> bool {
        self.alive.get(node).copied().unwrap_or(false)
    }

    fn add(&mut self, after: &[usize]) -> bool {
        let distinct = after.iter().enumerate().all(|(index, node)| !after[..index].contains(node));
        let good = distinct && after.iter().all(|&node| self.is_alive(node));
        if good {
            for &from in after {
                self.edge[from][self.alive.len()] = true;
            }
            self.alive.push(true);
        }
        good
    }

    fn remove(&mut self, node: usize) -> bool {
        let good = self.is_alive(node);
        if good {
            self.alive[node] = false;
            self.edge[node] = [false; 64];
            self.edge.iter_mut().for_each(|row| row[node] = false);
        }
        good
    }

    fn set(&mut self, from: usize, to: usize, present: bool) -> bool {
        let good = self.is_alive(from) && self.is_alive(to) && from != to && self.edge[from][to] != present;
        if good {
            self.edge[from][to] = present;
        }
        good
    }

    /// Transitive closure by Warshall's rule.
    fn has_cycle(&self) -> bool {
        let mut reach = self.edge;
        for middle in 0..64 {
            for from in 0..64 {
                if reach[from][middle] {
                    let through = reach[middle];
                    reach[from].iter_mut().zip(through).for_each(|(to, more)| *to |= more);
                }
            }
        }
        (0..64).any(|node| reach[node][node])
    }
}

struct Pair {
    graph: Graph,
    ids: Vec<NodeId>,
    table: Table,
    next: u64,
}

impl Pair {
    fn id(&self, node: usize) -> NodeId {
        self.ids.get(node).copied().unwrap_or(NodeId(0))
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Does one edit on both sides; whether both took it.
    fn apply(&mut self, edit: &Edit) -> (bool, bool) {
        match edit {
            Edit::Add(after) => {
                let id = NodeId(self.next());
                let ids: Vec<NodeId> = after.iter().map(|&node| self.id(node)).collect();
                let added = self.graph.add(NodeKind::Empty, &ids, id).is_ok();
                self.ids.extend(added.then_some(id));
                (added, self.table.add(after))
            }
            Edit::Remove(node) => (self.graph.remove(self.id(*node)).is_ok(), self.table.remove(*node)),
            Edit::Connect(from, to) => {
                let edge = (self.id(*from), self.id(*to));
                (self.graph.add_dependencies(&[edge]).is_ok(), self.table.set(*from, *to, true))
            }
            Edit::Disconnect(from, to) => {
                let edge = (self.id(*from), self.id(*to));
                (self.graph.remove_dependencies(&[edge]).is_ok(), self.table.set(*from, *to, false))
            }
            Edit::Clone => {
                let mut next = self.next;
                let clone = self.graph.copy(&mut || {
                    next += 1;
                    next
                });
                self.next = next;
                self.ids.iter_mut().for_each(|id| *id = clone.find_in_clone(*id).unwrap_or(NodeId(0)));
                self.graph = clone;
                (true, true)
            }
        }
    }

    fn edges(&self) -> Vec<(usize, usize)> {
        let place = |id| self.ids.iter().position(|&other| other == id).expect("a known node");
        let mut edges: Vec<_> = self.graph.edges().map(|(from, to)| (place(from), place(to))).collect();
        edges.sort_unstable();
        edges
    }
}

fn table_edges(table: &Table) -> Vec<(usize, usize)> {
    let all = (0..64).flat_map(|from| (0..64).map(move |to| (from, to)));
    all.filter(|&(from, to)| table.edge[from][to]).collect()
}

proptest! {
    #[test]
    fn edits_agree_with_a_table(edits in prop::collection::vec(edit(), 0..60)) {
        let table = Table { alive: Vec::new(), edge: [[false; 64]; 64] };
        let mut pair = Pair { graph: Graph::new(GraphId(1)), ids: Vec::new(), table, next: 1 };
        for edit in &edits {
            let (graph_took, table_took) = pair.apply(edit);
            prop_assert_eq!(graph_took, table_took, "{:?}", edit);
            prop_assert!(pair.graph.is_valid());
            prop_assert_eq!(pair.edges(), table_edges(&pair.table));
            prop_assert_eq!(pair.graph.len(), pair.table.alive.iter().filter(|&&alive| alive).count());
        }
        check_exec(&pair)?;
    }
}

/// The executable graph sorts what has no cycle, and takes an update from a clone but not from one with an edge less.
fn check_exec(pair: &Pair) -> Result<(), TestCaseError> {
    let exec = ExecGraph::new(&pair.graph);
    prop_assert_eq!(exec.is_err(), pair.table.has_cycle());
    let Ok(mut exec) = exec else { return Ok(()) };
    let steps = exec.steps();
    prop_assert_eq!(steps.len(), pair.graph.len());
    for (index, step) in steps.iter().enumerate() {
        let node = pair.graph.node(step.node).expect("a node of the graph");
        let before: Vec<NodeId> = step.dependencies.iter().map(|&place| steps[place].node).collect();
        prop_assert_eq!(before, node.dependencies());
        prop_assert!(step.dependencies.iter().all(|&place| place < index));
    }
    let mut next = pair.next;
    let mut clone = pair.graph.copy(&mut || {
        next += 1;
        next
    });
    prop_assert_eq!(exec.update(&clone), Ok(()));
    let edge = clone.edges().next();
    if let Some(edge) = edge {
        clone.remove_dependencies(&[edge]).expect("an edge");
        prop_assert!(exec.update(&clone).is_err());
    }
    prop_assert_eq!(clone.sinks_first().len(), clone.len());
    Ok(())
}
