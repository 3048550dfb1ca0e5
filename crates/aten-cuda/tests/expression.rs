//! Functions of expressions: every operation and random functions against the operations of tensors, on the host and on a
//! simulated device, and what is refused.

mod support;

use aten_cuda::expression::{Expr, ExpressionError, JitFunction, MOST_NODES, jit_fn as build};
use aten_cuda::{DType, Error, Operand, Operation, Result, Scalar, Tensor, TensorError, jit_fn, kernel_texts, table};
use c10_core::{CUDAGraph, CaptureMode, Stream};
use support::{numbers, special_tensor};

/// The numbers that operations with numbers of their own are given.
const NUMBERS: [i64; 3] = [2, 3, -5];

/// Rows that texts do not have.
const HIDDEN: [&str; 4] = ["pow_half", "pow_two", "round_finer", "round_coarser"];

/// A function that is one operation.
fn one_operation(operation: &Operation) -> JitFunction {
    let name = if operation.name == "true_divide" { "div" } else { operation.name };
    let inputs: Vec<String> = (0..operation.arity).map(|at| format!("x{at}")).collect();
    let own = NUMBERS.iter().take(operation.numbers).map(i64::to_string);
    let arguments: Vec<String> = inputs.iter().cloned().chain(own).collect();
    let text = format!("f({}) = {name}({})", inputs.join(", "), arguments.join(", "));
    JitFunction::parse(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// Special elements of a dtype in another order for each operand.
fn operand(dtype: DType, at: usize) -> Tensor {
    let special = special_tensor(dtype);
    let (bytes, width) = (special.to_bytes().expect("it succeeds"), special.element_size());
    let count = bytes.len() / width;
    let elements = (0..256).flat_map(|place| {
        let place = (place * [1, 7, 11][at] + place / [1, 3, 5][at]) % count * width;
        bytes[place..place + width].to_vec()
    });
    Tensor::from_bytes(&elements.collect::<Vec<u8>>(), &[256], dtype).expect("it succeeds")
}

fn eager(operation: &'static Operation, operands: &[Tensor]) -> Result<Tensor> {
    let mut all: Vec<Tensor> = operands.to_vec();
    if operation.takes_condition {
        all[0] = all[0].to_dtype(DType::Bool)?;
    }
    let all: Vec<Operand<'_>> = all.iter().map(Operand::from).collect();
    let own: Vec<Scalar> = NUMBERS.into_iter().take(operation.numbers).map(Scalar::Int).collect();
    operation.apply(&all, &own)
}

/// The same dtype, sizes and elements; NaNs have any bits.
#[track_caller]
fn assert_same(found: &Tensor, expected: &Tensor, name: &str) {
    assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()), "{name}");
    let (ours, theirs) = (found.to_bytes().expect("it succeeds"), expected.to_bytes().expect("it succeeds"));
    if ours == theirs {
        return;
    }
    let width = ours.len() / numbers(found).len();
    for (at, (found, expected)) in numbers(found).iter().zip(numbers(expected)).enumerate() {
        let place = at * width..(at + 1) * width;
        let is_same = ours[place.clone()] == theirs[place] || (found.is_nan() && expected.is_nan());
        assert!(is_same, "{name}, element {at}: {found:e} instead of {expected:e}");
    }
}

/// Every operation alone gives what the operation of tensors gives, in the common dtype, and is refused where that is.
fn every_operation(place: impl Fn(&Tensor) -> Result<Tensor>) -> usize {
    let mut count = 0;
    for operation in table().filter(|row| !HIDDEN.contains(&row.name)) {
        let function = one_operation(operation);
        for dtype in DType::ALL {
            let name = format!("{} of {dtype}", operation.name);
            let operands: Vec<Tensor> =
                (0..operation.arity).map(|at| place(&operand(dtype, at)).expect("it succeeds")).collect();
            let references: Vec<&Tensor> = operands.iter().collect();
            match (function.one(&references), eager(operation, &operands)) {
                (Ok(found), Ok(expected)) => {
                    assert_same(&found, &expected.to_dtype(dtype).expect("it succeeds"), &name);
                    count += 1;
                }
                (Err(Error::Expression(_)), Err(_)) => {}
                // Functions divide integers as CUDA does on the host too, where the operations of tensors refuse zeros.
                (Ok(_), Err(Error::Tensor(TensorError::ZeroDivision { .. }))) => {}
                (found, expected) => panic!("{name}: {found:?} and {expected:?}"),
            }
        }
    }
    count
}

