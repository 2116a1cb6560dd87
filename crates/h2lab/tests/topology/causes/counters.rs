//! How often the kernel's TCP repaired a loss, and by which means, by its own counters.

use std::fs;

use h2lab_lab::topology::{Namespaces, Side};

/// Counters of one side's network namespace (`TcpExt` of /proc/net/netstat).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repairs {
    /// `TCPFastRetrans`: segments that acknowledgements showed to be lost.
    fast: u64,
    /// `TCPTimeouts` and `TCPLossProbes`: timers that expired.
    timers: u64,
}

impl Repairs {
    /// The values so far.
    pub fn read(namespaces: &Namespaces, side: Side) -> Self {
        let text = || fs::read_to_string("/proc/thread-self/net/netstat").expect("the kernel counts");
        let text = namespaces.within(side, text).expect("a thread on this side");
        let counter = |name| value(&text, name).expect("the kernel has this counter");
        Self { fast: counter("TCPFastRetrans"), timers: counter("TCPTimeouts") + counter("TCPLossProbes") }
    }

    /// Whether losses since then were repaired only by acknowledgements (`true`) or only by timers (`false`); `None` if
    /// by both or neither.
    pub fn is_fast_since(self, before: Self) -> Option<bool> {
        match (self.fast > before.fast, self.timers > before.timers) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }
}

/// The value under this name: names are in one line, values in the next.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt: "));
    let place = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}
