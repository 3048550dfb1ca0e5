//! Signatures: the texts that name a product in the files of results, and the product that they name.
//!
//! A product is seen as cuBLAS sees it: column-major, so that torch's second factor is the first one here. The texts are
//! torch's, letter by letter; `variant` alone is ours and is written only where torch does not read.
//!
//! **Invariants:** pure; what is written is read back as the same problem; reading never panics, whatever the text is.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::base::dtype::DType;
use crate::base::tune_error::TuneError;

/// The type of the elements of a factor or of the result, as torch's signatures name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    Float,
    /// Floats of 32 bits that tensor cores may round to 19.
    Tf32,
    Double,
    BFloat16,
    Half,
    ComplexFloat,
    ComplexDouble,
    Float8E4m3fn,
    Float8E5m2,
    Float8E4m3fnuz,
    Float8E5m2fnuz,
    /// Integers of 8 bits, whose products have 32. Torch does not tune them.
    Int8,
}

// An absent bias takes one more code, and each code has five bits in the hash of a problem.
const _: () =
    assert!(Element::ALL.len() < 31 && Kind::ALL.len() <= 32, "codes have five bits in the hash of a problem");

impl Element {
    const ALL: [Self; 12] = [
        Self::Float,
        Self::Tf32,
        Self::Double,
        Self::BFloat16,
        Self::Half,
        Self::ComplexFloat,
        Self::ComplexDouble,
        Self::Float8E4m3fn,
        Self::Float8E5m2,
        Self::Float8E4m3fnuz,
        Self::Float8E5m2fnuz,
        Self::Int8,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Tf32 => "tf32",
            Self::Double => "double",
            Self::BFloat16 => "BFloat16",
            Self::Half => "Half",
            Self::ComplexFloat => "c10::complex<float>",
            Self::ComplexDouble => "c10::complex<double>",
            Self::Float8E4m3fn => "Float8_e4m3fn",
            Self::Float8E5m2 => "Float8_e5m2",
            Self::Float8E4m3fnuz => "Float8_e4m3fnuz",
            Self::Float8E5m2fnuz => "Float8_e5m2fnuz",
            Self::Int8 => "int8",
        }
    }

    /// The name of a bias: there torch writes the name of the dtype, not of the C++ type.
    const fn bias_name(self) -> &'static str {
        match self {
            Self::Float | Self::Tf32 => "Float",
            Self::Double => "Double",
            Self::ComplexFloat => "ComplexFloat",
            Self::ComplexDouble => "ComplexDouble",
            other => other.name(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == text)
    }

    fn parse_bias(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.bias_name() == text || element.name() == text)
    }

    /// The dtype of the tensors, where there is one.
    pub(crate) const fn dtype(self) -> Option<DType> {
        Some(match self {
            Self::Float | Self::Tf32 => DType::F32,
            Self::Double => DType::F64,
            Self::BFloat16 => DType::BF16,
            Self::Half => DType::F16,
            Self::ComplexFloat => DType::C64,
            Self::ComplexDouble => DType::C128,
            Self::Float8E4m3fn => DType::F8E4M3FN,
            Self::Float8E5m2 => DType::F8E5M2,
            Self::Int8 => DType::I8,
            Self::Float8E4m3fnuz | Self::Float8E5m2fnuz => return None,
        })
    }

    /// The name of a dtype; with `tf32` floats of 32 bits may be rounded.
    pub(crate) const fn of(dtype: DType, tf32: bool) -> Option<Self> {
        Some(match dtype {
            DType::F32 if tf32 => Self::Tf32,
            DType::F32 => Self::Float,
            DType::F64 => Self::Double,
            DType::BF16 => Self::BFloat16,
            DType::F16 => Self::Half,
            DType::C64 => Self::ComplexFloat,
            DType::C128 => Self::ComplexDouble,
            DType::F8E4M3FN => Self::Float8E4m3fn,
            DType::F8E5M2 => Self::Float8E5m2,
            DType::I8 => Self::Int8,
            DType::U8 | DType::I16 | DType::I32 | DType::I64 | DType::C32 | DType::Bool => return None,
        })
    }
}

/// The kinds of products that are tuned: torch's, and one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Gemm,
    StridedBatched,
    AndBias,
    Scaled,
    /// Of integers of 8 bits.
    Integers,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Gemm, Self::StridedBatched, Self::AndBias, Self::Scaled, Self::Integers];

    const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "GemmTunableOp",
            Self::StridedBatched => "GemmStridedBatchedTunableOp",
            Self::AndBias => "GemmAndBiasTunableOp",
            Self::Scaled => "ScaledGemmTunableOp",
            Self::Integers => "IntegerGemmTunableOp",
        }
    }

    /// Whether torch tunes such products, so that its files may tell of them.
    pub(super) const fn is_torchs(self) -> bool {
        !matches!(self, Self::Integers)
    }

    /// Whether products of the kind may have such elements.
    fn has(self, element: Element) -> bool {
        (element == Element::Int8) == (self == Self::Integers)
    }

    /// Whether this is the name of a kind.
    pub(super) fn is_name(name: &str) -> bool {
        Self::ALL.into_iter().any(|kind| kind.name() == name)
    }
}

