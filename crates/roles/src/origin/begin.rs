//! The beginning of a request that carries an upload, or a part of it.

use std::sync::{Arc, Mutex};

use h2lab_base::units::Time;
use h2lab_transfer::Algorithm;

use super::folder::{self, FolderError};
use super::put_content::PutContent;
use super::receipt::Receipt;
use super::refusal::Refusal;
use super::uploads::{Complete, Destination, Uploads};
use h2lab_net::lock::lock;
use h2lab_net::storage::Sink;

impl Uploads {
    /// A request with the upload that `offer` describes has come.
    pub fn begin(
        self: &Arc<Self>,
        now: Time,
        offer: PutContent,
        destination: Destination,
    ) -> Result<Receipt, Refusal> {
        let is_part = !offer.is_whole() && !offer.is_last_word();
        let is_kept = matches!(destination, Destination::File(..));
        if is_part && !is_kept && offer.wanted != Algorithm::None && !offer.wanted.combines() {
            let words = format!(
                "{} needs the bytes in order and cannot be computed from parts that are not kept; request crc32c, or \
                 send one request",
                offer.wanted
            );
            return Err(Refusal::new(400, words));
        }
        if matches!(&destination, Destination::File(names, _) if names.are_too_long()) {
            return Err(FolderError::NameTooLong.into());
        }
        self.quota.check_length(offer.total.or(offer.until).unwrap_or(0))?;
        let mut inner = lock(&self.inner);
        let tag = match &offer.tag {
            Some(tag) => tag.clone(),
            // Parts without a tag are distinguished only by the complete length.
            None if !offer.is_whole() => "\"\"".to_owned(),
            None => {
                inner.nameless += 1;
                format!("\"nameless {}\"", inner.nameless)
            }
        };
        let key = destination.key(&tag);
        // The final request of a complete upload is repeated if its answer was lost: the file there is its own.
        if !(offer.is_last_word() && inner.complete(&destination, &tag).is_some()) {
            self.check_replacing(&offer, &destination)?;
        }
        if let Some(upload) = inner.open.get(&key) {
            let known = lock(upload);
            if known.is_of(&offer, &tag) {
                drop(known);
                let upload = Arc::clone(upload);
                return Ok(Receipt::new(now, Arc::clone(self), key, upload, offer));
            }
            if known.receipts > 0 {
                return Err(Refusal::new(409, "another client is uploading this file"));
            }
            let is_saving = known.sink.as_ref().is_some_and(Sink::is_saving);
            drop(known);
            let replaced = inner.open.remove(&key);
            let mut replaced = replaced.as_ref().map(|upload| lock(upload));
            if is_saving
                && let Some(upload) = &mut replaced
                && let Some(sink) = upload.sink.take()
            {
                // A sync may take seconds, which must not block other clients.
                self.finisher.drop_later(sink);
                inner.closed.insert(key, std::mem::take(&mut upload.charge));
                return Err(Refusal::new(409, "the previous upload is still being stored; try again"));
            }
        }
        if let Some(Complete { upload, verdict, .. }) = inner.complete(&destination, &tag)
            && offer.is_last_word()
        {
            let (upload, verdict) = (Arc::clone(upload), Arc::clone(verdict));
            return Ok(Receipt::new(now, Arc::clone(self), key, upload, offer).settled(verdict));
        }
        self.put_surplus_down(&mut inner);
        let upload = Arc::new(Mutex::new(self.open(&mut inner, &offer, tag, destination)?));
        inner.open.insert(key.clone(), Arc::clone(&upload));
        drop(inner);
        Ok(Receipt::new(now, Arc::clone(self), key, upload, offer))
    }

    /// Refuses with 412 to replace an existing file, unless both this server and the request allow it.
    fn check_replacing(&self, offer: &PutContent, destination: &Destination) -> Result<(), Refusal> {
        let current = match destination {
            Destination::Nowhere(_) => None,
            Destination::File(names, _) => names.stat().map_err(FolderError::from)?,
        };
        offer.preconditions.check(current.as_ref().map(folder::etag_of).as_deref())?;
        if current.is_some() && !self.quota.limits.overwrite { Err(Refusal::exists()) } else { Ok(()) }
    }
}