#[test]
fn every_operation_on_the_host_is_that_of_tensors() {
    assert!(every_operation(|tensor| Ok(tensor.clone())) > 800);
}

#[test]
fn every_operation_on_a_device_is_that_of_tensors() {
    let _simulated = testkit::simulated_runtime();
    assert!(every_operation(|tensor| tensor.cuda(None)) > 800);
}

/// Numbers in an order that follows from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 20) % limit as u64).expect("it fits")
    }
}

/// A random function: its text, and what the operations of tensors make of the same.
struct Case {
    text: String,
    steps: Vec<Step>,
    outputs: Vec<usize>,
}

/// A step: an operation of earlier values, the first of which are the tensors.
enum Step {
    Unary(&'static str, usize),
    Binary(&'static str, usize, usize),
    Number(&'static str, usize, f64),
    Choose(usize, usize, usize),
}

/// Operations whose results are the same everywhere, with the texts of operators.
const UNARY: [(&str, &str); 6] =
    [("neg", "-"), ("abs", "abs"), ("relu", "relu"), ("square", "square"), ("sign", "sign"), ("trunc", "trunc")];
const BINARY: [(&str, &str); 7] = [
    ("add", "+"),
    ("sub", "-"),
    ("mul", "*"),
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("remainder", "%"),
    ("floor_divide", "//"),
];

fn random_case(random: &mut Random, inputs: usize) -> Case {
    let names = ["x", "y", "z"];
    let mut texts: Vec<String> = names.iter().take(inputs).map(|name| (*name).to_owned()).collect();
    let mut steps = Vec::new();
    let mut lets = String::new();
    for at in 0..1 + random.below(20) {
        let (a, b, c) = (random.below(texts.len()), random.below(texts.len()), random.below(texts.len()));
        let (step, text) = match random.below(8) {
            0 | 1 => {
                let (name, sign) = UNARY[random.below(UNARY.len())];
                let text = if sign == "-" { format!("-({})", texts[a]) } else { format!("{sign}({})", texts[a]) };
                (Step::Unary(name, a), text)
            }
            2 => {
                let (name, sign) = BINARY[random.below(3)];
                let number = [2.0, -3.0, 7.0][random.below(3)];
                (Step::Number(name, a, number), format!("({}) {sign} {number:?}", texts[a]))
            }
            3 => {
                let text = format!("where({} < {}, {}, {})", texts[a], texts[b], texts[b], texts[c]);
                (Step::Choose(a, b, c), text)
            }
            _ => {
                let (name, sign) = BINARY[random.below(BINARY.len())];
                let is_function = sign.len() > 2;
                let (left, right) = (&texts[a], &texts[b]);
                let text =
                    if is_function { format!("{sign}({left}, {right})") } else { format!("({left}) {sign} ({right})") };
                (Step::Binary(name, a, b), text)
            }
        };
        steps.push(step);
        lets += &format!("let v{at} = {text};\n  ");
        texts.push(format!("v{at}"));
    }
    let outputs: Vec<usize> = (0..1 + random.below(3)).map(|_| random.below(texts.len())).collect();
    let results: Vec<&str> = outputs.iter().map(|&at| texts[at].as_str()).collect();
    let text = format!("f({}) =\n  {lets}{}", names[..inputs].join(", "), results.join(", "));
    Case { text, steps, outputs }
}

impl Case {
    fn eager(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let find = |name: &str| table().find(|row| row.name == name).expect("the table has it");
        let mut values: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
        for step in &self.steps {
            values.push(match *step {
                Step::Unary(name, a) => find(name).apply(&[(&values[a]).into()], &[])?,
                Step::Binary(name, a, b) => find(name).apply(&[(&values[a]).into(), (&values[b]).into()], &[])?,
                Step::Number(name, a, number) => find(name).apply(&[(&values[a]).into(), number.into()], &[])?,
                Step::Choose(a, b, c) => values[a].lt(&values[b])?.where_cond(&values[b], &values[c])?,
            });
        }
        let first = inputs.iter().try_fold(values[0].clone(), |all, input| all.add(*input))?;
        let expanded = |at: &usize| values[*at].expand(first.sizes())?.contiguous();
        self.outputs.iter().map(expanded).collect()
    }
}

/// Layouts of three tensors that broadcast to one another.
fn layouts(dtype: DType) -> Result<Vec<[Tensor; 3]>> {
    let tensor = |at: usize, sizes: &[i64]| -> Result<Tensor> {
        let values =
            (0..sizes.iter().product::<i64>()).map(|place| ((place * 37 + at as i64 * 11) % 23 - 9) as f64 / 4.0);
        Tensor::from_slice(&values.collect::<Vec<f64>>(), sizes)?.to_dtype(dtype)
    };
    Ok(vec![
        [tensor(0, &[300])?, tensor(1, &[300])?, tensor(2, &[300])?],
        [tensor(0, &[12, 20])?, tensor(1, &[20, 12])?.t()?, tensor(2, &[20])?],
        [tensor(0, &[30, 17])?.slice(0, Some(1), None, 2)?, tensor(1, &[15, 1])?, tensor(2, &[])?],
        [tensor(0, &[4, 0])?, tensor(1, &[4, 1])?, tensor(2, &[])?],
        [tensor(0, &[])?, tensor(1, &[])?, tensor(2, &[])?],
        [tensor(0, &[1000])?.narrow(0, 1, 700)?, tensor(1, &[700])?, tensor(2, &[1])?],
    ])
}

/// Random functions give what the operations of tensors give one after another.
fn random_functions(dtype: DType, count: usize, place: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let mut random = Random(0x1234_5678_9abc_def1 + dtype as u64);
    let layouts = layouts(dtype)?;
    for at in 0..count {
        let case = random_case(&mut random, 3);
        let function = JitFunction::parse(&case.text)?;
        let read = JitFunction::parse(&function.to_string()).unwrap_or_else(|error| panic!("{error}\n{}", case.text));
        assert_eq!(read, function, "{}", case.text);
        let own: Vec<Tensor> = layouts[at % layouts.len()].iter().map(&place).collect::<Result<_>>()?;
        let own: Vec<&Tensor> = own.iter().collect();
        // Floats of 16 bits are computed as f32 and rounded once.
        let is_short = dtype.itemsize() == 2;
        let wide = |one: &&Tensor| if is_short { one.to_dtype(DType::F32) } else { Ok((*one).clone()) };
        let wide: Vec<Tensor> = own.iter().map(wide).collect::<Result<_>>()?;
        let expected = case.eager(&wide.iter().collect::<Vec<_>>())?;
        for (found, expected) in function.call(&own, &[])?.iter().zip(&expected) {
            assert_same(found, &expected.to_dtype(dtype)?, &case.text);
        }
    }
    Ok(())
}

#[test]
fn random_functions_on_the_host() -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        random_functions(dtype, 300, |tensor| Ok(tensor.clone()))?;
    }
    Ok(())
}

#[test]
fn random_functions_on_a_device() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        random_functions(dtype, 60, |tensor| {
            // A copy would lose the layout.
            let bytes = i64::try_from(tensor.storage().nbytes()).unwrap_or(0);
            let whole = Tensor::from_storage(tensor.storage().clone(), DType::U8, &[bytes], &[1], 0)?.cuda(None)?;
            let storage = whole.storage().clone();
            Tensor::from_storage(storage, tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.storage_offset())
        })?;
    }
    Ok(())
}

