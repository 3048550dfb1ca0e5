//! What `integers.cu` must leave behind.

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{low, short_words, words};

const FILE: &str = "integers";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "divisions", divisions),
    Case::new(FILE, "wide_numbers", wide_numbers),
    Case::new(FILE, "borrows", borrows),
    Case::new(FILE, "bit_tricks", bit_tricks),
    Case::new(FILE, "packed_bytes", packed_bytes),
];

/// Words of many sizes, the edges among them.
fn mixed(seed: u64, count: usize) -> Vec<u64> {
    let edges = [0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, (1 << 32) - 1, 1 << 31];
    let random = words(seed, 2 * count);
    let size = |i: usize| random[2 * i] >> (random[2 * i + 1] % 64);
    (0..count).map(|i| if i % 5 == 0 { edges[(i / 5) % edges.len()] } else { size(i) }).collect()
}

fn mixed_short(seed: u64, count: usize) -> Vec<u32> {
    mixed(seed, count).into_iter().map(|word| if word % 3 == 0 { low(word >> 32) } else { low(word) }).collect()
}

fn divisions(device: &Device<'_>) -> Answer {
    let (a, b) = (mixed(101, 300), mixed(102, 301)[1..].to_vec());
    // Nothing is divided by zero, nor the least number by -1.
    let b: Vec<u64> =
        b.iter().zip(&a).map(|(&b, &a)| if b == 0 || b == u64::MAX && a == 1 << 63 { 7 } else { b }).collect();
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<i64>(3000)?);
    device.run("divisions", 5, 64, &[(&to).into(), (&on_a).into(), (&on_b).into(), 300_u32.into()])?;
    let mut wanted = Vec::new();
    for (&a, &b) in a.iter().zip(&b) {
        let (sa, sb) = (a.cast_signed(), b.cast_signed());
        let (c, d) = (low(a).cast_signed(), low(b).cast_signed() | 1);
        wanted.extend([sa / sb, sa % sb, (a / b).cast_signed(), (a % b).cast_signed()]);
        wanted.extend([i64::from(c) / i64::from(d), i64::from(c) % i64::from(d)]);
        let (c, d) = (c.cast_unsigned(), d.cast_unsigned());
        wanted.extend([i64::from(c / d), i64::from(c % d), sa / 1_000_003, (a % 10).cast_signed()]);
    }
    same("divisions", &to.to_vec()?, &wanted)
}

fn wide_numbers(device: &Device<'_>) -> Answer {
    let n = 40;
    let full = |seed| mixed_short(seed, n * 8).into_iter().map(|word| if word % 4 == 1 { u32::MAX } else { word });
    let (a, b): (Vec<u32>, Vec<u32>) = (full(103).collect(), full(104).collect());
    let (on_a, on_b) = (device.put(&a)?, device.put(&b)?);
    let (sum, product) = (device.zeros::<u32>(n * 9)?, device.zeros::<u32>(n * 16)?);
    device.run(
        "wide_numbers",
        2,
        32,
        &[(&sum).into(), (&product).into(), (&on_a).into(), (&on_b).into(), 40_u32.into()],
    )?;
    let (mut sums, mut products) = (Vec::new(), Vec::new());
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        let mut carry = 0_u64;
        for (a, b) in a.iter().zip(b) {
            carry += u64::from(*a) + u64::from(*b);
            sums.push(low(carry));
            carry >>= 32;
        }
        sums.push(low(carry));
        let mut whole = [0_u32; 16];
        for (i, a) in a.iter().enumerate() {
            let mut carry = 0_u64;
            for (j, b) in b.iter().enumerate() {
                carry += u64::from(*a) * u64::from(*b) + u64::from(whole[i + j]);
                whole[i + j] = low(carry);
                carry >>= 32;
            }
            whole[i + 8] = low(carry);
        }
        products.extend(whole);
    }
    same("sums", &sum.to_vec()?, &sums)?;
    same("products", &product.to_vec()?, &products)
}

fn borrows(device: &Device<'_>) -> Answer {
    let x = mixed(105, 400);
    let (on_x, to) = (device.put(&x)?, device.zeros::<u64>(500)?);
    device.run("borrows", 2, 64, &[(&to).into(), (&on_x).into(), 100_u32.into()])?;
    let halves = |value: u128| {
        [
            u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default(),
            u64::try_from(value >> 64).unwrap_or_default(),
        ]
    };
    let mut wanted = Vec::new();
    for x in x.chunks(4) {
        let wide = |at: usize| u128::from(x[at]) | u128::from(x[at + 1]) << 64;
        wanted.extend(halves(wide(0).wrapping_sub(wide(2))));
        wanted.extend(halves((u128::from(x[0]) * u128::from(x[1])).wrapping_add(wide(2))));
        let signed = i128::from(x[2].cast_signed()) * i128::from(x[3].cast_signed());
        wanted.push(halves(u128::from(x[0]) * u128::from(x[1]))[1] ^ halves(signed.cast_unsigned())[1]);
    }
    same("borrows", &to.to_vec()?, &wanted)
}

/// `bfe.s32`, as its manual describes it.
fn extract(value: u32, place: u32, length: u32) -> u32 {
    let bit = |at: u32| value >> at.min(31) & 1;
    let sign = if length == 0 { 0 } else { bit(place + length - 1) };
    (0..32).fold(0, |all, i| all | (if i < length && place + i < 32 { bit(place + i) } else { sign }) << i)
}

