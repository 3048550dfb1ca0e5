//! Scripts that PyTorch's native allocator answered on an H200 (`tests/golden`), step by step on the model driver:
//! every address, every call for a segment, every figure and the final layout must be the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::tests::{Model, on};
use super::*;

const DEVICE: DeviceIndex = DeviceIndex(0);
const CAPTURE_STREAM: usize = 9;

/// One script being replayed.
struct Replay {
    model: Model,
    allocator: CachingAllocator,
    total_memory: f64,
    live: HashMap<String, u64>,
    graphs: HashMap<String, PoolId>,
    captures: u64,
    open: Option<PoolId>,
    /// Driver calls expected in the next step.
    expected: Vec<String>,
}

impl Replay {
    fn new(header: &str) -> Self {
        let total = header.split("total_memory=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let total: u64 = total.parse().unwrap();
        let model = Model::new(total);
        model.capturing.set(None);
        Self {
            model,
            allocator: CachingAllocator::new(1),
            total_memory: total as f64,
            live: HashMap::new(),
            graphs: HashMap::new(),
            captures: 0,
            open: None,
            expected: Vec::new(),
        }
    }

    fn step(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [">", "segment_alloc", address, bytes, _] => {
                self.model.prescribed.borrow_mut().push_back(hex(address));
                self.expected.push(format!("segment_alloc {address} {bytes}"));
                return;
            }
            [">", "segment_free", address, bytes, _] => {
                self.expected.push(format!("segment_free {address} {bytes}"));
                return;
            }
            [">", "free_completed", address, ..] => return self.complete(hex(address)),
            ["s", ..] => self.compare_stats(line[2..].trim()),
            ["snapshot", ..] => assert_eq!(self.snapshot(), line["snapshot ".len()..].trim()),
            _ => self.act(&words),
        }
        assert_eq!(self.allocator.inconsistency(), None, "after {line}");
        // Calls made by other steps are listed before the next of these; those after the last are not listed.
        if matches!(words[0], "a" | "o") {
            self.model.idle.borrow_mut().clear();
            self.compare_calls(line);
        }
    }

    fn act(&mut self, words: &[&str]) {
        let Self { model, allocator, .. } = self;
        let number = |text: &str| text.parse::<u64>().unwrap();
        let handle = |text: &str| text.parse::<usize>().unwrap();
        match *words {
            ["a", id, bytes, stream, "=", address, "alloc"] => {
                let got = allocator.alloc(model, on(handle(stream)), number(bytes)).unwrap();
                assert_eq!(got, hex(address));
                self.live.insert(id.to_owned(), got);
            }
            ["o", _, bytes, stream, ..] => {
                let error = allocator.alloc(model, on(handle(stream)), number(bytes)).unwrap_err();
                assert!(error.is_out_of_memory(), "{error}");
            }
            ["f", id] => allocator.free(model, self.live.remove(id).unwrap()).unwrap(),
            ["r", id, stream] => allocator.record_stream(self.live[id], on(handle(stream))).unwrap(),
            ["y"] => model.pending.borrow_mut().clear(),
            ["e"] => allocator.empty_cache(model).unwrap(),
            ["p"] => allocator.reset_peak_stats(DEVICE).unwrap(),
            ["m", fraction] => model.capacity.set(limit(self.total_memory, fraction.parse().unwrap())),
            ["gb", graph, shared] => {
                let pool = self.graphs.get(shared).copied().unwrap_or_else(PoolId::for_capture);
                self.captures += 1;
                let filter = Filter::Capture(Arc::new(AtomicU64::new(self.captures)));
                allocator.begin_allocate_to_pool(DEVICE, pool, filter).unwrap();
                model.capturing.set(Some((CAPTURE_STREAM, self.captures)));
                self.graphs.insert(graph.to_owned(), pool);
                self.open = Some(pool);
            }
            ["ge"] => {
                model.capturing.set(None);
                allocator.end_allocate_to_pool(DEVICE, self.open.take().unwrap()).unwrap();
            }
            ["gr", graph] => allocator.release_pool(DEVICE, self.graphs.remove(graph).unwrap()).unwrap(),
            _ => panic!("no step {words:?}"),
        }
    }