#[test]
fn operators_are_operations() -> Result<()> {
    let pairs = [
        (jit_fn!(|x, y| x + y)?, "f(x, y) = add(x, y)"),
        (jit_fn!(|x, y| x - y)?, "f(x, y) = x - y"),
        (jit_fn!(|x, y| x * y)?, "f(x, y) = mul(x, y)"),
        (jit_fn!(|x, y| x / y)?, "f(x, y) = div(x, y)"),
        (jit_fn!(|x, y| x % y)?, "f(x, y) = remainder(x, y)"),
        (jit_fn!(|x, y| x & y)?, "f(x, y) = bitwise_and(x, y)"),
        (jit_fn!(|x, y| x | y)?, "f(x, y) = x | y"),
        (jit_fn!(|x, y| x ^ y)?, "f(x, y) = bitwise_xor(x, y)"),
        (jit_fn!(|x, y| x << y)?, "f(x, y) = x << y"),
        (jit_fn!(|x, y| x >> y)?, "f(x, y) = bitwise_right_shift(x, y)"),
        (jit_fn!(|x| -x)?, "f(x) = neg(x)"),
        (jit_fn!(|x| !x)?, "f(x) = ~x"),
        (jit_fn!(|x| 2.0 - x)?, "f(x) = 2.0 - x"),
        (jit_fn!(|x| 2_i64 / x)?, "f(x) = 2 / x"),
        (jit_fn!(|x| x.pow(2))?, "f(x) = x ** 2"),
        (jit_fn!(|x, y| x.lt(y).logical_not())?, "f(x, y) = not x < y"),
        (jit_fn!(|x, y| x.logical_and(y).logical_or(x))?, "f(x, y) = x and y or x"),
        (jit_fn!(|x| x.to(DType::F32).to(DType::F8E5M2))?, "f(x) = f8e5m2(f32(x))"),
        (jit_fn!(|x| x.lerp(1.0, Expr::parameter("w", 0.5)))?, "f(x, w=0.5) = lerp_weights(x, 1.0, w)"),
    ];
    for (built, text) in pairs {
        assert_eq!(built, JitFunction::parse(text)?, "{text}");
        assert_eq!(JitFunction::parse(&built.to_string())?, built);
    }
    Ok(())
}

