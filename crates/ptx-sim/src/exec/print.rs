//! What kernels print: `printf` by C's rules, and failed assertions.

#![expect(clippy::cast_possible_truncation, reason = "an argument of 4 bytes was read as 8")]

use super::core::{Common, Core};
use super::fragment::Warp;
use super::memory::Memory;
use super::reach::Stop;
use crate::program::types::Space;

/// The most bytes that a text of a kernel may have.
const MAX_TEXT: usize = 1 << 16;

/// The most digits that a conversion may ask for.
const MAX_DIGITS: usize = 1 << 10;

/// Prints; the number of arguments.
pub(super) fn printf<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    lane: usize,
    [format, arguments, ..]: [u64; 4],
) -> Result<u64, Stop> {
    let format = text(core, common, warp, lane, format)?;
    let mut printer = Printer { at: arguments, count: 0, printed: String::new() };
    let mut rest = &format[..];
    while let Some(start) = rest.iter().position(|&byte| byte == b'%') {
        printer.push(&rest[..start]);
        rest = &rest[start + 1..];
        let (conversion, behind) = Conversion::read(rest);
        rest = behind;
        printer.convert(core, common, warp, lane, conversion)?;
    }
    printer.push(rest);
    core.memory.print(&printer.printed);
    Ok(printer.count)
}

/// Tells of a failed assertion as the device does.
pub(super) fn assertion<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    (lane, thread): (usize, u64),
    [condition, file, line, function]: [u64; 4],
) -> Result<(), Stop> {
    let mut read = |address| {
        let bytes = if address == 0 { Vec::new() } else { text(core, common, warp, lane, address)? };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (condition, file, function) = (read(condition)?, read(file)?, read(function)?);
    let place = |number: u64, sizes: [u32; 3]| {
        let [x, y, _] = sizes.map(u64::from);
        format!("[{},{},{}]", number % x, number / x % y, number / x / y)
    };
    let (block, thread) = (place(common.block, core.launch.blocks), place(thread, core.launch.threads));
    let line = line & 0xFFFF_FFFF;
    core.memory.print_error(&format!(
        "{file}:{line}: {function}: block: {block}, thread: {thread} Assertion `{condition}` failed.\n"
    ));
    Ok(())
}

/// The bytes of a text up to its zero.
fn text<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    lane: usize,
    address: u64,
) -> Result<Vec<u8>, Stop> {
    let mut bytes = Vec::new();
    for skip in 0..MAX_TEXT as u64 {
        let byte =
            core.reach(common, &mut warp.local).load_lane(Space::Generic, address.wrapping_add(skip), 1, lane)?;
        match u8::try_from(byte) {
            Ok(0) | Err(_) => break,
            Ok(byte) => bytes.push(byte),
        }
    }
    Ok(bytes)
}

/// What stands between `%` and the letter, and the letter.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: Option<Count>,
    precision: Option<Count>,
    /// Whether the argument has 8 bytes.
    long: bool,
    letter: u8,
}

/// A width or precision: a number, or the next argument.
#[derive(Clone, Copy, Debug)]
enum Count {
    Number(usize),
    Argument,
}

impl Conversion {
    fn read(text: &[u8]) -> (Self, &[u8]) {
        let (mut conversion, mut at) = (Self::default(), 0);
        while let Some(flag) = text.get(at) {
            match flag {
                b'-' => conversion.left = true,
                b'+' => conversion.plus = true,
                b' ' => conversion.space = true,
                b'#' => conversion.alternate = true,
                b'0' => conversion.zero = true,
                _ => break,
            }
            at += 1;
        }
        conversion.width = count(text, &mut at);
        if text.get(at) == Some(&b'.') {
            at += 1;
            conversion.precision = Some(count(text, &mut at).unwrap_or(Count::Number(0)));
        }
        while let Some(byte) = text.get(at).filter(|byte| b"hlLqjzt".contains(byte)) {
            conversion.long |= b"lqjzt".contains(byte);
            at += 1;
        }
        conversion.letter = text.get(at).copied().unwrap_or(b'%');
        (conversion, text.get(at + 1..).unwrap_or_default())
    }

    /// Puts what was converted into its width.
    fn pad(&self, sign: &str, digits: &str, width: usize, zeros: bool) -> String {
        let missing = width.saturating_sub(sign.chars().count() + digits.chars().count());
        match () {
            () if self.left => format!("{sign}{digits}{}", " ".repeat(missing)),
            () if zeros => format!("{sign}{}{digits}", "0".repeat(missing)),
            () => format!("{}{sign}{digits}", " ".repeat(missing)),
        }
    }

