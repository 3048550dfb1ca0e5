//! What an H100 computed, form by form: `hardware/forms.txt` and `hardware/matrices.txt` hold a sum of its results for
//! each, and the same kernels must give the same here.
//!
//! The kernels were made by `hardware/cases.rs`, assembled by ptxas 12.8 for sm_90 and run under driver 580. Forms that
//! PTX calls approximate are left out: they are rounded correctly here.

mod cases;

use ptx_sim::{FlatMemory, Launch, Limits, Module, Program, run};

const BASE: u64 = 1 << 32;

/// Lines of a sum and a form.
fn lines(text: &'static str) -> Vec<(u64, &'static str)> {
    let line = |line: &'static str| {
        let (sum, form) = line.split_once(' ').expect("a sum and a form");
        (u64::from_str_radix(sum, 16).expect("a sum"), form)
    };
    text.lines().map(line).collect()
}

/// What so many warps of a kernel leave where their results belong, `bytes` for each.
fn results(program: &Program, index: usize, operands: &[u8], [warps, bytes]: [usize; 2], wide: bool) -> Vec<u8> {
    let entry = program.module().entry(&format!("k{index}")).expect("there is a kernel");
    let refusals: Vec<String> = entry.refusals().into_iter().map(ToString::to_string).collect();
    assert!(refusals.is_empty(), "{refusals:#?}");
    let mut memory = operands.to_vec();
    memory.resize(operands.len() + warps * bytes, 0);
    let addresses = [BASE, BASE + operands.len() as u64];
    let parameters: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
    let blocks = [u32::try_from(warps).expect("few"), 1, 1];
    let launch =
        Launch { warp_steps: 1 << 10, wide, ..Launch::new(program, entry.index(), blocks, [32, 1, 1], &parameters) };
    let (_, ended) = run(launch, &mut FlatMemory::new(BASE, &mut memory));
    assert_eq!(ended.err(), None, "k{index}");
    memory.split_off(operands.len())
}

fn program(text: &str) -> Program {
    Program::new(Module::read(text, Limits { version: 90, target: 90 }).expect("it is read"))
}

#[test]
fn every_form_gives_what_hardware_gave() {
    let lines = lines(include_str!("hardware/forms.txt"));
    let forms: Vec<&str> = lines.iter().map(|&(_, form)| form).collect();
    let (program, operands) = (program(&cases::text(&forms)), cases::operands());
    let mut wrong = Vec::new();
    for (index, (sum, form)) in lines.iter().enumerate() {
        for wide in [false, true] {
            let results = results(&program, index, &operands, [cases::SETS / 32, 256], wide);
            if cases::sum(&results) != *sum {
                wrong.push((form, wide));
            }
        }
    }
    assert!(lines.len() > 1000 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn matrices_give_what_hardware_gave() {
    let lines = lines(include_str!("hardware/matrices.txt"));
    let forms: Vec<&str> = lines.iter().map(|&(_, form)| form).collect();
    let program = program(&cases::matrix_text(&forms));
    let mut wrong = Vec::new();
    for (index, (sum, form)) in lines.iter().enumerate() {
        let results = results(&program, index, &cases::registers(form), [1, 512], true);
        if cases::sum(&results) != *sum {
            wrong.push(form);
        }
    }
    assert!(lines.len() > 50 && wrong.is_empty(), "{wrong:#?}");
}