#[test]
fn texts_show_as_little_as_they_need() -> Result<()> {
    let texts = [
        "f(x, y) = x - (y - x)",
        "f(x, y) = x - y - x",
        "f(x) = -x ** -2.0",
        "f(x) = (-x) ** 2",
        "f(x, y) = (x ** y) ** -1",
        "f(x) = (-2.0) ** x",
        "f(x) = -2.0 ** x",
        "f(x) = -(2.0) * x",
        "f(x) = x * --(-2)",
        "f(x, y) = (x < y) == (y < x)",
        "f(x, y) = not x < y and y > 2",
        "f(x, y) = (not x) + y",
        "f(x) = ~x & 3 | x << 1",
        "f(x, y) = x * (y + 1), x // y % 2",
        "f(x, n=-3, flag=true, c=2.0j, w=-inf, v=nan) = x * c + n",
        "f(x) = x * complex(1.0, -2.5) + complex(0.0, inf)",
        "f(t1) = let t2 = exp(t1); t2 / (1.0 + t2)",
        "f(x) = -9223372036854775808 + x",
        "f(x) = 1e-5 + x * 1e300",
    ];
    for text in texts {
        assert_eq!(JitFunction::parse(text)?.to_string(), text);
    }
    Ok(())
}

#[test]
fn long_chains_and_deep_trees_have_texts() -> Result<()> {
    let chain = jit_fn!(|x| (0..500).fold(x, |sum, at| sum + at))?;
    let tree = jit_fn!(|x| (0..500).fold(x, |rest, at| at - rest))?;
    let powers = jit_fn!(|x, y| (0..300).fold(x, |power, _| y.pow(power)))?;
    let shared = jit_fn!(|x| (0..200).fold(x, |sum, _| sum + sum))?;
    for function in [chain, tree, powers, shared] {
        let text = function.to_string();
        assert!(text.len() < 1 << 14, "{} bytes", text.len());
        assert_eq!(JitFunction::parse(&text)?, function);
    }
    Ok(())
}

/// A value that is there, a number or a parameter.
fn random_value(random: &mut Random, values: &[Expr]) -> Expr {
    match random.below(12) {
        0 => Expr::from([2_i64, -3, i64::MIN, 0][random.below(4)]),
        1 => Expr::from([0.5, -2.0, -0.0, f64::INFINITY, f64::NAN, 1e-300][random.below(6)]),
        2 => Expr::from(num_complex::Complex64::new([0.0, -0.0, 1.5][random.below(3)], -2.0)),
        3 => Expr::parameter(["alpha", "t1", "n"][random.below(3)], true),
        _ => values[random.below(values.len())],
    }
}

/// A closure of random operations of all kinds, with numbers and parameters among the values.
fn random_values(random: &mut Random, inputs: [Expr; 2]) -> Vec<Expr> {
    let rows: Vec<&Operation> = table().filter(|row| !HIDDEN.contains(&row.name)).collect();
    let mut values = inputs.to_vec();
    for _ in 0..1 + random.below(60) {
        let first = random_value(random, &values);
        let second = random_value(random, &values);
        let value = match random.below(8) {
            0 => first.to(DType::ALL[random.below(DType::ALL.len())]),
            1 => -first,
            2 => first.logical_not(),
            3 => first.pow(second),
            4 => first + second,
            5 => first.lt(second),
            _ => {
                let row = rows[random.below(rows.len())];
                let others: Vec<Expr> = (1..row.arity + row.numbers).map(|_| random_value(random, &values)).collect();
                first.apply(if row.name == "true_divide" { "div" } else { row.name }, &others)
            }
        };
        values.push(value);
    }
    let count = values.len();
    (0..1 + random.below(8)).map(|_| values[count - 1 - random.below(count.min(9))]).collect()
}

