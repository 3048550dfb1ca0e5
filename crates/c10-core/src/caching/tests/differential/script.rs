//! Scripts: what is done to both allocators, in the peer's language, and random ones.
//!
//! **Invariants:** a seed stands for one script, always the same. A script asks for nothing that ends in one of the
//! peer's own assertions: pools are used only between their making and the last of their releases (see [`Pools`]), and
//! the option `max_split_size_mb` keeps its value.

use std::collections::BTreeMap;
use std::fmt;

use crate::base::ids::PoolId;

const MIB: u64 = 1 << 20;

/// Streams that allocate; a multiple of 16 is a handle that the peer takes for one.
const STREAMS: [u64; 4] = [0, 16, 32, 48];

/// Operations at the end of a script in which pools of expandable segments may be given up, which can end it early.
const ENDING: usize = 60;

/// One thing to do. Identifiers of memory that was never handed out stand for nothing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Op {
    Alloc {
        id: u32,
        bytes: u64,
        stream: u64,
    },
    Free {
        id: u32,
    },
    Record {
        id: u32,
        stream: u64,
    },
    /// The work queued on a stream so far is done.
    Done {
        stream: u64,
    },
    Empty,
    /// Opens a scope that takes the allocations of one stream, or all.
    Begin {
        pool: PoolId,
        stream: Option<u64>,
    },
    /// Opens a scope that is open, which is refused.
    BeginAgain {
        pool: PoolId,
    },
    End {
        pool: PoolId,
    },
    Release {
        pool: PoolId,
    },
    /// Makes a pool, or counts one more use of it.
    Make {
        pool: PoolId,
        use_on_oom: bool,
        no_split: bool,
    },
    /// Ends what `Make` began, as the destructor of torch's `MemPool` does.
    Close {
        pool: PoolId,
    },
    Options(String),
    /// Bytes that the device lends from now on.
    Capacity(u64),
    /// The part of the device's memory that may be held from now on.
    Fraction(f64),
    ResetPeak,
    ResetAccumulated,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc { id, bytes, stream } => write!(f, "a {id} {bytes} {stream}"),
            Self::Free { id } => write!(f, "f {id}"),
            Self::Record { id, stream } => write!(f, "r {id} {stream}"),
            Self::Done { stream } => write!(f, "done {stream}"),
            Self::Empty => f.write_str("e"),
            Self::Begin { pool: PoolId(a, b), stream: None } => write!(f, "begin {a} {b}"),
            Self::Begin { pool: PoolId(a, b), stream: Some(stream) } => write!(f, "begin {a} {b} {stream}"),
            // The peer counts a use before it refuses.
            Self::BeginAgain { pool: PoolId(a, b) } => write!(f, "begin {a} {b}\nrelease {a} {b}"),
            Self::End { pool: PoolId(a, b) } => write!(f, "end {a} {b}"),
            Self::Release { pool: PoolId(a, b) } => write!(f, "release {a} {b}"),
            Self::Make { pool: PoolId(a, b), use_on_oom, no_split } => {
                write!(f, "mkpool {a} {b}")?;
                if *use_on_oom {
                    write!(f, "\noompool {a} {b} 1")?;
                }
                if *no_split { write!(f, "\nnosplit {a} {b}") } else { Ok(()) }
            }
            Self::Close { pool: PoolId(a, b) } => write!(f, "oompool {a} {b} 0\nrelease {a} {b}\ne {a} {b}"),
            Self::Options(text) => write!(f, "conf {text}"),
            Self::Capacity(bytes) => write!(f, "cap {bytes}"),
            Self::Fraction(part) => write!(f, "frac {part}"),
            Self::ResetPeak => f.write_str("resetpeak"),
            Self::ResetAccumulated => f.write_str("resetacc"),
        }
    }
}

/// What both start with, and what is done then.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Script {
    pub(crate) options: String,
    /// Bytes that the device lends.
    pub(crate) capacity: u64,
    /// Bytes that it says it has.
    pub(crate) total: u64,
    pub(crate) ops: Vec<Op>,
}

