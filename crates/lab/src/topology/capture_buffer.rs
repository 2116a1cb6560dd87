//! The bytes of every packet, kept while the link runs: for a capture, and for analyses of one.
//!
//! Packets are kept as they entered, before any decision about them: the fate of each is in the packet log, under the
//! same direction and index. The pump only copies into memory; a thread of its own writes that to a file. Memory and
//! disk are bounded: what the file cannot take, or not soon enough, is dropped and counted. A run is worth more than
//! its capture: no error of the file ends it.
//!
//! A frame is kept as the device handed it over, super-packet or not, since segmenting it later is cheap and copying each
//! packet's headers now would not be.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::num::NonZeroU16;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use h2lab_base::units::{Time, format_bytes};
use h2lab_link::{ChecksumState, IpPacket, Offload};
use h2lab_wire::trace::Direction;
use rustix::fs::fstatvfs;

use super::packet_log::CAPACITY;
use h2lab_net::{privileges, scratch};

/// Bytes that are given to the writer at once: some milliseconds of a fast link, so that the pump rarely wakes it.
const BUFFER: usize = 1 << 20;
/// Maximum number of buffers in flight: 64 MiB, which is 100 ms of 5 Gbit/s while the file takes nothing.
const BUFFERS: usize = 64;
/// Bytes in front of each frame.
const HEAD: usize = 32;

/// Maximum number of packets that are kept. The packet log has fewer, and later processing takes up to 100 bytes of
/// memory for each.
const MOST: u64 = 5 * CAPACITY as u64;
/// Free space that is left on the disk, for the run's own results.
const RESERVE: u64 = 256 << 20;
/// A capture has each packet twice, as it entered and as it left, with some metadata: what was kept will need up to
/// this many times its own size.
const COPIES: u64 = 3;

/// Whether a file of `written` bytes may grow if this many bytes are `available` on the disk.
const fn has_room(available: u64, written: u64) -> bool {
    available >= RESERVE + COPIES * written
}

/// Bytes of frames, one after the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Packets on the wire that they represent.
    packets: u64,
}

/// Counts what was not kept.
#[derive(Debug, Default)]
struct Unkept {
    packets: AtomicU64,
    /// The reason, unless the file could not keep up.
    why: OnceLock<String>,
}

impl Unkept {
    fn count(&self, packets: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }

    /// Stops keeping packets. The first reason is the one that is reported.
    fn stop(&self, why: impl FnOnce() -> String) {
        self.why.get_or_init(why);
    }

    fn has_stopped(&self) -> bool {
        self.why.get().is_some()
    }
}

/// An open capture buffer: packets put into its [`Intake`] go to its file.
#[derive(Debug)]
pub struct CaptureBuffer {
    writer: JoinHandle<(File, u64)>,
    unkept: Arc<Unkept>,
}

impl CaptureBuffer {
    /// A capture buffer whose file has no name and lies on the disk of `folder`: it disappears with the process, however that
    /// ends.
    pub fn start(folder: &Path) -> io::Result<(Self, Intake)> {
        let file = scratch::nameless(folder)?;
        let (full, to_write) = sync_channel(BUFFERS);
        let (written, empty) = sync_channel(BUFFERS);
        let unkept = Arc::new(Unkept::default());
        let writer = Writer { file, written: 0, has_failed: false, unkept: Arc::clone(&unkept) };
        let builder = std::thread::Builder::new().name("link-capture".to_owned());
        let writer = builder.spawn(move || {
            privileges::renounce();
            writer.run(to_write, &written)
        })?;
        let intake = Intake::new(full, empty, Arc::clone(&unkept));
        Ok((Self { writer, unkept }, intake))
    }

    /// Waits until everything is written; its [`Intake`] must have been dropped.
    pub fn finish(self) -> io::Result<CapturedPackets> {
        let (file, size) = self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let why = self.unkept.why.get().cloned();
        CapturedPackets::read(file, size, self.unkept.packets.load(Ordering::Relaxed), why)
    }
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    file: File,
    /// Bytes of whole batches that are in the file.
    written: u64,
    /// A write has failed or was short: later batches would not be whole. If packets are no longer kept for another
    /// reason, the earlier ones remain valid.
    has_failed: bool,
    unkept: Arc<Unkept>,
}

