//! Priorities of responses (RFC 9218): what a client requests, as a value and as text.

use std::collections::VecDeque;
use std::fmt;

/// How urgently a client wants a response, and whether it can use a part of it (RFC 9218 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// The client can use the response piece by piece as it arrives; otherwise only as a whole.
    pub incremental: bool,
}

impl Default for Priority {
    /// Urgency 3, as a whole (RFC 9218 §4.1, §4.2).
    fn default() -> Self {
        Self { urgency: Self::DEFAULT_URGENCY, incremental: false }
    }
}

impl Priority {
    /// The urgency of a response without a stated one.
    pub const DEFAULT_URGENCY: u8 = 3;
    /// How many urgencies there are.
    pub const URGENCIES: usize = 8;

    /// This priority updated by the value of a `priority` field: a dictionary of RFC 8941. Members that are unknown, of
    /// another type or out of range are ignored, as RFC 9218 §4 demands; of duplicates the last counts.
    #[must_use]
    pub fn updated_by(mut self, value: &[u8]) -> Self {
        for member in members(value) {
            let (key, value) = match member.iter().position(|byte| matches!(byte, b'=' | b';')) {
                Some(at) if member[at] == b'=' => (&member[..at], without_parameters(&member[at + 1..])),
                Some(at) => (&member[..at], &b"?1"[..]),
                None => (member, &b"?1"[..]),
            };
            match (key, value) {
                (b"u", [digit @ b'0'..=b'7']) => self.urgency = digit - b'0',
                (b"i", b"?1") => self.incremental = true,
                (b"i", b"?0") => self.incremental = false,
                _ => {}
            }
        }
        self
    }
}

impl fmt::Display for Priority {
    /// `u=3` or `u=3, i`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u={}{}", self.urgency, if self.incremental { ", i" } else { "" })
    }
}

/// The members of a dictionary, without the white space around them. A comma within a string or an inner list does not
/// separate.
fn members(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = find_outside(rest, b',');
        let member = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(member)
    })
}

/// A member's value without its parameters.
fn without_parameters(value: &[u8]) -> &[u8] {
    value[..find_outside(value, b';')].trim_ascii_end()
}

/// Where `wanted` first occurs outside of strings and inner lists; the end if nowhere.
fn find_outside(bytes: &[u8], wanted: u8) -> usize {
    let (mut in_string, mut escaped, mut depth) = (false, false, 0_u32);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ if byte == wanted && depth == 0 => return at,
            _ => {}
        }
    }
    bytes.len()
}

/// Priorities for requests that are still to come, which a client may send first. The oldest are dropped: few requests
/// in flight can already have been reprioritised.
#[derive(Debug, Default)]
pub(super) struct EarlyPriorities(VecDeque<(u32, Priority)>);

impl EarlyPriorities {
    /// How many are kept.
    const MOST: usize = 100;

    pub(super) fn put(&mut self, stream: u32, value: &[u8]) {
        // It replaces the earlier one: what it leaves out has its default.
        self.take(stream);
        let priority = Priority::default().updated_by(value);
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back((stream, priority));
    }

    /// The priority for a stream that begins now. It overrides the `priority` field, being later (RFC 9218 §7).
    pub(super) fn take(&mut self, stream: u32) -> Option<Priority> {
        if self.0.is_empty() {
            return None;
        }
        let at = self.0.iter().position(|(early, _)| *early == stream)?;
        self.0.remove(at).map(|(_, priority)| priority)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(value: &str) -> (u8, bool) {
        let priority = Priority::default().updated_by(value.as_bytes());
        (priority.urgency, priority.incremental)
    }

    #[test]
    fn urgency_and_incremental_are_read_in_any_order_and_form() {
        for (value, expected) in [
            ("", (3, false)),
            ("u=0", (0, false)),
            ("u=7, i", (7, true)),
            ("i,u=5", (5, true)),
            ("i=?1", (3, true)),
            ("i, i=?0", (3, false)),
            ("u=1, u=2", (2, false)),
            ("u=5;x=1;y, i;q=\"a,b\"", (5, true)),
            (" u=4 ,\ti ", (4, true)),
        ] {
            assert_eq!(read(value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_unknown_or_out_of_range_changes_nothing() {
        for value in [
            "u=8",
            "u=-1",
            "u=3.5",
            "u=\"1\"",
            "u=01",
            "u",
            "U=1",
            "i=1",
            "i=?2",
            "i=i",
            "x=u=1",
            "a=\"u=1, i\"",
            "a=(u=1, i)",
        ] {
            assert_eq!(read(value), (3, false), "{value}");
        }
        assert_eq!(read("x=\"\\\",\", u=1"), (1, false), "an escaped quote does not end a string");
    }

    #[test]
    fn what_is_not_said_stays_as_it_was() {
        let before = Priority { urgency: 6, incremental: true };
        assert_eq!(before.updated_by(b"u=2"), Priority { urgency: 2, incremental: true });
        assert_eq!(before.updated_by(b"i=?0"), Priority { urgency: 6, incremental: false });
    }

    proptest! {
        #[test]
        fn any_bytes_make_a_priority_in_range(value: Vec<u8>) {
            prop_assert!(Priority::default().updated_by(&value).urgency < 8);
        }

        #[test]
        fn what_is_printed_reads_back(urgency in 0..8_u8, incremental: bool) {
            let priority = Priority { urgency, incremental };
            prop_assert_eq!(Priority::default().updated_by(priority.to_string().as_bytes()), priority);
        }
    }
}
