//! `h2lab diagnose FILE.pcapng`: a capture is read, and what it shows is reported.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_analysis::diagnose::passive::{Capture, Captured};
use h2lab_link::capture_file::{CaptureFile, Entry};
use h2lab_model::record::RunRecord;

use super::super::exit::Usage;
use super::observed;

/// Bytes that are read at once.
const PIECE: usize = 1 << 18;

/// Whether a file is a capture, by its name or its first bytes.
pub(super) fn is_capture(path: &Path) -> bool {
    const ENDINGS: [&str; 3] = ["pcapng", "pcap", "cap"];
    let named =
        path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end.eq_ignore_ascii_case(known)));
    if named || !path.is_file() {
        return named;
    }
    let mut first = [0; 4];
    let begun = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    let magic = u32::from_le_bytes(first);
    begun.is_ok() && matches!(magic, 0x0a0d_0d0a | 0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1)
}

/// The run made from a capture, with a repetition of each server and protocol in it; what cannot be known from it; and
/// how many connections are [`unread`].
pub(super) fn read(
    path: &Path,
    key_log: Option<&Path>,
    command: Vec<String>,
) -> Result<(RunRecord, Vec<String>, u64)> {
    let lines = key_log
        .map(std::fs::read)
        .transpose()
        .map_err(|error| Usage(format!("cannot read {}: {error}", key_log.unwrap_or(path).display())))?;
    let lines = String::from_utf8_lossy(lines.as_deref().unwrap_or_default()).into_owned();
    let (captured, damage) = packets(path, Capture::new(&lines))?;
    let notes: Vec<String> =
        damage.iter().cloned().chain(captured.notes.iter().map(ToString::to_string)).collect();
    if captured.records.is_empty() {
        let why = if damage.is_some() { &notes[..1] } else { &notes[..] };
        let none = "no request of HTTP could be read from it";
        return Err(Usage(format!("{}: {none}\n- {}", path.display(), why.join("\n- "))).into());
    }
    let machine = format!("capture {}", path.display());
    let unread = unread(&captured);
    Ok((run(machine, captured, command), notes, unread))
}

/// The number of its connections on which no request could be read.
pub(super) fn unread(captured: &Captured) -> u64 {
    let read: usize = captured.records.iter().map(|record| record.connections.len()).sum();
    captured.connections.saturating_sub(read) as u64
}

/// Feeds the packets of a file to `capture`. Returns its result, and why the file could not be read to its end, if so.
pub(super) fn packets(path: &Path, mut capture: Capture) -> Result<(Captured, Option<String>)> {
    let mut file =
        File::open(path).map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    let mut blocks = CaptureFile::default();
    let mut piece = vec![0; PIECE];
    let mut damage = None;
    loop {
        let n = file.read(&mut piece).with_context(|| format!("cannot read {}", path.display()))?;
        if n == 0 {
            break;
        }
        let read = blocks.feed(&piece[..n], &mut |entry| match entry {
            Entry::Packet(packet) => capture.packet(&packet),
            Entry::Secrets(lines) => capture.secrets(lines),
            Entry::Untimed => capture.untimed(),
        });
        if let Err(error) = read {
            damage = Some(format!("it could not be read to its end: {error}"));
            break;
        }
    }
    Ok((capture.finish(damage.is_some() || blocks.is_whole()), damage))
}

/// The run made from packets; `machine` says where they come from.
pub(super) fn run(machine: String, captured: Captured, command: Vec<String>) -> RunRecord {
    observed::run(machine, Duration::from_nanos(captured.began_nanos), captured.records, command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_link::LinkSpec;
    use h2lab_model::record::{CellRecord, ConnectionRecord};
    use h2lab_model::scenario::Scenario;

    #[test]
    fn connections_of_which_no_request_was_read_are_counted() {
        let mut captured = Capture::of_run(LinkSpec::default()).finish(true);
        captured.connections = 3;
        assert_eq!(unread(&captured), 3);
        let cell = Scenario::default().plan().into_iter().next().expect("a cell");
        let mut record = CellRecord::empty(cell);
        record.connections.extend([ConnectionRecord::default(), ConnectionRecord::default()]);
        captured.records.push(record);
        assert_eq!(unread(&captured), 1);
        captured.connections = 0;
        assert_eq!(unread(&captured), 0);
    }
}
