//! Random numbers of host tensors against PyTorch's, recorded on a processor with AVX2.

use aten_cuda::{DType, Error, Generator, RandomError, Result, Tensor, random};

/// The hash of torch's state after the seed 42 and three normal numbers.
const STATE: u32 = 0x6f6d93c3;

/// What was recorded: see the head of the file.
const RECORDED: &str = include_str!("data/host_random.txt");

fn dtype_of(name: &str) -> DType {
    match name {
        "u8" => DType::U8,
        "i8" => DType::I8,
        "i16" => DType::I16,
        "i32" => DType::I32,
        "i64" => DType::I64,
        "bool" => DType::Bool,
        "f16" => DType::F16,
        "bf16" => DType::BF16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        "c64" => DType::C64,
        "c128" => DType::C128,
        _ => panic!("no dtype {name}"),
    }
}

/// A generator of the host, and the calls of the recorded script.
struct Script {
    generator: Generator,
    dtype: DType,
}

impl Script {
    fn empty(&self, sizes: &[i64]) -> Result<Tensor> {
        Tensor::empty(sizes, self.dtype, "cpu")
    }

    fn transposed(&self, rows: i64, columns: i64) -> Result<Tensor> {
        self.empty(&[columns, rows])?.t()
    }

    /// Every second column.
    fn gaps(&self, rows: i64, columns: i64) -> Result<Tensor> {
        self.empty(&[rows, 2 * columns])?.slice(1, None, None, 2)
    }

    fn normals(&self, counts: &[i64]) -> Result<Vec<Tensor>> {
        let generator = Some(&self.generator);
        counts.iter().map(|&count| Tensor::randn(&[count], self.dtype, "cpu", generator)).collect()
    }

    /// Probabilities from 0 to 1. Those of torch were made in the dtype on the device of then.
    fn steps(count: i64, dtype: DType) -> Result<Tensor> {
        Tensor::linspace(0, 1, count, Some(dtype), "cpu")
    }

    /// The default generator begins where this one is; dropout draws from no other.
    fn seed_default(&self) -> Result<()> {
        random::default_host_generator().set_state(&self.generator.get_state()?)
    }

    /// This generator goes on where the default one is.
    fn take_default(&self) -> Result<()> {
        self.generator.set_state(&random::default_host_generator().get_state()?)
    }

