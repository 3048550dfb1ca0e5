//! Random numbers that are PyTorch's own, bit for bit: generators (`torch.Generator`, `torch.cuda.random`) and what is
//! drawn from them.
//!
//! Each operation takes an optional generator and draws from the default one of the tensor's device without it. It takes
//! its share of the sequence when it is called, so that the numbers do not depend on when the work is done. Captured
//! work draws new numbers at each replay of its graph.
//!
//! CUDA devices draw by Philox, the host by mt19937, as in torch.
//!
//! Reading order: `philox` (words), `device` (what has been drawn on a device), `captured` (in graphs), `host` (the
//! host's words), `generator` (both), `seeding` (the default generators), `host_fill` and `host_normal` (distributions on the host), then what is drawn: `fill` (distributions, in place), `make` (new tensors), `dropout`, `permute`
//! (`randperm`) and `categories` (`multinomial`). `docs/random.md` says which words an element gets.
//!
//! | operation | dtypes |
//! |---|---|
//! | `rand`, `randn`, `uniform_`, `normal_` | floats, complex |
//! | `exponential_`, `cauchy_`, `log_normal_`, dropout | floats |
//! | `bernoulli_`, `geometric_`, `random_`, `random_from_to_`, `randint` | floats, integers; `bernoulli_` and `random_` also bool |
//! | `randperm` | all but bool and complex; `bf16` on the host only |
//! | `multinomial` | floats; indices are `i64` |

mod captured;
mod categories;
mod device;
mod dropout;
mod fill;
mod generator;
mod host;
mod host_fill;
mod host_normal;
mod make;
mod permute;
mod philox;
mod seeding;

pub use generator::Generator;
pub use philox::philox;
pub use seeding::{
    default_generator, default_generators, default_host_generator, get_rng_state, get_rng_state_all,
    get_rng_state_offset, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all,
    set_rng_state_offset,
};
