//! What was given to hardware: kernels of one form each, and their operands.
//!
//! **Invariants:** operands come from a fixed sequence of numbers, so that the sums of what hardware gave stay true. Each
//! form is run on [`SETS`] sets of four numbers of its class, of which a lane holds one set.

#![expect(clippy::cast_possible_truncation, reason = "numbers are cut to the bits of a register")]

/// Sets of operands of a class.
pub(crate) const SETS: usize = 512;

/// The classes of operands: f32, f64, pairs of f16, pairs of bf16, integers.
const CLASSES: [&str; 5] = ["f32", "f64", "f16", "bf16", "s32"];

/// Numbers that look random and are always the same.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A floating number: special, near one, with few bits, or anything.
    fn float(&mut self, exponent_bits: u32, fraction_bits: u32) -> u64 {
        let (top, bias) = ((1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1);
        let sign = self.below(2) << (exponent_bits + fraction_bits);
        let all = (1 << fraction_bits) - 1;
        let fractions = [0, 1, all, 1 << (fraction_bits - 1), all - 1, all >> 1];
        let exponent = match self.below(8) {
            0 | 1 => [0, 0, 1, bias - 1, bias, bias + 1, top - 1, top][self.below(8) as usize],
            2 | 3 => bias + self.below(7) - 3,
            4 | 5 => {
                (bias + self.below(u64::from(fraction_bits) * 2 + 6)).saturating_sub(fraction_bits.into()).min(top)
            }
            6 => self.below(4),
            _ => self.below(top + 1),
        };
        let fraction = match self.below(6) {
            0 | 1 => fractions[self.below(6) as usize],
            2 => self.next() & all & !((1 << self.below(fraction_bits.into())) - 1),
            _ => self.next() & all,
        };
        sign | exponent << fraction_bits | fraction
    }

    fn integer(&mut self) -> u64 {
        const EDGES: [u64; 12] =
            [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0x7FFF << 48, 1 << 63];
        match self.below(5) {
            0 => EDGES[self.below(12) as usize],
            1 => !EDGES[self.below(12) as usize],
            2 => self.below(70),
            3 => self.next() >> self.below(64),
            _ => self.next(),
        }
    }

    fn of(&mut self, class: &str) -> u64 {
        match class {
            "f32" => self.float(8, 23) | self.next() << 32,
            "f64" => self.float(11, 52),
            "f16" => (0..4).fold(0, |packed, _| packed << 16 | self.float(5, 10)),
            "bf16" => (0..4).fold(0, |packed, _| packed << 16 | self.float(8, 7)),
            _ => self.integer(),
        }
    }
}

