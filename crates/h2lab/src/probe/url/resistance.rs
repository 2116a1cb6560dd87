//! Attacks that servers must bound, each only as far as its first sign of a bound.

use std::time::Duration;

use h2lab_core::probe::{Check, CheckMeta, Severity, Verdict, id};
use h2lab_core::units::{Time, format_duration};
use h2lab_core::wire::ErrorCode;
use h2lab_core::wire::h2::frame::{flag, kind};
use h2lab_core::workload::Protocol;

use super::{Found, decided};
use crate::probe::ask::{Question, Way, ask};
use crate::probe::line::Put;
use crate::probe::talk::{Opening, Talk, frame, literal, settings};
use crate::probe::{ProbeError, Prober};

/// Frames that go with one write.
const BATCH: u32 = 20;
/// How long a server may take to react to all of an attack, once it is over.
const SETTLE: Duration = Duration::from_millis(500);

/// A server that waits for so long for somebody to take a response is taken to wait for ever.
const LONG: Duration = Duration::from_secs(60);

/// An attack: what is sent again and again, and how often at most.
struct Attack {
    meta: &'static CheckMeta,
    most: u32,
    /// Whether each round is a request.
    are_requests: bool,
    /// Any reset of a stream is a bound, and not what the attack is after.
    any_reset: bool,
    /// Nothing is read meanwhile.
    deaf: bool,
    /// Frames that go with one write.
    batch: u32,
    opening: fn() -> Opening,
    /// What goes before the rounds.
    before: fn(&mut Talk, &Prober) -> Vec<u8>,
    /// The frames of a round.
    round: fn(&mut Talk, &Prober) -> Vec<u8>,
}

const fn of(meta: &'static CheckMeta, most: u32, round: fn(&mut Talk, &Prober) -> Vec<u8>) -> Attack {
    Attack {
        meta,
        most,
        are_requests: false,
        any_reset: false,
        deaf: false,
        batch: BATCH,
        opening: Opening::default,
        before: |_, _| Vec::new(),
        round,
    }
}

fn attacks() -> [Attack; 8] {
    [
        Attack { are_requests: true, ..of(id::RESI101, 2_000, rapid_reset) },
        Attack { are_requests: true, ..of(id::RESI102, 2_000, made_you_reset) },
        Attack { before: unfinished_head, ..of(id::RESI103, 4_000, continuation) },
        Attack { are_requests: true, any_reset: true, batch: 1, ..of(id::RESI104, 8, hpack_bomb) },
        Attack {
            deaf: true,
            batch: 1_000,
            ..of(id::RESI105, 1_500_000, |_, _| frame(kind::PING, 0, 0, &[7; 8]))
        },
        Attack {
            deaf: true,
            batch: 1_000,
            ..of(id::RESI106, 1_000_000, |_, _| frame(kind::SETTINGS, 0, 0, &settings(&[(4, 65_535)])))
        },
        Attack {
            before: open_post,
            any_reset: true,
            ..of(id::RESI107, 4_000, |_, _| frame(kind::DATA, 0, 1, &[]))
        },
        Attack {
            are_requests: true,
            opening: closed_window,
            any_reset: true,
            ..of(id::RESI108, 1_200, plain_get)
        },
    ]
}

/// A client that lets nothing through.
fn closed_window() -> Opening {
    Opening { settings: vec![(2, 0), (4, 0)], credit: 0 }
}

fn get(talk: &mut Talk, prober: &Prober, end_stream: bool, method: &str) -> (u32, Vec<u8>) {
    let stream = talk.next_stream();
    let block = talk.block(prober, method, &prober.host.path, &[]);
    (stream, talk.head(stream, &block, end_stream))
}

fn plain_get(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    get(talk, prober, true, "GET").1
}

fn rapid_reset(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    let (stream, mut bytes) = get(talk, prober, true, "GET");
    bytes.extend(frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes()));
    bytes
}

fn made_you_reset(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    let (stream, mut bytes) = get(talk, prober, true, "GET");
    bytes.extend(frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4]));
    bytes
}

fn unfinished_head(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    let stream = talk.next_stream();
    let block = talk.block(prober, "GET", &prober.host.path, &[]);
    frame(kind::HEADERS, flag::END_STREAM, stream, &block)
}

fn continuation(_: &mut Talk, _: &Prober) -> Vec<u8> {
    frame(kind::CONTINUATION, 0, 1, &literal(b"x-junk", &[b'v'; 70]))
}

/// A value of 4,000 bytes that enters the dynamic table, and 12,000 references to it (RFC 7541 §6.1, §6.2.1).
fn hpack_bomb(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    let stream = talk.next_stream();
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4_000]].concat();
    let block = [talk.block(prober, "GET", &prober.host.path, &[]), entry, vec![0xbe; 12_000]].concat();
    talk.head(stream, &block, true)
}

fn open_post(talk: &mut Talk, prober: &Prober) -> Vec<u8> {
    get(talk, prober, false, "POST").1
}

/// Makes every attack.
pub fn look(
    prober: &mut Prober,
    protocol: Protocol,
    idle: Duration,
    found: &mut Found,
    tell: &mut dyn FnMut(&str),
) -> Result<(), ProbeError> {
    for attack in attacks() {
        tell(&format!("resistance: {}", attack.meta.name));
        let check = made(prober, protocol, &attack);
        let check = decided(attack.meta, check)?;
        found.add(survived(prober, protocol, check)?);
    }
    tell("resistance: zero-window");
    let check = zero_window(prober, protocol, idle);
    let check = decided(id::RESI109, check)?;
    found.add(survived(prober, protocol, check)?);
    Ok(())
}

