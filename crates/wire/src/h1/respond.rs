//! What a server sends: interim responses, responses, and its answer to a request that it refuses.

use super::body::Encoder;
use super::connection::{
    Connection, Exchange, MAX_REQUESTS, SWITCHING, Sending, Upgrade, push_fields, push_length,
};
use super::head::{Refusal, Version};
use crate::connection::{Refused, Response};
use crate::{Error, Field, Role, StreamId};
use h2lab_base::units::Time;

impl Connection {
    /// Sends a 1xx response; not to an HTTP/1.0 client, which would take it for the final one (RFC 9110 §15.2).
    pub fn send_interim(&mut self, _now: Time, stream: StreamId, status: u16, fields: &[Field<'_>]) {
        let Some(exchange) = self.unanswered(stream) else { return };
        if exchange.version == Version::Http10 {
            return;
        }
        exchange.awaits_continue &= status != 100;
        let mark = self.output.len();
        self.push_status_line(status);
        let fields_at = self.output.len();
        if let Err(misuse) = push_fields(&mut self.output, fields) {
            return self.misuse(mark, misuse);
        }
        self.end_head(mark, fields_at);
    }

    /// See [`crate::Connection::send_response`].
    pub fn send_response(&mut self, _now: Time, stream: StreamId, response: &Response<'_>) {
        // A client that has sent all and closed its side still expects every answer.
        let last = self.draining
            || self.announces_close
            || (self.eof.has_come() && self.input.unread().is_empty())
            || self.counters.requests >= MAX_REQUESTS
            || self.config.max_requests.is_some_and(|max| self.counters.requests >= u64::from(max));
        if self.unanswered(stream).is_some() {
            self.upgrade = Upgrade::No; // answered in HTTP/1.1
        }
        let Some(exchange) = self.unanswered(stream) else { return };
        // The client may or may not send the body that it holds back: RFC 9110 §10.1.1.
        exchange.close |= last || exchange.awaits_continue;
        if response.status == SWITCHING {
            return self.switch(response.fields);
        }
        if exchange.is_connect {
            if (200..300).contains(&response.status) {
                return self.accept_connect(response);
            }
            // A client that did not wait for the answer has sent bytes that must not be taken for requests.
            exchange.close = true;
        }
        let encoder = response_encoder(exchange, response);
        exchange.close |= encoder == Encoder::UntilClose;
        let (close, announces_length) = (exchange.close, announces_length(exchange, response));
        let keep_alive = exchange.version == Version::Http10 && !close;

        let mark = self.output.len();
        if response.end_stream && matches!(encoder, Encoder::Length(1..)) {
            return self.misuse(mark, "a body shorter than its content-length");
        }
        self.push_status_line(response.status);
        let fields_at = self.output.len();
        if let Err(misuse) = push_fields(&mut self.output, response.fields) {
            return self.misuse(mark, misuse);
        }
        match encoder {
            Encoder::Chunked => self.output.push(b"transfer-encoding: chunked\r\n"),
            _ if announces_length => push_length(&mut self.output, response.body_length.unwrap_or(0)),
            _ => {}
        }
        if close {
            self.output.push(b"connection: close\r\n");
        } else if keep_alive {
            self.output.push(b"connection: keep-alive\r\n");
        }
        self.end_head(mark, fields_at);
        if let Some(exchange) = &mut self.exchange {
            exchange.sending = Sending::Body(encoder);
        }
        if response.end_stream {
            self.finish_body(&[]);
        }
    }

    /// The exchange on `stream` if it waits for its response's head (server role).
    fn unanswered(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.exchange
            .as_mut()
            .filter(|exchange| exchange.stream == stream && exchange.sending == Sending::Head)
    }

    /// The peer's message is refused. A server answers it, unless its response is already under way.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.refuse_with(refusal, Error::BadHttp1(refusal.reason));
    }

    /// As [`Self::refuse`], with another error for the role.
    pub(super) fn refuse_with(&mut self, refusal: Refusal, error: Error) {
        let unanswered = self.exchange.as_ref().is_none_or(|exchange| exchange.sending == Sending::Head);
        if self.config.role == Role::Server && unanswered {
            let mark = self.output.len();
            self.push_status_line(refusal.status);
            let fields_at = self.output.len();
            self.output.push(b"content-type: text/plain\r\nconnection: close\r\n");
            for (name, value) in self.own_answers.iter().flat_map(|own| own.fields(refusal.reason)) {
                for part in [name, ": ", &value, "\r\n"] {
                    self.output.push(part.as_bytes());
                }
            }
            push_length(&mut self.output, refusal.reason.len() as u64 + 1);
            self.end_head(mark, fields_at);
            self.output.push(refusal.reason.as_bytes());
            self.output.push(b"\n");
            let Refusal { status, reason } = refusal;
            let refused = Refused { status, reason, body: reason.len() as u64 + 1, times: 1 };
            self.refused = Some(Box::new(refused));
        }
        self.end(Some(error));
    }
}

/// How a response's body is framed (RFC 9112 §6.3, from the sender's side).
fn response_encoder(exchange: &Exchange, response: &Response<'_>) -> Encoder {
    match response.body_length {
        _ if exchange.is_head || matches!(response.status, 204 | 304) => Encoder::Discard,
        Some(length) => Encoder::Length(length),
        None if response.end_stream => Encoder::Length(0),
        None if exchange.version == Version::Http10 => Encoder::UntilClose,
        None => Encoder::Chunked,
    }
}

/// Whether a response carries a content-length: always when it is known, and when there is no body although there
/// might be one; never in 204 (RFC 9110 §8.6).
fn announces_length(exchange: &Exchange, response: &Response<'_>) -> bool {
    let bodiless = exchange.is_head || response.status == 304;
    response.status != 204 && (response.body_length.is_some() || (response.end_stream && !bodiless))
}
