//! The mistakes in `planted.cu`: each is reported with its place, and the same kernel without it is not.

use c10_core::{Arg, DeviceBuffer, DeviceIndex};
use testkit::{Report, ReportKind};

use super::Case;
use super::device::{Answer, Device};
use super::numbers::floats;

const FILE: &str = "planted";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "race_shared", race_shared).that_fails(),
    Case::new(FILE, "missing_syncwarp", missing_syncwarp).that_fails(),
    Case::new(FILE, "past_end", past_end).that_fails(),
    Case::new(FILE, "unwritten", unwritten).that_fails(),
    Case::new(FILE, "misaligned", misaligned).that_fails(),
    Case::new(FILE, "divergent_barrier", divergent_barrier).that_fails(),
];

/// What is to be said of a mistake.
struct Wanted<'a> {
    kind: ReportKind,
    kernel: &'a str,
    /// The instruction, one of these.
    instructions: &'a [&'a str],
    block: u64,
    /// Whether the thread, and the other one that a race is with, are those.
    threads: fn(u32, Option<u32>) -> bool,
    /// Further words.
    words: String,
}

/// Waits for the device; what was reported meanwhile. It is an error for it to be lost, unless that is expected.
fn reports(device: &Device<'_>, is_lost: bool) -> Answer<Vec<Report>> {
    let machine = device.machine.ok_or("there is nobody to report")?;
    if device.runtime.synchronize(DeviceIndex(0)).is_err() != is_lost {
        return Err(format!("the device is lost or not: {:?}", machine.take_reports()).into());
    }
    Ok(machine.take_reports())
}

fn nothing(device: &Device<'_>) -> Answer {
    let found = reports(device, false)?;
    if found.is_empty() { Ok(()) } else { Err(format!("a right kernel is reported: {found:?}").into()) }
}

/// The number behind some words.
fn number(text: &str, words: &str) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The first report of a kind, compared with what is wanted.
fn compare(device: &Device<'_>, found: &[Report], wanted: &Wanted<'_>) -> Answer {
    let Wanted { kind, kernel, instructions, block, threads, words } = wanted;
    let report = found.iter().find(|report| report.kind == *kind).ok_or_else(|| format!("no {kind:?} in {found:?}"))?;
    let text = &report.message;
    let line = number(text, "PTX line ").ok_or("no line is named")?;
    let instruction = device.text.lines().nth(line as usize - 1).unwrap_or_default().trim();
    let thread = number(text, ", thread ").ok_or("no thread is named")?;
    let right = text.starts_with(&format!("kernel '{kernel}', PTX line "))
        && instructions.iter().any(|wanted| instruction.contains(wanted))
        && text.contains(&format!(", block {block}, thread "))
        && threads(thread, number(text, "what thread "))
        && text.contains(words);
    if right { Ok(()) } else { Err(format!("{text}\nis said of: {instruction}").into()) }
}

fn race_shared(device: &Device<'_>) -> Answer {
    let out = device.zeros::<i32>(256)?;
    device.run("race_shared_right", 1, 256, &[(&out).into()])?;
    nothing(device)?;
    device.run("race_shared", 1, 256, &[(&out).into()])?;
    let wanted = Wanted {
        kind: ReportKind::Race,
        kernel: "race_shared",
        instructions: &["ld.shared", "st.shared"],
        block: 0,
        threads: |thread, other| other.is_some_and(|other| thread + other == 255),
        words: "nothing orders the two (address 0x".to_owned(),
    };
    compare(device, &reports(device, false)?, &wanted)
}

