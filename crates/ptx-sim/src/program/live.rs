//! How many registers of 32 bits the values of a function take at once: an estimate of what a compiler gives out.
//!
//! A value lives from where it is first mentioned to where it is last, in the order of the text, and to the end of each
//! loop that it comes into from outside. This takes one pass over the text instead of one for each loop, and compilers
//! write code in which it says the same as following all ways: a name for each value, loops in one piece.
//!
//! What costs nothing to have again takes no register: constants, parameters of the launch, and copies of these.

use std::collections::BTreeMap;

use super::Function;
use super::action::{Action, Instruction};
use super::scalar::ScalarOp;
use super::types::{Register, Space, Special};

/// What is known of a register, by its place in the text.
#[derive(Clone, Copy, Debug)]
struct Life {
    first: usize,
    last: usize,
    /// How many instructions write it.
    writes: usize,
    /// Registers of 32 bits that it takes; 0 where it takes none.
    units: u32,
}

/// What a compiler needs besides, for addresses and for what it computes ahead of its use. With this and with
/// [`WITH_CALLS`], of 1,200 kernels that compilers made of CUDA C++ 92 % fill a multiprocessor as ptxas 13 says.
const BESIDES: u32 = 4;

/// The fewest registers of a kernel that calls functions, which the convention of calls demands.
const WITH_CALLS: u32 = 24;

/// Registers are given out by eights.
const UNIT: u32 = 8;

/// An estimate for a function without those that it calls.
pub(crate) fn registers(function: &Function) -> u32 {
    let least = if calls(function) { WITH_CALLS } else { 0 };
    (most_at_once(function) + BESIDES).max(least).next_multiple_of(UNIT)
}

fn calls(function: &Function) -> bool {
    function.code.iter().any(|instruction| matches!(instruction.action, Action::Call(_)))
}

/// The most registers of 32 bits that are needed at once.
fn most_at_once(function: &Function) -> u32 {
    let mut lives = Lives::of(function);
    lives.forget_what_is_cheap(function);
    lives.stretch_over_loops(&loops(&function.code));
    lives.most_at_once(function.code.len())
}

struct Lives {
    words: Vec<Life>,
    longs: Vec<Life>,
}

impl Lives {
    fn of(function: &Function) -> Self {
        let frame = &function.frame;
        let new = |units| Life { first: usize::MAX, last: 0, writes: 0, units };
        let (words, longs) = (vec![new(1); frame.words.into()], vec![new(2); frame.longs.into()]);
        let mut lives = Self { words, longs };
        for (place, instruction) in function.code.iter().enumerate() {
            instruction.each_register(&mut |register, is_written| {
                if let Some(life) = lives.get(register) {
                    life.first = life.first.min(place);
                    life.last = place;
                    life.writes += usize::from(is_written);
                }
            });
        }
        frame.constants.iter().for_each(|&(row, _)| lives.forget(row));
        frame.specials.iter().filter(|(_, special)| is_cheap(*special)).for_each(|&(row, _)| lives.forget(row));
        lives
    }

    /// None for predicates, which are not counted.
    fn get(&mut self, register: Register) -> Option<&mut Life> {
        let lives = if register.is_long() { &mut self.longs } else { &mut self.words };
        if register.is_predicate() { None } else { lives.get_mut(usize::from(register.index)) }
    }

    fn forget(&mut self, register: Register) {
        self.get(register).into_iter().for_each(|life| life.units = 0);
    }

    /// Parameters of the launch, and what is copied from them or from constants, in registers that nothing else writes.
    fn forget_what_is_cheap(&mut self, function: &Function) {
        for instruction in function.code.iter().filter(|instruction| instruction.guard.is_none()) {
            if let Action::Load(load) = &instruction.action
                && load.space == Space::Parameters
                && self.is_cheap(load.from.base)
            {
                load.to.iter().flatten().for_each(|&to| self.forget_if_written_once(to));
            }
            if let Action::Scalar(scalar) = &instruction.action
                && matches!(scalar.op, ScalarOp::Move | ScalarOp::ToGeneric(_) | ScalarOp::FromGeneric(_))
                && self.is_cheap(scalar.arguments[0])
            {
                self.forget_if_written_once(scalar.to);
            }
        }
    }

    fn is_cheap(&mut self, register: Register) -> bool {
        self.get(register).is_none_or(|life| life.units == 0)
    }

    fn forget_if_written_once(&mut self, register: Register) {
        self.get(register).into_iter().filter(|life| life.writes == 1).for_each(|life| life.units = 0);
    }

    /// A value from outside of a loop that is used inside lives until the loop ends.
    fn stretch_over_loops(&mut self, loops: &[(usize, usize)]) {
        for life in self.words.iter_mut().chain(&mut self.longs).filter(|life| life.units > 0) {
            for &(begin, end) in loops {
                if life.first < begin && (begin..end).contains(&life.last) {
                    life.last = end;
                }
            }
        }
    }

    fn most_at_once(&self, length: usize) -> u32 {
        let (mut more, mut fewer) = (vec![0; length + 1], vec![0; length + 1]);
        for life in self.words.iter().chain(&self.longs).filter(|life| life.first < life.last) {
            more[life.first] += life.units;
            fewer[life.last] += life.units;
        }
        let (mut now, mut most) = (0, 0);
        for (more, fewer) in more.into_iter().zip(fewer) {
            // A result may lie where an operand was that is used for the last time.
            now += more;
            now -= fewer;
            most = most.max(now);
        }
        most
    }
}

