//! What a peer may make us do, and how long it may take: bounds that no well-behaved peer meets.
//!
//! A peer that exceeds one gets RST_STREAM or GOAWAY with `ENHANCE_YOUR_CALM`, a GOAWAY names the bound and its number
//! as debug data, and [`super::Counters::limits_hit`] counts it. In HTTP/3 the code is `H3_EXCESSIVE_LOAD`, and the
//! text goes into the close of the connection. Where other servers have a similar bound, ours is the strictest of those
//! that are known not to break clients.
//!
//! `accounts` counts what a peer has used up, `deadlines` how long it has kept us waiting; the `limits` of each engine
//! react to both.

pub(crate) mod accounts;
pub(crate) mod deadlines;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Role;
use h2lab_base::units::Time;

/// A number at once, and a number each second in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many may come at once after a pause.
    pub burst: u32,
    /// How many of these are refilled each second.
    pub per_second: u32,
}

/// The bounds. Numbers hold for one connection unless a comment says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Streams that the peer may begin and reset before they are complete: wasted work (CVE-2023-44487, rapid reset).
    /// Default 100 at once and 33 a second; Node has 1,000 and 33. A request that is reset is gone at once, so that
    /// there is no queue of requests "accepted and not yet processed" to bound as well.
    pub resets: Rate,
    /// Stream errors that the peer may cause, refused streams among them: each aborts work by our own RST_STREAM
    /// (CVE-2025-8671, `MadeYouReset`). Default 1,024, as h2 has it.
    pub stream_errors: u32,
    /// CONTINUATION frames of one field block (CVE-2024-27316 and similar). Default 8. In any case as many are accepted
    /// as a list of [`super::Config::max_header_list_size`], or the block so far, needs in frames of full size, and a
    /// quarter more.
    pub continuations: u32,
    /// How many times [`super::Config::max_header_list_size`] one block in pieces may have, or its fields may decode
    /// to, before the connection ends. A block above one times that size ends only its stream (HPACK bomb, 2016).
    /// Default 4, as h2 has it.
    pub field_list_factor: u32,
    /// DATA frames in a row without data and without END_STREAM (CVE-2019-9518). Default 100, as h2 has it.
    pub empty_data: u32,
    /// Bytes of overhead by DATA frames that the role holds: 256 less their length for each shorter one
    /// (GHSA-q83h-524g-xf6h). Only a role that releases by hand holds any; what is consumed at once costs no memory.
    /// Default `None`: half of the connection window, at least 25,600, as h2 has it.
    pub small_data: Option<u32>,
    /// DATA frames of less than 16 bytes that do not end their stream: they cost as much CPU as large ones. Default
    /// 100,000 at once and 10,000 a second for a server, above what streams of small messages need; a client has no
    /// bound, as it has chosen its server.
    pub short_data: Rate,
    /// Frames without effect, for each stream that was begun and ten more: PRIORITY (CVE-2019-9513), unknown types,
    /// RST_STREAM for streams that have ended, unexpected acknowledgements, and, from a client, WINDOW_UPDATE more
    /// often than we send DATA. Default 100; Envoy's number for PRIORITY.
    pub noise: u32,
    /// SETTINGS: each may change the windows of all streams. Default 100 at once and 10 a second. No server that was
    /// measured has a bound, and no client sends more than a few.
    pub settings: Rate,
    /// Answers that the peer makes us give (acknowledgements of PING and SETTINGS, RST_STREAM) and does not read
    /// (CVE-2019-9512, 9514, 9515). Default 1,000, as Envoy has it. While more of them wait to be offered to the
    /// transport [`super::Connection::wants_input`] is false, so that a large read of PINGs does not become as large an
    /// output.
    pub unread_answers: u32,
    /// Bytes that wait for a peer that does not read (CVE-2019-9517): above that, [`super::Connection::wants_input`] is
    /// false. Default 1 MiB.
    pub unread_output: usize,
    /// DATA frames shorter than 1 KiB and than the rest of the body, forced by the peer's windows (CVE-2019-9511, data
    /// dribble). Each frame of 1 KiB refills one; when none is left a body waits for larger windows. Default 1,000 as a
    /// server: a peer whose windows are that small by nature still gets a megabyte. A client has chosen its server, and
    /// has no other way to end an upload: it has no bound.
    pub small_data_frames: u32,
    /// Interim responses to one request (client role). Default 100.
    pub interims: u32,
    /// How long the peer may let a body, or all of our output, wait without taking any of it (slow read,
    /// CVE-2016-1546). Default 30 s for a server. `None` for a client, which has its own request timeout.
    pub stall: Option<Duration>,
    /// How long the peer may take for a head, or any other frame but DATA, from its first byte to its last (Slowloris).
    /// Default 10 s for a server; `None` for a client.
    pub head: Option<Duration>,
    /// How often to check that the peer keeps to [`Limits::body_rate`] while a request's body is due and the answer
    /// has not begun. Default 10 s for a server; `None` for a client.
    pub body_period: Option<Duration>,
    /// Bytes a second, of anything, that must arrive while a body is due (slow POST). The connection as a whole must
    /// keep it: the peer chooses which of its streams it serves first. Default 240, as Kestrel has it.
    pub body_rate: u32,
    /// How long a connection without a request may be silent. Default 75 s for a server, as nginx has it; `None` for a
    /// client.
    pub idle: Option<Duration>,
}

