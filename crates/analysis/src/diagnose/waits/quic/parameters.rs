//! The flow-control windows that an end grants in the handshake (RFC 9000 §18.2).

use super::frame::{bytes, number};
use crate::diagnose::waits::tls::be16;

/// The TLS extension with the transport parameters (RFC 9001 §8.2).
const TRANSPORT_PARAMETERS: u16 = 57;

/// What the other end may send initially, in bytes. An absent parameter is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Windows {
    /// On all streams together.
    pub connection: u64,
    /// On each bidirectional stream that this end opened.
    pub own_streams: u64,
    /// On each bidirectional stream that the other end opened.
    pub others_streams: u64,
}

impl Windows {
    /// From a `ClientHello`, or from a server's `EncryptedExtensions`.
    pub fn of(message: &[u8]) -> Option<Self> {
        const CLIENT_HELLO: u8 = 1;
        const ENCRYPTED_EXTENSIONS: u8 = 8;
        let extensions = match *message.first()? {
            CLIENT_HELLO => {
                let session = 39 + usize::from(*message.get(38)?);
                let suites = session + 2 + usize::from(be16(message, session)?);
                suites + 1 + usize::from(*message.get(suites)?)
            }
            ENCRYPTED_EXTENSIONS => 4,
            _ => return None,
        };
        let length = usize::from(be16(message, extensions)?);
        let mut extensions = message.get(extensions + 2..extensions + 2 + length)?;
        while let Some((kind, length)) = be16(extensions, 0).zip(be16(extensions, 2)) {
            let (body, rest) = extensions.get(4..)?.split_at_checked(length.into())?;
            if kind == TRANSPORT_PARAMETERS {
                return Self::read(body);
            }
            extensions = rest;
        }
        None
    }

    fn read(mut parameters: &[u8]) -> Option<Self> {
        let mut windows = Self::default();
        while !parameters.is_empty() {
            let id = number(&mut parameters)?;
            let mut value = bytes(&mut parameters)?;
            match id {
                0x04 => windows.connection = number(&mut value)?,
                0x05 => windows.own_streams = number(&mut value)?,
                0x06 => windows.others_streams = number(&mut value)?,
                _ => {}
            }
        }
        Some(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_found_behind_other_extensions_and_parameters() {
        let parameters = [1, 1, 9, 4, 2, 0x44, 0, 6, 1, 7, 5, 1, 8];
        let extensions = [&[0, 22, 0, 10, 0, 1, 5, 0, 57, 0, 13][..], &parameters].concat();
        let mut encrypted = vec![8, 0, 0, 24];
        encrypted.extend(&extensions);
        let windows = Some(Windows { connection: 0x400, own_streams: 8, others_streams: 7 });
        assert_eq!(Windows::of(&encrypted), windows);
        let mut hello = [&[1, 0, 0, 0, 3, 3][..], &[7; 32], &[2, 1, 1, 0, 2, 0x13, 1, 1, 0]].concat();
        hello.extend(&extensions);
        assert_eq!(Windows::of(&hello), windows);
        for end in 0..hello.len() {
            assert_eq!(Windows::of(&hello[..end]), None, "it ends at {end}");
        }
        assert_eq!(Windows::of(&[8, 0, 0, 2, 0, 0]), None, "no parameters");
    }
}
