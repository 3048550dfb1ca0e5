//! Operations on tensors with more elements than 32 bits count, compared with answers that are known by construction.
//!
//! Most cases work on `x`: bytes that are 0 but for ones at a few marked places, the last of which lie beyond 2^31. An index,
//! offset or count that is cut to 32 bits moves a mark, loses it or reads a neighbour. The cases are the same for few
//! elements, as the simulated device has them.

use std::process::ExitCode;

use aten_cuda::{DType, Result, Tensor};

/// More elements than an `i32` counts, a multiple of six.
pub const ELEMENTS: i64 = (1 << 31) + 4;

/// The program `large_tensors`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let outcome = Options::read(arguments).and_then(|options| {
        let _bound = crate::ops::bind(&options.driver)?;
        run(options.elements, "cuda").map_err(|error| error.to_string())
    });
    match outcome {
        Ok((lines, is_right)) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::from(u8::from(!is_right))
        }
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

struct Options {
    driver: String,
    elements: i64,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> std::result::Result<Self, String> {
        let usage = || "large_tensors [--driver sim|real|PATH] [--elements N]".to_owned();
        let mut options = Self { driver: "real".to_owned(), elements: ELEMENTS };
        while let Some(word) = arguments.next() {
            let value = arguments.next().ok_or_else(usage)?;
            match word.as_str() {
                "--driver" => options.driver = value,
                "--elements" => options.elements = value.parse().map_err(|_| usage())?,
                _ => return Err(usage()),
            }
        }
        Ok(options)
    }
}

/// The operands of all cases.
struct Marked {
    elements: i64,
    /// Marked places in ascending order.
    places: Vec<i64>,
    x: Tensor,
    index: Tensor,
}

