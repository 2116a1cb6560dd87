//! How large heads and bodies may be.

use std::time::Duration;

use h2lab_base::units::{Time, format_bytes};
use h2lab_model::probe::server::{FieldLines, Search, Taken};
use h2lab_model::probe::{Bound, Check, EvidenceItem, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::kind;
use h2lab_wire::h2::raw::frame;

use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::url::results::UrlResults;
use crate::probe::{Prober, Result};

/// The longest field, and all fields together, that are tried, in bytes.
const LONGEST_HEAD: u64 = 1 << 20;
/// The value of each of many fields, in bytes.
const EACH: u64 = 100;
/// The longest body that is announced, in bytes: far above any limit.
const LONGEST_BODY: u64 = 1 << 40;
/// The longest body that is sent, where what is announced does not decide, in bytes.
const LONGEST_UPLOAD: u64 = 16 << 20;
/// The part of the budget that one search may use.
const SHARE: u64 = 4;
/// How long a server gets, at least, to refuse a body by its announced length. It sends nothing about a length that it
/// accepts.
const REFUSAL: Duration = Duration::from_millis(250);
/// By how much longer than the first refusal others may take.
const SLOWER: u32 = 4;
/// How often the same value is tried again after a connection ended for another reason.
const AGAIN: u32 = 2;

/// What values are made of: a letter that Huffman coding does not shorten (RFC 7541 Appendix B), since some servers
/// count encoded bytes.
const LETTER: &str = "X";

/// What a search may use of the budget.
struct Share {
    bytes: u64,
    requests: u64,
}

impl Share {
    fn of(prober: &Prober) -> Self {
        let budget = prober.budget;
        let rest = |left: u64| left - left / SHARE;
        Self { bytes: rest(budget.bytes_left()), requests: rest(budget.requests_left()) }
    }

    /// Whether it has room for a request of `n` bytes.
    fn has(&self, prober: &Prober, n: u64) -> bool {
        let budget = prober.budget;
        budget.bytes_left() > self.bytes.saturating_add(n) && budget.requests_left() > self.requests
    }
}

/// The result of a search.
struct Searched {
    search: Search,
    refusal: Option<String>,
    /// Why it ended early, if it did.
    stopped: Option<String>,
    /// Frames that show the last refusal.
    items: Vec<EvidenceItem>,
}

impl Searched {
    /// What is known, as text, and whether everything was tried.
    fn rendered(&self) -> (Bound, String, bool) {
        let how = match (&self.stopped, &self.refusal) {
            (Some(why), _) => why.clone(),
            (None, Some(refusal)) => format!("beyond it: {refusal}"),
            (None, None) => "no longer one was tried".to_owned(),
        };
        let mut bound = self.search.bound(how.clone());
        // If a search ended early, all that follows is that the longest length was refused, which is far above any
        // limit.
        bound.at_most = bound.at_most.filter(|most| self.stopped.is_none() || *most < LONGEST_BODY - 1);
        let is_all = self.stopped.is_none() && self.search.is_decided();
        let summary = format!("{}: {how}", rendered(&bound));
        (bound, summary, is_all)
    }
}

/// Searches for the boundary of heads to which `fields` adds the given number of bytes. Returns what that shows, with
/// the evidence.
fn heads(
    prober: &mut Prober,
    protocol: Protocol,
    found: &UrlResults,
    (fields, evidence): (fn(u64) -> FieldLines, &str),
) -> Result<(Bound, Check)> {
    let baseline = found.h2_answer.as_ref().map_or(200, |answer| answer.status);
    let share = Share::of(prober);
    // Used for as long as it lasts.
    let mut last: Option<RawH2Client> = None;
    let mut searched =
        Searched { search: Search::new(LONGEST_HEAD), refusal: None, stopped: None, items: Vec::new() };
    let mut again = 0;
    while let Some(n) = searched.search.next() {
        if !share.has(prober, n * 2) {
            let more = prober.budget.remedy();
            searched.stopped = Some(format!("the share of the budget for this is used up; {more}"));
            break;
        }
        let mut client = match last.take().filter(|client| client.ended().is_none()) {
            Some(client) => client,
            None => RawH2Client::open(prober, protocol, &Opening::default())?,
        };
        let taken = head(prober, &mut client, found.method(), baseline, &fields(n))?;
        match &taken {
            Taken::Yes => searched.search.note(n, true),
            Taken::Refused(how) => {
                searched.refusal = Some(how.clone());
                searched.items = client.ending(4);
                searched.search.note(n, false);
            }
            Taken::Unknown(_) if again < AGAIN => {
                again += 1;
                continue; // on a new connection
            }
            Taken::Unknown(how) => {
                searched.items = client.ending(4);
                searched.stopped = Some(format!("unknown for {n} bytes: {how}"));
                break;
            }
        }
        again = 0;
        // A server that refused may have left a part of the request unread.
        last = Some(client).filter(|_| taken == Taken::Yes);
    }
    let (bound, summary, is_all) = searched.rendered();
    let verdict = match &searched.refusal {
        // A handler that breaks is no refusal.
        Some(refusal) if refusal.starts_with('5') => Verdict::Fail,
        _ if is_all => Verdict::Pass,
        _ => Verdict::Undecided,
    };
    Ok((bound, Check::new(id::LIMT106, verdict, summary).with(evidence, searched.items)))
}

/// What becomes of one request with these fields.
fn head(
    prober: &mut Prober,
    client: &mut RawH2Client,
    method: &str,
    baseline: u16,
    fields: &[(String, String)],
) -> Result<Taken> {
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let stream = client.request(prober, method, &fields, true)?;
    let answer = client.answer(prober, stream)?;
    Ok(match (answer.status, answer.reset) {
        (Some(status), _) if status == baseline => Taken::Yes,
        (Some(status), _) => Taken::Refused(status.to_string()),
        (None, Some(code)) => Taken::Refused(format!("RST_STREAM {code}")),
        (None, None) => left(client, stream),
    })
}

/// What a stream without any answer shows.
fn left(client: &RawH2Client, stream: u32) -> Taken {
    let is_goodbye = client
        .goaways
        .last()
        .is_some_and(|goaway| goaway.code == ErrorCode::NO_ERROR && goaway.last_stream < stream);
    match client.ended() {
        Some(how) if is_goodbye => Taken::Unknown(how),
        Some(how) => Taken::Refused(how),
        None => Taken::Unknown("silence".to_owned()),
    }
}

/// The longest value of one header field.
pub fn field(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let one = |n: u64| vec![("x-h2lab".to_owned(), LETTER.repeat(n as usize))];
    let (bound, check) = heads(prober, protocol, found, (one, "one field of growing length"))?;
    found.limits.header_field = Some(bound);
    Ok(check)
}

/// The longest field block: many fields, none of them long. Decoded, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts.
pub fn block(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let (bound, check) = heads(prober, protocol, found, (many, "a growing number of fields"))?;
    found.limits.header_block = Some(bound);
    Ok(check)
}

/// Fields whose names and values have `n` bytes together.
fn many(n: u64) -> Vec<(String, String)> {
    const NAME: &str = "x-h2lab";
    let full = NAME.len() as u64 + EACH;
    let value = |length: u64| LETTER.repeat(length as usize);
    let mut fields: Vec<(String, String)> = (0..n / full).map(|_| (NAME.to_owned(), value(EACH))).collect();
    if let Some(rest) = (n % full).checked_sub(NAME.len() as u64) {
        fields.push((NAME.to_owned(), value(rest)));
    } else if let Some((_, last)) = fields.last_mut() {
        last.push_str(&value(n % full));
    }
    fields
}

fn rendered(bound: &Bound) -> String {
    match (bound.value, bound.at_least, bound.at_most) {
        (Some(value), ..) => format!("exactly {value} bytes are accepted"),
        (_, Some(least), Some(most)) => format!("between {least} and {most} bytes are accepted"),
        (_, Some(least), None) => format!("{} are accepted", format_bytes(least)),
        (_, None, _) => "no length tried is accepted".to_owned(),
    }
}

/// The longest body that is not refused: by its announced length, without sending it, else by sending it as far as the budget
/// allows.
pub fn body(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let share = Share::of(prober);
    // The answer to a short POST, whatever it is, is no refusal.
    let ordinary = found.expected.iter().find(|(of, _)| *of == protocol).map(|(_, answer)| answer.status);
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    // The longest first: a server that accepts it ignores announcements.
    let began = prober.now();
    let until = prober.soon();
    let first = announced(prober, &mut client, LONGEST_BODY, until)?;
    let took = prober.now().since(began);
    let items = client.ending(4);
    if first != Announced::Status(413) {
        return Ok(by_sending(prober, protocol, found, &first, ordinary)?
            .with("a body that is declared but not sent", items));
    }
    // If it refused that at once, it has this long to refuse others.
    let timeout = REFUSAL.max(took * SLOWER).min(prober.timeout);
    let mut searched = Searched {
        search: Search::between(0, LONGEST_BODY),
        refusal: Some("413 for the declared length".to_owned()),
        stopped: None,
        items,
    };
    let mut again = 0;
    while let Some(n) = searched.search.next() {
        if !share.has(prober, 0) {
            let more = prober.budget.remedy();
            searched.stopped = Some(format!("the share of the budget for this is used up; {more}"));
            break;
        }
        if client.ended().is_some() {
            client = RawH2Client::open(prober, protocol, &Opening::default())?;
        }
        let until = prober.now() + timeout;
        match announced(prober, &mut client, n, until)? {
            Announced::Status(413) => {
                searched.items = client.ending(4);
                searched.search.note(n, false);
            }
            Announced::Status(status) if status >= 400 && Some(status) != ordinary => {
                let summary = format!(
                    "the limit was not found: {} that are declared get 413, but {n} get {status}, which shows no limit",
                    format_bytes(LONGEST_BODY)
                );
                let check = Check::new(id::LIMT107, Verdict::Undecided, summary);
                return Ok(check.with("a body that is declared", client.ending(4)));
            }
            Announced::Status(_) | Announced::Waits => searched.search.note(n, true),
            Announced::Left(_) if again < AGAIN => {
                again += 1;
                client = RawH2Client::open(prober, protocol, &Opening::default())?;
                continue;
            }
            Announced::Left(how) => {
                searched.stopped = Some(format!("unknown for {n} bytes: {how}"));
                break;
            }
        }
        again = 0;
    }
    let (bound, summary, is_all) = searched.rendered();
    found.limits.request_body = Some(bound);
    let verdict = if is_all { Verdict::Pass } else { Verdict::Undecided };
    Ok(Check::new(id::LIMT107, verdict, summary).with("a body that is declared", searched.items))
}

/// The reaction to an announced length.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Announced {
    /// A final response.
    Status(u16),
    /// The server waits for the body.
    Waits,
    /// The stream or the connection ended without a response.
    Left(String),
}

