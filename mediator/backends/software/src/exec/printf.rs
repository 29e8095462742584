//! The conversions of `printf`, as device code has them (CUDA programming guide, "Formatted
//! Output"; where that is silent, C).

use std::fmt::Write;

/// Bytes of text that one call prints, at most; also the widest field.
pub(super) const TEXT_BYTES_MAX: usize = 8192;
/// Arguments of a call, at most. Conversions behind them are printed as they are.
const ARGUMENTS_MAX: u32 = 32;

/// Where arguments come from, one after the other.
pub(super) trait Arguments {
    /// Why an argument cannot be read.
    type Error;
    /// Takes an argument of 4 bytes.
    fn word(&mut self) -> Result<u32, Self::Error>;
    /// Takes an argument of 8 bytes, which is aligned to 8.
    fn double(&mut self) -> Result<u64, Self::Error>;
    /// Reads the string at `address`, which is not null: at most `max` bytes.
    fn text(&mut self, address: u64, max: usize) -> Result<Vec<u8>, Self::Error>;
}

/// A conversion, as the format has it between `%` and the letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Field {
    left: bool,
    plus: bool,
    space: bool,
    alternative: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    size: Size,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Size {
    Char,
    Short,
    #[default]
    Int,
    Long,
}

/// A width or precision: a number, or an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Number(usize),
    Argument,
}

/// What a conversion asks for.
struct Conversion {
    field: Field,
    width: Option<Amount>,
    precision: Option<Amount>,
    letter: u8,
}

/// Returns the text that `format` makes of the arguments, cut to [`TEXT_BYTES_MAX`] bytes, and the
/// number of arguments taken.
pub(super) fn print<A: Arguments>(
    format: &[u8],
    arguments: &mut A,
) -> Result<(Vec<u8>, u32), A::Error> {
    let (mut text, mut taken, mut rest) = (Vec::new(), 0, format);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        text.extend_from_slice(&rest[..at]);
        let behind = &rest[at + 1..];
        match parse(behind) {
            Some((conversion, length)) if conversion.letter == b'%' => {
                text.push(b'%');
                rest = &behind[length..];
            }
            Some((conversion, length)) if taken + conversion.arguments() <= ARGUMENTS_MAX => {
                taken += conversion.arguments();
                conversion.print(arguments, &mut text)?;
                rest = &behind[length..];
            }
            _ => {
                text.push(b'%');
                rest = behind;
            }
        }
        if text.len() >= TEXT_BYTES_MAX {
            rest = &[];
        }
    }
    text.extend_from_slice(rest);
    text.truncate(TEXT_BYTES_MAX);
    Ok((text, taken))
}

/// Reads a conversion from behind `%`, and returns its length; `None` if it is none.
fn parse(text: &[u8]) -> Option<(Conversion, usize)> {
    let mut rest = text;
    let mut field = Field::default();
    while let Some((first, behind)) = rest.split_first() {
        match first {
            b'-' => field.left = true,
            b'+' => field.plus = true,
            b' ' => field.space = true,
            b'#' => field.alternative = true,
            b'0' => field.zero = true,
            _ => break,
        }
        rest = behind;
    }
    let width = amount(&mut rest);
    let mut precision = None;
    if let Some(behind) = rest.strip_prefix(b".") {
        rest = behind;
        precision = Some(amount(&mut rest).unwrap_or(Amount::Number(0)));
    }
    for (prefix, size) in [
        (&b"hh"[..], Size::Char),
        (b"h", Size::Short),
        (b"ll", Size::Long),
        (b"l", Size::Long),
        (b"j", Size::Long),
        (b"z", Size::Long),
        (b"t", Size::Long),
        (b"L", Size::Int),
    ] {
        if let Some(behind) = rest.strip_prefix(prefix) {
            (rest, field.size) = (behind, size);
            break;
        }
    }
    let (letter, behind) = rest.split_first()?;
    let conversion = Conversion {
        field,
        width,
        precision,
        letter: *letter,
    };
    let known = b"%diouxXcspfFeEgGaA".contains(letter);
    known.then_some((conversion, text.len() - behind.len()))
}

