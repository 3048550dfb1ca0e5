//! Texts that configure the allocator.
//!
//! What must hold: no text makes the parser panic, what it accepts is within the limits of every option, and reading it
//! again changes nothing.

use c10_core::AllocatorConfig;

/// Smallest and largest size, in bytes, that an option can have.
const SIZES: std::ops::RangeInclusive<u64> = 11 << 20..=1 << 60;

/// Runs one input: first what was set before, then what is set now.
///
/// # Errors
/// A text was accepted that sets an option beyond its limits.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let (before, now) = text.split_once('\n').unwrap_or(("", &text));
    let present = AllocatorConfig::default().parse(before).unwrap_or_default();
    let Ok(config) = present.parse(now) else { return Ok(()) };
    limits(&config).map_err(|what| format!("`{now}` was accepted with {what}"))?;
    match config.parse(now) {
        Ok(again) if again == config => Ok(()),
        other => Err(format!("`{now}` says {config:?} first and then {other:?}")),
    }
}

fn limits(config: &AllocatorConfig) -> Result<(), String> {
    let AllocatorConfig { max_split_size, max_non_split_rounding, large_segment_size, .. } = config;
    let large = *large_segment_size..=*SIZES.end();
    let divisions = |divisions: &u32| *divisions == 0 || divisions.is_power_of_two();
    let checks = [
        ("max_split_size", max_split_size.is_none_or(|size| large.contains(&size))),
        ("max_non_split_rounding", large.contains(max_non_split_rounding)),
        ("large_segment_size", SIZES.contains(large_segment_size)),
        ("garbage_collection_threshold", (0.0..1.0).contains(&config.garbage_collection_threshold)),
        ("roundup_power2_divisions", config.roundup_power2_divisions.iter().all(divisions)),
        ("pinned_num_register_threads", (1..=128).contains(&config.pinned_num_register_threads)),
        ("pinned_reserve_segment_size", config.pinned_reserve_segment_size <= *SIZES.end()),
        ("per_process_memory_fraction", (0.0..=1.0).contains(&config.per_process_memory_fraction)),
    ];
    checks
        .into_iter()
        .find(|(_, holds)| !holds)
        .map_or(Ok(()), |(name, _)| Err(format!("{name} out of range: {config:?}")))
}
