//! Parts: files in the object store, in the form of every client of NATS (`nats object ls H2LAB_PARTS` shows them).
//!
//! A file is stored in pieces, one message each, and a document that says how many bytes there are and what their
//! digest is. A piece is sent when the one before is stored, so that a reconnect cannot change their order.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::client::DEADLINE;
use crate::streams::{PARTS, PARTS_STREAM};
use crate::{Nats, NatsError, base64url, tokens};

/// Bytes of a piece, unless the server takes less.
const PIECE: usize = 256 * 1024;
/// The fewest bytes of a piece that is not the last. Each is fetched by a request of its own: a part of pieces of one byte would
/// take days.
const LEAST_PIECE: usize = 16 * 1024;
/// Of the largest message, what is left for its headers.
const HEADROOM: usize = 1024;
/// How long is tried to delete the pieces of a part that could not be stored whole.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The object store. Made by [`Nats::parts`].
pub struct Parts {
    nats: Nats,
}

/// What is stored of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    /// Its size.
    pub bytes: u64,
    /// `SHA-256=` and the digest in base 64 for URLs, as object stores of NATS have it.
    pub digest: String,
}

/// The document of a part. Other clients write more, which is not read.
#[derive(Debug, Serialize, Deserialize)]
struct PartInfo {
    name: String,
    bucket: String,
    /// Names the pieces: `$O.H2LAB_PARTS.C.<nuid>`.
    #[serde(default)]
    nuid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    chunks: u64,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    deleted: bool,
}

impl Parts {
    pub(crate) fn new(nats: Nats) -> Self {
        Self { nats }
    }

