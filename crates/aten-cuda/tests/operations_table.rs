//! The page `docs/operations.md`: every operation for every dtype, made from the declarations and by trying, beside what
//! PyTorch answers.
//!
//! With the variable `WRITE_OPERATIONS` set the page is written, else compared.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use aten_cuda::{DType, Tensor, reductions, scans};
use common::operations::{Try, drawing, indexing, making, matrices_and_rows, places, pointwise};

/// What PyTorch 2.11 answered on an H200: an operation, and for each dtype that of its result, or nothing.
const TORCH: &str = include_str!("data/torch_dtypes.txt");

/// What PyTorch 2.11 answered on an H200 where it refuses floats of 8 bits.
const FLOAT8: &str = include_str!("data/torch_float8.txt");

/// The dtypes in the order of the columns, with the short names of the page.
const DTYPES: [(DType, &str); 15] = [
    (DType::Bool, "bool"),
    (DType::U8, "u8"),
    (DType::I8, "i8"),
    (DType::I16, "i16"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::F16, "f16"),
    (DType::BF16, "bf16"),
    (DType::F32, "f32"),
    (DType::F64, "f64"),
    (DType::C32, "c32"),
    (DType::C64, "c64"),
    (DType::C128, "c128"),
    (DType::F8E4M3FN, "e4m3fn"),
    (DType::F8E5M2, "e5m2"),
];

/// The begin of the page.
const HEAD: &str = "\
# Operations by dtype

Every operation for operands of every dtype, made from the declarations in `aten-cuda`, by trying those that are no rows of a
table, on the simulated device. `cargo test -p aten-cuda --test operations_table` compares this page with the code, and writes
it where `WRITE_OPERATIONS` is set. Beside each stands what PyTorch 2.11 answers on an H200:

- **x**: there, as in PyTorch; where the result has another dtype, that dtype;
- **-**: refused, as in PyTorch;
- **gap**: PyTorch has it, this library not;
- **more**: this library has it, PyTorch not;
- a star after the name: what PyTorch answers has not been recorded.
";

/// The dtype of what an operation gives, by its row; nothing where the row refuses.
type Answer = Box<dyn Fn(DType) -> Option<DType>>;

/// Reductions and scans answer from their rows.
fn declared(kind: &str) -> Vec<(&'static str, Answer)> {
    let answer = |row: &'static aten_cuda::Reduction| -> Answer {
        Box::new(move |dtype| row.accepts(dtype).then(|| row.result_dtypes(dtype)[0]))
    };
    let norm = |name: &'static str| match name {
        "norm_2" => Some("norm"),
        name if name.starts_with("norm_") => None,
        name => Some(name),
    };
    match kind {
        "scans" => scans().map(|row| (row.name, answer(row))).collect(),
        _ => reductions().filter_map(|row| norm(row.name).map(|name| (name, answer(row)))).collect(),
    }
}

/// What PyTorch answers, by operation: for each dtype the short name of the result's, or nothing.
fn torch() -> BTreeMap<&'static str, Vec<Option<&'static str>>> {
    let lines = TORCH.lines().filter(|line| !line.starts_with('#'));
    let answers = lines.map(|line| {
        let (name, answers) = line.split_once(" = ").expect("a name and answers");
        (name, answers.split(' ').map(|answer| (answer != "-").then_some(answer)).collect())
    });
    answers.collect()
}

fn short(dtype: DType) -> &'static str {
    DTYPES.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name).expect("every dtype has a name")
}

/// A table of the page, and what this library lacks.
#[derive(Default)]
struct Page {
    text: String,
    gaps: String,
    wrong: Vec<String>,
}

/// Where sums of 16 bits are rounded, which `tests/numbers.rs` checks.
const ACCUMULATIONS: &str = "
## Accumulations in 16 bits

Where `f16` and `bf16` are rounded while many elements become one. `bench --bin accumulations` prints results beside those of
`accumulations.py`, which asks PyTorch.

