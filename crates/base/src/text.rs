//! Text that came from elsewhere: from a peer, another machine, or a file that another program wrote.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Deref;

use crate::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Text that came from elsewhere, printable by construction: what a terminal would obey, and what hides text or turns its
/// direction, is escaped as `\u{1b}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct PeerText(String);

impl PeerText {
    /// The text of these bytes; see [`printable`].
    pub fn new(bytes: &[u8]) -> Self {
        Self(printable(bytes))
    }

    /// The text of the first `most` bytes.
    pub fn cut(bytes: &[u8], most: usize) -> Self {
        Self::new(&bytes[..bytes.len().min(most)])
    }
}

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl Deref for PeerText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What is read back was printable when it was written, unless somebody else wrote it.
impl<'de> Deserialize<'de> for PeerText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(made_printable(&String::deserialize(deserializer)?).into_owned()))
    }
}

/// `bytes` as text that is safe on a terminal and in a line: what is not printable becomes `\xNN`, `\n` and the like, and a
/// backslash two.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                _ => push_printable(&mut text, character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}"); // writing to a string cannot fail
        }
    }
    text
}

/// `text` with what is not printable escaped. Backslashes stay as they are, so that doing it twice changes nothing.
pub fn made_printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut made = String::with_capacity(text.len());
    text.chars().for_each(|character| push_printable(&mut made, character));
    Cow::Owned(made)
}

/// [`made_printable`] of several lines; the line ends stay.
pub fn made_printable_lines(text: &str) -> String {
    text.split('\n').map(made_printable).collect::<Vec<_>>().join("\n")
}

fn push_printable(text: &mut String, character: char) {
    match character {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        _ if is_unprintable(character) => {
            let _ = write!(text, "\\u{{{:x}}}", u32::from(character)); // writing to a string cannot fail
        }
        _ => text.push(character),
    }
}

/// Whether a terminal would interpret the character, or it would change the direction of text or hide it: the reader
/// must see what was sent.
fn is_unprintable(character: char) -> bool {
    let is_hidden = matches!(
        character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    character.is_control() || is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_it_would_obey() {
        assert_eq!(printable(b"caf\xc3\xa9 \x1b[2J\r\n\xff\\"), "café \\u{1b}[2J\\r\\n\\xff\\\\");
        assert_eq!(printable("a\u{202e}b\u{85}".as_bytes()), "a\\u{202e}b\\u{85}");
        assert_eq!(&*PeerText::cut(b"nginx\0\x1b]0;title\x07", 7), "nginx\\u{0}\\u{1b}");
    }

    #[test]
    fn what_is_read_back_is_printable_too_and_what_was_printable_is_as_it_was() {
        let text = PeerText::new(b"\x1b[31m \\ \xff");
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<PeerText>(&json).unwrap(), text);
        let foreign: PeerText = serde_json::from_str(r#""\u001b[31m\u202e""#).unwrap();
        assert_eq!(&*foreign, "\\u{1b}[31m\\u{202e}");
    }
}