/// A product: all that torch's signatures tell, and `variant`.
///
/// ```text
/// C (m x n) = op(A) (m x k) * op(B) (k x n), all column-major
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kind: Kind,
    /// Of A, B and C: the same one, but for scaled products.
    pub(crate) elements: [Element; 3],
    /// Of A and B.
    pub(crate) transposed: [bool; 2],
    /// m, n and k.
    pub(crate) sizes: [u64; 3],
    /// 1 but for [`Kind::StridedBatched`].
    pub(crate) batches: u64,
    /// The leading dimensions of A, B and C, in elements.
    pub(crate) leading: [u64; 3],
    /// Of scaled products: a scale for each row.
    pub(crate) rowwise: bool,
    /// Of scaled products.
    pub(crate) bias: Option<Element>,
    /// What else decides about the candidates and torch's signature does not tell: alignment, the epilogue, what may be
    /// rounded. 0 for the usual case. Whoever makes the problem gives the bits their meaning.
    pub(crate) variant: u32,
}

/// By a few words, since every product that the tuner sees is hashed. Those of sizes below 2^32 differ where the sizes do.
impl Hash for Problem {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { elements: [a, b, c], sizes: [m, n, k], leading: [lda, ldb, ldc], .. } = *self;
        let [first, second] = self.transposed.map(u64::from);
        let bias = self.bias.map_or(0, |bias| 1 + bias as u64);
        let codes =
            [bias, a as u64, b as u64, c as u64, self.kind as u64].into_iter().fold(0, |all, code| all << 5 | code);
        let flags = codes << 3 | first << 2 | second << 1 | u64::from(self.rowwise);
        state.write_u64(flags << 32 | u64::from(self.variant));
        state.write_u64(m.rotate_left(32) ^ n);
        state.write_u64(k.rotate_left(32) ^ self.batches);
        state.write_u64(lda.rotate_left(32) ^ ldb);
        state.write_u64(ldc);
    }
}

/// What the parameters say, beside the operation.
struct Parameters {
    transposed: [bool; 2],
    sizes: [u64; 3],
    batches: u64,
    leading: [u64; 3],
    rowwise: bool,
    bias: Option<Element>,
    variant: u32,
}

impl Problem {
    /// A plain product with the usual values of everything else.
    #[cfg(test)]
    pub(crate) const fn gemm(element: Element, transposed: [bool; 2], sizes: [u64; 3], leading: [u64; 3]) -> Self {
        Self {
            kind: Kind::Gemm,
            elements: [element; 3],
            transposed,
            sizes,
            batches: 1,
            leading,
            rowwise: false,
            bias: None,
            variant: 0,
        }
    }

    /// The operation's signature, `GemmTunableOp_Half_NT`.
    pub(crate) fn op(&self) -> String {
        let [a, b, c] = self.elements.map(Element::name);
        let [first, second] = self.transposed.map(|is| if is { 'T' } else { 'N' });
        match self.kind {
            Kind::Scaled => format!("{}_{a}_{b}_{c}_{first}{second}", self.kind.name()),
            Kind::Gemm | Kind::StridedBatched | Kind::AndBias | Kind::Integers => {
                format!("{}_{a}_{first}{second}", self.kind.name())
            }
        }
    }

    /// The parameters' signature as torch writes it, `nt_64_48_32_ld_64_48_64`.
    pub(crate) fn params(&self) -> String {
        Params(self).to_string()
    }

    /// The parameters' signature with the variant, for our own files.
    pub(crate) fn own_params(&self) -> String {
        if self.variant == 0 { self.params() } else { format!("{}_v_{:x}", Params(self), self.variant) }
    }

    /// The problem that both signatures name.
    ///
    /// # Errors
    /// A text is none that [`Self::op`] and [`Self::own_params`] write.
    pub(crate) fn parse(op: &str, params: &str) -> Result<Self, TuneError> {
        let (kind, elements, transposed) = parse_op(op)?;
        let found = parse_params(kind, params).ok_or_else(|| refused(params, "its parameters cannot be read"))?;
        if found.transposed != transposed {
            return Err(refused(params, "it is transposed in another way than its operation"));
        }
        let Parameters { sizes, batches, leading, rowwise, bias, variant, .. } = found;
        Ok(Self { kind, elements, transposed, sizes, batches, leading, rowwise, bias, variant })
    }
}

/// The parameters, as they are written.
struct Params<'a>(&'a Problem);

