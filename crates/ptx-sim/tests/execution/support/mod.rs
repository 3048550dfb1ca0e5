//! A kernel from a body, and what it leaves in memory.

use ptx_sim::{Checks, Fault, FlatMemory, Launch, Limits, Module, Outcome, Program, Refusal, run};

/// Everything that the newest driver reads.
pub(crate) const LIMITS: Limits = Limits { version: 90, target: 90 };

/// Where memory begins.
pub(crate) const BASE: u64 = 1 << 32;

/// Bytes of memory.
pub(crate) const BYTES: usize = 1 << 14;

/// The text of a kernel `k` with the parameters `out` and `n`, which are in `%rd0` and `%r0`, behind other items.
pub(crate) fn text(items: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{items}\n.visible .entry k(.param .u64 out, .param .u32 n)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<12>; .reg .f32 %f<12>; .reg .f64 %fd<9>; .reg .b16 %h<8>;\n\
         ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [n];\n{body}\n}}\n"
    )
}

/// What a launch came to: memory, what was printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) bytes: Vec<u8>,
    pub(crate) printed: String,
    pub(crate) outcome: Outcome,
    pub(crate) fault: Option<Fault>,
}

impl Ran {
    /// The first words of memory.
    pub(crate) fn words(&self, count: usize) -> Vec<u32> {
        assert_eq!(self.fault, None);
        words(&self.bytes, count)
    }
}

pub(crate) fn words(bytes: &[u8], count: usize) -> Vec<u32> {
    bytes.chunks_exact(4).take(count).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect()
}

/// How a kernel is run.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) n: u32,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
    pub(crate) cooperative: bool,
    pub(crate) wide: bool,
    pub(crate) checks: Checks,
}

impl Default for Setup {
    fn default() -> Self {
        Self { n: 0, blocks: 1, threads: 1, seed: 0, cooperative: false, wide: true, checks: Checks::default() }
    }
}

/// Runs the kernel `k` of a text with zeroed memory.
pub(crate) fn run_text(text: &str, setup: Setup) -> Ran {
    run_module(Module::read(text, LIMITS).unwrap_or_else(|refusal| panic!("{refusal}\n{text}")), setup)
}

/// The same where it is known which bytes of memory are written: those whose bits are set in `written`, repeated.
pub(crate) fn run_tracked(text: &str, setup: Setup, written: u8) -> Ran {
    let module = Module::read(text, LIMITS).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
    run_with(module, setup, Some(written))
}

/// Runs the kernel `k` of a module, likewise.
pub(crate) fn run_module(module: Module, setup: Setup) -> Ran {
    run_with(module, setup, None)
}

fn run_with(module: Module, setup: Setup, written: Option<u8>) -> Ran {
    let entry = module.entry("k").expect("there is a kernel");
    let refusals: Vec<String> = entry.refusals().into_iter().map(ToString::to_string).collect();
    assert!(refusals.is_empty(), "{refusals:#?}");
    let index = entry.index();
    let program = Program::new(module);
    let image = program.module().image(BASE + BYTES as u64);
    let mut bytes = vec![0; BYTES];
    bytes.extend(image);
    let parameters: Vec<u8> = BASE.to_le_bytes().into_iter().chain(setup.n.to_le_bytes()).collect();
    let mut bits = vec![written.unwrap_or(0); bytes.len().div_ceil(8)];
    let memory = FlatMemory::new(BASE, &mut bytes);
    let mut memory = if written.is_some() { memory.with_written(&mut bits) } else { memory };
    let launch = Launch {
        dynamic_shared: 64,
        variables: BASE + BYTES as u64,
        cooperative: setup.cooperative,
        warp_steps: 1 << 20,
        seed: setup.seed,
        wide: setup.wide,
        checks: setup.checks,
        ..Launch::new(&program, index, [setup.blocks, 1, 1], [setup.threads, 1, 1], &parameters)
    };
    let (outcome, ended) = run(launch, &mut memory);
    let printed = std::mem::take(&mut memory.printed);
    Ran { bytes, printed, outcome, fault: ended.err().map(|failure| failure.fault) }
}

/// Runs a body.
pub(crate) fn run_body(body: &str, setup: Setup) -> Ran {
    run_text(&text("", body), setup)
}

/// One thread's word.
pub(crate) fn word(body: &str, n: u32) -> u32 {
    run_body(body, Setup { n, ..Setup::default() }).words(1)[0]
}

/// What is wrong with a body.
pub(crate) fn refusals(body: &str) -> Vec<Refusal> {
    match Module::read(&text("", body), LIMITS) {
        Ok(module) => module.entry("k").expect("there is a kernel").refusals().into_iter().cloned().collect(),
        Err(refusal) => vec![refusal],
    }
}
