//! Attacks that servers must bound, each only as far as its first sign of a bound.

use std::time::Duration;

use h2lab_base::units::{Time, format_bytes, measured_time};
use h2lab_model::probe::server::sign;
use h2lab_model::probe::{Check, CheckMeta, Severity, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};
use h2lab_wire::h2::raw::{field_block, frame};

use super::results::{CheckOptions, UrlResults, decided};
use crate::probe::ask::{Question, ask};
use crate::probe::raw_connection::Put;
use crate::probe::raw_h2_client::{Opening, RawH2Client, settings};
use crate::probe::{ProbeError, Prober, Result};
use h2lab_net::resources::family_memory;

/// Frames that go with one write.
const BATCH: u32 = 20;
/// How long a server is silent before it is taken to have reacted to all of an attack.
const SETTLE: Duration = Duration::from_millis(500);
/// A server that holds an unread response for so long is assumed to wait for ever.
const LONG: Duration = Duration::from_secs(60);
/// The length of a field block that is above every server's bound, in bytes, where none is announced.
const LONG_BLOCK: u32 = 1 << 20;
/// The longest field block that is sent, in bytes.
const LONGEST_BLOCK: u32 = 32 << 20;
/// The value of the field in each CONTINUATION, and what a list counts of that field (RFC 9113 §6.5.2), in bytes.
const JUNK: (usize, u32) = (70, 70 + 6);
/// Streams beyond an announced limit that are tried, and streams where there is none.
const BEYOND: (u32, u32) = (100, 1_200);
/// The highest announced limit beyond which streams are tried.
const MOST_STREAMS: u32 = 5_000;
/// What a server may grow by during an attack, in bytes: more is held for one connection.
const GROWTH: u64 = 64 << 20;

/// An attack: what is sent again and again, and how often at most.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they say independently of each other how an attack is made"
)]
struct Attack {
    meta: &'static CheckMeta,
    /// How often at most, with what the server's settings have to do with it; `None` if they allow more than is tried.
    most: fn(&RawH2Client) -> Option<u32>,
    /// Whether each round is a request.
    are_requests: bool,
    /// Any reset of a stream is a bound, and not what the attack is after.
    any_reset: bool,
    /// Nothing is read meanwhile.
    not_reading: bool,
    /// The streams must still be held open when all are sent.
    holds: bool,
    /// Frames that go with one write.
    batch: u32,
    opening: fn() -> Opening,
    /// What goes before the rounds.
    before: fn(&mut RawH2Client, &Prober) -> Vec<u8>,
    /// The frames of a round.
    round: fn(&mut RawH2Client, &Prober) -> Vec<u8>,
}

const fn of(
    meta: &'static CheckMeta,
    most: fn(&RawH2Client) -> Option<u32>,
    round: fn(&mut RawH2Client, &Prober) -> Vec<u8>,
) -> Attack {
    Attack {
        meta,
        most,
        are_requests: false,
        any_reset: false,
        not_reading: false,
        holds: false,
        batch: BATCH,
        opening: Opening::default,
        before: |_, _| Vec::new(),
        round,
    }
}

/// So many CONTINUATION that their fields have twice what the server announces to take.
fn twice_the_header_list(client: &RawH2Client) -> Option<u32> {
    let announced = client.settings.get(&6).copied().unwrap_or(LONG_BLOCK);
    let bytes = announced.checked_mul(2).filter(|bytes| *bytes <= LONGEST_BLOCK)?;
    Some(bytes.div_ceil(JUNK.1).max(4_000))
}

/// So many streams that some are beyond what the server announces.
fn beyond_the_limit(client: &RawH2Client) -> Option<u32> {
    match client.settings.get(&3) {
        None => Some(BEYOND.1),
        Some(announced) if *announced > MOST_STREAMS => None,
        Some(announced) => Some(announced + BEYOND.0),
    }
}

