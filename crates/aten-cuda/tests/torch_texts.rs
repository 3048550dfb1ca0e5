//! Calls that torch refuses are refused, with the first line of torch's text.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use aten_cuda::{Complex64, DType, Result, Tensor};

fn text<T>(outcome: Result<T>) -> String {
    outcome
        .err()
        .map_or_else(|| "accepted".to_owned(), |error| error.to_string().lines().next().unwrap_or("").to_owned())
}

fn zeros(sizes: &[i64], dtype: DType) -> Tensor {
    Tensor::zeros(sizes, dtype, "cpu").unwrap()
}

fn floats(sizes: &[i64]) -> Tensor {
    zeros(sizes, DType::F32)
}

/// A vector of indices.
fn list(indices: &[i64]) -> Tensor {
    Tensor::from_slice(indices, &[i64::try_from(indices.len()).unwrap()]).unwrap()
}

#[test]
fn integer_division_and_negative_powers_are_refused() -> Result<()> {
    let (ints, float) = (zeros(&[2], DType::I32), floats(&[2]));
    let refused = "Integer division with addcdiv is no longer supported";
    assert!(text(ints.addcdiv(&ints, &ints, 1)).starts_with(refused));
    assert!(text(float.addcdiv(&ints, &ints, 1)).starts_with(refused), "the divisor decides, not the first operand");
    assert_eq!(ints.addcdiv(&float, &ints, 1)?.dtype(), DType::F32);
    let power = "Integers to negative integer powers are not allowed.";
    assert_eq!(text(Tensor::from_slice(&[1_i32], &[1])?.pow(-1)), power);
    assert_eq!(text(zeros(&[2], DType::Bool).pow(-1)), power);
    Ok(())
}

#[test]
fn outputs_have_the_dtype_of_the_input_where_torch_converts_none() -> Result<()> {
    let (input, double) = (floats(&[2]), zeros(&[2], DType::F64));
    let refused = "Found dtype Double but expected Float";
    type Out = fn(&Tensor, &Tensor) -> Result<()>;
    let strict: [(&str, Out); 14] = [
        ("abs", |a, out| a.abs_out(out)),
        ("neg", |a, out| a.neg_out(out)),
        ("sign", |a, out| a.sign_out(out)),
        ("round", |a, out| a.round_out(out)),
        ("floor", |a, out| a.floor_out(out)),
        ("ceil", |a, out| a.ceil_out(out)),
        ("trunc", |a, out| a.trunc_out(out)),
        ("frac", |a, out| a.frac_out(out)),
        ("conj_physical", |a, out| a.conj_physical_out(out)),
        ("gelu", |a, out| a.gelu_out(out)),
        ("silu", |a, out| a.silu_out(out)),
        ("mish", |a, out| a.mish_out(out)),
        ("softplus", |a, out| a.softplus_out(1, 20, out)),
        ("leaky_relu", |a, out| a.leaky_relu_out(0.1, out)),
    ];
    for (name, function) in strict {
        assert_eq!(text(function(&input, &double)), refused, "{name}");
        assert_eq!(text(function(&input, &floats(&[2]))), "accepted", "{name}");
    }
    let long = zeros(&[2], DType::I64);
    assert_eq!(text(zeros(&[2], DType::I32).bitwise_not_out(&long)), "Found dtype Long but expected Int");
    assert_eq!(text(input.signbit_out(&double)), "signbit does not support non-boolean outputs.");
    let converted: [Out; 3] = [Tensor::exp_out, Tensor::sqrt_out, Tensor::sigmoid_out];
    for function in converted {
        assert_eq!(text(function(&input, &double)), "accepted");
    }
    let complex = Tensor::from_slice(&[Complex64::new(3.0, 4.0)], &[1])?;
    assert_eq!(text(complex.abs_()), "In-place abs is not supported for complex tensors.");
    assert_eq!(text(complex.abs_out(&zeros(&[1], DType::C128))), "accepted");
    Ok(())
}

#[test]
fn norms_without_an_identity_are_refused_over_nothing() -> Result<()> {
    let refused = |p: &str, place: &str, and: &str| {
        format!(
            "linalg.vector_norm cannot compute the {p} norm on {place} {and}the operation does not have an identity"
        )
    };
    let empty = |at: i64| format!("the dimension {at}because this dimension is empty");
    assert_eq!(text(floats(&[0]).norm(-1, 0_i64, false, None)), refused("-1", &empty(0), "and "));
    assert_eq!(text(floats(&[2, 0]).norm(f64::NEG_INFINITY, 1_i64, false, None)), refused("-inf", &empty(1), "and "));
    assert_eq!(text(floats(&[0]).norm(-1, (), false, None)), refused("-1", "an empty tensor", "because "));
    assert_eq!(text(floats(&[2, 0]).norm(-1, 0_i64, false, None)), "accepted");
    assert_eq!(
        text(floats(&[2]).norm(2, 0_i64, false, DType::U8)),
        "linalg.vector_norm: dtype should be floating point or complex, but got Byte"
    );
    Ok(())
}

