//! Calls that torch refuses are refused, with the first line of torch's text.

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
