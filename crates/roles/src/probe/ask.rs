//! One question and its answer over any protocol, by our own engines: what a well-behaved client would see.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2lab_base::text::{made_printable, printable};
use h2lab_base::units::Time;
use h2lab_model::probe::server::{Answer, AnswerEnd, FieldLines};
use h2lab_model::record::Outcome;
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::Request;
use h2lab_wire::trace::Crossing;
use h2lab_wire::{Error, ErrorCode, Field, Fields, ResponseHead, StreamId};

use super::transcript::Transcript;
use super::{Prober, Result};
use crate::client::{
    Change, ConnectError, Outgoing, RequestEnd, RequestObserver, SessionEnd, Slots, Watch, WatchEvent,
};
use h2lab_net::clock::Clock;
use h2lab_net::lock::lock;

/// Bytes of a body that are kept.
const KEPT: usize = 1 << 20;
/// Interim responses, and promises, that are kept.
const SEVERAL: usize = 100;

/// The most bytes that our GOAWAY takes, without a text.
const GOAWAY_BYTES: usize = 32;

/// A request for the host's path, to be answered.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// `GET` …
    pub method: String,
    /// Another authority than the host's.
    pub authority: Option<String>,
    /// Field lines, lower-case names.
    pub fields: FieldLines,
    /// The body; none if empty.
    pub body: Vec<u8>,
    /// Whether the server may push.
    pub accepts_push: bool,
    /// The body goes only after a 100, or when this has passed without one.
    pub waits_for_100: Option<Duration>,
}

impl Question {
    /// A GET.
    pub fn get() -> Self {
        Self { method: "GET".to_owned(), ..Self::default() }
    }

    /// The same with a further field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Asks `question` on a connection of its own in `protocol`. If the connection ends early, that is an answer, too; if
/// there is none, that is an error.
pub fn ask(prober: &mut Prober, protocol: Protocol, question: &Question) -> Result<Answer> {
    prober.take_request()?;
    let mut transcript = Transcript::new(prober.now(), prober.host.hidden.clone());
    if protocol.is_multiplexed() && !protocol.is_quic() {
        transcript.reads_frames();
    }
    let transcript = Arc::new(Mutex::new(transcript));
    let mut target = prober.target(protocol)?;
    target.engine.enable_push = question.accepts_push;
    target.tap = false;
    target.turn = 0; // the budget is checked before each read
    target.watch = Some(transcript.clone());
    prober.take_connection()?;
    let names: Vec<&str> = question.fields.iter().map(|(name, _)| name.as_str()).collect();
    let host = prober.host.fields_beside(&names).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let outgoing = Asked {
        question,
        fields: host.chain(question.fields.iter().cloned()).collect(),
        authority: question.authority.clone().unwrap_or_else(|| prober.host.authority.clone()),
        path: prober.host.path.clone(),
        is_held: Cell::new(question.waits_for_100.is_some()),
    };
    let asking = Asking {
        slots: Slots::new(target, 1, prober.clock)?,
        read: ReadOutcome::new(prober),
        prober,
        outgoing,
        stream: None,
        body_from: Time::NEVER,
        counted: (0, 0),
    };
    let mut answer = asking.run()?;
    answer.items = lock(&transcript).items();
    Ok(answer)
}

/// Records what crosses the one stream of TCP.
impl Watch for Mutex<Transcript> {
    fn see(&self, at: Time, event: WatchEvent<'_>) {
        if let WatchEvent::Crossing {
            direction, crossing: Crossing::Bytes { stream: None, bytes, .. }, ..
        } = event
        {
            lock(self).record(at, direction, bytes);
        }
    }
}

/// The one request as a session sends it.
struct Asked<'a> {
    question: &'a Question,
    /// The host's further fields, then those of the question.
    fields: FieldLines,
    authority: String,
    path: String,
    /// Its body has to wait.
    is_held: Cell<bool>,
}

impl Outgoing for Asked<'_> {
    fn with_head<T>(&self, _: u64, show: impl FnOnce(&Request<'_>) -> T) -> T {
        let Question { method, body, .. } = self.question;
        let fields: Vec<Field<'_>> =
            self.fields.iter().map(|(name, value)| Field::new(name, value)).collect();
        show(&Request {
            method,
            authority: &self.authority,
            path: &self.path,
            fields: &fields,
            body_length: (!body.is_empty()).then_some(body.len() as u64),
            end_stream: body.is_empty(),
        })
    }

    fn with_piece<T>(&self, _: u64, left: u64, show: impl FnOnce(&[u8], bool) -> T) -> T {
        let body = &self.question.body;
        if self.is_held.get() { show(&[], false) } else { show(&body[body.len() - left as usize..], true) }
    }
}

