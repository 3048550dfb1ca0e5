//! Recorded allocator scripts: operations with every answer a caching allocator gave, plain or compressed with gzip.
//!
//! The first line is a header of `key=value` words (`conf`, `kind`, `total_memory`); a line that begins with `# base`
//! is passed over; then one [`Action`] a line, in order. Streams are numbers: 0 the default one, 1 to 3 pool streams,
//! 9 the one captures run on, -1 one that the recorder did not know.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// One recorded script.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Configuration text; empty where the header says `default`.
    pub conf: String,
    /// What the script exercises, such as `oom` or `graphs`.
    pub kind: String,
    /// Memory of the device it was recorded on, in bytes.
    pub total_memory: u64,
    /// The lines after the header.
    pub lines: Vec<Line>,
}

/// One line of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its number in the file, counted from 1.
    pub number: usize,
    /// What it says.
    pub action: Action,
}

/// What was done, and what was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `a`: memory was asked for and given.
    Alloc {
        /// Name of the block.
        id: String,
        /// Bytes asked for.
        bytes: u64,
        /// Stream it is for.
        stream: i64,
        /// Address that was returned.
        address: u64,
    },
    /// `o`: memory was asked for and there was none.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Stream it is for.
        stream: i64,
    },
    /// `f`: a block was given back.
    Free {
        /// Name of the block.
        id: String,
    },
    /// `r`: a block was used on another stream.
    RecordStream {
        /// Name of the block.
        id: String,
        /// The other stream.
        stream: i64,
    },
    /// `>`: a driver call made within the next operation.
    Driver(DriverCall),
    /// `> free_completed`: within the next operation all uses of a block are found complete.
    FreeCompleted {
        /// Address of the block.
        address: u64,
    },
    /// `y`: the device was synchronized.
    Synchronize,
    /// `e`: the cache was emptied.
    EmptyCache,
    /// `p`: peaks were reset.
    ResetPeak,
    /// `m`: the process's part of the device memory was set.
    MemoryFraction(f64),
    /// `pb`: a memory pool was entered.
    EnterPool(u64),
    /// `pe`: the pool entered last was left.
    LeavePool,
    /// `pd`: a memory pool was dropped.
    DropPool(u64),
    /// `gb`: the capture of a graph began.
    CaptureBegin {
        /// Name of the graph.
        graph: u64,
        /// The graph whose pool it shares.
        shared: Option<u64>,
    },
    /// `ge`: the capture ended.
    CaptureEnd,
    /// `gr`: a graph was reset and dropped.
    DropGraph(u64),
    /// `s`: all figures that were not zero, by name.
    Stats(BTreeMap<String, i64>),
    /// `snapshot`: all segments, by address.
    Snapshot(Vec<Segment>),
}

/// A call for or of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverCall {
    /// What was called for.
    pub kind: CallKind,
    /// First byte concerned.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Kinds of driver calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A segment was taken.
    Alloc,
    /// A segment was given back.
    Free,
    /// Pages were mapped.
    Map,
    /// Pages were unmapped.
    Unmap,
}

/// A segment as a snapshot shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub address: u64,
    /// Bytes of all blocks.
    pub total_size: u64,
    /// Stream it is for.
    pub stream: i64,
    /// `small` or `large`.
    pub class: String,
    /// The blocks, by address.
    pub blocks: Vec<Block>,
}

/// A block as a snapshot shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Bytes.
    pub size: u64,
    /// Torch's word for its state.
    pub state: String,
    /// Bytes that were last asked for.
    pub requested_size: u64,
}

/// Why a script could not be read.
#[derive(Debug)]
pub enum ScriptError {
    /// The file could not be read.
    Read(io::Error),
    /// The first line lacks this key, or its value is none.
    Header(&'static str),
    /// A line says nothing that is known; its number, counted from 1, and its beginning.
    Line(usize, String),
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "the script cannot be read: {error}"),
            Self::Header(key) => write!(f, "the first line of the script has no usable `{key}=`"),
            Self::Line(number, text) => write!(f, "line {number} of the script is no step: {text}"),
        }
    }
}

impl std::error::Error for ScriptError {}

impl From<io::Error> for ScriptError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Reads a script from a file; one whose name ends in `.gz` is decompressed.
///
/// # Errors
/// The file cannot be read, or a line of it says nothing that is known.
pub fn read(path: &Path) -> Result<Script, ScriptError> {
    let mut file = File::open(path)?;
    let mut text = String::new();
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    if compressed {
        MultiGzDecoder::new(file).read_to_string(&mut text)?;
    } else {
        file.read_to_string(&mut text)?;
    }
    parse(&text)
}

