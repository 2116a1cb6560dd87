//! Fields whose values are shown by their length only: output may be seen by others, or pasted.

use super::Detail;

/// The names of fields whose values are secrets.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    further: Vec<String>,
}

/// Fields that carry credentials by their definition (RFC 9110 §11.6.2 and §11.7.2, RFC 6265).
const KNOWN: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

impl Secrets {
    /// Those that carry credentials, and `further` ones.
    pub fn and<'a>(further: impl IntoIterator<Item = &'a str>) -> Self {
        Self { further: further.into_iter().map(str::to_owned).collect() }
    }

    fn hide(&self, name: &str) -> bool {
        let known = KNOWN.into_iter().chain(self.further.iter().map(String::as_str));
        known.into_iter().any(|secret| name.eq_ignore_ascii_case(secret))
    }

    /// Hides the values in a frame.
    pub fn hide_in_frame(&self, detail: &mut Detail) {
        let Detail::Head(head) = detail else { return };
        for field in head.fields.iter_mut().filter(|field| self.hide(&field.name)) {
            field.value = format!("({} bytes)", field.value_bytes);
        }
    }

    /// Hides the values in the lines of an HTTP/1.1 message.
    pub fn hide_in_lines(&self, bytes: &[u8]) -> Vec<u8> {
        let line = |line: &[u8]| -> Vec<u8> {
            let end = line.trim_ascii_end().len();
            let Some(colon) = line[..end].iter().position(|byte| *byte == b':') else { return line.to_vec() };
            let is_secret = std::str::from_utf8(&line[..colon]).is_ok_and(|name| self.hide(name));
            if !is_secret {
                return line.to_vec();
            }
            let length = line[colon + 1..end].trim_ascii().len();
            [&line[..colon], format!(": ({length} bytes)").as_bytes(), &line[end..]].concat()
        };
        bytes.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect()
    }
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
}
