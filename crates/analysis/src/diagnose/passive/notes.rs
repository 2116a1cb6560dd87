//! What cannot be known from a capture, in sentences.

use std::collections::BTreeMap;
use std::fmt;

use super::connection::{Finished, Flaw, Handshake};
use super::exchanges::End;
use h2lab_base::counts::{count, plural};
use h2lab_base::units::measured_time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_wire::ErrorCode;

/// The capture point is at one end if the other end takes this many times as long to answer.
const NEAR: u32 = 4;
/// Error codes of resets that are named: HTTP/2 has 14, but a peer may make up any number.
const MOST_CODES: usize = 4;
/// On shorter paths than this both ends are near.
const SHORT: std::time::Duration = std::time::Duration::from_millis(1);

/// A sentence on what is unknown, or was assumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(pub String);

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a capture comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Source {
    /// An unknown program.
    #[default]
    Unknown,
    /// h2lab wrote it of its emulated link.
    Link,
    /// It is of this run's own link: everything that a client did, so that the capture point needs no explanation.
    Run,
}

/// What is available to decrypt TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Keys {
    /// Nothing.
    #[default]
    None,
    /// A text without any line of a key log.
    Unreadable,
    /// Secrets of connections, in a key log or in the capture.
    Given,
}

impl Keys {
    /// Why there are no secrets for a connection.
    const fn missing(self) -> &'static str {
        match self {
            Self::None => {
                "encrypted, and no secrets open them: give --keylog FILE, or embed the secrets (editcap --inject-secrets tls,FILE)"
            }
            Self::Unreadable => {
                "encrypted, and the file of --keylog is no key log: none of its lines is a secret, such as `CLIENT_TRAFFIC_SECRET_0 …`"
            }
            Self::Given => {
                "encrypted, and there are secrets of others but not of these: their program wrote none, or to another file, or h2lab \
                 does not support their cipher suite"
            }
        }
    }
}

/// Counts of what was not used of a file.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    pub packets: u64,
    /// Without a time.
    pub untimed: u64,
    /// Neither TCP nor QUIC.
    pub other: u64,
    pub quic: u64,
    /// TCP without a whole header.
    pub fragments: u64,
    /// Also captured at another interface.
    pub elsewhere: u64,
    /// Of connections beyond the limit of those that are followed.
    pub unfollowed: u64,
    /// Packets that were older than those before them.
    pub backwards: u64,
    pub source: Source,
    pub keys: Keys,
    /// The file ends within a packet.
    pub is_cut: bool,
    /// There were more frames than are kept.
    pub is_full: bool,
}

impl Unseen {
    /// All notes.
    pub fn notes(&self, connections: &[Finished]) -> Vec<Note> {
        if self.packets + self.untimed == 0 && self.source != Source::Run {
            return vec![Note("it has no packets".to_owned())];
        }
        let mut notes: Vec<String> =
            (self.source != Source::Run).then(|| place(connections)).into_iter().collect();
        notes.extend(self.of_file());
        notes.extend(self.of_reading(connections));
        notes.extend(of_tcp(connections));
        notes.extend(of_requests(connections, self.source));
        if connections.iter().all(|connection| connection.read.is_none()) {
            return notes.into_iter().map(Note).collect();
        }
        notes.push(
            "what requests waited for before they left the client (a connection, a stream) is in no capture; the first request of \
             a connection is taken to have waited for it"
                .to_owned(),
        );
        notes.into_iter().map(Note).collect()
    }

