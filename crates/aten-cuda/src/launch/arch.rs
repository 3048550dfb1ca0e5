//! The architectures that the kernels are written or compiled for.
//!
//! **Invariant:** this is the one table of them: what writes or chooses code and what tells programs of it read it here.

/// Compute capabilities, as 10 * major + minor, that PTX is written for; the lowest first. The committed texts are for
/// the first one.
pub(crate) const PTX_TARGETS: [u32; 2] = [75, 80];

/// The architectures of the kernels (`torch.cuda.get_arch_list`): machine code of the commonest, made ahead of time, and
/// PTX of all, which the driver compiles for any device from there on.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_90", "compute_75", "compute_80"];

/// The PTX to write for a device of this compute capability: the newest that it understands.
pub(crate) fn ptx_target(capability: u32) -> u32 {
    let fitting = PTX_TARGETS.into_iter().rev().find(|target| *target <= capability);
    fitting.unwrap_or(PTX_TARGETS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_target() {
        let texts: Vec<String> = PTX_TARGETS.iter().map(|target| format!("compute_{target}")).collect();
        let listed: Vec<&str> = ARCHITECTURES.iter().copied().filter(|arch| arch.starts_with("compute_")).collect();
        assert_eq!(listed, texts);
        assert!(ARCHITECTURES.iter().all(|arch| arch.starts_with("compute_") || arch.starts_with("sm_")));
    }

    #[test]
    fn committed_texts_are_for_the_lowest_target() {
        let target = format!(".target sm_{}\n", PTX_TARGETS[0]);
        let texts = [
            include_str!("../../kernels/index.ptx"),
            include_str!("../../kernels/matmul.ptx"),
            include_str!("../../kernels/random.ptx"),
            include_str!("../../kernels/select.ptx"),
            include_str!("../../kernels/sort.ptx"),
        ];
        assert!(texts.iter().all(|text| text.contains(&target)));
    }

    #[test]
    fn a_device_gets_the_newest_text_that_it_understands() {
        assert_eq!([75, 80, 86, 90, 120, 50].map(ptx_target), [75, 80, 80, 80, 80, 75]);
    }
}