#[test]
fn what_is_written_is_read_as_the_same() -> Result<()> {
    let mut random = Random(0xfeed_beef_1234_5677);
    for _ in 0..2000 {
        let function = build(|inputs: [Expr; 2]| random_values(&mut random, inputs))?;
        let text = function.to_string();
        let read = JitFunction::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read, function, "{text}");
        assert_eq!(read.to_string(), text);
        // Whatever dtypes do with it, it ends with a dtype or a typed error.
        for dtype in [DType::F32, DType::I64, DType::C64] {
            match function.result_dtype(&[dtype; 2]) {
                Ok(found) => assert_eq!(found, dtype),
                Err(Error::Expression(_)) => {}
                Err(error) => panic!("{error} in {text}"),
            }
        }
    }
    Ok(())
}

#[test]
fn a_function_serves_many_threads_and_runtimes() -> Result<()> {
    let function = JitFunction::parse("f(x, n=2) = x * n + 1")?;
    let shared = || -> Result<()> {
        let _simulated = testkit::simulated_runtime();
        for count in [1_i64, 3, 500] {
            let x = Tensor::arange(0, count, 1, Some(DType::F32), "cuda")?;
            let expected: Vec<f32> = (0..count).map(|at| at as f32 * 3.0 + 1.0).collect();
            assert_eq!(function.one_with(&[&x], &[3.into()])?.to_vec::<f32>()?, expected);
        }
        Ok(())
    };
    for _ in 0..3 {
        shared()?;
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(shared)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

#[test]
fn a_graph_captures_a_function() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let function = jit_fn!(|x, y| (x + y, x * y))?;
    let x = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?.cuda(None)?;
    let (mut graph, stream) = (CUDAGraph::new(), Stream::new(None, 0)?);
    let results = graph.capture(&stream, None, CaptureMode::Global, || function.call(&[&x, &x], &[]))?;
    x.fill_(3)?;
    graph.replay()?;
    assert_eq!(results[0].to_vec::<f32>()?, [6.0, 6.0]);
    assert_eq!(results[1].to_vec::<f32>()?, [9.0, 9.0]);
    Ok(())
}

#[test]
fn dtypes_follow_the_rules_of_the_jiterator() -> Result<()> {
    let sum = jit_fn!(|x, y| x + y)?;
    assert_eq!(sum.result_dtype(&[DType::I32, DType::F16])?, DType::F16);
    assert_eq!(sum.result_dtype(&[DType::F16, DType::BF16])?, DType::F32);
    assert_eq!(sum.result_dtype(&[DType::U8, DType::I8])?, DType::I16);
    // A tensor without dimensions ranks below one with dimensions.
    let (half, one) = (Tensor::ones(&[2], DType::F16, "cpu")?, Tensor::full(&[], 1, DType::F64, "cpu")?);
    assert_eq!(sum.one(&[&half, &one])?.dtype(), DType::F16);
    // Inputs are converted as they are loaded, before anything is computed.
    let (wide, narrow) = (Tensor::from_slice(&[1.0_f64], &[1])?, Tensor::from_slice(&[16_777_217_i64], &[1])?);
    assert_eq!(sum.one(&[&wide.to_dtype(DType::F32)?, &narrow])?.to_vec::<f32>()?, [16_777_216.0 + 1.0]);
    // Results have the common dtype, whatever is computed on the way.
    let integers = Tensor::from_slice(&[7_i32, -7, 2], &[3])?;
    assert_eq!(jit_fn!(|x| x / 2)?.one(&[&integers])?.to_vec::<i32>()?, [3, -3, 1]);
    assert_eq!(jit_fn!(|x| x.gt(0))?.one(&[&integers])?.to_vec::<i32>()?, [1, 0, 1]);
    assert_eq!(jit_fn!(|x| x * 0.5 + 0.6)?.one(&[&integers])?.to_vec::<i32>()?, [4, -2, 1]);
    // Numbers promote as they do beside tensors.
    let halves = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?.to_dtype(DType::BF16)?;
    assert_eq!(jit_fn!(|x| x * 2.5)?.one(&[&halves])?.dtype(), DType::BF16);
    // What is computed of numbers alone is computed as 64 bits.
    let exact = jit_fn!(|x| x + Expr::parameter("a", 1e16) * 1.0 - (Expr::parameter("a", 1e16) - 1.0))?;
    let made = exact.one(&[&Tensor::zeros(&[1], DType::F64, "cpu")?])?;
    assert_eq!(made.to_vec::<f64>()?, [1e16 - (1e16 - 1.0)]);
    Ok(())
}

#[test]
fn floats_of_16_bits_round_once_unless_they_are_told_to() -> Result<()> {
    let x = Tensor::from_slice(&[1.0_f32], &[1])?.to_dtype(DType::BF16)?;
    // 1 + 2^-9 is no bf16: rounded at once it is one.
    let step = 2.0_f64.powi(-9);
    let fused = jit_fn!(|x| (x + step - x) * 512.0)?;
    let rounded = jit_fn!(|x| ((x + step).to(DType::BF16) - x) * 512.0)?;
    assert_eq!(fused.one(&[&x])?.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0]);
    assert_eq!(rounded.one(&[&x])?.to_dtype(DType::F32)?.to_vec::<f32>()?, [0.0]);
    Ok(())
}