fn amount(rest: &mut &[u8]) -> Option<Amount> {
    if let Some(behind) = rest.strip_prefix(b"*") {
        *rest = behind;
        return Some(Amount::Argument);
    }
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, behind) = rest.split_at(digits);
    *rest = behind;
    let value = number.iter().fold(0_usize, |value, digit| {
        (value * 10 + usize::from(digit - b'0')).min(TEXT_BYTES_MAX)
    });
    (digits != 0).then_some(Amount::Number(value))
}

impl Conversion {
    /// The number of arguments that it takes.
    fn arguments(&self) -> u32 {
        let amounts = [self.width, self.precision];
        let stars = amounts.iter().filter(|a| **a == Some(Amount::Argument));
        1 + stars.count() as u32
    }

    fn print<A: Arguments>(&self, arguments: &mut A, text: &mut Vec<u8>) -> Result<(), A::Error> {
        let mut field = self.field;
        let mut resolve = |amount| {
            Ok(match amount {
                Amount::Number(number) => number as i64,
                Amount::Argument => i64::from(arguments.word()?.cast_signed()),
            })
        };
        let bounded = |value: i64| value.unsigned_abs().min(TEXT_BYTES_MAX as u64) as usize;
        if let Some(amount) = self.width {
            let width = resolve(amount)?;
            field.left |= width < 0;
            field.width = bounded(width);
        }
        if let Some(amount) = self.precision {
            let precision = resolve(amount)?;
            // A negative precision counts as none.
            field.precision = (precision >= 0).then(|| bounded(precision));
        }
        match self.letter {
            b'c' => {
                let character = [arguments.word()? as u8];
                field.pad(text, "", &character, false);
            }
            b's' => {
                let max = field.precision.unwrap_or(TEXT_BYTES_MAX);
                let string = match arguments.double()? {
                    0 => b"(null)"[..max.min(6)].to_vec(),
                    address => arguments.text(address, max)?,
                };
                field.pad(text, "", &string, false);
            }
            b'p' => match arguments.double()? {
                0 => field.pad(text, "", b"(nil)", false),
                address => field.integer(text, "0x", format!("{address:x}")),
            },
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' => {
                let bits = match field.size {
                    Size::Long => arguments.double()?,
                    _ => u64::from(arguments.word()?),
                };
                field.number(text, self.letter, bits);
            }
            letter => field.float(text, letter, f64::from_bits(arguments.double()?)),
        }
        Ok(())
    }
}

impl Field {
    /// Adds `sign` and `body`, filled up to the width: with zeros between the two if `zeros`.
    fn pad(&self, text: &mut Vec<u8>, sign: &str, body: &[u8], zeros: bool) {
        let fill = self.width.saturating_sub(sign.len() + body.len());
        let put = |text: &mut Vec<u8>, byte| text.resize(text.len() + fill, byte);
        let zeros = zeros && !self.left;
        if !self.left && !zeros {
            put(text, b' ');
        }
        text.extend_from_slice(sign.as_bytes());
        if zeros {
            put(text, b'0');
        }
        text.extend_from_slice(body);
        if self.left {
            put(text, b' ');
        }
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    /// Adds the integer whose low bits are `bits`.
    fn number(&self, text: &mut Vec<u8>, letter: u8, bits: u64) {
        let (signed, unsigned) = match self.size {
            Size::Char => (i64::from(bits as i8), u64::from(bits as u8)),
            Size::Short => (i64::from(bits as i16), u64::from(bits as u16)),
            Size::Int => (i64::from(bits as i32), u64::from(bits as u32)),
            Size::Long => (bits.cast_signed(), bits),
        };
        let prefix = |prefix| {
            if self.alternative && unsigned != 0 {
                prefix
            } else {
                ""
            }
        };
        match letter {
            b'o' => {
                let mut digits = format!("{unsigned:o}");
                if self.alternative && !digits.starts_with('0') {
                    digits.insert(0, '0');
                }
                self.integer(text, "", digits);
            }
            b'x' => self.integer(text, prefix("0x"), format!("{unsigned:x}")),
            b'X' => self.integer(text, prefix("0X"), format!("{unsigned:X}")),
            b'u' => self.integer(text, "", unsigned.to_string()),
            _ => {
                let digits = signed.unsigned_abs().to_string();
                self.integer(text, self.sign(signed < 0), digits);
            }
        }
    }

    /// Adds an integer of these digits. Its precision is the least number of digits.
    fn integer(&self, text: &mut Vec<u8>, sign: &str, mut digits: String) {
        if let Some(precision) = self.precision {
            if precision == 0 && digits == "0" {
                digits.clear();
            }
            let missing = precision.saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(missing));
        }
        let zeros = self.zero && self.precision.is_none();
        self.pad(text, sign, digits.as_bytes(), zeros);
    }

