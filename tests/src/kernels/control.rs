//! What `control.cu` must leave behind, and what it must print.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{doubles, short_words, words};

const FILE: &str = "control";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "tables", tables),
    Case::new(FILE, "switches", switches),
    Case::new(FILE, "function_pointers", function_pointers),
    Case::new(FILE, "recursion", recursion),
    Case::new(FILE, "virtual_calls", virtual_calls),
    Case::new(FILE, "local_arrays", local_arrays),
    Case::new(FILE, "prints", prints),
    Case::new(FILE, "asserts", asserts),
    Case::new(FILE, "a failed assertion", a_failed_assertion).that_fails(),
    Case::new(FILE, "structs_by_value", structs_by_value),
    Case::new(FILE, "device_heap", device_heap),
];

const NAMES: [&str; 3] = ["first", "second", "third"];

fn tables(device: &Device<'_>) -> Answer {
    let to = device.zeros::<f64>(60)?;
    device.run("tables", 2, 32, &[(&to).into(), 60_u32.into()])?;
    let one = |i: usize| {
        let letters = NAMES[i % 3].bytes().fold(0_u32, |all, byte| all.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let (prime, weight) = ([2, 3, 5, 7, 11, 13, 17, 19][i % 8], [0.5, -1.25][i % 2]);
        let square = [0, 1, 4, 9, 16, 25][i % 6];
        let (kind, size, letter) = [(1, 1.5, b'b'), (2, -3.25, 0)][i % 2];
        f64::from(prime) * weight
            + f64::from(square)
            + 2.5
            + f64::from(letters)
            + f64::from(kind) * size
            + f64::from(letter)
    };
    same("tables", &to.to_vec()?, &(0..60).map(one).collect::<Vec<_>>())
}

fn switches(device: &Device<'_>) -> Answer {
    let (a, mut b) = (doubles(111, 120, -9.0, 9.0), doubles(112, 120, -9.0, 9.0));
    b[4] = 0.0;
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<f64>(120)?);
    device.run("switches", 2, 64, &[(&to).into(), (&on_a).into(), (&on_b).into(), 120_u32.into()])?;
    let one = |i: usize| {
        let (a, b) = (a[i], b[i]);
        match i % 10 {
            0 => a * b,
            1 => a * b / 2.0,
            2 => 3.25 * a * a,
            3 => a + b,
            4 => {
                if b == 0.0 {
                    -1.0
                } else {
                    a / b
                }
            }
            7 => -a,
            8 => a - b * (a / b).floor(),
            _ => 0.0,
        }
    };
    same("switches", &to.to_vec()?, &(0..120).map(one).collect::<Vec<_>>())
}

fn function_pointers(device: &Device<'_>) -> Answer {
    let which: Vec<i32> = words(113, 100).iter().map(|word| i32::try_from(word % 3).unwrap_or_default()).collect();
    let (on_which, to) = (device.put(&which)?, device.zeros::<i32>(100)?);
    device.run("function_pointers", 2, 64, &[(&to).into(), (&on_which).into(), 100_u32.into()])?;
    let one = |i: usize| {
        (0..4).fold(i32::try_from(i).unwrap_or_default(), |value, round| match which[(i + round) % 100] {
            0 => value + i32::try_from(round + 2).unwrap_or_default(),
            1 => value - i32::try_from(round + 2).unwrap_or_default(),
            _ => value * i32::try_from(round + 2).unwrap_or_default(),
        })
    };
    same("function_pointers", &to.to_vec()?, &(0..100).map(one).collect::<Vec<_>>())
}

fn ackermann(m: u32, n: u32) -> u32 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn recursion(device: &Device<'_>) -> Answer {
    let to = device.zeros::<u32>(15)?;
    device.run("recursion", 1, 15, &[(&to).into()])?;
    same("recursion", &to.to_vec()?, &(0..15).map(|i| ackermann(i % 3, i / 3)).collect::<Vec<_>>())
}