#[test]
fn copies_have_the_texts_of_broadcasting() -> Result<()> {
    let mismatch = |a: i64, b: i64, dim: i64| {
        format!("The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}")
    };
    assert_eq!(text(floats(&[3, 3]).copy_(&floats(&[2]))), mismatch(3, 2, 1));
    assert_eq!(text(floats(&[2]).copy_(&floats(&[3]))), mismatch(2, 3, 0));
    let output = "output with shape [3] doesn't match the broadcast shape [2, 3]";
    assert_eq!(text(floats(&[3]).copy_(&floats(&[2, 3]))), output);
    let whole = floats(&[6]);
    let overlap = "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single \
                   memory location. Please clone() the tensor before performing the operation.";
    assert_eq!(text(whole.narrow(0, 0, 4)?.copy_(&whole.narrow(0, 1, 4)?)), overlap);
    assert_eq!(text(whole.copy_(&whole)), "accepted");
    Ok(())
}

#[test]
fn indexed_operations_have_the_texts_of_torch() -> Result<()> {
    let (three, two) = (floats(&[3]), floats(&[3, 2]));
    let bounds = "index 7 is out of bounds for dimension 0 with size 3";
    assert_eq!(text(three.gather(0, &list(&[7]))), bounds);
    assert_eq!(text(three.scatter(0, &list(&[7]), 1)), bounds);
    assert_eq!(text(three.index(&[Some(&list(&[7]))])), bounds);
    assert_eq!(text(three.index_select(0, &list(&[7]))), "index out of range in self");
    assert_eq!(text(three.index_add(0, &list(&[7]), &floats(&[1]), 1)), "index out of range in self");
    assert_eq!(text(three.index_copy(0, &list(&[7]), &floats(&[1]))), format!("index_copy_(): {bounds}"));
    let scattered = "scatter(): Expected self.dtype to be equal to src.dtype";
    assert_eq!(text(two.scatter_add(0, &list(&[0]).view(&[1, 1])?, &zeros(&[1, 1], DType::I32))), scattered);
    let one = list(&[0]).view(&[1, 1])?;
    let dims = |of: &str| format!("Index tensor must have the same number of dimensions as {of} tensor");
    assert_eq!(text(two.scatter(0, &one, &floats(&[1, 1, 1]))), dims("src"));
    assert_eq!(text(two.scatter(0, &list(&[0]), &floats(&[1, 1]))), dims("self"));
    let wide = list(&[0, 1, 1]).view(&[1, 3])?;
    let large = "Expected index [1, 3] to be no larger than self [3, 2] apart from dimension 0";
    assert_eq!(text(two.scatter(0, &wide, 1)), large);
    let both = format!("{large} and to be no larger size than src [1, 1]");
    assert_eq!(text(two.scatter_add(0, &wide, &floats(&[1, 1]))), both);
    let shared = floats(&[6]);
    let outcome = shared.narrow(0, 0, 4)?.scatter_add_(0, &list(&[0, 1]), &shared.narrow(0, 1, 2)?).map(drop);
    assert!(text(outcome).starts_with("unsupported operation: some elements of the input tensor"));
    let add = |index: &Tensor, source: &Tensor| text(two.index_add(0, index, source, 1));
    assert_eq!(
        add(&list(&[0, 1]).view(&[1, 2])?, &floats(&[2, 3])),
        "index_add_(): Index is supposed to be a vector, but got dim: 2 with type: Long and size: [1, 2]"
    );
    assert_eq!(
        add(&floats(&[1]), &zeros(&[1, 2], DType::I32)),
        "index_add_(): Expected dtype int32/int64 for index but got: Float"
    );
    assert_eq!(
        add(&list(&[0]), &zeros(&[1, 3], DType::I32)),
        "index_add_(): self (Float) and source (Int) must have the same scalar type"
    );
    assert_eq!(
        add(&list(&[0, 1]), &floats(&[3, 3])),
        "index_add_(): Number of indices (2) should be equal to source.size(dim): (3), for dim: 0"
    );
    assert_eq!(
        add(&list(&[0, 1]), &floats(&[2, 3])),
        "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = [3, 2] \
         source.shape = [2, 3]"
    );
    let copy = |index: &Tensor, source: &Tensor| text(two.index_copy(0, index, source));
    assert_eq!(
        copy(&list(&[0, 1]).view(&[1, 2])?, &floats(&[2, 2])),
        "index_copy_(): Index should have dimension 1 or 0 (got 2)"
    );
    assert_eq!(
        copy(&list(&[0, 1]), &floats(&[3, 2])),
        "index_copy_(): Number of indices (2) should be equal to source.size(dim) (3)"
    );
    assert_eq!(
        copy(&list(&[0, 1]), &floats(&[2, 3])),
        "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: 2 at dimension 0 and \
         source slice shape: 3 at dimension 0."
    );
    Ok(())
}

