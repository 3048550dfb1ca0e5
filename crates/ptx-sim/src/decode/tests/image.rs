//! Global and constant variables: where they lie, and what they begin with.

use super::{link, module, read};
use crate::RefusalKind;

/// The bytes of a module's variables at the address 0x1000.
fn bytes(text: &str) -> Vec<u8> {
    module(text).image(0x1000)
}

#[test]
fn variables_lie_behind_each_other_at_their_alignment_and_constant_ones_first() {
    let module = module(
        ".global .u8 a;\n.const .u32 b = 7;\n.visible .global .align 16 .b8 c[3] = {1, 2};\n.global .v2 .f32 d;\n\
         .global .u64 e[2][3];",
    );
    let found = |name: &str| {
        let variable = module.variables().iter().find(|variable| variable.name == name).expect("it is there");
        (variable.offset, variable.size)
    };
    assert_eq!(["a", "b", "c", "d", "e"].map(found), [(4, 1), (0, 4), (16, 3), (24, 8), (32, 48)]);
    assert_eq!(module.variables()[0].name, "c", "what other texts see comes first");
    assert_eq!(module.image(0)[..20], [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0]);
}

#[test]
fn values_take_the_type_of_their_variable() {
    let cases: [(&str, &[u8]); 12] = [
        (".s16 v = -2", &[0xFE, 0xFF]),
        (".u8 v[3] = {1, 0x1FF, 3}", &[1, 0xFF, 3]),
        (".u32 v[2][2] = {{1}, {2, 3}}", &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]),
        (".u8 v[2][2] = {1, 2, 3}", &[1, 2, 3, 0]),
        (".f32 v = 1.5", &[0, 0, 0xC0, 0x3F]),
        (".f32 v = 0f3FC00000", &[0, 0, 0xC0, 0x3F]),
        (".f32 v = -1", &[0, 0, 0x80, 0xBF]),
        (".f64 v = 1.5", &[0, 0, 0, 0, 0, 0, 0xF8, 0x3F]),
        (".f16 v = 1.5", &[0, 0x3E]),
        (".b32 v = 0f3FC00000", &[0, 0, 0xC0, 0x3F]),
        (".b8 v[] = {9, 8}", &[9, 8]),
        (".v2 .u16 v[2] = {{1}, {2, 3}}", &[1, 0, 0, 0, 2, 0, 3, 0]),
    ];
    for (text, expected) in cases {
        assert_eq!(bytes(&format!(".global {text};")), expected, "{text}");
    }
}

#[test]
fn addresses_are_filled_in_where_the_module_is_loaded() {
    let words = |text: &str| {
        let bytes = bytes(text);
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect::<Vec<_>>()
    };
    let declared = ".global .u64 x[2];\n.func f() { ret; }\n.func g() { ret; }\n";
    let found = words(&format!("{declared}.global .u64 v[5] = {{x, generic(x)+8, x+-8, f, g}};"));
    assert_eq!(found[2..], [0x1000, 0x1008, 0xFF8, 4 << 56, (4 << 56) + 1]);
    let parts = bytes(".global .u8 v[4] = {0xFF(v), 0xFF00(v), 0xFF00(generic(v)+256), 0xFF0000(v)};");
    assert_eq!(parts, [0x00, 0x10, 0x11, 0x00]);
    let forward = words(".global .u64 a = b;\n.global .u64 b = a;");
    assert_eq!(forward, [0x1008, 0x1000]);
    let other = link(&[".extern .global .u64 b;\n.global .u64 a = b;", ".visible .global .u64 b = 5;"]);
    assert_eq!(other.expect("it links").image(0)[..9], [8, 0, 0, 0, 0, 0, 0, 0, 5]);
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let cases = [
        (".global .u8 v[2] = {1, 2, 3};", RefusalKind::Invalid, "'v' has too many values"),
        (".global .u32 v = 1.5;", RefusalKind::Invalid, "a floating value of 'v', of .u32"),
        (".global .u32 v = v;", RefusalKind::Invalid, "an address in 'v', of .u32"),
        (".global .u8 v = 0xF0(v);", RefusalKind::Invalid, "an address in 'v', of .u8"),
        (".global .u8 v = 0(v);", RefusalKind::Invalid, "an address in 'v', of .u8"),
        (".global .u64 v = w;", RefusalKind::Invalid, "'w' is unknown"),
        (".extern .global .u64 w; .global .u64 v = w;", RefusalKind::NotSupported, "no text defines 'w'"),
        (".shared .u64 w; .global .u64 v = w;", RefusalKind::NotSupported, "the address of 'w' in a value"),
        (".global .pred v;", RefusalKind::Invalid, "'v' is a predicate in memory"),
        (".global .b8 v[1073741825];", RefusalKind::NotSupported, "more than 1073741824 bytes of variables"),
        (
            ".global .b64 v[4294967296][4294967296];",
            RefusalKind::NotSupported,
            "more than 1073741824 bytes of variables",
        ),
        (".shared .u64 w = 1;", RefusalKind::Invalid, "'w' cannot begin with a value"),
    ];
    for (text, kind, what) in cases {
        let refusal = read(text).expect_err(text);
        assert_eq!((refusal.kind, refusal.text.as_str(), refusal.place.line), (kind, what, 2), "{text}");
    }
}