impl fmt::Display for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { kind, transposed, sizes: [m, n, k], batches, leading: [lda, ldb, ldc], rowwise, bias, .. } =
            self.0;
        let [first, second] = transposed.map(|is| if is { 't' } else { 'n' });
        write!(f, "{first}{second}_{m}_{n}_{k}")?;
        if *kind == Kind::StridedBatched {
            write!(f, "_B_{batches}")?;
        }
        write!(f, "_ld_{lda}_{ldb}_{ldc}")?;
        if *kind == Kind::Scaled {
            write!(f, "_rw_{}_bias_{}", u8::from(*rowwise), bias.map_or("None", Element::bias_name))?;
        }
        Ok(())
    }
}

fn refused(text: &str, why: &'static str) -> TuneError {
    // A hostile text may be long; its beginning tells enough.
    TuneError::Signature { text: text.chars().take(200).collect(), why }
}

fn parse_op(op: &str) -> Result<(Kind, [Element; 3], [bool; 2]), TuneError> {
    let (name, rest) = op.split_once('_').ok_or_else(|| refused(op, "it names no operation"))?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = kind.ok_or_else(|| refused(op, "there is no such operation"))?;
    let (elements, layout) = rest.rsplit_once('_').ok_or_else(|| refused(op, "it has no layout"))?;
    let transposed = match layout {
        "NN" => [false, false],
        "NT" => [false, true],
        "TN" => [true, false],
        "TT" => [true, true],
        _ => return Err(refused(op, "its layout is none of NN, NT, TN and TT")),
    };
    let elements = match kind {
        Kind::Scaled => three_elements(elements),
        Kind::Gemm | Kind::StridedBatched | Kind::AndBias | Kind::Integers => {
            Element::parse(elements).map(|element| [element; 3])
        }
    };
    let elements = elements.filter(|elements| elements.iter().all(|&element| kind.has(element)));
    Ok((kind, elements.ok_or_else(|| refused(op, "its elements have no such type"))?, transposed))
}

/// Three names joined by `_`, which names themselves may contain: the first way to divide them that gives three.
fn three_elements(text: &str) -> Option<[Element; 3]> {
    let parts = |text: &str| -> Vec<(Element, String)> {
        let ends = text.match_indices('_').map(|(at, _)| at);
        ends.filter_map(|at| Some((Element::parse(&text[..at])?, text[at + 1..].to_owned()))).collect()
    };
    parts(text)
        .into_iter()
        .find_map(|(a, rest)| parts(&rest).into_iter().find_map(|(b, rest)| Element::parse(&rest).map(|c| [a, b, c])))
}

fn parse_params(kind: Kind, text: &str) -> Option<Parameters> {
    let mut words = text.split('_').peekable();
    let transposed = match words.next()? {
        "nn" => [false, false],
        "nt" => [false, true],
        "tn" => [true, false],
        "tt" => [true, true],
        _ => return None,
    };
    let three = |words: &mut dyn Iterator<Item = &str>| -> Option<[u64; 3]> {
        Some([number(words.next()?)?, number(words.next()?)?, number(words.next()?)?])
    };
    let sizes = three(&mut words)?;
    let batches = match kind {
        Kind::StridedBatched => {
            (words.next()? == "B").then_some(())?;
            number(words.next()?)?
        }
        Kind::Gemm | Kind::AndBias | Kind::Scaled | Kind::Integers => 1,
    };
    (words.next()? == "ld").then_some(())?;
    let leading = three(&mut words)?;
    let (mut rowwise, mut bias) = (false, None);
    if kind == Kind::Scaled {
        (words.next()? == "rw").then_some(())?;
        rowwise = match words.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        (words.next()? == "bias").then_some(())?;
        let mut name = words.next()?.to_owned();
        // The names of floats of 8 bits have a `_` themselves.
        if let Some(end) = words.next_if(|word| word.starts_with('e')) {
            name = format!("{name}_{end}");
        }
        let known = |name: &str| Element::parse_bias(name).filter(|element| *element != Element::Int8);
        bias = if name == "None" { None } else { Some(known(&name)?) };
    }
    let variant = match words.next() {
        None => 0,
        Some("v") => variant(words.next()?)?,
        Some(_) => return None,
    };
    words.next().is_none().then_some(Parameters { transposed, sizes, batches, leading, rowwise, bias, variant })
}

/// A number as it is written: digits without a sign and without a zero in front, at most that of torch's `int64_t`.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| is_plain && i64::try_from(*number).is_ok())
}