/// The operands of all classes, by class, set and place.
pub(crate) fn operands() -> Vec<u8> {
    let mut numbers = Numbers::new(1);
    let mut bytes = Vec::new();
    for class in CLASSES {
        for set in 0..SETS {
            let mut values: [u64; 4] = std::array::from_fn(|_| numbers.of(class));
            if set % 11 == 0 {
                values[1] = values[0];
            }
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
    bytes
}

/// The class of a form's operands: that of its last type.
fn class(form: &str) -> usize {
    let word = form.split(' ').next().unwrap_or_default();
    let class = word.split('.').rev().find_map(|part| match part {
        "f32" | "tf32" => Some("f32"),
        "f64" => Some("f64"),
        "f16" | "f16x2" => Some("f16"),
        "bf16" | "bf16x2" => Some("bf16"),
        _ => part.starts_with(['u', 's', 'b', 'e']).then_some("s32"),
    });
    CLASSES.iter().position(|&other| Some(other) == class).unwrap_or(4)
}

/// What comes before and after a form that uses or makes a carry.
fn carries(form: &str) -> [&'static str; 2] {
    let word = form.split(' ').next().unwrap_or_default();
    let before = match &word[..4] {
        "addc" | "madc" => "add.cc.u32 %r15, %r5, %r4;",
        "subc" => "sub.cc.u32 %r15, %r5, %r4;",
        _ => "",
    };
    let after = match (word.contains(".cc"), word.starts_with("sub")) {
        (false, _) => "",
        (true, false) => {
            "addc.u32 %r16, 0, 0; cvt.u64.u32 %rd15, %r16; shl.b64 %rd15, %rd15, 50; xor.b64 %rd1, %rd1, %rd15;"
        }
        (true, true) => {
            "subc.u32 %r16, 0, 0; and.b32 %r16, %r16, 1; cvt.u64.u32 %rd15, %r16; shl.b64 %rd15, %rd15, 50; \
             xor.b64 %rd1, %rd1, %rd15;"
        }
    };
    [before, after]
}

/// A kernel for each form: it takes the addresses of operands and results, and a lane stores eight bytes, made of
/// `%rd1`, `%r1`, `%h1`, `%p1` and `%p2`.
pub(crate) fn text(forms: &[&str]) -> String {
    let mut text = ".version 8.7\n.target sm_90\n.address_size 64\n".to_owned();
    for (index, form) in forms.iter().enumerate() {
        let (start, [before, after]) = (class(form) * SETS * 32, carries(form));
        text += &format!(
            ".visible .entry k{index}(.param .u64 in, .param .u64 out) {{\n\
             .reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<20>; .reg .b64 %rd<20>;\n\
             ld.param.u64 %rd10, [in]; ld.param.u64 %rd11, [out];\n\
             mov.u32 %r10, %ctaid.x; mov.u32 %r11, %tid.x; mad.lo.s32 %r12, %r10, 32, %r11;\n\
             mul.wide.u32 %rd12, %r12, 32; add.s64 %rd10, %rd10, %rd12;\n\
             mul.wide.u32 %rd13, %r12, 8; add.s64 %rd11, %rd11, %rd13;\n"
        );
        for place in 2..6 {
            let offset = start + (place - 2) * 8;
            text += &format!(
                "ld.global.u64 %rd{place}, [%rd10+{offset}]; cvt.u32.u64 %r{place}, %rd{place}; \
                 cvt.u16.u64 %h{place}, %rd{place}; and.b32 %r14, %r{place}, {place}; setp.ne.u32 %p{place}, %r14, 0;\n"
            );
        }
        text += &format!(
            "mov.u64 %rd1, 0; mov.u32 %r1, 0; mov.u16 %h1, 0; setp.ne.u32 %p1, %r10, %r10;\n\
             {before}\n{form}\n{after}\n\
             cvt.u64.u32 %rd14, %r1; xor.b64 %rd1, %rd1, %rd14;\n\
             cvt.u64.u16 %rd14, %h1; shl.b64 %rd14, %rd14, 32; xor.b64 %rd1, %rd1, %rd14;\n\
             selp.b64 %rd14, 0x1000000000000, 0, %p1; xor.b64 %rd1, %rd1, %rd14;\n\
             selp.b64 %rd14, 0x2000000000000, 0, %p2; xor.b64 %rd1, %rd1, %rd14;\n\
             st.global.u64 [%rd11], %rd1; ret; }}\n"
        );
    }
    text
}

/// A sum of bytes that changes with each of them.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Lanes' registers for a form of matrices, twelve words each: small whole numbers of the types of `a`, `b` and `c`.
pub(crate) fn registers(form: &str) -> Vec<u8> {
    let parts: Vec<&str> = form.split(' ').next().unwrap_or_default().split('.').collect();
    let types = if parts[0] == "mma" {
        [parts[parts.len() - 3], parts[parts.len() - 2], parts[parts.len() - 1]]
    } else {
        ["b32"; 3]
    };
    let mut numbers = Numbers::new(2);
    let mut bytes = Vec::new();
    for index in 0..32 * 12 {
        let ty = types[index % 12 / 4];
        let mut small = || f32::from(i8::try_from(numbers.below(17)).expect("it is small") - 8).to_bits();
        let word = match ty {
            "f32" => small(),
            "tf32" => small() | 0x1234,
            "bf16" => small() >> 16 | small() & 0xFFFF_0000,
            "f16" => half(small()) | half(small()) << 16,
            _ => numbers.next() as u32 >> (numbers.below(3) * 8),
        };
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// A small whole number as f16.
fn half(bits: u32) -> u32 {
    if bits << 1 == 0 { bits >> 16 } else { (bits >> 16 & 0x8000) | ((bits & 0x7FFF_FFFF) - (112 << 23)) >> 13 }
}

/// A kernel for each form of matrices: `%r1` to `%r12` come from memory, and `%r20` to `%r23` go there. Where `%r18` is
/// used, each lane has 16 bytes of shared memory there, which hold `%r1` to `%r4` before.
pub(crate) fn matrix_text(forms: &[&str]) -> String {
    let mut text = ".version 8.7\n.target sm_90\n.address_size 64\n".to_owned();
    for (index, form) in forms.iter().enumerate() {
        let stores = form.starts_with("stmatrix");
        let after = if stores { "bar.sync 0; ld.shared.v4.b32 {%r20,%r21,%r22,%r23}, [%r18];" } else { "" };
        text += &format!(
            ".visible .entry k{index}(.param .u64 in, .param .u64 out) {{\n\
             .reg .b32 %r<30>; .reg .b64 %rd<20>; .shared .align 16 .b8 s[512];\n\
             ld.param.u64 %rd10, [in]; ld.param.u64 %rd11, [out]; mov.u32 %r16, %tid.x; mov.u32 %r17, s;\n\
             mul.wide.u32 %rd12, %r16, 48; add.s64 %rd10, %rd10, %rd12;\n\
             mul.wide.u32 %rd13, %r16, 16; add.s64 %rd11, %rd11, %rd13;\n\
             ld.global.v4.b32 {{%r1,%r2,%r3,%r4}}, [%rd10]; ld.global.v4.b32 {{%r5,%r6,%r7,%r8}}, [%rd10+16];\n\
             ld.global.v4.b32 {{%r9,%r10,%r11,%r12}}, [%rd10+32];\n\
             mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;\n\
             mad.lo.u32 %r18, %r16, 16, %r17; st.shared.v4.b32 [%r18], {{%r1,%r2,%r3,%r4}}; bar.sync 0;\n\
             {form}\n{after}\nst.global.v4.b32 [%rd11], {{%r20,%r21,%r22,%r23}}; ret; }}\n"
        );
    }
    text
}
