//! The Huffman code of RFC 7541 Appendix B.
//!
//! The code is canonical: among codes of one length the values rise with the symbol. So the 257 lengths are the whole
//! table; codes and decoding limits are computed from them when the crate is compiled. Decoding takes one symbol per
//! look-up from a 64-bit window: the 8-bit table (512 bytes) covers all that usual text is made of, longer codes are
//! found by comparing with the limit of each length. A nibble automaton was rejected: 16 KiB of tables and two
//! dependent loads per byte.

use super::CompressionError;

/// Code lengths in bits by symbol; the last is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The symbol that may appear only as padding, cut short.
const EOS: u16 = 256;
/// The longest code, in bits.
const LONGEST: usize = 30;

/// All that both directions need.
struct Tables {
    /// The code of each symbol, in its low bits.
    codes: [u32; 257],
    /// Symbols by code length, and within it by symbol.
    sorted: [u16; 257],
    /// By length: the position in `sorted` of its first symbol.
    first_symbol: [u16; LONGEST + 1],
    /// By length: its first code.
    first_code: [u32; LONGEST + 1],
    /// By length: one past its last code, shifted to the top of 32 bits.
    limit: [u64; LONGEST + 1],
    /// By the next 8 bits: symbol and length of a code of at most 8 bits; length 0 for the beginning of a longer one.
    short: [(u8, u8); 256],
}

static TABLES: Tables = build();

const fn build() -> Tables {
    let mut tables = Tables {
        codes: [0; 257],
        sorted: [0; 257],
        first_symbol: [0; LONGEST + 1],
        first_code: [0; LONGEST + 1],
        limit: [0; LONGEST + 1],
        short: [(0, 0); 256],
    };
    let (mut next, mut place, mut length) = (0_u32, 0, 1);
    while length <= LONGEST {
        tables.first_code[length] = next;
        tables.first_symbol[length] = place as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                tables.codes[symbol] = next;
                tables.sorted[place] = symbol as u16;
                place += 1;
                if length <= 8 {
                    fill_short(&mut tables.short, symbol as u8, next, length);
                }
                next += 1;
            }
            symbol += 1;
        }
        tables.limit[length] = (next as u64) << (32 - length);
        next <<= 1;
        length += 1;
    }
    tables
}

/// Every 8-bit window that begins with this code leads to its symbol.
const fn fill_short(short: &mut [(u8, u8); 256], symbol: u8, code: u32, length: usize) {
    let first = (code as usize) << (8 - length);
    let mut i = 0;
    while i < 1 << (8 - length) {
        short[first + i] = (symbol, length as u8);
        i += 1;
    }
}

/// How many bytes [`encode`] would append.
pub(crate) fn encoded_length(bytes: &[u8]) -> usize {
    let bits: usize = bytes.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of `bytes`, padded with the most significant bits of EOS.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut used) = (0_u64, 0_u32);
    for &byte in bytes {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        window = window << length | u64::from(TABLES.codes[usize::from(byte)]);
        used += length;
        while used >= 8 {
            used -= 8;
            out.push((window >> used) as u8);
        }
    }
    if used > 0 {
        out.push((window << (8 - used)) as u8 | 0xff >> used);
    }
}

/// Appends the decoded form of `coded`.
pub(crate) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    // `window` holds `held` bits at its top; the bits below are zero.
    let (mut window, mut held) = (0_u64, 0_u32);
    let mut bytes = coded.iter();
    loop {
        while held <= 56 {
            let Some(&byte) = bytes.next() else { break };
            window |= u64::from(byte) << (56 - held);
            held += 8;
        }
        let (mut symbol, mut length) = TABLES.short[(window >> 56) as usize];
        if length == 0 {
            (symbol, length) = long_code(window >> 32, held)?;
        }
        // A match that needs more bits than there are is not a match: what is left must be padding.
        if u32::from(length) > held || length == 0 {
            break;
        }
        out.push(symbol);
        window <<= length;
        held -= u32::from(length);
    }
    match held {
        0 => Ok(()),
        1..=7 if window.leading_ones() >= held => Ok(()),
        1..=7 => Err(CompressionError("Huffman padding is not made of ones")),
        _ => Err(CompressionError("Huffman padding is longer than 7 bits")),
    }
}

/// The symbol and length of the code of more than 8 bits at the top of `window` (32 bits).
fn long_code(window: u64, held: u32) -> Result<(u8, u8), CompressionError> {
    for length in 9..=LONGEST {
        if window < TABLES.limit[length] {
            let code = (window >> (32 - length)) as u32;
            let place = u32::from(TABLES.first_symbol[length]) + (code - TABLES.first_code[length]);
            let symbol = TABLES.sorted[place as usize];
            return match symbol {
                EOS if held >= LONGEST as u32 => Err(CompressionError("a Huffman string contains EOS")),
                EOS => Ok((0, LONGEST as u8)),
                _ => Ok((symbol as u8, length as u8)),
            };
        }
    }
    // The last limit is 2^32, above every window.
    Ok((0, 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        out
    }

    #[test]
    fn the_code_is_complete_and_ends_with_eos() {
        assert_eq!(TABLES.codes[256], (1 << 30) - 1);
        assert_eq!(TABLES.limit[LONGEST], 1 << 32);
        assert_eq!(TABLES.codes[usize::from(b'0')], 0);
        assert_eq!(TABLES.codes[usize::from(b'w')], 0x78, "RFC 7541 Appendix B");
        assert_eq!(TABLES.codes[249], 0x0fff_fffe, "RFC 7541 Appendix B");
    }

    #[test]
    fn the_examples_of_rfc_7541_appendix_c_4_hold() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(encoded(b"www.example.com"), host);
        assert_eq!(decoded(&host).unwrap(), b"www.example.com");
        assert_eq!(encoded(b"no-cache"), [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]);
    }

    #[test]
    fn every_single_byte_survives() {
        for byte in 0..=255 {
            assert_eq!(decoded(&encoded(&[byte])).unwrap(), [byte]);
        }
    }

    #[test]
    fn padding_of_seven_ones_is_taken_and_anything_else_refused() {
        // 'a' is 00011, 'b' is 100011: 11 bits, then 5 of padding.
        assert_eq!(decoded(&[0b0001_1100, 0b0111_1111]).unwrap(), b"ab");
        assert!(decoded(&[0b0001_1100, 0b0111_1110]).is_err(), "a zero in the padding");
        // '?' is 1111111100: 10 bits and 6 of padding; one more byte of ones is too much.
        assert_eq!(decoded(&[0xff, 0b0011_1111]).unwrap(), b"?");
        assert!(decoded(&[0xff, 0b0011_1111, 0xff]).is_err());
        assert!(decoded(&[0xff]).is_err(), "eight bits of padding");
        assert!(decoded(&[0xff; 4]).is_err(), "EOS itself");
    }

    proptest! {
        #[test]
        fn bytes_survive_a_round_trip(text: Vec<u8>) {
            let coded = encoded(&text);
            prop_assert_eq!(coded.len(), encoded_length(&text));
            prop_assert_eq!(decoded(&coded).unwrap(), text);
        }

        #[test]
        fn random_codes_never_panic(coded: Vec<u8>) {
            if let Ok(text) = decoded(&coded) {
                prop_assert_eq!(encoded(&text), coded, "the code has one form for each text");
            }
        }
    }
}
