//! The runtime as a value: its handle, its start and its end.

mod bound;
mod checks;
mod export;
mod extensions;
mod guard;
mod handle;
mod home;
mod lazy;
mod shutdown;
mod started;

pub use bound::RuntimeGuard;
pub use export::{ExportedFigures, FigureExport, figure_exports};
pub use guard::DeviceGuard;
pub use handle::Runtime;
pub(crate) use handle::WeakRuntime;
pub(crate) use home::Home;
pub(crate) use started::Started;