/// Reads a script from uncompressed text.
///
/// # Errors
/// A line says nothing that is known.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line);
    let total_memory = field(header, "total_memory")?.parse().map_err(|_| ScriptError::Header("total_memory"))?;
    let conf = match field(header, "conf")? {
        "default" => String::new(),
        conf => conf.to_owned(),
    };
    let kind = field(header, "kind")?.to_owned();
    let steps = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    let lines = steps.map(|(index, line)| {
        let number = index + 1;
        let shown = || ScriptError::Line(number, line.chars().take(80).collect());
        action(line).map(|action| Line { number, action }).ok_or_else(shown)
    });
    Ok(Script { conf, kind, total_memory, lines: lines.collect::<Result<_, _>>()? })
}

fn field<'a>(header: &'a str, key: &'static str) -> Result<&'a str, ScriptError> {
    let words = header.strip_prefix("# ").into_iter().flat_map(str::split_ascii_whitespace);
    let mut found = words.filter_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    found.next().ok_or(ScriptError::Header(key))
}

fn action(line: &str) -> Option<Action> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "s" => return stats(rest).map(Action::Stats),
        "snapshot" => return snapshot(rest).map(Action::Snapshot),
        _ => {}
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    Some(match words[..] {
        ["a", id, bytes, stream, "=", address, "alloc"] => Action::Alloc {
            id: id.to_owned(),
            bytes: bytes.parse().ok()?,
            stream: stream.parse().ok()?,
            address: hex(address)?,
        },
        ["o", _, bytes, stream, "=", _, "oom"] => {
            Action::OutOfMemory { bytes: bytes.parse().ok()?, stream: stream.parse().ok()? }
        }
        ["f", id] => Action::Free { id: id.to_owned() },
        ["r", id, stream] => Action::RecordStream { id: id.to_owned(), stream: stream.parse().ok()? },
        [">", "free_completed", address, _, _] => Action::FreeCompleted { address: hex(address)? },
        [">", kind, address, bytes, _] => {
            Action::Driver(DriverCall { kind: call_kind(kind)?, address: hex(address)?, bytes: bytes.parse().ok()? })
        }
        ["y"] => Action::Synchronize,
        ["e"] => Action::EmptyCache,
        ["p"] => Action::ResetPeak,
        ["m", fraction] => Action::MemoryFraction(fraction.parse().ok()?),
        ["pb", pool] => Action::EnterPool(pool.parse().ok()?),
        ["pe"] => Action::LeavePool,
        ["pd", pool] => Action::DropPool(pool.parse().ok()?),
        ["gb", graph, "-1"] => Action::CaptureBegin { graph: graph.parse().ok()?, shared: None },
        ["gb", graph, shared] => {
            Action::CaptureBegin { graph: graph.parse().ok()?, shared: Some(shared.parse().ok()?) }
        }
        ["ge"] => Action::CaptureEnd,
        ["gr", graph] => Action::DropGraph(graph.parse().ok()?),
        _ => return None,
    })
}