    fn run(&self, words: &[&str]) -> Result<Vec<Tensor>> {
        let generator = Some(&self.generator);
        let number = |at: usize| words[at].parse::<f64>().expect("a number");
        let int = |at: usize| words[at].parse::<i64>().expect("an integer");
        let one = |tensor: Tensor, fill: &dyn Fn(&Tensor) -> Result<()>| {
            fill(&tensor)?;
            Ok(vec![tensor])
        };
        let weights = Tensor::arange(1, 11, 1, Some(DType::F32), "cpu")?;
        match words[..] {
            ["rand", count] | ["rand", count, "seed"] => {
                let count = count.parse().expect("a count");
                Ok(vec![Tensor::rand(&[count], self.dtype, "cpu", generator)?])
            }
            ["randn", _] => self.normals(&[int(1)]),
            ["uniform", "strided", _] => one(self.transposed(4, 3)?, &|t| t.uniform_(0.0, 1.0, generator).map(drop)),
            ["uniform", "slice", _] => one(self.gaps(4, 3)?, &|t| t.uniform_(0.0, 1.0, generator).map(drop)),
            ["uniform", "expand3d"] => {
                one(self.empty(&[2, 3, 4])?.permute(&[2, 0, 1])?, &|t| t.uniform_(0.0, 1.0, generator).map(drop))
            }
            ["uniform", ..] => one(self.empty(&[int(3)])?, &|t| t.uniform_(number(1), number(2), generator).map(drop)),
            ["normal", "3", "then", "3"] => self.normals(&[3, 3]),
            ["normal", "3", "then", "16", "then", "3"] => self.normals(&[3, 16, 3]),
            ["normal", "3", "then", "rand", "2", "then", "3"] => {
                let mut made = self.normals(&[3])?;
                made.push(Tensor::rand(&[2], self.dtype, "cpu", generator)?);
                made.extend(self.normals(&[3])?);
                Ok(made)
            }
            ["normal", first @ ("f64" | "f32"), "5", "then", ..] => {
                let second = if first == "f64" { DType::F32 } else { DType::F64 };
                [dtype_of(first), second].iter().map(|&dtype| Tensor::randn(&[5], dtype, "cpu", generator)).collect()
            }
            ["normal", "tensor", which, ..] => {
                let numbers = Tensor::arange(0, if words.len() == 4 { 5 } else { 20 }, 1, Some(DType::F32), "cpu")?;
                Ok(vec![match which {
                    "mean" => Tensor::normal(&numbers, 2.0, generator)?,
                    "std" => Tensor::normal(1.0, &numbers, generator)?,
                    _ => Tensor::normal(&numbers, &numbers, generator)?,
                }])
            }
            ["normal", "strided", _] => one(self.transposed(4, 8)?, &|t| t.normal_(0.0, 1.0, generator).map(drop)),
            ["normal", "slice", _] => one(self.gaps(4, 5)?, &|t| t.normal_(0.0, 1.0, generator).map(drop)),
            ["normal", ..] => one(self.empty(&[int(3)])?, &|t| t.normal_(number(1), number(2), generator).map(drop)),
            ["exponential", ..] => one(self.empty(&[int(2)])?, &|t| t.exponential_(number(1), generator).map(drop)),
            ["cauchy", ..] => one(self.empty(&[int(3)])?, &|t| t.cauchy_(number(1), number(2), generator).map(drop)),
            ["log_normal", ..] => {
                one(self.empty(&[int(3)])?, &|t| t.log_normal_(number(1), number(2), generator).map(drop))
            }
            ["geometric", ..] => one(self.empty(&[int(2)])?, &|t| t.geometric_(number(1), generator).map(drop)),
            ["random", "9"] => one(self.empty(&[9])?, &|t| t.random_(generator).map(drop)),
            ["random", "strided"] => {
                one(self.transposed(4, 3)?, &|t| t.random_from_to_(0, Some(2), generator).map(drop))
            }
            ["random", "full", _] => {
                one(self.empty(&[9])?, &|t| t.random_from_to_(i64::MIN, None, generator).map(drop))
            }
            ["random", "from", ..] => {
                one(self.empty(&[9])?, &|t| t.random_from_to_(-(1 << 24), None, generator).map(drop))
            }
            ["random", ..] => one(self.empty(&[9])?, &|t| t.random_from_to_(int(1), Some(int(2)), generator).map(drop)),
            ["randint", "f32", ..] => Ok(vec![Tensor::randint(0, 1 << 30, &[9], self.dtype, "cpu", generator)?]),
            ["randint", low, high, _] => {
                let bound = |text: &str| match text {
                    "0" => 0,
                    "2^32" => 1 << 32,
                    "2^32-1" => (1 << 32) - 1,
                    "2^40" => 1 << 40,
                    "2^28+1" => (1 << 28) + 1,
                    "2^62" => 1 << 62,
                    "-2^62" => -(1 << 62),
                    _ => panic!("no bound {text}"),
                };
                Ok(vec![Tensor::randint(bound(low), bound(high), &[9], self.dtype, "cpu", generator)?])
            }
            ["bernoulli", "slice", _] => one(self.gaps(4, 3)?, &|t| t.bernoulli_(0.3, generator).map(drop)),
            ["bernoulli", "of", "2d", _] => {
                let p = Self::steps(5, DType::F32)?;
                one(self.empty(&[4, 5])?, &|t| t.bernoulli_of_(&p, generator).map(drop))
            }
            ["bernoulli", "of", dtype] => {
                let p = Self::steps(20, dtype_of(dtype))?;
                one(self.empty(&[20])?, &|t| t.bernoulli_of_(&p, generator).map(drop))
            }
            ["bernoulli", "fn", "p"] => one(self.empty(&[20])?, &|t| t.bernoulli_(0.25, generator).map(drop)),
            ["bernoulli", "fn", dtype] => Ok(vec![Self::steps(20, dtype_of(dtype))?.bernoulli(generator)?]),
            ["bernoulli", ..] => one(self.empty(&[int(2)])?, &|t| t.bernoulli_(number(1), generator).map(drop)),
            ["randperm", _] => Ok(vec![Tensor::randperm(int(1), self.dtype, "cpu", generator)?]),
            ["multinomial", "1"] => Ok(vec![weights.multinomial(1, false, generator)?]),
            ["multinomial", "5", _] => Ok(vec![weights.multinomial(5, false, generator)?]),
            ["multinomial", "20", _] => Ok(vec![weights.multinomial(20, true, generator)?]),
            ["multinomial", "rows"] => {
                let weights = Tensor::arange(1, 31, 1, Some(DType::F32), "cpu")?.view(&[3, 10])?;
                Ok(vec![weights.multinomial(8, true, generator)?])
            }
            ["dropout", _] => {
                self.seed_default()?;
                let kept = Tensor::ones(&[40], self.dtype, "cpu")?.dropout(number(1), true)?;
                self.take_default()?;
                Ok(vec![kept])
            }
            ["native_dropout", _] => {
                self.seed_default()?;
                let (kept, mask) = Tensor::ones(&[40], self.dtype, "cpu")?.native_dropout(number(1), Some(true))?;
                self.take_default()?;
                Ok(vec![kept, mask])
            }
            ["rand_like"] => Ok(vec![self.transposed(4, 3)?.rand_like(generator)?]),
            _ => panic!("no call {words:?}"),
        }
    }
}

