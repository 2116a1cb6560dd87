//! `--dump`: a line per request as it ends, for programs that read along.
//!
//! The generator's threads put requests into a bounded queue and never block; a separate thread writes. It polls the queue rather
//! than being woken: a wake-up would be a system call of the generator's. What finds no room is counted and reported.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::Sample;

use super::super::exit::Usage;
use h2lab_net::ownership;
use h2lab_roles::load::SampleListener;

/// Requests that may wait to be written: of 100 bytes each, and three million per second with [`PAUSE`].
const ROOM: usize = 1 << 16;

/// Bytes of lines that are written at a time.
const BLOCK: usize = 1 << 13;

/// Between two polls of an empty queue.
const PAUSE: Duration = Duration::from_millis(20);

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Csv,
    JsonLines,
}

/// A dump that is being written.
#[derive(Debug)]
pub struct Dump {
    name: String,
    queue: Arc<DumpQueue>,
    writer: JoinHandle<Written>,
}

/// The generator's end of it.
#[derive(Debug)]
pub struct DumpQueue {
    requests: SyncSender<(u32, Sample)>,
    /// Requests that found no room.
    lost: AtomicU64,
}

/// What came of the writing.
#[derive(Debug, Default)]
struct Written {
    /// Requests whose line is not there as a whole.
    lost: u64,
    failed: Option<io::Error>,
}

/// Whole lines on their way out.
struct Lines<W> {
    out: W,
    /// Not written yet.
    pending: Vec<u8>,
    /// Bytes of the whole lines that were written.
    whole: u64,
}

impl<W: Write> Lines<W> {
    /// Writes what is pending. If that fails, none is pending any more; the error comes with how many lines were lost.
    fn flush(&mut self) -> Result<(), (io::Error, u64)> {
        let (mut done, pending) = (0, std::mem::take(&mut self.pending));
        let error = loop {
            match self.out.write(&pending[done..]) {
                _ if done == pending.len() => break self.out.flush().err(),
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let is_end = |byte: &u8| *byte == b'\n';
        self.whole += pending[..done].iter().rposition(is_end).map_or(0, |at| at as u64 + 1);
        let lost = pending[done..].iter().copied().filter(|byte| is_end(byte)).count() as u64;
        error.map_or(Ok(()), |error| Err((error, lost)))
    }
}

/// Whether a dump goes to stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Form {
    fn of(path: &Path) -> Result<Self, Usage> {
        match path.extension().and_then(|ending| ending.to_str()) {
            _ if is_stdout(path) => Ok(Self::Csv),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl") => Ok(Self::JsonLines),
            _ => Err(Usage(format!(
                "--dump {}: the ending must be .csv or .jsonl, or - is given",
                path.display()
            ))),
        }
    }
}

/// What a dump lacks.
#[derive(Debug)]
pub struct Undumped {
    /// How much, and why.
    pub words: String,
    /// The error of writing, if that was the reason.
    pub error: Option<io::Error>,
}

impl Dump {
    /// Makes the file, or takes stdout for `-`.
    pub fn create(path: &Path) -> Result<Self> {
        let form = Form::of(path)?;
        if is_stdout(path) {
            return Self::start("- (standard output)".to_owned(), form, Box::new(io::stdout()), None);
        }
        let name = path.display().to_string();
        let cannot = || format!("--dump {name}: cannot write");
        let file = ownership::create(path).with_context(cannot)?;
        let same = file.try_clone().with_context(cannot)?;
        Self::start(name, form, Box::new(file), Some(same))
    }

    /// Begins to write to `out`; `file` is the same, if its last line can be cut off.
    fn start(name: String, form: Form, out: Box<dyn Write + Send>, file: Option<File>) -> Result<Self> {
        let (requests, incoming) = sync_channel(ROOM);
        let writer = std::thread::Builder::new()
            .name("dump".to_owned())
            .spawn(move || write(&incoming, form, out, file.as_ref()))
            .context("--dump: cannot start a thread")?;
        Ok(Self { name, queue: Arc::new(DumpQueue { requests, lost: AtomicU64::new(0) }), writer })
    }

    /// The listener that the load reports its requests to.
    pub fn listener(&self) -> Arc<DumpQueue> {
        Arc::clone(&self.queue)
    }

