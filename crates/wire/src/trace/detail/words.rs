//! Names and printable text.

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

/// `bytes` as text that is safe on a terminal and in a line: what is not printable becomes `\xNN`, `\n` and the like.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            // Also what turns the direction of text or hides it: the reader must see what was sent.
            let is_hidden = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            match character {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                _ if character.is_control() || is_hidden => {
                    let _ = write!(text, "\\u{{{:x}}}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
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

    #[test]
    fn nothing_reaches_a_terminal_that_it_would_obey() {
        assert_eq!(printable(b"caf\xc3\xa9 \x1b[2J\r\n\xff\\"), "café \\u{1b}[2J\\r\\n\\xff\\\\");
        assert_eq!(printable("a\u{202e}b\u{85}".as_bytes()), "a\\u{202e}b\\u{85}");
    }
}