/// FNV-1a, folded to 32 bits.
fn hash(bytes: &[u8]) -> u32 {
    let whole = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [low, high] = [whole & 0xffff_ffff, whole >> 32].map(|half| u32::try_from(half).unwrap_or_default());
    low ^ high
}

/// The low 32 bits of the next number of 64.
fn next_of(generator: &Generator) -> Result<u32> {
    let next = Tensor::empty(&[1], DType::I64, "cpu")?;
    next.random_from_to_(0, Some(1 << 32), Some(generator))?;
    Ok(u32::try_from(next.item()?.to_i64()).unwrap_or_default())
}

/// Runs one recorded call in one dtype, and says what differs.
fn compare(call: &str, wanted: &str) -> Result<Option<String>> {
    let [dtype, bytes, next] = wanted.split(':').collect::<Vec<_>>()[..] else { panic!("{wanted}") };
    let seed = if call.ends_with(" seed") { (1_i64 << 40) + 7 } else { 42 };
    let script = Script { generator: Generator::new("cpu")?, dtype: dtype_of(dtype) };
    script.generator.manual_seed(seed)?;
    let made = script.run(&call.split(' ').collect::<Vec<_>>())?;
    let found = made.iter().map(Tensor::to_bytes).collect::<Result<Vec<_>>>()?.concat();
    let next_found = next_of(&script.generator)?;
    let bits = |text: &str| u32::from_str_radix(text, 16).expect("hexadecimal digits");
    let differs = |what: &str| Some(format!("{call} of {dtype}: other {what}"));
    Ok(match (hash(&found) == bits(bytes), next_found == bits(next)) {
        (true, true) => None,
        (false, _) => differs("numbers"),
        (_, false) => differs("number of words"),
    })
}

#[test]
fn numbers_are_torchs() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let mut faults = Vec::new();
    let mut count = 0;
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let (call, wanted) = line.split_once(" = ").expect("a call and what came of it");
        for wanted in wanted.split(' ') {
            count += 1;
            faults.extend(compare(call, wanted)?);
        }
    }
    assert_eq!(faults, [""; 0], "of {count}");
    assert!(count > 250, "{count}");
    Ok(())
}

#[test]
fn states_are_torchs() -> Result<()> {
    let generator = Generator::new("cpu")?;
    assert_eq!((generator.device().to_string(), generator.initial_seed()?), ("cpu".to_owned(), 67_280_421_310_721));
    generator.manual_seed(42)?;
    Tensor::randn(&[3], DType::F32, "cpu", Some(&generator))?;
    let state = generator.get_state()?;
    // The hash of the state that torch had then.
    assert_eq!((state.sizes(), hash(&state.to_bytes()?)), (&[5056][..], STATE));
    let draw = |generator: &Generator| Tensor::randn(&[20], DType::F64, "cpu", Some(generator))?.to_vec::<f64>();
    let copy = generator.clone_state()?;
    let drawn = draw(&generator)?;
    assert_eq!(draw(&copy)?, drawn);
    generator.set_state(&state)?;
    assert_eq!(draw(&generator)?, drawn);
    generator.manual_seed(42)?.manual_seed(-1)?;
    assert_eq!(generator.initial_seed()?, u64::MAX);
    assert_eq!(generator.seed()?, generator.initial_seed()?);
    Ok(())
}

