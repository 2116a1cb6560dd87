//! The access log's file. Lines are gathered by the loops and written by a thread of their own: a slow disk stops no request. What does
//! not fit is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use h2lab_base::counts::plural;
use h2lab_base::units::Time;
use h2lab_net::privileges::User;
use h2lab_proxy::config::LogFormat;
use h2lab_proxy::log::Entry;

/// So many bytes are handed to the writer at once.
const PIECE: usize = 32 * 1024;
/// Pieces that wait for the disk at most: 8 MiB of all loops.
const MOST_PIECES: usize = 256;
/// A line waits for others no longer than this.
const BATCH_TIMEOUT: Duration = Duration::from_millis(100);
/// How often to check whether the file was renamed or removed.
const CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How long to wait at the end for a disk that takes nothing.
const LAST: Duration = Duration::from_secs(2);
/// Bytes that standard output gets at once, in whole lines: a pipe takes all of them or none (`PIPE_BUF`, pipe(7)), so that it is known what
/// a reader that stops has not got.
const AT_ONCE: usize = 4_096;

/// An access log that is open. Its handles are shared by the loops.
#[derive(Debug, Clone)]
pub struct AccessLog {
    pieces: SyncSender<Piece>,
    lines: Arc<Lines>,
    format: LogFormat,
}

/// Lines, counted.
#[derive(Debug, Default)]
struct Lines {
    /// Those given to the writer that are neither written nor lost yet.
    waiting: AtomicU64,
    dropped: AtomicU64,
}

/// Lines for the writer.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    lines: u64,
}

/// The thread that writes; it ends when all handles are gone.
#[derive(Debug)]
pub struct Writer {
    thread: JoinHandle<()>,
    lines: Arc<Lines>,
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    /// Standard output: a descriptor of our own, since its lock would be held as long as its reader does not read.
    Standard(File),
    /// A file, which may be renamed and made again.
    Named(Named),
}

/// A file with a name.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    file: File,
    reopen: Arc<AtomicBool>,
    looked_at: Instant,
    /// The user that the process becomes when it is open.
    user: Option<User>,
    /// It was reported that it cannot be opened again.
    is_told: bool,
}

