//! PTX: texts of modules, and bodies of kernels.
//!
//! What must hold: no text makes the reader panic or take long, every kernel that is read comes to an end within its steps,
//! and it leaves the same memory with the instructions of the least processor, watched, and with those of 256 bits, not
//! watched.

use ptx_sim::{Checks, FlatMemory, Launch, Limits, Module, Program, run};

/// Everything that the newest driver reads.
const LIMITS: Limits = Limits { version: 90, target: 90 };

/// Where memory begins, and its bytes.
const BASE: u64 = 1 << 32;
const BYTES: usize = 4096;

/// What stands around a body. It has an address in `%d0` and a number in `%r0`.
const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 m, .param .u32 n)\n{\n\
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .f64 %e<4>;\n\
    .shared .align 16 .b8 tile[256];\nld.param.u64 %d0, [m]; ld.param.u32 %r0, [n];\n";

/// Runs one input: a text, or what stands between the braces of a kernel.
///
/// # Errors
/// The two compilations of the executor differ.
pub(super) fn run_text(bytes: &[u8]) -> Result<(), String> {
    let Ok(module) = Module::read(&text(bytes), LIMITS) else { return Ok(()) };
    let runnable: Vec<usize> =
        module.entries().filter(|entry| entry.refusals().is_empty()).map(|entry| entry.index()).take(4).collect();
    let image = module.image(BASE + BYTES as u64);
    if image.len() > 1 << 20 {
        return Ok(());
    }
    let program = Program::new(module);
    for entry in runnable {
        let [narrow, wide] =
            [(false, Checks::ALL), (true, Checks::default())].map(|how| launch(&program, entry, &image, how));
        if narrow != wide {
            return Err(format!("kernel {entry} gives {narrow:?} and {wide:?}"));
        }
    }
    Ok(())
}

/// The text of an input.
fn text(bytes: &[u8]) -> String {
    let input = String::from_utf8_lossy(bytes);
    if input.contains(".version") { input.into_owned() } else { format!("{HEAD}{input}\n}}\n") }
}

/// What a launch leaves: a sum of memory, how it ended and its steps.
fn launch(program: &Program, entry: usize, image: &[u8], (wide, checks): (bool, Checks)) -> (u64, String, u64) {
    let mut bytes: Vec<u8> = (0..=250).cycle().take(BYTES).chain(image.iter().copied()).collect();
    // Of a real kernel any parameter may be an address or a number: the lower half of these is a small one.
    let rest = (0..14).flat_map(|_| (BASE + 32).to_le_bytes());
    let parameters: Vec<u8> =
        BASE.to_le_bytes().into_iter().chain(7_u32.to_le_bytes()).chain([0; 4]).chain(rest).collect();
    let launch = Launch {
        dynamic_shared: 64,
        variables: BASE + BYTES as u64,
        warp_steps: 2000,
        all_steps: 200_000,
        seed: 3,
        checks,
        wide,
        ..Launch::new(program, entry, [2, 1, 1], [40, 1, 1], &parameters)
    };
    let (outcome, ended) = run(launch, &mut FlatMemory::new(BASE, &mut bytes));
    let sum = bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(0x100_0000_01B3) ^ u64::from(byte));
    let ended = ended.map_or_else(|failure| failure.fault.to_string(), |()| String::new());
    (sum, ended, outcome.steps)
}

#[cfg(test)]
mod tests {
    use super::{LIMITS, Module, run_text, text};

    #[test]
    fn the_corpus_is_read_and_runs() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/ptx");
        let mut read = 0;
        for file in std::fs::read_dir(folder).expect("there is a corpus") {
            let path = file.expect("it can be listed").path();
            let bytes = std::fs::read(&path).expect("it can be read");
            let module = Module::read(&text(&bytes), LIMITS).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let refusals: Vec<String> = module.refusals().map(ToString::to_string).collect();
            assert!(refusals.is_empty(), "{}: {refusals:?}", path.display());
            assert_eq!(run_text(&bytes), Ok(()), "{}", path.display());
            read += 1;
        }
        assert!(read >= 8, "only {read} texts");
    }
}
