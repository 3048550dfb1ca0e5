//! Torch's types of tensors and storages, and what else names them.

use cuda_api::torch::{self, DType, Result, Tensor};
use cuda_api::{
    BFloat16Storage, BFloat16Tensor, BoolStorage, BoolTensor, ByteStorage, ByteTensor, CharStorage, CharTensor,
    ComplexDoubleStorage, ComplexFloatStorage, DoubleStorage, DoubleTensor, FloatStorage, FloatTensor, HalfStorage,
    HalfTensor, IntStorage, IntTensor, LongStorage, LongTensor, ShortStorage, ShortTensor, TypedElement, TypedStorage,
    TypedTensor,
};

/// Makes tensors of a type in every way and looks at them.
fn check_tensors<T: TypedElement + PartialEq>(elements: &[T], dtype: DType) -> Result<()> {
    let empty = TypedTensor::<T>::new(&[2, 0, 3])?;
    assert_eq!(
        (empty.dtype(), empty.sizes(), empty.device().to_string()),
        (dtype, &[2, 0, 3][..], "cuda:0".to_owned())
    );
    let filled = TypedTensor::from_slice(elements, &[2, 1])?;
    assert!(TypedTensor::<T>::is_instance(&filled) && !TypedTensor::<T>::is_instance(&filled.cpu()?));
    assert_eq!(TypedTensor::<T>::from_tensor(&filled)?.data_ptr(), filled.data_ptr());
    let storage = TypedStorage::from_slice(elements)?;
    let shared = TypedTensor::from_storage(&storage)?;
    assert_eq!((shared.sizes(), shared.to_bytes()?), (&[2][..], filled.to_bytes()?));
    shared.zero_()?;
    assert!(storage.to_vec()? != elements, "{dtype}");
    check_storages::<T>(dtype)
}

fn check_storages<T: TypedElement>(dtype: DType) -> Result<()> {
    let storage = TypedStorage::<T>::new(3)?;
    assert_eq!((TypedStorage::<T>::DTYPE, storage.len(), storage.nbytes()), (dtype, 3, 3 * dtype.itemsize()));
    assert_eq!(storage.device().to_string(), "cuda:0");
    assert!(TypedStorage::<T>::new(0)?.is_empty() && TypedStorage::<T>::from_slice(&[])?.is_empty());
    Ok(())
}

#[test]
fn every_type_makes_tensors() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    check_tensors(&[1.5_f32, -2.0], torch::float32)?;
    check_tensors(&[1.5_f64, -2.0], torch::float64)?;
    check_tensors(&[1_u8, 2], torch::uint8)?;
    check_tensors(&[1_i8, -2], torch::int8)?;
    check_tensors(&[1_i16, -2], torch::int16)?;
    check_tensors(&[1_i32, -2], torch::int32)?;
    check_tensors(&[1_i64, -2], torch::int64)?;
    check_tensors(&[true, false], torch::bool)?;
    check_tensors(&[torch::f16::from_f32(1.5), torch::f16::from_f32(-2.0)], torch::float16)?;
    check_tensors(&[torch::bf16::from_f32(1.5), torch::bf16::from_f32(-2.0)], torch::bfloat16)?;
    check_tensors(&[torch::Complex32::new(1.0, 2.0), torch::Complex32::new(0.0, 3.0)], torch::complex64)?;
    check_tensors(&[torch::Complex64::new(1.0, 2.0), torch::Complex64::new(0.0, 3.0)], torch::complex128)
}

#[test]
fn the_types_have_torchs_names() {
    let tensors = [
        ("BFloat16", BFloat16Tensor::DTYPE, BFloat16Storage::DTYPE, torch::bfloat16),
        ("Bool", BoolTensor::DTYPE, BoolStorage::DTYPE, torch::bool),
        ("Byte", ByteTensor::DTYPE, ByteStorage::DTYPE, torch::uint8),
        ("Char", CharTensor::DTYPE, CharStorage::DTYPE, torch::int8),
        ("Double", DoubleTensor::DTYPE, DoubleStorage::DTYPE, torch::float64),
        ("Float", FloatTensor::DTYPE, FloatStorage::DTYPE, torch::float32),
        ("Half", HalfTensor::DTYPE, HalfStorage::DTYPE, torch::float16),
        ("Int", IntTensor::DTYPE, IntStorage::DTYPE, torch::int32),
        ("Long", LongTensor::DTYPE, LongStorage::DTYPE, torch::int64),
        ("Short", ShortTensor::DTYPE, ShortStorage::DTYPE, torch::int16),
    ];
    for (name, tensor, storage, dtype) in tensors {
        assert_eq!((tensor, storage), (dtype, dtype), "{name}");
    }
    assert_eq!(ComplexFloatStorage::DTYPE, torch::complex64);
    assert_eq!(ComplexDoubleStorage::DTYPE, torch::complex128);
}

#[test]
fn what_is_of_another_type_is_refused() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let host = torch::ones(&[2], torch::float32, "cpu")?;
    let refused = |tensor: &Tensor| FloatTensor::from_tensor(tensor).map(drop).map_err(|error| error.to_string());
    assert_eq!(refused(&host), Err("expected torch.cuda.FloatTensor (got torch.FloatTensor)".to_owned()));
    let long = torch::ones(&[2], torch::int64, "cuda")?;
    assert_eq!(refused(&long), Err("expected torch.cuda.FloatTensor (got torch.cuda.LongTensor)".to_owned()));
    assert!(FloatTensor::new(&[-1]).is_err_and(|error| error.to_string().contains("negative dimension -1")));
    assert!(FloatTensor::from_slice(&[1.0], &[2]).is_err());
    assert!(
        DoubleStorage::new(usize::MAX)
            .is_err_and(|error| error.to_string().contains("Storage size calculation overflowed"))
    );
    Ok(())
}

#[test]
fn a_device_is_asked_whether_it_holds_bfloat16() {
    let _simulated = testkit::simulated_runtime();
    assert!(cuda_api::check_bf16_tensor_supported(None));
    assert!(cuda_api::check_bf16_tensor_supported("cuda:0"));
    assert!(!cuda_api::check_bf16_tensor_supported(7));
}

#[test]
fn generators_of_devices() -> Result<()> {
    let _simulated = testkit::simulated_runtime();
    let generator = cuda_api::get_generator(None)?;
    generator.manual_seed(11)?;
    assert_eq!(cuda_api::initial_seed()?, 11);
    assert_eq!(cuda_api::default_generators()?.len(), cuda_api::device_count());
    assert_eq!(cuda_api::default_generators()?[0].initial_seed()?, 11);
    let drawn = torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?;
    cuda_api::get_generator("cuda:0")?.manual_seed(11)?;
    assert_eq!(torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?, drawn);
    assert!(cuda_api::get_generator(7).is_err());
    Ok(())
}
