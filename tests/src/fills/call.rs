//! The call that a fill recorded: the name of a distribution and its numbers, as in `uniform_-2_3`.

use aten_cuda::{DType, Generator, Tensor};

use super::Fill;

/// A call.
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) numbers: Vec<f64>,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rand,
    Randn,
    Uniform,
    Normal,
    Randint,
    Bernoulli,
    Exponential,
    LogNormal,
    Cauchy,
    Geometric,
    Dropout,
    /// `rand`, and then `randn`, which counts.
    SecondRandn,
    Randperm,
}

const KINDS: [(&str, Kind, usize); 13] = [
    ("rand", Kind::Rand, 0),
    ("randn", Kind::Randn, 0),
    ("uniform", Kind::Uniform, 2),
    ("normal", Kind::Normal, 2),
    ("randint", Kind::Randint, 2),
    ("bernoulli", Kind::Bernoulli, 1),
    ("exponential", Kind::Exponential, 1),
    ("log_normal", Kind::LogNormal, 2),
    ("cauchy", Kind::Cauchy, 2),
    ("geometric", Kind::Geometric, 1),
    ("dropout", Kind::Dropout, 1),
    ("two_calls_second_randn", Kind::SecondRandn, 0),
    ("randperm", Kind::Randperm, 0),
];

/// What a call gave.
pub(crate) struct Drawn {
    pub(crate) result: Tensor,
    /// Where the generator stood before the call that counts.
    pub(crate) seed: u64,
    pub(crate) offset: u64,
}

impl Call {
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let unknown = || format!("no call is named {name}");
        let words: Vec<&str> = name.split('_').collect();
        let numbers: Vec<f64> = words.iter().rev().map_while(|word| number(word)).collect();
        let head = words[..words.len() - numbers.len()].join("_");
        let (_, kind, count) = KINDS.into_iter().find(|(known, ..)| *known == head).ok_or_else(unknown)?;
        if numbers.len() != count {
            return Err(unknown());
        }
        Ok(Self { kind, numbers: numbers.into_iter().rev().collect() })
    }

    /// Whether values are computed with instructions that approximate.
    pub(crate) fn is_approximate(&self) -> bool {
        match self.kind {
            Kind::Randn | Kind::Normal | Kind::SecondRandn => true,
            Kind::Exponential | Kind::LogNormal | Kind::Cauchy | Kind::Geometric => true,
            Kind::Rand | Kind::Uniform | Kind::Randint | Kind::Bernoulli | Kind::Dropout | Kind::Randperm => false,
        }
    }

    /// Calls it with the default generator.
    pub(crate) fn run(&self, fill: &Fill, generator: &Generator) -> Result<Drawn, String> {
        let drawn = self.draw(fill, generator);
        drawn.map_err(|error| error.to_string())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the numbers of integer calls are whole")]
    fn draw(&self, fill: &Fill, generator: &Generator) -> aten_cuda::Result<Drawn> {
        let (sizes, dtype, n) = ([fill.numel], fill.dtype, &self.numbers);
        if self.kind == Kind::SecondRandn {
            Tensor::rand(&sizes, dtype, "cuda", None)?;
        }
        let (seed, offset) = (generator.initial_seed()?, generator.get_offset()?);
        let empty = || Tensor::empty(&sizes, dtype, "cuda");
        let result = match self.kind {
            Kind::Rand => Tensor::rand(&sizes, dtype, "cuda", None)?,
            Kind::Randn | Kind::SecondRandn => Tensor::randn(&sizes, dtype, "cuda", None)?,
            Kind::Uniform => empty()?.uniform_(n[0], n[1], None)?.clone(),
            Kind::Normal => empty()?.normal_(n[0], n[1], None)?.clone(),
            Kind::Randint => Tensor::randint(n[0] as i64, n[1] as i64, &sizes, dtype, "cuda", None)?,
            Kind::Bernoulli => empty()?.bernoulli_(n[0], None)?.clone(),
            Kind::Exponential => empty()?.exponential_(n[0], None)?.clone(),
            Kind::LogNormal => empty()?.log_normal_(n[0], n[1], None)?.clone(),
            Kind::Cauchy => empty()?.cauchy_(n[0], n[1], None)?.clone(),
            Kind::Geometric => empty()?.geometric_(n[0], None)?.clone(),
            Kind::Dropout => Tensor::ones(&sizes, dtype, "cuda")?.dropout(n[0], true)?,
            Kind::Randperm => Tensor::randperm(fill.numel, DType::I64, "cuda", None)?,
        };
        Ok(Drawn { result, seed, offset })
    }
}

/// A number as names have it: `0.3`, `-2`, `2^40`.
fn number(word: &str) -> Option<f64> {
    let Some((base, exponent)) = word.split_once('^') else { return word.parse().ok() };
    Some(base.parse::<f64>().ok()?.powi(exponent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let read = |name| Call::parse(name).map(|call| (call.kind, call.numbers));
        assert_eq!(read("uniform_-2_3"), Ok((Kind::Uniform, vec![-2.0, 3.0])));
        assert_eq!(read("randint_0_2^40"), Ok((Kind::Randint, vec![0.0, 1_099_511_627_776.0])));
        assert_eq!(read("two_calls_second_randn"), Ok((Kind::SecondRandn, vec![])));
        assert_eq!(read("log_normal_1_2"), Ok((Kind::LogNormal, vec![1.0, 2.0])));
        assert!(read("uniform_1").is_err() && read("poisson_2").is_err());
    }
}