/// The check, or a worse one if the server answers nobody any more.
fn survived(prober: &mut Prober, protocol: Protocol, check: Check) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let why = match ask(prober, Way::Plain(protocol), &Question::get(&path)) {
        Ok(answer) if answer.status > 0 => return Ok(check),
        Ok(answer) => answer.outcome(),
        Err(ProbeError::Connect(error)) => error.to_string(),
        Err(ProbeError::Exhausted(_)) => return Ok(check),
        Err(error) => return Err(error),
    };
    let Some(meta) = h2lab_core::probe::explain(&check.id) else { return Ok(check) };
    let summary = format!("another client is not answered afterwards: {why} ({})", check.summary);
    let mut worse = Check::new(meta, Verdict::Fail, summary).severe(Severity::Critical);
    worse.evidence = check.evidence;
    Ok(worse)
}

fn made(prober: &mut Prober, protocol: Protocol, attack: &Attack) -> Result<Check, ProbeError> {
    let mut talk = Talk::open(prober, protocol, &(attack.opening)())?;
    let before = (attack.before)(&mut talk, prober);
    if !before.is_empty() {
        prober.take_request()?;
        talk.send(prober, &before)?;
    }
    let mut sent = 0;
    let mut put = Put::All;
    if attack.deaf {
        // What is bounded by a count shows while we still listen.
        let bytes: Vec<u8> = (0..attack.batch).flat_map(|_| (attack.round)(&mut talk, prober)).collect();
        (put, sent) = (talk.send(prober, &bytes)?, attack.batch);
        let until = prober.now() + SETTLE;
        talk.until(prober, until, |talk| sign(talk, attack).is_some())?;
    }
    talk.line.deaf = attack.deaf;
    while sent < attack.most && put == Put::All && sign(&talk, attack).is_none() {
        let mut bytes = Vec::new();
        for _ in 0..attack.batch.min(attack.most - sent) {
            if attack.are_requests {
                prober.take_request()?;
            }
            bytes.extend((attack.round)(&mut talk, prober));
            sent += 1;
        }
        put = talk.send(prober, &bytes)?;
        if !attack.deaf {
            talk.pump(prober, Time::ZERO)?;
        }
    }
    talk.line.deaf = false;
    if put != Put::Full {
        let until = prober.now() + SETTLE;
        talk.until(prober, until, |talk| sign(talk, attack).is_some())?;
    }
    let exhibits = talk.ending(8);
    let what = format!("{sent} rounds of {} at most", attack.most);
    let check = match (sign(&talk, attack), put) {
        (Some(sign), _) => Check::new(attack.meta, Verdict::Pass, format!("after {sent} rounds: {sign}")),
        (None, Put::Full) => Check::new(
            attack.meta,
            Verdict::Pass,
            format!("after {sent} rounds it stops reading (back-pressure)"),
        ),
        (None, Put::Closed) => {
            Check::new(attack.meta, Verdict::Pass, format!("after {sent} rounds it closes the connection"))
        }
        (None, Put::All) => {
            let summary = format!("no sign of a bound within {sent} rounds; others are served meanwhile");
            Check::new(attack.meta, Verdict::Fail, summary)
        }
    };
    Ok(check.with(what, exhibits))
}

/// The first sign that the server bounds what it takes.
fn sign(talk: &Talk, attack: &Attack) -> Option<String> {
    talk.ended().or_else(|| {
        let is_refused = |code: ErrorCode| {
            matches!(code, ErrorCode::REFUSED_STREAM | ErrorCode::ENHANCE_YOUR_CALM)
                || code == ErrorCode::INTERNAL_ERROR
        };
        let is_large = |status: u16| matches!(status, 400 | 413 | 429 | 431 | 503);
        talk.streams.iter().find_map(|(id, stream)| {
            let reset = stream
                .reset
                .filter(|code| attack.any_reset || is_refused(*code))
                .map(|code| format!("RST_STREAM[{id}] {code}"));
            reset.or_else(|| {
                stream
                    .status
                    .filter(|status| is_large(*status))
                    .map(|status| format!("{status} on stream {id}"))
            })
        })
    })
}

/// A response that nobody takes.
fn zero_window(prober: &mut Prober, protocol: Protocol, idle: Duration) -> Result<Check, ProbeError> {
    let mut talk = Talk::open(prober, protocol, &closed_window())?;
    let path = prober.host.path.clone();
    let stream = talk.request(prober, "GET", &path, &[], true)?;
    let began = prober.now();
    let until = (began + idle).min(prober.budget().ends_at());
    talk.until(prober, until, |talk| talk.ended().is_some() || talk.is_over(stream))?;
    let after = format_duration(Duration::from_millis(prober.now().since(began).as_millis() as u64));
    let told = |verdict, summary: String| {
        Check::new(id::RESI109, verdict, summary).with("one GET with a window of 0", talk.ending(6))
    };
    let it = talk.streams.get(&stream);
    Ok(if it.is_some_and(|stream| stream.ended) {
        told(Verdict::Undecided, "the response has no body to wait for".to_owned())
    } else if let Some(code) = it.and_then(|stream| stream.reset) {
        told(Verdict::Pass, format!("after {after} it resets the stream ({code})"))
    } else if let Some(how) = talk.ended() {
        told(Verdict::Pass, format!("after {after}: {how}"))
    } else if idle < LONG {
        told(Verdict::Undecided, format!("it still waits after {after}, which is not long (--idle)"))
    } else {
        told(Verdict::Fail, format!("it still waits after {after}"))
    })
}