fn virtual_calls(device: &Device<'_>) -> Answer {
    let to = device.zeros::<i32>(70)?;
    device.run("virtual_calls", 2, 64, &[(&to).into(), 70_u32.into()])?;
    let one = |i: i32| {
        let wings = 2 + i % 3;
        if i % 2 == 1 { (i * 2 + 4) * 100 + 4 } else { (i - wings) * 100 + 2 + wings }
    };
    same("virtual_calls", &to.to_vec()?, &(0..70).map(one).collect::<Vec<_>>())
}

fn local_arrays(device: &Device<'_>) -> Answer {
    let from = short_words(114, 90);
    let (source, to) = (device.put(&from)?, device.zeros::<u32>(90)?);
    device.run("local_arrays", 3, 32, &[(&to).into(), (&source).into(), 90_u32.into()])?;
    let one = |i: usize| {
        let mut heap: Vec<u8> = (0..32).map(|at| (from[i] >> (at % 25)).to_le_bytes()[0]).collect();
        heap.sort_unstable();
        heap.iter().fold(0_u32, |mixed, &byte| {
            let large = u64::from(from[i]) * u64::from(from[(i + usize::from(byte % 9)) % 90]);
            let part = super::numbers::low(large >> 7);
            mixed.wrapping_mul(33).wrapping_add(u32::from(byte)).wrapping_add(part)
        })
    };
    same("local_arrays", &to.to_vec()?, &(0..90).map(one).collect::<Vec<_>>())
}

fn prints(device: &Device<'_>) -> Answer {
    device.run("prints", 1, 32, &[5_u32.into()])?;
    device.runtime.synchronize(c10_core::DeviceIndex(0))?;
    // A real device prints to the standard output of the process.
    let Some(machine) = device.machine else { return Ok(()) };
    let mut found: Vec<String> = machine.take_printed().lines().map(str::to_owned).collect();
    found.sort();
    let one = |i: u32| {
        let letter = char::from(b'A' + i.to_le_bytes()[0]);
        let large = -1_i64 << (32 + i);
        let name = NAMES[i as usize % 3];
        format!("thread {i} of {name}: {:5.2} {:x} {large} {letter} %", 1.25 * f64::from(i), i * 0xABC)
    };
    same("prints", &found, &(0..5).map(one).collect::<Vec<_>>())
}

fn asserts(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = (0..64).collect();
    let (source, to) = (device.put(&from)?, device.zeros::<i32>(64)?);
    device.run("asserts", 1, 64, &[(&source).into(), (&to).into(), 64_i32.into()])?;
    same("asserts", &to.to_vec()?, &(1..=64).collect::<Vec<_>>())
}

fn a_failed_assertion(device: &Device<'_>) -> Answer {
    let from: Vec<i32> = (0..64).collect();
    let (source, to) = (device.put(&from)?, device.zeros::<i32>(64)?);
    device.run("asserts", 1, 64, &[(&source).into(), (&to).into(), 50_i32.into()])?;
    match to.to_vec() {
        Err(error) if error.error_code() == Some(710) => Ok(()),
        other => Err(format!("a failed assertion answers {other:?}").into()),
    }
}

fn structs_by_value(device: &Device<'_>) -> Answer {
    let to = device.zeros::<f64>(50)?;
    let mut big = [0_u64; 11];
    for (pair, word) in big[..10].iter_mut().zip(0_u64..) {
        *pair = (2 * word * word) | (word * 7) << 32;
    }
    big[10] = 1.5_f64.to_bits();
    device.run("structs_by_value", 1, 64, &[(&to).into(), (&big).into(), 50_u32.into()])?;
    let sum: u64 = (0..10).map(|word| 2 * word * word + word * 7).sum();
    let one = |i: u32| (sum as f64 + f64::from(i)) * 2.0 * -1.5;
    same("structs_by_value", &to.to_vec()?, &(0..50).map(one).collect::<Vec<_>>())
}

fn device_heap(device: &Device<'_>) -> Answer {
    let to = device.zeros::<u32>(70)?;
    device.run("device_heap", 2, 64, &[(&to).into(), 70_u32.into()])?;
    let sum = |i: u32| (0..=i).map(|at| at * at).sum();
    same("device_heap", &to.to_vec()?, &(0..70).map(sum).collect::<Vec<_>>())
}
