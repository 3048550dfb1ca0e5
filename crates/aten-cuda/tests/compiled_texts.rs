//! How long the texts are that compiled programs hand to the driver, whose time goes with their length.
//!
//! With `TEXTS_FOLDER` the texts are left there, for an assembler.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/programs.rs"]
mod programs;

use aten_cuda::compile::{CompileOptions, compile_with};
use aten_cuda::{DType, KernelText, Result, Tensor, kernel_texts_for};
use programs::{chain, norm, rms_norm, softmax, squares, twenty};

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

fn numbers(sizes: &[i64], dtype: DType) -> Tensor {
    let count: i64 = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 37) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&values, sizes).unwrap().to_dtype(dtype).unwrap().cuda(None).unwrap()
}

/// The texts of a program's first call, as they are written for compute capability 8.0 and later ones.
fn texts(name: &str, function: Function, owned: &[Tensor]) -> Vec<KernelText> {
    let inputs: Vec<&Tensor> = owned.iter().collect();
    let mut all = Vec::new();
    for wide in [false, true] {
        let mut options = CompileOptions::default();
        options.wide_intermediates = wide;
        let compiled = compile_with(function, options);
        let texts = kernel_texts_for(80, || compiled.call(&inputs).map(drop)).unwrap();
        if let Some(folder) = std::env::var_os("TEXTS_FOLDER") {
            for (at, text) in texts.iter().enumerate() {
                let file = format!("{name}_{}{at}.ptx", if wide { "wide_" } else { "" });
                std::fs::write(std::path::Path::new(&folder).join(file), &text.text).unwrap();
            }
        }
        if !wide {
            same_bits(name, &compiled.call(&inputs).unwrap(), &function(owned).unwrap());
            all = texts;
        }
    }
    all
}

fn same_bits(name: &str, found: &[Tensor], expected: &[Tensor]) {
    let bits = |tensor: &Tensor| {
        let values = tensor.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap();
        values.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    for (found, expected) in found.iter().zip(expected) {
        assert!(bits(found) == bits(expected), "{name}");
    }
}

#[test]
fn texts_of_compiled_programs_are_short() {
    let _simulated = testkit::simulated_runtime();
    let long = || numbers(&[(1 << 17) + 77], DType::BF16);
    let wider = [numbers(&[2, 6144], DType::BF16), numbers(&[6144], DType::BF16), numbers(&[6144], DType::BF16)];
    let (rows, row) = (numbers(&[16, 4096], DType::BF16), numbers(&[4096], DType::BF16));
    let programs: [(&str, Function, Vec<Tensor>, usize); 7] = [
        ("chain", chain, vec![long(), long()], 345),
        ("layer_norm", norm, vec![rows.clone(), row.clone(), row.clone()], 1450),
        ("layer_norm_6144", norm, wider.to_vec(), 1200),
        ("softmax", softmax, vec![rows.clone(), row.clone()], 600),
        ("rms_norm", rms_norm, vec![rows, row], 600),
        ("squares", squares, vec![long(), long()], 720),
        ("twenty", twenty, vec![numbers(&[1024], DType::F32)], 200),
    ];
    let mut wrong = Vec::new();
    for (name, function, inputs, most) in programs {
        let found = texts(name, function, &inputs);
        let lines: usize = found.iter().map(|text| text.text.matches(";\n").count()).sum();
        let names: Vec<&str> = found.iter().map(|text| text.name.as_str()).collect();
        // Long ones leave registers for other blocks, which the driver's linker would not do by itself.
        for text in found.iter().filter(|text| kernel_ir::is_long(&text.text)) {
            let threads = text.text.split(".maxntid ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
            let blocks = 1024 / threads.parse::<u32>().unwrap();
            assert!(text.text.contains(&format!(".minnctapersm {blocks}\n")), "{name}: {threads} threads");
        }
        if lines > most || lines == 0 {
            wrong.push(format!("{name}: {lines} instructions in {names:?}, at most {most}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn texts_of_single_operations_are_those_that_come_with_machine_code() {
    let _simulated = testkit::simulated_runtime();
    let (x, y) = (numbers(&[8, 64], DType::BF16), numbers(&[256, 1024], DType::F32));
    let texts = kernel_texts_for(80, || {
        x.add(&x)?.gelu()?.sigmoid()?.mul(2)?;
        y.exp()?;
        for rows in [4096, 64] {
            let z = numbers(&[rows, 16384 / rows * 256], DType::F32);
            z.sum((), false, None)?;
            z.sum([-1], false, None)?;
        }
        y.gt(1)?.logical_not().map(drop)
    })
    .unwrap();
    for name in ["add", "gelu", "sigmoid", "mul", "exp", "sum", "gt", "logical_not"] {
        assert!(texts.iter().any(|text| text.name == name && text.has_machine_code(9)), "{name}");
    }
}