impl Writer {
    /// Writes all batches; returns the file, and how many of its bytes are valid.
    fn run(mut self, batches: Receiver<Batch>, done: &SyncSender<Vec<u8>>) -> (File, u64) {
        for Batch { mut bytes, packets } in batches {
            if self.has_failed || !self.write(&bytes) {
                self.has_failed = true;
                self.unkept.count(packets);
            }
            bytes.clear();
            // Fails only if the pump has ended, and then the buffer is not needed again.
            let _ = done.try_send(bytes);
        }
        (self.file, self.written)
    }

    /// Writes the bytes; returns whether that succeeded.
    fn write(&mut self, bytes: &[u8]) -> bool {
        // If a file system does not report its free space, writing is tried.
        let available =
            fstatvfs(&self.file).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        if !has_room(available, self.written) {
            self.unkept.stop(|| format!("the disk has only {} left", format_bytes(available)));
            return false;
        }
        if let Err(error) = self.file.write_all(bytes) {
            self.unkept.stop(|| error.to_string());
            return false;
        }
        self.written += bytes.len() as u64;
        true
    }
}

/// Where the pump puts packets.
#[derive(Debug)]
pub struct Intake {
    filling: Batch,
    /// Buffers that were made so far.
    made: usize,
    /// Packets that may still be kept.
    room: u64,
    full: SyncSender<Batch>,
    empty: Receiver<Vec<u8>>,
    unkept: Arc<Unkept>,
}

impl Intake {
    fn new(full: SyncSender<Batch>, empty: Receiver<Vec<u8>>, unkept: Arc<Unkept>) -> Self {
        Self { filling: Batch::default(), made: 0, room: MOST, full, empty, unkept }
    }

    /// Keeps a frame that entered at `at`: `segments` packets of the wire, the first of which has `index`.
    pub(super) fn keep(&mut self, entered: FrameMetadata, bytes: &[u8]) {
        let packets = u64::from(entered.segments);
        if self.room < packets {
            self.unkept.stop(|| format!("it can have at most {MOST} packets"));
        }
        if self.unkept.has_stopped() || !self.has_room(HEAD + bytes.len()) {
            self.unkept.count(packets);
            return;
        }
        entered.write(bytes.len() as u32, &mut self.filling.bytes);
        self.filling.bytes.extend_from_slice(bytes);
        self.filling.packets += packets;
        self.room -= packets;
    }

    /// Whether there is room for this many bytes, or room can be made.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.filling.bytes.capacity() - self.filling.bytes.len() >= bytes || self.make_room()
    }

    /// Passes the buffer to the writer and takes an empty one; returns whether there was one.
    fn make_room(&mut self) -> bool {
        if !self.filling.bytes.is_empty() {
            match self.full.try_send(std::mem::take(&mut self.filling)) {
                Ok(()) => {}
                Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => {
                    self.filling = batch;
                    return false;
                }
            }
        }
        self.filling.bytes = match self.empty.try_recv() {
            Ok(buffer) => buffer,
            Err(_) if self.made < BUFFERS => {
                self.made += 1;
                Vec::with_capacity(BUFFER)
            }
            Err(_) => return false,
        };
        true
    }
}

impl Drop for Intake {
    /// The rest is written, too. The link carries nothing any more, so waiting for the writer delays no packet.
    fn drop(&mut self) {
        if !self.filling.bytes.is_empty() {
            let _ = self.full.send(std::mem::take(&mut self.filling));
        }
    }
}

/// The metadata of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameMetadata {
    /// When it entered the link.
    pub at: Time,
    /// Which way it went.
    pub direction: Direction,
    /// Index of its first packet among all of its direction, as in the packet log. The others follow.
    pub index: u64,
    /// Packets on the wire that it represents.
    pub segments: u32,
    /// What was offloaded to devices.
    pub offload: Offload,
}

impl FrameMetadata {
    fn write(&self, length: u32, out: &mut Vec<u8>) {
        let (kind, start, offset) = match self.offload.checksum {
            ChecksumState::Complete => (0_u8, 0, 0),
            ChecksumState::Partial { start, offset } => (1, start, offset),
            ChecksumState::Verified => (2, 0, 0),
        };
        let direction = u8::from(self.direction == Direction::Down);
        let segment = self.offload.segment.map_or(0, NonZeroU16::get);
        out.extend_from_slice(&self.at.as_nanos().to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&segment.to_le_bytes());
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&[kind, direction]);
    }

    /// Reads what [`FrameMetadata::write`] wrote, and the length of the bytes after it.
    fn read(head: &[u8; HEAD]) -> (Self, u32) {
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let checksum = match head[30] {
            0 => ChecksumState::Complete,
            1 => ChecksumState::Partial { start: u16_at(26), offset: u16_at(28) },
            _ => ChecksumState::Verified,
        };
        let entered = Self {
            at: Time::from_nanos(u64_at(0)),
            direction: if head[31] == 0 { Direction::Up } else { Direction::Down },
            index: u64_at(8),
            segments: u32_at(20),
            offload: Offload { segment: NonZeroU16::new(u16_at(24)), checksum },
        };
        (entered, u32_at(16))
    }
}

