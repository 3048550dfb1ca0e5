//! Matrices of `wmma`: every shape, type and layout against plain sums of small whole numbers, whose results are exact.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small whole numbers are put into each type and taken out again"
)]

use crate::support::{BASE, LIMITS, refusals};
use half::{bf16, f16};
use ptx_sim::{Checks, FlatMemory, Launch, Module, Outcome, Program, run};

/// Bytes of each of the four matrices.
const ROOM: usize = 4096;

/// A product: its shape, the types of `d`, `a`, `b` and `c`, and which of the matrices lie by rows.
#[derive(Clone, Copy, Debug)]
struct Case {
    shape: [usize; 3],
    types: [&'static str; 4],
    by_rows: [bool; 4],
    /// Elements between two lines beyond those of a line.
    gap: usize,
    space: &'static str,
}

impl Case {
    /// Rows and columns of `d`, `a`, `b` and `c`.
    fn sizes(&self) -> [[usize; 2]; 4] {
        let [m, n, k] = self.shape;
        [[m, n], [m, k], [k, n], [m, n]]
    }

    fn stride(&self, matrix: usize) -> usize {
        let [rows, columns] = self.sizes()[matrix];
        self.gap + if self.by_rows[matrix] { columns } else { rows }
    }

    /// The number of an element in memory.
    fn place(&self, matrix: usize, row: usize, column: usize) -> usize {
        let (line, along) = if self.by_rows[matrix] { (row, column) } else { (column, row) };
        line * self.stride(matrix) + along
    }

    /// Registers of a lane, as PTX says.
    fn registers(&self, matrix: usize) -> usize {
        let [rows, columns] = self.sizes()[matrix];
        if matches!(matrix, 1 | 2) && self.types[matrix] == "f16" {
            return 8;
        }
        rows * columns * bits(self.types[matrix]) / 32 / bits(self.types[matrix]).max(32)
    }

    fn list(&self, matrix: usize) -> String {
        let name = if self.types[matrix] == "f64" { "%fd" } else { "%r" };
        let first = 10 * matrix;
        let registers: Vec<String> =
            (0..self.registers(matrix)).map(|index| format!("{name}{}", first + index)).collect();
        format!("{{{}}}", registers.join(","))
    }

    fn text(&self) -> String {
        let [m, n, k] = self.shape;
        let shape = format!("m{m}n{n}k{k}");
        let layouts = self.by_rows.map(|by_rows| if by_rows { "row" } else { "col" });
        let [d, a, b, c] = self.types;
        let all = if a == "f16" { format!("{d}.{c}") } else { format!("{d}.{a}.{b}.{c}") };
        let stride = |matrix| if self.gap == 0 { String::new() } else { format!(", {}", self.stride(matrix)) };
        let mut body = String::new();
        for (matrix, part) in [(1, "a"), (2, "b"), (3, "c")] {
            body += &format!(
                "wmma.load.{part}.sync.aligned.{}.{shape}{}.{} {}, [%rd0+{}]{};\n",
                layouts[matrix],
                self.space,
                self.types[matrix],
                self.list(matrix),
                matrix * ROOM,
                stride(matrix)
            );
        }
        body += &format!(
            "wmma.mma.sync.aligned.{}.{}.{shape}.{all} {}, {}, {}, {};\n",
            layouts[1],
            layouts[2],
            self.list(0),
            self.list(1),
            self.list(2),
            self.list(3)
        );
        body += &format!(
            "wmma.store.d.sync.aligned.{}.{shape}{}.{d} [%rd0], {}{};",
            layouts[0],
            self.space,
            self.list(0),
            stride(0)
        );
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at) {{\n\
             .reg .b32 %r<40>; .reg .f64 %fd<40>; .reg .b64 %rd<2>;\nld.param.u64 %rd0, [at];\n{body}\nret; }}\n"
        )
    }
}

