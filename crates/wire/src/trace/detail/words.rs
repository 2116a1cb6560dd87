//! Names.

use std::fmt::Write as _;

use crate::h2::frame::flag;
use crate::trace::FrameKind;

/// Settings by their number, without `SETTINGS_` (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
const SETTINGS: [(u16, &str); 8] = [
    (1, "HEADER_TABLE_SIZE"),
    (2, "ENABLE_PUSH"),
    (3, "MAX_CONCURRENT_STREAMS"),
    (4, "INITIAL_WINDOW_SIZE"),
    (5, "MAX_FRAME_SIZE"),
    (6, "MAX_HEADER_LIST_SIZE"),
    (8, "ENABLE_CONNECT_PROTOCOL"),
    (9, "NO_RFC7540_PRIORITIES"),
];

/// The name of a setting, or its number in hexadecimal.
pub(super) fn setting_name(id: u16) -> String {
    let known = SETTINGS.iter().find(|(number, _)| *number == id);
    known.map_or_else(|| format!("{id:#06x}"), |(_, name)| (*name).to_owned())
}

/// The flags of a frame by their names in RFC 9113 §6, lowest bit first; bits without a meaning there in hexadecimal.
pub fn flag_names(kind: FrameKind, flags: u8) -> Vec<String> {
    let known: &[(u8, &str)] = match kind {
        FrameKind::DATA => &[(flag::END_STREAM, "END_STREAM"), (flag::PADDED, "PADDED")],
        FrameKind::HEADERS => &[
            (flag::END_STREAM, "END_STREAM"),
            (flag::END_HEADERS, "END_HEADERS"),
            (flag::PADDED, "PADDED"),
            (flag::PRIORITY, "PRIORITY"),
        ],
        FrameKind::PUSH_PROMISE => &[(flag::END_HEADERS, "END_HEADERS"), (flag::PADDED, "PADDED")],
        FrameKind::CONTINUATION => &[(flag::END_HEADERS, "END_HEADERS")],
        FrameKind::SETTINGS | FrameKind::PING => &[(flag::ACK, "ACK")],
        _ => &[],
    };
    let named = known.iter().filter(|(bit, _)| flags & bit != 0);
    let rest = known.iter().fold(flags, |rest, (bit, _)| rest & !bit);
    named.map(|(_, name)| (*name).to_owned()).chain((rest != 0).then(|| format!("{rest:#04x}"))).collect()
}

/// Octets in hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_names_of_their_frame_type() {
        assert_eq!(flag_names(FrameKind::HEADERS, 0x2d), ["END_STREAM", "END_HEADERS", "PADDED", "PRIORITY"]);
        assert_eq!(flag_names(FrameKind::SETTINGS, 1), ["ACK"]);
        assert_eq!(flag_names(FrameKind::DATA, 0x84), ["0x84"], "no meaning there");
        assert_eq!(flag_names(FrameKind(0xaa), 1), ["0x01"]);
        assert!(flag_names(FrameKind::GOAWAY, 0).is_empty());
    }

    #[test]
    fn settings_have_names_or_numbers() {
        assert_eq!(
            (setting_name(3), setting_name(7)),
            ("MAX_CONCURRENT_STREAMS".to_owned(), "0x0007".to_owned())
        );
    }
}
