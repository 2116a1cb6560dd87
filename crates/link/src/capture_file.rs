//! Captures as tcpdump, dumpcap and [`pcapng`](crate::pcapng) write them: pcap and pcapng in, packets out.
//!
//! Takes the file in pieces of any size, and holds one block of it at a time. No bytes make it panic.

mod link_layer;
mod next;
#[cfg(test)]
mod tests;

use std::fmt::Write;

/// The longest block of packets, in bytes: a file with a longer one is not a capture. Key logs in a file may be longer.
const LONGEST_BLOCK: usize = 64 << 20;
/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// Why a file cannot be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// It does not begin as a capture does.
    #[error("it is neither pcap nor pcapng{0}")]
    NotACapture(&'static str),
    /// A block violates the format.
    #[error("{what} at byte {at}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where the block begins.
        at: u64,
    },
}

/// A packet of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// The interface at which it was seen, by its place in the file.
    pub interface: u32,
    /// The interface's name, if the file has it.
    pub name: &'a str,
    /// When, in nanoseconds since 1970.
    pub at_nanos: u64,
    /// From the IP header on, as far as it was kept; empty where the link layer carries something else.
    pub bytes: &'a [u8],
    /// Bytes of the whole packet from the IP header on.
    pub length: u32,
}

/// An element of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A packet.
    Packet(CapturedPacket<'a>),
    /// Lines of a key log (a pcapng's Decryption Secrets Block).
    Secrets(&'a [u8]),
    /// A packet without a time (a pcapng's Simple Packet Block).
    Untimed,
}

/// The byte order of a file's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let octets = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self == Self::Little { u16::from_le_bytes(octets) } else { u16::from_be_bytes(octets) })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let octets = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self == Self::Little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) })
    }
}

/// What a file says of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    link_type: u16,
    name: String,
    /// Units of its times in a second.
    per_second: u128,
    /// Seconds that are added to its times.
    offset: i64,
}

/// The format of the file.
#[derive(Debug)]
enum Format {
    /// Not known yet.
    Unknown,
    Pcap {
        order: Order,
        interface: Interface,
    },
    Pcapng {
        order: Order,
        interfaces: Vec<Interface>,
        /// Interfaces of earlier sections.
        before: u32,
    },
}

/// Reads a file.
#[derive(Debug)]
pub struct CaptureFile {
    format: Format,
    /// What has not been read yet: less than a block.
    pending: Vec<u8>,
    /// Bytes of the file before `pending`.
    passed: u64,
}

impl Default for CaptureFile {
    fn default() -> Self {
        Self { format: Format::Unknown, pending: Vec::new(), passed: 0 }
    }
}

/// A step of reading.
enum Step {
    /// This many bytes were used.
    Used(usize),
    /// A block is incomplete.
    More,
}

impl CaptureFile {
    /// The next bytes of the file. `sink` is given each packet and each key log that they complete, in the file's order.
    ///
    /// # Errors
    ///
    /// If the file is not a capture, or is damaged. What came before the damage has been given to `sink`.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Entry<'_>)) -> Result<(), CaptureError> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut used = 0;
        let read = loop {
            match self.format.step(&pending[used..], self.passed, sink) {
                Ok(Step::Used(n)) => {
                    used += n;
                    self.passed += n as u64;
                }
                Ok(Step::More) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        pending.drain(..used);
        self.pending = pending;
        read
    }

    /// Whether the file ends with a whole block.
    pub fn is_whole(&self) -> bool {
        self.pending.is_empty() && !matches!(self.format, Format::Unknown)
    }
}

/// The name of an interface, printable.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().fold(String::new(), |mut name, letter| {
        if letter.is_control() {
            let _ = write!(name, "{}", letter.escape_default());
        } else {
            name.push(letter);
        }
        name
    })
}
