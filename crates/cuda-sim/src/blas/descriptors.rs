//! Descriptors of cuBLASLt: products, layouts of matrices, preferences.
//!
//! A descriptor is a set of attributes, each a number of one, four or eight bytes. What was never set has the value that the
//! library gives it.

use std::collections::BTreeMap;
use std::ffi::c_void;

use cuda_sys::cublas::types::{cublasComputeType_t, cudaDataType_t};
use cuda_sys::cublaslt::types::{
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
};

use cublasLtMatmulDescAttributes_t as Matmul;
use cublasLtMatmulPreferenceAttributes_t as Preference;
use cublasLtMatrixLayoutAttribute_t as Layout;

use super::{ALLOC_FAILED, Answer, INVALID_VALUE};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::model::State;
use crate::report::ReportKind;
use crate::toolkit::numbers::bytes_of;

/// Kind of descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Matmul,
    Layout,
    Preference,
}

/// A descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    kind: Kind,
    values: BTreeMap<u32, u64>,
}

impl Descriptor {
    /// The value of an attribute; 0 where it was never set and has no other value.
    pub(super) fn get(&self, attribute: u32) -> u64 {
        self.values.get(&attribute).copied().unwrap_or(0)
    }
}

/// Bytes of an attribute; none for one that there is not.
fn bytes(kind: Kind, attribute: u32) -> Option<usize> {
    match kind {
        Kind::Matmul => matmul_bytes(Matmul(attribute)),
        Kind::Layout => layout_bytes(Layout(attribute)),
        Kind::Preference => preference_bytes(Preference(attribute)),
    }
}

fn matmul_bytes(attribute: Matmul) -> Option<usize> {
    Some(match attribute {
        Matmul::CUBLASLT_MATMUL_DESC_FAST_ACCUM => 1,
        Matmul::CUBLASLT_MATMUL_DESC_BIAS_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE
        | Matmul::CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE
        | Matmul::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_C_SCALE_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_AMAX_D_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER
        | Matmul::CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER => 8,
        Matmul::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE
        | Matmul::CUBLASLT_MATMUL_DESC_SCALE_TYPE
        | Matmul::CUBLASLT_MATMUL_DESC_POINTER_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_TRANSA
        | Matmul::CUBLASLT_MATMUL_DESC_TRANSB
        | Matmul::CUBLASLT_MATMUL_DESC_TRANSC
        | Matmul::CUBLASLT_MATMUL_DESC_FILL_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE
        | Matmul::CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE
        | Matmul::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
        | Matmul::CUBLASLT_MATMUL_DESC_A_SCALE_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_B_SCALE_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_C_SCALE_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_D_SCALE_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE
        | Matmul::CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE => 4,
        _ => return None,
    })
}

fn layout_bytes(attribute: Layout) -> Option<usize> {
    Some(match attribute {
        Layout::CUBLASLT_MATRIX_LAYOUT_ROWS
        | Layout::CUBLASLT_MATRIX_LAYOUT_COLS
        | Layout::CUBLASLT_MATRIX_LAYOUT_LD
        | Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
        | Layout::CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET => 8,
        Layout::CUBLASLT_MATRIX_LAYOUT_TYPE
        | Layout::CUBLASLT_MATRIX_LAYOUT_ORDER
        | Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
        | Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_MODE => 4,
        _ => return None,
    })
}

fn preference_bytes(attribute: Preference) -> Option<usize> {
    Some(match attribute {
        Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES | Preference::CUBLASLT_MATMUL_PREF_IMPL_MASK => 8,
        Preference::CUBLASLT_MATMUL_PREF_SEARCH_MODE
        | Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
        | Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
        | Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
        | Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
        | Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
        | Preference::CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT => 4,
        _ => return None,
    })
}

impl State {
    /// The descriptor of a kind that a call names.
    pub(super) fn descriptor(&mut self, key: u64, kind: Kind) -> Answer<Descriptor> {
        if let Some(found) = self.blas.descriptors.get(&key).filter(|found| found.kind == kind) {
            return Ok(found.clone());
        }
        if key != 0 {
            self.report(ReportKind::LibraryHandle, format!("{key:#x} is no {kind:?} descriptor, or was destroyed"));
        }
        Err(INVALID_VALUE)
    }

    fn add_descriptor<T>(&mut self, made: Ptr<*mut T>, kind: Kind, values: BTreeMap<u32, u64>) -> Answer {
        if made.is_null() {
            return Err(INVALID_VALUE);
        }
        let key = self.new_handle();
        self.blas.descriptors.insert(key, Descriptor { kind, values });
        made.write(handle(key)).map_err(|_| ALLOC_FAILED)
    }

    fn set(&mut self, key: u64, (kind, attribute): (Kind, u32), value: Ptr<c_void>, size: usize) -> Answer {
        self.descriptor(key, kind)?;
        let wanted = bytes(kind, attribute).ok_or(INVALID_VALUE)?;
        if size < wanted || value.is_null() {
            return Err(INVALID_VALUE);
        }
        let read = value.cast::<u8>().read_array(wanted).map_err(|_| INVALID_VALUE)?;
        let value = read.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let found = self.blas.descriptors.get_mut(&key).ok_or(INVALID_VALUE)?;
        found.values.insert(attribute, value);
        Ok(())
    }

