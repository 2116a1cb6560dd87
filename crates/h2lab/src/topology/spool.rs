//! The bytes of every packet, kept while the link carries: for a capture, and for what is concluded from one.
//!
//! Kept is what entered, before anything was decided about it: what became of each packet is in the ledger, under the same
//! direction and index. The pump only copies into memory; a thread of its own writes that to a file. Memory is bounded: if
//! the file cannot keep up, packets are not kept, and counted.
//!
//! A frame is kept as the device handed it over, super-packet or not, since cutting it again is cheap later and copying its
//! headers would not be now.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::num::NonZeroU16;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use h2lab_core::link::{Checksum, Frame, Offload};
use h2lab_core::trace::Direction;
use h2lab_core::units::Time;

use crate::io::scratch;

/// Bytes that are handed to the writer at once: some milliseconds of a fast link, so that the pump rarely wakes it.
const BUFFER: usize = 1 << 20;
/// Buffers under way at most: 64 MiB, which is 100 ms of 5 Gbit/s while the file takes nothing.
const BUFFERS: usize = 64;
/// Bytes in front of each frame.
const HEAD: usize = 32;

/// An open spool: what is put into its [`Intake`] goes to its file.
#[derive(Debug)]
pub struct Spool {
    writer: JoinHandle<io::Result<File>>,
    unkept: Arc<AtomicU64>,
}

impl Spool {
    /// A spool whose file has no name and lies on the disk of `folder`: it is gone with the process, however that ends.
    pub fn start(folder: &Path) -> io::Result<(Self, Intake)> {
        let file = scratch::nameless(folder)?;
        let (full, to_write) = sync_channel::<Vec<u8>>(BUFFERS);
        let (written, empty) = sync_channel(BUFFERS);
        let builder = std::thread::Builder::new().name("link-spool".to_owned());
        let writer = builder.spawn(move || {
            let mut file = file;
            for mut buffer in to_write {
                file.write_all(&buffer)?;
                buffer.clear();
                // Fails only if the pump has ended, and then nobody needs it again.
                let _ = written.try_send(buffer);
            }
            Ok(file)
        })?;
        let unkept = Arc::new(AtomicU64::new(0));
        let intake = Intake { filling: Vec::new(), made: 0, full, empty, unkept: Arc::clone(&unkept) };
        Ok((Self { writer, unkept }, intake))
    }

    /// Waits until all is written; its [`Intake`] must be gone.
    pub fn finish(self) -> io::Result<Spooled> {
        let file = self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Spooled::read(file, self.unkept.load(Ordering::Relaxed))
    }
}

/// Where the pump puts packets.
#[derive(Debug)]
pub struct Intake {
    filling: Vec<u8>,
    /// Buffers that were made so far.
    made: usize,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    unkept: Arc<AtomicU64>,
}

impl Intake {
    /// Keeps a frame that entered at `at`: `segments` packets of the wire, the first of which has `index`.
    pub(super) fn keep(&mut self, entered: Entered, bytes: &[u8]) {
        if self.filling.capacity() - self.filling.len() < HEAD + bytes.len() && !self.make_room() {
            self.unkept.fetch_add(entered.segments.into(), Ordering::Relaxed);
            return;
        }
        entered.write(bytes.len() as u32, &mut self.filling);
        self.filling.extend_from_slice(bytes);
    }

