//! The log of a bulk server, on stderr, which never blocks it.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest line, in bytes: a pipe takes that much either as a whole or not at all (`PIPE_BUF`, pipe(7)).
const LONGEST_LINE: usize = 4096;

/// Lines on stderr.
#[derive(Debug, Default)]
pub struct Log {
    /// Lines that were not taken.
    lost: AtomicU64,
}

impl Log {
    /// Writes a line. A slow reader must not affect clients: what is not taken at once is lost, and counted.
    pub fn write_out(&self, line: &str) {
        let lost = self.lost.load(Ordering::Relaxed);
        let before = if lost > 0 { format!("({lost} lines were not read)\n") } else { String::new() };
        if write_if_taken(io::stderr(), &format!("{before}{line}")) {
            self.lost.fetch_sub(lost, Ordering::Relaxed);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes a line if that does not block; returns whether it was written. A line that is too long is cut.
fn write_if_taken(to: impl AsFd, line: &str) -> bool {
    let mut ready = [PollFd::new(&to, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) != Ok(1) || !ready[0].revents().contains(PollFlags::OUT) {
        return false;
    }
    let mut line = line.as_bytes()[..line.len().min(LONGEST_LINE - 1)].to_vec();
    line.push(b'\n');
    rustix::io::write(&to, &line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let line = "x".repeat(2 * LONGEST_LINE);
        let written = (0..1_000).take_while(|_| write_if_taken(&writer, &line)).count();
        assert!((1..1_000).contains(&written), "{written}");
        let mut block = vec![0; LONGEST_LINE];
        let read = rustix::io::read(&reader, &mut block).unwrap();
        assert_eq!((read, block[LONGEST_LINE - 1]), (LONGEST_LINE, b'\n'));
        assert!(write_if_taken(&writer, "short") && !write_if_taken(&writer, "and full again"));
    }
}