/// What a session reports of the request.
struct ReadOutcome {
    clock: Clock,
    asked_at: Time,
    answer: Answer,
    is_sent: bool,
    /// A 100 came.
    may_continue: bool,
    fate: Option<RequestEnd>,
}

impl ReadOutcome {
    fn new(prober: &Prober) -> Self {
        let (clock, asked_at) = (prober.clock, prober.now());
        Self { clock, asked_at, answer: Answer::none(), is_sent: false, may_continue: false, fate: None }
    }

    /// How the exchange ended, or whether it has not. `refusal` stands for a request that was not processed, `goaway` is the code
    /// of the last GOAWAY.
    fn how_it_ended(
        &self,
        end: Option<SessionEnd>,
        refusal: ErrorCode,
        goaway: Option<ErrorCode>,
    ) -> AnswerEnd {
        match (self.fate, end) {
            (Some(RequestEnd::Complete), _) => AnswerEnd::Complete,
            (Some(RequestEnd::Failed { outcome: Outcome::Reset, code }), _) => {
                AnswerEnd::Reset(ErrorCode(code))
            }
            (Some(RequestEnd::Unprocessed), _) if self.is_sent => AnswerEnd::Reset(refusal),
            (
                _,
                Some(SessionEnd::Engine(
                    error @ (Error::PeerMisbehaved { .. }
                    | Error::BadHttp1(_)
                    | Error::WrongProtocol { .. }
                    | Error::Exceeded(_)),
                )),
            ) => AnswerEnd::Refused(error.to_string()),
            (_, Some(SessionEnd::Engine(error))) => AnswerEnd::Closed(error.to_string()),
            (_, Some(SessionEnd::Transport(error))) => {
                AnswerEnd::Closed(ConnectError::from(error).to_string())
            }
            (_, Some(SessionEnd::Orderly | SessionEnd::Local(_))) => AnswerEnd::Closed(match goaway {
                Some(code) if code != ErrorCode::NO_ERROR => Error::GoAway(code).to_string(),
                _ => "in order, without an answer".to_owned(),
            }),
            (Some(RequestEnd::Failed { code, .. }), None) => {
                AnswerEnd::Refused(format!("our engine resets it with {}", ErrorCode(code)))
            }
            (_, None) => AnswerEnd::Silence,
        }
    }
}

impl RequestObserver for ReadOutcome {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {
        self.is_sent = true;
    }

    fn interim(&mut self, _: u32, at: Time, head: &ResponseHead<'_>) {
        self.may_continue |= head.status == 100;
        if self.answer.interim.len() < SEVERAL {
            self.answer.interim.push((head.status, lines(head.fields), at.since(self.asked_at)));
        }
    }

    fn promised(&mut self, path: &[u8]) {
        if self.answer.pushes.len() < SEVERAL {
            self.answer.pushes.push(printable(path));
        }
    }

    fn head(&mut self, _: u32, at: Time, head: &ResponseHead<'_>) {
        (self.answer.status, self.answer.fields) = (head.status, lines(head.fields));
        self.answer.head_at = Some(at.since(self.asked_at));
    }

    fn body(&mut self, _: u32, data: &[u8]) {
        let answer = &mut self.answer;
        let room = KEPT.saturating_sub(answer.body.len());
        answer.body.extend_from_slice(&data[..data.len().min(room)]);
        answer.body_bytes += data.len() as u64;
        if !data.is_empty() {
            let since = self.clock.now().since(self.asked_at);
            answer.pieces = Some((answer.pieces.map_or(since, |(first, _)| first), since));
        }
    }

    fn trailers(&mut self, _: u32, fields: Fields<'_>) {
        self.answer.trailers = lines(fields);
    }

    fn body_sent(&mut self, _: u32, at: Time, _: usize) {
        self.answer.body_sent_at.get_or_insert(at.since(self.asked_at));
    }

    fn ended(&mut self, _: u32, _: Time, fate: RequestEnd) {
        self.fate = Some(fate);
    }
}

/// The one connection's slot, and the one request's number.
const ONLY: u32 = 0;

/// An exchange in progress.
struct Asking<'a> {
    prober: &'a mut Prober,
    slots: Slots<()>,
    outgoing: Asked<'a>,
    read: ReadOutcome,
    stream: Option<StreamId>,
    /// When a body that is held goes without a 100.
    body_from: Time,
    /// Bytes already counted in the budget: received and sent.
    counted: (u64, u64),
}