/// What a capture buffer has kept.
#[derive(Debug)]
pub struct CapturedPackets {
    file: File,
    frames: Vec<Kept>,
    /// Packets that were not kept.
    pub unkept: u64,
    /// Why no packets were kept after some time; `None` if the file at most could not keep up now and then.
    pub why: Option<String>,
}

/// A frame of a [`CapturedPackets`]: its bytes are in the file.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// What is known of it.
    pub entered: FrameMetadata,
    place: u64,
    length: u32,
}

impl CapturedPackets {
    /// Reads the content of the first `size` bytes of `file`.
    fn read(mut file: File, size: u64, unkept: u64, why: Option<String>) -> io::Result<Self> {
        file.rewind()?;
        let mut input = BufReader::with_capacity(1 << 16, &file);
        let (mut frames, mut place) = (Vec::new(), 0);
        while place < size {
            let mut head = [0; HEAD];
            input.read_exact(&mut head)?;
            let (entered, length) = FrameMetadata::read(&head);
            frames.push(Kept { entered, place: place + HEAD as u64, length });
            input.seek_relative(length.into())?;
            place += HEAD as u64 + u64::from(length);
        }
        drop(input);
        Ok(Self { file, frames, unkept, why })
    }

    /// All frames, each direction in the order in which they entered.
    pub fn frames(&self) -> &[Kept] {
        &self.frames
    }

    /// A frame, bytes and all.
    pub fn frame(&self, kept: &Kept) -> io::Result<IpPacket> {
        let mut bytes = vec![0; kept.length as usize];
        self.file.read_exact_at(&mut bytes, kept.place)?;
        IpPacket::read(bytes, kept.entered.offload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(index: u64, segments: u32) -> FrameMetadata {
        let checksum = ChecksumState::Partial { start: 20, offset: 16 };
        let segment = NonZeroU16::new(1448).filter(|_| segments > 1);
        FrameMetadata {
            at: Time::from_millis(index),
            direction: if index.is_multiple_of(2) { Direction::Up } else { Direction::Down },
            index: u64::MAX - index,
            segments,
            offload: Offload { segment, checksum },
        }
    }

    /// An IPv4 packet of a protocol other than TCP; its content does not matter here.
    fn packet(length: usize) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes.resize(length, 7);
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        bytes
    }

    #[test]
    fn what_was_put_in_comes_out_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (capture_buffer, mut intake) = CaptureBuffer::start(folder.path()).unwrap();
        // More than one buffer, so that the writer gives one back.
        let lengths: Vec<usize> = (0..3 * BUFFER / 30_000).map(|k| 20 + k * 997 % 60_000).collect();
        for (k, length) in lengths.iter().enumerate() {
            intake.keep(entered(k as u64, 1), &packet(*length));
        }
        drop(intake);
        let captured = capture_buffer.finish().unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has no name");
        assert_eq!(captured.frames().len() as u64 + captured.unkept, lengths.len() as u64);
        assert_eq!(captured.unkept, 0, "64 buffers are enough for three");
        for (k, (kept, length)) in captured.frames().iter().zip(&lengths).enumerate() {
            assert_eq!(kept.entered, entered(k as u64, 1));
            assert_eq!(captured.frame(kept).unwrap().into_bytes(), packet(*length));
        }
    }

    #[test]
    fn heads_survive_with_every_kind_of_checksum() {
        for checksum in [
            ChecksumState::Complete,
            ChecksumState::Verified,
            ChecksumState::Partial { start: 513, offset: 1027 },
        ] {
            let head = entered(3, 77);
            let head = FrameMetadata { offload: Offload { checksum, ..head.offload }, ..head };
            let mut bytes = Vec::new();
            head.write(65_536, &mut bytes);
            assert_eq!(FrameMetadata::read(bytes.as_slice().try_into().unwrap()), (head, 65_536));
        }
    }

    /// The other end of an intake.
    struct Other {
        to_write: Receiver<Batch>,
        written: SyncSender<Vec<u8>>,
        unkept: Arc<Unkept>,
    }

