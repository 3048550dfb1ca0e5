//! In which steps tensors of several devices are added on all of them.
//!
//! In a ring the tensor is cut into a part for each device. Each part goes around, and every device adds its own; then it goes
//! around once more, and every device takes it: `2 (n - 1)` steps, in each of which every device sends one part and takes
//! another. In a tree whole tensors are added pair by pair, and the sum goes back the same way: `2 log2 n` steps, in which few
//! devices send. With `a` nanoseconds before a copy's first byte arrives and `b` bytes a nanosecond, a ring takes
//! `2 (n - 1) (a + B / (n b))` and a tree `2 ceil(log2 n) (a + B / b)`.
//!
//! **Invariants:** whatever the steps, every device has in the end, in each part, the same sum of all devices' elements. A
//! step comes behind those that made what it reads.

/// The steps in which tensors of several devices are added on all of them.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(3)).unwrap();
/// use aten_cuda::comm::{self, Pattern};
/// use aten_cuda::{DType, Tensor};
///
/// let of = |device: &str| Tensor::ones(&[7], DType::F32, device);
/// let tensors = [of("cuda:0")?, of("cuda:1")?, of("cuda:2")?];
/// comm::all_reduce_(&[&tensors[0], &tensors[1], &tensors[2]], Pattern::Ring)?;
/// assert_eq!(tensors[2].to_vec::<f32>()?, [3.0; 7]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pattern {
    /// What takes less time by the formulas for the devices' links, or NCCL where [`super::measure`] has found it quicker.
    #[default]
    Auto,
    /// Parts go around all devices twice: the least bytes for each link.
    Ring,
    /// Whole tensors go up and down a tree: the fewest steps.
    Tree,
    /// By NCCL, where it is there and takes the tensors; otherwise as [`Self::Auto`].
    Nccl,
}

/// A copy of a part from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) part: usize,
    /// Whether the part is added there to what is there; otherwise it takes its place.
    pub(super) adds: bool,
}

/// What a link is like: nanoseconds before the first byte arrives, and bytes a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkModel {
    pub(super) latency_ns: f64,
    pub(super) bytes_per_ns: f64,
}

impl LinkModel {
    /// Nanoseconds that the formula says.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn formula_ns(self, pattern: Pattern, members: usize, bytes: usize) -> f64 {
        let (count, all, bytes) = (members as f64, bytes, bytes as f64);
        match pattern {
            Pattern::Ring => 2.0 * (count - 1.0) * (self.latency_ns + bytes / count / self.bytes_per_ns),
            Pattern::Tree => 2.0 * f64::from(rounds(members)) * (self.latency_ns + bytes / self.bytes_per_ns),
            Pattern::Auto | Pattern::Nccl => {
                let of = |pattern| self.formula_ns(pattern, members, all);
                f64::min(of(Pattern::Ring), of(Pattern::Tree))
            }
        }
    }

    /// The pattern that is meant.
    pub(super) fn chosen(self, pattern: Pattern, members: usize, bytes: usize) -> Pattern {
        let of = |pattern| self.formula_ns(pattern, members, bytes);
        match pattern {
            Pattern::Auto | Pattern::Nccl if of(Pattern::Ring) <= of(Pattern::Tree) => Pattern::Ring,
            Pattern::Auto | Pattern::Nccl => Pattern::Tree,
            Pattern::Ring | Pattern::Tree => pattern,
        }
    }
}

/// Rounds of a tree of so many members.
fn rounds(members: usize) -> u32 {
    members.max(1).next_power_of_two().trailing_zeros()
}

/// Into how many parts a pattern cuts tensors, and its steps.
pub(super) fn steps(pattern: Pattern, members: usize) -> (usize, Vec<Step>) {
    match pattern {
        Pattern::Ring | Pattern::Auto | Pattern::Nccl => (members, ring(members)),
        Pattern::Tree => (1, tree(members)),
    }
}