    fn get(
        &mut self,
        key: u64,
        (kind, attribute): (Kind, u32),
        (value, size): (Ptr<c_void>, usize),
        written: Ptr<usize>,
    ) -> Answer {
        let found = self.descriptor(key, kind)?.get(attribute);
        let wanted = bytes(kind, attribute).ok_or(INVALID_VALUE)?;
        written.write_if_wanted(wanted);
        // With no room at all, only the size is asked for.
        if size == 0 && !written.is_null() {
            return Ok(());
        }
        if size < wanted || value.is_null() {
            return Err(INVALID_VALUE);
        }
        let bytes = value.cast::<u8>();
        let mut parts = found.to_le_bytes().into_iter().take(wanted).enumerate();
        parts.try_for_each(|(index, byte)| bytes.write_at(index, byte)).map_err(|_| INVALID_VALUE)
    }
}

pub(super) fn create_matmul(
    call: &mut Call<'_>,
    made: Ptr<cublasLtMatmulDesc_t>,
    compute: cublasComputeType_t,
    scale: cudaDataType_t,
) -> Answer {
    let none = u64::from(u32::MAX);
    let values = BTreeMap::from([
        (Matmul::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE.0, u64::from(compute.0)),
        (Matmul::CUBLASLT_MATMUL_DESC_SCALE_TYPE.0, u64::from(scale.0)),
        (Matmul::CUBLASLT_MATMUL_DESC_FILL_MODE.0, 2),
        (Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE.0, 1),
        (Matmul::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE.0, none),
        (Matmul::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE.0, none),
    ]);
    call.add_descriptor(made, Kind::Matmul, values)
}

pub(super) fn create_layout(
    call: &mut Call<'_>,
    made: Ptr<cublasLtMatrixLayout_t>,
    ty: cudaDataType_t,
    rows: u64,
    columns: u64,
    leading: i64,
) -> Answer {
    if bytes_of(ty).is_none() {
        return Err(call.not_simulated("a layout of this type"));
    }
    let values = BTreeMap::from([
        (Layout::CUBLASLT_MATRIX_LAYOUT_TYPE.0, u64::from(ty.0)),
        (Layout::CUBLASLT_MATRIX_LAYOUT_ROWS.0, rows),
        (Layout::CUBLASLT_MATRIX_LAYOUT_COLS.0, columns),
        (Layout::CUBLASLT_MATRIX_LAYOUT_LD.0, leading.cast_unsigned()),
        (Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT.0, 1),
    ]);
    call.add_descriptor(made, Kind::Layout, values)
}

pub(super) fn create_preference(call: &mut Call<'_>, made: Ptr<cublasLtMatmulPreference_t>) -> Answer {
    let aligned = [
        Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ];
    let mut values: BTreeMap<u32, u64> = aligned.iter().map(|attribute| (attribute.0, 256)).collect();
    values.insert(Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK.0, 7);
    values.insert(Preference::CUBLASLT_MATMUL_PREF_IMPL_MASK.0, u64::MAX);
    call.add_descriptor(made, Kind::Preference, values)
}

pub(super) fn destroy<T>(call: &mut Call<'_>, descriptor: Ptr<T>) -> Answer {
    let key = descriptor.address();
    if call.blas.descriptors.remove(&key).is_none() && key != 0 {
        call.report(ReportKind::LibraryHandle, format!("{key:#x} is no descriptor, or was destroyed"));
        return Err(INVALID_VALUE);
    }
    Ok(())
}

pub(super) fn set_matmul<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Matmul,
    value: Ptr<c_void>,
    size: usize,
) -> Answer {
    call.set(key.address(), (Kind::Matmul, attribute.0), value, size)
}

pub(super) fn set_layout<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Layout,
    value: Ptr<c_void>,
    size: usize,
) -> Answer {
    call.set(key.address(), (Kind::Layout, attribute.0), value, size)
}

pub(super) fn set_preference<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Preference,
    value: Ptr<c_void>,
    size: usize,
) -> Answer {
    call.set(key.address(), (Kind::Preference, attribute.0), value, size)
}

pub(super) fn get_matmul<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Matmul,
    value: Ptr<c_void>,
    size: usize,
    written: Ptr<usize>,
) -> Answer {
    call.get(key.address(), (Kind::Matmul, attribute.0), (value, size), written)
}

pub(super) fn get_layout<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Layout,
    value: Ptr<c_void>,
    size: usize,
    written: Ptr<usize>,
) -> Answer {
    call.get(key.address(), (Kind::Layout, attribute.0), (value, size), written)
}

pub(super) fn get_preference<T>(
    call: &mut Call<'_>,
    key: Ptr<T>,
    attribute: Preference,
    value: Ptr<c_void>,
    size: usize,
    written: Ptr<usize>,
) -> Answer {
    call.get(key.address(), (Kind::Preference, attribute.0), (value, size), written)
}
