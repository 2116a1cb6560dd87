//! A server's output, kept in its folder, without the TLS secrets that some servers print there.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::kind::{LOG, ORIGIN_COUNTS, QUIC_SAMPLE};
use h2lab_net::process::OnLine;
use h2lab_net::scratch;
use h2lab_net::tls::is_secret;

/// Maximum bytes that are kept: a server that logs an error for every request must not fill the disk.
const LIMIT: usize = 1 << 20;

/// The log of a server, in its folder.
#[derive(Debug)]
pub(super) struct ServerLog {
    /// `None` once nothing more is written.
    file: Option<File>,
    written: usize,
    /// Where secrets go.
    key_log: Option<File>,
    samples: SampleLines,
}

/// The lines of our origin about its QUIC connections and what it counted, which are kept for the lab and not in the log.
pub(super) type SampleLines = Arc<Mutex<Vec<String>>>;

/// Maximum number of samples that are kept: 100 connections for 100 seconds.
const MOST_SAMPLES: usize = 1_000_000;

impl ServerLog {
    /// Creates the log in `folder`. If `key_log` is given, lines of secrets go there instead: it is removed with the
    /// run, and the log stays. Only this user can read the log then, since a truncated secret is not recognised as one.
    pub fn create(folder: &Path, key_log: Option<&Path>, samples: SampleLines) -> io::Result<Self> {
        let path = folder.join(LOG);
        let file = if key_log.is_some() { scratch::secret(&path)? } else { File::create(&path)? };
        let key_log = key_log.map(|path| File::options().append(true).open(path)).transpose()?;
        Ok(Self { file: Some(file), written: 0, key_log, samples })
    }

    /// The callback that takes the lines.
    pub fn into_listener(mut self) -> OnLine {
        Box::new(move |line| self.take(line))
    }

    /// If the file cannot be written, logging ends: the server must not suffer from it.
    fn take(&mut self, line: &[u8]) {
        if self.key_log.is_some() && is_secret(line) {
            if self.key_log.as_mut().is_some_and(|keys| keys.write_all(line).is_err()) {
                // A capture that lacks secrets is reported with the capture.
                self.key_log = None;
            }
            return;
        }
        if [QUIC_SAMPLE, ORIGIN_COUNTS].iter().any(|start| line.starts_with(start.as_bytes())) {
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            if samples.len() < MOST_SAMPLES {
                samples.push(String::from_utf8_lossy(line).into_owned());
            }
            return;
        }
        self.written += line.len();
        if self.file.as_mut().is_some_and(|file| self.written > LIMIT || file.write_all(line).is_err()) {
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SECRET: &[u8] = b"SERVER_TRAFFIC_SECRET_0 3a ff\n";

    #[test]
    fn secrets_go_to_the_key_log_and_not_to_the_log_that_stays() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        fs::write(&keys, "# another's\n").unwrap();
        let mut listen =
            ServerLog::create(folder.path(), Some(&keys), Arc::default()).unwrap().into_listener();
        for line in [b"ready\n", SECRET, b"bye\n"] {
            listen(line);
        }
        let log = folder.path().join(LOG);
        assert_eq!(fs::read_to_string(&log).unwrap(), "ready\nbye\n");
        assert_eq!(fs::read(&keys).unwrap(), [b"# another's\n", SECRET].concat());
        assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn lines_for_the_lab_are_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let samples = SampleLines::default();
        let mut log = ServerLog::create(folder.path(), None, Arc::clone(&samples)).unwrap();
        let lines: [&[u8]; 3] = [b"quic-sample 1\n", b"served 1\n", b"origin-counts 2\n"];
        for line in lines {
            log.take(line);
        }
        assert_eq!(*samples.lock().unwrap(), ["quic-sample 1\n", "origin-counts 2\n"]);
        assert_eq!(fs::read_to_string(folder.path().join(LOG)).unwrap(), "served 1\n");
    }

    #[test]
    fn a_log_that_is_full_takes_no_more_and_secrets_do_not_fill_it() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        File::create(&keys).unwrap();
        let mut log = ServerLog::create(folder.path(), Some(&keys), Arc::default()).unwrap();
        log.take(&vec![b'x'; LIMIT]);
        log.take(SECRET);
        log.take(b"too much\n");
        assert_eq!(fs::metadata(folder.path().join(LOG)).unwrap().len(), LIMIT as u64);
        assert_eq!(fs::read(&keys).unwrap(), SECRET);
    }
}