| operation | on a device | on the host | PyTorch 2.11 on an H200 |
|---|---|---|---|
| `index_put_accumulate`, rows of up to 32 elements | summed in `f32`, rounded once | after each addition | the same bits |
| `index_put_accumulate`, longer rows | after each addition | after each addition | the same bits |
| `index_add` | after each addition; with deterministic algorithms and rows of up to 32 elements once | of matrices once, else \
after each addition | the same bits |
| `scatter_add` | after each addition; with deterministic algorithms once | summed in `f32`, rounded once | the same bits |
| `cumsum`, `cumprod`, `logcumsumexp` | computed in `f32`, each result is rounded | computed in `f32`, each result is rounded | sums are rounded between parts: 4096 where 4124 is right |
| `logcumsumexp` of complex numbers | the angle may be whole turns away from the host's | element after element | whole turns away too: of `[1+3j, 1.5+3j, 1.4+3.1j, 1.6+2.9j, .5-3j, 2-3j, 2.1+3j]` the last angle is 3.0737 on the CPU, -3.2095 on the H200 in complex128 and in rows of complex64 |
| `sum`, `nansum`, `mean`, `prod`, `norm`, `logsumexp` | computed in `f32`, rounded once | computed in `f32`, rounded once | the same bits; `logsumexp` is rounded between its steps |
| `var`, `std` | computed in `f64`, rounded once | computed in `f64`, rounded once | the same bits |
";