fn bits(ty: &str) -> usize {
    match ty {
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// Puts a number into memory as the n-th element.
fn put(bytes: &mut [u8], ty: &str, index: usize, value: i64) {
    let size = bits(ty);
    let single = value as f32;
    let encoded: u64 = match ty {
        "f16" => f16::from_f32(single).to_bits().into(),
        "bf16" => bf16::from_f32(single).to_bits().into(),
        "f32" | "tf32" => single.to_bits().into(),
        "f64" => (value as f64).to_bits(),
        _ => value as u64,
    };
    if size == 4 {
        bytes[index / 2] |= ((encoded & 15) << (index % 2 * 4)) as u8;
        return;
    }
    let size = size / 8;
    bytes[index * size..][..size].copy_from_slice(&encoded.to_le_bytes()[..size]);
}

/// The n-th element as a number.
fn get(bytes: &[u8], ty: &str, index: usize) -> i64 {
    let size = bits(ty) / 8;
    let mut raw = [0; 8];
    raw[..size].copy_from_slice(&bytes[index * size..][..size]);
    let raw = u64::from_le_bytes(raw);
    match ty {
        "f16" => f16::from_bits(raw as u16).to_f32() as i64,
        "f32" => f32::from_bits(raw as u32) as i64,
        "f64" => f64::from_bits(raw) as i64,
        _ => i64::from(raw as u32 as i32),
    }
}

/// A small whole number that a type has.
fn number(ty: &str, seed: usize) -> i64 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let small = (mixed % 8) as i64;
    if ty.starts_with('u') || mixed & 0x100 == 0 { small } else { -small }
}

fn launch(text: &str, bytes: &mut [u8], (wide, checks): (bool, Checks)) -> Outcome {
    let module = Module::read(text, LIMITS).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
    let entry = module.entry("k").expect("there is a kernel");
    let refused: Vec<String> = entry.refusals().into_iter().map(ToString::to_string).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let index = entry.index();
    let program = Program::new(module);
    let parameters = BASE.to_le_bytes();
    let launch = Launch { wide, checks, ..Launch::new(&program, index, [1, 1, 1], [32, 1, 1], &parameters) };
    let (outcome, ended) = run(launch, &mut FlatMemory::new(BASE, bytes));
    assert_eq!(ended.err(), None, "{text}");
    outcome
}

fn check(case: Case) {
    let mut bytes = vec![0; 4 * ROOM];
    let mut values = Vec::new();
    for (matrix, [rows, columns]) in case.sizes().into_iter().enumerate() {
        let mut of_matrix = vec![vec![0; columns]; rows];
        for (row, line) in of_matrix.iter_mut().enumerate() {
            for (column, value) in line.iter_mut().enumerate() {
                *value = number(case.types[matrix], matrix * 5000 + row * 64 + column);
                let place = case.place(matrix, row, column);
                if matrix > 0 {
                    put(&mut bytes[matrix * ROOM..], case.types[matrix], place, *value);
                }
            }
        }
        values.push(of_matrix);
    }
    let text = case.text();
    for wide in [false, true] {
        let mut bytes = bytes.clone();
        let outcome = launch(&text, &mut bytes, (wide, Checks::ALL));
        assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
        for row in 0..case.shape[0] {
            for column in 0..case.shape[1] {
                let products = (0..case.shape[2]).map(|along| values[1][row][along] * values[2][along][column]);
                let expected = values[3][row][column] + products.sum::<i64>();
                let found = get(&bytes, case.types[0], case.place(0, row, column));
                assert_eq!(found, expected, "{case:?} {row} {column}");
            }
        }
    }
}

/// The layouts of `d`, `a`, `b` and `c`, all sixteen.
fn layouts() -> impl Iterator<Item = [bool; 4]> {
    (0..16).map(|bits| std::array::from_fn(|matrix| bits >> matrix & 1 == 0))
}

fn check_all(shape: [usize; 3], types: [&'static str; 4]) {
    for by_rows in layouts() {
        check(Case { shape, types, by_rows, gap: 0, space: "" });
        check(Case { shape, types, by_rows, gap: 8, space: ".global" });
    }
}

#[test]
fn halves() {
    for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16]] {
        for [d, c] in [["f16", "f16"], ["f16", "f32"], ["f32", "f16"], ["f32", "f32"]] {
            check_all(shape, [d, "f16", "f16", c]);
        }
        check_all(shape, ["f32", "bf16", "bf16", "f32"]);
    }
    check_all([16, 16, 8], ["f32", "tf32", "tf32", "f32"]);
}

#[test]
fn integers() {
    for shape in [[16, 16, 16], [32, 8, 16], [8, 32, 16]] {
        for ty in ["s8", "u8"] {
            check_all(shape, ["s32", ty, ty, "s32"]);
        }
    }
    for ty in ["s4", "u4"] {
        for by_rows in layouts().filter(|by_rows| by_rows[1] && !by_rows[2]) {
            check(Case { shape: [8, 8, 32], types: ["s32", ty, ty, "s32"], by_rows, gap: 0, space: ".global" });
            check(Case { shape: [8, 8, 32], types: ["s32", ty, ty, "s32"], by_rows, gap: 32, space: "" });
        }
    }
}

#[test]
fn doubles() {
    check_all([8, 8, 4], ["f64"; 4]);
}

/// Runs a product of one step of `m8n8k4`: each sum is 1 + 2^-60.
fn double_product(modifier: &str) -> f64 {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at) {{\n\
         .reg .b64 %rd<2>; .reg .f64 %fd<8>; ld.param.u64 %rd0, [at]; mov.f64 %fd0, 0d3E10000000000000;\n\
         mov.f64 %fd1, 0d3E00000000000000; mov.f64 %fd2, 0d3FF0000000000000;\n\
         mma.sync.aligned.m8n8k4.row.col{modifier}.f64.f64.f64.f64 {{%fd3,%fd4}}, {{%fd0}}, {{%fd1}}, {{%fd2,%fd2}};\n\
         st.global.f64 [%rd0], %fd4; ret; }}\n"
    );
    let mut bytes = vec![0; 8];
    launch(&text, &mut bytes, (true, Checks::default()));
    f64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn products_of_doubles_round_as_they_say() {
    assert_eq!(double_product(""), 1.0);
    assert_eq!(double_product(".rn"), 1.0);
    assert_eq!(double_product(".rz"), 1.0);
    assert_eq!(double_product(".rm"), 1.0);
    assert_eq!(double_product(".rp"), 1.0 + 4.0 * f64::EPSILON);
}

