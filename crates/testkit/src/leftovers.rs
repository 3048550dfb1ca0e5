//! What is left on a machine when a program has finished.

use cuda_sim::{LiveHandles, Machine};

/// What a program left behind on a machine, contexts aside, in words such as `2 streams`; empty when it cleaned up.
#[must_use]
pub fn leftovers(machine: &Machine) -> Vec<String> {
    let LiveHandles {
        allocations,
        pinned,
        streams,
        events,
        graphs,
        graph_execs,
        user_objects,
        modules,
        libraries,
        links,
        green_contexts,
        memory_handles,
        reservations,
        pools,
        library_handles,
        ..
    } = machine.live();
    let counts = [
        ("allocations", allocations),
        ("pinned ranges", pinned),
        ("streams", streams),
        ("events", events),
        ("graphs", graphs),
        ("executable graphs", graph_execs),
        ("user objects", user_objects),
        ("modules", modules),
        ("libraries", libraries),
        ("links", links),
        ("green contexts", green_contexts),
        ("memory handles", memory_handles),
        ("reservations", reservations),
        ("pools", pools),
        ("handles of libraries", library_handles),
    ];
    counts.into_iter().filter(|&(_, count)| count != 0).map(|(what, count)| format!("{count} {what}")).collect()
}