fn missing_syncwarp(device: &Device<'_>) -> Answer {
    let out = device.zeros::<i32>(32)?;
    device.run("missing_syncwarp_right", 1, 32, &[(&out).into()])?;
    nothing(device)?;
    device.run("missing_syncwarp", 1, 32, &[(&out).into()])?;
    let wanted = Wanted {
        kind: ReportKind::Race,
        kernel: "missing_syncwarp",
        instructions: &["ld.shared", "st.shared"],
        block: 0,
        threads: |thread, other| other.is_some_and(|other| thread ^ other == 1),
        words: "nothing orders the two (address 0x".to_owned(),
    };
    compare(device, &reports(device, false)?, &wanted)
}

fn past_end(device: &Device<'_>) -> Answer {
    let (out, _behind) = (device.zeros::<i32>(1000)?, device.zeros::<i32>(1000)?);
    let count: Arg<'_> = 1000_u32.into();
    device.run("past_end_right", 4, 256, &[(&out).into(), count.clone()])?;
    nothing(device)?;
    device.run("past_end", 4, 256, &[(&out).into(), count])?;
    let wanted = Wanted {
        kind: ReportKind::OutOfBounds,
        kernel: "past_end",
        instructions: &["st.global"],
        block: 3,
        threads: |thread, _| thread == 1000 - 3 * 256,
        words: format!(
            "writes 4 bytes, 0 bytes past the end of the nearest block, of 4000 bytes at {:#x} (address {:#x})",
            out.address(),
            out.address() + 4000
        ),
    };
    compare(device, &reports(device, false)?, &wanted)
}

fn unwritten(device: &Device<'_>) -> Answer {
    let (out, right, wrong) =
        (device.zeros::<i32>(1000)?, DeviceBuffer::new(4000, None)?, DeviceBuffer::new(4000, None)?);
    device.run("fill", 4, 256, &[(&right).into(), 1000_u32.into()])?;
    device.run("unwritten", 4, 256, &[(&out).into(), (&right).into(), 1000_u32.into()])?;
    nothing(device)?;
    device.run("fill", 4, 256, &[(&wrong).into(), 999_u32.into()])?;
    device.run("unwritten", 4, 256, &[(&out).into(), (&wrong).into(), 1000_u32.into()])?;
    let wanted = Wanted {
        kind: ReportKind::UninitializedRead,
        kernel: "unwritten",
        instructions: &["ld.global"],
        block: 3,
        threads: |thread, _| thread == 999 - 3 * 256,
        words: format!("reads global memory that nobody wrote (address {:#x})", wrong.address() + 3996),
    };
    compare(device, &reports(device, false)?, &wanted)
}

fn misaligned(device: &Device<'_>) -> Answer {
    let (sums, numbers) = (device.zeros::<f32>(32)?, device.put(&floats(71, 160, -1.0, 1.0))?);
    device.run("misaligned_right", 1, 32, &[(&sums).into(), (&numbers).into()])?;
    nothing(device)?;
    device.run("misaligned", 1, 32, &[(&sums).into(), (&numbers).into()])?;
    let wanted = Wanted {
        kind: ReportKind::KernelFailure,
        kernel: "misaligned",
        instructions: &["ld.global.v4.f32", "ld.global.nc.v4.f32", "ld.global.v4.b32"],
        block: 0,
        threads: |thread, _| thread < 32,
        words: "accesses an address that is no multiple of the size at 0x".to_owned(),
    };
    compare(device, &reports(device, true)?, &wanted)
}

fn divergent_barrier(device: &Device<'_>) -> Answer {
    let out = device.zeros::<i32>(64)?;
    device.run("divergent_barrier_right", 1, 32, &[(&out).into(), 16_u32.into()])?;
    nothing(device)?;
    device.run("divergent_barrier", 1, 32, &[(&out).into(), 16_u32.into()])?;
    let wanted = Wanted {
        kind: ReportKind::BarrierDivergence,
        kernel: "divergent_barrier",
        instructions: &["bar.sync", "barrier.sync"],
        block: 0,
        threads: |thread, _| thread < 32,
        words: "of the warp do not come to the barrier".to_owned(),
    };
    compare(device, &reports(device, false)?, &wanted)
}
