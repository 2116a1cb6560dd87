//! Text with placeholders that are filled anew in each request: `/item/{{random 1..1000}}`.
//!
//! A placeholder's text is a function of the seed, its place and the request's number. So the same seed
//! makes the same requests, and a replayed one is identical without being stored.

use h2lab_base::random::Counter;

/// The most digits of `{{hex N}}`.
const MOST_HEX: u32 = 1024;

/// Why a text is not a valid template. Positions count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `{{` without its `}}`.
    #[error("`{{{{` at position {position} is never closed by `}}}}`; write `{{{{{{{{` for a literal `{{{{`")]
    Unclosed {
        /// Its position.
        position: usize,
    },
    /// No placeholder has this name.
    #[error(
        "unknown placeholder `{placeholder}` at position {position}; there are counter, random LOW..HIGH, hex DIGITS, uuid and pick A|B|…"
    )]
    Unknown {
        /// The text between the braces.
        placeholder: String,
        /// Its position.
        position: usize,
    },
    /// The placeholder is known, its argument is invalid.
    #[error("placeholder `{placeholder}` at position {position}: expected {expected}")]
    BadArgument {
        /// The text between the braces.
        placeholder: String,
        /// Its position.
        position: usize,
        /// What should follow the name.
        expected: &'static str,
    },
}

/// A text without its placeholders: what goes on the wire as it stands.
pub fn without_placeholders(text: &str) -> String {
    let mut pieces = text.split("{{");
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.split_once("}}").map_or(piece, |(_, after)| after));
    std::iter::once(first).chain(rest).collect()
}

/// A parsed template.
#[derive(Debug, Clone)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    /// The request's number.
    Counter,
    /// One of `count` numbers from `low` on.
    Random {
        low: u64,
        count: u128,
        random: Counter,
    },
    Hex {
        digits: u32,
        random: Counter,
    },
    Uuid {
        random: Counter,
    },
    Pick {
        choices: Vec<String>,
        random: Counter,
    },
}

impl Template {
    /// Parses `text`. `place` identifies this text within a request (`path`, `header x-id` …): equal placeholders
    /// in different places, or one after the other in the same, get different values.
    ///
    /// `{{counter}}` is the number of the request, from 0; `{{random LOW..HIGH}}` a whole number from LOW to HIGH, both
    /// included; `{{hex DIGITS}}` this many hexadecimal digits, 1 to 1024; `{{uuid}}` a version 4 UUID (RFC 9562 §5.4);
    /// `{{pick A|B|C}}` one of these texts; `{{{{` a literal `{{`.
    pub fn parse(text: &str, seed: u64, place: &str) -> Result<Self, TemplateError> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            literal.push_str(&rest[..open]);
            let begin = text.len() - rest.len() + open;
            let inside = &rest[open + 2..];
            if let Some(after) = inside.strip_prefix("{{") {
                literal.push_str("{{");
                rest = after;
                continue;
            }
            let position = text[..begin].chars().count() + 1;
            let close = inside.find("}}").ok_or(TemplateError::Unclosed { position })?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            let random = Counter::new(seed, &format!("template {place} {}", parts.len()));
            parts.push(Part::parse(inside[..close].trim(), position, random)?);
            rest = &inside[close + 2..];
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// Appends the text for request `number`.
    pub fn render(&self, number: u64, out: &mut Vec<u8>) {
        for part in &self.parts {
            part.render(number, out);
        }
    }
}

