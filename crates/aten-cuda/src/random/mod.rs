//! Random numbers that are PyTorch's own, bit for bit: generators (`torch.Generator`, `torch.cuda.random`) and what is
//! drawn from them.
//!
//! Each operation takes an optional generator and draws from the default one of the tensor's device without it. It takes
//! its share of the sequence when it is called, so that the numbers do not depend on when the work is done. Captured
//! work draws new numbers at each replay of its graph.
//!
//! Numbers are those of CUDA tensors. On the host torch draws from another generator (mt19937), which is not here: an
//! operation on a host tensor is [`RandomError::OnHost`].
//!
//! Reading order: `philox` (words), `generator` (what has been drawn), `captured` (in graphs), `seeding` (the default
//! generators), then what is drawn: `fill` (distributions, in place), `make` (new tensors), `dropout`, `permute`
//! (`randperm`) and `categories` (`multinomial`). `docs/random.md` says which words an element gets.
//!
//! | operation | dtypes |
//! |---|---|
//! | `rand`, `randn`, `uniform_`, `normal_` | floats, complex |
//! | `exponential_`, `cauchy_`, `log_normal_`, dropout | floats |
//! | `bernoulli_`, `geometric_`, `random_`, `random_from_to_`, `randint` | floats, integers; `bernoulli_` and `random_` also bool |
//! | `randperm` | all but bool and complex |
//! | `multinomial` | floats; indices are `i64` |
//!
//! [`RandomError::OnHost`]: crate::RandomError::OnHost

mod captured;
mod categories;
mod dropout;
mod fill;
mod generator;
mod make;
mod permute;
mod philox;
mod seeding;

pub use generator::Generator;
pub use philox::philox;
pub use seeding::{
    default_generator, default_generators, get_rng_state, get_rng_state_all, get_rng_state_offset, initial_seed,
    manual_seed, manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all, set_rng_state_offset,
};
