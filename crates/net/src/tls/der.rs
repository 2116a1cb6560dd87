//! As much of DER (X.690) as is needed to read a name or a time of a certificate.

/// A sequence.
pub(super) const SEQUENCE: u8 = 0x30;
/// A set.
pub(super) const SET: u8 = 0x31;
/// An object identifier.
pub(super) const OID: u8 = 0x06;

/// Takes an element from `der`: its tag and its content. `None` at the end, and if the element is malformed or 64 KiB
/// long.
pub(super) fn next<'a>(der: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
        0x80 | 0x83.. => return None,
    };
    let content = rest.get(..length)?;
    *der = rest.get(length..)?;
    Some((tag, content))
}