impl Script {
    /// What the peer is told before the first operation; it makes its allocator at the request for nothing.
    pub(crate) fn preamble(&self) -> String {
        let Self { options, capacity, total, .. } = self;
        format!("conf {options}\ncap {capacity}\ntotal {total}\na 0 0 0\n")
    }

    /// Whether memory can be in expandable segments at some time.
    pub(crate) fn expands(&self) -> bool {
        let later = self.ops.iter().filter_map(|op| if let Op::Options(text) = op { Some(text) } else { None });
        std::iter::once(&self.options).chain(later).any(|text| text.contains(EXPANDABLE))
    }

    /// Whether every step may be taken after those before it.
    pub(crate) fn is_valid(&self) -> bool {
        let mut pools = Pools::default();
        self.ops.iter().all(|op| pools.admit(op))
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.preamble())?;
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

const EXPANDABLE: &str = "expandable_segments:True";

/// The private pools as a script leaves them.
#[derive(Default)]
pub(crate) struct Pools(BTreeMap<PoolId, Uses>);

#[derive(Clone, Copy)]
struct Uses {
    count: u32,
    open: bool,
    lends: bool,
    made: bool,
}

impl Pools {
    /// Takes a step if it is allowed; an unused pool is never used again, and one that lends its memory takes all
    /// allocations of a scope or none, since the peer cannot lend from a pool whose scope it is in.
    pub(crate) fn admit(&mut self, op: &Op) -> bool {
        match op {
            Op::Begin { pool, stream } => {
                let fresh = Uses { count: 0, open: false, lends: false, made: false };
                let uses = self.0.get(pool).copied();
                if uses.is_some_and(|uses| uses.count == 0 || uses.open || (uses.lends && stream.is_some())) {
                    return false;
                }
                let uses = uses.unwrap_or(fresh);
                self.0.insert(*pool, Uses { count: uses.count + 1, open: true, ..uses });
                true
            }
            Op::BeginAgain { pool } => self.0.get(pool).is_some_and(|uses| uses.open),
            Op::End { pool } => {
                self.0.get_mut(pool).into_iter().for_each(|uses| uses.open = false);
                true
            }
            Op::Release { pool } => self.0.get_mut(pool).is_some_and(|uses| {
                let last = uses.count == 1;
                let allowed = uses.count > 0 && !(last && (uses.open || uses.made));
                uses.count -= u32::from(allowed);
                allowed
            }),
            Op::Make { pool, use_on_oom, no_split } => match self.0.get_mut(pool) {
                Some(uses) => {
                    let allowed = uses.count > 0 && !use_on_oom && !no_split;
                    uses.count += u32::from(allowed);
                    allowed
                }
                None => {
                    self.0.insert(*pool, Uses { count: 1, open: false, lends: *use_on_oom, made: true });
                    true
                }
            },
            Op::Close { pool } => {
                let scoped = self.0.values().any(|uses| uses.open);
                self.0.get_mut(pool).is_some_and(|uses| {
                    let allowed = !scoped && uses.made;
                    if allowed {
                        *uses = Uses { count: uses.count - 1, lends: false, made: false, ..*uses };
                    }
                    allowed
                })
            }
            Op::Alloc { .. } | Op::Free { .. } | Op::Record { .. } | Op::Done { .. } | Op::Empty => true,
            Op::Options(_) | Op::Capacity(_) | Op::Fraction(_) | Op::ResetPeak | Op::ResetAccumulated => true,
        }
    }

    /// Pools that somebody uses.
    pub(crate) fn used(&self) -> impl Iterator<Item = PoolId> {
        self.0.iter().filter(|(_, uses)| uses.count > 0).map(|(pool, _)| *pool)
    }
}

/// Numbers that follow from a seed. They are made here, so that a seed that somebody reported stands for its script under
/// every version of every package.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Each power of two between the ends is as likely.
    fn spread(&mut self, from: u64, to: u64) -> u64 {
        let bits = self.between(u64::from(from.ilog2()), u64::from(to.ilog2()));
        self.between(from.max(1 << bits), to.min((2 << bits) - 1))
    }
}

