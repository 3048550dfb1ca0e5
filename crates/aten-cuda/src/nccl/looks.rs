//! Looking again and again whether something is done.

use std::time::{Duration, Instant};

/// How long there is no pause between two looks: what NCCL queues is queued by then, and the shortest sleep takes longer.
const AWAKE: Duration = Duration::from_micros(200);

/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Looks that are taken until something is done: at first one after another, later ever fewer.
#[derive(Debug)]
pub(super) struct Looks {
    begun: Instant,
    pause: Duration,
}

impl Looks {
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), pause: Duration::from_micros(2) }
    }

    /// Waits until the next look; `false` where there were looks for so long that there is none.
    pub(super) fn again(&mut self, timeout: Duration) -> bool {
        let passed = self.begun.elapsed();
        if passed < AWAKE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 2).min(PAUSE);
        }
        passed <= timeout
    }
}