/// The text of an error.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, wanted: &str) {
    let error = result.expect_err("it is refused").to_string();
    assert!(error.contains(wanted), "{error:?} should say {wanted:?}");
}

#[test]
fn what_the_generator_has_not_is_refused() -> Result<()> {
    let generator = Generator::new("cpu")?;
    let state = |bytes: &[u8]| Tensor::from_slice(bytes, &[i64::try_from(bytes.len()).unwrap_or(0)]);
    let wrong_size = generator.set_state(&state(&[0; 16])?).expect_err("a state of a device");
    assert!(matches!(wrong_size, Error::Random(RandomError::HostStateSize { bytes: 16 })), "{wrong_size}");
    refused(generator.set_state(&Tensor::zeros(&[5056], DType::F32, "cpu")?), "RNG state must be a torch.ByteTensor");
    // Words behind the end of the table.
    let mut bytes = generator.get_state()?.to_bytes()?;
    (bytes[8], bytes[16], bytes[17]) = (5, 0x6e, 2);
    refused(generator.set_state(&state(&bytes)?), "Invalid mt19937 state");
    refused(generator.get_offset(), "CPU Generator does not use offset");
    refused(generator.set_offset(4), "CPU Generator does not use offset");
    refused(generator.graphsafe_get_state(), "graphsafe_get_state is not supported in this Generator");
    refused(generator.graph_state().map(drop), "generators of CUDA devices only");
    refused(generator.manual_seed(1_i128 << 64), "Overflow when unpacking long");
    Ok(())
}

#[test]
fn what_torch_refuses_is_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let of = |dtype| Tensor::empty(&[3], dtype, "cpu");
    let floats = of(DType::F32)?;
    refused(of(DType::I32)?.uniform_(0.0, 1.0, None), "\"check_uniform_bounds\" not implemented for 'Int'");
    refused(of(DType::I32)?.normal_(0.0, 1.0, None), "\"normal_kernel_cpu\" not implemented for 'Int'");
    refused(of(DType::C64)?.log_normal_(1.0, 1.0, None), "\"log_normal_cpu\" not implemented for 'ComplexFloat'");
    refused(of(DType::Bool)?.geometric_(0.5, None), "\"geometric_cpu\" not implemented for 'Bool'");
    refused(of(DType::Bool)?.random_from_to_(0, Some(100), None), "to - 1 is out of bounds for bool");
    refused(of(DType::U8)?.random_from_to_(-5, Some(6), None), "from is out of bounds for unsigned char");
    refused(floats.normal_(0.0, -1.0, None), "normal expects std >= 0.0, but found std -1");
    refused(Tensor::normal(&floats, &Tensor::full(&[3], -1, DType::F32, "cpu")?, None), "all elements of std >= 0.0");
    refused(Tensor::normal(&floats, &of(DType::C64)?, None), "normal expects standard deviation to be non-complex");
    refused(Tensor::normal(0.0, 1.0, None), "mean or std is a tensor");
    refused(Tensor::randperm(3000, DType::U8, "cpu", None), "value cannot be converted to type uint8_t");
    refused(floats.expand(&[2, 3])?.uniform_(0.0, 1.0, None), "more than one element of the written-to tensor");
    refused(floats.fill_(-1)?.multinomial(1, false, None), "probability");
    let device = Generator::new(None)?;
    let mixed = floats.uniform_(0.0, 1.0, Some(&device));
    refused(mixed, "Expected a 'cpu' device type for generator but found 'cuda'");
    Ok(())
}

#[test]
fn the_default_generator_is_the_runtimes() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let default = random::default_host_generator();
    default.manual_seed(1)?;
    let drawn = Tensor::rand(&[4], DType::F32, "cpu", None)?.to_vec::<f32>()?;
    default.manual_seed(1)?;
    assert_eq!(Tensor::rand(&[4], DType::F32, "cpu", None)?.to_vec::<f32>()?, drawn);
    // Tensors without elements draw nothing.
    let before = default.get_state()?.to_bytes()?;
    Tensor::rand(&[0, 4], DType::F32, "cpu", None)?;
    assert_eq!(default.get_state()?.to_bytes()?, before);
    Ok(())
}
