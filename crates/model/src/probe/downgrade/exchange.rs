//! The client's side of one case, without I/O: it sends the frames and reads how the proxy answers.

use super::super::smuggling::backend_request::is_gateway_trouble;
use super::case::{DowngradeCase, DowngradeTarget};
use h2lab_base::units::Time;
use h2lab_wire::StreamId;
use h2lab_wire::h2::frame::{flag, kind};
use h2lab_wire::h2::raw::frame;
use h2lab_wire::trace::detail::{Detail, Reader};
use h2lab_wire::trace::{Dialect, Direction, FrameKind};

/// How the proxy answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyAnswer {
    /// The status of the final response.
    pub status: Option<u16>,
    /// The code of RST_STREAM on the request's stream.
    pub reset: Option<String>,
    /// The code of GOAWAY, unless it is `NO_ERROR`.
    pub goaway: Option<String>,
    /// It closed the connection.
    pub closed: bool,
    /// It sent SETTINGS: it speaks HTTP/2.
    pub speaks: bool,
    /// The software that its `server` field names.
    pub server: Option<String>,
}

impl ProxyAnswer {
    /// Whether the request was refused, in whatever way. An answer about the connection to the backend, or about a limit, may
    /// have nothing to do with the request.
    pub fn is_refusal(&self) -> bool {
        let refuses = |status| status >= 400 && !is_gateway_trouble(status);
        self.reset.is_some() || self.goaway.is_some() || self.status.map_or(self.closed, refuses)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.status.map(|status| format!("status {status}")));
        words.extend(self.reset.as_ref().map(|code| format!("RST_STREAM {code}")));
        words.extend(self.goaway.as_ref().map(|code| format!("GOAWAY {code}")));
        if self.closed {
            words.push("closed".to_owned());
        }
        if words.is_empty() { "no answer".to_owned() } else { words.join(", ") }
    }
}

/// One case in progress.
#[derive(Debug)]
pub struct DowngradeExchange {
    output: Vec<u8>,
    reader: Reader,
    answer: ProxyAnswer,
    is_over: bool,
}

/// The request's stream.
const STREAM: StreamId = StreamId(1);

impl DowngradeExchange {
    /// Sends `case` in a connection of its own.
    pub fn new(case: &DowngradeCase, aim: &DowngradeTarget<'_>, attempt: &str) -> Self {
        Self {
            output: case.bytes(aim, attempt),
            reader: Reader::new(Dialect::Http2, 0),
            answer: ProxyAnswer::default(),
            is_over: false,
        }
    }

    /// How the proxy has answered so far.
    pub const fn answer(&self) -> &ProxyAnswer {
        &self.answer
    }

    /// Whether nothing is left to wait for.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The bytes to send now.
    pub fn transmit(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Bytes arrived at `now`.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        let mut detailed = Vec::new();
        self.reader.feed(now, Direction::Down, bytes, &mut |frame| detailed.push(frame));
        for frame in detailed {
            self.note(&frame);
        }
    }

    /// The proxy has closed.
    pub fn end(&mut self) {
        self.answer.closed = true;
        self.is_over = true;
    }

    fn note(&mut self, detailed: &h2lab_wire::trace::detail::DetailedFrame) {
        let event = &detailed.event;
        let is_ack = event.flags & flag::ACK != 0;
        match &detailed.detail {
            Detail::Settings { .. } if event.kind == FrameKind::SETTINGS && !is_ack => {
                self.answer.speaks = true;
                self.output.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
            }
            Detail::Head(head) if event.stream == STREAM => {
                let value =
                    |name| head.fields.iter().find(|field| field.name == name).map(|field| &field.value);
                let status = value(":status").and_then(|value| value.parse::<u16>().ok());
                self.answer.server = self.answer.server.take().or(value("server").cloned());
                if let Some(status) = status.filter(|status| *status >= 200) {
                    self.answer.status = Some(status);
                }
            }
            Detail::Reset { error_code } if event.stream == STREAM => {
                // A NO_ERROR may follow an answer (RFC 9113 §8.1).
                if error_code != "NO_ERROR" {
                    self.answer.reset = Some(error_code.clone());
                }
                self.is_over = true;
            }
            Detail::GoAway { error_code, last_stream_id, .. } => {
                // A graceful one still lets accepted requests be answered.
                let is_graceful = error_code == "NO_ERROR";
                if !is_graceful {
                    self.answer.goaway = Some(error_code.clone());
                }
                self.is_over |= !is_graceful || *last_stream_id < STREAM.0;
            }
            _ => {}
        }
        self.is_over |= event.stream == STREAM && event.ends_stream();
    }
}

#[cfg(test)]
mod tests {
    use super::super::CONTROL;
    use super::*;
    use h2lab_wire::h2::raw::field_block;

    fn answered(frames: &[Vec<u8>]) -> (ProxyAnswer, bool) {
        let aim = DowngradeTarget { scheme: "http", authority: "a", path: "/" };
        let mut exchange = DowngradeExchange::new(&CONTROL, &aim, "1");
        exchange.transmit();
        exchange.receive(Time::ZERO, &frame(kind::SETTINGS, 0, 0, &[]));
        assert!(!exchange.transmit().is_empty(), "SETTINGS are acknowledged");
        for bytes in frames {
            exchange.receive(Time::ZERO, bytes);
        }
        (exchange.answer().clone(), exchange.is_over())
    }

    #[test]
    fn each_way_to_refuse_is_one() {
        let head = |status: &'static [u8], flags| {
            let block = field_block([(&b":status"[..], status)]);
            frame(kind::HEADERS, flag::END_HEADERS | flags, 1, &block)
        };
        let goaway_at = |last: u8, code: u8| frame(kind::GOAWAY, 0, 0, &[0, 0, 0, last, 0, 0, 0, code]);
        let goaway = |code: u8| goaway_at(1, code);
        for (frames, refused, over) in [
            (vec![head(b"200", flag::END_STREAM)], false, true),
            (vec![head(b"103", 0), head(b"200", 0)], false, false),
            (vec![head(b"400", flag::END_STREAM)], true, true),
            (vec![frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 1])], true, true),
            (vec![goaway(1)], true, true),
            // A proxy that ends its connections after one request still answers that.
            (vec![goaway(0)], false, false),
            (vec![goaway(0), head(b"400", flag::END_STREAM)], true, true),
            (vec![goaway_at(0, 0)], false, true),
            (vec![head(b"503", flag::END_STREAM)], false, true),
            (vec![head(b"429", flag::END_STREAM)], false, true),
            (vec![], false, false),
        ] {
            let (answer, is_over) = answered(&frames);
            assert_eq!((answer.is_refusal(), is_over), (refused, over), "{}", answer.words());
        }
    }
}