fn attacks() -> [Attack; 8] {
    [
        Attack { are_requests: true, ..of(id::RESI101, |_| Some(2_000), rapid_reset) },
        Attack { are_requests: true, ..of(id::RESI102, |_| Some(2_000), made_you_reset) },
        Attack {
            before: unfinished_head,
            batch: 100,
            ..of(id::RESI103, twice_the_header_list, continuation)
        },
        Attack { are_requests: true, any_reset: true, batch: 1, ..of(id::RESI104, |_| Some(8), hpack_bomb) },
        Attack {
            not_reading: true,
            batch: 1_000,
            ..of(id::RESI105, |_| Some(1_500_000), |_, _| frame(kind::PING, 0, 0, &[7; 8]))
        },
        Attack {
            not_reading: true,
            batch: 1_000,
            ..of(
                id::RESI106,
                |_| Some(1_000_000),
                |_, _| frame(kind::SETTINGS, 0, 0, &settings(&[(4, 65_535)])),
            )
        },
        Attack {
            before: open_post,
            any_reset: true,
            ..of(id::RESI107, |_| Some(4_000), |_, _| frame(kind::DATA, 0, 1, &[]))
        },
        Attack {
            are_requests: true,
            opening: closed_window,
            any_reset: true,
            holds: true,
            ..of(id::RESI108, beyond_the_limit, plain_get)
        },
    ]
}

/// A client that lets no body through.
fn closed_window() -> Opening {
    Opening { settings: vec![(2, 0), (4, 0)], credit: 0 }
}

fn get(client: &mut RawH2Client, prober: &Prober, end_stream: bool, method: &str) -> (u32, Vec<u8>) {
    let stream = client.next_stream();
    let block = client.block(prober, method, &[]);
    (stream, client.head(stream, &block, end_stream))
}

fn plain_get(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    get(client, prober, true, "GET").1
}

fn rapid_reset(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    let (stream, mut bytes) = get(client, prober, true, "GET");
    bytes.extend(frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes()));
    bytes
}

fn made_you_reset(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    let (stream, mut bytes) = get(client, prober, true, "GET");
    bytes.extend(frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]));
    bytes
}

fn unfinished_head(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    let stream = client.next_stream();
    let block = client.block(prober, "GET", &[]);
    frame(kind::HEADERS, flag::END_STREAM, stream, &block)
}

fn continuation(_: &mut RawH2Client, _: &Prober) -> Vec<u8> {
    let field: (&[u8], &[u8]) = (b"x-junk", &[b'X'; JUNK.0]);
    frame(kind::CONTINUATION, 0, 1, &field_block([field]))
}

/// A value of 4,000 bytes that enters the dynamic table, and 12,000 references to it (RFC 7541 §6.1, §6.2.1).
fn hpack_bomb(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    let stream = client.next_stream();
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4_000]].concat();
    let block = [client.block(prober, "GET", &[]), entry, vec![0xbe; 12_000]].concat();
    client.head(stream, &block, true)
}

fn open_post(client: &mut RawH2Client, prober: &Prober) -> Vec<u8> {
    get(client, prober, false, "POST").1
}

/// Whether another client is answered.
enum Life {
    /// With this status.
    Answered(u16),
    /// It is not, for this reason.
    Dead(String),
    /// The budget does not allow to ask.
    Unknown,
}

fn another_client(prober: &mut Prober, protocol: Protocol) -> Result<Life> {
    match ask(prober, protocol, &Question::get()) {
        Ok(answer) if answer.status > 0 => Ok(Life::Answered(answer.status)),
        Ok(answer) => Ok(Life::Dead(answer.outcome())),
        Err(ProbeError::Connect(error)) => Ok(Life::Dead(error.to_string())),
        Err(ProbeError::Exhausted(_)) => Ok(Life::Unknown),
        Err(error) => Err(error),
    }
}

/// How the server's memory changed, if it is watched.
struct Watch {
    pid: Option<u32>,
    first: Option<u64>,
    /// The most that any attack added, which one, and from which size to which.
    worst: Option<(u64, &'static str, u64, u64)>,
    gone: bool,
}

impl Watch {
    fn new(pid: Option<u32>) -> Self {
        Self { pid, first: pid.and_then(family_memory), worst: None, gone: false }
    }

    fn now(&self) -> Option<u64> {
        self.pid.and_then(family_memory)
    }

