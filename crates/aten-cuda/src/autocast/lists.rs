//! What becomes of which operation: torch's lists, as data.
//!
//! **Invariant:** the names are those of PyTorch 2.11, operations that are not there included; of those that are, methods
//! ask these lists when the crate is compiled. They were compared name by name with `ATen/autocast_mode.h` (the lists
//! `AT_FORALL_*`) and `ATen/autocast_mode.cpp` (`AutocastCPU`) as the main branch has had them since `rms_norm` joined them.

use c10_core::DeviceType;

use Policy::{Banned, Fp32, Fp32AppendDtype, Fp32SetOptDtype, LowerPrecision, Promote};

/// What a region of autocast makes of an operation (`at::autocast::CastPolicy`). Floats of 64 bits, other dtypes and
/// tensors on devices of another kind are always left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// All floats are cast to the dtype of the region (`lower_precision_fp`).
    LowerPrecision,
    /// All floats are cast to `f32` (`fp32`).
    Fp32,
    /// The operation is asked for a result in `f32`, unless the caller asks for another (`fp32_set_opt_dtype`).
    Fp32SetOptDtype,
    /// The same, for operations that have forms with and without a dtype (`fp32_append_dtype`).
    Fp32AppendDtype,
    /// All floats are cast to `f32` where one of them is that, else stay in the dtype of the region (`promote`).
    Promote,
    /// The operation is refused.
    Banned,
}

/// The policies of an operation for the two kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) cuda: Option<Policy>,
    pub(crate) cpu: Option<Policy>,
}

impl Policies {
    /// Those of the operation of a name.
    pub(crate) const fn of(name: &str) -> Self {
        Self::of_both(name, name)
    }

    /// Those of an operation that is listed under different names.
    pub(crate) const fn of_both(cuda: &str, cpu: &str) -> Self {
        Self { cuda: find(CUDA, listed(cuda)), cpu: find(CPU, listed(cpu)) }
    }

    /// Whether the operation is in any list.
    pub(crate) const fn is_listed(self) -> bool {
        self.cuda.is_some() || self.cpu.is_some()
    }

    /// That for a kind of devices.
    pub(crate) fn of_kind(self, kind: DeviceType) -> Option<Policy> {
        match kind {
            DeviceType::Cuda => self.cuda,
            _ => self.cpu,
        }
    }
}

/// The policy of an operation on devices of a kind; `None` for an operation that runs in the dtypes of its operands.
///
/// The names are torch's, and those of this crate's tables where they differ.
///
/// ```
/// use aten_cuda::autocast::{Policy, policy};
/// use c10_core::DeviceType;
///
/// assert_eq!(policy(DeviceType::Cuda, "mm"), Some(Policy::LowerPrecision));
/// assert_eq!(policy(DeviceType::Cuda, "cat"), None);
/// assert_eq!(policy(DeviceType::Cpu, "cat"), Some(Policy::Promote));
/// ```
#[must_use]
pub fn policy(kind: DeviceType, name: &str) -> Option<Policy> {
    let (cuda, cpu) = (on_cuda(name), on_cpu(name));
    Policies::of_both(cuda, cpu).of_kind(kind)
}

/// Every operation that is listed for devices of a kind, with its policy.
///
/// ```
/// use aten_cuda::autocast::{Policy, operations};
/// use c10_core::DeviceType;
///
/// let banned: Vec<_> = operations(DeviceType::Cuda).filter(|(_, policy)| *policy == Policy::Banned).collect();
/// assert_eq!(banned, [("binary_cross_entropy", Policy::Banned)]);
/// ```
pub fn operations(kind: DeviceType) -> impl Iterator<Item = (&'static str, Policy)> {
    let list = if kind == DeviceType::Cuda { CUDA } else { CPU };
    list.iter().copied()
}

/// The name under which torch has an operation of this crate's tables. Those that torch makes of one other operation have
/// that one's policy.
const fn listed(name: &str) -> &str {
    match name.as_bytes() {
        b"pow_half" | b"pow_two" | b"square" => "pow",
        b"norm_0" | b"norm_1" | b"norm_2" | b"norm_p" | b"norm_inf" | b"norm_minus_inf" => "norm",
        _ => name,
    }
}

/// Under which name an operation of this crate is listed for CUDA devices.
fn on_cuda(name: &str) -> &str {
    // Made of `log_softmax` and `nll_loss` there.
    if name == "cross_entropy" { "nll_loss" } else { name }
}

/// Under which name an operation of this crate is listed for the host.
fn on_cpu(name: &str) -> &str {
    match name {
        "cross_entropy" => "cross_entropy_loss",
        "addmm_activation" => "_addmm_activation",
        _ => name,
    }
}

