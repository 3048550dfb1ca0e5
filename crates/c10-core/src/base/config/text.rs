//! A configuration written as the text that asks for it.
//!
//! **Invariant:** what `Display` writes is parsed back to the same options, whose sizes are whole MiB as every parsed
//! size is.

use std::fmt;

use super::{AllocatorConfig, MIB, ROUNDUP_ENTRIES};

impl fmt::Display for AllocatorConfig {
    /// The options that are not at their defaults, as `PYTORCH_CUDA_ALLOC_CONF` takes them; empty for the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings().join(","))
    }
}

/// The steps between powers of two: one number for all sizes, or a list with each size in MiB.
fn divisions(steps: &[u32; ROUNDUP_ENTRIES]) -> String {
    if steps.iter().all(|other| *other == steps[0]) {
        return steps[0].to_string();
    }
    let entries: Vec<String> = (0..).zip(steps).map(|(power, steps)| format!("{}:{steps}", 1_u64 << power)).collect();
    format!("[{}]", entries.join(","))
}

impl AllocatorConfig {
    /// Each option that is not at its default, as `key:value`.
    fn settings(&self) -> Vec<String> {
        let default = Self::default();
        let mut settings = Vec::new();
        let mut add = |key: &str, is_changed: bool, value: &dyn fmt::Display| {
            if is_changed {
                settings.push(format!("{key}:{value}"));
            }
        };
        let segment = self.large_segment_size;
        add("large_segment_size_mb", segment != default.large_segment_size, &(segment / MIB));
        let split = self.max_split_size;
        add("max_split_size_mb", split.is_some(), &(split.unwrap_or(0) / MIB));
        // Where the text does not name it, this option follows the size of large segments.
        let rounding = self.max_non_split_rounding;
        add("max_non_split_rounding_mb", rounding != segment, &(rounding / MIB));
        let threshold = self.garbage_collection_threshold;
        add("garbage_collection_threshold", threshold > 0.0, &threshold);
        let steps = &self.roundup_power2_divisions;
        add("roundup_power2_divisions", steps.iter().any(|steps| *steps > 0), &divisions(steps));
        let fraction = self.per_process_memory_fraction;
        add("per_process_memory_fraction", fraction < 1.0, &fraction);
        let threads = self.pinned_num_register_threads;
        add("pinned_num_register_threads", threads != default.pinned_num_register_threads, &threads);
        let reserve = self.pinned_reserve_segment_size;
        add("pinned_reserve_segment_size_mb", reserve > 0, &(reserve / MIB));
        add("backend", self.backend != default.backend, &self.backend);
        // Every switch is off by default.
        add("expandable_segments", self.expandable_segments, &"True");
        add("release_lock_on_cudamalloc", self.release_lock_on_cudamalloc, &"True");
        add("pinned_use_cuda_host_register", self.pinned_use_cuda_host_register, &"True");
        add("pinned_use_background_threads", self.pinned_use_background_threads, &"True");
        add("graph_capture_record_stream_reuse", self.graph_capture_record_stream_reuse, &"True");
        add("learn_plans", self.learn_plans, &"True");
        settings
    }
}
