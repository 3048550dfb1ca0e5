//! The bodies and their names.

mod allocator;
mod config;
mod driver;
mod expression;
mod ptx;
mod results;
mod safetensors;
mod snapshot;
mod store;
mod text;

use crate::mutate::Style;

/// A fuzz body.
#[derive(Debug, Clone, Copy)]
pub struct Body {
    /// Its name, which is also the name of its folder of the corpus.
    pub name: &'static str,
    /// How its inputs are made from others.
    pub style: Style,
    /// Runs one input.
    ///
    /// # Errors
    /// What should have held and did not. A panic is a failure too.
    pub run: fn(&[u8]) -> Result<(), String>,
}

/// All bodies.
pub const BODIES: &[Body] = &[
    Body { name: "driver", style: Style::Bytes, run: driver::run },
    Body { name: "allocator", style: Style::Bytes, run: allocator::run },
    Body { name: "config", style: Style::Bytes, run: config::run },
    Body { name: "expression", style: Style::Lines, run: expression::run },
    Body { name: "text", style: Style::Bytes, run: text::run },
    Body { name: "results", style: Style::Lines, run: results::run },
    Body { name: "safetensors", style: Style::Bytes, run: safetensors::run },
    Body { name: "snapshot", style: Style::Bytes, run: snapshot::run },
    Body { name: "store", style: Style::Bytes, run: store::run },
    Body { name: "ptx", style: Style::Lines, run: ptx::run_text },
];

#[cfg(test)]
mod tests {
    use super::BODIES;
    use crate::mutate::{mutate, random};

    #[test]
    fn every_body_survives_its_first_inputs() {
        for body in BODIES {
            let mut random = random(42);
            let mut inputs = vec![Vec::new()];
            for _ in 0..50 {
                let input = mutate(&mut random, &inputs, body.style);
                assert_eq!((body.run)(&input), Ok(()), "{}: {input:?}", body.name);
                inputs.push(input);
            }
        }
    }
}