impl Limits {
    /// The defaults for a role.
    pub fn new(role: Role) -> Self {
        let of_server = |seconds| (role == Role::Server).then_some(Duration::from_secs(seconds));
        Self {
            resets: Rate { burst: 100, per_second: 33 },
            stream_errors: 1_024,
            continuations: 8,
            field_list_factor: 4,
            empty_data: 100,
            small_data: None,
            short_data: match role {
                Role::Server => Rate { burst: 100_000, per_second: 10_000 },
                Role::Client => Rate { burst: u32::MAX, per_second: u32::MAX },
            },
            noise: 100,
            settings: Rate { burst: 100, per_second: 10 },
            unread_answers: 1_000,
            unread_output: 1 << 20,
            small_data_frames: if role == Role::Server { 1_000 } else { u32::MAX },
            interims: 100,
            stall: of_server(30),
            head: of_server(10),
            body_period: of_server(10),
            body_rate: 240,
            idle: of_server(75),
        }
    }
}

macro_rules! limits {
    ($($variant:ident, $name:literal, $before:literal, $after:literal, $doc:literal;)*) => {
        /// A bound of [`Limits`], or of [`super::Config`], that a peer went beyond.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Limit {
            $(#[doc = $doc] $variant,)*
        }

        impl Limit {
            /// All of them, in the order of [`super::Counters::limits_hit`].
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in debug data, counters and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the peer did, before and after the number.
            const fn words(self) -> (&'static str, &'static str) {
                match self { $(Self::$variant => ($before, $after),)* }
            }
        }
    };
}

limits! {
    Resets, "resets", "more than ", " streams were begun and reset",
        "[`Limits::resets`]";
    StreamErrors, "stream-errors", "more than ", " stream errors",
        "[`Limits::stream_errors`]";
    Streams, "streams", "more than ", " streams at a time",
        "[`super::Config::max_concurrent_streams`]: the stream was refused";
    Continuations, "continuations", "more than ", " CONTINUATION frames in a field block",
        "[`Limits::continuations`]";
    FieldBlock, "field-block", "more than ", " bytes of a field block in pieces",
        "[`Limits::field_list_factor`] times [`super::Config::max_header_list_size`], or a frame, for a block before it is decoded";
    FieldList, "field-list", "more than ", " bytes of fields in a block",
        "[`super::Config::max_header_list_size`]: the stream ends; [`Limits::field_list_factor`] times that: the connection";
    EmptyData, "empty-data", "more than ", " DATA frames in a row without data",
        "[`Limits::empty_data`]";
    SmallData, "small-data", "more than ", " bytes of overhead by small DATA frames",
        "[`Limits::small_data`]";
    Noise, "noise", "more than ", " frames that change nothing",
        "[`Limits::noise`]";
    Settings, "settings", "more than ", " SETTINGS",
        "[`Limits::settings`]";
    UnreadAnswers, "unread-answers", "more than ", " answers that the peer does not read",
        "[`Limits::unread_answers`]";
    SmallDataFrames, "small-data-frames", "more than ", " DATA frames cut short by tiny windows",
        "[`Limits::small_data_frames`]: bodies wait for larger windows";
    Interims, "interims", "more than ", " interim responses to a request",
        "[`Limits::interims`]: the stream ends";
    Stall, "stall", "for more than ", " ms the peer took nothing",
        "[`Limits::stall`]: the stream whose window is closed ends, or the connection whose transport takes nothing";
    SlowHead, "slow-head", "a head took more than ", " ms",
        "[`Limits::head`]";
    SlowBody, "slow-body", "less than ", " bytes a second while a body was due",
        "[`Limits::body_rate`]: the streams that were due end, or the HTTP/1.1 connection";
    Idle, "idle", "nothing happened for ", " ms",
        "[`Limits::idle`]: the connection ends in an orderly way";
    ShortData, "short-data", "more than ", " DATA frames of less than 16 bytes",
        "[`Limits::short_data`]";
}