fn ring(members: usize) -> Vec<Step> {
    let around = |first: usize, adds: bool| {
        (0..members.saturating_sub(1)).flat_map(move |turn| {
            (0..members).map(move |from| {
                let part = (from + first + members - turn) % members;
                Step { from, to: (from + 1) % members, part, adds }
            })
        })
    };
    around(0, true).chain(around(1, false)).collect()
}

fn tree(members: usize) -> Vec<Step> {
    let pairs = |distance: usize| {
        (0..members).step_by(2 * distance).filter(move |to| to + distance < members).map(move |to| (to, to + distance))
    };
    let up = (0..rounds(members))
        .flat_map(|round| pairs(1 << round).map(|(to, from)| Step { from, to, part: 0, adds: true }));
    let down = (0..rounds(members))
        .rev()
        .flat_map(|round| pairs(1 << round).map(|(from, to)| Step { from, to, part: 0, adds: false }));
    up.chain(down).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::topology::LinkClass;

    #[test]
    fn every_member_has_each_ones_part_once_in_the_end() {
        for pattern in [Pattern::Ring, Pattern::Tree] {
            for members in 1..20 {
                let (parts, steps) = steps(pattern, members);
                // How often each member's elements are in each member's sum of each part.
                let mut has: Vec<Vec<Vec<u32>>> = (0..members)
                    .map(|own| vec![(0..members).map(|other| u32::from(own == other)).collect(); parts])
                    .collect();
                for Step { from, to, part, adds } in steps {
                    let sent = has[from][part].clone();
                    let there = &mut has[to][part];
                    let both = there.iter().zip(&sent).map(|(own, sent)| if adds { own + sent } else { *sent });
                    *there = both.collect();
                }
                assert!(has.iter().flatten().flatten().all(|count| *count == 1), "{pattern:?} {members}: {has:?}");
            }
        }
    }

    /// When all steps are done on links alone: each member sends one copy at a time, and takes one.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn modelled_ns(link: LinkModel, pattern: Pattern, members: usize, bytes: usize) -> f64 {
        let (parts, steps) = steps(pattern, members);
        let moves_ns = bytes as f64 / parts as f64 / link.bytes_per_ns;
        let (mut sends, mut takes) = (vec![0.0_f64; members], vec![0.0_f64; members]);
        let mut there = vec![vec![0.0_f64; parts]; members];
        for Step { from, to, part, .. } in steps {
            let begin = there[from][part].max(there[to][part]).max(sends[from]).max(takes[to]);
            (sends[from], takes[to]) = (begin + moves_ns, begin + moves_ns);
            there[to][part] = begin + moves_ns + link.latency_ns;
        }
        there.iter().flatten().copied().fold(0.0, f64::max)
    }

    #[test]
    fn links_alone_take_what_the_formulas_say_with_64_and_512_members() {
        for link in [LinkModel::of(LinkClass::NvLink), LinkModel::of(LinkClass::Pcie)] {
            for members in [64, 512] {
                for bytes in [64 << 10, 64 << 20, 1 << 30] {
                    for pattern in [Pattern::Ring, Pattern::Tree] {
                        let (found, formula) =
                            (modelled_ns(link, pattern, members, bytes), link.formula_ns(pattern, members, bytes));
                        assert!(
                            (found - formula).abs() < 0.1 * formula,
                            "{pattern:?} {members} {bytes}: {found} {formula}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn few_bytes_go_by_a_tree_and_many_by_a_ring() {
        let link = LinkModel::of(LinkClass::NvLink);
        assert_eq!(link.chosen(Pattern::Auto, 8, 1 << 10), Pattern::Tree);
        assert_eq!(link.chosen(Pattern::Auto, 8, 1 << 30), Pattern::Ring);
        assert_eq!(link.chosen(Pattern::Tree, 8, 1 << 30), Pattern::Tree);
    }
}