impl Part {
    fn parse(placeholder: &str, position: usize, random: Counter) -> Result<Self, TemplateError> {
        let (name, argument) = placeholder.split_once(char::is_whitespace).unwrap_or((placeholder, ""));
        let argument = argument.trim();
        let bad =
            |expected| TemplateError::BadArgument { placeholder: placeholder.to_owned(), position, expected };
        match name {
            "counter" | "uuid" if !argument.is_empty() => Err(bad("nothing after the name")),
            "counter" => Ok(Self::Counter),
            "uuid" => Ok(Self::Uuid { random }),
            "random" => {
                let (low, count) =
                    range(argument).ok_or_else(|| bad("LOW..HIGH, whole numbers, such as 1..1000"))?;
                Ok(Self::Random { low, count, random })
            }
            "hex" => {
                let digits = argument.parse().ok().filter(|digits| (1..=MOST_HEX).contains(digits));
                let digits = digits.ok_or_else(|| bad("a number of digits from 1 to 1024"))?;
                Ok(Self::Hex { digits, random })
            }
            "pick" => {
                let choices: Vec<String> = argument.split('|').map(str::to_owned).collect();
                let choice = choices.len() > 1;
                choice.then_some(Self::Pick { choices, random }).ok_or_else(|| bad("A|B|…, two or more"))
            }
            _ => Err(TemplateError::Unknown { placeholder: placeholder.to_owned(), position }),
        }
    }

    fn render(&self, number: u64, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Counter => decimal(number, out),
            Self::Random { low, count, random } => {
                decimal(low + scale(random.at(number), *count) as u64, out);
            }
            Self::Hex { digits, random } => {
                let words = u64::from(digits.div_ceil(16));
                for digit in 0..*digits {
                    let word = random.at(number.wrapping_mul(words).wrapping_add(u64::from(digit / 16)));
                    out.push(hex(word >> (4 * (digit % 16))));
                }
            }
            Self::Uuid { random } => {
                let first = random.at(number.wrapping_mul(2));
                uuid(first, random.at(number.wrapping_mul(2).wrapping_add(1)), out);
            }
            Self::Pick { choices, random } => {
                let choice = scale(random.at(number), choices.len() as u128);
                out.extend_from_slice(choices[choice as usize].as_bytes());
            }
        }
    }
}

/// The lowest number of `LOW..HIGH`, and how many there are.
fn range(text: &str) -> Option<(u64, u128)> {
    let (low, high) = text.split_once("..")?;
    let (low, high) = (low.trim().parse::<u64>().ok()?, high.trim().parse::<u64>().ok()?);
    (low <= high).then(|| (low, u128::from(high - low) + 1))
}

/// 64 random bits as a number below `count`, which is 2^64 at most. The bias is below count / 2^64.
const fn scale(bits: u64, count: u128) -> u128 {
    // Written out, since 64 bits times 2^64 still fits 128.
    ((bits as u128) * count) >> 64
}

fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let begin = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[begin..].reverse();
}

/// The digit of the lowest four bits.
const fn hex(bits: u64) -> u8 {
    b"0123456789abcdef"[(bits & 15) as usize]
}