    /// Waits until everything is written, which requires that the listener has no other holder. Returns what is missing.
    pub fn finish(self) -> Option<Undumped> {
        let Self { name, queue, writer } = self;
        let full = queue.lost.load(Ordering::Relaxed);
        drop(queue);
        writer.thread().unpark();
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let error = written.failed;
        let why = match &error {
            // The reader has closed the pipe (`| head`).
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return None,
            Some(error) => error.to_string(),
            None => "it could not be written as fast as requests ended".to_owned(),
        };
        let lost = full + written.lost;
        let words = || format!("--dump {name} lacks {lost} requests: {why}; all other outputs count them");
        (lost > 0).then(|| Undumped { words: words(), error })
    }
}

impl SampleListener for DumpQueue {
    fn ended(&self, thread: u32, sample: &Sample) {
        match self.requests.try_send((thread, *sample)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Writes requests until all senders are gone. Where that fails, the file ends with its last whole line.
fn write(incoming: &Receiver<(u32, Sample)>, form: Form, out: impl Write, file: Option<&File>) -> Written {
    let mut lines = Lines { out, pending: Vec::new(), whole: 0 };
    let mut written = Written::default();
    let mut line = String::new();
    let flush = |lines: &mut Lines<_>, written: &mut Written| {
        if written.failed.is_none()
            && let Err((error, lost)) = lines.flush()
        {
            (written.failed, written.lost) = (Some(error), lost);
            if let Some(file) = file {
                // A pipe has no end that could be cut; what it took is gone.
                let _ = file.set_len(lines.whole);
            }
        }
    };
    if form == Form::Csv {
        lines.pending = format!("{}\n", COLUMNS.join(",")).into_bytes();
        flush(&mut lines, &mut written);
        // The header is no request.
        written.lost = 0;
    }
    loop {
        match incoming.try_recv() {
            Ok(_) if written.failed.is_some() => written.lost += 1,
            Ok((thread, sample)) => {
                line.clear();
                form.write(&mut line, thread, &sample);
                lines.pending.extend_from_slice(line.as_bytes());
                if lines.pending.len() >= BLOCK {
                    flush(&mut lines, &mut written);
                }
            }
            Err(TryRecvError::Empty) => {
                // For readers that follow along.
                flush(&mut lines, &mut written);
                std::thread::park_timeout(PAUSE);
            }
            Err(TryRecvError::Disconnected) => {
                flush(&mut lines, &mut written);
                return written;
            }
        }
    }
}

/// What a line has. Times are nanoseconds on one clock that began with the run.
const COLUMNS: [&str; 17] = [
    "thread",
    "connection",
    "stream",
    "scheduled_at_ns",
    "sent_at_ns",
    "first_byte_at_ns",
    "completed_at_ns",
    "response_ns",
    "outcome",
    "status",
    "code",
    "body_bytes",
    "replays",
    "stall_open_ns",
    "stall_window_ns",
    "kind",
    "measured",
];

/// The values of [`COLUMNS`]; `None` for what did not happen. Text needs no quotes of CSV.
fn values(thread: u32, sample: &Sample) -> [Option<String>; COLUMNS.len()] {
    let time = |time: Time| time.happened().then(|| time.as_nanos().to_string());
    let number = |n: u64| Some(n.to_string());
    [
        number(thread.into()),
        (sample.connection != Sample::NO_CONNECTION).then(|| sample.connection.to_string()),
        number(sample.stream.0.into()),
        time(sample.scheduled_at),
        time(sample.sent_at),
        time(sample.first_byte_at),
        time(sample.completed_at),
        number(nanos(sample.response_time())),
        Some(sample.outcome.name().to_owned()),
        number(sample.status.into()),
        number(sample.code.into()),
        number(sample.body_bytes),
        number(sample.replays.into()),
        number(sample.stall_open_ns),
        number(sample.stall_window_ns),
        number(sample.kind.into()),
        Some(sample.measured.to_string()),
    ]
}

impl Form {
    /// One line with its end.
    fn write(self, line: &mut String, thread: u32, sample: &Sample) {
        let values = values(thread, sample);
        let columns = COLUMNS.iter().zip(&values).enumerate();
        for (place, (name, value)) in columns {
            let separator = if place == 0 { "" } else { "," };
            let text = value.as_deref();
            // Infallible: it writes to memory.
            let _ = match self {
                Self::Csv => write!(line, "{separator}{}", text.unwrap_or_default()),
                Self::JsonLines if *name == "outcome" => {
                    write!(line, "{separator}\"{name}\":\"{}\"", text.unwrap_or_default())
                }
                Self::JsonLines => {
                    let begin = if place == 0 { "{" } else { separator };
                    write!(line, "{begin}\"{name}\":{}", text.unwrap_or("null"))
                }
            };
        }
        line.push_str(if self == Self::JsonLines { "}\n" } else { "\n" });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use h2lab_model::record::Outcome;

    use super::*;

    /// Takes all that is written, or fails.
    #[derive(Debug, Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>, Option<io::ErrorKind>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(kind) = self.1 {
                return Err(kind.into());
            }
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1.map_or(Ok(()), |kind| Err(kind.into()))
        }
    }

    fn sample(n: u64) -> Sample {
        let due = Time::from_micros(n);
        Sample { completed_at: due + Duration::from_micros(5), ..Sample::due(due, true) }
    }

    /// Dumps so many requests.
    fn dumped(form: Form, sink: &Sink, requests: u64) -> Option<String> {
        let dump = Dump::start("x".to_owned(), form, Box::new(sink.clone()), None).unwrap();
        let listener = dump.listener();
        (0..requests).for_each(|n| listener.ended(3, &sample(n)));
        drop(listener);
        dump.finish().map(|undumped| undumped.words)
    }

    #[test]
    fn every_request_is_a_line_and_the_last_is_there() {
        let sink = Sink::default();
        assert_eq!(dumped(Form::Csv, &sink, 1_000), None);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1_001);
        assert_eq!(lines[0].split(',').count(), COLUMNS.len());
        assert_eq!(lines[1], "3,,0,0,,,5000,5000,unfinished,0,0,0,0,0,0,0,true");
        assert!(lines[1_000].starts_with("3,,0,999000,"), "{}", lines[1_000]);
    }

