//! One request for a file.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use h2lab_base::text::PeerText;
use h2lab_transfer::Digest;

use crate::bulk::source::Sending;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestPurpose {
    /// Bytes of the file, one way or the other.
    #[default]
    Bytes,
    /// What the server has of an upload.
    Held,
    /// The final request, without bytes of the file: for the server's checksum of a download, or to declare an upload complete,
    /// with its checksum.
    LastWord,
}

/// What the end of a request means for its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutcomeClass {
    /// It did what it was for, or it broke.
    #[default]
    Usual,
    /// Its answer is not needed: the server can only be asked for the whole file.
    Idle,
    /// The server has not processed it, which is no error.
    Unprocessed,
    /// It was given up because it made no progress.
    Silent,
}

/// An answer that refuses a request.
#[derive(Debug)]
pub struct No {
    pub status: u16,
    /// The Location that it names, if it does.
    pub location: Option<PeerText>,
    /// The beginning of its body.
    pub words: Vec<u8>,
}

/// The most characters that are kept of an answer's text.
const MOST_WORDS: usize = 300;

impl No {
    /// More of its body has come.
    pub fn receive(&mut self, data: &[u8]) {
        let room = MOST_WORDS - self.words.len().min(MOST_WORDS);
        self.words.extend_from_slice(&data[..data.len().min(room)]);
    }
}

/// What a request asks of a file.
#[derive(Debug, Default)]
pub struct FileRequest {
    /// Which file, by its place in the run.
    pub fetch: usize,
    /// What for.
    pub purpose: RequestPurpose,
    /// The first byte that is requested, or sent.
    pub(super) from: u64,
    /// One past the last, as far as it is known.
    pub(super) until: Option<u64>,
    /// Whether it names a range.
    pub(super) has_range: bool,
    /// The next byte.
    pub(super) at: u64,
    /// Bytes before `at` that were handed over to be sent, and have not left us.
    pub(super) behind: u64,
    /// The checksum of what arrived.
    pub(super) sum: Option<Digest>,
    /// Its answer carries the file, or accepts it.
    pub(super) is_accepted: bool,
    /// Its answer refuses it.
    pub(super) no: Option<No>,
    /// What its end means.
    pub outcome_class: OutcomeClass,
    /// The server has not seen it, or may process it twice.
    pub may_repeat: bool,
    /// What it sends.
    pub sending: Option<Rc<RefCell<Sending>>>,
}

impl FileRequest {
    /// A request for no bytes.
    pub(super) fn new(fetch: usize, purpose: RequestPurpose) -> Self {
        Self { fetch, purpose, ..Self::default() }
    }

    /// How many of its bytes have arrived, or have left us.
    pub const fn moved(&self) -> u64 {
        self.at - self.from - self.behind
    }

    /// Its bytes that have arrived, or were handed over to be sent.
    pub const fn arrived(&self) -> Range<u64> {
        self.from..self.at
    }

    /// Whether bytes of it are still to move; otherwise only the answer is outstanding.
    pub fn awaits_bytes(&self) -> bool {
        match self.purpose {
            RequestPurpose::Bytes => self.until.is_none_or(|until| self.at < until),
            RequestPurpose::Held => true,
            RequestPurpose::LastWord => false,
        }
    }
}