/// A version 4 UUID (RFC 9562 §5.4): 122 random bits, the version and the variant.
fn uuid(high: u64, low: u64, out: &mut Vec<u8>) {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & (u64::MAX >> 2)) | 1 << 63;
    for nibble in 0..32_u32 {
        if matches!(nibble, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        let word = if nibble < 16 { high } else { low };
        out.push(hex(word >> (60 - 4 * (nibble % 16))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, number: u64) -> String {
        let mut out = Vec::new();
        Template::parse(text, 42, "path").unwrap().render(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_left_without_placeholders_goes_on_the_wire_as_it_stands() {
        for (text, left) in [
            ("/a/{{random 1..9}}/b?{{ pick x|y z }}", "/a//b?"),
            ("/{{counter}}{{uuid}}", "/"),
            ("/plain", "/plain"),
            ("/{{open", "/open"),
        ] {
            assert_eq!(without_placeholders(text), left);
        }
    }

    #[test]
    fn a_scenario_may_have_a_path_with_spaces_in_placeholders_only() {
        use crate::scenario::Scenario;
        let of = |path: &str, template: bool| {
            Scenario::from_toml(&format!("[work]\npath = '{path}'\ntemplate = {template}")).is_ok()
        };
        assert!(of("/{{random 1..9}}", true) && !of("/{{random 1..9}}", false));
        assert!(!of("/{{random 1..9}} b", true));
    }

    #[test]
    fn text_stays_and_braces_are_written_twice() {
        assert_eq!(rendered("/a{b}?c={{{{d}}", 3), "/a{b}?c={{d}}");
        assert_eq!(rendered("", 3), "");
        assert_eq!(
            rendered("/{{counter}}-{{ counter }}/é", 18_446_744_073_709_551_615),
            "/18446744073709551615-18446744073709551615/é"
        );
        assert_eq!(rendered("{{counter}}", 0), "0");
    }

    #[test]
    fn a_random_number_takes_every_value_of_its_range_and_no_other() {
        let mut seen = [0_u32; 3];
        for number in 0..3_000 {
            let value: usize = rendered("{{random 7..9}}", number).parse().unwrap();
            seen[value - 7] += 1;
        }
        assert!(seen.iter().all(|&n| (900..1_100).contains(&n)), "{seen:?}");
        assert_eq!(rendered("{{random 5..5}}", 1), "5");
        let whole = rendered("{{random 0..18446744073709551615}}", 1);
        assert!(whole.parse::<u64>().is_ok(), "{whole}");
    }

    #[test]
    fn hex_digits_are_as_many_as_asked_for() {
        for digits in [1, 15, 16, 17, 1024] {
            let text = rendered(&format!("{{{{hex {digits}}}}}"), 9);
            assert_eq!(text.len(), digits);
            assert!(text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{text}");
        }
        assert_ne!(rendered("{{hex 32}}", 1)[..16], rendered("{{hex 32}}", 1)[16..]);
        assert_ne!(rendered("{{hex 32}}", 1)[16..], rendered("{{hex 32}}", 2)[..16], "words are used once");
    }

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        for number in 0..100 {
            let uuid = rendered("{{uuid}}", number);
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(uuid.as_bytes()[14], b'4');
            assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
    }

    #[test]
    fn a_pick_is_one_of_the_choices() {
        let picked: std::collections::BTreeSet<String> =
            (0..200).map(|number| rendered("{{pick a|b c|}}", number)).collect();
        assert_eq!(picked.into_iter().collect::<Vec<_>>(), ["", "a", "b c"]);
    }

    #[test]
    fn the_same_seed_place_and_number_give_the_same_text_and_each_of_them_counts() {
        let of = |seed, place, number| {
            let mut out = Vec::new();
            Template::parse("{{hex 16}} {{hex 16}}", seed, place).unwrap().render(number, &mut out);
            out
        };
        let text = of(1, "path", 5);
        assert_eq!(text, of(1, "path", 5));
        assert_ne!(text[..16], text[17..], "two of a kind differ");
        for other in [of(2, "path", 5), of(1, "body", 5), of(1, "path", 6)] {
            assert_ne!(text, other);
        }
    }

    #[test]
    fn errors_name_the_placeholder_and_where_it_stands() {
        let error = |text: &str| Template::parse(text, 0, "path").unwrap_err();
        assert_eq!(error("/é/{{counter"), TemplateError::Unclosed { position: 4 });
        assert_eq!(
            error("{{{{{{count}}"),
            TemplateError::Unknown { placeholder: "count".to_owned(), position: 5 }
        );
        let bad = [
            "random 9..8",
            "random 1",
            "random a..b",
            "hex 0",
            "hex 1025",
            "hex",
            "pick a",
            "counter 1",
            "uuid 4",
        ];
        for placeholder in bad {
            match error(&format!("/{{{{{placeholder}}}}}")) {
                TemplateError::BadArgument { placeholder: named, position: 2, .. } => {
                    assert_eq!(named, placeholder);
                }
                other => panic!("{placeholder}: {other:?}"),
            }
        }
        assert_eq!(
            error("a{{x}}").to_string(),
            "unknown placeholder `x` at position 2; there are counter, random LOW..HIGH, hex DIGITS, uuid and pick A|B|…"
        );
    }
}
