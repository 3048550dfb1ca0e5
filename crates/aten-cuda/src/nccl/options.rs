//! How communicators are made.

use std::time::Duration;

use cuda_sys::nccl::types::ncclConfig_t;

/// How calls with a communicator reach NCCL.
///
/// ```
/// use aten_cuda::nccl::Calls;
///
/// assert_eq!(Calls::default(), Calls::Polled);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calls {
    /// NCCL queues in a thread that it begins for each call, and is asked until that is done (`blocking = 0`): every call ends
    /// in its time, whatever other ranks do. The ranks may be of any program.
    #[default]
    Polled,
    /// NCCL queues in the thread that calls (`blocking = 1`), which is several times as fast for small tensors. The ranks are
    /// connected as with [`Self::Polled`], in time; a second communicator for the calls is split off then (`ncclCommSplit`), so
    /// that all ranks have to ask for it. A call waits in NCCL while that connects ranks for it, which it does in the
    /// first calls; [`super::Communicator::abort`] of another thread ends that.
    Direct,
}

/// How NCCL uses the device's blocks of threads (`ncclConfig_t::CTAPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CtaPolicy {
    /// As fast as can be.
    Default,
    /// As few as still give the full rate.
    Efficiency,
    /// None where the hardware moves the data without.
    Zero,
}

/// How a communicator is made. What is `None` is left to NCCL and its environment variables.
///
/// ```
/// use std::time::Duration;
///
/// use aten_cuda::nccl::{Calls, Options};
///
/// let patient = Options::default();
/// assert_eq!((patient.timeout, patient.calls, patient.max_ctas), (Duration::from_secs(600), Calls::Polled, None));
/// assert_eq!(patient.with_timeout(Duration::from_secs(5)).timeout, Duration::from_secs(5));
/// let few = Options { max_ctas: Some(4), ..Options::default().with_calls(Calls::Direct) };
/// assert_eq!((few.max_ctas, few.calls), (Some(4), Calls::Direct));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long the ranks may take to come together, and a call to be queued; ten minutes, as torch has it.
    pub timeout: Duration,
    /// How calls reach NCCL.
    pub calls: Calls,
    /// Blocks of threads that a cluster of them has (`cgaClusterSize`), 0 to 8.
    pub cga_cluster_size: Option<u32>,
    /// The fewest blocks of threads of a kernel of NCCL's (`minCTAs`), 1 to 64.
    pub min_ctas: Option<u32>,
    /// The most (`maxCTAs`), 1 to 64.
    pub max_ctas: Option<u32>,
    /// How blocks of threads are used; NCCL 2.28 on.
    pub cta_policy: Option<CtaPolicy>,
    /// Whether communicators that are split off share resources with this one (`splitShare`). Aborting one of a family that
    /// shares may end the others.
    pub split_share: Option<bool>,
    /// The same of those that [`super::Communicator::shrink`] makes (`shrinkShare`); NCCL 2.27 on.
    pub shrink_share: Option<bool>,
    /// The class of traffic on networks that know such (`trafficClass`).
    pub traffic_class: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(600),
            calls: Calls::default(),
            cga_cluster_size: None,
            min_ctas: None,
            max_ctas: None,
            cta_policy: None,
            split_share: None,
            shrink_share: None,
            traffic_class: None,
        }
    }
}

impl Options {
    /// The same with another time.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same with calls that reach NCCL in another way.
    #[must_use]
    pub fn with_calls(self, calls: Calls) -> Self {
        Self { calls, ..self }
    }

    /// In the library's words. NCCL checks the numbers.
    pub(super) fn config(&self, is_blocking: bool) -> ncclConfig_t {
        let open = ncclConfig_t::initial();
        let number =
            |given: Option<u32>, open: i32| given.map_or(open, |given| i32::try_from(given).unwrap_or(i32::MAX));
        let flag = |given: Option<bool>, open: i32| given.map_or(open, i32::from);
        ncclConfig_t {
            blocking: i32::from(is_blocking),
            cgaClusterSize: number(self.cga_cluster_size, open.cgaClusterSize),
            minCTAs: number(self.min_ctas, open.minCTAs),
            maxCTAs: number(self.max_ctas, open.maxCTAs),
            CTAPolicy: self.cta_policy.map_or(open.CTAPolicy, |policy| match policy {
                CtaPolicy::Default => 0,
                CtaPolicy::Efficiency => 1,
                CtaPolicy::Zero => 2,
            }),
            splitShare: flag(self.split_share, open.splitShare),
            shrinkShare: flag(self.shrink_share, open.shrinkShare),
            trafficClass: number(self.traffic_class, open.trafficClass),
            ..open
        }
    }
}