    fn of_file(&self) -> Vec<String> {
        let counted = [
            (self.untimed, "packet", "without a time was not used"),
            (
                self.quic,
                "packet",
                "of QUIC (UDP, port 443) was not read: HTTP/3 is not diagnosed from captures",
            ),
            (self.fragments, "packet", "without a whole TCP header was not used"),
            (
                self.elsewhere,
                "packet",
                "was seen at a second interface as well: the first of each connection counts",
            ),
            (self.unfollowed, "packet", "of further connections was not followed"),
            (
                self.backwards,
                "packet",
                "was older than the one before: the clock of the capture was set back",
            ),
        ];
        let several =
            |n: u64, what: &str| if n == 1 { what.to_owned() } else { what.replacen("was", "were", 1) };
        let mut notes: Vec<String> = counted
            .into_iter()
            .filter(|(n, ..)| *n > 0)
            .map(|(n, noun, what)| format!("{} {}", plural(n, noun), several(n, what)))
            .collect();
        if self.source == Source::Link {
            notes.push(
                "h2lab wrote this capture of an emulated link: it is read as the client saw it".to_owned(),
            );
        }
        if self.is_cut {
            notes.push("the file ends within a packet".to_owned());
        }
        if self.is_full {
            notes.push("there are more frames than are kept: windows of HTTP/2 are not examined".to_owned());
        }
        notes
    }

    fn of_reading(&self, connections: &[Finished]) -> Vec<String> {
        let reasons = [
            (Flaw::NoKeys, self.keys.missing()),
            (
                Flaw::WrongKeys,
                "encrypted, and the secrets that were given for them do not open them: they are of other connections",
            ),
            (Flaw::Garbled, "encrypted, and could not be read to their end: their records do not decrypt"),
            (
                Flaw::BeganBefore,
                "open before the capture began: the table of header compression is not known, and they were not read",
            ),
            (Flaw::NotHttp, "without HTTP/1.1 or HTTP/2"),
        ];
        let count =
            |flaw| connections.iter().filter(|connection| connection.flaw == Some(flaw)).count() as u64;
        let told = |(flaw, why): (Flaw, &str)| {
            let n = count(flaw);
            (n > 0).then(|| format!("{}: {why}", plural(n, "connection")))
        };
        reasons.into_iter().filter_map(told).collect()
    }
}

/// Near which end the capture was made, judged by the times of the handshakes.
fn place(connections: &[Finished]) -> String {
    let handshakes = connections.iter().filter_map(|connection| connection.handshake);
    let Some(quickest) = handshakes.min_by_key(Handshake::round_trip) else {
        return "no whole handshake of TCP is in it, without a repetition: the round trip is not known, nor near which end it was made"
            .to_owned();
    };
    let (to_client, to_server) = (quickest.to_client, quickest.to_server);
    let all = format!(
        "the quickest handshake took {} to the server and back, {} to the client and back",
        measured_time(to_server),
        measured_time(to_client)
    );
    if quickest.round_trip() < SHORT {
        return format!("{all}: the capture point is near both");
    }
    if to_server >= to_client * NEAR {
        format!("{all}: the capture point is near the client")
    } else if to_client >= to_server * NEAR {
        format!(
            "{all}: the capture point is near the server. Times are put at the client by these; what was lost between the capture \
             point and the client is not seen to be late"
        )
    } else {
        format!(
            "{all}: the capture point is between them. Times are put at the client by these; what was lost between the capture point \
             and the client is not seen to be late"
        )
    }
}

fn of_tcp(connections: &[Finished]) -> Vec<String> {
    let with = |is: fn(&Finished) -> bool| connections.iter().filter(|c| is(c)).count() as u64;
    let one_way = with(|c| (c.up.segments == 0) != (c.down.segments == 0));
    let lost = with(|c| c.up.has_missing() || c.down.has_missing());
    let cut = with(|c| c.up.cut + c.down.cut > 0);
    let large: u64 = connections.iter().map(|c| u64::from(c.up.large) + u64::from(c.down.large)).sum();
    let told = [
        (one_way, "connection", "data in one direction alone: the other was not captured, or sent nothing"),
        (
            lost,
            "connection",
            "bytes that the receiver acknowledged and the capture lacks: what follows them could not be read",
        ),
        (
            cut,
            "connection",
            "packets that the capture cut (snap length): what follows them could not be read; capture with -s 0",
        ),
        (
            large,
            "segment",
            "larger than its receiver takes: captured before or after the device cut or merged them (TSO, GRO), so that losses \
             within one do not show",
        ),
    ];
    let sentence = |(n, noun, what): (u64, &str, &str)| {
        let verb = match (noun, n) {
            ("segment", 1) => "is",
            ("segment", _) => "are",
            (_, 1) => "has",
            _ => "have",
        };
        format!("{} {verb} {what}", plural(n, noun))
    };
    told.into_iter().filter(|(n, ..)| *n > 0).map(sentence).collect()
}