/// Which parts of the allocator a script is about.
struct Mix {
    name: &'static str,
    pools: bool,
    expandable: bool,
    toggles: bool,
    records: bool,
}

const MIXES: [Mix; 7] = [
    Mix { name: "plain", pools: false, expandable: false, toggles: false, records: false },
    Mix { name: "private pools", pools: true, expandable: false, toggles: false, records: false },
    Mix { name: "expandable segments", pools: false, expandable: true, toggles: false, records: false },
    Mix { name: "expandable segments, switched", pools: false, expandable: true, toggles: true, records: true },
    Mix { name: "recorded streams", pools: false, expandable: false, toggles: false, records: true },
    Mix { name: "recorded streams in private pools", pools: true, expandable: false, toggles: false, records: true },
    Mix { name: "everything", pools: true, expandable: true, toggles: true, records: true },
];

/// Options that keep their value, or change within what the peer can take.
struct Settings {
    max_split_mb: Option<u64>,
    large_segment_mb: u64,
    collects: bool,
}

impl Settings {
    /// One text of options.
    fn text(&self, numbers: &mut Numbers, expandable: bool) -> String {
        let mut options = vec![format!("expandable_segments:{}", if expandable { "True" } else { "False" })];
        options.push(format!("large_segment_size_mb:{}", self.large_segment_mb));
        if let Some(size) = self.max_split_mb {
            options.push(format!("max_split_size_mb:{size}"));
        }
        if numbers.chance(30) {
            let size = self.large_segment_mb + numbers.below(100);
            options.push(format!("max_non_split_rounding_mb:{size}"));
        }
        if self.collects {
            options.push(format!("garbage_collection_threshold:0.{}", numbers.between(1, 9)));
        }
        if numbers.chance(25) {
            options.push(format!("roundup_power2_divisions:{}", numbers.one_of(&[1, 2, 4, 8, 16])));
        } else if numbers.chance(15) {
            let table = numbers.one_of(&["[1:2,2:4,4:8,>:16]", "[4:1,8:0,16:4,>:2]", "[64:8,>:1]", "[2:16,32:2]"]);
            options.push(format!("roundup_power2_divisions:{table}"));
        }
        options.join(",")
    }
}

struct Writer {
    numbers: Numbers,
    mix: &'static Mix,
    settings: Settings,
    expandable: bool,
    capacity: u64,
    total: u64,
    limited: bool,
    sizes: Vec<u64>,
    pools: Pools,
    known: Vec<PoolId>,
    live: Vec<u32>,
    next: u32,
    most: usize,
    ops: Vec<Op>,
}