#[test]
fn a_tensor_without_dimensions_cannot_be_rolled() {
    let refused = "Dimension specified as 1 but tensor has no dimensions";
    assert_eq!(text(floats(&[]).roll(&[1], &[1])), refused);
    assert_eq!(text(floats(&[]).roll(&[1], &[])), "accepted");
}

#[test]
fn overlaps_come_before_sizes_and_sizes_before_dtypes() -> Result<()> {
    let overlap = "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                   location. Please clone() the tensor before performing the operation.";
    let bytes = zeros(&[1], DType::U8).expand(&[3])?;
    assert_eq!(text(bytes.tanh_().map(drop)), overlap);
    assert_eq!(text(floats(&[1]).expand(&[3])?.add_(&floats(&[2])).map(drop)), overlap);
    assert_eq!(text(floats(&[1]).expand(&[3])?.copy_(&floats(&[2])).map(drop)), overlap);
    let whole = zeros(&[3], DType::I64);
    assert_eq!(
        text(whole.pow_(&zeros(&[0, 3], DType::BF16)).map(drop)),
        "output with shape [3] doesn't match the broadcast shape [0, 3]"
    );
    assert_eq!(
        text(zeros(&[2], DType::I8).bitwise_or_(0.5).map(drop)),
        "result type Float can't be cast to the desired output type Char"
    );
    assert_eq!(text(zeros(&[2], DType::I32).gelu_out(&zeros(&[2], DType::U8))), "Found dtype Byte but expected Int");
    // What an operation itself refuses comes before all that.
    let condition = "where expected condition to be a boolean tensor, but got a tensor with dtype Float";
    assert_eq!(text(floats(&[0]).where_cond(&floats(&[2]), &floats(&[3]))), condition);
    let divided = text(zeros(&[5], DType::U8).addcdiv(&zeros(&[], DType::U8), &zeros(&[1, 2], DType::I64), 2));
    assert!(divided.starts_with("Integer division with addcdiv is no longer supported"), "{divided}");
    assert_eq!(text(zeros(&[2, 3], DType::C64).fmax(&floats(&[1, 5]))), "fmax not implemented for complex tensors.");
    Ok(())
}

#[test]
fn complex_numbers_have_no_order_and_no_whole_parts() {
    let complex = zeros(&[2], DType::C64);
    assert_eq!(text(complex.floor()), "floor is not supported for complex inputs");
    assert_eq!(text(complex.ceil()), "ceil is not supported for complex inputs");
    assert_eq!(text(complex.trunc()), "trunc is not supported for complex inputs");
    assert_eq!(text(complex.relu()), "clamp is not supported for complex types");
    assert_eq!(text(complex.argmax(None, false)), "argmax(): does not support complex input");
    assert_eq!(text(complex.argmin(0, false)), "argmin(): does not support complex input");
    assert_eq!(text(complex.max_dim(0, false)), "max(): does not support complex input");
    assert_eq!(text(complex.sort(0, false)), " Sort does not support complex dtypes on CPU");
    assert_eq!(text(complex.topk(1, 0, true)), " topk does not support complex dtypes on CPU");
    assert_eq!(text(zeros(&[2], DType::Bool).topk(1, 0, true)), "topk does not support bool dtypes on CPU");
    // The texts name the CPU on every device.
    let _simulated = testkit::simulated_runtime();
    let on_device = complex.cuda(None).unwrap();
    assert_eq!(text(on_device.sort(0, false)), " Sort does not support complex dtypes on CPU");
    assert_eq!(text(on_device.topk(1, 0, true)), " topk does not support complex dtypes on CPU");
    let bound = || Some(aten_cuda::Scalar::Complex(Complex64::new(1.0, 2.0)).into());
    assert_eq!(text(floats(&[2]).clamp(bound(), None)), "value cannot be converted to type float without overflow");
    assert_eq!(text(floats(&[2]).clamp(bound(), bound())), "value cannot be converted to type double without overflow");
}

