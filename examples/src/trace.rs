//! Recorded allocation traces: one `a ID BYTES STREAM` or `f ID` a line, packed with gzip or plain.
//!
//! The reader refuses a line it does not understand, with its number; a trace is evidence, not a suggestion.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::checks::Failure;

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Allocate under a name that is not in use.
    Alloc {
        /// The name.
        id: usize,
        /// How much was asked for.
        size_bytes: u64,
    },
    /// Free what was allocated under a name.
    Free {
        /// The name.
        id: usize,
    },
}

/// A whole trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The steps in their order.
    pub steps: Vec<Step>,
    /// How many allocations there are; names are smaller.
    pub allocations: usize,
}

impl Trace {
    /// Reads a trace file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no step.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let packed = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut text = String::new();
        if packed.starts_with(&[0x1f, 0x8b]) {
            MultiGzDecoder::new(packed.as_slice()).read_to_string(&mut text)?;
        } else {
            text = String::from_utf8(packed)?;
        }
        Self::parse(&text)
    }

    /// Reads the text of a trace.
    ///
    /// # Errors
    /// A line is no step, a name is used twice or freed without being in use.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut trace = Self { steps: Vec::new(), allocations: 0 };
        let mut live = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let refuse = |why: &str| Failure::from(format!("line {} of the trace, `{line}`: {why}", index + 1));
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |text: &str| text.parse::<u64>().map_err(|_| refuse("not a number"));
            match words.as_slice() {
                ["a", name, size, _stream] => {
                    // Names in the file may be any numbers; here they count allocations.
                    if live.insert(number(name)?, trace.allocations).is_some() {
                        return Err(refuse("this name is in use"));
                    }
                    trace.steps.push(Step::Alloc { id: trace.allocations, size_bytes: number(size)? });
                    trace.allocations += 1;
                }
                ["f", name] => {
                    let id = live.remove(&number(name)?).ok_or_else(|| refuse("this name is not in use"))?;
                    trace.steps.push(Step::Free { id });
                }
                _ => return Err(refuse("neither an allocation nor a free")),
            }
        }
        Ok(trace)
    }

    /// The same trace with all sizes divided, to fit a smaller device.
    #[must_use]
    pub fn divided_by(mut self, divisor: u64) -> Self {
        for step in &mut self.steps {
            if let Step::Alloc { size_bytes, .. } = step {
                *size_bytes = size_bytes.div_ceil(divisor);
            }
        }
        self
    }

    /// What the sizes add up to, each rounded up to a multiple of 512 bytes, computed without an allocator.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut sizes = vec![(0, 0); self.allocations];
        let mut figures = Figures::default();
        let mut live_bytes_most = 0;
        for step in &self.steps {
            match *step {
                Step::Alloc { id, size_bytes } => {
                    let rounded = size_bytes.next_multiple_of(512);
                    let most = if rounded > LARGE_BYTES { rounded + LARGE_BYTES } else { rounded };
                    sizes[id] = (rounded, most);
                    figures.allocated_bytes_total += rounded;
                    figures.live_bytes += rounded;
                    live_bytes_most += most;
                    figures.live_bytes_peak = figures.live_bytes_peak.max(figures.live_bytes);
                    figures.live_bytes_peak_most = figures.live_bytes_peak_most.max(live_bytes_most);
                }
                Step::Free { id } => {
                    let (rounded, most) = std::mem::take(&mut sizes[id]);
                    figures.live_bytes -= rounded;
                    live_bytes_most -= most;
                }
            }
        }
        figures
    }
}

/// Requests above this come from the large pool, whose blocks are left whole when no more than this would remain.
const LARGE_BYTES: u64 = 1 << 20;

/// What a trace adds up to, in bytes rounded as the allocator rounds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// The sum of all allocations.
    pub allocated_bytes_total: u64,
    /// The largest sum of what was live at one time.
    pub live_bytes_peak: u64,
    /// What an allocator may count at most as that peak, when it hands out large blocks whole.
    pub live_bytes_peak_most: u64,
    /// What is still live after the last step.
    pub live_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_rounded_sizes() {
        let trace = Trace::parse("a 7 1 0\na 8 1000 0\nf 7\na 7 512 0\n").unwrap();
        assert_eq!(trace.allocations, 3);
        let figures = trace.figures();
        let expected = Figures {
            allocated_bytes_total: 2048,
            live_bytes_peak: 1536,
            live_bytes_peak_most: 1536,
            live_bytes: 1536,
        };
        assert_eq!(figures, expected);
        let large = Trace::parse("a 0 1048576 0\na 1 1048577 0\n").unwrap().figures();
        assert_eq!(large.live_bytes_peak_most - large.live_bytes_peak, 1 << 20);
        assert_eq!(trace.divided_by(2).figures().live_bytes, 1024);
    }

    #[test]
    fn lines_that_mean_nothing_are_refused_with_their_number() {
        for text in ["b 1", "a 1 2", "a 1 x 0", "f 1", "a 1 1 0\na 1 1 0", "a 1 -5 0", "\n"] {
            assert!(Trace::parse(text).is_err(), "{text}");
        }
        assert!(Trace::parse("a 1 1 0\nz").unwrap_err().to_string().starts_with("line 2 "));
    }
}
