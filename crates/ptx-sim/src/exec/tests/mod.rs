//! The loops over lanes give in each lane what `arith` says.

mod rows;