#[test]
fn reductions_have_the_texts_of_torch() -> Result<()> {
    let (ints, float) = (zeros(&[3], DType::I32), floats(&[2, 3]));
    assert_eq!(
        text(float.amax_out(1, false, &zeros(&[2], DType::F64))),
        "Expected the dtype for input and out to match, but got Float for input's dtype and Double for out's dtype."
    );
    assert_eq!(text(floats(&[2, 0]).amax(-1, false)), "amax(): Expected reduction dim -1 to have non-zero size.");
    assert_eq!(zeros(&[2, 0], DType::C64).amax(0, false)?.sizes(), [0]);
    assert_eq!(text(float.any_out(1, false, &float)), "any only supports bool tensor for result, got: Float");
    assert_eq!(text(float.all_out(1, false, &zeros(&[2], DType::U8))), "accepted");
    let moments = "std and var only support floating point and complex dtypes";
    assert_eq!(text(ints.var(5, 1, false)), moments);
    let inferred = |which: &str, dtype: &str| {
        format!(
            "mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. Got: {dtype}"
        )
    };
    assert_eq!(text(ints.mean(5, false, None)), inferred("Input", "Int"));
    assert_eq!(text(ints.mean_out(0, false, &floats(&[]))), inferred("Input", "Int"));
    assert_eq!(text(float.mean(5, false, DType::I8)), inferred("Optional", "Char"));
    assert_eq!(
        text(float.mean_out(1, false, &zeros(&[2], DType::I64))),
        "result type Float can't be cast to the desired output type Long"
    );
    let norm = |dtype: DType| text(zeros(&[3], DType::C128).norm(2, 0, false, dtype));
    assert_eq!(norm(DType::BF16), "linalg.vector_norm: dtype should be complex for complex inputs, but got BFloat16");
    assert_eq!(
        norm(DType::C64),
        "linalg.vector_norm: the dtype of the input (ComplexDouble) should be convertible without narrowing to the \
         specified dtype (ComplexFloat)"
    );
    assert_eq!(text(ints.cumsum(0, DType::Bool)), "\"cumsum_cuda\" not implemented for 'Bool'");
    assert_eq!(text(floats(&[3]).nansum(0, false, DType::I8)), "\"nansum_cuda\" not implemented for 'Char'");
    assert_eq!(text(floats(&[]).cummax(5)), "cummax(): Expected reduction dim -1 or 0 for scalar but got 5");
    Ok(())
}

#[test]
fn views_and_joined_tensors_have_the_texts_of_torch() {
    let missing = |name: &str| {
        format!(
            "expand({name}{{[2, 2]}}, size=[2]): the number of sizes provided (1) must be greater or equal to the number of \
             dimensions in the tensor (2)"
        )
    };
    assert_eq!(text(zeros(&[2, 2], DType::U8).expand(&[2])), missing("torch.ByteTensor"));
    assert_eq!(text(zeros(&[2, 2], DType::BF16).expand(&[2])), missing("CPUBFloat16Type"));
    assert_eq!(
        text(floats(&[0, 2]).expand(&[2, 0])),
        "The expanded size of the tensor (0) must match the existing size (2) at non-singleton dimension 1.  Target sizes: \
         [2, 0].  Tensor sizes: [0, 2]"
    );
    assert_eq!(text(floats(&[]).expand(&[-1])), "numel: integer multiplication overflow");
    assert_eq!(text(floats(&[2]).narrow(5, 0, -1)), "narrow(): length must be non-negative.");
    let outside = "Dimension out of range (expected to be in range of [-2, 1], but got 5)";
    assert_eq!(text(Tensor::stack(&[&floats(&[2]), &floats(&[3])], 5)), outside);
    let mask = zeros(&[2], DType::Bool);
    let sizes = |a: i64, b: i64| {
        format!("The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension 1")
    };
    assert_eq!(text(floats(&[3, 4]).masked_fill(&mask, 1)), sizes(2, 4));
    assert_eq!(text(floats(&[3, 4]).masked_fill_(&mask, 1).map(drop)), sizes(4, 2));
    assert_eq!(text(floats(&[3, 4]).masked_select(&mask)), sizes(2, 4));
    assert_eq!(
        text(floats(&[]).take_along_dim(&list(&[0]).reshape(&[]).unwrap(), Some(-1))),
        "Dimension specified as 0 but tensor has no dimensions"
    );
    assert_eq!(
        text(floats(&[3]).take_along_dim(&zeros(&[3], DType::I32), Some(0))),
        "torch.take_along_dim(): dtype of indices should be Long but got Int"
    );
}

