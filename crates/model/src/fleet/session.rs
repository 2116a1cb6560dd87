//! A session: lines that arrive once and in their order over packets that may be lost, doubled and reordered, as core
//! NATS has them. No I/O: packets and the time go in, packets and lines come out.
//!
//! A line is cut into numbered fragments, one to a packet. Each packet says up to which number everything has
//! arrived, and which of the next 63 have; what has not arrived is sent again. Each end has an *epoch*, a random
//! number: an end that was restarted is recognised by another one. A packet is a message of [`super::messages`], so
//! that one of another version is recognised, too.
//!
//! What a hostile peer can make an end keep is bounded: fragments that arrived too early by `HELD_BYTES`, an
//! unfinished line by [`LONGEST_LINE`], and answers that it does not acknowledge by `MOST_QUEUED`.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::messages::{LONGEST_LINE, MessageError, decode, encode};
use h2lab_base::text::PeerText;
use h2lab_base::units::Time;

/// The longest text of a fragment as it is written, in bytes: a packet stays far below 1 MiB, the usual limit of a
/// NATS server.
const FRAGMENT: usize = 256 << 10;

/// Fragments that may be on their way at a time; as many bits as a packet has for those that arrived.
const WINDOW: u64 = 64;

/// Bytes of fragments that may be on their way at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes of fragments that are kept until those before them arrive. The window of an honest peer is smaller.
const HELD_BYTES: usize = 2 * WINDOW_BYTES;

/// While so many bytes wait for the other end, nothing that it sends is taken: it would be a cause of still more. A
/// driver's own lines are far fewer, so that two ends never wait for each other.
const MOST_QUEUED: usize = 16 << 20;

/// A fragment is sent again after this time, then after twice as long each time …
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// … up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What is heard after so long a silence means that the path is there again: what is on its way is sent again at once.
const SILENCE: Duration = Duration::from_secs(1);

