//! Heads that repeat. A load generator sends the same head again and again and mostly gets the same one back: neither
//! is written or parsed again.

use super::body::Encoder;
use super::head::Head;

/// What a client stores.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    pub(super) request: LastRequest,
    pub(super) response: LastResponse,
}

impl Repeated {
    /// The memory that it takes, in bytes.
    pub(super) const fn held(&self) -> usize {
        size_of::<Self>() + self.request.bytes.capacity() + self.response.bytes.capacity()
    }
}

/// The head of the last request that was sent (client role).
#[derive(Debug, Default)]
pub(super) struct LastRequest {
    bytes: Vec<u8>,
    /// Bytes of its field lines.
    fields: u64,
    /// How its body is framed; `None` while no head is stored.
    encoder: Option<Encoder>,
}

impl LastRequest {
    /// Stores a head that was written out in full.
    pub(super) fn remember(&mut self, bytes: &[u8], fields: u64, encoder: Encoder) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        (self.fields, self.encoder) = (fields, Some(encoder));
    }

    /// Drops the head: the next one may differ.
    pub(super) const fn forget(&mut self) {
        self.encoder = None;
    }

    /// The head, the bytes of its field lines and the framing of its body.
    pub(super) fn get(&self) -> Option<(&[u8], u64, Encoder)> {
        Some((&self.bytes, self.fields, self.encoder?))
    }
}

/// The head of the last response that was read (client role). Its fields still lie in the connection's scratch.
#[derive(Debug, Default)]
pub(super) struct LastResponse {
    bytes: Vec<u8>,
    /// `None` while no head is stored.
    head: Option<Head<u16>>,
}

impl LastResponse {
    /// Stores a head that was read.
    pub(super) fn remember(&mut self, bytes: &[u8], head: Head<u16>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.head = Some(head);
    }

    /// The scratch was overwritten.
    pub(super) const fn forget(&mut self) {
        self.head = None;
    }

    /// The parsed head if `input` begins with the same one, byte by byte: a head is self-delimiting, so that nothing
    /// after it matters.
    pub(super) fn read_again(&self, input: &[u8]) -> Option<Head<u16>> {
        self.head.filter(|_| input.starts_with(&self.bytes))
    }
}