/// `bfi.b32`, likewise.
fn insert(from: u32, into: u32, place: u32, length: u32) -> u32 {
    (0..length.min(32))
        .filter(|i| place + i < 32)
        .fold(into, |all, i| all & !(1 << (place + i)) | (from >> i & 1) << (place + i))
}

fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    u32::from_le_bytes([0, 4, 8, 12].map(|shift| bytes[(selector >> shift & 7) as usize]))
}

fn bit_tricks(device: &Device<'_>) -> Answer {
    let (a, b) = (mixed_short(106, 200), mixed_short(107, 200));
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<u32>(200 * 24)?);
    device.run("bit_tricks", 4, 64, &[(&to).into(), (&on_a).into(), (&on_b).into(), 200_u32.into()])?;
    let mut wanted = Vec::new();
    for (&a, &b) in a.iter().zip(&b) {
        let (d, pair) = (u64::from(a) << 32 | u64::from(b), u64::from(b) << 32 | u64::from(a));
        let (sa, sb) = (i64::from(a.cast_signed()), i64::from(b.cast_signed()));
        let first = |zeros: u32, bits: u32| if zeros == bits { 0 } else { zeros + 1 };
        let short = |value: i64| low(value.cast_unsigned());
        wanted.extend([a.leading_zeros(), a.reverse_bits(), first(a.trailing_zeros(), 32), a.count_ones()]);
        wanted.extend([low(pair << (b & 31) >> 32), low(pair >> (b & 31))]);
        wanted.extend([low(pair << (b % 50).min(32) >> 32), low(pair >> (b % 50).min(32))]);
        wanted.extend([d.leading_zeros(), low(d.reverse_bits()), first(d.trailing_zeros(), 64), d.count_ones()]);
        wanted.extend([permute(a, b, 0x7531), permute(a, b, a % 0x8000)]);
        wanted.extend([short((sa + sb) >> 1), short((sa + sb + 1) >> 1), low((u64::from(a) + u64::from(b)) >> 1)]);
        let signed_24 = |value: u32| i64::from((value << 8).cast_signed() >> 8);
        wanted.extend([short((sa * sb) >> 32), low(u64::from(a & 0xFF_FFFF) * u64::from(b & 0xFF_FFFF))]);
        wanted.extend([short(signed_24(a) * signed_24(b)), short((sa - sb).abs() + 5), a.abs_diff(b).wrapping_add(5)]);
        wanted.extend([extract(a, b % 40, b / 64 % 40), insert(a, b, a % 40, b % 40)]);
    }
    same("bit_tricks", &to.to_vec()?, &wanted)
}

/// Bytes with their signs, and without.
fn bytes(word: u32) -> [(i32, i32); 4] {
    word.to_le_bytes().map(|byte| (i32::from(byte.cast_signed()), i32::from(byte)))
}

/// Halves likewise.
fn halves(word: u32) -> [(i32, i32); 2] {
    [word & 0xFFFF, word >> 16].map(|half| ((half << 16).cast_signed() >> 16, half.cast_signed()))
}

/// A word of the lowest bits of values.
fn packed(bits: u32, values: impl IntoIterator<Item = i32>) -> i32 {
    let mask = u32::MAX >> (32 - bits);
    let place = |all: u32, (value, i): (i32, u32)| all | (value.cast_unsigned() & mask) << (i * bits);
    values.into_iter().zip(0..).fold(0, place).cast_signed()
}

fn packed_bytes(device: &Device<'_>) -> Answer {
    let (a, b) = (short_words(108, 200), short_words(109, 200));
    let (on_a, on_b, to) = (device.put(&a)?, device.put(&b)?, device.zeros::<i32>(200 * 12)?);
    device.run("packed_bytes", 4, 64, &[(&to).into(), (&on_a).into(), (&on_b).into(), 200_u32.into()])?;
    let mut wanted = Vec::new();
    for (&a, &b) in a.iter().zip(&b) {
        let (x, y, hx, hy) = (bytes(a), bytes(b), halves(a), halves(b));
        let each = |of: fn(i32, i32) -> i32| packed(8, x.iter().zip(y).map(|(x, y)| of(x.1, y.1)));
        wanted.push(1000 + (0..4).map(|i| x[i].0 * y[i].0).sum::<i32>());
        wanted.push(1000 + (0..4).map(|i| x[i].1 * y[i].1).sum::<i32>());
        wanted.push(hx[0].0 * y[0].0 + hx[1].0 * y[1].0 - 9);
        wanted.push(hx[0].0 * y[2].0 + hx[1].0 * y[3].0 - 9);
        wanted.push(each(|x, y| x + y));
        wanted.push(packed(16, hx.iter().zip(hy).map(|(x, y)| x.1 - y.1)));
        wanted.push(each(|x, y| (x - y).abs()));
        wanted.push(packed(8, x.iter().zip(y).map(|(x, y)| x.0.max(y.0))));
        wanted.push(each(|x, y| if x > y { 0xFF } else { 0 }));
        wanted.push(each(|x, y| (x + y + 1) / 2));
        wanted.push(packed(16, hx.iter().zip(hy).map(|(x, y)| (x.0 + y.0).clamp(-32768, 32767))));
        wanted.push(x.iter().zip(y).map(|(x, y)| (x.0 - y.0).abs()).sum());
    }
    same("packed_bytes", &to.to_vec()?, &wanted)
}
