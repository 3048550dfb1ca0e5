//! The results of one device: which solution each product has.
//!
//! **Invariants:** a product has one solution, and what is there already beats what a file says later. A row whose
//! signature is none is kept, shown and otherwise without effect, as in torch.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use super::file::Row;
use super::search::DEFAULT;
use super::signature::Problem;

/// Where a result is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A file of torch's, in which there is the default alone.
    Torch,
    /// A search here, or the file of an earlier one.
    Own,
}

/// A candidate that a name stands for.
pub(super) type Resolved = Arc<dyn Any + Send + Sync>;

/// The solution of one product.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) solution: String,
    /// Milliseconds; 0 where nobody measured.
    pub(super) time: f64,
    /// What the default took in the same search, in milliseconds.
    pub(super) default_time: f64,
    pub(super) origin: Origin,
    /// The candidate of the name, once it was looked up.
    pub(super) resolved: OnceLock<Resolved>,
}

impl Entry {
    pub(super) fn new(solution: String, time: f64, origin: Origin) -> Self {
        Self { solution, time, default_time: time, origin, resolved: OnceLock::new() }
    }

    pub(super) fn is_default(&self) -> bool {
        self.solution == DEFAULT
    }

    /// Whether a search may still find something better: torch's files know the default alone.
    pub(super) fn is_untuned(&self) -> bool {
        self.origin == Origin::Torch && self.is_default()
    }
}

/// The results of one device.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<Problem, Arc<Entry>, BuildHasherDefault<Quick>>,
    /// Rows whose signatures are none: solution and time.
    others: BTreeMap<(String, String), (String, f64)>,
}

impl Table {
    pub(super) fn get(&self, problem: &Problem) -> Option<&Arc<Entry>> {
        self.entries.get(problem)
    }

    /// What a search found takes the place of what a file said.
    pub(super) fn insert(&mut self, problem: Problem, entry: Entry) {
        self.entries.insert(problem, Arc::new(entry));
    }

    pub(super) fn remove(&mut self, problem: &Problem) {
        self.entries.remove(problem);
    }

    /// Takes the rows of a file. What is there already stays, unless it is torch's default and the row is from a search.
    /// Answers the rows that contradict what stays.
    pub(super) fn load(&mut self, rows: Vec<Row>, origin: Origin) -> Vec<Row> {
        let mut refused = Vec::new();
        for row in rows {
            let Ok(problem) = Problem::parse(&row.op, &row.params) else {
                self.others.entry((row.op, row.params)).or_insert((row.solution, row.time));
                continue;
            };
            match self.entries.get(&problem) {
                Some(known) if !(known.is_untuned() && origin == Origin::Own) => {
                    if known.solution != row.solution {
                        refused.push(row);
                    }
                }
                _ => {
                    self.entries.insert(problem, Arc::new(Entry::new(row.solution, row.time, origin)));
                }
            }
        }
        refused
    }

    /// Everything, in the order of the signatures.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .entries
            .iter()
            .map(|(problem, entry)| Row {
                op: problem.op(),
                params: problem.own_params(),
                solution: entry.solution.clone(),
                time: entry.time,
            })
            .collect();
        rows.extend(self.others.iter().map(|((op, params), (solution, time))| Row {
            op: op.clone(),
            params: params.clone(),
            solution: solution.clone(),
            time: *time,
        }));
        rows.sort_by(|a, b| (&a.op, &a.params).cmp(&(&b.op, &b.params)));
        rows
    }
}

/// A hasher for keys of some words, in a table whose keys nobody chooses to do harm.
#[derive(Default)]
struct Quick(u64);

impl Quick {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn finish(&self) -> u64 {
        // The table looks at the high bits and at the low ones.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(params: &str, solution: &str) -> Row {
        Row { op: "GemmTunableOp_Half_NN".into(), params: params.into(), solution: solution.into(), time: 0.5 }
    }

    #[test]
    fn what_is_there_stays() {
        let mut table = Table::default();
        let first = row("nn_1_2_3_ld_1_3_1", "Default");
        assert!(table.load(vec![first.clone(), row("bar", "Default")], Origin::Torch).is_empty());
        let second = row("nn_1_2_3_ld_1_3_1", "Other");
        let refused = table.load(vec![second.clone(), row("bar", "Other")], Origin::Torch);
        assert_eq!(refused, std::slice::from_ref(&second));
        assert_eq!(table.rows(), [row("bar", "Default"), first.clone()]);
        // A search knows more than torch's file.
        assert!(table.load(vec![second.clone()], Origin::Own).is_empty());
        assert_eq!(table.load(vec![first.clone()], Origin::Torch), [first]);
        assert_eq!(table.rows(), [row("bar", "Default"), second]);
    }
}