const fn find(list: &[(&str, Policy)], name: &str) -> Option<Policy> {
    let mut at = 0;
    while at < list.len() {
        if is_same(list[at].0.as_bytes(), name.as_bytes()) {
            return Some(list[at].1);
        }
        at += 1;
    }
    None
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// For CUDA devices.
const CUDA: &[(&str, Policy)] = &[
    ("_convolution", LowerPrecision),
    ("conv1d", LowerPrecision),
    ("conv2d", LowerPrecision),
    ("conv3d", LowerPrecision),
    ("conv_tbc", LowerPrecision),
    ("conv_transpose1d", LowerPrecision),
    ("conv_transpose2d", LowerPrecision),
    ("conv_transpose3d", LowerPrecision),
    ("convolution", LowerPrecision),
    ("cudnn_convolution", LowerPrecision),
    ("cudnn_convolution_transpose", LowerPrecision),
    ("prelu", LowerPrecision),
    ("addmm", LowerPrecision),
    ("addmv", LowerPrecision),
    ("addr", LowerPrecision),
    ("matmul", LowerPrecision),
    ("einsum", LowerPrecision),
    ("mm", LowerPrecision),
    ("mv", LowerPrecision),
    ("linalg_vecdot", LowerPrecision),
    ("linear", LowerPrecision),
    ("addbmm", LowerPrecision),
    ("baddbmm", LowerPrecision),
    ("bmm", LowerPrecision),
    ("chain_matmul", LowerPrecision),
    ("linalg_multi_dot", LowerPrecision),
    ("_thnn_fused_lstm_cell", LowerPrecision),
    ("_thnn_fused_gru_cell", LowerPrecision),
    ("lstm_cell", LowerPrecision),
    ("gru_cell", LowerPrecision),
    ("rnn_tanh_cell", LowerPrecision),
    ("rnn_relu_cell", LowerPrecision),
    ("_scaled_dot_product_flash_attention", LowerPrecision),
    ("scaled_dot_product_attention", LowerPrecision),
    ("acos", Fp32),
    ("asin", Fp32),
    ("cosh", Fp32),
    ("erfinv", Fp32),
    ("exp", Fp32),
    ("expm1", Fp32),
    ("log", Fp32),
    ("log10", Fp32),
    ("log2", Fp32),
    ("log1p", Fp32),
    ("reciprocal", Fp32),
    ("rsqrt", Fp32),
    ("sinh", Fp32),
    ("tan", Fp32),
    ("pow", Fp32),
    ("softplus", Fp32),
    ("layer_norm", Fp32),
    ("native_layer_norm", Fp32),
    ("rms_norm", Fp32),
    ("group_norm", Fp32),
    ("frobenius_norm", Fp32),
    ("nuclear_norm", Fp32),
    ("cosine_similarity", Fp32),
    ("poisson_nll_loss", Fp32),
    ("cosine_embedding_loss", Fp32),
    ("nll_loss", Fp32),
    ("nll_loss2d", Fp32),
    ("hinge_embedding_loss", Fp32),
    ("kl_div", Fp32),
    ("l1_loss", Fp32),
    ("smooth_l1_loss", Fp32),
    ("huber_loss", Fp32),
    ("mse_loss", Fp32),
    ("margin_ranking_loss", Fp32),
    ("multilabel_margin_loss", Fp32),
    ("soft_margin_loss", Fp32),
    ("triplet_margin_loss", Fp32),
    ("multi_margin_loss", Fp32),
    ("binary_cross_entropy_with_logits", Fp32),
    ("dist", Fp32),
    ("pdist", Fp32),
    ("cdist", Fp32),
    ("renorm", Fp32),
    ("logsumexp", Fp32),
    ("upsample_nearest1d", Fp32),
    ("_upsample_nearest_exact1d", Fp32),
    ("upsample_nearest2d", Fp32),
    ("_upsample_nearest_exact2d", Fp32),
    ("upsample_nearest3d", Fp32),
    ("_upsample_nearest_exact3d", Fp32),
    ("upsample_linear1d", Fp32),
    ("upsample_bilinear2d", Fp32),
    ("_upsample_bilinear2d_aa", Fp32),
    ("upsample_trilinear3d", Fp32),
    ("upsample_bicubic2d", Fp32),
    ("_upsample_bicubic2d_aa", Fp32),
    ("prod", Fp32SetOptDtype),
    ("softmax", Fp32SetOptDtype),
    ("log_softmax", Fp32SetOptDtype),
    ("cumprod", Fp32SetOptDtype),
    ("cumsum", Fp32SetOptDtype),
    ("linalg_vector_norm", Fp32SetOptDtype),
    ("linalg_matrix_norm", Fp32SetOptDtype),
    ("sum", Fp32SetOptDtype),
    ("norm", Fp32AppendDtype),
    ("addcdiv", Promote),
    ("addcmul", Promote),
    ("atan2", Promote),
    ("bilinear", Promote),
    ("cross", Promote),
    ("dot", Promote),
    ("vdot", Promote),
    ("grid_sampler", Promote),
    ("index_put", Promote),
    ("tensordot", Promote),
    ("scatter_add", Promote),
    ("binary_cross_entropy", Banned),
];

/// For the host.
const CPU: &[(&str, Policy)] = &[
    ("conv1d", LowerPrecision),
    ("conv2d", LowerPrecision),
    ("conv3d", LowerPrecision),
    ("bmm", LowerPrecision),
    ("mm", LowerPrecision),
    ("linalg_vecdot", LowerPrecision),
    ("baddbmm", LowerPrecision),
    ("addmm", LowerPrecision),
    ("_addmm_activation", LowerPrecision),
    ("addbmm", LowerPrecision),
    ("linear", LowerPrecision),
    ("_convolution", LowerPrecision),
    ("matmul", LowerPrecision),
    ("conv_tbc", LowerPrecision),
    ("mkldnn_rnn_layer", LowerPrecision),
    ("conv_transpose1d", LowerPrecision),
    ("conv_transpose2d", LowerPrecision),
    ("conv_transpose3d", LowerPrecision),
    ("prelu", LowerPrecision),
    ("scaled_dot_product_attention", LowerPrecision),
    ("_native_multi_head_attention", LowerPrecision),
    ("avg_pool3d", Fp32),
    ("binary_cross_entropy", Fp32),
    ("grid_sampler", Fp32),
    ("polar", Fp32),
    ("prod", Fp32),
    ("quantile", Fp32),
    ("nanquantile", Fp32),
    ("stft", Fp32),
    ("cdist", Fp32),
    ("grid_sampler_2d", Fp32),
    ("_grid_sampler_2d_cpu_fallback", Fp32),
    ("grid_sampler_3d", Fp32),
    ("trace", Fp32),
    ("view_as_complex", Fp32),
    ("cholesky", Fp32),
    ("cholesky_inverse", Fp32),
    ("cholesky_solve", Fp32),
    ("inverse", Fp32),
    ("lu_solve", Fp32),
    ("orgqr", Fp32),
    ("ormqr", Fp32),
    ("pinverse", Fp32),
    ("max_pool3d", Fp32),
    ("max_unpool2d", Fp32),
    ("max_unpool3d", Fp32),
    ("adaptive_avg_pool3d", Fp32),
    ("reflection_pad1d", Fp32),
    ("reflection_pad2d", Fp32),
    ("replication_pad1d", Fp32),
    ("replication_pad2d", Fp32),
    ("replication_pad3d", Fp32),
    ("mse_loss", Fp32),
    ("cosine_embedding_loss", Fp32),
    ("nll_loss", Fp32),
    ("nll_loss2d", Fp32),
    ("hinge_embedding_loss", Fp32),
    ("poisson_nll_loss", Fp32),
    ("smooth_l1_loss", Fp32),
    ("cross_entropy_loss", Fp32),
    ("l1_loss", Fp32),
    ("huber_loss", Fp32),
    ("margin_ranking_loss", Fp32),
    ("soft_margin_loss", Fp32),
    ("triplet_margin_loss", Fp32),
    ("multi_margin_loss", Fp32),
    ("ctc_loss", Fp32),
    ("kl_div", Fp32),
    ("multilabel_margin_loss", Fp32),
    ("binary_cross_entropy_with_logits", Fp32),
    ("fft_fft", Fp32),
    ("fft_ifft", Fp32),
    ("fft_fft2", Fp32),
    ("fft_ifft2", Fp32),
    ("fft_fftn", Fp32),
    ("fft_ifftn", Fp32),
    ("fft_rfft", Fp32),
    ("fft_irfft", Fp32),
    ("fft_rfft2", Fp32),
    ("fft_irfft2", Fp32),
    ("fft_rfftn", Fp32),
    ("fft_irfftn", Fp32),
    ("fft_hfft", Fp32),
    ("fft_ihfft", Fp32),
    ("linalg_cond", Fp32),
    ("linalg_matrix_rank", Fp32),
    ("linalg_solve", Fp32),
    ("linalg_cholesky", Fp32),
    ("linalg_svdvals", Fp32),
    ("linalg_eigvals", Fp32),
    ("linalg_eigvalsh", Fp32),
    ("linalg_inv", Fp32),
    ("linalg_householder_product", Fp32),
    ("linalg_tensorinv", Fp32),
    ("linalg_tensorsolve", Fp32),
    ("fake_quantize_per_tensor_affine", Fp32),
    ("geqrf", Fp32),
    ("_lu_with_info", Fp32),
    ("qr", Fp32),
    ("svd", Fp32),
    ("triangular_solve", Fp32),
    ("fractional_max_pool2d", Fp32),
    ("fractional_max_pool3d", Fp32),
    ("adaptive_max_pool3d", Fp32),
    ("multilabel_margin_loss_forward", Fp32),
    ("linalg_qr", Fp32),
    ("linalg_cholesky_ex", Fp32),
    ("linalg_svd", Fp32),
    ("linalg_eig", Fp32),
    ("linalg_eigh", Fp32),
    ("linalg_lstsq", Fp32),
    ("linalg_inv_ex", Fp32),
    ("stack", Promote),
    ("cat", Promote),
    ("index_copy", Promote),
];