    impl Other {
        fn unkept(&self) -> u64 {
            self.unkept.packets.load(Ordering::Relaxed)
        }
    }

    /// An intake that may make one buffer, and hand on one at a time.
    fn narrow() -> (Intake, Other) {
        let (full, to_write) = sync_channel(1);
        let (written, empty) = sync_channel(1);
        let unkept = Arc::new(Unkept::default());
        let mut intake = Intake::new(full, empty, Arc::clone(&unkept));
        intake.made = BUFFERS - 1;
        (intake, Other { to_write, written, unkept })
    }

    #[test]
    fn what_does_not_fit_is_counted_by_packets_and_what_comes_later_is_kept_again() {
        let (mut intake, other) = narrow();
        let half = vec![0; BUFFER / 2 - HEAD];
        intake.keep(entered(0, 1), &half);
        intake.keep(entered(1, 1), &half);
        assert_eq!(other.unkept(), 0, "one buffer holds both");
        intake.keep(entered(2, 44), &half);
        assert_eq!(other.unkept(), 44, "the writer has it, and there is no other");
        let Batch { mut bytes, packets } = other.to_write.recv().unwrap();
        assert_eq!((bytes.len(), packets), (BUFFER, 2));
        bytes.clear();
        other.written.send(bytes).unwrap();
        intake.keep(entered(46, 1), &half);
        drop(intake);
        assert_eq!(other.unkept(), 44);
        assert_eq!(other.to_write.recv().unwrap().bytes.len(), BUFFER / 2);
    }

    #[test]
    fn no_more_packets_are_kept_than_can_be_used() {
        let (mut intake, other) = narrow();
        intake.room = 45;
        intake.keep(entered(0, 44), &packet(100));
        intake.keep(entered(44, 1), &packet(100));
        assert_eq!(other.unkept(), 0);
        intake.keep(entered(45, 1), &packet(100));
        assert_eq!(other.unkept(), 1);
        assert!(other.unkept.why.get().unwrap().contains("10000000 packets"));
    }

    #[test]
    fn what_was_kept_before_the_limit_is_written_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut intake, Other { to_write, written, unkept }) = narrow();
        intake.room = 2;
        for k in 0..3 {
            intake.keep(entered(k, 1), &packet(100));
        }
        drop(intake);
        assert!(unkept.has_stopped(), "before a byte was written");
        let file = scratch::nameless(folder.path()).unwrap();
        let writer = Writer { file, written: 0, has_failed: false, unkept: Arc::clone(&unkept) };
        let (file, size) = writer.run(to_write, &written);
        let captured = CapturedPackets::read(file, size, 0, None).unwrap();
        let kept: Vec<FrameMetadata> = captured.frames().iter().map(|kept| kept.entered).collect();
        assert_eq!(kept, [entered(0, 1), entered(1, 1)]);
        assert_eq!(unkept.packets.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn room_is_left_on_the_disk_for_what_is_made_of_it() {
        assert!(has_room(RESERVE, 0) && !has_room(RESERVE - 1, 0));
        assert!(has_room(RESERVE + 3000, 1000) && !has_room(RESERVE + 2999, 1000));
    }

    #[test]
    fn a_disk_that_takes_no_more_ends_the_capture_and_what_was_whole_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let unkept = Arc::new(Unkept::default());
        let file = scratch::nameless(folder.path()).unwrap();
        let mut writer = Writer { file, written: 0, has_failed: false, unkept: Arc::clone(&unkept) };
        let mut bytes = Vec::new();
        entered(0, 1).write(100, &mut bytes);
        bytes.extend(packet(100));
        assert!(writer.write(&bytes));
        // Half of a frame, as after a short write on a full disk.
        writer.file.write_all(&bytes[..50]).unwrap();
        writer.has_failed = true;
        unkept.stop(|| "no space left".to_owned());
        let (full, to_write) = sync_channel(2);
        let (written, _empty) = sync_channel(2);
        full.send(Batch { bytes, packets: 7 }).unwrap();
        drop(full);
        let (file, size) = writer.run(to_write, &written);
        assert_eq!(unkept.packets.load(Ordering::Relaxed), 7);
        let captured = CapturedPackets::read(file, size, 7, unkept.why.get().cloned()).unwrap();
        assert_eq!((captured.frames().len(), captured.why.as_deref()), (1, Some("no space left")));
        assert_eq!(captured.frame(&captured.frames()[0]).unwrap().into_bytes(), packet(100));
    }
}