/// Announces a body of `n` bytes and sends nothing of it.
fn announced(prober: &mut Prober, client: &mut RawH2Client, n: u64, until: Time) -> Result<Announced> {
    let length = n.to_string();
    let stream = client.request(prober, "POST", &[("content-length", &length)], false)?;
    client.until(until, prober, |client| client.ended().is_some() || client.is_settled(stream))?;
    let its = client.streams.get(&stream).cloned().unwrap_or_default();
    if !client.is_over(stream) {
        client.send(prober, &frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes()))?;
    }
    client.streams.remove(&stream);
    Ok(match (its.status, its.reset, client.ended()) {
        (Some(status), ..) => Announced::Status(status),
        (_, Some(code), _) => Announced::Left(format!("RST_STREAM {code}")),
        (.., Some(how)) => Announced::Left(how),
        _ => Announced::Waits,
    })
}

/// Where an announcement does not decide: a body is sent until it is refused, or as much as the budget allows.
fn by_sending(
    prober: &mut Prober,
    protocol: Protocol,
    found: &mut UrlResults,
    first: &Announced,
    ordinary: Option<u16>,
) -> Result<Check> {
    let longest = format_bytes(LONGEST_BODY);
    match first {
        Announced::Status(status) if *status < 400 || Some(*status) == ordinary => {
            let how = "declared, and answered without waiting for it";
            found.limits.request_body = Some(Bound::between(Some(LONGEST_BODY), None, "bytes", how));
            let summary = format!("{longest} are declared and not refused: {status}, which needs no limit");
            return Ok(Check::new(id::LIMT107, Verdict::Pass, summary));
        }
        Announced::Status(status) => {
            let summary = format!("a POST gets {status}, which does not show a limit");
            return Ok(Check::new(id::LIMT107, Verdict::Undecided, summary));
        }
        Announced::Waits | Announced::Left(_) => {}
    }
    let n = LONGEST_UPLOAD.min(prober.budget.bytes_left() / SHARE);
    let mut client = RawH2Client::open(prober, protocol, &Opening::default())?;
    let stream = client.request(prober, "POST", &[], false)?;
    let sent = client.body(prober, stream, n, true)?;
    let answer = client.answer(prober, stream)?;
    let bytes = format_bytes(sent);
    let (bound, verdict, summary) = match (answer.status, answer.reset, client.ended()) {
        (Some(413), ..) => {
            let bound = Bound::between(None, Some(sent), "bytes", "413 while this much was sent");
            (Some(bound), Verdict::Pass, format!("413 within {bytes} sent"))
        }
        (Some(status), ..) if sent == n => {
            let bound = Bound::between(Some(sent), None, "bytes", "this many were sent and accepted");
            let more = prober.budget.remedy();
            (Some(bound), Verdict::Undecided, format!("{bytes} are sent and accepted: {status}; {more}"))
        }
        (Some(status), ..) => (None, Verdict::Undecided, format!("{status} after {bytes} of {n} sent")),
        (_, Some(code), _) => (None, Verdict::Undecided, format!("RST_STREAM {code} after {bytes} sent")),
        (.., Some(how)) => (None, Verdict::Undecided, format!("after {bytes} sent: {how}")),
        _ => (None, Verdict::Undecided, format!("no response in time to {bytes} sent")),
    };
    found.limits.request_body = bound;
    let summary = format!("{longest} are declared and not refused; {summary}");
    Ok(Check::new(id::LIMT107, verdict, summary).with("a body that is sent", client.ending(6)))
}