#[test]
fn one_kernel_serves_all_results_and_all_parameters() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let text = "three(x, y, alpha=1.0, n=2) = x * alpha + y, x - y * n, maximum(x, alpha)";
    let function = JitFunction::parse(text)?;
    let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], &[3])?.cuda(None)?;
    let texts = kernel_texts(|| function.call(&[&x, &x], &[]).map(drop))?;
    assert_eq!(texts.len(), 1);
    assert_eq!(texts[0].name, "jit_three");
    for alpha in [0.5_f32, 2.0, -1.0] {
        let texts = kernel_texts(|| {
            let made = function.call(&[&x, &x], &[alpha.into(), 3.into()])?;
            assert_eq!(made[0].to_vec::<f32>()?, [1.0, 2.0, 3.0].map(|x: f32| x * alpha + x));
            assert_eq!(made[1].to_vec::<f32>()?, [-2.0, -4.0, -6.0]);
            assert_eq!(made[2].to_vec::<f32>()?, [1.0, 2.0, 3.0].map(|x: f32| x.max(alpha)));
            Ok(())
        })?;
        assert_eq!(texts, []);
    }
    // Another function that is the same needs no kernel of its own.
    let again = JitFunction::parse(text)?;
    assert_eq!(kernel_texts(|| again.call(&[&x, &x], &[]).map(drop))?, []);
    Ok(())
}

#[test]
fn eight_tensors_and_eight_results() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let function = jit_fn!(|a, b, c, d, e, f, g, h| (a + h, b + g, c + f, d + e, a * b, c * d, e * f, g * h))?;
    assert_eq!((function.inputs(), function.outputs()), (8, 8));
    let of = |at: i64| Tensor::arange(at, at + 300, 1, Some(DType::F32), "cuda");
    let tensors: Vec<Tensor> = (0..8).map(of).collect::<Result<_>>()?;
    let made = function.call(&tensors.iter().collect::<Vec<_>>(), &[])?;
    let host: Vec<Vec<f32>> = tensors.iter().map(Tensor::to_vec).collect::<Result<_>>()?;
    for (at, made) in made.iter().enumerate() {
        let expected: Vec<f32> = (0..300)
            .map(|place| match at {
                0..4 => host[at][place] + host[7 - at][place],
                _ => host[2 * (at - 4)][place] * host[2 * (at - 4) + 1][place],
            })
            .collect();
        assert_eq!(made.to_vec::<f32>()?, expected, "{at}");
    }
    Ok(())
}

