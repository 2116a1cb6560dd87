//! Writes text to a stream that may accept nothing: a pipe whose reader has stopped, a terminal after Ctrl-S. A thread
//! of its own does so, so that a command that serves, or is about to end, never waits for a reader.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_base::counts::plural;

/// The longest queue, in texts.
const MOST: usize = 1_024;
/// How long [`Waiting::wait`] waits for a stream that accepts nothing.
const LAST: Duration = Duration::from_secs(1);
/// How often it checks whether all is written.
const CHECK_PERIOD: Duration = Duration::from_millis(1);

/// A stream that is written by a thread of its own, which ends when all is written and this value is dropped.
#[derive(Debug)]
pub struct TextWriter {
    texts: SyncSender<String>,
    /// Texts that were dropped for lack of room since the last one that was queued.
    lost: u64,
    waiting: Waiting,
}

/// What waits to be written.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Texts that were given to the thread.
    given: u64,
    written: Arc<AtomicU64>,
}

impl TextWriter {
    /// Starts the thread, which has the rights that the caller has.
    pub fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (texts, taken) = sync_channel::<String>(MOST);
        let waiting = Waiting::default();
        let written = Arc::clone(&waiting.written);
        let write = move || {
            for text in taken {
                // What the stream refuses is lost.
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                written.fetch_add(1, Ordering::Release);
            }
        };
        thread::Builder::new().name("text-writer".to_owned()).spawn(write)?;
        Ok(Self { texts, lost: 0, waiting })
    }

    /// Queues a text and returns at once. If the queue is full, the text is lost, and the next one that is queued says
    /// how many were.
    pub fn put(&mut self, text: &str) {
        let is_counted = !text.is_empty();
        let text = match self.lost {
            0 => text.to_owned(),
            lost => format!("note: {} lost: this output was not read\n{text}", plural(lost, "message")),
        };
        if self.texts.try_send(text).is_ok() {
            self.lost = 0;
            self.waiting.given += 1;
        } else {
            self.lost += u64::from(is_counted);
        }
    }

    /// The texts that wait now, and a text about those that were lost.
    pub fn waiting(&mut self) -> Waiting {
        if self.lost > 0 {
            self.put("");
        }
        self.waiting.clone()
    }
}

impl Waiting {
    /// Waits until all of it is written, for a second at most.
    pub fn wait(&self) {
        let until = Instant::now() + LAST;
        while self.written.load(Ordering::Acquire) < self.given && Instant::now() < until {
            thread::sleep(CHECK_PERIOD);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn who_says_something_never_waits_and_what_found_no_room_is_counted() {
        let (mut reader, pipe) = io::pipe().expect("a pipe");
        let mut writer = TextWriter::start(pipe).expect("a thread");
        // The first text is longer than the pipe. Once its first byte has arrived, the thread is blocked in its write.
        let long = "x".repeat(1 << 20);
        writer.put(&format!("{long}\n"));
        reader.read_exact(&mut [0]).expect("its first byte");
        let many = 2 * MOST as u64;
        for number in 0..many {
            writer.put(&format!("{number}\n"));
        }
        let lost = writer.lost;
        assert_eq!(lost, many - MOST as u64);
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("text");
            text
        });
        // There is room again once somebody reads: until then this one is lost, too.
        let mut tried = 0;
        while writer.lost > 0 {
            tried += 1;
            writer.put("last\n");
            thread::yield_now();
        }
        writer.waiting().wait();
        drop(writer);
        let text = reading.join().expect("it reads");
        let told =
            format!("note: {} lost: this output was not read\nlast\n", plural(lost + tried - 1, "message"));
        assert!(
            text.starts_with(&format!("{}\n0\n1\n", &long[1..])) && text.ends_with(&told),
            "{}",
            &text[(1 << 20) - 1..]
        );
    }

    #[test]
    fn an_end_does_not_wait_for_a_reader_that_has_stopped() {
        let (_reader, pipe) = io::pipe().expect("a pipe");
        let mut writer = TextWriter::start(pipe).expect("a thread");
        writer.put(&"x".repeat(1 << 20));
        writer.waiting().wait(); // would never return
    }
}