/// The script of a seed, and the name of its mix.
pub(crate) fn generate(seed: u64, operations: usize) -> (Script, &'static str) {
    let mut numbers = Numbers::new(seed);
    let mix = &MIXES[usize::try_from(numbers.below(MIXES.len() as u64)).unwrap()];
    let short = numbers.chance(65);
    // With expandable segments the peer reserves a range that is too small, and keeps it, each time it fails to serve a
    // request that is larger than the device: none is, even when it is rounded up to twice its size.
    let least = if mix.expandable { 192 * MIB } else { 96 * MIB };
    let capacity = if short { numbers.spread(least, 1500 * MIB) / 512 * 512 } else { 64 << 30 };
    let total = if short && numbers.chance(60) { capacity } else { 64 << 30 };
    let large_segment_mb = if numbers.chance(25) { numbers.between(11, 64) } else { 20 };
    // Switching lets the peer split a block that may not be, and give a part of it back when memory is short.
    let may_limit_splits = !(mix.toggles && short) && numbers.chance(35);
    let max_split_mb = may_limit_splits.then(|| large_segment_mb + numbers.below(80));
    let limited = !(mix.toggles && max_split_mb.is_some()) && numbers.chance(30);
    let settings = Settings { max_split_mb, large_segment_mb, collects: limited && numbers.chance(60) };
    let expandable = mix.expandable && (!mix.toggles || numbers.chance(50));
    let options = settings.text(&mut numbers, expandable);
    let most = usize::try_from(numbers.between(5, 70)).unwrap();
    let mut sizes = sizes(&mut numbers, capacity.min(4 << 30), mix.toggles && settings.max_split_mb.is_some());
    if let Some(most) = settings.max_split_mb {
        // Blocks that may not be split, and one that several of them make room for.
        sizes[..3].copy_from_slice(&[most, most, 2 * most].map(|size| size.min(96) * MIB));
    }
    let mut writer = Writer {
        sizes,
        numbers,
        mix,
        settings,
        expandable,
        capacity,
        total,
        limited,
        pools: Pools::default(),
        known: Vec::new(),
        live: Vec::new(),
        next: 1,
        most,
        ops: Vec::new(),
    };
    if limited {
        let op = writer.fraction();
        writer.ops.push(op);
    }
    while writer.ops.len() < operations {
        let left = operations - writer.ops.len();
        let op = writer.op(left);
        if writer.pools.admit(&op) {
            writer.ops.push(op);
        }
    }
    (Script { options, capacity, total, ops: writer.ops }, mix.name)
}

/// Sizes that a script asks for again and again: small, middle, large, and parts of the device.
fn sizes(numbers: &mut Numbers, device: u64, modest: bool) -> Vec<u64> {
    let mut sizes = Vec::new();
    for _ in 0..14 {
        sizes.push(match numbers.below(10) {
            0..=3 => numbers.spread(1, MIB),
            4..=6 => numbers.spread(MIB + 1, 10 * MIB),
            7 => numbers.spread(10 * MIB, 64 * MIB),
            // Rules change at whole mebibytes.
            8 => numbers.between(1, 64) * MIB + 512 * numbers.below(3) - 512,
            _ if modest => numbers.spread(10 * MIB, 128 * MIB),
            _ => numbers.between(device / 16, device / 2),
        });
    }
    sizes
}

impl Writer {
    fn op(&mut self, left: usize) -> Op {
        let Mix { pools, toggles, records, .. } = *self.mix;
        let numbers = &mut self.numbers;
        let ending = left < ENDING;
        if pools && numbers.chance(if ending { 14 } else { 8 }) {
            return self.pool(ending);
        }
        match numbers.below(1000) {
            0..=429 if self.live.len() < self.most || numbers.chance(30) => self.alloc(),
            0..=789 => self.free(),
            790..=869 if records => self.record(),
            870..=934 if records => Op::Done { stream: numbers.one_of(&STREAMS) },
            935..=949 => Op::Empty,
            950..=959 if toggles => self.switch(),
            960..=963 => self.other_options(),
            964..=969 if self.capacity < 64 << 30 => self.capacity(),
            970..=974 if self.limited => self.fraction(),
            975..=979 => Op::ResetPeak,
            980..=984 => Op::ResetAccumulated,
            _ => self.alloc(),
        }
    }

    fn alloc(&mut self) -> Op {
        let numbers = &mut self.numbers;
        let id = self.next;
        self.next += 1;
        self.live.push(id);
        let hopeless = !self.mix.expandable;
        let bytes = match numbers.below(200) {
            0 => 0,
            1 if hopeless => 1 << 50,
            2..=120 => numbers.one_of(&self.sizes),
            121..=130 => numbers.between(1, 96) * MIB,
            131..=150 => numbers.one_of(&self.sizes) + numbers.below(2048),
            151..=190 => numbers.spread(1, 2 * MIB),
            _ => numbers.spread(MIB, 32 * MIB),
        };
        let stream = if numbers.chance(60) { STREAMS[0] } else { numbers.one_of(&STREAMS) };
        Op::Alloc { id, bytes, stream }
    }