    /// Stores a file. Whatever had this name before is replaced. A piece that is not stored within 10 s is sent again as
    /// long as `is_wanted` says so, and for `timeout` since it was first sent: the connection may come back. What was stored
    /// already is not stored twice. Then it is an error, and so is a limit that is reached ([`NatsError::Quota`]): the pieces
    /// are deleted, if that is permitted, or go when they are 7 days old.
    ///
    /// Publishes to `$O.H2LAB_PARTS.C.<nuid>` and `$O.H2LAB_PARTS.M.<name>`; after an error, to
    /// `$JS.API.STREAM.PURGE.OBJ_H2LAB_PARTS` and what an older server needs instead, without which it works as well.
    pub fn put_within(
        &self,
        name: &str,
        file: &Path,
        timeout: Duration,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<StoredPart, NatsError> {
        tokens::part_name(name)?;
        let mut source = File::open(file).map_err(NatsError::io(file))?;
        let nuid = self.nats.unpredictable();
        let again = Again { timeout, is_wanted };
        let stored = self.put_pieces(&nuid, file, &mut source, &again).and_then(|(bytes, chunks, digest)| {
            let info = PartInfo {
                name: name.to_owned(),
                bucket: PARTS.to_owned(),
                nuid: nuid.clone(),
                size: bytes,
                chunks,
                digest: digest.clone(),
                deleted: false,
            };
            self.put_info(name, &info, &again)?;
            Ok(StoredPart { bytes, digest })
        });
        if stored.is_err() {
            let pieces = pieces(&nuid);
            // The error that is told is the first.
            let _: Result<(), _> = self.nats.wait("to a purge", CLEANUP_TIMEOUT, |link| async move {
                link.purge(PARTS_STREAM, &pieces).await
            });
        }
        stored.map_err(|error| match error {
            // The subject names the part in base 64, or not at all.
            NatsError::Quota { reason, .. } => {
                let what = format!("the stream {PARTS_STREAM}, part `{name}`");
                NatsError::Quota { what: what.as_str().into(), reason }
            }
            error => error,
        })
    }

    /// Stores the pieces: bytes, pieces and digest.
    fn put_pieces(
        &self,
        nuid: &str,
        file: &Path,
        source: &mut File,
        again: &Again<'_>,
    ) -> Result<(u64, u64, String), NatsError> {
        let size = self.nats.max_payload().saturating_sub(HEADROOM).clamp(LEAST_PIECE, PIECE);
        let mut digest = Sha256::new();
        let (mut bytes, mut chunks) = (0, 0);
        loop {
            let mut piece = Vec::with_capacity(size);
            Read::by_ref(source).take(size as u64).read_to_end(&mut piece).map_err(NatsError::io(file))?;
            if piece.is_empty() {
                return Ok((bytes, chunks, digest_text(digest)));
            }
            digest.update(&piece);
            bytes += piece.len() as u64;
            let (subject, id, piece) = (pieces(nuid), format!("{nuid}.{chunks}"), Bytes::from(piece));
            chunks += 1;
            again.until_done(|| {
                let (subject, id, piece) = (subject.clone(), id.clone(), piece.clone());
                self.nats.wait("to a piece of a part", DEADLINE, |link| async move {
                    link.store(&subject, Some(id), piece).await
                })
            })?;
        }
    }

    fn put_info(&self, name: &str, info: &PartInfo, again: &Again<'_>) -> Result<(), NatsError> {
        let subject = document(name);
        let body = serde_json::to_vec(info).map(Bytes::from).map_err(|error| NatsError::Other {
            what: name.into(),
            reason: error.to_string().as_str().into(),
        })?;
        again.until_done(|| {
            let (subject, body) = (subject.clone(), body.clone());
            self.nats.wait("to the document of a part", DEADLINE, |link| async move {
                link.replace(&subject, body).await
            })
        })
    }

    /// Fetches a part into the file `to`, which must not exist; checks its size and digest. After an error there is
    /// no such file. A part with more than `most` bytes is not begun ([`NatsError::TooLarge`]), one that is not there
    /// is [`NatsError::Absent`]. A piece that does not come within 10 s is an error.
    ///
    /// Publishes to `$JS.API.STREAM.MSG.GET.OBJ_H2LAB_PARTS` and `$JS.API.DIRECT.GET.OBJ_H2LAB_PARTS`.
    pub fn get(&self, name: &str, to: &Path, most: u64) -> Result<StoredPart, NatsError> {
        tokens::part_name(name)?;
        let what = format!("part `{name}`");
        let info = self.info(name)?.ok_or_else(|| NatsError::Absent { what: what.as_str().into() })?;
        if info.size > most {
            return Err(NatsError::TooLarge { what: what.as_str().into(), bytes: info.size, most });
        }
        let mut target = File::options().write(true).create_new(true).open(to).map_err(NatsError::io(to))?;
        let got = self.get_pieces(&what, &info, to, &mut target);
        if got.is_err() {
            drop(target);
            // The error that is told is the first.
            let _: Result<(), _> = fs::remove_file(to);
        }
        got
    }

    fn get_pieces(
        &self,
        what: &str,
        info: &PartInfo,
        to: &Path,
        target: &mut File,
    ) -> Result<StoredPart, NatsError> {
        let corrupt = |reason: &str| NatsError::Corrupt { what: what.into(), reason: reason.into() };
        let mut digest = Sha256::new();
        let (mut bytes, mut after) = (0_u64, 0_u64);
        while bytes < info.size {
            let filter = pieces(&info.nuid);
            let piece =
                self.nats.wait("to a request for a piece of a part", DEADLINE, |link| async move {
                    link.direct(PARTS_STREAM, &filter, after.saturating_add(1)).await
                })?;
            let Some((sequence, piece)) = piece else {
                return Err(corrupt(&format!("only {bytes} of its {} bytes are stored", info.size)));
            };
            bytes += piece.len() as u64;
            if sequence <= after || !may_be_piece(piece.len(), bytes, info.size) {
                return Err(corrupt("its pieces are not those of its document"));
            }
            after = sequence;
            digest.update(&piece);
            target.write_all(&piece).map_err(NatsError::io(to))?;
        }
        let digest = digest_text(digest);
        if digest != info.digest {
            return Err(corrupt(&format!("its digest is {digest}, and its document says {}", info.digest)));
        }
        Ok(StoredPart { bytes, digest })
    }

    /// Deletes a part, or does nothing if it is not there.
    ///
    /// Publishes to `$JS.API.STREAM.MSG.GET.OBJ_H2LAB_PARTS`, and to `$JS.API.STREAM.PURGE.OBJ_H2LAB_PARTS`, or before
    /// nats-server 2.10 to `$JS.API.DIRECT.GET.OBJ_H2LAB_PARTS` and `$JS.API.STREAM.MSG.DELETE.OBJ_H2LAB_PARTS`.
    pub fn delete(&self, name: &str) -> Result<(), NatsError> {
        tokens::part_name(name)?;
        // A document that cannot be read is deleted, too.
        let pieces = match self.info(name) {
            Ok(Some(info)) => Some(pieces(&info.nuid)),
            Ok(None) | Err(NatsError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        if let Some(pieces) = pieces {
            self.nats.purge(PARTS_STREAM, &pieces)?;
        }
        self.nats.purge(PARTS_STREAM, &document(name))
    }

    /// The names of the parts that begin with `prefix`, sorted. Names that this crate does not give are left out.
    ///
    /// Publishes to `$JS.API.STREAM.INFO.OBJ_H2LAB_PARTS`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, NatsError> {
        let begin = format!("$O.{PARTS}.M.");
        let filter = format!("{begin}>");
        let subjects =
            self.nats.wait("to a request for the names of parts", DEADLINE, |link| async move {
                link.subjects(PARTS_STREAM, &filter).await
            })?;
        let name = |subject: String| {
            let name = String::from_utf8(base64url::decode(subject.strip_prefix(&begin)?)?).ok()?;
            (name.starts_with(prefix) && tokens::part_name(&name).is_ok()).then_some(name)
        };
        let mut names: Vec<String> = subjects.into_iter().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The document of a part, if there is one.
    fn info(&self, name: &str) -> Result<Option<PartInfo>, NatsError> {
        let subject = document(name);
        let message = self.nats.wait("to a request for a part", DEADLINE, |link| async move {
            link.last(PARTS_STREAM, &subject).await
        })?;
        message.map_or(Ok(None), |message| read_info(name, &message.payload))
    }
}

/// How long what was not stored in time is sent again.
struct Again<'a> {
    timeout: Duration,
    is_wanted: &'a dyn Fn() -> bool,
}

impl Again<'_> {
    /// Tries again what has failed for a reason that may pass. Each attempt takes its time by itself.
    fn until_done(&self, attempt: impl Fn() -> Result<(), NatsError>) -> Result<(), NatsError> {
        let begun = Instant::now();
        loop {
            match attempt() {
                // Absent: a server that has lost its streams has none until the driver has set it up again.
                Err(NatsError::Unreachable { .. } | NatsError::Timeout { .. } | NatsError::Absent { .. })
                    if begun.elapsed() < self.timeout && (self.is_wanted)() => {}
                ended => return ended,
            }
        }
    }
}

/// Reads a document; `None` if it says that the part was deleted. Its `nuid` becomes part of a subject.
fn read_info(name: &str, payload: &[u8]) -> Result<Option<PartInfo>, NatsError> {
    let corrupt = |reason: &str| NatsError::Corrupt {
        what: format!("part `{name}`").as_str().into(),
        reason: reason.into(),
    };
    let info: PartInfo = serde_json::from_slice(payload).map_err(|error| corrupt(&error.to_string()))?;
    if info.deleted {
        return Ok(None);
    }
    if tokens::token(&info.nuid).is_err() {
        return Err(corrupt("its document does not name its pieces"));
    }
    Ok(Some(info))
}

/// Whether a part of `size` bytes may have a piece of `length`, with which `bytes` of it are there.
const fn may_be_piece(length: usize, bytes: u64, size: u64) -> bool {
    length > 0 && bytes <= size && (length >= LEAST_PIECE || bytes == size)
}

/// The subject of the pieces.
fn pieces(nuid: &str) -> String {
    format!("$O.{PARTS}.C.{nuid}")
}

/// The subject of the document.
fn document(name: &str) -> String {
    format!("$O.{PARTS}.M.{}", base64url::encode(name.as_bytes()))
}

/// As object stores write it.
fn digest_text(digest: Sha256) -> String {
    format!("SHA-256={}", base64url::encode(digest.finalize().as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_names_a_wildcard_or_nothing_is_damaged() {
        let document = |nuid: &str| format!(r#"{{"name":"a","bucket":"b","nuid":"{nuid}","size":1}}"#);
        assert!(read_info("a", document("x1").as_bytes()).is_ok_and(|info| info.is_some()));
        for nuid in ["", "*", ">", "a.b"] {
            let info = read_info("a", document(nuid).as_bytes());
            assert!(matches!(info, Err(NatsError::Corrupt { .. })), "{nuid}");
        }
        assert!(matches!(read_info("a", b"x"), Err(NatsError::Corrupt { .. })));
    }

    #[test]
    fn a_document_of_a_deleted_part_is_none() {
        assert!(matches!(read_info("a", br#"{"name":"a","bucket":"b","deleted":true}"#), Ok(None)));
    }

    #[test]
    fn what_may_pass_is_tried_again_as_long_as_it_is_wanted() {
        let attempts = std::cell::Cell::new(0);
        let long = Duration::from_secs(3600);
        let count = |timeout, most, error: fn() -> NatsError| {
            attempts.set(0);
            let again = Again { timeout, is_wanted: &|| attempts.get() < most };
            let ended = again.until_done(|| {
                attempts.set(attempts.get() + 1);
                Err(error())
            });
            assert!(ended.is_err());
            attempts.get()
        };
        let passes = || NatsError::Timeout { what: String::new(), after: DEADLINE };
        assert_eq!(count(long, 3, passes), 3);
        assert_eq!(count(long, 3, || NatsError::Absent { what: "a".into() }), 3);
        assert_eq!(count(Duration::ZERO, 3, passes), 1);
        assert_eq!(count(long, 3, || NatsError::NoJetStream), 1);
    }

    #[test]
    fn pieces_are_not_so_short_that_a_part_would_take_days_to_fetch() {
        let size = 1 << 20;
        let least = LEAST_PIECE as u64;
        assert!(may_be_piece(LEAST_PIECE, least, size) && !may_be_piece(LEAST_PIECE - 1, least - 1, size));
        assert!(may_be_piece(1, size, size), "the last one");
        assert!(!may_be_piece(1, size - 1, size) && !may_be_piece(PIECE, size + 1, size));
        assert!(!may_be_piece(0, size, size));
    }

    #[test]
    fn a_digest_is_written_as_object_stores_write_it() {
        let empty = "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=";
        assert_eq!(digest_text(Sha256::new()), empty);
    }
}
