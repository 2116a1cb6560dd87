//! The secrets of the TLS connections in a lab, as lines of an NSS key log.
//!
//! Programs that know the environment variable `SSLKEYLOGFILE` write them to the file that it names: our generator and origin,
//! and of other programs curl, nghttpx, Apache httpd and more. Envoy gets the same file in its configuration, and `HAProxy`'s are
//! taken from its log ([`h2lab_lab::sut`]).
//!
//! A file of ours is gone with the value; with the run folder's end, if a lab was killed; and with the process that stays
//! outside of a lab of [`super::commands`]. Only SIGKILL to the outermost process leaves it, for its owner alone to read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::scratch;
use h2lab_net::tls::is_secret;

/// The variable that programs know.
pub const VARIABLE: &str = "SSLKEYLOGFILE";

/// What a process that writes secrets needs for that: see [`privileges::to_write`].
pub fn rights() -> CapabilitySet {
    let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    path.map_or(privileges::NONE, |path| privileges::to_write(Path::new(&path)))
}

/// The file that they go to.
#[derive(Debug)]
pub struct KeyLog {
    path: PathBuf,
    /// Where what is written from now on begins.
    from: u64,
    /// Whether we make it: then it is removed with the value.
    is_ours: bool,
}

impl KeyLog {
    /// The user's own file, if the environment names one; else an unused name below `folder`, for a file that is yet to be
    /// [made](Self::make).
    pub fn choose(folder: &Path) -> Result<Self> {
        match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => {
                let path = std::path::absolute(path)?;
                let from = fs::metadata(&path).map_or(0, |file| file.len());
                Ok(Self { path, from, is_ours: false })
            }
            None => Self::below(folder),
        }
    }

    fn below(folder: &Path) -> Result<Self> {
        Ok(Self { path: scratch::unique(folder, "keys")?, from: 0, is_ours: true })
    }

    /// Makes the file, if it is ours: only this user can read it.
    pub fn make(&self) -> std::io::Result<()> {
        if self.is_ours { scratch::create(&self.path).map(drop) } else { Ok(()) }
    }

    /// The file, from the root on.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that must not stay, if it is ours.
    pub fn ours(&self) -> Option<&Path> {
        self.is_ours.then_some(self.path.as_path())
    }

    /// What was written since, each line once: both ends of a connection write the same.
    pub fn lines(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            file.seek(SeekFrom::Start(self.from))?;
            file.read_to_end(&mut text).with_context(|| format!("cannot read {}", self.path.display()))?;
        }
        Ok(distinct(&text))
    }
}

impl Drop for KeyLog {
    fn drop(&mut self) {
        if self.is_ours {
            // Fails only if the folder has been removed meanwhile, which is as well.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_whole_line_is_reported_once_and_our_file_is_gone_with_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyLog::below(folder.path()).unwrap();
        assert!(!keys.path().exists(), "not before it is made");
        keys.make().unwrap();
        assert_eq!(keys.lines().unwrap(), b"");
        fs::write(keys.path(), "# comment\nA 1 2\nB 3 4\n\nA 1 2\nready\nB_0 3 ff\nC 5").unwrap();
        assert_eq!(keys.lines().unwrap(), b"A 1 2\nB 3 4\nB_0 3 ff\n");
        let path = keys.path().to_owned();
        assert_eq!(keys.ours(), Some(path.as_path()));
        drop(keys);
        assert!(!path.exists());
    }

    #[test]
    fn of_a_file_that_was_there_before_only_what_is_new_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        fs::write(&path, "OLD 1 2\nNEW 3 4\n").unwrap();
        let keys = KeyLog { path: path.clone(), from: 8, is_ours: false };
        keys.make().unwrap();
        assert_eq!(keys.lines().unwrap(), b"NEW 3 4\n");
        assert_eq!(keys.ours(), None);
        drop(keys);
        assert!(path.exists());
    }
}