/// A variant as it is written: not 0, and without a zero in front.
fn variant(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) && !text.starts_with('0');
    u32::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(problem: &Problem, op: &str, params: &str) {
        assert_eq!((problem.op(), problem.own_params()), (op.to_owned(), params.to_owned()));
        assert_eq!(Problem::parse(op, params).as_ref(), Ok(problem));
    }

    #[test]
    fn each_kind() {
        let gemm = Problem::gemm(Element::Half, [false, true], [64, 48, 32], [64, 48, 64]);
        check(&gemm, "GemmTunableOp_Half_NT", "nt_64_48_32_ld_64_48_64");
        check(&Problem { variant: 0x1f, ..gemm }, "GemmTunableOp_Half_NT", "nt_64_48_32_ld_64_48_64_v_1f");
        let batched = Problem { kind: Kind::StridedBatched, batches: 5, elements: [Element::ComplexFloat; 3], ..gemm };
        check(&batched, "GemmStridedBatchedTunableOp_c10::complex<float>_NT", "nt_64_48_32_B_5_ld_64_48_64");
        let bias = Problem { kind: Kind::AndBias, elements: [Element::Tf32; 3], ..gemm };
        check(&bias, "GemmAndBiasTunableOp_tf32_NT", "nt_64_48_32_ld_64_48_64");
        let scaled = Problem {
            kind: Kind::Scaled,
            elements: [Element::Float8E4m3fn, Element::Float8E5m2, Element::BFloat16],
            transposed: [true, false],
            rowwise: true,
            ..gemm
        };
        let op = "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e5m2_BFloat16_TN";
        check(&scaled, op, "tn_64_48_32_ld_64_48_64_rw_1_bias_None");
        check(&Problem { bias: Some(Element::Half), ..scaled }, op, "tn_64_48_32_ld_64_48_64_rw_1_bias_Half");
        let integers = Problem { kind: Kind::Integers, elements: [Element::Int8; 3], ..gemm };
        check(&integers, "IntegerGemmTunableOp_int8_NT", "nt_64_48_32_ld_64_48_64");
    }

    #[test]
    fn what_is_no_signature() {
        let op = "GemmTunableOp_float_NN";
        for params in
            ["", "nn", "nn_1_2", "nn_1_2_3_ld_1_2", "nn_1_2_3_ld_1_2_3_", "nn_-1_2_3_ld_1_2_3", "nn_01_2_3_ld_1_2_3"]
        {
            assert!(Problem::parse(op, params).is_err(), "{params}");
        }
        for params in [
            "nt_1_2_3_ld_1_2_3",
            "nn_1_2_3_ld_1_2_3_v_0",
            "nn_1_2_3_ld_1_2_3_v_0f",
            "nn_9999999999999999999_1_1_ld_1_1_1",
        ] {
            assert!(Problem::parse(op, params).is_err(), "{params}");
        }
        for op in [
            "",
            "Gemm",
            "GemmTunableOp",
            "GemmTunableOp_int_NN",
            "GemmTunableOp_float_XN",
            "FooTunableOp_float_NN",
            "GemmTunableOp_int8_NN",
            "IntegerGemmTunableOp_float_NN",
        ] {
            assert!(Problem::parse(op, "nn_1_2_3_ld_1_2_3").is_err(), "{op}");
        }
    }

    fn element() -> impl Strategy<Value = Element> {
        (0..Element::ALL.len() - 1).prop_map(|at| Element::ALL[at])
    }

    /// Any problem that the operators can have.
    pub(crate) fn problem() -> impl Strategy<Value = Problem> {
        let size = || 0..=i64::MAX.unsigned_abs();
        let three = move || [size(), size(), size()];
        let bias = proptest::option::of(element().prop_filter("a bias is not tf32", |bias| *bias != Element::Tf32));
        let parts = (
            (0..Kind::ALL.len()),
            [element(), element(), element()],
            any::<[bool; 2]>(),
            three(),
            size(),
            three(),
            any::<bool>(),
            bias,
            any::<u32>(),
        );
        parts.prop_map(|(kind, mut elements, transposed, sizes, batches, leading, rowwise, bias, variant)| {
            let kind = Kind::ALL[kind];
            let is_scaled = kind == Kind::Scaled;
            if !is_scaled {
                elements = [if kind == Kind::Integers { Element::Int8 } else { elements[0] }; 3];
            }
            let batches = if kind == Kind::StridedBatched { batches } else { 1 };
            let bias = bias.filter(|_| is_scaled);
            Problem {
                kind,
                elements,
                transposed,
                sizes,
                batches,
                leading,
                rowwise: rowwise && is_scaled,
                bias,
                variant,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(problem in problem()) {
            prop_assert_eq!(Problem::parse(&problem.op(), &problem.own_params()), Ok(problem));
        }

        #[test]
        fn no_text_panics(op in ".*", params in "(nn|tt)?[_0-9a-z]*") {
            let _ = Problem::parse(&op, &params);
            let _ = Problem::parse("ScaledGemmTunableOp_float_float_float_NN", &params);
        }
    }
}
