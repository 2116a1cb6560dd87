//! Variable-length integers of QUIC (RFC 9000 §16): 6, 14, 30 or 62 bits, selected by the first two bits.

/// The largest value.
pub(super) const MAX: u64 = (1 << 62) - 1;

/// How many bytes a value that begins with `first` takes.
pub(super) const fn length_by(first: u8) -> usize {
    1 << (first >> 6)
}

/// The value at the front of `bytes` and how many bytes it takes; `None` if they end before it does. It need not have
/// its shortest form.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = length_by(first);
    let rest = bytes.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Takes a value off the front of `bytes`.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (value, length) = decode(bytes)?;
    *bytes = &bytes[length..];
    Some(value)
}

/// Appends `value`, at most [`MAX`], in its shortest form.
pub(super) fn encode(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value.min(MAX) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_appendix_a_1_hold() {
        let eight = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(decode(&eight), Some((151_288_809_941_952_652, 8)));
        assert_eq!(decode(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
        assert_eq!(decode(&[0x7b, 0xbd]), Some((15_293, 2)));
        assert_eq!(decode(&[0x25]), Some((37, 1)));
        assert_eq!(decode(&[0x40, 0x25]), Some((37, 2)), "not the shortest form, and allowed");
    }

    #[test]
    fn each_form_begins_where_the_one_before_it_ends() {
        for (value, length) in [
            (0, 1),
            (0x3f, 1),
            (0x40, 2),
            (0x3fff, 2),
            (0x4000, 4),
            (0x3fff_ffff, 4),
            (0x4000_0000, 8),
            (MAX, 8),
        ] {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!((out.len(), decode(&out)), (length, Some((value, length))), "{value}");
            assert_eq!(decode(&out[..length - 1]), None, "{value} cut short");
        }
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(value in 0..=MAX) {
            let mut out = Vec::new();
            encode(value, &mut out);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }
    }
}