/// Whether an instruction can name a special value at once, as it can constants; others are read into registers.
fn is_cheap(special: Special) -> bool {
    match special {
        Special::BlockSize(_)
        | Special::Block(_)
        | Special::GridSize(_)
        | Special::WarpCount
        | Special::WarpSize
        | Special::MultiprocessorCount
        | Special::GridId
        | Special::SharedBytes
        | Special::DynamicSharedBytes
        | Special::DynamicShared
        | Special::Variable(_)
        | Special::Local(_)
        | Special::Zero => true,
        Special::Thread(_) | Special::Lane | Special::Warp | Special::LaneMask(_) | Special::Multiprocessor => false,
    }
}

/// First and last place of each loop, those that end earlier before those around them.
fn loops(code: &[Instruction]) -> Vec<(usize, usize)> {
    let mut ends = BTreeMap::new();
    for (place, instruction) in code.iter().enumerate() {
        let mut jump = |target: u32| {
            let target = target as usize;
            if target <= place {
                ends.insert(target, place);
            }
        };
        if let Action::Branch { target } = instruction.action {
            jump(target);
        }
        if let Action::BranchIndexed { targets, .. } = &instruction.action {
            targets.iter().copied().for_each(jump);
        }
    }
    let mut loops: Vec<(usize, usize)> = ends.into_iter().collect();
    loops.sort_by_key(|&(_, end)| end);
    loops
}

#[cfg(test)]
mod tests {
    use super::most_at_once;
    use crate::Module;
    use crate::text::parse::Limits;

    fn module(body: &str) -> Module {
        let text = format!(
            ".version 7.8\n.target sm_75\n.address_size 64\n.func f() {{ ret; }}\n\
             .visible .entry k(.param .u64 p, .param .u32 n) {{\n\
             .reg .pred %p<4>;\n.reg .b32 %r<20>;\n.reg .b64 %d<20>;\nmov.u64 %d9, 64;\n{body}\nret;\n}}\n"
        );
        Module::read(&text, Limits { version: 90, target: 90 }).expect("the text is right")
    }

    #[track_caller]
    fn check(body: &str, most: u32) {
        let module = module(body);
        let function = module.functions.iter().find(|function| function.is_entry).expect("there is a kernel");
        assert!(function.refusals.is_empty(), "{:?}", function.refusals);
        assert_eq!(most_at_once(function), most);
    }

    #[test]
    fn values_one_after_the_other_share_registers() {
        check("mov.u32 %r0, %tid.x; add.u32 %r1, %r0, 1; add.u32 %r2, %r1, 1; st.global.u32 [%d9], %r2;", 1);
        check("mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; add.u32 %r2, %r0, %r1; st.global.u32 [%d9], %r2;", 2);
    }

    #[test]
    fn long_values_take_two() {
        check("mov.u32 %r0, %tid.x; cvt.u64.u32 %d0, %r0; st.global.u64 [%d9], %d0;", 2);
        check("mov.u32 %r0, %tid.x; cvt.u64.u32 %d0, %r0; st.global.u32 [%d0], %r0;", 3);
    }

    #[test]
    fn parameters_and_constants_take_none() {
        check("ld.param.u64 %d0, [p]; cvta.to.global.u64 %d1, %d0; mov.u32 %r0, 7; st.global.u32 [%d1], %r0;", 0);
        // What is written again is a value like any other.
        check("ld.param.u64 %d0, [p]; add.u64 %d0, %d0, 4; st.global.u32 [%d0], 7;", 2);
        check("mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 mov.u32 %r1, 7; st.global.u32 [%d9], %r1;", 1);
    }

    #[test]
    fn what_a_loop_uses_lives_until_it_ends() {
        let body = |after: &str| {
            format!(
                "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y;\n\
                 again: st.global.u32 [%d9], %r1;\n\
                 mov.u32 %r2, %clock; mov.u32 %r3, %clock; add.u32 %r4, %r2, %r3; add.u32 %r0, %r0, %r4;\n\
                 setp.lt.u32 %p0, %r0, 100;\n{after}"
            )
        };
        // The value of %r1 is in a register during the whole loop, beside %r0, %r2 and %r3, or only until it is stored.
        check(&body("@%p0 bra again;"), 4);
        check(&body(""), 3);
    }

    #[test]
    fn inner_loops_come_before_outer_ones() {
        let body = "mov.u32 %r0, %tid.x;\nouter: mov.u32 %r1, %clock;\n\
            inner: add.u32 %r1, %r1, %r0; setp.lt.u32 %p0, %r1, 100; @%p0 bra inner;\n\
            mov.u32 %r2, %clock; mov.u32 %r3, %clock; add.u32 %r4, %r2, %r3;\n\
            setp.lt.u32 %p1, %r4, 100; @%p1 bra outer;";
        check(body, 3);
    }

    #[test]
    fn estimates_are_eights_and_calls_take_more() {
        let of = |body: &str| module(body).entry("k").expect("there is a kernel").registers();
        assert_eq!(of("mov.u32 %r0, %tid.x; st.global.u32 [%d9], %r0;"), 8);
        assert_eq!(of("call f, ();"), 24);
    }
}
