//! Modules of several inputs, which the driver links.
//!
//! # Safety
//! The caller promises that the inputs are whole.
#![expect(unsafe_code, reason = "links code that is somebody else's")]

use crate::api::launch::Module;
use crate::base::device::DeviceIndex;
use crate::base::error::{ModuleError, Result};
use crate::base::linking::{LinkInput, LinkKind};
use crate::runtime::Runtime;

impl Module {
    /// Has the driver link several inputs and loads what comes of it (`cuLinkCreate`, `cuLinkAddData`, `cuLinkComplete`).
    /// Functions and variables that one input declares and another defines are found. A host call: it queues nothing.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{LinkInput, LinkKind, Module, Runtime};
    ///
    /// let head = ".version 7.8 .target sm_75 .address_size 64";
    /// let one = format!("{head} .visible .func (.param .b32 r) seven() {{ st.param.b32 [r], 7; ret; }}");
    /// let other = format!(
    ///     "{head} .extern .func (.param .b32 r) seven();
    ///     .visible .entry f() {{ .param .b32 r; call (r), seven, (); ret; }}"
    /// );
    /// let inputs = [("one", &one), ("other", &other)]
    ///     .map(|(name, text)| LinkInput { kind: LinkKind::Ptx, name, data: text.as_bytes() });
    /// // SAFETY: texts say where they end.
    /// let module = unsafe { Module::link(&Runtime::current(), 0, &inputs) }?;
    /// assert_eq!(module.kernel("f")?.name(), "f");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Safety
    /// - Inputs that are not PTX are whole: how long they are, the driver may read in themselves.
    ///
    /// # Errors
    /// There is no input or an empty one, the driver refuses one or something is missing in all of them
    /// ([`ModuleError::Refused`], with the linker's log), or the driver's error.
    pub unsafe fn link(runtime: &Runtime, device: DeviceIndex, inputs: &[LinkInput<'_>]) -> Result<Self> {
        if inputs.is_empty() || inputs.iter().any(|input| input.data.is_empty()) {
            return Err(ModuleError::Empty.into());
        }
        // SAFETY: the caller's promise.
        let image = unsafe { linked(runtime, device, inputs) }?;
        // SAFETY: the driver made the image and told its length.
        unsafe { Self::from_image(runtime, device, &image) }
    }
    /// Has the driver compile PTX to machine code for a device, which [`Self::from_image`] loads (`cuLinkCreate`,
    /// `cuLinkAddData`, `cuLinkComplete`). A host call: it queues nothing.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Module, Runtime};
    ///
    /// let text = ".version 7.8 .target sm_75 .address_size 64 .visible .entry nothing() { ret; }";
    /// let code = Module::compile_ptx(&Runtime::current(), 0, text)?;
    /// // SAFETY: the driver made the code.
    /// let module = unsafe { Module::from_image(&Runtime::current(), 0, &code) }?;
    /// assert_eq!(module.kernel("nothing")?.name(), "nothing");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The text is empty or holds a zero byte, the driver refuses it ([`ModuleError::Refused`], with its log), or the
    /// driver's error.
    pub fn compile_ptx(runtime: &Runtime, device: DeviceIndex, text: &str) -> Result<Vec<u8>> {
        if text.is_empty() {
            return Err(ModuleError::Empty.into());
        }
        if text.contains('\0') {
            return Err(ModuleError::ZeroByte.into());
        }
        let input = LinkInput { kind: LinkKind::Ptx, name: "text", data: text.as_bytes() };
        // SAFETY: the only input is PTX.
        unsafe { linked(runtime, device, &[input]) }
    }
}

/// What the driver makes of several inputs.
///
/// # Safety
/// - Inputs that are not PTX are whole.
unsafe fn linked(runtime: &Runtime, device: DeviceIndex, inputs: &[LinkInput<'_>]) -> Result<Vec<u8>> {
    let ready = runtime.check_device(device)?;
    let _relaxed = ready.relaxed()?;
    // SAFETY: the caller's promise.
    unsafe { ready.api.link(device, inputs) }
}