/// Why a packet was not taken. The session is as it was before, but for [`SessionError::TooLong`].
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// It is not a packet, or of another version.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// One of both ends is not the one with which the session began. The session cannot go on.
    #[error("the other end of the session was restarted, so that what it was asked is lost")]
    Restarted,
    /// A line is longer than any message. The session cannot go on.
    #[error("a line of the other end has more than {LONGEST_LINE} bytes, and no more are read")]
    TooLong,
    /// A packet that no h2lab of this version sends.
    #[error("a packet that no h2lab of this version sends: it {why}")]
    Invalid {
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What goes over the network.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Packet {
    /// The sender's epoch.
    from: u64,
    /// The receiver's epoch; none if the sender has not heard of it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    /// The first number that has not arrived at the sender.
    ack: u64,
    /// Bit n: number `ack` + 1 + n has arrived at it.
    held: u64,
    /// What it carries besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    carries: Option<Carried>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Carried {
    /// A part of a line, or all of it.
    Fragment {
        number: u64,
        text: String,
        /// Whether the line ends with it.
        last: bool,
    },
    /// A line that is sent once.
    Once {
        /// Counts these lines from 1.
        number: u64,
        /// The number of the next fragment: the line has its place before it.
        after: u64,
        text: String,
    },
}

/// A fragment that was sent and may have to be sent again.
#[derive(Debug)]
struct InFlight {
    /// Empty once it has arrived.
    text: String,
    bytes: usize,
    last: bool,
    has_arrived: bool,
    /// When it is sent again.
    due: Time,
    /// For how long it waits then.
    wait: Duration,
}

/// A fragment that arrived before others that belong before it.
#[derive(Debug)]
struct Held {
    text: String,
    last: bool,
}

/// One end of a session; see the module. Send what [`Session::poll_packet`] returns until it returns nothing: after
/// each call of another function, and at [`Session::poll_timeout`].
#[derive(Debug)]
pub struct Session {
    epoch: u64,
    /// The other end's epoch, once it has been heard.
    peer: Option<u64>,
    /// Lines of which not everything was sent.
    queue: VecDeque<String>,
    /// Bytes of the first of them that were sent.
    sent: usize,
    /// Bytes of all of them.
    queued: usize,
    in_flight: BTreeMap<u64, InFlight>,
    in_flight_bytes: usize,
    /// The number of the next fragment.
    next: u64,
    /// What is sent once, if it was not sent yet, and how many such lines there were.
    once: Option<String>,
    once_count: u64,
    /// The first number that has not arrived.
    expected: u64,
    held: BTreeMap<u64, Held>,
    held_bytes: usize,
    /// The line whose last fragment has not arrived.
    unfinished: String,
    /// The number of the newest line of the other end that it sent once.
    once_received: u64,
    /// Whether the other end must be told what has arrived, or our epoch.
    must_acknowledge: bool,
    /// The latest time that was given.
    now: Time,
    heard_at: Time,
}

impl Session {
    /// A session that begins `now`. `random` is this end's epoch: another number each time that its process starts.
    pub fn new(now: Time, random: u64) -> Self {
        Self {
            epoch: random,
            peer: None,
            queue: VecDeque::new(),
            sent: 0,
            queued: 0,
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            next: 0,
            once: None,
            once_count: 0,
            expected: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            unfinished: String::new(),
            once_received: 0,
            must_acknowledge: false,
            now,
            heard_at: now,
        }
    }

    /// Sends a line until it has arrived. One of more than [`LONGEST_LINE`] ends the session at the other end.
    pub fn send(&mut self, now: Time, line: String) {
        self.now = self.now.max(now);
        self.push(line);
    }

    /// Sends a line once, in place of an earlier one that was not sent yet: for progress, of which only the newest
    /// counts. It arrives in its place among the other lines, or not at all. One that does not fit a packet goes as
    /// any other line, if nothing else is on its way; else it is dropped.
    pub fn send_once(&mut self, line: String) {
        if first_fragment(&line) == line.len() {
            self.once = Some(line);
        } else if self.is_delivered() {
            self.push(line);
        }
    }

    /// Sends again at once what has not arrived, unless it was sent just now, and then as often as at first: an interruption
    /// may be over, in which it was sent more and more seldom.
    pub fn send_again(&mut self, now: Time) {
        self.now = self.now.max(now);
        for fragment in self.in_flight.values_mut() {
            // Sent once, it is due soon anyway. Sending it doubles the time.
            if fragment.wait > FIRST_WAIT {
                (fragment.due, fragment.wait) = (fragment.due.min(self.now), FIRST_WAIT / 2);
            }
        }
    }

    /// Takes a packet; returns the lines that are complete with it, in their order.
    pub fn handle(&mut self, now: Time, packet: &[u8]) -> Result<Vec<String>, SessionError> {
        self.now = self.now.max(now);
        let Packet { from, to, ack, held, carries } = read(packet)?;
        if self.peer.is_some_and(|peer| peer != from) {
            return Err(SessionError::Restarted);
        }
        if to.is_some_and(|to| to != self.epoch) {
            // The other end learns of it by our epoch. It does not answer that, so that there is no end to answers
            // otherwise.
            self.must_acknowledge = true;
            return Err(SessionError::Restarted);
        }
        if ack > self.next {
            return Err(SessionError::Invalid { why: "acknowledges what was not sent" });
        }
        if let Some(Carried::Fragment { text, .. } | Carried::Once { text, .. }) = &carries
            && text.len() > FRAGMENT
        {
            return Err(SessionError::Invalid { why: "carries too much" });
        }
        self.peer = Some(from);
        self.acknowledged(ack, held);
        if self.now.since(self.heard_at) >= SILENCE {
            self.send_again(now);
        }
        self.heard_at = self.now;
        match carries.filter(|_| self.queued <= MOST_QUEUED) {
            None => Ok(Vec::new()),
            Some(Carried::Fragment { number, text, last }) => self.arrived(number, Held { text, last }),
            Some(Carried::Once { number, after, text }) => {
                if number <= self.once_received || after != self.expected {
                    return Ok(Vec::new());
                }
                self.once_received = number;
                Ok(vec![text])
            }
        }
    }

    /// The next packet to send; `None` if there is none now.
    pub fn poll_packet(&mut self, now: Time) -> Option<Vec<u8>> {
        self.now = self.now.max(now);
        let carries = self.repeated().or_else(|| self.next_fragment()).or_else(|| self.next_once());
        if carries.is_none() && !self.must_acknowledge {
            return None;
        }
        self.must_acknowledge = false;
        let held = self.held.keys().fold(0, |bits, number| bits | 1_u64 << (number - self.expected - 1));
        let packet = Packet { from: self.epoch, to: self.peer, ack: self.expected, held, carries };
        Some(encode(&packet).expect("a packet is numbers and texts").into_bytes())
    }

    /// When [`Session::poll_packet`] has a packet next: a time that has passed if it has one now, [`Time::NEVER`] if
    /// only another call can make it have one.
    pub fn poll_timeout(&self) -> Time {
        let has_fragment = !self.queue.is_empty() && self.has_room();
        let has_once = self.once.is_some() && self.queue.is_empty();
        if self.must_acknowledge || has_fragment || has_once {
            return self.now;
        }
        let waiting = self.in_flight.values().filter(|fragment| !fragment.has_arrived);
        waiting.map(|fragment| fragment.due).min().unwrap_or(Time::NEVER)
    }

    /// When the other end was last heard; the session's beginning if it never was.
    pub fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Whether everything that was given to [`Session::send`] has arrived.
    pub fn is_delivered(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    fn push(&mut self, line: String) {
        self.queued += line.len();
        self.queue.push_back(line);
    }

    /// What was sent and has not arrived in time.
    fn repeated(&mut self) -> Option<Carried> {
        let now = self.now;
        let is_due = |fragment: &InFlight| !fragment.has_arrived && fragment.due <= now;
        let (number, fragment) = self.in_flight.iter_mut().find(|(_, fragment)| is_due(fragment))?;
        fragment.wait = (fragment.wait * 2).min(LONGEST_WAIT);
        fragment.due = now + fragment.wait;
        Some(Carried::Fragment { number: *number, text: fragment.text.clone(), last: fragment.last })
    }

    /// Whether one more fragment may be on its way.
    fn has_room(&self) -> bool {
        let first = self.in_flight.keys().next().copied().unwrap_or(self.next);
        self.next - first < WINDOW && self.in_flight_bytes + FRAGMENT <= WINDOW_BYTES
    }

    fn next_fragment(&mut self) -> Option<Carried> {
        if !self.has_room() {
            return None;
        }
        let rest = &self.queue.front()?[self.sent..];
        let bytes = first_fragment(rest);
        let (text, last) = (rest[..bytes].to_owned(), bytes == rest.len());
        self.sent += bytes;
        if last {
            self.queued -= self.sent;
            self.sent = 0;
            self.queue.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.in_flight_bytes += bytes;
        let due = self.now + FIRST_WAIT;
        let fragment =
            InFlight { text: text.clone(), bytes, last, has_arrived: false, due, wait: FIRST_WAIT };
        self.in_flight.insert(number, fragment);
        Some(Carried::Fragment { number, text, last })
    }

    /// What is sent once goes after all lines before it.
    fn next_once(&mut self) -> Option<Carried> {
        if !self.queue.is_empty() {
            return None;
        }
        let text = self.once.take()?;
        self.once_count += 1;
        Some(Carried::Once { number: self.once_count, after: self.next, text })
    }

    /// What has arrived at the other end. It counts as on its way until all before it has arrived, too: the other end
    /// keeps it.
    fn acknowledged(&mut self, ack: u64, held: u64) {
        while let Some(first) = self.in_flight.first_entry().filter(|first| *first.key() < ack) {
            self.in_flight_bytes -= first.remove().bytes;
        }
        for (number, fragment) in self.in_flight.range_mut(ack..) {
            let place = number - ack;
            if (1..WINDOW).contains(&place) && held >> (place - 1) & 1 == 1 {
                fragment.has_arrived = true;
                fragment.text = String::new();
            }
        }
    }

    /// Takes a fragment. What is too early to be kept is dropped, and will come again.
    fn arrived(&mut self, number: u64, fragment: Held) -> Result<Vec<String>, SessionError> {
        self.must_acknowledge = true;
        let is_wanted = number.checked_sub(self.expected).is_some_and(|ahead| ahead < WINDOW);
        let fits = number == self.expected || self.held_bytes + fragment.text.len() <= HELD_BYTES;
        if !is_wanted || !fits || self.held.contains_key(&number) {
            return Ok(Vec::new());
        }
        self.held_bytes += fragment.text.len();
        self.held.insert(number, fragment);
        let mut lines = Vec::new();
        while let Some(Held { text, last }) = self.held.remove(&self.expected) {
            self.held_bytes -= text.len();
            if self.unfinished.len() + text.len() > LONGEST_LINE {
                return Err(SessionError::TooLong);
            }
            self.expected += 1;
            self.unfinished.push_str(&text);
            if last {
                lines.push(std::mem::take(&mut self.unfinished));
            }
        }
        Ok(lines)
    }
}

fn read(packet: &[u8]) -> Result<Packet, MessageError> {
    match std::str::from_utf8(packet) {
        Ok(text) => decode(text),
        Err(error) => {
            let why = format!("it is not UTF-8 from byte {} on", error.valid_up_to());
            Err(MessageError::NoMessage { line: PeerText::cut(packet, 200), why })
        }
    }
}

/// The bytes of `text` that are its first fragment.
fn first_fragment(text: &str) -> usize {
    let mut written = 0;
    for (at, character) in text.char_indices() {
        written += written_length(character);
        if written > FRAGMENT {
            return at;
        }
    }
    text.len()
}

/// The length of a character in a text of JSON, as `serde_json` writes it.
fn written_length(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}
