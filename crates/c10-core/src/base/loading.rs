//! When the driver loads code.

/// When the driver loads the functions of a module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ModuleLoading {
    /// Each when it is first used, which saves time and memory at the start.
    Lazy,
    /// All with their module.
    Eager,
}
