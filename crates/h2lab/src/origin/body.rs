//! Bodies that are sent piece by piece, without holding gigabytes.

/// A block of filler; larger bodies repeat it.
static BLOCK: [u8; BLOCK_BYTES] = letters();

/// Its size: a piece fills several frames and several TLS records.
const BLOCK_BYTES: usize = 64 * 1024;

#[allow(clippy::large_stack_arrays, reason = "evaluated by the compiler: it is on no stack")]
const fn letters() -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut k = 0;
    while k < block.len() {
        block[k] = b'a' + (k % 26) as u8;
        k += 1;
    }
    block
}

/// What is left of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// So many bytes of filler.
    Filler(u64),
    /// These bytes, from an offset.
    Bytes(Vec<u8>, usize),
}

impl Body {
    /// So many bytes of filler.
    pub const fn filler(bytes: u64) -> Self {
        Self::Filler(bytes)
    }

    /// These bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes, 0)
    }

    /// Bytes that are left.
    pub const fn length(&self) -> u64 {
        match self {
            Self::Filler(left) => *left,
            Self::Bytes(bytes, sent) => (bytes.len() - *sent) as u64,
        }
    }

    /// Bytes of memory that it takes.
    pub const fn held(&self) -> usize {
        match self {
            Self::Filler(_) => 0,
            Self::Bytes(bytes, _) => bytes.len(),
        }
    }

    /// The next piece, of at most `limit` bytes; empty at the end.
    pub fn piece(&self, limit: u64) -> &[u8] {
        let whole = match self {
            Self::Filler(left) => &BLOCK[..(*left).min(BLOCK.len() as u64) as usize],
            Self::Bytes(bytes, sent) => &bytes[*sent..],
        };
        &whole[..(whole.len() as u64).min(limit) as usize]
    }

    /// `n` bytes of the piece were sent.
    pub const fn advance(&mut self, n: usize) {
        match self {
            Self::Filler(left) => *left -= n as u64,
            Self::Bytes(_, sent) => *sent += n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_after_its_length_whatever_the_pieces() {
        for mut body in [Body::filler(200_000), Body::bytes(vec![7; 200_000])] {
            let mut sent = 0;
            while body.length() > 0 {
                let n = body.piece(70_001).len().min(9_999);
                assert!(n > 0);
                body.advance(n);
                sent += n;
            }
            assert_eq!(sent, 200_000);
            assert!(body.piece(u64::MAX).is_empty());
        }
    }
}
