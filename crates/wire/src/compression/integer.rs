//! Integers with an N-bit prefix (RFC 7541 §5.1), strings (§5.2), and the reader over a block.

use super::{CompressionError, huffman};

/// Appends `value` with a prefix of `bits` bits (1 to 8); `pattern` holds the bits above the prefix.
pub(crate) fn encode(value: u32, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let limit = (1_u32 << bits) - 1;
    if value < limit {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string literal, Huffman-coded if that is shorter. Its length has a prefix of `bits` bits; the bit above
/// them selects the code, and `pattern` holds the bits above.
pub(crate) fn put_string(bytes: &[u8], bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let coded = huffman::encoded_length(bytes);
    if coded < bytes.len() {
        encode(coded as u32, bits, pattern | 1 << bits, out);
        huffman::encode(bytes, out);
    } else {
        put_plain_string(bytes, bits, pattern, out);
    }
}

/// Appends a string literal as it is, without the Huffman code; otherwise as [`put_string`].
pub(crate) fn put_plain_string(bytes: &[u8], bits: u32, pattern: u8, out: &mut Vec<u8>) {
    encode(bytes.len() as u32, bits, pattern, out);
    out.extend_from_slice(bytes);
}

/// Reads the representations of one block in order.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    /// The first byte of the next representation, which encodes its kind.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn byte(&mut self) -> Result<u8, CompressionError> {
        let (&first, rest) = self.rest.split_first().ok_or(CompressionError("a field block is truncated"))?;
        self.rest = rest;
        Ok(first)
    }

    /// An integer with a prefix of `bits` bits. Values above 2^32 − 1 are refused: nothing legal is that large.
    pub(crate) fn integer(&mut self, bits: u32) -> Result<u32, CompressionError> {
        let limit = (1_u32 << bits) - 1;
        let first = u32::from(self.byte()?) & limit;
        if first < limit {
            return Ok(first);
        }
        let mut value = u64::from(limit);
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| CompressionError("an integer is too large"));
            }
        }
        Err(CompressionError("an integer is too long"))
    }

    /// Appends a string literal (RFC 7541 §5.2, RFC 9204 §4.1.2) to `out`: its length has a prefix of `bits` bits, and
    /// the bit above them says whether it is Huffman-coded.
    pub(crate) fn string(&mut self, bits: u32, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let coded = self.peek().is_some_and(|byte| byte >> bits & 1 != 0);
        let length = self.integer(bits)? as usize;
        if length > self.rest.len() {
            return Err(CompressionError("a string literal runs past its block"));
        }
        let (string, rest) = self.rest.split_at(length);
        self.rest = rest;
        if coded {
            huffman::decode(string, out)
        } else {
            out.extend_from_slice(string);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_7541_appendix_c_1_hold() {
        for (value, bits, bytes) in
            [(10, 5, vec![0x0a]), (1337, 5, vec![0x1f, 0x9a, 0x0a]), (42, 8, vec![0x2a])]
        {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(Reader::new(&bytes).integer(bits), Ok(value));
        }
    }

    #[test]
    fn the_largest_value_is_read_and_one_more_is_refused() {
        let largest = [0xff, 0x80, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(Reader::new(&largest).integer(7), Ok(u32::MAX));
        let larger = [0xff, 0x81, 0xff, 0xff, 0xff, 0x0f];
        assert!(Reader::new(&larger).integer(7).is_err());
        let endless = [0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert!(Reader::new(&endless).integer(7).is_err());
        assert!(Reader::new(&[0xff, 0x80]).integer(7).is_err(), "truncated");
    }

    #[test]
    fn a_string_may_fill_its_block_and_not_more() {
        let mut out = Vec::new();
        assert_eq!(Reader::new(&[2, b'o', b'k']).string(7, &mut out), Ok(()));
        assert_eq!(out, b"ok");
        assert!(Reader::new(&[3, b'o', b'k']).string(7, &mut out).is_err());
    }

    proptest! {
        #[test]
        fn integers_survive_a_round_trip(value: u32, bits in 1_u32..=8) {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            prop_assert_eq!(Reader::new(&out).integer(bits), Ok(value));
        }
    }
}