#[test]
fn a_product_reads_all_before_it_writes_any() {
    // The first half of the sums goes where the second factor is.
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at) {\n\
        .reg .b32 %r<20>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [at];\n\
        mov.b32 %r0, 0x01010101; mov.b32 %r1, 0x01010101; mov.b32 %r2, 0x01010101; mov.b32 %r3, 0x01010101;\n\
        mov.b32 %r10, 5;\n\
        wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32 {%r2,%r3,%r0,%r1,%r4,%r5,%r6,%r7}, {%r0,%r1},\n\
        {%r2,%r3}, {%r10,%r10,%r10,%r10,%r10,%r10,%r10,%r10};\n\
        wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%rd0], {%r2,%r3,%r0,%r1,%r4,%r5,%r6,%r7}; ret; }\n";
    let mut bytes = vec![0; 1024];
    launch(text, &mut bytes, (true, Checks::default()));
    assert!((0..256).all(|index| get(&bytes, "s32", index) == 21));
}

#[test]
fn factors_may_come_from_shared_memory() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at) {\n\
        .shared .align 32 .b8 tile[1024]; .reg .b32 %r<40>; .reg .b64 %rd<4>; ld.param.u64 %rd0, [at];\n\
        mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, tile; add.u32 %r3, %r1, %r2; mov.u32 %r4, 0x3C003C00;\n\
        st.shared.v4.b32 [%r3], {%r4,%r4,%r4,%r4}; mov.u32 %r5, 24; bar.warp.sync 0xffffffff;\n\
        cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd2, %rd1;\n\
        wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%r2], 16;\n\
        wmma.load.b.sync.aligned.col.m16n16k16.f16 {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, [%rd2];\n\
        mov.b32 %r4, 0; wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 {%r30,%r31,%r32,%r33},\n\
        {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, {%r4,%r4,%r4,%r4};\n\
        wmma.store.d.sync.aligned.col.m16n16k16.shared.f16 [tile], {%r30,%r31,%r32,%r33};\n\
        bar.warp.sync 0xffffffff; ld.shared.v4.b32 {%r6,%r7,%r8,%r9}, [%r3]; cvt.u64.u32 %rd3, %r1;\n\
        add.u64 %rd3, %rd3, %rd0; st.global.v4.b32 [%rd3], {%r6,%r7,%r8,%r9}; ret; }\n";
    let mut bytes = vec![0; 512];
    let outcome = launch(text, &mut bytes, (true, Checks::ALL));
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
    assert!((0..256).all(|index| get(&bytes, "f16", index) == 16));
}

#[test]
fn a_matrix_that_nobody_wrote_is_noticed() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 at) {\n\
        .shared .align 32 .b8 tile[1024]; .reg .b32 %r<9>;\n\
        wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r0,%r1,%r2,%r3}, [tile]; ret; }\n";
    let outcome = launch(text, &mut [0; 8], (true, Checks::ALL));
    assert_eq!(outcome.findings.len(), 1, "{:?}", outcome.findings);
}

#[test]
fn what_ptx_does_not_have_is_refused() {
    let eight = "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}";
    let four = "{%r0,%r1,%r2,%r3}";
    for body in [
        format!("wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {eight}, [%rd0];"),
        format!("wmma.load.a.sync.aligned.m16n16k16.f16 {eight}, [%rd0];"),
        format!("wmma.load.a.sync.aligned.row.m16n16k16.f16 {four}, [%rd0];"),
        format!("wmma.load.a.sync.aligned.row.m16n16k16.f16 {eight}, [%rd0], 16, 16;"),
        format!("wmma.load.a.sync.aligned.row.m16n16k16.f32 {eight}, [%rd0];"),
        "wmma.load.a.sync.aligned.col.m8n8k32.s4 {%r0}, [%rd0];".to_owned(),
        "wmma.load.b.sync.aligned.row.m8n8k32.s4 {%r0}, [%rd0];".to_owned(),
        "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%r0}, [%rd0];".to_owned(),
        format!("wmma.store.c.sync.aligned.row.m16n16k16.f16 [%rd0], {four};"),
        format!("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16.satfinite {four}, {eight}, {eight}, {four};"),
        format!("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32 {eight}, {eight}, {eight}, {eight};"),
        format!("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 {eight}, {{%r0,%r1}}, {{%r0,%r1}}, {eight};"),
        format!("wmma.mma.sync.aligned.row.m16n16k16.f16.f16 {four}, {eight}, {eight}, {four};"),
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0,%r1}, {%r0}, {%r0}, {%r0,%r1};".to_owned(),
        "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1}, {%r0}, {%r0}, {%r0,%r1};".to_owned(),
        "mma.sync.aligned.m16n8k16.row.col.rz.f32.bf16.bf16.f32 {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, \
         {%r0,%r1,%r2,%r3};"
            .to_owned(),
    ] {
        assert_eq!(refusals(&format!("{body}\nret;")).len(), 1, "{body}");
    }
}