    #[test]
    fn json_lines_are_objects_with_null_for_what_did_not_happen() {
        let mut line = String::new();
        let sent = Sample { connection: 4, outcome: Outcome::GoAway, ..sample(7) };
        Form::JsonLines.write(&mut line, 1, &sent);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value.as_object().unwrap().len(), COLUMNS.len());
        assert_eq!((&value["connection"], &value["outcome"]), (&4.into(), &"go-away".into()));
        assert_eq!((&value["sent_at_ns"], &value["measured"]), (&serde_json::Value::Null, &true.into()));
        assert!(line.ends_with("}\n"));
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_reported() {
        let full = Sink(Arc::default(), Some(io::ErrorKind::StorageFull));
        let reported = dumped(Form::JsonLines, &full, 10_000).unwrap();
        assert!(reported.contains("--dump x lacks") && reported.contains("space"), "{reported}");
        let gone = Sink(Arc::default(), Some(io::ErrorKind::BrokenPipe));
        assert_eq!(dumped(Form::Csv, &gone, 10), None, "a reader that has read enough is no loss");
    }

    /// A file on a disk that has room for so many bytes.
    struct Full(File, usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = self.0.write(&bytes[..bytes.len().min(self.1)])?;
            self.1 -= n;
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn on_a_full_disk_whole_lines_stay_and_all_others_are_counted() {
        for room in [100, 20_000, 33_333] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("d.csv");
            let file = File::create(&path).unwrap();
            let out = Box::new(Full(file.try_clone().unwrap(), room));
            let dump = Dump::start("d.csv".to_owned(), Form::Csv, out, Some(file)).unwrap();
            let listener = dump.listener();
            (0..1_000).for_each(|n| listener.ended(3, &sample(n)));
            drop(listener);
            let words = dump.finish().unwrap().words;
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.is_empty() || text.ends_with('\n'), "{text}");
            let there = text.lines().skip(1).count();
            assert!(words.contains(&format!("lacks {} requests", 1_000 - there)), "{there}: {words}");
        }
    }

    #[test]
    fn a_queue_without_room_loses_and_does_not_wait() {
        let (requests, incoming) = sync_channel(2);
        let queue = DumpQueue { requests, lost: AtomicU64::new(0) };
        (0..5).for_each(|n| queue.ended(0, &sample(n)));
        assert_eq!((queue.lost.load(Ordering::Relaxed), incoming.try_iter().count()), (3, 2));
    }

    #[test]
    fn the_ending_says_how_lines_are_written() {
        let form = |name: &str| Form::of(Path::new(name));
        assert_eq!(form("-").unwrap(), Form::Csv);
        assert_eq!(form("a.csv").unwrap(), Form::Csv);
        assert_eq!(form("a.jsonl").unwrap(), Form::JsonLines);
        assert!(form("a.txt").unwrap_err().to_string().contains(".jsonl"));
    }
}
