//! What the head of an answer means for the file that was asked for.

use std::ops::Range;

use h2lab_core::bulk::{Changed, Checksum, Journal, TransferDirection, Validator, content_range};
use h2lab_core::units::Time;
use h2lab_core::wire::{Fields, ResponseHead};

use super::{Ask, Errand, Fetch, FetchError, Stage};

impl Fetch {
    /// The head of an answer has come.
    pub fn answered(&mut self, ask: &mut Ask, now: Time, head: &ResponseHead<'_>) {
        if let Stage::Over(_) = self.stage {
            return;
        }
        self.told(head.fields);
        if self.manner.direction == TransferDirection::Put {
            return self.answered_to_put(ask, head);
        }
        self.figures.first_byte = self.figures.first_byte.min(now);
        if ask.errand == Errand::Bytes
            && let Err(error) = self.accept(ask, head)
        {
            self.fail(error);
        }
    }

    /// What the server says in a head, or behind the bytes, of the checksum of the whole.
    pub fn told(&mut self, fields: Fields<'_>) {
        if self.expected.is_none() {
            let field = text(fields, "repr-digest");
            // What is no checksum is as good as none.
            self.expected =
                field.and_then(|field| Checksum::from_field(field, self.manner.checksum).ok()).flatten();
        }
    }

    /// Takes an answer as one that carries the file, or says why it does not.
    fn accept(&mut self, ask: &mut Ask, head: &ResponseHead<'_>) -> Result<(), FetchError> {
        let is_first = matches!(self.stage, Stage::Probing);
        let validator = validator(head.fields);
        let Carried { total, range } = self.carried(ask, head, validator.as_ref())?;
        if text(head.fields, "content-encoding").is_some_and(|coding| coding != "identity") {
            return Err(contradiction("it encodes the content, which was not asked for"));
        }
        self.check(total, validator.as_ref())?;
        match range {
            Some(range) => {
                // It may send less than was asked for; the first answer's rest is dealt with all others.
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
            self.begin(ask, validator)?;
        }
        // What comes with a 416 is words.
        ask.is_accepted = head.status != 416;
        Ok(())
    }

    /// What an answer carries of the file, if it does.
    fn carried(
        &self,
        ask: &Ask,
        head: &ResponseHead<'_>,
        validator: Option<&Validator>,
    ) -> Result<Carried, FetchError> {
        let range = text(head.fields, "content-range").unwrap_or_default();
        match head.status {
            200 => {
                let length = text(head.fields, "content-length").and_then(|length| length.parse().ok());
                Ok(Carried { total: length, range: None })
            }
            206 => {
                let parsed = content_range::parse(range);
                let (carried, total) = parsed.ok_or_else(|| contradiction("206 without a range"))?;
                let fits = carried.start == ask.from && ask.until.is_none_or(|until| carried.end <= until);
                if !ask.has_range || !fits {
                    return Err(contradiction(format!("another range than was asked for ({range})")));
                }
                let total = total.ok_or_else(|| contradiction("a range of something without a length"))?;
                Ok(Carried { total: Some(total), range: Some(carried) })
            }
            // Of a file without a byte there is no range.
            416 if ask.from == 0 && self.held_before == 0 && range == "bytes */0" => {
                Ok(Carried { total: Some(0), range: Some(0..0) })
            }
            416 if self.journal.is_some() => {
                let total = range.strip_prefix("bytes */").and_then(|total| total.parse().ok());
                self.check(total, validator.or(self.journal.as_ref().map(|journal| &journal.validator)))?;
                Err(contradiction("there is no such range of a file of this length"))
            }
            status => {
                let location = text(head.fields, "location").map(str::to_owned);
                Err(FetchError::Status { status, location, words: None })
            }
        }
    }

    /// Whether an answer is about the file of which we have a part.
    fn check(&self, total: Option<u64>, validator: Option<&Validator>) -> Result<(), Changed> {
        match &self.journal {
            Some(journal) => journal.check(total, validator),
            None => match (self.total, total) {
                (Some(was), Some(is)) if was != is => Err(Changed::Size { was, is }),
                _ => Ok(()),
            },
        }
    }

    /// What there is is known: makes room, and parts of the rest.
    fn begin(&mut self, ask: &Ask, validator: Option<Validator>) -> Result<(), FetchError> {
        self.stage = Stage::Dealing;
        let Some(total) = self.total else { return Ok(()) };
        self.sink.reserve(total)?;
        if self.journal.is_none() {
            self.journal = validator.map(|validator| Journal::new(self.url.clone(), total, validator));
        }
        if self.held_before == 0 {
            self.deal(total, &std::iter::once(ask.from..ask.until.unwrap_or(total)).collect());
        }
        Ok(())
    }
}

/// What an answer carries.
struct Carried {
    /// The length of the whole, if it is told.
    total: Option<u64>,
    /// Which bytes; all of them if that is `None`.
    range: Option<Range<u64>>,
}

/// What tells this state of the file from others.
fn validator(fields: Fields<'_>) -> Option<Validator> {
    Validator::of(text(fields, "etag"), text(fields, "last-modified"), text(fields, "date"))
}

fn contradiction(what: impl Into<String>) -> FetchError {
    FetchError::Contradiction(what.into())
}

/// A field as text.
pub(super) fn text<'a>(fields: Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).and_then(|value| std::str::from_utf8(value).ok())
}
