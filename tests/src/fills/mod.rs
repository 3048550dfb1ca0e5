//! Recorded random fills: a seed, a call, and what PyTorch drew.
//!
//! The state after the call must be equal, and the bytes of the result, by their sha256. Values of some distributions
//! are computed with instructions that approximate (sine, cosine, logarithm and power of two, reciprocal), which a
//! simulated device rounds correctly instead. Of such a fill it is enough there that the recorded first values are
//! within the bounds of these instructions (`judge`); on a real device nothing is forgiven.

mod call;
mod judge;

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ops::bind;
use crate::recorded::{self, Options};

/// One recorded fill.
pub(crate) struct Fill {
    pub(crate) name: String,
    pub(crate) dtype: aten_cuda::DType,
    pub(crate) numel: i64,
    before: Vec<u8>,
    after: Vec<u8>,
    /// The first bytes of the result.
    pub(crate) head: Vec<u8>,
    sha256: Vec<u8>,
}

/// How a fill did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Every byte is equal, and no instruction approximates.
    Equal,
    /// Every byte is equal, of values that are approximated.
    EqualApproximate,
    /// The state is equal, and the recorded values are within the bounds.
    WithinBounds,
}

/// The program `fills`.
pub fn main(arguments: Vec<String>) -> ExitCode {
    recorded::main(arguments, run)
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run(options: &Options) -> Result<(usize, usize), String> {
    let _bound = bind(&options.driver)?;
    let is_simulated = matches!(options.driver.as_str(), "sim" | "auto");
    let (mut tally, mut failures): (BTreeMap<Outcome, usize>, BTreeMap<String, usize>) = Default::default();
    for path in &options.files {
        for (at, fill) in read(path)?.iter().enumerate() {
            if options.filter.as_ref().is_some_and(|filter| !fill.name.contains(filter)) {
                continue;
            }
            match check(fill, is_simulated) {
                Ok(outcome) => *tally.entry(outcome).or_default() += 1,
                Err(why) => {
                    let count = failures.entry(fill.name.clone()).or_default();
                    if options.all || *count == 0 {
                        println!("{path}: fill {at}, {} of {} {}: {why}", fill.name, fill.numel, fill.dtype);
                    }
                    *count += 1;
                }
            }
        }
    }
    for (name, count) in &failures {
        println!("{name}: {count} failed");
    }
    let of = |outcome| tally.get(&outcome).copied().unwrap_or(0);
    let (equal, within) = (of(Outcome::EqualApproximate), of(Outcome::WithinBounds));
    println!(
        "{} bit-equal without approximate instructions; with them {equal} bit-equal, {within} with equal state and \
         values within the bounds",
        of(Outcome::Equal)
    );
    Ok((tally.values().sum(), failures.values().sum()))
}

fn read(path: &str) -> Result<Vec<Fill>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let root: Value = serde_json::from_str(&text).map_err(|error| format!("cannot parse {path}: {error}"))?;
    let fills = root.as_array().ok_or_else(|| format!("{path} holds no list of fills"))?;
    fills.iter().map(Fill::parse).collect::<Result<_, _>>().map_err(|why| format!("{path}: {why}"))
}

impl Fill {
    fn parse(fill: &Value) -> Result<Self, String> {
        let text = |key: &str| fill[key].as_str().ok_or_else(|| format!("a fill has no {key}"));
        let dtype = text("dtype")?;
        let known = aten_cuda::DType::ALL.into_iter().find(|known| known.torch_name() == dtype);
        Ok(Self {
            name: text("name")?.to_owned(),
            dtype: known.ok_or_else(|| format!("no dtype is called {dtype}"))?,
            numel: fill["numel"].as_i64().ok_or("a fill has no numel")?,
            before: hex(text("state_before")?)?,
            after: hex(text("state_after")?)?,
            head: hex(text("head_hex")?)?,
            sha256: hex(text("sha256")?)?,
        })
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2)).ok_or_else(|| format!("{text} is not hex"))?;
    Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn check(fill: &Fill, is_simulated: bool) -> Result<Outcome, String> {
    let text = |error: aten_cuda::Error| error.to_string();
    let generator = aten_cuda::random::default_generator(None).map_err(text)?;
    let state = aten_cuda::Tensor::from_slice(&fill.before, &[16]).map_err(text)?;
    generator.set_state(&state).map_err(text)?;
    let call = call::Call::parse(&fill.name)?;
    let drawn = call.run(fill, &generator)?;
    let after = generator.get_state().and_then(|state| state.to_bytes()).map_err(text)?;
    if after != fill.after {
        return Err(format!("the state is {after:02x?} instead of {:02x?}", fill.after));
    }
    let bytes = drawn.result.to_bytes().map_err(text)?;
    let is_equal = Sha256::digest(&bytes).as_slice() == fill.sha256.as_slice();
    match (is_equal, call.is_approximate()) {
        (true, false) => Ok(Outcome::Equal),
        (true, true) => Ok(Outcome::EqualApproximate),
        (false, true) if is_simulated => judge::head(fill, &call, &drawn, &bytes).map(|()| Outcome::WithinBounds),
        (false, _) => {
            let head = &bytes[..fill.head.len().min(bytes.len())];
            let place = head.iter().zip(&fill.head).position(|(ours, theirs)| ours != theirs);
            Err(match place {
                Some(place) => format!("byte {place} is {} instead of {}", head[place], fill.head[place]),
                None => "the first bytes are equal, and the sha256 is not".to_owned(),
            })
        }
    }
}