    fn free(&mut self) -> Op {
        if self.live.is_empty() {
            return self.alloc();
        }
        // The latest, the oldest, or any.
        let numbers = &mut self.numbers;
        let position = match numbers.below(4) {
            0 => self.live.len() - 1,
            1 => 0,
            _ => usize::try_from(numbers.below(self.live.len() as u64)).unwrap(),
        };
        Op::Free { id: self.live.remove(position) }
    }

    fn record(&mut self) -> Op {
        if self.live.is_empty() {
            return self.alloc();
        }
        let numbers = &mut self.numbers;
        let latest = self.live.len() - 1;
        let position = latest - usize::try_from(numbers.below(self.live.len().min(8) as u64)).unwrap();
        Op::Record { id: self.live[position], stream: numbers.one_of(&STREAMS) }
    }

    fn switch(&mut self) -> Op {
        self.expandable = !self.expandable;
        Op::Options(self.settings.text(&mut self.numbers, self.expandable))
    }

    fn other_options(&mut self) -> Op {
        if self.settings.max_split_mb.is_none() && self.numbers.chance(30) {
            self.settings.large_segment_mb = self.numbers.between(11, 64);
        }
        Op::Options(self.settings.text(&mut self.numbers, self.expandable))
    }

    fn capacity(&mut self) -> Op {
        Op::Capacity(self.numbers.between(self.capacity / 2, self.capacity * 3 / 2))
    }

    /// Three digits, so that both read the same number.
    fn fraction(&mut self) -> Op {
        let most = (self.capacity.min(8 << 30) * 1000 / self.total).clamp(1, 1000);
        let thousandths = u32::try_from(self.numbers.between(most / 3, most)).unwrap();
        Op::Fraction(f64::from(thousandths) / 1000.0)
    }

    fn pool(&mut self, ending: bool) -> Op {
        let numbers = &mut self.numbers;
        let pool = if self.known.is_empty() || numbers.chance(15) {
            let number = self.known.len() as u64 + 1;
            let pool = if numbers.chance(50) { PoolId(number, 0) } else { PoolId(0, number) };
            self.known.push(pool);
            pool
        } else {
            numbers.one_of(&self.known)
        };
        let may_end = !self.mix.expandable || ending;
        match numbers.below(20) {
            0..=6 => {
                let stream = numbers.chance(50).then(|| numbers.one_of(&STREAMS));
                Op::Begin { pool, stream }
            }
            7..=12 => Op::End { pool: self.pools.open().unwrap_or(pool) },
            13 => Op::BeginAgain { pool },
            14..=15 => {
                let lending = self.pools.0.values().any(|uses| uses.lends);
                let use_on_oom = !lending && pool.0 == 0 && numbers.chance(50);
                Op::Make { pool, use_on_oom, no_split: pool.0 == 0 && numbers.chance(25) }
            }
            16..=17 if may_end => Op::Release { pool },
            18..=19 if may_end => Op::Close { pool },
            _ => Op::Empty,
        }
    }
}

impl Pools {
    fn open(&self) -> Option<PoolId> {
        self.0.iter().find(|(_, uses)| uses.open).map(|(pool, _)| *pool)
    }
}

#[test]
fn a_seed_stands_for_one_script_that_the_peer_can_take() {
    for seed in 0..100 {
        let (script, mix) = generate(seed, 200);
        assert_eq!((script.ops.len(), script.is_valid()), (200, true), "seed {seed}");
        assert_eq!((script, mix), generate(seed, 200), "seed {seed}");
    }
}

#[test]
fn a_pool_is_used_between_its_making_and_its_last_release() {
    let pool = PoolId(1, 0);
    let (begin, end, release) = (Op::Begin { pool, stream: None }, Op::End { pool }, Op::Release { pool });
    let mut pools = Pools::default();
    assert!(!pools.admit(&release), "nobody uses it");
    assert!(pools.admit(&begin) && !pools.admit(&begin));
    assert!(!pools.admit(&release), "its scope is open");
    assert!(pools.admit(&end) && pools.admit(&release));
    assert!(!pools.admit(&begin), "it may be gone");
}
