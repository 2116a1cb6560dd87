//! The internet checksum (RFC 1071).

/// The sum of 16-bit words (RFC 1071), not yet folded; an odd byte is the upper half of a last word. Only the last part of
/// what is summed may have an odd length.
pub(super) fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let odd = rest.first().map_or(0, |&byte| u64::from(byte) << 8);
    words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum::<u64>() + odd
}

/// Folds a sum to 16 bits, in ones' complement.
pub(super) const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