    /// Hands the buffer on and takes an empty one; whether there was one.
    fn make_room(&mut self) -> bool {
        if !self.filling.is_empty() {
            match self.full.try_send(std::mem::take(&mut self.filling)) {
                Ok(()) => {}
                // The writer has failed, which is told when it is joined; until then nothing can be kept.
                Err(TrySendError::Full(buffer) | TrySendError::Disconnected(buffer)) => {
                    self.filling = buffer;
                    return false;
                }
            }
        }
        self.filling = match self.empty.try_recv() {
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
    /// The rest is written, too. Nothing is carried any more, so that waiting for the writer costs nothing.
    fn drop(&mut self) {
        if !self.filling.is_empty() {
            let _ = self.full.send(std::mem::take(&mut self.filling));
        }
    }
}

/// What is known of a frame besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// When it entered the link.
    pub at: Time,
    /// Which way it went.
    pub direction: Direction,
    /// Index of its first packet among all of its direction, as the ledger has it. The others follow.
    pub index: u64,
    /// Packets of the wire that it stands for.
    pub segments: u32,
    /// What was left to devices.
    pub offload: Offload,
}

impl Entered {
    fn write(&self, length: u32, out: &mut Vec<u8>) {
        let (kind, start, offset) = match self.offload.checksum {
            Checksum::Complete => (0_u8, 0, 0),
            Checksum::Partial { start, offset } => (1, start, offset),
            Checksum::Verified => (2, 0, 0),
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

    /// Reads what [`Entered::write`] wrote, and the length of the bytes behind it.
    fn read(head: &[u8; HEAD]) -> (Self, u32) {
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let checksum = match head[30] {
            0 => Checksum::Complete,
            1 => Checksum::Partial { start: u16_at(26), offset: u16_at(28) },
            _ => Checksum::Verified,
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

/// What a spool has kept.
#[derive(Debug)]
pub struct Spooled {
    file: File,
    frames: Vec<Kept>,
    /// Packets that could not be kept, because the file could not keep up.
    pub unkept: u64,
}

/// A frame of a [`Spooled`]: its bytes are in the file.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// What is known of it.
    pub entered: Entered,
    place: u64,
    length: u32,
}

impl Spooled {
    fn read(mut file: File, unkept: u64) -> io::Result<Self> {
        file.rewind()?;
        let size = file.metadata()?.len();
        let mut input = BufReader::with_capacity(1 << 16, &file);
        let (mut frames, mut place) = (Vec::new(), 0);
        while place < size {
            let mut head = [0; HEAD];
            input.read_exact(&mut head)?;
            let (entered, length) = Entered::read(&head);
            frames.push(Kept { entered, place: place + HEAD as u64, length });
            input.seek_relative(length.into())?;
            place += HEAD as u64 + u64::from(length);
        }
        drop(input);
        Ok(Self { file, frames, unkept })
    }

    /// All frames, each direction in the order in which they entered.
    pub fn frames(&self) -> &[Kept] {
        &self.frames
    }

    /// A frame, bytes and all.
    pub fn frame(&self, kept: &Kept) -> io::Result<Frame> {
        let mut bytes = vec![0; kept.length as usize];
        self.file.read_exact_at(&mut bytes, kept.place)?;
        Frame::read(bytes, kept.entered.offload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(index: u64, segments: u32) -> Entered {
        let checksum = Checksum::Partial { start: 20, offset: 16 };
        let segment = NonZeroU16::new(1448).filter(|_| segments > 1);
        Entered {
            at: Time::from_millis(index),
            direction: if index.is_multiple_of(2) { Direction::Up } else { Direction::Down },
            index: u64::MAX - index,
            segments,
            offload: Offload { segment, checksum },
        }
    }

    /// An IPv4 packet of another protocol than TCP: what it holds does not matter here.
    fn packet(length: usize) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes.resize(length, 7);
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        bytes
    }

    #[test]
    fn what_was_put_in_comes_out_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (spool, mut intake) = Spool::start(folder.path()).unwrap();
        // More than one buffer, so that the writer gives one back.
        let lengths: Vec<usize> = (0..3 * BUFFER / 30_000).map(|k| 20 + k * 997 % 60_000).collect();
        for (k, length) in lengths.iter().enumerate() {
            intake.keep(entered(k as u64, 1), &packet(*length));
        }
        drop(intake);
        let spooled = spool.finish().unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has no name");
        assert_eq!(spooled.frames().len() as u64 + spooled.unkept, lengths.len() as u64);
        assert_eq!(spooled.unkept, 0, "64 buffers are enough for three");
        for (k, (kept, length)) in spooled.frames().iter().zip(&lengths).enumerate() {
            assert_eq!(kept.entered, entered(k as u64, 1));
            assert_eq!(spooled.frame(kept).unwrap().into_bytes(), packet(*length));
        }
    }

    #[test]
    fn heads_survive_with_every_kind_of_checksum() {
        for checksum in
            [Checksum::Complete, Checksum::Verified, Checksum::Partial { start: 513, offset: 1027 }]
        {
            let head = entered(3, 77);
            let head = Entered { offload: Offload { checksum, ..head.offload }, ..head };
            let mut bytes = Vec::new();
            head.write(65_536, &mut bytes);
            assert_eq!(Entered::read(bytes.as_slice().try_into().unwrap()), (head, 65_536));
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_by_packets_and_what_comes_later_is_kept_again() {
        let (full, to_write) = sync_channel(1);
        let (written, empty) = sync_channel(1);
        let unkept = Arc::new(AtomicU64::new(0));
        let made = BUFFERS - 1; // one more may be made
        let mut intake = Intake { filling: Vec::new(), made, full, empty, unkept: Arc::clone(&unkept) };
        let half = vec![0; BUFFER / 2 - HEAD];
        intake.keep(entered(0, 1), &half);
        intake.keep(entered(1, 1), &half);
        assert_eq!(unkept.load(Ordering::Relaxed), 0, "one buffer holds both");
        intake.keep(entered(2, 44), &half);
        assert_eq!(unkept.load(Ordering::Relaxed), 44, "the writer has it, and there is no other");
        let buffer: Vec<u8> = to_write.recv().unwrap();
        assert_eq!(buffer.len(), BUFFER);
        written
            .send({
                let mut buffer = buffer;
                buffer.clear();
                buffer
            })
            .unwrap();
        intake.keep(entered(46, 1), &half);
        drop(intake);
        assert_eq!(unkept.load(Ordering::Relaxed), 44);
        assert_eq!(to_write.recv().unwrap().len(), BUFFER / 2);
    }
}
