//! Random programs of collectives and messages, and what plain loops say their results are; and groups without end.
//!
//! Each rank makes the same program from its seed, and knows what every other rank gives, so that it can say what must come.

#![expect(clippy::wildcard_enum_match_arm, reason = "a few reductions are in the programs")]

use std::time::{Duration, Instant};

use aten_cuda::{DType, Device, Tensor};
use cuda_dist::{GroupOptions, P2POp, ProcessGroup, ReduceOp, Work};

/// How many programs there are of all sizes together.
pub(crate) const PROGRAMS: u64 = 1000;
/// The sizes of groups.
pub(crate) const SIZES: std::ops::RangeInclusive<usize> = 2..=8;
/// Of how many ranks a program is: small groups more often, since large ones take the time of all their threads.
const SIZE_OF: [usize; 16] = [2, 3, 4, 5, 2, 3, 4, 6, 2, 3, 4, 7, 2, 3, 5, 8];

const ARITHMETIC: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
const BITS: [ReduceOp; 3] = [ReduceOp::BAnd, ReduceOp::BOr, ReduceOp::BXor];

/// Numbers that depend on a seed alone.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// A step: which call, how many elements, which root, which reduction.
#[derive(Debug, Clone, Copy)]
struct Step {
    number: usize,
    kind: usize,
    count: usize,
    root: usize,
    op: ReduceOp,
}

/// A rank and its group while a program runs.
struct Player<'a> {
    group: &'a ProcessGroup,
    rank: usize,
    size: usize,
    device: Option<Device>,
}

/// The share of the programs that a group of some size runs.
pub(crate) fn run_programs(group: &ProcessGroup) {
    let (rank, size, device) = (group.rank(), group.size(), group.device());
    let player = Player { group, rank, size, device };
    for seed in (0..PROGRAMS).filter(|seed| SIZE_OF[(seed % 16) as usize] == size) {
        let mut numbers = Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for number in 0..1 + numbers.below(2) {
            let kind = numbers.below(15);
            let with_bits = device.is_none() && numbers.below(3) == 0;
            let op = if with_bits { BITS[numbers.below(3)] } else { ARITHMETIC[numbers.below(4)] };
            let step = Step { number, kind, count: numbers.below(5), root: numbers.below(size), op };
            let context = format!("seed {seed}, rank {rank} of {size}, {step:?}");
            let (got, expected) = player.run(step);
            assert_eq!(got, expected, "{context}");
        }
    }
}

fn made_one(op: ReduceOp, values: impl Iterator<Item = i64>) -> i64 {
    let of: fn(i64, i64) -> i64 = match op {
        ReduceOp::Sum => i64::wrapping_add,
        ReduceOp::Product => i64::wrapping_mul,
        ReduceOp::Min => i64::min,
        ReduceOp::Max => i64::max,
        ReduceOp::BAnd => |a, b| a & b,
        ReduceOp::BOr => |a, b| a | b,
        ReduceOp::BXor => |a, b| a ^ b,
        _ => panic!("no plain loop for {op}"),
    };
    values.reduce(of).unwrap()
}

/// What a rank gives, to all or to one other.
fn given(step: Step, from: usize, to: usize, count: usize) -> Vec<i64> {
    (0..count).map(|place| ((step.number * 7 + from * 3 + to * 13 + place * 5) % 11) as i64 - 4).collect()
}

/// How many elements a rank gives another one where that differs.
fn uneven(step: Step, from: usize, to: usize) -> usize {
    (step.count + from * 2 + to) % 4
}

type Rows = Vec<Vec<i64>>;

