//! Configuration texts and what torch 2.11 answered to them.

use super::*;

fn parsed(text: &str) -> AllocatorConfig {
    AllocatorConfig::default().parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    AllocatorConfig::default().parse(text).unwrap_err().to_string()
}

#[test]
fn refusals_have_the_recorded_texts() {
    let recorded = [
        ("max_split_size_mb:10", "CachingAllocator option max_split_size_mb too small, must be >= 20"),
        ("garbage_collection_threshold:2", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
        ("foo:1", "Unrecognized key 'foo' in CUDA allocator config."),
        ("backend:xyz", "Unknown allocator backend, options are native and cudaMallocAsync"),
        ("expandable_segments:Maybe", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'Maybe'"),
        ("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2"),
        ("pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3"),
        ("throw_on_cudamalloc_oom:True", "Unrecognized key 'throw_on_cudamalloc_oom' in CUDA allocator config."),
    ];
    for (text, expected) in recorded {
        assert_eq!(refusal(text), expected, "{text}");
    }
}

#[test]
fn recorded_texts_are_accepted() {
    let default = AllocatorConfig::default();
    let accepted = |text: &str| AllocatorConfig { text: String::new(), ..parsed(text) };
    let table = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8];
    let roundup = AllocatorConfig { roundup_power2_divisions: table, ..default.clone() };
    assert_eq!(accepted("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"), roundup);
    let split = AllocatorConfig { max_split_size: Some(40 << 20), ..default.clone() };
    assert_eq!(accepted("max_split_size_mb:40"), split);
    let both = AllocatorConfig { expandable_segments: true, garbage_collection_threshold: 0.8, ..default.clone() };
    assert_eq!(accepted("expandable_segments:True,garbage_collection_threshold:0.8"), both);
    let fraction = AllocatorConfig { per_process_memory_fraction: 0.5, ..default.clone() };
    assert_eq!(accepted("per_process_memory_fraction:0.5"), fraction);
    let reuse = AllocatorConfig { graph_capture_record_stream_reuse: true, ..default.clone() };
    assert_eq!(accepted("graph_capture_record_stream_reuse:True"), reuse);
    let segment = AllocatorConfig { large_segment_size: 40 << 20, max_non_split_rounding: 40 << 20, ..default.clone() };
    assert_eq!(accepted("large_segment_size_mb:40"), segment);
    let background = AllocatorConfig { pinned_use_background_threads: true, ..default.clone() };
    assert_eq!(accepted("pinned_use_background_threads:True"), background);
    let rounding = AllocatorConfig { max_non_split_rounding: 40 << 20, ..default.clone() };
    assert_eq!(accepted("max_non_split_rounding_mb:40"), rounding);
    let lock = AllocatorConfig { release_lock_on_cudamalloc: true, ..default.clone() };
    assert_eq!(accepted("release_lock_on_cudamalloc:True"), lock);
    let reserve = AllocatorConfig { pinned_reserve_segment_size: 64 << 20, ..default };
    assert_eq!(accepted("pinned_reserve_segment_size_mb:64"), reserve);
}

#[test]
fn a_text_that_ends_too_early_is_refused() {
    for key in ["max_split_size_mb", "expandable_segments", "backend", "roundup_power2_divisions"] {
        let expected = ConfigError::MissingValue { key: key.to_owned() };
        for text in [format!("{key}:"), key.to_owned(), format!("per_process_memory_fraction:1,{key}:")] {
            assert_eq!(AllocatorConfig::default().parse(&text), Err(expected.clone()), "{text}");
        }
    }
    for text in ["roundup_power2_divisions:[", "roundup_power2_divisions:[256:1", "roundup_power2_divisions:[256:1,"] {
        assert!(refusal(text).contains("the text ends there"), "{text}");
    }
}

#[test]
fn limits_are_those_of_torch() {
    let accepted = [
        "max_split_size_mb:20",
        "max_non_split_rounding_mb:20",
        "garbage_collection_threshold:0.001",
        "garbage_collection_threshold:0.999",
        "roundup_power2_divisions:1",
        "roundup_power2_divisions:[1:0,>:2]",
        "roundup_power2_divisions:[65536:4]",
        "large_segment_size_mb:11",
        "pinned_num_register_threads:128",
        "pinned_reserve_segment_size_mb:1",
        "per_process_memory_fraction:0",
        "per_process_memory_fraction:1",
        "max_split_size_mb:18446744073709551615",
        "backend:native",
        "",
        "expandable_segments,True,",
    ];
    for text in accepted {
        parsed(text);
    }
    let refused = [
        "max_split_size_mb:19",
        "max_split_size_mb:-1",
        "max_split_size_mb:1e3",
        "max_split_size_mb:18446744073709551616",
        "max_split_size_mb:39,large_segment_size_mb:40",
        "max_non_split_rounding_mb:19",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:nan",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:4294967296",
        "roundup_power2_divisions:[3:4]",
        "roundup_power2_divisions:[0:4]",
        "roundup_power2_divisions:[4:3]",
        "large_segment_size_mb:10",
        "pinned_num_register_threads:0",
        "pinned_num_register_threads:256",
        "pinned_reserve_segment_size_mb:0",
        "per_process_memory_fraction:1.1",
        "per_process_memory_fraction:-0.1",
        "per_process_memory_fraction:nan",
        "expandable_segments:true",
        "expandable_segments:[1:2]",
        "expandable_segments:True,,backend:native",
    ];
    for text in refused {
        refusal(text);
    }
}

#[test]
fn a_list_leaves_what_it_does_not_name() {
    let table = parsed("roundup_power2_divisions:[4:2,16:8]").roundup_power2_divisions;
    assert_eq!(table, [2, 2, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let all = parsed("roundup_power2_divisions:[>:4]").roundup_power2_divisions;
    assert_eq!(all, [4; 16]);
    let past_the_end = parsed("roundup_power2_divisions:[65536:4,>:8]").roundup_power2_divisions;
    assert_eq!(past_the_end, [4; 16]);
}

#[test]
fn each_text_resets_four_options_and_keeps_the_others() {
    let first = parsed(
        "max_split_size_mb:64,max_non_split_rounding_mb:64,garbage_collection_threshold:0.5,\
         roundup_power2_divisions:4,expandable_segments:True,large_segment_size_mb:32",
    );
    let second = first.parse("release_lock_on_cudamalloc:True").unwrap();
    let expected = AllocatorConfig {
        expandable_segments: true,
        large_segment_size: 32 << 20,
        max_non_split_rounding: 32 << 20,
        release_lock_on_cudamalloc: true,
        text: "release_lock_on_cudamalloc:True".to_owned(),
        ..AllocatorConfig::default()
    };
    assert_eq!(second, expected);
    assert_eq!(second.text(), "release_lock_on_cudamalloc:True");
}

/// Torch reads the backend first, so an error elsewhere in the text does not hide the backend.
#[test]
fn the_backend_is_known_where_another_key_is_refused() {
    let backend = |text: &'static str| AllocatorConfig::backend_from_env(|_| Some(text.to_owned())).backend.name();
    assert_eq!(backend("backend:cudaMallocAsync,foo:1"), "cudaMallocAsync");
    assert_eq!(backend("max_split_size_mb:1,backend:cudaMallocAsync"), "cudaMallocAsync");
    assert_eq!((backend("foo:1"), backend("backend:xyz"), backend("backend")), ("native", "native", "native"));
}

#[test]
fn the_backend_is_chosen_once() {
    let text = "backend:cudaMallocAsync";
    assert_eq!(AllocatorConfig::default().parse(text), Err(ConfigError::BackendChanged));
    let at_load = AllocatorConfig::from_env(|_| Some(text.to_owned())).unwrap();
    assert_eq!((at_load.backend, at_load.to_string()), (Backend::CudaMallocAsync, text.to_owned()));
    assert_eq!(at_load.parse(text).unwrap().backend.name(), "cudaMallocAsync");
    assert_eq!(at_load.parse("backend:native"), Err(ConfigError::BackendChanged));
    let refused = AllocatorConfig::from_env(|_| Some("backend:xyz".to_owned())).unwrap_err();
    assert_eq!(refused.error, ConfigError::UnknownBackend);
    let text = "(the environment variable PYTORCH_CUDA_ALLOC_CONF sets 'backend' to 'xyz')";
    assert!(refused.to_string().ends_with(text), "{refused}");
    assert_eq!(parsed("backend:native").backend.name(), "native");
}

#[test]
fn the_first_variable_that_is_set_counts() {
    let lookup = |set: &'static [(&str, &str)]| {
        move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, text)| (*text).to_owned())
    };
    let text = |set| AllocatorConfig::from_env(lookup(set)).unwrap().text().to_owned();
    assert_eq!(text(&[]), "");
    assert_eq!(text(&[("PYTORCH_ALLOC_CONF", "max_split_size_mb:21")]), "max_split_size_mb:21");
    let both: &[_] = &[("PYTORCH_ALLOC_CONF", "foo:1"), ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:22")];
    assert_eq!(text(both), "max_split_size_mb:22");
    assert!(AllocatorConfig::from_env(lookup(&[("PYTORCH_HIP_ALLOC_CONF", "foo:1")])).is_err());
}

#[test]
fn a_configuration_is_written_as_the_text_that_asks_for_it() {
    assert_eq!(AllocatorConfig::default().to_string(), "");
    let texts = [
        "large_segment_size_mb:40,max_split_size_mb:80,max_non_split_rounding_mb:60,garbage_collection_threshold:0.8,\
         roundup_power2_divisions:8,per_process_memory_fraction:0.5,pinned_num_register_threads:4,\
         pinned_reserve_segment_size_mb:64",
        "expandable_segments:True,release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,\
         pinned_use_background_threads:True,graph_capture_record_stream_reuse:True",
    ];
    for text in texts {
        assert_eq!(parsed(text).to_string(), text);
    }
    for text in ["roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "large_segment_size_mb:64,backend:native"] {
        let config = parsed(text);
        let again = parsed(&config.to_string());
        assert_eq!(AllocatorConfig { text: String::new(), ..again }, AllocatorConfig { text: String::new(), ..config });
    }
}