impl AccessLog {
    /// Opens it: `-` is standard output. It is opened again when `reopen` is set, and when another file, or none, has
    /// its path. `tell` is called once when lines cannot be written, and once when they can again. `user` is the user
    /// that the process becomes after that. A file that is created gets that owner, who must be able to open it again.
    pub fn open(
        file: &str,
        format: LogFormat,
        user: Option<User>,
        reopen: Arc<AtomicBool>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> io::Result<(Self, Writer)> {
        let sink = match file {
            "-" => Sink::Standard(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
            path => {
                let path = PathBuf::from(path);
                let file = first(&path, user)?;
                Sink::Named(Named { path, file, reopen, looked_at: Instant::now(), user, is_told: false })
            }
        };
        let (pieces, taken) = sync_channel(MOST_PIECES);
        let lines = Arc::new(Lines::default());
        let counted = Arc::clone(&lines);
        let writing = Writing { sink, lines: counted, is_told: false, is_cut: false, tell };
        let builder = std::thread::Builder::new().name("access-log".to_owned());
        let thread = builder.spawn(move || writing.run(&taken))?;
        let writer = Writer { thread, lines: Arc::clone(&lines) };
        Ok((Self { pieces, lines, format }, writer))
    }

    /// Lines that were dropped.
    pub fn dropped(&self) -> u64 {
        self.lines.dropped.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Waits until the last line is written, for two seconds at most. Handles must be gone. If that was not enough,
    /// because a disk or a reader takes nothing, returns how many lines were lost since the start.
    pub fn finish(self) -> Option<u64> {
        let until = Instant::now() + LAST;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let Lines { waiting, dropped } = &*self.lines;
        let left = waiting.load(Ordering::Relaxed);
        (left > 0).then(|| left + dropped.load(Ordering::Relaxed))
    }
}

/// How it is opened.
fn appending() -> OpenOptions {
    let mut options = OpenOptions::new();
    // Paths and addresses of clients are not for everybody.
    options.append(true).create(true).mode(0o640);
    options
}

/// Opens it for the first time. Only a file that is made here is given to the user: one that was there may be a link to any other, made by
/// whoever may write the folder.
fn first(path: &Path, user: Option<User>) -> io::Result<File> {
    let Some(user) = user else { return appending().open(path) };
    match appending().create_new(true).open(path) {
        Ok(file) => {
            let _ = user.give(&file); // without that privilege, this is reported when it is opened again
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => appending().open(path),
        Err(error) => Err(error),
    }
}

impl Named {
    /// Opens the file again if another one, or none, has its path, or on request. If that fails, the old file stays in
    /// use; this is reported once, with advice.
    fn look(&mut self) -> Option<String> {
        let is_asked = self.reopen.swap(false, Ordering::Relaxed);
        if !is_asked && self.looked_at.elapsed() < CHECK_PERIOD {
            return None;
        }
        self.looked_at = Instant::now();
        let of = |data: std::fs::Metadata| (data.dev(), data.ino());
        let (own, there) = (self.file.metadata().map(of), std::fs::metadata(&self.path).map(of));
        if !is_asked && matches!((own, there), (Ok(own), Ok(there)) if own == there) {
            return None;
        }
        match appending().open(&self.path) {
            Ok(file) => {
                self.file = file;
                std::mem::take(&mut self.is_told).then(|| "access log reopened".to_owned())
            }
            Err(_) if std::mem::replace(&mut self.is_told, true) => None,
            Err(error) => Some(self.why(&error)),
        }
    }

    fn why(&self, error: &io::Error) -> String {
        let path = self.path.display();
        let advice = match self.user {
            Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
                let uid = user.uid();
                format!(
                    "; the sidecar runs as user {uid}, which needs write access to the file and its directory (logrotate: create 0640 {uid}, su)"
                )
            }
            _ => String::new(),
        };
        format!("cannot reopen the access log {path}, still writing to the previous file: {error}{advice}")
    }
}

impl Sink {
    /// Opens the file again if that is due; returns what is to be reported.
    fn look(&mut self) -> Option<String> {
        match self {
            Self::Standard(_) => None,
            Self::Named(named) => named.look(),
        }
    }

    /// How many bytes are written at once.
    const fn at_once(&self) -> usize {
        match self {
            Self::Standard(_) => AT_ONCE,
            Self::Named(_) => usize::MAX,
        }
    }

    /// Writes all of it; where that fails, how many bytes were written before.
    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        match self {
            Self::Standard(file) | Self::Named(Named { file, .. }) => put(file, bytes),
        }
    }
}

/// As [`Sink::write`].
fn put(out: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(n) => written += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

/// Parts of whole lines that have so many bytes at most, but for a longer line.
fn parts(mut bytes: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let is_end = |byte: &u8| *byte == b'\n';
        let fitting = &bytes[..bytes.len().min(most)];
        let end = match fitting.iter().rposition(is_end) {
            _ if fitting.len() == bytes.len() => bytes.len(),
            Some(end) => end + 1,
            None => bytes.iter().position(is_end).map_or(bytes.len(), |end| end + 1),
        };
        let (part, rest) = bytes.split_at(end);
        bytes = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// The lines that are whole in this.
fn lines(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').count() as u64 - 1 // what follows the last end is none
}

/// The thread's state.
struct Writing<T> {
    sink: Sink,
    lines: Arc<Lines>,
    /// It was reported that lines are lost.
    is_told: bool,
    /// The last line in the file is not whole.
    is_cut: bool,
    tell: T,
}

impl<T: Fn(&str)> Writing<T> {
    fn run(mut self, pieces: &Receiver<Piece>) {
        loop {
            let piece = match pieces.recv_timeout(CHECK_PERIOD) {
                Ok(piece) => Some(piece),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Some(words) = self.sink.look() {
                (self.tell)(&words);
            }
            let Some(piece) = piece else { continue };
            for part in parts(&piece.bytes, self.sink.at_once()) {
                self.take(part);
            }
        }
    }

    /// Writes whole lines, or counts them as lost.
    fn take(&mut self, part: &[u8]) {
        let result = self.write(part);
        self.lines.waiting.fetch_sub(lines(part), Ordering::Relaxed);
        if let Err((written, error)) = result {
            self.lines.dropped.fetch_add(lines(&part[written..]), Ordering::Relaxed);
            if !std::mem::replace(&mut self.is_told, true) {
                (self.tell)(&format!("cannot write the access log, lines are lost: {error}"));
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.is_cut {
            // A part of a line is there.
            self.sink.write(b"\n").map_err(|(_, error)| (0, error))?;
            self.is_cut = false;
        }
        if let Err((written, error)) = self.sink.write(bytes) {
            self.is_cut = bytes[..written].last().is_some_and(|byte| *byte != b'\n');
            return Err((written, error));
        }
        if std::mem::take(&mut self.is_told) {
            let lost = self.lines.dropped.load(Ordering::Relaxed);
            (self.tell)(&format!("the access log is writable again; {} lost so far", plural(lost, "line")));
        }
        Ok(())
    }
}

/// The lines of a loop that are not written yet.
#[derive(Debug)]
pub struct LogBuffer {
    log: AccessLog,
    bytes: Vec<u8>,
    lines: u64,
    /// When the first of them is to be written.
    due_at: Time,
}

impl LogBuffer {
    /// For a loop.
    pub const fn new(log: AccessLog) -> Self {
        Self { log, bytes: Vec::new(), lines: 0, due_at: Time::NEVER }
    }

    /// Adds a line.
    pub fn add(&mut self, entry: &Entry<'_>, now: Time) {
        if self.bytes.is_empty() {
            self.due_at = now + BATCH_TIMEOUT;
        }
        entry.write(self.log.format, &mut self.bytes);
        self.lines += 1;
        if self.bytes.len() >= PIECE {
            self.hand_over();
        }
    }

    /// Hands over what has waited for long enough.
    pub fn look(&mut self, now: Time) {
        if self.due_at <= now {
            self.hand_over();
        }
    }

    /// Lines that were dropped, of all loops.
    pub fn dropped(&self) -> u64 {
        self.log.dropped()
    }

    fn hand_over(&mut self) {
        self.due_at = Time::NEVER;
        let piece = Piece { bytes: std::mem::take(&mut self.bytes), lines: std::mem::take(&mut self.lines) };
        let lines = &self.log.lines;
        lines.waiting.fetch_add(piece.lines, Ordering::Relaxed);
        if let Err(TrySendError::Full(piece) | TrySendError::Disconnected(piece)) =
            self.log.pieces.try_send(piece)
        {
            lines.waiting.fetch_sub(piece.lines, Ordering::Relaxed);
            lines.dropped.fetch_add(piece.lines, Ordering::Relaxed);
            // Its memory is reused.
            self.bytes = piece.bytes;
            self.bytes.clear();
        }
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.hand_over();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use h2lab_proxy::fields::Version;

    use super::*;

    fn entry(path: &str) -> Entry<'_> {
        Entry {
            at: Duration::ZERO,
            client: "a",
            method: b"GET",
            authority: b"b",
            path: path.as_bytes(),
            version: Some(Version::H1),
            is_http10: false,
            status: 200,
            received: 0,
            sent: 0,
            took: Duration::ZERO,
            service: None,
            instance: None,
            connection: 0,
            tries: 1,
            grpc_status: None,
            span: None,
            failed: None,
        }
    }

    fn until(what: impl Fn() -> bool) {
        let began = Instant::now();
        while !what() {
            assert!(began.elapsed() < Duration::from_secs(120), "it does not come");
            std::thread::yield_now();
        }
    }

    #[test]
    fn lines_are_added_to_the_file_and_to_the_new_one_after_it_was_renamed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        std::fs::write(&path, "before\n").expect("a file");
        let reopen = Arc::new(AtomicBool::new(false));
        let name = path.to_str().expect("a name");
        let (log, writer) =
            AccessLog::open(name, LogFormat::Text, None, Arc::clone(&reopen), |_| ()).expect("it opens");
        let mut buffer = LogBuffer::new(log);
        buffer.add(&entry("/first"), Time::ZERO);
        buffer.look(Time::ZERO);
        assert!(!buffer.bytes.is_empty(), "it waits for others");
        buffer.look(Time::ZERO + BATCH_TIMEOUT);
        let has = |path: &PathBuf, words: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains(words))
        };
        until(|| has(&path, "/first"));
        assert!(has(&path, "before\n"));
        std::fs::rename(&path, &old).expect("it is renamed");
        reopen.store(true, Ordering::Relaxed);
        until(|| !reopen.load(Ordering::Relaxed) && path.exists());
        buffer.add(&entry("/second"), Time::ZERO);
        drop(buffer);
        writer.finish();
        until(|| has(&path, "/second"));
        assert!(!has(&old, "/second") && has(&old, "/first"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_told_once_and_the_old_one_gets_the_lines() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |words: &str| telling.lock().expect("nobody panics").push(words.to_owned());
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        let reopen = Arc::new(AtomicBool::new(false));
        let name = path.to_str().expect("a name");
        let (log, writer) =
            AccessLog::open(name, LogFormat::Text, None, Arc::clone(&reopen), tell).expect("it opens");
        let mut buffer = LogBuffer::new(log.clone());
        std::fs::rename(&path, &old).expect("it is renamed");
        std::fs::create_dir(&path).expect("something else is there");
        let has = |words: &str| std::fs::read_to_string(&old).is_ok_and(|text| text.contains(words));
        for line in ["/first", "/second"] {
            reopen.store(true, Ordering::Relaxed);
            buffer.add(&entry(line), Time::ZERO);
            buffer.look(Time::NEVER);
            until(|| !reopen.load(Ordering::Relaxed) && has(line));
        }
        assert_eq!((told.lock().expect("nobody panics").len(), log.dropped()), (1, 0));
        std::fs::remove_dir(&path).expect("it is empty");
        until(|| path.is_file());
        drop((buffer, log));
        writer.finish();
        let told = told.lock().expect("nobody panics");
        assert!(told[0].contains("still writing to the previous file") && told.len() == 2, "{told:?}");
    }

    #[test]
    fn a_full_disk_loses_lines_counts_them_and_says_so_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |words: &str| telling.lock().expect("nobody panics").push(words.to_owned());
        let (log, writer) =
            AccessLog::open("/dev/full", LogFormat::Json, None, Arc::default(), tell).expect("it opens");
        let counted = log.clone();
        let mut buffer = LogBuffer::new(log);
        for n in 0..5 {
            buffer.add(&entry("/"), Time::ZERO);
            buffer.look(Time::NEVER);
            until(|| counted.dropped() == n + 1);
        }
        drop((buffer, counted));
        writer.finish();
        let told = told.lock().expect("nobody panics");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("lines are lost"), "{told:?}");
    }

    #[test]
    fn parts_have_whole_lines_and_all_of_them() {
        let of = |text: &'static str, most| -> Vec<&'static str> {
            let text = parts(text.as_bytes(), most).map(|part| std::str::from_utf8(part).expect("text"));
            text.collect()
        };
        assert_eq!(of("ab\nc\nlonger\nd\n", 5), ["ab\nc\n", "longer\n", "d\n"]);
        assert_eq!(of("ab\nc\n", usize::MAX), ["ab\nc\n"]);
        assert_eq!((of("", 5), of("no end", 3)), (vec![], vec!["no end"]));
    }

    /// A disk that has room for so many bytes.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.1 - self.0.len());
            self.0.extend_from_slice(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_were_written_before_the_disk_was_full_are_not_counted_as_lost() {
        let mut disk = Disk(Vec::new(), 10);
        let (written, error) = put(&mut disk, b"one\ntwo\nthree\nfour\n").expect_err("it is full");
        assert_eq!((written, error.kind()), (10, io::ErrorKind::StorageFull));
        assert_eq!(lines(&disk.0), 2, "two of four");
        assert!(put(&mut Disk(Vec::new(), 10), b"one\ntwo\n").is_ok());
    }

    #[test]
    fn what_the_writer_does_not_take_is_dropped_and_counted() {
        let (pieces, taken) = sync_channel(1);
        let log = AccessLog { pieces, lines: Arc::default(), format: LogFormat::Text };
        let mut buffer = LogBuffer::new(log.clone());
        for _ in 0..3 {
            buffer.add(&entry("/"), Time::ZERO);
            buffer.add(&entry("/"), Time::ZERO);
            buffer.look(Time::NEVER);
        }
        assert_eq!((log.dropped(), taken.try_recv().map(|piece| piece.lines)), (4, Ok(2)));
    }
}