impl Player<'_> {
    fn tensor(&self, values: &[i64]) -> Tensor {
        let tensor = Tensor::from_slice(values, &[values.len() as i64]).unwrap();
        self.device.map_or_else(|| tensor.clone(), |device| tensor.to_device(device).unwrap())
    }

    fn empty(&self, count: usize) -> Tensor {
        self.tensor(&vec![0; count])
    }

    fn read(&self, work: cuda_dist::Result<Work>, tensors: &[Tensor]) -> Rows {
        work.unwrap().wait().unwrap();
        tensors.iter().map(|tensor| tensor.to_vec::<i64>().unwrap()).collect()
    }

    /// What a step gave this rank, and what it was to give.
    fn run(&self, step: Step) -> (Rows, Rows) {
        match step.kind {
            0..=5 => self.whole(step),
            6..=9 => self.lists(step),
            10 | 11 => self.all_to_all(step),
            12 => self.ring(step),
            13 => self.objects(step),
            _ => self.message(step),
        }
    }

    fn whole(&self, step: Step) -> (Rows, Rows) {
        let Step { kind, count, root, op, .. } = step;
        let total = if kind == 4 { count * self.size } else { count };
        let all: Rows = (0..self.size).map(|rank| given(step, rank, 0, total)).collect();
        let reduced: Vec<i64> = (0..total).map(|place| made_one(op, all.iter().map(|one| one[place]))).collect();
        let own = all[self.rank].clone();
        let input = self.tensor(&own);
        let group = self.group;
        let (work, output, expected) = match kind {
            0 => (group.all_reduce(&input, op), input, reduced),
            1 => (group.reduce(&input, root, op), input, if self.rank == root { reduced } else { own }),
            2 => (group.broadcast(&input, root), input, all[root].clone()),
            3 => {
                let output = self.empty(count * self.size);
                (group.all_gather_into_tensor(&output, &input), output, all.concat())
            }
            4 => {
                let output = self.empty(count);
                let work = group.reduce_scatter_tensor(&output, &input, op);
                (work, output, reduced[self.rank * count..][..count].to_vec())
            }
            _ => (group.barrier(), self.empty(0), Vec::new()),
        };
        (self.read(work, &[output]), vec![expected])
    }

    fn lists(&self, step: Step) -> (Rows, Rows) {
        let Step { kind, count, root, op, .. } = step;
        let to_all: Rows = (0..self.size).map(|rank| given(step, rank, 0, count)).collect();
        let from = |rank: usize| -> Rows { (0..self.size).map(|to| given(step, rank, to, count)).collect() };
        let tensors = |rows: Rows| -> Vec<Tensor> { rows.iter().map(|row| self.tensor(row)).collect() };
        let outputs: Vec<Tensor> = (0..self.size).map(|_| self.empty(count)).collect();
        let (own, output, is_root) = (self.tensor(&to_all[self.rank]), self.empty(count), self.rank == root);
        match kind {
            6 => (self.read(self.group.all_gather(&outputs, &own), &outputs), to_all),
            7 => {
                let work = self.group.reduce_scatter(&output, &tensors(from(self.rank)), op);
                let of_all: Rows = (0..self.size).map(|rank| given(step, rank, self.rank, count)).collect();
                let reduced = (0..count).map(|place| made_one(op, of_all.iter().map(|one| one[place]))).collect();
                (self.read(work, &[output]), vec![reduced])
            }
            8 => {
                let work = self.group.gather(&own, is_root.then_some(&outputs), root);
                if is_root { (self.read(work, &outputs), to_all) } else { (self.read(work, &[]), Vec::new()) }
            }
            _ => {
                let inputs = is_root.then(|| tensors(from(root)));
                let work = self.group.scatter(&output, inputs.as_deref(), root);
                (self.read(work, &[output]), vec![given(step, root, self.rank, count)])
            }
        }
    }

    fn all_to_all(&self, step: Step) -> (Rows, Rows) {
        let gives = |from: usize, to: usize| given(step, from, to, uneven(step, from, to));
        let inputs: Rows = (0..self.size).map(|to| gives(self.rank, to)).collect();
        let expected: Rows = (0..self.size).map(|from| gives(from, self.rank)).collect();
        if step.kind == 10 {
            let given: Vec<Tensor> = inputs.iter().map(|row| self.tensor(row)).collect();
            let outputs: Vec<Tensor> = expected.iter().map(|row| self.empty(row.len())).collect();
            return (self.read(self.group.all_to_all(&outputs, &given), &outputs), expected);
        }
        let lengths = |rows: &Rows| -> Vec<usize> { rows.iter().map(Vec::len).collect() };
        let output = self.empty(lengths(&expected).iter().sum());
        let (gets, given) = (lengths(&expected), lengths(&inputs));
        let input = self.tensor(&inputs.concat());
        let work = self.group.all_to_all_single(&output, &input, Some(&gets), Some(&given));
        (self.read(work, &[output]), vec![expected.concat()])
    }

    /// Each rank sends to one and receives from another.
    fn ring(&self, step: Step) -> (Rows, Rows) {
        let shift = 1 + step.root % (self.size - 1);
        let (to, from) = ((self.rank + shift) % self.size, (self.rank + self.size - shift) % self.size);
        let count = step.count + 1;
        let (input, output) = (self.tensor(&given(step, self.rank, to, count)), self.empty(count));
        let messages = [P2POp::isend(&input, to), P2POp::irecv(&output, from)];
        let works = self.group.batch_isend_irecv(&messages).unwrap();
        works.iter().for_each(|work| work.wait().unwrap());
        (vec![output.to_vec::<i64>().unwrap()], vec![given(step, from, self.rank, count)])
    }

    fn objects(&self, step: Step) -> (Rows, Rows) {
        let bytes = |rank: usize| [7, 0, 255][rank % 3..].repeat((step.count + rank) % 3);
        let got = self.group.all_gather_object(&bytes(self.rank)).unwrap();
        let rows =
            |objects: Vec<Vec<u8>>| objects.into_iter().map(|object| object.into_iter().map(i64::from).collect());
        (rows(got).collect(), rows((0..self.size).map(bytes).collect()).collect())
    }

    /// One rank sends to another; the rest goes on.
    fn message(&self, step: Step) -> (Rows, Rows) {
        let (from, to) = (step.root, (step.root + 1 + step.count % (self.size - 1)) % self.size);
        let (values, tag) = (given(step, from, to, step.count + 1), if self.device.is_none() { 3 } else { 0 });
        if self.rank == from {
            self.group.send(&self.tensor(&values), to, tag).unwrap();
        }
        if self.rank != to {
            return (Vec::new(), Vec::new());
        }
        let output = Tensor::zeros(&[step.count as i64 + 1], DType::I64, "cpu").unwrap();
        let output = self.device.map_or_else(|| output.clone(), |device| output.to_device(device).unwrap());
        assert_eq!(self.group.recv(&output, Some(from), tag).unwrap(), from);
        (vec![output.to_vec::<i64>().unwrap()], vec![values])
    }
}

/// A line of `/proc/self/status`, as a number.
fn own(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Makes and destroys 10,000 groups of one rank, each from a group of one rank: no thread, descriptor or key stays.
pub(crate) fn make_ten_thousand(whole: &ProcessGroup) {
    let before = (own("Threads"), descriptors(), whole.store().num_keys().unwrap());
    for number in 0..10_000 {
        let group = whole.new_group(&[0], &GroupOptions::default()).unwrap();
        if number % 100 == 0 {
            group.barrier().unwrap().wait().unwrap();
        }
        group.destroy().unwrap();
    }
    let begin = Instant::now();
    // Other tests of the program have threads and files too, but none as many as these groups had.
    let are_many = || own("Threads") > before.0 + 100 || descriptors() > before.1 + 100;
    while are_many() {
        let now = (own("Threads"), descriptors());
        assert!(begin.elapsed() < Duration::from_secs(20), "threads and files: {now:?}, before {before:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(whole.store().num_keys().unwrap(), before.2);
}