/// A bound and its number: the debug data of the GOAWAY to a peer that exceeded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Which bound.
    pub limit: Limit,
    /// Its number; times are in milliseconds.
    pub allowed: u64,
}

impl Exceeded {
    /// A bound of time.
    pub(super) const fn time(limit: Limit, allowed: Duration) -> Self {
        Self { limit, allowed: allowed.as_millis() as u64 }
    }
}

impl fmt::Display for Exceeded {
    /// `resets: more than 100 streams were begun and reset`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.limit.words();
        write!(f, "{}: {before}{}{after}", self.limit.name(), self.allowed)
    }
}

/// A token bucket for a [`Rate`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    rate: Rate,
    tokens: u32,
    /// Up to when tokens have been granted.
    filled_at: Time,
}

impl Bucket {
    /// A full bucket.
    pub(super) const fn new(rate: Rate, now: Time) -> Self {
        Self { rate, tokens: rate.burst, filled_at: now }
    }

    /// Takes a token; `false` if there is none.
    #[must_use]
    pub(super) fn take(&mut self, now: Time) -> bool {
        self.fill(now);
        let any = self.tokens > 0;
        self.tokens -= u32::from(any);
        any
    }

    fn fill(&mut self, now: Time) {
        const SECOND: u64 = 1_000_000_000;
        let per_second = u64::from(self.rate.per_second);
        let elapsed = now.since(self.filled_at).as_nanos() as u64;
        let granted = (u128::from(elapsed) * u128::from(per_second) / u128::from(SECOND)) as u64;
        if u64::from(self.tokens).saturating_add(granted) >= u64::from(self.rate.burst) {
            (self.tokens, self.filled_at) = (self.rate.burst, now);
        } else if granted > 0 {
            // Advance only by the time that these tokens took, so that fractions of one are not lost.
            self.filled_at += Duration::from_nanos(granted * SECOND / per_second);
            self.tokens += granted as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        let mut bucket = Bucket::new(Rate { burst: 3, per_second: 2 }, Time::ZERO);
        let taken = |bucket: &mut Bucket, ms| (0..10).filter(|_| bucket.take(Time::from_millis(ms))).count();
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(taken(&mut bucket, 499), 0);
        assert_eq!(taken(&mut bucket, 500), 1);
        assert_eq!(taken(&mut bucket, 1_750), 2, "and half of the next");
        assert_eq!(taken(&mut bucket, 2_000), 1);
        assert_eq!(taken(&mut bucket, 60_000), 3, "no more than the burst, however long the rest");
    }

    #[test]
    fn a_bucket_without_a_rate_is_never_filled_again() {
        let mut bucket = Bucket::new(Rate { burst: 1, per_second: 0 }, Time::ZERO);
        assert!(bucket.take(Time::ZERO));
        assert!(!bucket.take(Time::from_millis(1_000_000_000)));
    }

    #[test]
    fn what_was_exceeded_has_a_name_and_a_number() {
        let reported = |limit, allowed| Exceeded { limit, allowed }.to_string();
        assert_eq!(reported(Limit::Resets, 100), "resets: more than 100 streams were begun and reset");
        let slow = Exceeded::time(Limit::SlowHead, Duration::from_secs(10)).to_string();
        assert_eq!(slow, "slow-head: a head took more than 10000 ms");
    }

    #[test]
    fn every_limit_stands_at_its_place_and_has_a_name_of_its_own() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place);
            assert!(Limit::ALL.iter().filter(|other| other.name() == limit.name()).count() == 1);
        }
    }

    #[test]
    fn only_servers_time_out_a_peer_that_is_slow() {
        let client = Limits::new(Role::Client);
        assert_eq!([client.stall, client.head, client.body_period, client.idle], [None; 4]);
        assert!(Limits::new(Role::Server).idle.is_some());
    }
}
