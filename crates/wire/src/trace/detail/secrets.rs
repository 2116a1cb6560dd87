//! What is hidden in frames and heads that are shown: output may be seen by others, or pasted.

use std::borrow::Cow;

use h2lab_base::secrets::{is_credential, without_url_secrets};

use super::Detail;

/// What is hidden: values of fields, of which only the length is shown, and of queries in URLs.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    further: Vec<String>,
    /// Nothing is hidden.
    are_shown: bool,
}

/// Fields whose values are URLs.
const URLS: [&str; 4] = [":path", "location", "content-location", "referer"];
/// A field with URLs in angle brackets (RFC 8288).
const LINK: &str = "link";

impl Secrets {
    /// Hides credentials, the fields named in `further`, and queries.
    pub fn and<'a>(further: impl IntoIterator<Item = &'a str>) -> Self {
        Self { further: further.into_iter().map(str::to_owned).collect(), are_shown: false }
    }

    /// Hides nothing.
    pub const fn shown() -> Self {
        Self { further: Vec::new(), are_shown: true }
    }

    /// A URL, or a path with its query, as it is shown.
    pub fn hide_in_url<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if self.are_shown { Cow::Borrowed(url) } else { without_url_secrets(url) }
    }

    fn hide(&self, name: &str) -> bool {
        is_credential(name) || self.further.iter().any(|secret| name.eq_ignore_ascii_case(secret))
    }

    /// Hides the values in a frame.
    pub fn hide_in_frame(&self, detail: &mut Detail) {
        let Detail::Head(head) = detail else { return };
        if self.are_shown {
            return;
        }
        for field in &mut head.fields {
            if self.hide(&field.name) {
                field.value = format!("({} bytes)", field.value_bytes);
            } else {
                field.value = value_without_urls(&field.name, &field.value);
            }
        }
        head.start_line = head.start_line.take().map(|line| hidden_between(&line, &[' ']));
    }

    /// Hides the values in the lines of an HTTP/1.1 message.
    pub fn hide_in_lines(&self, bytes: &[u8]) -> Vec<u8> {
        if self.are_shown {
            return bytes.to_vec();
        }
        let line = |line: &[u8]| -> Vec<u8> {
            let end = line.trim_ascii_end().len();
            let name = line[..end].split(|byte| *byte == b':').next().unwrap_or_default();
            let value = line[..end].get(name.len() + 1..);
            match (std::str::from_utf8(name), value) {
                (Ok(name), Some(value)) if self.hide(name) => {
                    let length = value.trim_ascii().len();
                    [name.as_bytes(), format!(": ({length} bytes)").as_bytes(), &line[end..]].concat()
                }
                // A start line has spaces, and a field's name has none.
                (Ok(name), _) if name.contains(' ') => {
                    as_text(line, |line| hidden_between(line, &[' ', '\r', '\n']))
                }
                (Ok(name), Some(value)) => {
                    let value = as_text(value, |value| value_without_urls(name, value));
                    [name.as_bytes(), b":", &value, &line[end..]].concat()
                }
                _ => line.to_vec(),
            }
        };
        bytes.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect()
    }
}

/// The value of the field `name`, with its URLs as they are shown.
fn value_without_urls(name: &str, value: &str) -> String {
    if name.eq_ignore_ascii_case(LINK) {
        hidden_between(value, &['<', '>'])
    } else if URLS.iter().any(|one| name.eq_ignore_ascii_case(one)) {
        without_url_secrets(value).into_owned()
    } else {
        value.to_owned()
    }
}

/// Each part of a text as a URL is shown; a part ends at a character of `ends`.
fn hidden_between(text: &str, ends: &[char]) -> String {
    let parts = text.split_inclusive(ends).map(|part| {
        let url = part.trim_end_matches(ends);
        without_url_secrets(url).into_owned() + &part[url.len()..]
    });
    parts.collect()
}

/// Applies `change` to bytes that may not be text: each byte becomes a character, and each character of the result a
/// byte.
fn as_text(bytes: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let text: String = bytes.iter().copied().map(char::from).collect();
    change(&text).chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_what_was_named_besides_are_shown_by_their_length() {
        let secrets = Secrets::and(["x-key"]);
        let head = b"GET / HTTP/1.1\r\nHost: a:80\r\nAuthorization: Basic YTpi\r\nX-KEY:abc\r\naccept: */*\r\n\r\nbody: 1";
        let hidden = String::from_utf8(secrets.hide_in_lines(head)).unwrap();
        assert_eq!(
            hidden,
            "GET / HTTP/1.1\r\nHost: a:80\r\nAuthorization: (10 bytes)\r\nX-KEY: (3 bytes)\r\naccept: */*\r\n\r\nbody: 1"
        );
    }

    #[test]
    fn queries_are_hidden_in_start_lines_and_in_fields_that_have_urls() {
        let head = b"GET /x?t=s3cret HTTP/1.1\r\nHost: a\r\nreferer: http://a/?q=s3\xffcret\r\nLink: </y?s3cret>; rel=x\r\nx: a/b?c=d\r\n";
        let hidden = String::from_utf8(Secrets::default().hide_in_lines(head)).unwrap();
        assert_eq!(
            hidden,
            "GET /x?t=*** HTTP/1.1\r\nHost: a\r\nreferer: http://a/?q=***\r\nLink: </y?***>; rel=x\r\nx: a/b?c=d\r\n"
        );
        assert_eq!(Secrets::shown().hide_in_lines(head), head);
    }
}
