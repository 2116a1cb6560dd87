//! The packets of a visit, bytes and all: kept while the link carries, and used when it has ended, never before.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use h2lab_core::record::PacketRecord;
use h2lab_core::units::nanos;

use super::keys::KeyLog;
use super::pcap::{self, Snapshot};
use crate::io::clock::Clock;
use crate::topology::{Intake, Spool, Spooled};

/// A capture under way.
#[derive(Debug)]
pub struct Capture {
    spool: Spool,
    keys: KeyLog,
    epoch_ns: u64,
}

impl Capture {
    /// Begins to keep what comes into the intake, which the pump takes. What lies on the disk meanwhile lies in `folder`.
    pub fn start(folder: &Path, clock: Clock) -> Result<(Self, Intake)> {
        let keys = KeyLog::open(folder)?;
        let (spool, intake) =
            Spool::start(folder).with_context(|| format!("cannot keep packets in {}", folder.display()))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(nanos).unwrap_or_default();
        let epoch_ns = now.saturating_sub(clock.now().as_nanos());
        Ok((Self { spool, keys, epoch_ns }, intake))
    }

    /// Where programs are to write the secrets of TLS.
    pub fn keys(&self) -> &KeyLog {
        &self.keys
    }

    /// Ends it, once pump and programs have ended.
    pub fn finish(self) -> Result<Captured> {
        let packets = self.spool.finish().context("the link's packets could not be kept")?;
        Ok(Captured { packets, secrets: self.keys.lines()?, epoch_ns: self.epoch_ns })
    }
}

/// What was captured.
#[derive(Debug)]
pub struct Captured {
    /// Every frame that entered the link.
    pub packets: Spooled,
    /// Lines of a key log.
    pub secrets: Vec<u8>,
    /// When the run's clock began, in nanoseconds since 1970.
    epoch_ns: u64,
}

impl Captured {
    /// Writes the file for Wireshark. It is whole or not there.
    pub fn store(&self, path: &Path, ledger: &[PacketRecord], snaplen: Option<u32>) -> Result<()> {
        let cannot = || format!("cannot write {}", path.display());
        let partial = path.with_extension("partial");
        let file = File::create(&partial).with_context(cannot)?;
        let written = self.write(BufWriter::new(file), ledger, snaplen);
        if written.is_err() {
            // A full disk is the likely reason; what is there of the file is of no use.
            let _ = fs::remove_file(&partial);
        }
        written.with_context(cannot)?;
        fs::rename(&partial, path).with_context(cannot)
    }

    /// The same into a file that is open.
    pub fn write(&self, out: impl Write, ledger: &[PacketRecord], snaplen: Option<u32>) -> Result<()> {
        let Self { packets, secrets, epoch_ns } = self;
        pcap::write(out, &Snapshot { packets, ledger, secrets, epoch_ns: *epoch_ns, snaplen })
    }

    /// What is to be known before it is read: packets that were not kept, and TLS without secrets.
    pub fn doubts(&self, is_tls: bool) -> Vec<String> {
        let unkept = self.packets.unkept;
        let unkept =
            (unkept > 0).then(|| format!("the capture lacks {unkept} packets: the disk could not keep up"));
        let secretless = (is_tls && self.secrets.is_empty()).then(|| {
            "the capture cannot be decrypted: the programs at the link's ends do not write the secrets of TLS".to_owned()
        });
        unkept.into_iter().chain(secretless).collect()
    }
}