impl Asking<'_> {
    fn run(mut self) -> Result<Answer> {
        let change = self.slots.dial(ONLY, u32::MAX);
        self.follow(change)?;
        while self.slots.session(ONLY).is_none() {
            self.wait(self.prober.next_check(Time::NEVER)?)?;
        }
        let mut until = self.prober.soon();
        // A response that never ends is cut off, however often something comes.
        let hard = self.prober.now() + 4 * self.prober.timeout;
        let mut is_over = false;
        let given_up = loop {
            if self.proceed()? {
                break None;
            }
            let (now, answer) = (self.prober.now(), &self.read.answer);
            if answer.body_bytes >= self.prober.most_read || (is_over && now >= hard && answer.status > 0) {
                break Some(AnswerEnd::Cut);
            }
            if is_over {
                break Some(AnswerEnd::Silence);
            }
            match self.prober.may_receive(1) {
                Err(error) if answer.status == 0 => return Err(error),
                Err(_) => break Some(AnswerEnd::Cut),
                Ok(_) => {}
            }
            let received = self.counted.0;
            // What has come by then is read before it counts as silence.
            is_over = self.prober.is_over(until.min(hard));
            let look = self.prober.next_check(until.min(hard))?.min(self.body_from);
            self.wait(if is_over { Time::ZERO } else { look })?;
            if self.counted.0 > received {
                until = self.prober.soon();
                is_over &= self.prober.is_over(hard);
            }
        };
        Ok(self.leave(given_up))
    }

    /// Sleeps until something happens, or `until`, and acts on it.
    fn wait(&mut self, until: Time) -> Result<()> {
        self.prober.check_stop()?;
        self.slots.wait(until, None)?;
        while let Some(completion) = self.slots.next_completion() {
            let (_, change) = self.slots.act_on(completion, &self.outgoing, &mut self.read);
            self.follow(change)?;
        }
        Ok(())
    }

    fn follow(&mut self, change: Change) -> Result<()> {
        match change {
            Change::Established(established) => {
                self.slots.open(ONLY, *established, 1, u32::MAX, &self.outgoing, &mut self.read);
            }
            Change::Failed => {
                if let Some(error) = self.slots.last_error.take() {
                    return Err(error.into());
                }
            }
            Change::Nothing | Change::Progress | Change::Ended => {}
        }
        self.count();
        Ok(())
    }

    /// Takes what has crossed from the budget.
    fn count(&mut self) {
        let Some((session, ())) = self.slots.session(ONLY) else { return };
        let crossed = (session.bytes_received(), session.bytes_sent());
        self.prober.received((crossed.0 - self.counted.0) as usize);
        self.prober.sent((crossed.1 - self.counted.1) as usize);
        self.counted = crossed;
    }

    /// Begins the request, sends a body that was held back, and writes what there is to send. Returns whether the
    /// exchange has ended.
    fn proceed(&mut self) -> Result<bool> {
        let now = self.prober.now();
        let (outgoing, read) = (&self.outgoing, &mut self.read);
        let Some((session, ())) = self.slots.session(ONLY) else { return Ok(true) };
        if self.stream.is_none() && session.is_established() && session.available() > 0 {
            read.asked_at = now;
            self.stream = session.begin(now, ONLY, 0, outgoing, read);
            self.body_from = outgoing.question.waits_for_100.map_or(Time::NEVER, |wait| now + wait);
        }
        if let Some(stream) = self.stream
            && (read.may_continue || now >= self.body_from)
            && outgoing.is_held.replace(false)
        {
            self.body_from = Time::NEVER;
            session.push_body(now, stream, outgoing, read);
        }
        // What was sent cannot be taken back: what waits must fit into the budget before any of it is sent.
        self.prober.may_send(session.unsent())?;
        self.slots.flush(ONLY, outgoing, read);
        self.count();
        let is_over = self.slots.session(ONLY).is_none_or(|(session, ())| session.end().is_some());
        Ok(is_over || self.read.fate.is_some())
    }

    /// Ends the connection in an orderly way. The answer ended as `given_up` says, or by itself.
    fn leave(mut self, given_up: Option<AnswerEnd>) -> Answer {
        let now = self.prober.now();
        let refusal = ErrorCode::REFUSED_STREAM;
        let refusal = if self.slots.target.protocol.is_quic() { refusal.in_http3() } else { refusal };
        let Some(mut session) = self.slots.close(now).1.pop() else { return self.read.answer };
        // If the budget has no room for this, the answer stays the same.
        if self.prober.may_send(session.unsent() + GOAWAY_BYTES).is_ok() {
            session.close_gracefully(now);
        }
        let (record, end) = session.into_record();
        self.prober.sent((record.bytes_sent - self.counted.1) as usize);
        let goaway = record.goaways.last().map(|goaway| ErrorCode(goaway.code));
        let ended = given_up.unwrap_or_else(|| self.read.how_it_ended(end, refusal, goaway));
        Answer { ended, settings: record.http.settings_remote, ..self.read.answer }
    }
}

fn lines(fields: Fields<'_>) -> FieldLines {
    // Backslashes stay as they are: values are compared.
    let text = |bytes: &[u8]| made_printable(&String::from_utf8_lossy(bytes)).into_owned();
    fields.iter().map(|field| (text(field.name), text(field.value))).collect()
}
