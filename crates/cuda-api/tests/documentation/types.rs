//! Tensor and storage types (`torch.cuda.FloatTensor` and others).

use cuda_api::torch::{self, bf16, f16};
use cuda_api::{
    BFloat16Storage, BFloat16Tensor, BoolStorage, BoolTensor, ByteStorage, ByteTensor, CharStorage, CharTensor,
    ComplexDoubleStorage, ComplexFloatStorage, DoubleStorage, DoubleTensor, FloatStorage, FloatTensor, HalfStorage,
    HalfTensor, IntStorage, IntTensor, LongStorage, LongTensor, ShortStorage, ShortTensor,
};

use super::{Example, run};

#[test]
fn types() {
    run(TYPES);
}

const TYPES: &[Example] = &[
    ("torch.cuda.FloatTensor torch.cuda.DoubleTensor torch.cuda.HalfTensor torch.cuda.BFloat16Tensor", || {
        assert_eq!(FloatTensor::from_slice(&[1.0, 2.0], &[2])?.to_vec::<f32>()?, [1.0, 2.0]);
        assert_eq!(DoubleTensor::new(&[2, 3])?.sizes(), [2, 3]);
        assert_eq!(HalfTensor::from_slice(&[f16::from_f32(1.5)], &[1])?.dtype(), torch::float16);
        assert_eq!(BFloat16Tensor::from_slice(&[bf16::from_f32(1.5)], &[1])?.dtype(), torch::bfloat16);
        Ok(())
    }),
    (
        "torch.cuda.ByteTensor torch.cuda.CharTensor torch.cuda.ShortTensor torch.cuda.IntTensor \
         torch.cuda.LongTensor torch.cuda.BoolTensor",
        || {
            assert_eq!(ByteTensor::from_slice(&[1, 255], &[2])?.dtype(), torch::uint8);
            assert_eq!(CharTensor::from_slice(&[-1], &[1])?.dtype(), torch::int8);
            assert_eq!(ShortTensor::from_slice(&[-1], &[1])?.dtype(), torch::int16);
            assert_eq!(IntTensor::from_slice(&[-1], &[1])?.dtype(), torch::int32);
            assert_eq!(LongTensor::from_slice(&[-1, 7], &[1, 2])?.to_vec::<i64>()?, [-1, 7]);
            assert!(BoolTensor::is_instance(&BoolTensor::from_slice(&[true], &[1])?));
            Ok(())
        },
    ),
    (
        "torch.cuda.FloatStorage torch.cuda.DoubleStorage torch.cuda.HalfStorage torch.cuda.BFloat16Storage \
         torch.cuda.ComplexFloatStorage torch.cuda.ComplexDoubleStorage",
        || {
            let storage = FloatStorage::from_slice(&[1.0, 2.0])?;
            assert_eq!((storage.len(), storage.nbytes()), (2, 8));
            assert_eq!(FloatTensor::from_storage(&storage)?.to_vec::<f32>()?, [1.0, 2.0]);
            let _device = cuda_api::device_of(&storage)?;
            assert_eq!((DoubleStorage::new(3)?.nbytes(), HalfStorage::new(3)?.nbytes()), (24, 6));
            assert_eq!((BFloat16Storage::new(3)?.nbytes(), ComplexFloatStorage::new(3)?.nbytes()), (6, 24));
            assert_eq!(ComplexDoubleStorage::new(3)?.nbytes(), 48);
            Ok(())
        },
    ),
    (
        "torch.cuda.ByteStorage torch.cuda.CharStorage torch.cuda.ShortStorage torch.cuda.IntStorage \
         torch.cuda.LongStorage torch.cuda.BoolStorage",
        || {
            assert_eq!((ByteStorage::new(3)?.nbytes(), CharStorage::new(3)?.nbytes()), (3, 3));
            assert_eq!((ShortStorage::new(3)?.nbytes(), IntStorage::new(3)?.nbytes()), (6, 12));
            assert_eq!((LongStorage::new(3)?.nbytes(), BoolStorage::new(3)?.nbytes()), (24, 3));
            Ok(())
        },
    ),
];
