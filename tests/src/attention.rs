//! The fused kernels of attention against tensor operations in `f64`: which kernel serves depends on the device, so that
//! this says most on a real one.

use std::process::ExitCode;

use aten_cuda::attention::{Attention, SDPAParams, can_use_flash_attention};
use aten_cuda::{DType, Result, Tensor};

/// How the operands lie.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Batches of heads of lines.
    Contiguous,
    /// Lines of heads, queries, keys and values beside each other, as a packed projection gives them.
    Packed,
    /// One head of keys and values stands for all.
    Repeated,
}

/// Sizes as batches, heads, heads of keys and values, queries, keys, width.
struct Case {
    sizes: [i64; 6],
    layout: Layout,
}

const fn case(sizes: [i64; 6]) -> Case {
    Case { sizes, layout: Layout::Contiguous }
}

const SMALL: &[Case] = &[
    case([1, 1, 1, 1, 1, 8]),
    case([2, 4, 2, 130, 70, 64]),
    case([1, 6, 1, 193, 257, 40]),
    case([2, 2, 2, 129, 177, 128]),
    case([1, 3, 1, 64, 353, 104]),
    case([1, 2, 2, 127, 81, 256]),
    case([1, 2, 1, 65, 161, 200]),
    case([1, 2, 1, 5, 300, 12]),
    Case { sizes: [2, 3, 3, 150, 150, 64], layout: Layout::Packed },
    Case { sizes: [2, 3, 3, 180, 180, 128], layout: Layout::Packed },
    Case { sizes: [2, 3, 3, 90, 100, 128], layout: Layout::Repeated },
];
const LARGE: &[Case] = &[
    case([2, 8, 2, 1024, 1024, 64]),
    case([1, 8, 8, 2048, 2048, 128]),
    case([3, 5, 5, 1000, 1531, 128]),
    case([2, 4, 4, 777, 1024, 256]),
    Case { sizes: [4, 6, 6, 1300, 1300, 128], layout: Layout::Packed },
];

/// The program `attention`: `attention [--driver sim|real|PATH]`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
pub fn main(arguments: Vec<String>) -> ExitCode {
    let driver = match arguments.as_slice() {
        [] => "sim",
        [word, driver] if word == "--driver" => driver,
        _ => {
            eprintln!("error: attention [--driver sim|real|PATH]");
            return ExitCode::from(2);
        }
    };
    let large = if driver == "sim" { &[][..] } else { LARGE };
    let checked = crate::ops::bind(driver).and_then(|_bound| {
        let all = SMALL.iter().chain(large).map(|case| check(case).map_err(|error| error.to_string()));
        all.collect::<std::result::Result<Vec<_>, _>>()
    });
    match checked {
        Ok(far) => {
            let far: Vec<String> = far.into_iter().flatten().collect();
            far.iter().for_each(|line| println!("{line}"));
            println!("{} shapes, {} calls that are not right", SMALL.len() + large.len(), far.len());
            ExitCode::from(u8::from(!far.is_empty()))
        }
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::from(2)
        }
    }
}

/// Computes one shape in both dtypes, with and without a causal mask; tells the calls that are wrong.
fn check(case: &Case) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (dtype, is_causal) in [DType::F16, DType::BF16].into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let [query, key, value] = operands(case, dtype)?;
        let options = Attention { is_causal, enable_gqa: true, ..Attention::default() };
        let params = SDPAParams::new(&query, &key, &value, None, 0.0, is_causal, true);
        let name = format!("{:?} {:?} {dtype} causal {is_causal}", case.sizes, case.layout);
        if !can_use_flash_attention(&params, false) {
            wrong.push(format!("{name}: not by the kernel"));
            continue;
        }
        let found = query.scaled_dot_product_attention(&key, &value, &options)?;
        for _ in 0..3 {
            let again = query.scaled_dot_product_attention(&key, &value, &options)?;
            if !found.eq(&again)?.all((), false)?.item()?.is_true() {
                wrong.push(format!("{name}: another result at another run"));
            }
        }
        let [query, key, value] = [&query, &key, &value].map(|tensor| tensor.to_dtype(DType::F64));
        let exact = query?.scaled_dot_product_attention(&key?, &value?, &options)?;
        let distance = found.to_dtype(DType::F64)?.sub(&exact)?.abs()?.max()?.item()?.to_f64();
        // Results up to about 4, of which the weights and the result itself are rounded.
        let bound = if dtype == DType::BF16 { 3.0 / 128.0 } else { 3.0 / 1024.0 };
        // A NaN is not below.
        if !matches!(distance.partial_cmp(&bound), Some(std::cmp::Ordering::Less)) {
            wrong.push(format!("{name}: {distance} apart"));
        }
    }
    Ok(wrong)
}

fn operands(case: &Case, dtype: DType) -> Result<[Tensor; 3]> {
    let [batches, heads, shared, queries, keys, width] = case.sizes;
    let normal = |sizes: &[i64]| Tensor::randn(sizes, dtype, "cuda", None);
    Ok(match case.layout {
        Layout::Contiguous => {
            let sizes = [batches, shared, keys, width];
            [normal(&[batches, heads, queries, width])?, normal(&sizes)?, normal(&sizes)?]
        }
        Layout::Packed => {
            let all = normal(&[batches, queries, 3, heads, width])?;
            let part = |at| all.select(2, at)?.transpose(1, 2);
            [part(0)?, part(1)?, part(2)?]
        }
        Layout::Repeated => {
            let one = normal(&[batches, 1, keys, width])?.expand(&[batches, heads, keys, width])?;
            [normal(&[batches, heads, queries, width])?, one.clone(), one]
        }
    })
}