fn error_of(result: Result<impl std::fmt::Debug>) -> ExpressionError {
    match result {
        Err(Error::Expression(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_built_is_an_error() {
    use ExpressionError as E;
    let nine = error_of(build(|x: [Expr; 9]| x[0]));
    assert_eq!(nine, E::TooManyInputs { limit: 8, found: 9 });
    assert_eq!(error_of(build(|_: [Expr; 0]| Vec::new())), E::NoInput);
    assert_eq!(error_of(jit_fn!(|x| [x; 9])), E::TooManyOutputs { limit: 8, found: 9 });
    assert_eq!(error_of(jit_fn!(|_x| Vec::<Expr>::new())), E::NoOutput);
    let many = error_of(jit_fn!(|x| (0..2000).fold(x, |sum, at| sum * at)));
    assert_eq!(many, E::TooManyNodes { limit: MOST_NODES });
    let twice = error_of(jit_fn!(|x| Expr::parameter("a", 1.0) * x + Expr::parameter("a", 2.0)));
    assert_eq!(twice, E::Declared { name: "a".to_owned() });
    assert!(matches!(error_of(jit_fn!(|x| x * Expr::parameter("not a name", 1.0))), E::Name { .. }));
    assert!(matches!(error_of(jit_fn!(|x| x).and_then(|f| f.named("let"))), E::Name { .. }));
    assert!(matches!(error_of(jit_fn!(|x| x).and_then(|f| f.named("f32"))), E::Name { .. }));
    let parameters = error_of(jit_fn!(|x| (0..33).fold(x, |sum, at| sum + Expr::parameter(&format!("p{at}"), 1.0))));
    assert_eq!(parameters, E::TooManyParameters { limit: 32, found: 33 });
    // A value that has left its function.
    let mut kept = None;
    let _ = jit_fn!(|x| {
        kept = Some(x);
        x
    });
    let kept = kept.expect("the closure ran");
    assert_eq!(error_of(jit_fn!(|x| x + kept)), E::Foreign);
    assert_eq!(error_of(jit_fn!(|_x| kept)), E::Foreign);
    let loose = kept + 1.0;
    assert_eq!(error_of(jit_fn!(|_x| loose)), E::Foreign);
    // A function that is built inside of another is whole.
    let inner = jit_fn!(|x| {
        let inner = jit_fn!(|y| y * 2).expect("it is built");
        assert_eq!(inner.to_string(), "f(x) = x * 2");
        x + 1
    });
    assert_eq!(inner.expect("it is built").to_string(), "f(x) = x + 1");
}

#[test]
fn calls_that_do_not_fit_are_errors() -> Result<()> {
    use ExpressionError as E;
    let _simulated = testkit::simulated_runtime();
    let function = JitFunction::parse("f(x, y, n=1, a=1.0) = x * n + y * a")?;
    let x = Tensor::ones(&[4], DType::F32, "cuda")?;
    let name = || "f".to_owned();
    assert_eq!(error_of(function.one(&[&x])), E::InputCount { function: name(), expected: 2, found: 1 });
    assert_eq!(error_of(function.one(&[&x; 9])), E::InputCount { function: name(), expected: 2, found: 9 });
    let many = [1.into(), 1.0.into(), 1.0.into()];
    assert_eq!(
        error_of(function.call(&[&x, &x], &many)),
        E::ParameterCount { function: name(), expected: 2, found: 3 }
    );
    assert!(matches!(error_of(function.call(&[&x, &x], &[0.5.into()])), E::ParameterKind { .. }));
    assert!(matches!(error_of(function.call_named(&[&x, &x], &[("b", 1.into())])), E::UnknownParameter { .. }));
    assert!(matches!(error_of(function.arrays::<2, 2>([&x, &x], &[])), E::OutputCount { .. }));
    // Sizes and devices have torch's errors.
    let host = Tensor::ones(&[], DType::F32, "cpu")?;
    let devices = function.one(&[&x, &host]).unwrap_err();
    assert!(devices.to_string().contains("Expected all tensors to be on the same device"), "{devices}");
    let sizes = function.one(&[&x, &Tensor::ones(&[3], DType::F32, "cuda")?]).unwrap_err();
    assert!(sizes.to_string().contains("must match the size of tensor b"), "{sizes}");
    // Types that do not fit say where.
    let bits = JitFunction::parse("f(x) = x & 1")?;
    let error = error_of(bits.one(&[&x]));
    assert!(
        matches!(&error, E::Types { function: "bitwise_and", dtypes, .. } if dtypes[..] == [DType::F32, DType::I64])
    );
    let number = JitFunction::parse("f(x, y) = leaky_relu(x, y)")?;
    assert_eq!(error_of(number.one(&[&x, &x])), E::NotANumber { function: "leaky_relu", argument: 2 });
    let complex = jit_fn!(|x| x * Scalar::Complex(num_complex::Complex64::new(0.0, 1.0)))?;
    assert_eq!(error_of(complex.one(&[&x])), E::ComplexResult { output: 1, common: DType::F32 });
    assert_eq!(complex.one(&[&x.to_dtype(DType::C64)?])?.dtype(), DType::C64);
    Ok(())
}

#[test]
fn complex_numbers_and_conjugates() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let function = JitFunction::parse("f(x, y, c=2j) = x * y + c, conj_physical(x) / y, c64(abs(x))")?;
    let x = special_tensor(DType::C64);
    let y = operand(DType::C64, 1).narrow(0, 0, x.numel())?.contiguous()?;
    let c = Scalar::Complex(num_complex::Complex64::new(0.0, 2.0));
    for (x, y) in [(x.clone(), y.clone()), (x.cuda(None)?, y.cuda(None)?), (x.cuda(None)?.conj(), y.cuda(None)?)] {
        let made = function.call(&[&x, &y], &[])?;
        assert_same(&made[0], &x.mul(&y)?.add(c)?, "the product");
        assert_same(&made[1], &x.conj_physical()?.div(&y)?, "the quotient");
        assert_same(&made[2], &x.abs()?.to_dtype(DType::C64)?, "the magnitude");
    }
    Ok(())
}

#[test]
fn texts_that_are_no_functions_say_where() {
    let wrong = [
        ("", 1, "expected the name of the function, found the end"),
        ("f", 2, "expected `(`, found the end"),
        ("f()", 3, "expected the name of a tensor or a parameter, found `)`"),
        ("f(x) = ", 8, "expected an expression, found the end"),
        ("f(x) = x +", 11, "expected an expression, found the end"),
        ("f(x) = x x", 10, "expected an operator, `,` or the end, found `x`"),
        ("f(x) = (x", 10, "expected an operator or `)`, found the end"),
        ("f(x) = y", 8, "`y` is neither an input"),
        ("f(x) = exp(x, x)", 8, "exp takes 1 arguments, not 2"),
        ("f(x) = f32()", 8, "f32 takes 1 arguments, not 0"),
        ("f(x) = x $ 2", 10, "`$` has no meaning here"),
        ("f(x) = x + 1.2.3", 15, "expected an operator"),
        ("f(x) = x + 12ab", 12, "`12ab` is no number"),
        ("f(x) = x + 99999999999999999999", 12, "is no number, or too large"),
        ("f(x) = x + 1e999", 12, "is no number, or too large"),
        ("f(x, x) = x", 6, "the name `x` is taken"),
        ("f(x, a=1, y) = x", 11, "`y` has no number"),
        ("f(a=1) = a", 11, "a function needs at least one tensor"),
        ("f(a, b, c, d, e, f, g, h, i) = a", 27, "up to 8 tensors, not 9"),
        ("f(x) = x < x < x", 14, "one comparison alone"),
        ("f(x) = let a = x; a", 19, ""),
        ("f(x) = let a = x", 17, "expected an operator or `;`"),
        ("f(let) = let", 3, "it has a meaning of its own"),
        ("f(x) = pow_half(x, 1)", 8, "there is no operation `pow_half`"),
        ("f(x) = x + é", 12, "`é` has no meaning here"),
    ];
    for (text, column, message) in wrong {
        match aten_cuda::expression::parse_error(text) {
            Some(error) => {
                assert_eq!(error.column, column, "{error}");
                assert!(!message.is_empty() && error.to_string().contains(message), "{error}");
            }
            None => assert_eq!(message, "", "{text}"),
        }
    }
    let deep = format!("f(x) = {}x{}", "(".repeat(5000), ")".repeat(5000));
    assert!(JitFunction::parse(&deep).unwrap_err().to_string().contains("more than 100 deep"));
    let signs = format!("f(x) = {}x", "-".repeat(50_000));
    assert!(JitFunction::parse(&signs).unwrap_err().to_string().contains("more than 100 deep"));
    let long = format!("f(x) = x{}", " + x".repeat(40_000));
    assert!(JitFunction::parse(&long).unwrap_err().to_string().contains("may have 65536"));
    let large = format!("f(x) = x{}", (0..2000).map(|at| format!(" + {at}")).collect::<String>());
    assert!(JitFunction::parse(&large).unwrap_err().to_string().contains("up to 1024 expressions"));
    // The mark stands below the place in long lines and in later ones.
    let error = aten_cuda::expression::parse_error("f(x) =\n  let a = x;\n  a + b").expect("b is not there");
    assert_eq!((error.line, error.column), (3, 7));
    assert!(error.to_string().ends_with("\n  a + b\n      ^"));
}
