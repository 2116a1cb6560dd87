//! The packets of a visit, bytes and all: kept while the link carries, and used when it has ended, never before.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use h2lab_core::diagnose::waits::{self, Waits};
use h2lab_core::link::write_packet;
use h2lab_core::record::{CellRecord, PacketRecord};
use h2lab_core::trace::Direction;
use h2lab_core::units::nanos;

use super::keys::KeyLog;
use super::pcap::{self, Snapshot};
use crate::io::clock::Clock;
use crate::io::scratch;
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

    /// Ends it, once pump and programs have ended. Some programs write secrets into their logs.
    pub fn finish(self, logs: &[PathBuf]) -> Result<Captured> {
        let packets = self.spool.finish().context("the link's packets could not be kept")?;
        Ok(Captured { packets, secrets: self.keys.lines(logs)?, epoch_ns: self.epoch_ns })
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
    /// Writes the file for Wireshark, which only this user can read: it has the secrets of TLS. It is whole or not there.
    pub fn store(&self, path: &Path, ledger: &[PacketRecord], snaplen: Option<u32>) -> Result<()> {
        let cannot = || format!("cannot write {}", path.display());
        let folder = path.parent().with_context(cannot)?;
        let (partial, file) = scratch::private(folder, "capture").with_context(cannot)?;
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

    /// What the slow requests of a visit waited for. Its record has the ledger as it was at the end.
    pub fn explain(&self, visit: &CellRecord) -> Result<Waits> {
        let mut capture = waits::Capture::new(&String::from_utf8_lossy(&self.secrets));
        // Their record is by direction and index; a copy that the link made has that of its original, and comes behind it.
        let mut records: BTreeMap<(Direction, u64), Vec<&PacketRecord>> = BTreeMap::new();
        for record in &visit.packets {
            records.entry((record.direction, record.index)).or_default().push(record);
        }
        let mut bytes = Vec::new();
        for kept in self.packets.frames() {
            let (entered, frame) = (kept.entered, self.packets.frame(kept)?);
            for segment in 0..entered.segments {
                let index = entered.index + u64::from(segment);
                let Some(records) = records.get(&(entered.direction, index)) else { continue };
                bytes.clear();
                write_packet(frame.segment(segment), None, &mut bytes);
                for record in records {
                    capture.packet(record, &bytes);
                }
            }
        }
        let ids: Vec<u64> = visit.samples.iter().map(|sample| sample.number.into()).collect();
        Ok(capture.explain(visit, &ids))
    }

    /// What is to be known before it is read: packets that were not kept, and TLS without secrets.
    pub fn doubts(&self, is_tls: bool) -> Vec<String> {
        let Spooled { unkept, why, .. } = &self.packets;
        let why = why.as_deref().unwrap_or("the disk could not keep up");
        let unkept = (*unkept > 0).then(|| format!("the capture lacks {unkept} packets: {why}"));
        let secretless = (is_tls && self.secrets.is_empty()).then(|| {
            "the capture cannot be decrypted: the programs at the link's ends do not write the secrets of TLS".to_owned()
        });
        unkept.into_iter().chain(secretless).collect()
    }
}