fn call_kind(word: &str) -> Option<CallKind> {
    Some(match word {
        "segment_alloc" => CallKind::Alloc,
        "segment_free" => CallKind::Free,
        "segment_map" => CallKind::Map,
        "segment_unmap" => CallKind::Unmap,
        _ => return None,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Reads `{"key": 1, ...}`.
fn stats(text: &str) -> Option<BTreeMap<String, i64>> {
    let mut rest = Rest(text);
    let mut figures = BTreeMap::new();
    rest.list('{', '}', |rest| {
        let key = rest.string()?;
        rest.skip(':')?;
        figures.insert(key, rest.integer()?);
        Some(())
    })?;
    rest.end().then_some(figures)
}

/// Reads `[["0x1000", 512, 0, "small", [[512, "inactive", 0], ...]], ...]`.
fn snapshot(text: &str) -> Option<Vec<Segment>> {
    let mut rest = Rest(text);
    let mut segments = Vec::new();
    rest.list('[', ']', |rest| {
        segments.push(rest.segment()?);
        Some(())
    })?;
    rest.end().then_some(segments)
}

/// What is left to read of a JSON text.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn skip(&mut self, letter: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(letter)?;
        Some(())
    }

    fn end(&self) -> bool {
        self.0.trim().is_empty()
    }

    fn string(&mut self) -> Option<String> {
        self.skip('"')?;
        let (text, rest) = self.0.split_once('"')?;
        self.0 = rest;
        Some(text.to_owned())
    }

    fn integer<T: std::str::FromStr>(&mut self) -> Option<T> {
        let text = self.0.trim_start();
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(text.len());
        self.0 = &text[end..];
        text[..end].parse().ok()
    }

    fn list(&mut self, open: char, close: char, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.skip(open)?;
        if self.skip(close).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.skip(close).is_some() {
                return Some(());
            }
            self.skip(',')?;
        }
    }

    fn segment(&mut self) -> Option<Segment> {
        self.skip('[')?;
        let address = hex(&self.string()?)?;
        self.skip(',')?;
        let total_size = self.integer()?;
        self.skip(',')?;
        let stream = self.integer()?;
        self.skip(',')?;
        let class = self.string()?;
        self.skip(',')?;
        let mut blocks = Vec::new();
        self.list('[', ']', |rest| {
            blocks.push(rest.block()?);
            Some(())
        })?;
        self.skip(']')?;
        Some(Segment { address, total_size, stream, class, blocks })
    }

    fn block(&mut self) -> Option<Block> {
        self.skip('[')?;
        let size = self.integer()?;
        self.skip(',')?;
        let state = self.string()?;
        self.skip(',')?;
        let requested_size = self.integer()?;
        self.skip(']')?;
        Some(Block { size, state, requested_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "# conf=default kind=plain total_memory=1024\n# base {}\n";

    fn actions(lines: &str) -> Vec<Action> {
        let script = parse(&format!("{HEADER}{lines}")).unwrap();
        script.lines.into_iter().map(|line| line.action).collect()
    }

    #[test]
    fn the_header_is_read() {
        let script = parse("# conf=max_split_size_mb:20 kind=oom total_memory=7 torch=2\n# base {}\ny\n").unwrap();
        assert_eq!((script.conf.as_str(), script.kind.as_str()), ("max_split_size_mb:20", "oom"));
        assert_eq!((script.total_memory, script.lines[0].number), (7, 3));
        assert!(matches!(parse("# kind=oom total_memory=7"), Err(ScriptError::Header("conf"))));
        assert!(matches!(parse(""), Err(ScriptError::Header(_))));
    }

    #[test]
    fn steps_are_read() {
        let call = DriverCall { kind: CallKind::Map, address: 0x1000, bytes: 512 };
        let expected = [
            Action::Driver(call),
            Action::Alloc { id: "H0".to_owned(), bytes: 8, stream: 9, address: 0x1000 },
            Action::OutOfMemory { bytes: 9, stream: 0 },
            Action::CaptureBegin { graph: 4, shared: None },
            Action::CaptureBegin { graph: 5, shared: Some(4) },
            Action::FreeCompleted { address: 0x1000 },
            Action::MemoryFraction(0.5),
        ];
        let text = "> segment_map 0x1000 512 -1\na H0 8 9 = 0x1000 alloc\no 7 9 0 = 100 oom\ngb 4 -1\ngb 5 4\n\
                    > free_completed 0x1000 8 9\nm 0.5\n";
        assert_eq!(actions(text), expected);
    }

    #[test]
    fn figures_and_segments_are_read() {
        let figures = BTreeMap::from([("a.b".to_owned(), 3), ("max".to_owned(), -1)]);
        assert_eq!(actions(r#"s {"a.b": 3, "max": -1}"#), [Action::Stats(figures)]);
        let block = Block { size: 512, state: "inactive".to_owned(), requested_size: 0 };
        let segment =
            Segment { address: 16, total_size: 512, stream: 9, class: "small".to_owned(), blocks: vec![block] };
        let text = r#"snapshot [["0x10", 512, 9, "small", [[512, "inactive", 0]]]]"#;
        assert_eq!(actions(text), [Action::Snapshot(vec![segment])]);
        assert_eq!(actions("snapshot []"), [Action::Snapshot(vec![])]);
    }

    #[test]
    fn bad_lines_are_named() {
        let bad = [
            "a 1 512 0 = 4096 alloc",
            "a 1 512 0",
            "x",
            "f",
            "> segment_move 0x1 1 0",
            "m half",
            "s {\"a\": }",
            "s {\"a\": 1} 2",
            "snapshot [[]]",
            "gb 1",
            "pb one",
        ];
        for line in bad {
            let answer = parse(&format!("{HEADER}y\n{line}\n"));
            assert!(matches!(answer, Err(ScriptError::Line(4, _))), "{line}: {answer:?}");
        }
    }
}