fn of_requests(connections: &[Finished], source: Source) -> Vec<String> {
    let read = || connections.iter().filter_map(|connection| connection.read.as_ref());
    let untimed: u64 = read().map(|read| u64::from(read.exchanges.untimed)).sum();
    let timed: u64 = read().map(|read| read.exchanges.samples.len() as u64).sum();
    let all = plural(timed + untimed, "request");
    let left_out =
        (untimed > 0).then(|| format!("{untimed} of {all} left out: the capture lacks when they ended"));
    let undecoded: u64 = read().map(|read| u64::from(read.exchanges.undecoded)).sum();
    let open = read().filter(|read| read.end == End::Capture).count() as u64;
    let declined = read().filter(|read| read.is_declined).count() as u64;
    let how = if source == Source::Run {
        "asked for HTTP/2 by an upgrade (Upgrade: h2c), which h2lab's server declines here; `h2lab origin --h2c-upgrade` takes it"
    } else {
        "asked for HTTP/2 by an upgrade (Upgrade: h2c), which the server declined: RFC 9113 has none any more"
    };
    let declined = (declined > 0).then(|| format!("{} {how}", plural(declined, "connection")));
    let told = [
        (undecoded, "block of fields", "not decoded"),
        (open, "connection", "still open when the capture ended"),
    ];
    left_out
        .into_iter()
        .chain(declined)
        .chain(of_resets(connections, source))
        .chain(told.into_iter().filter(|(n, ..)| *n > 0).map(|(n, noun, what)| were(n, noun, what)))
        .collect()
}

/// `2 requests were …`.
fn were(n: u64, noun: &str, what: &str) -> String {
    format!("{} {} {what}", plural(n, noun), if n == 1 { "was" } else { "were" })
}

/// Requests that the server reset, by error code, and why, if the packets show it.
fn of_resets(connections: &[Finished], source: Source) -> Vec<String> {
    let read = || connections.iter().filter_map(|connection| connection.read.as_ref());
    let mut codes: BTreeMap<u32, u64> = BTreeMap::new();
    let samples = read().flat_map(|read| &read.exchanges.samples);
    for sample in samples.filter(|sample| sample.outcome == Outcome::Reset) {
        *codes.entry(sample.code).or_default() += 1;
    }
    let misfit = read().find_map(|read| read.exchanges.misfit);
    let who = if source == Source::Run { "h2lab's server" } else { "the server" };
    let told = |(code, n): (u32, u64)| {
        let code = ErrorCode(code);
        let misfit = misfit.filter(|_| code == ErrorCode::PROTOCOL_ERROR);
        let why = misfit.map_or(String::new(), |(sent, announced)| {
            let one = if n == 1 { "" } else { "of one of them " };
            format!(
                ": {one}the client sent {} bytes of a body whose content-length is {}, which makes the request malformed (RFC 9113 \
                 §8.1.1)",
                count(sent),
                count(announced)
            )
        });
        format!("{who} reset {} (RST_STREAM, {code}){why}", plural(n, "request"))
    };
    codes.into_iter().take(MOST_CODES).map(told).collect()
}

/// Of so many refused requests those that are not among the samples of `records`: in a whole run, those that were
/// certainly not sent again are.
pub(super) fn left_out(refused: usize, records: &[CellRecord]) -> Option<Note> {
    let samples = records.iter().flat_map(|record| record.samples.iter());
    let lost = samples.filter(|sample| sample.outcome == Outcome::Refused).count();
    let n = refused.saturating_sub(lost) as u64;
    let what = "refused unprocessed, and left out: whether the client sent them again is not known";
    (n > 0).then(|| Note(were(n, "request", what)))
}