    /// Lets the events of one block pass, those it has and those that the next allocation records for it.
    fn complete(&mut self, address: u64) {
        let device = lock(&self.allocator.devices[0]);
        for (event, block) in device.pending.queues.values().flatten() {
            if device.blocks.get(*block).address == address {
                self.model.pending.borrow_mut().remove(&event.0);
            }
        }
        for block in device.pending.deferred.iter().map(|id| device.blocks.get(*id)) {
            let streams = block.uses.iter().filter(|_| block.address == address).map(|used| used.stream.handle);
            self.model.idle.borrow_mut().extend(streams);
        }
    }

    fn compare_calls(&mut self, line: &str) {
        let mut expected = std::mem::take(&mut self.expected);
        let mut made = std::mem::take(&mut *self.model.log.borrow_mut());
        expected.sort();
        made.sort();
        assert_eq!(made, expected, "driver calls of {line}");
    }

    fn compare_stats(&self, expected: &str) {
        let mut ours = self.allocator.stats(DEVICE).unwrap().flatten();
        ours.retain(|_, value| *value != 0);
        let pairs = expected.trim_matches(['{', '}']).split(", ").map(|pair| pair.split_once(": ").unwrap());
        let theirs: BTreeMap<String, i64> =
            pairs.map(|(key, value)| (key.trim_matches('"').to_owned(), value.parse().unwrap())).collect();
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        let differ: Vec<_> = keys
            .into_iter()
            .filter(|key| ours.get(*key) != theirs.get(*key))
            .map(|key| format!("{key}: {:?} for {:?}", ours.get(key), theirs.get(key)))
            .collect();
        assert!(differ.is_empty(), "{}", differ.join(", "));
    }

    /// The layout in the golden data's own notation.
    fn snapshot(&self) -> String {
        let device = lock(&self.allocator.devices[0]);
        let mut segments = BTreeMap::new();
        for (_, head) in device.blocks.iter().filter(|(_, block)| block.prev.is_none()) {
            let (mut blocks, mut total, mut next) = (Vec::new(), 0, Some(head));
            while let Some(block) = next {
                let state = match (block.allocated, block.is_pending()) {
                    (true, _) => "active_allocated",
                    (false, true) => "active_pending_free",
                    (false, false) => "inactive",
                };
                blocks.push(format!("[{}, \"{state}\", {}]", block.size, block.requested));
                total += block.size;
                next = block.next.map(|next| device.blocks.get(next));
            }
            let class = match device.pools.get(head.pool).class {
                size_class::SizeClass::Small => "small",
                size_class::SizeClass::Large => "large",
            };
            let blocks = blocks.join(", ");
            let text = format!("[\"{:#x}\", {total}, {}, \"{class}\", [{blocks}]]", head.address, head.stream.0);
            segments.insert(head.address, text);
        }
        format!("[{}]", segments.into_values().collect::<Vec<_>>().join(", "))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the device's memory")]
fn limit(total: f64, fraction: f64) -> u64 {
    (total * fraction) as u64
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

fn replay(path: &Path) {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut lines = text.lines().enumerate();
    let mut replay = Replay::new(lines.next().unwrap().1);
    for (number, line) in lines.filter(|(_, line)| !line.starts_with('#')) {
        let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| replay.step(line)));
        assert!(step.is_ok(), "{}: line {}: {line}", path.display(), number + 1);
    }
}

fn replay_kind(kind: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(&format!("default.{kind}.")) {
            replay(&path);
            count += 1;
        }
    }
    assert_eq!(count, 5, "scripts of {kind}");
}

#[test]
fn plain_scripts_agree() {
    replay_kind("plain");
}

#[test]
fn out_of_memory_scripts_agree() {
    replay_kind("oom");
}

#[test]
fn graph_scripts_agree() {
    replay_kind("graphs");
}
