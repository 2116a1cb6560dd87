//! The packets of a repetition, bytes and all: kept while the link carries, and used when it has ended, never before.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use h2lab_analysis::diagnose::waits;
use h2lab_analysis::diagnose::waits::Waits;
use h2lab_base::units::nanos;
use h2lab_link::write_packet;
use h2lab_model::record::{CellRecord, PacketRecord};
use h2lab_wire::trace::Direction;

use super::keys::KeyLog;
use super::messages::{Failure, FailureKind};
use super::pcap::{self, Snapshot};
use h2lab_lab::topology::{CaptureBuffer, CapturedPackets, Intake};
use h2lab_net::clock::Clock;
use h2lab_net::scratch;

/// A capture in progress.
#[derive(Debug)]
pub struct Capture {
    folder: PathBuf,
    buffer: CaptureBuffer,
    keys: KeyLog,
    epoch_ns: u64,
}

impl Capture {
    /// Begins to keep what comes into the intake, which the pump takes. What lies on the disk meanwhile lies in `folder`;
    /// if it cannot, that is a [`Failure`] of this machine.
    pub fn start(folder: &Path, keys: KeyLog, clock: Clock) -> Result<(Self, Intake)> {
        let cannot = |error: io::Error| refused("keep packets in", folder, &error);
        keys.make().map_err(cannot)?;
        let (buffer, intake) = CaptureBuffer::start(folder).map_err(cannot)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(nanos).unwrap_or_default();
        let epoch_ns = now.saturating_sub(clock.now().as_nanos());
        Ok((Self { folder: folder.to_owned(), buffer, keys, epoch_ns }, intake))
    }

    /// Where programs are to write the secrets of TLS.
    pub fn keys(&self) -> &KeyLog {
        &self.keys
    }

    /// Ends it, once pump and programs have ended.
    pub fn finish(self) -> Result<Captured> {
        let packets = self.buffer.finish();
        let packets = packets.map_err(|error| refused("keep packets in", &self.folder, &error))?;
        Ok(Captured { packets, secrets: self.keys.lines()?, epoch_ns: self.epoch_ns })
    }
}

/// What this machine refused, and what to do about it.
fn refused(what: &str, path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose another disk"
        }
        _ => "",
    };
    let message = format!("cannot {what} {}: {error}{remedy}", path.display());
    Failure { kind: FailureKind::Environment, message }
}

/// What was captured.
#[derive(Debug)]
pub struct Captured {
    /// Every frame that entered the link.
    pub packets: CapturedPackets,
    /// Lines of a key log.
    pub secrets: Vec<u8>,
    /// When the run's clock began, in nanoseconds since 1970.
    epoch_ns: u64,
}

impl Captured {
    /// Writes the file for Wireshark, which only this user can read: it has the secrets of TLS. It is whole or not there; a
    /// disk that does not take it is a [`Failure`] of this machine.
    pub fn store(&self, path: &Path, packet_log: &[PacketRecord], snaplen: Option<u32>) -> Result<()> {
        let cannot = |error: io::Error| refused("write", path, &error);
        let folder = path.parent().with_context(|| format!("{} is not a file", path.display()))?;
        let (partial, file) = scratch::private(folder, "capture").map_err(cannot)?;
        let written = self.write(file, path, packet_log, snaplen);
        if written.is_err() {
            // A full disk is the likely reason; a partial file is useless.
            let _ = fs::remove_file(&partial);
        }
        written?;
        Ok(fs::rename(&partial, path).map_err(cannot)?)
    }

    /// The same into an open file, which errors call `path`.
    pub fn write(
        &self,
        file: File,
        path: &Path,
        packet_log: &[PacketRecord],
        snaplen: Option<u32>,
    ) -> Result<()> {
        let Self { packets, secrets, epoch_ns } = self;
        let snapshot = Snapshot { packets, packet_log, secrets, epoch_ns: *epoch_ns, snaplen };
        pcap::write(BufWriter::new(file), &snapshot).map_err(|error| match error.downcast::<io::Error>() {
            // What was kept and makes no sense is a defect of ours.
            Ok(error) if error.kind() != io::ErrorKind::InvalidData => refused("write", path, &error).into(),
            Ok(error) => error.into(),
            Err(error) => error,
        })
    }

    /// What the slow requests of a repetition waited for. Its record has the packet log as it was at the end, which had no room
    /// for
    /// `unrecorded` packets.
    pub fn explain(&self, repetition: &CellRecord, unrecorded: u64) -> Result<Waits> {
        let mut capture = waits::CapturedConnections::new(&String::from_utf8_lossy(&self.secrets));
        capture.miss(unrecorded);
        // Their record is by direction and index; a copy that the link made has that of its original, and comes behind it.
        let mut records: BTreeMap<(Direction, u64), Vec<&PacketRecord>> = BTreeMap::new();
        for record in &repetition.packets {
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
        let ids: Vec<u64> = repetition.samples.iter().map(|sample| sample.number.into()).collect();
        Ok(capture.explain(repetition, &ids))
    }

    /// Why no packet is there although some went over the link, if so: what lies on the disk lay in `place`.
    pub fn unkept(&self, place: &Path) -> Option<Failure> {
        let CapturedPackets { unkept, why, .. } = &self.packets;
        let why = why.as_deref().filter(|_| *unkept > 0)?;
        let place = place.display();
        let message = format!(
            "the packets could not be kept in {place}: {why}; free some space, or choose another folder by TMPDIR"
        );
        Some(Failure { kind: FailureKind::Environment, message })
    }

    /// What is to be known before it is read: packets that were not kept, and TLS without secrets.
    pub fn doubts(&self, is_tls: bool) -> Vec<String> {
        let CapturedPackets { unkept, why, .. } = &self.packets;
        let why = why.as_deref().unwrap_or("the disk could not keep up");
        let unkept = (*unkept > 0).then(|| format!("the capture lacks {unkept} packets: {why}"));
        let secretless = (is_tls && self.secrets.is_empty()).then(|| {
            "the capture cannot be decrypted: the programs at the link's ends write no TLS secrets".to_owned()
        });
        unkept.into_iter().chain(secretless).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_of_this_machine<T>(result: Result<T>, words: &[&str]) {
        let failure: Failure = result.err().expect("it cannot").downcast().expect("a failure");
        assert_eq!(failure.kind, FailureKind::Environment);
        assert!(words.iter().all(|word| failure.message.contains(word)), "{failure}");
    }

    #[test]
    fn what_the_disk_does_not_take_is_no_defect_of_ours_and_names_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let start = |folder: &Path| Capture::start(folder, KeyLog::choose(folder)?, Clock::start());
        let absent = folder.path().join("absent");
        assert_of_this_machine(start(&absent), &["cannot keep packets in", "absent"]);

        let (capture, intake) = start(folder.path()).unwrap();
        drop(intake);
        let captured = capture.finish().unwrap();
        let file = || File::options().write(true).open("/dev/full").unwrap();
        assert_of_this_machine(
            captured.write(file(), Path::new("link.pcapng"), &[], None),
            &["cannot write link.pcapng", "free some space"],
        );
        assert_of_this_machine(captured.store(&absent.join("0000.pcapng"), &[], None), &["cannot write"]);
        captured.store(&folder.path().join("0000.pcapng"), &[], None).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing else is left");
    }
}