#[test]
fn products_have_the_texts_of_torch() -> Result<()> {
    let (chars, halves) = (zeros(&[3, 2], DType::I8), zeros(&[2, 2], DType::F16));
    let shorts = zeros(&[2, 2], DType::I16);
    assert_eq!(text(chars.mm(&shorts)), "expected m1 and m2 to have the same dtype, but got: signed char != short int");
    let added = |own: &Tensor, first: &Tensor| text(own.addmm(first, &halves, 1, 1));
    let same = |name: &str| format!("{name} and mat2 must have the same dtype, but got Char and Half");
    assert_eq!(added(&chars, &zeros(&[3, 2], DType::F16)), same("self"));
    assert_eq!(added(&zeros(&[5, 5], DType::F16), &chars), same("mat1"));
    // Products of nothing look at no dtype, and have that of the second factor.
    let made = zeros(&[2, 3, 0], DType::I8).bmm(&zeros(&[2, 0, 2], DType::F16))?;
    assert_eq!((made.dtype(), made.sizes()), (DType::F16, [2, 3, 2].as_slice()));
    assert_eq!(zeros(&[0, 2], DType::U8).mv(&zeros(&[2], DType::F16))?.dtype(), DType::F16);
    assert_eq!(text(zeros(&[3, 0], DType::Bool).mm(&zeros(&[0, 2], DType::Bool))), "accepted");
    assert_eq!(
        text(floats(&[1, 2, 3]).matmul(&floats(&[0, 2]))),
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 0x2)"
    );
    assert_eq!(text(floats(&[2, 2, 3]).matmul(&floats(&[4]))), "size mismatch, got input (4), mat (4x3), vec (4)");
    Ok(())
}

#[test]
fn indices_of_several_dimensions_have_the_texts_of_torch() {
    let (two, none) = (floats(&[3, 2]), floats(&[3, 0]));
    let select = |tensor: &Tensor, dim: i64, index: &Tensor| text(tensor.index_select(dim, index));
    assert_eq!(select(&two, 0, &list(&[7])), "index out of range in self");
    assert_eq!(select(&two, 1, &list(&[7])), "INDICES element is out of DATA bounds, id=7 axis_dim=2");
    assert_eq!(select(&none, 1, &list(&[0])), "index_select(): self indexing axis dim should be positive");
    assert_eq!(select(&two, 0, &floats(&[2, 2])), "index_select(): Index is supposed to be a vector");
    assert_eq!(select(&two, 0, &floats(&[2])), "index_select(): Expected dtype int32 or int64 for index");
    assert_eq!(
        select(&floats(&[]), 0, &list(&[0, 0])),
        "index_select(): Index to scalar can have only 1 value, got 2 value(s)"
    );
    let add = |own: &Tensor, dim: i64, index: &Tensor, source: &Tensor| text(own.index_add(dim, index, source, 1));
    let bounds = "index 3 is out of bounds for dimension 0 with size 3";
    assert_eq!(add(&two, 0, &list(&[3]), &floats(&[1, 2])), bounds);
    assert_eq!(add(&floats(&[2, 3, 2]), 1, &list(&[3]), &floats(&[2, 1, 2])), "index out of range in self");
    assert_eq!(
        add(&two, 1, &list(&[0]), &floats(&[3])),
        "index_add_(): Indexing dim 1 is out of bounds of the source tensor with dim 1"
    );
    let scalar = "Dimension specified as 0 but tensor has no dimensions";
    assert_eq!(add(&floats(&[]), 0, &list(&[]), &floats(&[])), scalar);
    assert_eq!(add(&floats(&[0, 2]), 0, &list(&[0]), &floats(&[1, 2])), "accepted");
    assert_eq!(
        text(floats(&[3]).index_copy(0, &list(&[]), &floats(&[]))),
        "index_copy_(): When source is scalar, index should have one element (got 0)"
    );
    assert_eq!(
        text(zeros(&[0], DType::I8).index_copy(0, &list(&[0, 0]), &zeros(&[2], DType::I8))),
        "setStorage: sizes [2], strides [0], storage offset 0, and itemsize 1 requiring a storage size of 1 are out of bounds \
         for storage of size 0"
    );
    assert_eq!(text(floats(&[0]).gather(0, &list(&[0]))), "index 0 is out of bounds for dimension 0 with size 0");
    assert_eq!(text(two.gather(0, &floats(&[0]))), "accepted", "torch looks at no dtype of no indices");
    let one = list(&[0]).view(&[1, 1]).unwrap();
    let outside = "Dimension out of range (expected to be in range of [-1, 0], but got 1)";
    assert_eq!(text(two.scatter_add(1, &one, &floats(&[2]))), outside);
}