    fn sign(&self, negative: bool) -> &'static str {
        match () {
            () if negative => "-",
            () if self.plus => "+",
            () if self.space => " ",
            () => "",
        }
    }
}

fn count(text: &[u8], at: &mut usize) -> Option<Count> {
    if text.get(*at) == Some(&b'*') {
        *at += 1;
        return Some(Count::Argument);
    }
    let start = *at;
    let mut number = 0_usize;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        number = (number * 10 + usize::from(digit - b'0')).min(MAX_DIGITS);
        *at += 1;
    }
    (*at > start).then_some(Count::Number(number))
}

struct Printer {
    /// Address of the next argument.
    at: u64,
    count: u64,
    printed: String,
}

impl Printer {
    fn push(&mut self, bytes: &[u8]) {
        self.printed.push_str(&String::from_utf8_lossy(bytes));
    }

    /// The next argument; arguments lie at multiples of their size.
    fn argument<'m, M: Memory<'m>>(
        &mut self,
        core: &mut Core<'_, 'm, M>,
        common: &mut Common,
        warp: &mut Warp,
        lane: usize,
        bytes: u64,
    ) -> Result<u64, Stop> {
        let at = self.at.checked_next_multiple_of(bytes).unwrap_or(0);
        self.at = at.wrapping_add(bytes);
        self.count += 1;
        core.reach(common, &mut warp.local).load_lane(Space::Generic, at, bytes, lane)
    }

    fn convert<'m, M: Memory<'m>>(
        &mut self,
        core: &mut Core<'_, 'm, M>,
        common: &mut Common,
        warp: &mut Warp,
        lane: usize,
        mut conversion: Conversion,
    ) -> Result<(), Stop> {
        let mut numbers = [0, usize::MAX];
        for (number, count) in numbers.iter_mut().zip([conversion.width, conversion.precision]) {
            match count {
                Some(Count::Number(known)) => *number = known,
                Some(Count::Argument) => {
                    let given = self.argument(core, common, warp, lane, 4)? as u32;
                    if given.cast_signed() < 0 {
                        conversion.left = true;
                    }
                    *number = (given.cast_signed().unsigned_abs() as usize).min(MAX_DIGITS);
                }
                None => {}
            }
        }
        let ([width, precision], has_precision) = (numbers, conversion.precision.is_some());
        let printed = match conversion.letter {
            b'%' => "%".to_owned(),
            b'd' | b'i' | b'u' | b'x' | b'X' | b'o' => {
                let bytes = if conversion.long { 8 } else { 4 };
                let value = self.argument(core, common, warp, lane, bytes)?;
                integer(&conversion, value, bytes, width, has_precision.then_some(precision))
            }
            b'c' => {
                let value = self.argument(core, common, warp, lane, 4)?;
                conversion.pad("", &char::from((value & 0xFF) as u8).to_string(), width, false)
            }
            b'p' => {
                let value = self.argument(core, common, warp, lane, 8)?;
                conversion.pad("", &format!("{value:#x}"), width, false)
            }
            b's' => {
                let address = self.argument(core, common, warp, lane, 8)?;
                let bytes = if address == 0 { b"(null)".to_vec() } else { text(core, common, warp, lane, address)? };
                let kept = &bytes[..bytes.len().min(precision)];
                conversion.pad("", &String::from_utf8_lossy(kept), width, false)
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_bits(self.argument(core, common, warp, lane, 8)?);
                float(&conversion, value, width, if has_precision { precision.min(MAX_DIGITS) } else { 6 })
            }
            other => format!("%{}", char::from(other)),
        };
        self.printed.push_str(&printed);
        Ok(())
    }
}

fn integer(conversion: &Conversion, value: u64, bytes: u64, width: usize, precision: Option<usize>) -> String {
    let signed = if bytes == 8 { value.cast_signed() } else { i64::from((value as u32).cast_signed()) };
    let (negative, magnitude) = match conversion.letter {
        b'd' | b'i' => (signed < 0, signed.unsigned_abs()),
        _ => (false, value),
    };
    let digits = match conversion.letter {
        b'x' => format!("{magnitude:x}"),
        b'X' => format!("{magnitude:X}"),
        b'o' => format!("{magnitude:o}"),
        _ => magnitude.to_string(),
    };
    let least = precision.unwrap_or(1);
    let digits = if precision == Some(0) && magnitude == 0 { String::new() } else { digits };
    let digits = format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
    let sign = match conversion.letter {
        b'd' | b'i' => conversion.sign(negative),
        b'x' if conversion.alternate && magnitude != 0 => "0x",
        b'X' if conversion.alternate && magnitude != 0 => "0X",
        b'o' if conversion.alternate && !digits.starts_with('0') => "0",
        _ => "",
    };
    conversion.pad(sign, &digits, width, conversion.zero && precision.is_none())
}

