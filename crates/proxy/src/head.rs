//! The head of a message, kept by the proxy: what an engine lends is gone at the next call, and a request may have to wait for a
//! connection, or be sent again on another one.

use h2lab_wire::Field;

/// Where a part lies in the bytes of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// A head in one piece of memory, which is kept from message to message.
#[derive(Debug, Default, Clone)]
pub struct Head {
    bytes: Vec<u8>,
    method: Span,
    authority: Span,
    path: Span,
    protocol: Span,
    /// The status of a response; 0 in a request.
    pub status: u16,
    /// The length of the body, if it is known.
    pub body_length: Option<u64>,
    /// Name and value of each field line, in order.
    fields: Vec<(Span, Span)>,
}

/// A part of the control data of a request (RFC 9110 §6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `GET`, `POST` …
    Method,
    /// Host and port.
    Authority,
    /// Path and query.
    Path,
    /// `:protocol` of an extended CONNECT (RFC 8441).
    Protocol,
}

impl Head {
    /// Clears everything, and keeps the memory.
    pub fn clear(&mut self) {
        let (mut bytes, mut fields) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fields));
        bytes.clear();
        fields.clear();
        *self = Self { bytes, fields, ..Self::default() };
    }

    fn push<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Span {
        let start = self.bytes.len() as u32;
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        Span { start, end: self.bytes.len() as u32 }
    }

    fn at(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    /// Sets a part of the control data.
    pub fn set(&mut self, part: Part, value: &[u8]) {
        let span = self.push([value]);
        *match part {
            Part::Method => &mut self.method,
            Part::Authority => &mut self.authority,
            Part::Path => &mut self.path,
            Part::Protocol => &mut self.protocol,
        } = span;
    }

    /// A part of the control data; empty if there is none.
    pub fn get(&self, part: Part) -> &[u8] {
        self.at(match part {
            Part::Method => self.method,
            Part::Authority => self.authority,
            Part::Path => self.path,
            Part::Protocol => self.protocol,
        })
    }

    /// Adds a field line, whose value is made of these pieces. The name is in lower case.
    pub fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        self.add_list(name, value.iter().copied());
    }

    /// The same, with as many pieces as there are.
    pub fn add_list<'a>(&mut self, name: &[u8], value: impl IntoIterator<Item = &'a [u8]>) {
        let name = self.push([name]);
        let value = self.push(value);
        self.fields.push((name, value));
    }

    /// Removes all field lines with this name, in lower case.
    pub fn remove(&mut self, name: &[u8]) {
        let Self { bytes, fields, .. } = self;
        fields.retain(|(own, _)| &bytes[own.start as usize..own.end as usize] != name);
    }

    /// The field lines in order.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields.iter().map(|(name, value)| Field { name: self.at(*name), value: self.at(*value) })
    }

    /// The value of the first field line with this name.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|field| field.name == name).map(|field| field.value)
    }

    /// Bytes of memory that it takes.
    pub const fn held(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<(Span, Span)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out() {
        let mut head = Head::default();
        head.set(Part::Method, b"PUT");
        head.set(Part::Path, b"/a?b");
        head.add(b"via", &[b"1.1 ", b"a"]);
        head.add(b"empty", &[]);
        let fields: Vec<(&[u8], &[u8])> = head.fields().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [(&b"via"[..], &b"1.1 a"[..]), (b"empty", b"")]);
        assert_eq!((head.get(Part::Method), head.get(Part::Path)), (&b"PUT"[..], &b"/a?b"[..]));
        assert_eq!(head.get(Part::Authority), b"");
        assert_eq!((head.field(b"via"), head.field(b"none")), (Some(&b"1.1 a"[..]), None));
        head.body_length = Some(3);
        head.clear();
        assert_eq!((head.fields().count(), head.body_length, head.get(Part::Path)), (0, None, &b""[..]));
    }
}