/// A case: its name, and whether the answers are those expected.
type Case = (&'static str, fn(&Marked) -> Result<bool>);

const CASES: &[Case] = &[
    ("fill_ and sum", filled),
    ("nonzero and masked_select", selected),
    ("index_select and gather", gathered),
    ("scatter_, index_add_ and index_copy_", scattered),
    ("comparison, any and count_nonzero", compared),
    ("argmax and amax", extremes),
    ("sums of rows and of columns", rows),
    ("cumsum", scanned),
    ("flip and roll", moved),
    ("cat and narrow", joined),
    ("transposed copy", transposed),
    ("broadcast sum of two dtypes", broadcast),
    ("conversion", converted),
    ("sort", sorted),
    ("unique", distinct),
    ("arange", counted),
    ("uniform_ and dropout", random),
    ("tril", triangle),
    ("mm", product),
];

/// Runs every case on a device. Returns a line for each, and whether all answers were right.
///
/// # Errors
/// There is no memory for the operands of all cases.
pub fn run(elements: i64, device: &str) -> Result<(Vec<String>, bool)> {
    let marked = Marked::new(elements, device)?;
    let mut lines = Vec::new();
    let mut is_right = true;
    for (name, case) in CASES {
        let word = match case(&marked) {
            Ok(true) => "right".to_owned(),
            Ok(false) => "WRONG".to_owned(),
            Err(error) => format!("FAILED: {error}"),
        };
        is_right &= word == "right";
        lines.push(format!("{name}: {word}"));
    }
    Ok((lines, is_right))
}

impl Marked {
    fn new(elements: i64, device: &str) -> Result<Self> {
        let mut places = vec![0, 1, elements / 2, elements - 6, elements - 2, elements - 1];
        places.extend([(1 << 31) - 1, 1 << 31].into_iter().filter(|place| *place < elements));
        places.sort_unstable();
        places.dedup();
        let x = Tensor::zeros(&[elements], DType::U8, device)?;
        for &place in &places {
            x.narrow(0, place, 1)?.fill_(1)?;
        }
        let index = Tensor::from_slice(&places, &[count(&places)])?.to_device(device)?;
        Ok(Self { elements, places, x, index })
    }

    /// Zeros with the sizes of `x`.
    fn zeros(&self, dtype: DType) -> Result<Tensor> {
        Tensor::zeros(&[self.elements], dtype, self.x.device())
    }

    fn count(&self) -> i64 {
        count(&self.places)
    }

    /// Whether a vector of bytes is `x`.
    fn is_x(&self, found: &Tensor) -> Result<bool> {
        Ok(!is_true(&found.ne(&self.x)?.any((), false)?)?)
    }
}

fn count(places: &[i64]) -> i64 {
    i64::try_from(places.len()).unwrap_or(0)
}

fn is_true(found: &Tensor) -> Result<bool> {
    Ok(found.to_bytes()?[0] != 0)
}

fn whole(found: &Tensor) -> Result<i64> {
    Ok(found.to_dtype(DType::I64)?.item()?.to_i64())
}

/// The element at a place as a whole number.
fn at(found: &Tensor, place: i64) -> Result<i64> {
    whole(&found.narrow(0, place, 1)?)
}

fn filled(marked: &Marked) -> Result<bool> {
    let sevens = marked.zeros(DType::U8)?;
    sevens.fill_(7)?;
    let sum = whole(&sevens.sum((), false, None)?)?;
    Ok(sum == 7 * marked.elements && whole(&marked.x.sum((), false, None)?)? == marked.count())
}

fn selected(marked: &Marked) -> Result<bool> {
    let places = marked.x.nonzero()?.flatten()?.to_vec::<i64>()?;
    let ones = marked.x.masked_select(&marked.x.ne(0)?)?;
    Ok(places == marked.places && ones.to_vec::<u8>()? == vec![1; marked.places.len()])
}

fn gathered(marked: &Marked) -> Result<bool> {
    let before = marked.index.sub(1)?.clamp(Some(2.into()), None)?;
    let selected = marked.x.index_select(0, &marked.index)?.to_vec::<u8>()?;
    let expected: Vec<u8> =
        marked.places.iter().map(|place| u8::from(marked.places.contains(&(place - 1).max(2)))).collect();
    Ok(selected == vec![1; marked.places.len()] && marked.x.gather(0, &before)?.to_vec::<u8>()? == expected)
}

fn scattered(marked: &Marked) -> Result<bool> {
    let (scattered, added, copied) = (marked.zeros(DType::U8)?, marked.zeros(DType::U8)?, marked.zeros(DType::U8)?);
    let ones = Tensor::ones(&[marked.count()], DType::U8, marked.x.device())?;
    scattered.scatter_(0, &marked.index, 1)?;
    added.index_add_(0, &marked.index, &ones, 1)?;
    copied.index_copy_(0, &marked.index, &ones)?;
    Ok(marked.is_x(&scattered)? && marked.is_x(&added)? && marked.is_x(&copied)?)
}

fn compared(marked: &Marked) -> Result<bool> {
    let equal = marked.x.eq(1)?;
    let last = equal.narrow(0, marked.elements - 6, 1)?;
    Ok(whole(&equal.count_nonzero(())?)? == marked.count() && is_true(&last.any((), false)?)?)
}

fn extremes(marked: &Marked) -> Result<bool> {
    let last = marked.zeros(DType::U8)?;
    last.narrow(0, marked.elements - 2, 1)?.fill_(3)?;
    let place = whole(&last.argmax(None, false)?)?;
    Ok(place == marked.elements - 2 && whole(&last.amax((), false)?)? == 3)
}

fn rows(marked: &Marked) -> Result<bool> {
    let pairs = marked.x.view(&[marked.elements / 2, 2])?;
    let of_rows = pairs.sum(1, false, DType::U8)?;
    let halves = marked.x.view(&[2, marked.elements / 2])?;
    let of_columns = halves.sum(0, false, DType::U8)?;
    let last = marked.elements / 2 - 1;
    Ok((at(&of_rows, 0)?, at(&of_rows, last)?) == (2, 2)
        && whole(&of_rows.sum((), false, None)?)? == marked.count()
        && (at(&of_columns, 0)?, at(&of_columns, last)?) == (2, 1 + i64::from(marked.places.contains(&last))))
}

fn scanned(marked: &Marked) -> Result<bool> {
    let sums = marked.x.cumsum(0, DType::U8)?;
    let mut is_right = true;
    for (before, &place) in marked.places.iter().enumerate() {
        is_right &= at(&sums, place)? == i64::try_from(before).unwrap_or(0) + 1;
    }
    Ok(is_right && at(&sums, marked.elements - 3)? == marked.count() - 2)
}

fn moved(marked: &Marked) -> Result<bool> {
    let turned = marked.x.flip(&[0])?;
    let rolled = marked.x.roll(&[3], &[0])?;
    let mut is_right = whole(&turned.sum((), false, None)?)? == marked.count();
    for &place in &marked.places {
        is_right &= at(&turned, marked.elements - 1 - place)? == 1;
        is_right &= at(&rolled, (place + 3) % marked.elements)? == 1;
    }
    Ok(is_right && marked.is_x(&rolled.roll(&[-3], &[0])?)?)
}

fn joined(marked: &Marked) -> Result<bool> {
    let (head, tail) = (marked.x.narrow(0, 0, 5)?, marked.x.narrow(0, 5, marked.elements - 5)?);
    let joined = Tensor::cat(&[&head, &tail, &head], 0)?;
    Ok(joined.numel() == marked.elements + 5
        && marked.is_x(&joined.narrow(0, 0, marked.elements)?)?
        && at(&joined, marked.elements + 1)? == 1)
}

fn transposed(marked: &Marked) -> Result<bool> {
    let copied = marked.x.view(&[2, marked.elements / 2])?.t()?.contiguous()?;
    let back = copied.t()?.contiguous()?.flatten()?;
    Ok(at(&copied.flatten()?, marked.elements - 1)? == 1 && marked.is_x(&back)?)
}

fn broadcast(marked: &Marked) -> Result<bool> {
    let halves = marked.x.view(&[2, marked.elements / 2])?;
    let column = Tensor::from_slice(&[0_i16, 100], &[2, 1])?.to_device(marked.x.device())?;
    let sums = halves.add(&column)?.flatten()?;
    let last = marked.elements - 1;
    Ok((at(&sums, 0)?, at(&sums, 2)?, at(&sums, last)?, at(&sums, last - 2)?) == (1, 0, 101, 100))
}

fn converted(marked: &Marked) -> Result<bool> {
    let halves = marked.x.to_dtype(DType::F16)?;
    halves.mul_(0.5)?;
    Ok(at(&halves.mul(2)?, marked.elements - 2)? == 1 && marked.is_x(&halves.ceil()?.to_dtype(DType::U8)?)?)
}

fn sorted(marked: &Marked) -> Result<bool> {
    let (values, order) = marked.x.sort(0, false)?;
    let (count, zeros) = (marked.count(), marked.elements - marked.count());
    let mut last = order.narrow(0, zeros, count)?.to_vec::<i64>()?;
    last.sort_unstable();
    Ok(whole(&values.narrow(0, zeros, count)?.sum((), false, None)?)? == count
        && whole(&values.sum((), false, None)?)? == count
        && last == marked.places)
}

fn distinct(marked: &Marked) -> Result<bool> {
    let (values, _, counts) = marked.x.unique()?;
    let zeros = marked.elements - marked.count();
    Ok(values.to_vec::<u8>()? == [0, 1] && counts.to_vec::<i64>()? == [zeros, marked.count()])
}

fn counted(marked: &Marked) -> Result<bool> {
    let numbers = Tensor::arange(0, marked.elements, 1, Some(DType::I64), marked.x.device())?;
    let found = numbers.index_select(0, &marked.index)?.to_vec::<i64>()?;
    Ok(found == marked.places && at(&numbers, marked.elements - 3)? == marked.elements - 3)
}

fn random(marked: &Marked) -> Result<bool> {
    let (numbers, half) = (marked.zeros(DType::F16)?, marked.elements / 2);
    numbers.uniform_(0.25, 0.75, None)?;
    let is_within = whole(&numbers.amin((), false)?.mul(4)?)? == 1 && whole(&numbers.amax((), false)?.mul(4)?)? <= 3;
    // Equal numbers in both halves would mean that a counter began again.
    let equal = numbers.narrow(0, 0, half)?.eq(&numbers.narrow(0, half, half)?)?;
    let equal = whole(&equal.count_nonzero(())?)?;
    let kept = Tensor::ones(&[marked.elements], DType::U8, marked.x.device())?.to_dtype(DType::F16)?;
    let kept = whole(&kept.dropout(0.5, true)?.ne(0)?.count_nonzero(())?)?;
    let difference = (kept - half).abs();
    Ok(is_within && equal < half / 100 + 10 && difference < half / 100 + 50)
}

fn triangle(marked: &Marked) -> Result<bool> {
    let side = i64::try_from(marked.elements.unsigned_abs().isqrt()).unwrap_or(0) + 1;
    let lower = Tensor::ones(&[side, side], DType::U8, marked.x.device())?.tril(0)?;
    Ok(whole(&lower.sum((), false, None)?)? == side * (side + 1) / 2)
}

fn product(marked: &Marked) -> Result<bool> {
    let (tall, wide) = ((marked.elements / (1 << 15)).max(8), 1 << 15);
    let wide = if marked.elements < 1 << 31 { 16 } else { wide };
    let device = marked.x.device();
    let left = Tensor::arange(0, tall + 1, 1, Some(DType::I64), device)?.remainder(7)?.to_dtype(DType::F16)?;
    let right = Tensor::arange(0, wide, 1, Some(DType::I64), device)?.remainder(5)?.to_dtype(DType::F16)?;
    let found = left.view(&[-1, 1])?.mm(&right.view(&[1, -1])?)?;
    let expected = left.view(&[-1, 1])?.mul(&right.view(&[1, -1])?)?;
    Ok(!is_true(&found.ne(&expected)?.any((), false)?)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn few_elements_give_the_known_answers_too() {
        let _simulated = testkit::simulated_runtime();
        for device in ["cpu", "cuda"] {
            let (lines, is_right) = super::run(6000, device).unwrap();
            assert!(is_right, "{device}: {lines:#?}");
        }
    }
}