fn float(conversion: &Conversion, value: f64, width: usize, precision: usize) -> String {
    let sign = conversion.sign(value.is_sign_negative() && !value.is_nan());
    let upper = conversion.letter.is_ascii_uppercase();
    let magnitude = value.abs();
    let digits = match conversion.letter.to_ascii_lowercase() {
        _ if value.is_nan() => "nan".to_owned(),
        _ if value.is_infinite() => "inf".to_owned(),
        b'f' => fixed(magnitude, precision, conversion.alternate),
        b'e' => scientific(magnitude, precision, conversion.alternate),
        b'a' => hexadecimal(magnitude),
        _ => shortest(magnitude, precision.max(1), conversion.alternate),
    };
    let digits = if upper { digits.to_ascii_uppercase() } else { digits };
    conversion.pad(sign, &digits, width, conversion.zero && value.is_finite())
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let digits = format!("{value:.precision$}");
    if precision == 0 && point { format!("{digits}.") } else { digits }
}

/// C writes at least two digits of the exponent, and its sign.
fn scientific(value: f64, precision: usize, point: bool) -> String {
    let digits = format!("{value:.precision$e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
    let point = if precision == 0 && point { "." } else { "" };
    format!("{mantissa}{point}e{sign}{exponent:0>2}")
}

fn shortest(value: f64, precision: usize, keeps_zeros: bool) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let digits = i32::try_from(precision).unwrap_or(i32::MAX);
    let is_fixed = exponent >= -4 && exponent < digits;
    let written = if is_fixed {
        fixed(value, usize::try_from(digits - 1 - exponent).unwrap_or(0), keeps_zeros)
    } else {
        scientific(value, precision - 1, keeps_zeros)
    };
    if keeps_zeros || !written.contains('.') {
        return written;
    }
    let (mantissa, rest) = written.split_at(written.find('e').unwrap_or(written.len()));
    format!("{}{rest}", mantissa.trim_end_matches('0').trim_end_matches('.'))
}

fn hexadecimal(value: f64) -> String {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7FF) as i64, bits & ((1 << 52) - 1));
    let (lead, exponent) = match exponent {
        0 if fraction == 0 => (0, 0),
        0 => (0, -1022),
        _ => (1, exponent - 1023),
    };
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{lead}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_float(format: &str, value: f64) -> String {
        let (conversion, _) = Conversion::read(format.as_bytes());
        let number = |count: Option<Count>| match count {
            Some(Count::Number(number)) => Some(number),
            Some(Count::Argument) | None => None,
        };
        float(&conversion, value, number(conversion.width).unwrap_or(0), number(conversion.precision).unwrap_or(6))
    }

    fn of_integer(format: &str, value: u64) -> String {
        let (conversion, _) = Conversion::read(format.as_bytes());
        let number = |count: Option<Count>| match count {
            Some(Count::Number(number)) => Some(number),
            Some(Count::Argument) | None => None,
        };
        let bytes = if conversion.long { 8 } else { 4 };
        integer(&conversion, value, bytes, number(conversion.width).unwrap_or(0), number(conversion.precision))
    }

    #[test]
    fn numbers_are_printed_as_c_does() {
        for (format, value, expected) in [
            ("f", 1.5, "1.500000"),
            ("8.2f", -3.25, "   -3.25"),
            ("-8.2f", 3.25, "3.25    "),
            ("08.2f", -3.25, "-0003.25"),
            ("e", 12345.678, "1.234568e+04"),
            (".0e", 0.5, "5e-01"),
            ("g", 100000.0, "100000"),
            ("g", 1000000.0, "1e+06"),
            ("g", 0.0001, "0.0001"),
            ("g", 0.00001234, "1.234e-05"),
            ("G", f64::INFINITY, "INF"),
            ("a", 1.5, "0x1.8p+0"),
            ("+.1f", 2.0, "+2.0"),
        ] {
            assert_eq!(of_float(format, value), expected, "%{format}");
        }
    }

    #[test]
    fn integers_are_printed_as_c_does() {
        for (format, value, expected) in [
            ("d", 0xFFFF_FFFF, "-1"),
            ("u", 0xFFFF_FFFF, "4294967295"),
            ("lld", u64::MAX, "-1"),
            ("5d", 42, "   42"),
            ("-5d", 42, "42   "),
            ("05d", 42, "00042"),
            (".3d", 7, "007"),
            ("#x", 255, "0xff"),
            ("llX", 1 << 40, "10000000000"),
            ("#o", 8, "010"),
        ] {
            assert_eq!(of_integer(format, value), expected, "%{format}");
        }
    }
}