impl Page {
    fn family(&mut self, title: &str, rows: &[(&'static str, Vec<Option<DType>>)]) {
        let torch = torch();
        let names: Vec<&'static str> = DTYPES.iter().map(|(_, name)| *name).collect();
        let _ = writeln!(self.text, "\n## {title}\n\n| operation | {} |", names.join(" | "));
        let _ = writeln!(self.text, "|---|{}", "---|".repeat(DTYPES.len()));
        for (name, answers) in rows {
            let Some(peer) = torch.get(name) else {
                let cells = answers.iter().zip(names.iter().copied()).map(|(answer, own)| match answer.map(short) {
                    None => "-",
                    Some(found) if found == own => "x",
                    Some(found) => found,
                });
                let _ = writeln!(self.text, "| `{name}` * | {} |", cells.collect::<Vec<_>>().join(" | "));
                continue;
            };
            let cells: Vec<&str> = (0..DTYPES.len()).map(|at| self.cell(name, at, answers[at], peer[at])).collect();
            let _ = writeln!(self.text, "| `{name}` | {} |", cells.join(" | "));
            let lacking: Vec<&str> =
                names.iter().zip(&cells).filter(|(_, cell)| **cell == "gap").map(|(name, _)| *name).collect();
            if !lacking.is_empty() {
                let _ = writeln!(self.gaps, "- `{name}`: {}", lacking.join(", "));
            }
        }
    }

    fn cell(&mut self, name: &str, at: usize, answer: Option<DType>, peer: Option<&'static str>) -> &'static str {
        match (answer.map(short), peer) {
            (None, None) => "-",
            (None, Some(_)) => "gap",
            (Some(_), None) => "more",
            (Some(found), Some(wanted)) => {
                if found != wanted {
                    self.wrong.push(format!("{name} of {}: gives {found}, in PyTorch {wanted}", DTYPES[at].1));
                }
                if found == DTYPES[at].1 { "x" } else { found }
            }
        }
    }
}

fn tried(rows: Vec<(&'static str, Try)>) -> Vec<(&'static str, Vec<Option<DType>>)> {
    let answer = |run: &Try, dtype| {
        let ones = Tensor::ones(&[2, 2], dtype, "cuda").expect("every dtype can be made");
        run(&ones).ok().map(|result| result.dtype())
    };
    let answers = |run: &Try| DTYPES.iter().map(|(dtype, _)| answer(run, *dtype)).collect();
    rows.iter().map(|(name, run)| (*name, answers(run))).collect()
}

fn asked(kind: &str) -> Vec<(&'static str, Vec<Option<DType>>)> {
    let rows = declared(kind);
    rows.iter().map(|(name, answer)| (*name, DTYPES.iter().map(|(dtype, _)| answer(*dtype)).collect())).collect()
}

#[test]
fn the_page_is_that_of_the_declarations() {
    let _simulated = testkit::simulated_runtime();
    let mut page = Page::default();
    page.family("Pointwise", &tried(pointwise()));
    page.family("Reductions", &asked("reductions"));
    page.family("Scans", &asked("scans"));
    page.family("Indices, order, joining", &tried(indexing()));
    page.family("Products and rows", &tried(matrices_and_rows()));
    page.family("Making, copying", &tried(making()));
    page.family("Random numbers", &tried(drawing()));
    for w in &page.wrong {
        eprintln!("WRONG {w}");
    }
    for g in page.gaps.lines() {
        eprintln!("GAP {g}");
    }
    assert_eq!(page.wrong, [""; 0]);
    let gaps = if page.gaps.is_empty() { "None.\n" } else { &page.gaps };
    let text = format!(
        "{HEAD}{}{ACCUMULATIONS}\n## Gaps\n\nWhat PyTorch accepts and this library refuses, with an error that names the \
                        kernel and the dtype:\n\n{gaps}",
        page.text
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    if std::env::var_os("WRITE_OPERATIONS").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/operations.md is not what the code says; WRITE_OPERATIONS=1 writes it");
}

/// Calls beside those of the page.
fn more_calls() -> Vec<(&'static str, Try)> {
    let single = |x: &Tensor| Tensor::ones(&[2, 2], DType::F32, x);
    let other = |x: &Tensor| if x.dtype() == DType::F8E5M2 { DType::F8E4M3FN } else { DType::F8E5M2 };
    vec![
        ("add_number", Box::new(|x| x.add(2.0))),
        ("add_f32", Box::new(move |x| x.add(&single(x)?))),
        ("add_f32_0d", Box::new(move |x| x.add(&single(x)?.select(0, 0)?.select(0, 0)?))),
        ("add_bool", Box::new(|x| x.add(&Tensor::ones(&[2, 2], DType::Bool, x)?))),
        ("add_", Box::new(|x| x.add_(x).cloned())),
        ("add_f32_", Box::new(move |x| single(x)?.add_(x).cloned())),
        ("eq_f32", Box::new(move |x| x.eq(&single(x)?))),
        ("eq_bool", Box::new(|x| x.eq(&Tensor::ones(&[2, 2], DType::Bool, x)?))),
        ("cat_f32", Box::new(move |x| Tensor::cat(&[x, &single(x)?], 0))),
        ("cat_e", Box::new(move |x| Tensor::cat(&[x, &x.to_dtype(other(x))?], 0))),
        ("where_f32", Box::new(move |x| Tensor::ones(&[2, 2], DType::Bool, x)?.where_cond(x, &single(x)?))),
        ("full_big", Box::new(|x| Tensor::full(&[2], 1e9, x.dtype(), x))),
        ("full_500", Box::new(|x| Tensor::full(&[2], 500, x.dtype(), x))),
        ("full_460", Box::new(|x| Tensor::full(&[2], 460, x.dtype(), x))),
        ("fill_inf", Box::new(|x| x.fill_(f64::INFINITY).cloned())),
        ("fill_complex", Box::new(|x| x.fill_(num_complex::Complex64::new(0.0, 1.0)).cloned())),
        ("scatter_value", Box::new(|x| x.scatter(0, &places(&[0; 4], &[2, 2])?, 1.0))),
        ("sum", Box::new(|x| x.sum((), false, None))),
        ("sum_f32_to_e", Box::new(move |x| single(x)?.sum((), false, x.dtype()))),
        ("mean", Box::new(|x| x.mean((), false, None))),
        ("cumsum", Box::new(|x| x.cumsum(0, None))),
        ("cumprod", Box::new(|x| x.cumprod(0, None))),
        ("amax", Box::new(|x| x.amax((), false))),
        ("max", Box::new(Tensor::max)),
        ("argmax", Box::new(|x| x.argmax(None, false))),
        ("linear", Box::new(|x| x.linear(x, None))),
        ("einsum", Box::new(|x| aten_cuda::blas::einsum("ij,jk->ik", &[x, x]))),
    ]
}

/// Floats of 8 bits are refused as in PyTorch, in its words.
#[test]
fn refusals_of_floats_of_8_bits_are_those_of_torch() {
    let _simulated = testkit::simulated_runtime();
    let families = [pointwise(), indexing(), matrices_and_rows(), making(), drawing(), more_calls()];
    let calls: BTreeMap<&str, Try> = families.into_iter().flatten().collect();
    let (mut compared, mut wrong) = (0, Vec::new());
    for line in FLOAT8.lines().filter(|line| !line.starts_with('#')) {
        let (call, wanted) = line.split_once(" = ").expect("a call and a message");
        let (name, operation) = call.split_once(' ').expect("a dtype and an operation");
        let Some(run) = calls.get(operation) else { continue };
        let dtype = if name == "e5m2" { DType::F8E5M2 } else { DType::F8E4M3FN };
        let ones = Tensor::ones(&[2, 2], dtype, "cuda").expect("every dtype can be made");
        let found = run(&ones).map_or_else(|error| error.to_string(), |made| format!("gave {}", made.dtype()));
        compared += 1;
        if found != wanted {
            wrong.push(format!("{call}: {found}"));
        }
    }
    assert_eq!((compared > 250, wrong), (true, Vec::new()), "of {compared}");
}
