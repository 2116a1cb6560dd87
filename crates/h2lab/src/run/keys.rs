//! The secrets of the TLS connections in a lab, as lines of an NSS key log.
//!
//! Programs that know the environment variable `SSLKEYLOGFILE` write them to the file that it names: our generator and
//! origin, and of other programs curl, nghttpx, Apache httpd and more. Envoy is told the same file in its configuration, and
//! `HAProxy` writes them into its log.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::io::scratch;

/// The variable that programs know.
pub const VARIABLE: &str = "SSLKEYLOGFILE";

/// The file that they go to.
#[derive(Debug)]
pub struct KeyLog {
    path: PathBuf,
    /// Where what is written from now on begins.
    from: u64,
    /// Whether we made it: then it is removed with the value.
    is_ours: bool,
}

impl KeyLog {
    /// The user's own file, if the environment names one; else a new one below `folder`, which nobody else can read.
    pub fn open(folder: &Path) -> Result<Self> {
        match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => {
                let path = std::path::absolute(path)?;
                let from = fs::metadata(&path).map_or(0, |file| file.len());
                Ok(Self { path, from, is_ours: false })
            }
            None => Self::create(folder),
        }
    }

    fn create(folder: &Path) -> Result<Self> {
        let made = scratch::private(folder, "keys");
        let (path, _) = made.with_context(|| format!("cannot make a file in {}", folder.display()))?;
        Ok(Self { path, from: 0, is_ours: true })
    }

    /// The file, from the root on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written since, and what of a key log is in these files besides, each line once: both ends of a connection
    /// write the same.
    pub fn lines(&self, logs: &[PathBuf]) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            file.seek(SeekFrom::Start(self.from))?;
            file.read_to_end(&mut text).with_context(|| format!("cannot read {}", self.path.display()))?;
        }
        // A server that was never started has no log.
        logs.iter().filter_map(|log| fs::read(log).ok()).for_each(|log| text.extend(log));
        Ok(distinct(&text))
    }
}

impl Drop for KeyLog {
    fn drop(&mut self) {
        if self.is_ours {
            // Somebody who removed the folder meanwhile has done our work.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The lines of a key log, each once and whole: a program that was killed may have left half of its last.
fn distinct(text: &[u8]) -> Vec<u8> {
    let mut seen = BTreeSet::new();
    let whole = text.split_inclusive(|&byte| byte == b'\n').filter(|line| is_secret(line));
    whole.filter(|line| seen.insert(*line)).flatten().copied().collect()
}

/// Whether a line is of a key log (RFC 9850 §2): a label, and twice hexadecimal digits.
fn is_secret(line: &[u8]) -> bool {
    let Some(line) = line.strip_suffix(b"\n") else { return false };
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [label, random, secret] = words.as_slice() else { return false };
    let is_label = |&byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_hex = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_hexdigit);
    !label.is_empty() && label.iter().all(is_label) && is_hex(random) && is_hex(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_whole_line_is_told_once_and_our_file_is_gone_with_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyLog::create(folder.path()).unwrap();
        assert_eq!(keys.lines(&[]).unwrap(), b"");
        fs::write(keys.path(), "# comment\nA 1 2\nB 3 4\n\nA 1 2\nC 5").unwrap();
        assert_eq!(keys.lines(&[]).unwrap(), b"A 1 2\nB 3 4\n");
        let log = folder.path().join("log.txt");
        fs::write(&log, "ready\nB_0 3 ff\nA - -\n").unwrap();
        assert_eq!(keys.lines(&[log, "no-such".into()]).unwrap(), b"A 1 2\nB 3 4\nB_0 3 ff\n");
        let path = keys.path().to_owned();
        drop(keys);
        assert!(!path.exists());
    }

    #[test]
    fn of_a_file_that_was_there_before_only_what_is_new_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        fs::write(&path, "OLD 1 2\nNEW 3 4\n").unwrap();
        let keys = KeyLog { path: path.clone(), from: 8, is_ours: false };
        assert_eq!(keys.lines(&[]).unwrap(), b"NEW 3 4\n");
        drop(keys);
        assert!(path.exists());
    }
}
