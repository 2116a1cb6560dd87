//! Requests of HTTP/1.1 one after the other on one connection, read by our engine.

use h2lab_base::units::Time;
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::Request;
use h2lab_wire::{Connection, Event, Field};

use super::raw_connection::{Put, RawConnection, ReadOutcome};
use super::{Prober, Result};

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum H1Outcome {
    /// It was answered, and the connection continues.
    Answered,
    /// It was answered, and the connection ends with that, for this reason.
    Last(&'static str),
    /// It was not, since the connection ended.
    Closed,
    /// It was not, for this reason.
    Failed(String),
}

/// The connection.
#[derive(Debug)]
pub struct Sequence {
    /// What carries it.
    pub line: RawConnection,
    engine: Connection,
}

impl Sequence {
    /// Dials the host.
    pub fn open(prober: &mut Prober, protocol: Protocol) -> Result<Self> {
        let engine = Connection::h1(prober.target(protocol)?.engine);
        Ok(Self { line: RawConnection::dial(prober, protocol)?, engine })
    }

    /// Asks for the host's path.
    pub fn ask(&mut self, prober: &mut Prober, method: &str) -> Result<H1Outcome> {
        prober.take_request()?;
        let host = &prober.host;
        let fields: Vec<Field<'_>> =
            host.fields.iter().map(|(name, value)| Field::new(name, value)).collect();
        let request = Request {
            method,
            authority: &host.authority,
            path: &host.path,
            fields: &fields,
            body_length: None,
            end_stream: true,
        };
        if self.engine.send_request(prober.now(), &request).is_none() {
            return Ok(H1Outcome::Closed);
        }
        let until = prober.soon();
        let bytes = self.engine.take_transmit(prober.now());
        if self.line.send(&bytes, until, prober)? != Put::All {
            return Ok(H1Outcome::Closed);
        }
        let (mut answered, mut read) = (Answered::default(), 0);
        loop {
            let read_outcome = self.line.listen(until, prober)?;
            let bytes = std::mem::take(&mut self.line.incoming);
            read += bytes.len() as u64;
            self.engine.handle_input(prober.now(), &bytes);
            let is_over = self.line.over.is_some();
            if is_over {
                self.engine.handle_eof(prober.now());
            }
            if let Some(outcome) = answered.take(&mut self.engine, prober.now(), is_over) {
                return Ok(outcome);
            }
            match read_outcome {
                _ if read > prober.most_read => {
                    return Ok(H1Outcome::Failed(format!("its body continues after {read} bytes")));
                }
                ReadOutcome::Silence => {
                    return Ok(H1Outcome::Failed("it gets no response in time".to_owned()));
                }
                ReadOutcome::Eof | ReadOutcome::Broken => return Ok(H1Outcome::Closed),
                ReadOutcome::Bytes => {}
            }
        }
    }
}

/// How far an answer has come.
#[derive(Debug, Default)]
struct Answered {
    has_head: bool,
    announces: bool,
}

impl Answered {
    /// Takes the engine's events; returns the outcome once it is known.
    fn take(&mut self, engine: &mut Connection, now: Time, is_over: bool) -> Option<H1Outcome> {
        let mut is_whole = false;
        let mut closed = None;
        while let Some(event) = engine.poll_event(now) {
            match event {
                Event::Response { head, end_stream, .. } => {
                    self.has_head = true;
                    self.announces = head.fields.iter().any(|field| {
                        let value = String::from_utf8_lossy(field.value).to_ascii_lowercase();
                        field.name == b"connection" && value.split(',').any(|one| one.trim() == "close")
                    });
                    is_whole |= end_stream;
                }
                Event::Data { end_stream, .. } => is_whole |= end_stream,
                Event::Trailers { .. } => is_whole = true,
                Event::Closed { error } => closed = Some(error),
                _ => {}
            }
        }
        match (is_whole, closed) {
            (true, _) if self.announces => Some(H1Outcome::Last("its response says Connection: close")),
            (true, Some(None)) => Some(H1Outcome::Last("its body ends with the connection")),
            (true, Some(Some(error))) => Some(H1Outcome::Failed(error.to_string())),
            (true, None) if engine.is_draining() => Some(H1Outcome::Last("its response ends the connection")),
            (true, None) => Some(H1Outcome::Answered),
            (false, Some(Some(error))) if self.has_head || !is_over => {
                Some(H1Outcome::Failed(error.to_string()))
            }
            (false, Some(_)) => Some(H1Outcome::Closed),
            (false, None) => None,
        }
    }
}