    fn note(&mut self, attack: &'static str, before: Option<u64>, after: Option<u64>) {
        let (Some(before), Some(after)) = (before, after) else {
            self.gone |= before.is_some() && after.is_none();
            return;
        };
        let growth = after.saturating_sub(before);
        if self.worst.is_none_or(|(worst, ..)| growth >= worst) {
            self.worst = Some((growth, attack, before, after));
        }
    }

    /// The check of the memory; `None` if it is not watched.
    fn check(&self) -> Option<Check> {
        let pid = self.pid?;
        let (verdict, summary) = match (self.first, self.worst) {
            (None, _) => (Verdict::Undecided, format!("there is no process {pid} whose memory can be read")),
            _ if self.gone => (Verdict::Fail, format!("process {pid} is gone after an attack")),
            (_, None) => (Verdict::Undecided, "no attack was made".to_owned()),
            (_, Some((growth, attack, before, after))) => {
                let verdict = if growth > GROWTH { Verdict::Fail } else { Verdict::Pass };
                let [before, after, most] = [before, after, GROWTH].map(format_bytes);
                (
                    verdict,
                    format!("at most from {before} to {after}, during {attack}; the bound is {most} more"),
                )
            }
        };
        Some(Check::new(id::RESI110, verdict, summary))
    }
}

/// Makes every attack, up to the first one that the server does not survive.
pub fn look(
    prober: &mut Prober,
    protocol: Protocol,
    options: &CheckOptions,
    found: &mut UrlResults,
    notify: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut watch = Watch::new(options.pid);
    // A server that answers nothing before the attacks is not judged by them.
    let mut ordinary = None;
    let mut spared = match another_client(prober, protocol)? {
        Life::Answered(status) => {
            ordinary = Some(status);
            None
        }
        Life::Dead(why) => Some(format!("no client gets a response before the attack: {why}")),
        Life::Unknown => Some(prober.budget.remedy().to_owned()),
    };
    let metas: Vec<&'static CheckMeta> =
        attacks().iter().map(|attack| attack.meta).chain([id::RESI109]).collect();
    for (meta, attack) in metas.into_iter().zip(attacks().iter().map(Some).chain([None])) {
        if let Some(why) = &spared {
            found.add(Check::new(meta, Verdict::Undecided, why.clone()));
            continue;
        }
        notify(&format!("resistance: {}", meta.name));
        let before = watch.now();
        let mut under = Under { prober: &mut *prober, protocol, ordinary, after: None, watch: &watch };
        let check = match attack {
            Some(attack) => under.made(attack),
            None => under.zero_window(options.idle),
        };
        let after = under.after.or_else(|| watch.now());
        let mut check = decided(meta, check)?;
        watch.note(meta.name, before, after);
        if let Life::Dead(why) = another_client(prober, protocol)? {
            let summary = format!("another client gets no response afterwards: {why} ({})", check.summary);
            let evidence = std::mem::take(&mut check.evidence);
            check = Check::new(meta, Verdict::Fail, summary).severe(Severity::Critical);
            check.evidence = evidence;
            spared = Some(format!("not made: the server answers no one after {} ({})", meta.id, meta.name));
            watch.gone |= options.pid.is_some() && watch.now().is_none();
        }
        found.add(check);
    }
    watch.check().into_iter().for_each(|check| found.add(check));
    Ok(())
}

/// An attack in progress.
struct Under<'a> {
    prober: &'a mut Prober,
    protocol: Protocol,
    /// The status that the path has for everybody.
    ordinary: Option<u16>,
    /// The server's memory while the connection of the attack was still there.
    after: Option<u64>,
    watch: &'a Watch,
}

