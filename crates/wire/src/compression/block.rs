//! Heads as field blocks, for any encoder.

use super::ENTRY_OVERHEAD;
use crate::Field;
use crate::connection::{Request, Response};

/// Appends field lines in its own form.
pub(crate) trait FieldEncoder {
    /// Appends one field line.
    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>);
}

/// Writes the fields of one block, and counts what they would take as HTTP/1.1 text.
pub(crate) struct Block<'a, E> {
    encoder: &'a mut E,
    out: &'a mut Vec<u8>,
    plain: usize,
    size: usize,
}

/// `: ` and CRLF around every field of HTTP/1.1.
const PLAIN_FIELD: usize = 4;

impl<'a, E: FieldEncoder> Block<'a, E> {
    /// A block whose fields `encoder` appends to `out`.
    pub(crate) const fn new(encoder: &'a mut E, out: &'a mut Vec<u8>) -> Self {
        Self { encoder, out, plain: 0, size: 0 }
    }

    /// What the fields so far would take as HTTP/1.1 text, in bytes.
    pub(crate) const fn plain(&self) -> usize {
        self.plain
    }

    /// The fields so far as RFC 9114 §4.2.2 and RFC 9113 §6.5.2 count them, in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// The head of a request; `protocol` is that of an extended CONNECT.
    pub(crate) fn request(&mut self, request: &Request<'_>, scheme: &str, protocol: Option<&str>) {
        self.request_line(request, scheme, protocol);
        self.content_length(request.body_length);
        self.fields(request.fields);
    }

    /// The head of a final response.
    pub(crate) fn response(&mut self, response: &Response<'_>) {
        self.status_line(response.status);
        self.content_length(response.body_length);
        self.fields(response.fields);
    }

    /// The head of an interim response.
    pub(crate) fn interim(&mut self, status: u16, fields: &[Field<'_>]) {
        self.status_line(status);
        self.fields(fields);
    }

    fn pseudo(&mut self, name: &str, value: &[u8]) {
        self.encoder.field(name.as_bytes(), value, self.out);
        self.size += name.len() + value.len() + ENTRY_OVERHEAD;
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.encoder.field(name, value, self.out);
        self.plain += name.len() + value.len() + PLAIN_FIELD;
        self.size += name.len() + value.len() + ENTRY_OVERHEAD;
    }

    pub(crate) fn fields(&mut self, fields: &[Field<'_>]) {
        for field in fields {
            self.field(field.name, field.value);
        }
    }

    fn content_length(&mut self, length: Option<u64>) {
        if let Some(length) = length {
            let mut digits = [0; 20];
            self.field(b"content-length", decimal(length, &mut digits));
        }
    }

    /// `GET /path HTTP/1.1`, host, and the empty line.
    pub(crate) fn request_line(&mut self, request: &Request<'_>, scheme: &str, protocol: Option<&str>) {
        let has_target = request.method != "CONNECT" || protocol.is_some();
        self.pseudo(":method", request.method.as_bytes());
        if has_target {
            self.pseudo(":scheme", scheme.as_bytes());
        }
        // An absent field is legal, an empty one is not: its receiver may end the connection (RFC 9113 §8.3.1, RFC 9114
        // §4.3.1).
        if !request.authority.is_empty() {
            self.pseudo(":authority", request.authority.as_bytes());
        }
        if has_target {
            self.pseudo(":path", request.path.as_bytes());
        }
        if let Some(protocol) = protocol {
            self.pseudo(":protocol", protocol.as_bytes());
        }
        let line = request.method.len() + request.path.len() + "  HTTP/1.1\r\n".len();
        self.plain += line + "host".len() + request.authority.len() + PLAIN_FIELD + "\r\n".len();
    }

    /// `HTTP/1.1 200`, without a reason phrase, and the empty line.
    fn status_line(&mut self, status: u16) {
        let mut digits = [0; 20];
        self.pseudo(":status", decimal(u64::from(status), &mut digits));
        self.plain += "HTTP/1.1 200 \r\n\r\n".len();
    }
}

/// `number` in decimal digits.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}