    fn float(&self, text: &mut Vec<u8>, letter: u8, value: f64) {
        let magnitude = value.abs();
        let body = match letter.to_ascii_lowercase() {
            _ if value.is_nan() => String::from("nan"),
            _ if value.is_infinite() => String::from("inf"),
            b'f' => self.fixed(magnitude, self.precision.unwrap_or(6)),
            b'e' => self.scientific(magnitude, self.precision.unwrap_or(6)),
            b'g' => self.shorter(magnitude),
            _ => self.hexadecimal(magnitude),
        };
        let mut sign = String::from(self.sign(value.is_sign_negative()));
        let (body, hexadecimal) = match body.strip_prefix("0x") {
            Some(digits) => (digits.to_owned(), "0x"),
            None => (body, ""),
        };
        sign.push_str(hexadecimal);
        if letter.is_ascii_uppercase() {
            sign.make_ascii_uppercase();
        }
        let body = match letter.is_ascii_uppercase() {
            true => body.to_ascii_uppercase(),
            false => body,
        };
        self.pad(text, &sign, body.as_bytes(), self.zero && value.is_finite());
    }

    /// `%f`
    fn fixed(&self, value: f64, precision: usize) -> String {
        let mut text = format!("{value:.precision$}");
        if self.alternative && precision == 0 {
            text.push('.');
        }
        text
    }

    /// `%e`: an exponent of two digits at least.
    fn scientific(&self, value: f64, precision: usize) -> String {
        let (mantissa, exponent) = decimal(value, precision);
        let point = if self.alternative && precision == 0 {
            "."
        } else {
            ""
        };
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}{point}e{sign}{:02}", exponent.unsigned_abs())
    }

    /// `%g`: `%e` or `%f`, whichever suits the exponent, without zeros at the end.
    fn shorter(&self, value: f64) -> String {
        let digits = self.precision.unwrap_or(6).max(1);
        let (_, exponent) = decimal(value, digits - 1);
        let text = if (-4..digits as i64).contains(&exponent) {
            self.fixed(value, (digits as i64 - 1 - exponent) as usize)
        } else {
            self.scientific(value, digits - 1)
        };
        if self.alternative || !text.contains('.') {
            return text;
        }
        let (mantissa, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        format!("{mantissa}{exponent}")
    }

    /// `%a`, which rounds to the nearest, and to even between two.
    fn hexadecimal(&self, value: f64) -> String {
        const FRACTION_BITS: usize = 52;
        let bits = value.to_bits();
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let (whole, exponent) = match (bits >> FRACTION_BITS, fraction) {
            (0, 0) => (0, 0),
            (0, _) => (0, -1022),
            (biased, _) => (1, biased as i64 - 1023),
        };
        let mut mantissa = (whole << FRACTION_BITS) | fraction;
        let mut digits = FRACTION_BITS / 4;
        if let Some(precision) = self.precision.filter(|p| *p < digits) {
            let cut = 4 * (digits - precision);
            let half = 1_u64 << (cut - 1);
            let odd = (mantissa >> cut) & 1;
            mantissa = (mantissa + half - 1 + odd) >> cut;
            digits = precision;
        }
        let whole = mantissa >> (4 * digits);
        let fraction = mantissa & ((1 << (4 * digits)) - 1);
        let mut text = format!("0x{whole}");
        let mut hex = match digits {
            0 => String::new(),
            _ => format!("{fraction:0digits$x}"),
        };
        match self.precision {
            None => hex.truncate(hex.trim_end_matches('0').len()),
            Some(precision) => hex.push_str(&"0".repeat(precision.saturating_sub(hex.len()))),
        }
        if self.alternative || !hex.is_empty() {
            text.push('.');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{hex}p{exponent:+}");
        text
    }
}

/// Returns the digits `d.ddd` of a number that is finite and not negative, with `precision` behind
/// the point, and its decimal exponent.
fn decimal(value: f64, precision: usize) -> (String, i64) {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.to_owned(), exponent.parse().unwrap_or(0))
}

#[cfg(test)]
#[path = "printf_tests.rs"]
mod tests;
