//! What uploads may take of a server: each of them, all together, and of the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h2lab_base::units::format_bytes;
use h2lab_net::storage::Spare;

use super::refusal::Refusal;

/// What clients may store on a server.
#[derive(Debug, Clone, Default)]
pub struct UploadLimits {
    /// Bytes of the longest file; `None`: any.
    pub max_upload: Option<u64>,
    /// Bytes that this process stores in all, of complete and of unfinished files; `None`: any.
    pub max_total: Option<u64>,
    /// What stays free on the disk.
    pub spare: Spare,
    /// Whether a file of the same name may be replaced.
    pub overwrite: bool,
}

/// Keeps the account of what is stored.
#[derive(Debug, Default)]
pub(super) struct Quota {
    pub limits: UploadLimits,
    /// Bytes that are stored.
    stored: Arc<AtomicU64>,
}

/// The bytes that one upload has stored. They are given back when it is dropped, since then nothing is left of it, unless
/// [`Charge::keep`] says otherwise.
#[derive(Debug, Default)]
pub(super) struct Charge {
    stored: Arc<AtomicU64>,
    bytes: u64,
    max_total: Option<u64>,
}

impl Quota {
    pub fn new(limits: UploadLimits) -> Self {
        Self { limits, stored: Arc::default() }
    }

    /// Refuses a file of `length` bytes if it is longer than one may be: 413 (RFC 9110 §15.5.14).
    pub fn check_length(&self, length: u64) -> Result<(), Refusal> {
        match self.limits.max_upload {
            Some(most) if length > most => {
                let words =
                    format!("a file of {length} bytes is too long: this server takes {most} (--max-upload)");
                Err(Refusal::new(413, words))
            }
            _ => Ok(()),
        }
    }

    /// The account of an upload that has stored nothing yet and will need `more` bytes, in place of those of an upload `before` it; an
    /// error, if they exceed what all may store.
    pub fn open(&self, more: u64, before: Option<&Charge>) -> Result<Charge, Refusal> {
        let more = more.saturating_sub(before.map_or(0, |before| before.bytes));
        let charge = Charge { stored: Arc::clone(&self.stored), bytes: 0, max_total: self.limits.max_total };
        if more > 0 {
            charge.check(self.stored.load(Ordering::Relaxed), more)?;
        }
        Ok(charge)
    }
}

impl Charge {
    /// 507 (RFC 4918 §11.5) if `more` bytes do not fit beside those that are `stored`.
    fn check(&self, stored: u64, more: u64) -> Result<u64, Refusal> {
        let after = stored.saturating_add(more);
        match self.max_total {
            Some(most) if after > most => {
                let words = format!(
                    "not enough space: {} more needed, and of the {} for all uploads (--max-total) {} are used",
                    format_bytes(more),
                    format_bytes(most),
                    format_bytes(stored)
                );
                Err(Refusal::new(507, words))
            }
            _ => Ok(after),
        }
    }

    /// Charges `more` bytes that are about to be stored.
    pub fn add(&mut self, more: u64) -> Result<(), Refusal> {
        let mut stored = self.stored.load(Ordering::Relaxed);
        loop {
            let after = self.check(stored, more)?;
            match self.stored.compare_exchange_weak(stored, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => stored = now,
            }
        }
        self.bytes += more;
        Ok(())
    }

    /// `bytes` bytes are not stored any more, or could not be. Those of an earlier process were never charged.
    pub fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.stored.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What was stored stays charged when this is dropped.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back_and_what_is_kept_is_not() {
        let quota = Quota::new(UploadLimits { max_total: Some(10), ..UploadLimits::default() });
        let mut first = quota.open(10, None).unwrap();
        first.add(7).unwrap();
        let refused = quota.open(4, None).unwrap_err();
        assert_eq!(refused.status, 507);
        assert!(refused.words.contains("--max-total"), "{}", refused.words);
        let mut second = quota.open(3, None).unwrap();
        assert_eq!(second.add(4).unwrap_err().status, 507, "nothing of it is charged");
        second.add(3).unwrap();
        assert!(quota.open(1, None).is_err() && quota.open(0, None).is_ok());
        assert!(quota.open(7, Some(&first)).is_ok() && quota.open(8, Some(&first)).is_err());
        first.give_back(2);
        drop(second);
        assert!(quota.open(5, None).is_ok() && quota.open(6, None).is_err());
        first.keep();
        assert!(quota.open(5, None).is_ok() && quota.open(6, None).is_err());
    }

    #[test]
    fn a_file_may_be_as_long_as_the_limit_says() {
        let quota = Quota::new(UploadLimits { max_upload: Some(10), ..UploadLimits::default() });
        assert!(quota.check_length(10).is_ok());
        let refused = quota.check_length(11).unwrap_err();
        assert!(refused.status == 413 && refused.words.contains("--max-upload"), "{}", refused.words);
    }
}