impl Under<'_> {
    fn made(&mut self, attack: &Attack) -> Result<Check> {
        let prober = &mut *self.prober;
        let ordinary = self.ordinary;
        // The first sign that the server bounds what it takes.
        let sign = |client: &RawH2Client| {
            client.ended().or_else(|| sign(client.reactions(), attack.any_reset, ordinary))
        };
        let mut client = RawH2Client::open(prober, self.protocol, &(attack.opening)())?;
        let Some(most) = (attack.most)(&client) else {
            let summary = "the server announces a limit above those tried here";
            return Ok(
                Check::new(attack.meta, Verdict::Undecided, summary).with("its SETTINGS", client.items())
            );
        };
        let before = (attack.before)(&mut client, prober);
        if !before.is_empty() {
            prober.take_request()?;
            client.send(prober, &before)?;
        }
        let mut sent = 0;
        let mut put = Put::All;
        if attack.not_reading {
            // A bound by count shows while we still listen.
            let bytes: Vec<u8> =
                (0..attack.batch).flat_map(|_| (attack.round)(&mut client, prober)).collect();
            (put, sent) = (client.send(prober, &bytes)?, attack.batch);
            client.settle(SETTLE, prober, |client| sign(client).is_some())?;
        }
        client.line.set_not_reading(attack.not_reading);
        while sent < most && put == Put::All && sign(&client).is_none() {
            let mut bytes = Vec::new();
            for _ in 0..attack.batch.min(most - sent) {
                if attack.are_requests {
                    prober.take_request()?;
                }
                bytes.extend((attack.round)(&mut client, prober));
                sent += 1;
            }
            put = client.send(prober, &bytes)?;
            if !attack.not_reading {
                client.pump(prober, Time::ZERO)?;
            }
        }
        client.line.set_not_reading(false);
        if put != Put::Full {
            client.settle(SETTLE, prober, |client| sign(client).is_some())?;
        }
        self.after = self.watch.now();
        let items = client.ending(8);
        let what = format!("{sent} rounds of {most} at most");
        let check = |verdict, summary| Check::new(attack.meta, verdict, summary);
        let check = match (sign(&client), put) {
            (Some(sign), _) => check(Verdict::Pass, format!("after {sent} rounds: {sign}")),
            (None, Put::Full) => {
                check(Verdict::Pass, format!("after {sent} rounds it stops reading (back-pressure)"))
            }
            (None, Put::Closed) => {
                check(Verdict::Pass, format!("after {sent} rounds it closes the connection"))
            }
            (None, Put::All) if attack.holds && client.streams.values().any(|stream| stream.ended) => {
                let summary = "responses end with a window of 0, so their streams do not stay open; give a path with \
                     a body";
                check(Verdict::Undecided, summary.to_owned())
            }
            (None, Put::All) => {
                // While the connection of the attack is still there.
                let others = match another_client(prober, self.protocol)? {
                    Life::Answered(_) => "other clients are served meanwhile".to_owned(),
                    Life::Dead(why) => format!("other clients are not served meanwhile: {why}"),
                    Life::Unknown => "the budget does not allow checking other clients".to_owned(),
                };
                check(Verdict::Fail, format!("no sign of a bound within {sent} rounds; {others}"))
            }
        };
        Ok(check.with(what, items))
    }

    /// A response that is never read.
    fn zero_window(&mut self, idle: Duration) -> Result<Check> {
        let prober = &mut *self.prober;
        let mut client = RawH2Client::open(prober, self.protocol, &closed_window())?;
        let stream = client.request(prober, "GET", &[], true)?;
        let began = prober.now();
        let until = (began + idle).min(prober.budget.ends_at());
        client.until(until, prober, |client| client.ended().is_some() || client.is_over(stream))?;
        self.after = self.watch.now();
        let waited = Duration::from_millis(prober.now().since(began).as_millis() as u64);
        let after = measured_time(waited);
        let it = client.streams.get(&stream).cloned().unwrap_or_default();
        let (verdict, summary) = if it.ended {
            (Verdict::Undecided, "the response has no body".to_owned())
        } else if let Some(code) = it.reset {
            (Verdict::Pass, format!("after {after} it resets the stream ({code})"))
        } else if let Some(how) = client.ended() {
            (Verdict::Pass, format!("after {after}: {how}"))
        } else {
            held_for(waited)
        };
        Ok(Check::new(id::RESI109, verdict, summary).with("one GET with a window of 0", client.ending(6)))
    }
}

/// The verdict on a server that holds a response for so long and continues.
fn held_for(waited: Duration) -> (Verdict, String) {
    let after = measured_time(waited);
    if waited < LONG {
        (Verdict::Undecided, format!("it still waits after {after}, which is not long (--idle, --max-time)"))
    } else {
        (Verdict::Fail, format!("it still waits after {after}"))
    }
}

#[cfg(test)]
mod tests;
