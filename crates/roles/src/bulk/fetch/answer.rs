//! What the head of an answer means for the requested file.

use std::ops::Range;

use h2lab_base::text::{PeerText, made_printable};
use h2lab_model::bulk::TransferDirection;
use h2lab_transfer::{Changed, Checksum, Journal, Validator, content_range};
use h2lab_wire::{Fields, ResponseHead};

use super::fields::{Version, check_coding, contradiction, length, text, validator};
use super::{Fetch, FetchError, FileRequest, OutcomeClass, RequestPurpose, Stage};

impl Fetch {
    /// The head of an answer has come.
    pub fn answered(&mut self, ask: &mut FileRequest, head: &ResponseHead<'_>) {
        if let Stage::Over(_) = self.stage {
            return;
        }
        if self.options.direction == TransferDirection::Put {
            return self.answered_to_put(ask, head);
        }
        if ask.purpose == RequestPurpose::LastWord {
            return self.verify(head);
        }
        match self.accept(ask, head) {
            Ok(()) if ask.is_accepted => self.note_checksum(head.fields),
            Ok(()) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Trailers followed an answer. They may carry a checksum that the server did not have before.
    pub fn trailed(&mut self, ask: &FileRequest, fields: Fields<'_>) {
        let is_about_it = match self.options.direction {
            TransferDirection::Get => ask.is_accepted,
            TransferDirection::Put => self.is_about_the_whole(ask),
        };
        if is_about_it && self.outcome().is_none() {
            self.note_checksum(fields);
        }
    }

    /// Takes the checksum of this file that an answer declares.
    pub(super) fn note_checksum(&mut self, fields: Fields<'_>) {
        if self.expected.is_none() {
            let field = text(fields, "repr-digest");
            // An unreadable checksum counts as none.
            self.expected =
                field.and_then(|field| Checksum::from_field(field, self.options.checksum).ok()).flatten();
        }
    }

    /// Takes the checksum from the answer to a HEAD, if that is about the version here. If the server has changed the
    /// file since, it may have changed while it was sent: the transfer fails. If the answer leaves that open, the file
    /// stays unverified.
    fn verify(&mut self, head: &ResponseHead<'_>) {
        if head.status != 200 {
            return; // the server may not support HEAD
        }
        let is_ours = self.check(length(head.fields), head.fields).map_err(FetchError::from);
        match is_ours.and_then(|()| check_coding(head.fields)) {
            Ok(()) => self.note_checksum(head.fields),
            Err(FetchError::Changed(why @ Changed::Size { .. })) => self.fail(why.into()),
            Err(FetchError::Changed(why @ Changed::Validator { .. })) if !self.is_as_old(head.fields) => {
                self.fail(why.into());
            }
            Err(why) => self.note_doubt(&why.to_string()),
        }
    }

    /// Whether an answer is about a file with the same modification time as the one here.
    fn is_as_old(&self, fields: Fields<'_>) -> bool {
        self.version.as_ref().zip(Version::of(fields)).is_some_and(|(was, is)| was.is_as_old_as(&is))
    }

    /// Records why the checksum that was asked for is missing.
    pub(super) fn note_doubt(&mut self, why: &str) {
        let why = made_printable(why);
        self.doubt = Some(format!("{}: no checksum was declared for this file: {why}", self.url));
    }

    /// Accepts an answer that carries the file, or returns why it does not.
    fn accept(&mut self, ask: &mut FileRequest, head: &ResponseHead<'_>) -> Result<(), FetchError> {
        let is_first = matches!(self.stage, Stage::Probing);
        let Carried { total, range } = self.carried(ask, head)?;
        check_coding(head.fields)?;
        self.check(total, head.fields)?;
        if is_first {
            let version = Version::of(head.fields);
            let has_all = range.as_ref().is_none_or(|range| Some(range.end - range.start) == total);
            if self.journal.is_none() && version.is_none() && !has_all {
                (self.needs_the_whole, ask.outcome_class) = (true, OutcomeClass::Idle);
                return Ok(());
            }
            self.version = version;
        }
        match range {
            Some(range) => {
                // The server may send less than was requested. The rest of the first answer is divided with everything
                // else that is missing.
                if let (Some(parts), Some(until)) = (&mut self.parts, ask.until) {
                    parts.give_back(range.end..until);
                }
                ask.until = Some(range.end);
            }
            None if !is_first || self.held_before > 0 => return Err(FetchError::NoRanges),
            None => ask.until = total,
        }
        if is_first {
            self.total = self.total.or(total);
            self.begin(ask, validator(head.fields))?;
        }
        // The content of a 416 is an error text.
        ask.is_accepted = head.status != 416;
        Ok(())
    }

    /// The bytes of the file that an answer carries, if it does.
    fn carried(&self, ask: &FileRequest, head: &ResponseHead<'_>) -> Result<Carried, FetchError> {
        let range = text(head.fields, "content-range").unwrap_or_default();
        match head.status {
            200 => Ok(Carried { total: length(head.fields), range: None }),
            206 => {
                let parsed = content_range::parse(range);
                let (carried, total) = parsed.ok_or_else(|| match range {
                    "" => contradiction("206 without Content-Range"),
                    range => contradiction(format!("206 with an invalid Content-Range ({range})")),
                })?;
                let fits = carried.start == ask.from && ask.until.is_none_or(|until| carried.end <= until);
                if !ask.has_range || !fits {
                    return Err(contradiction(format!("a range that was not requested ({range})")));
                }
                let total = total.ok_or_else(|| contradiction("a range without a total length"))?;
                Ok(Carried { total: Some(total), range: Some(carried) })
            }
            // An empty file has no range.
            416 if ask.from == 0 && self.held_before == 0 && range == "bytes */0" => {
                Ok(Carried { total: Some(0), range: Some(0..0) })
            }
            416 if self.journal.is_some() => {
                let total = range.strip_prefix("bytes */").and_then(|total| total.parse().ok());
                // An answer without content need not name its version.
                if let Some(journal) = &self.journal {
                    let validator = validator(head.fields);
                    journal.check(total, validator.as_ref().or(Some(&journal.validator)))?;
                }
                Err(contradiction("no such range in a file of this length"))
            }
            status => {
                let location = text(head.fields, "location").map(PeerText::from);
                Err(FetchError::Status { status, location, words: None })
            }
        }
    }

    /// Whether an answer is about the file of which we have a part, by the complete length and its other fields.
    fn check(&self, total: Option<u64>, fields: Fields<'_>) -> Result<(), Changed> {
        if let Some(journal) = &self.journal {
            return journal.check(total, validator(fields).as_ref());
        }
        if let (Some(was), Some(is)) = (self.total, total)
            && was != is
        {
            return Err(Changed::Size { was, is });
        }
        match (&self.version, Version::of(fields)) {
            (Some(was), Some(is)) if *was != is => {
                Err(Changed::Validator { was: was.to_string(), is: is.to_string() })
            }
            (Some(was), None) => Err(Changed::Undeclared { was: was.to_string() }),
            _ => Ok(()),
        }
    }

    /// The length is known: reserves room, and makes parts of the rest.
    fn begin(&mut self, ask: &FileRequest, validator: Option<Validator>) -> Result<(), FetchError> {
        self.stage = Stage::Dealing;
        let Some(total) = self.total else { return Ok(()) };
        self.sink.reserve(total)?;
        if self.journal.is_none() {
            self.journal = validator.map(|validator| Journal::new(&self.url, total, validator));
        }
        if self.held_before == 0 {
            self.deal(total, &std::iter::once(ask.from..ask.until.unwrap_or(total)).collect());
        }
        Ok(())
    }
}

/// What an answer carries.
struct Carried {
    /// The length of the whole, if it is declared.
    total: Option<u64>,
    /// Which bytes; all of them if that is `None`.
    range: Option<Range<u64>>,
}
