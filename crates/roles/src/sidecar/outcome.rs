//! How responses of instances end: by their status, by gRPC's, which comes in trailers, or because they are malformed.
//! This is used to choose the next request's instance, to decide which ones are left out, and for the figures.

use h2lab_base::units::Time;
use h2lab_proxy::fields::Refused;
use h2lab_proxy::grpc;
use h2lab_proxy::guard::outlier;
use h2lab_proxy::refusal::ProxyError;
use h2lab_proxy::retry::Fate;
use h2lab_wire::event::{Fields, ResponseHead};
use h2lab_wire::{Error, ErrorCode, Initiator, StreamId};

use super::Sidecar;
use super::observe::Again;
use super::side::{Peer, Side};

/// What this side refuses of an instance because it broke the rules of HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    /// A response, on its stream.
    #[error("the instance's response is malformed: {reason} ({code})")]
    Response {
        /// The code that the instance got.
        code: ErrorCode,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What it has sent in HTTP/1.1.
    #[error("the instance's response is malformed: {0}")]
    Http1(&'static str),
    /// Its head, which may not be passed on.
    #[error("the instance's response is malformed: {0}")]
    Head(Refused),
    /// The whole connection.
    #[error("the instance violated HTTP: {reason} ({code})")]
    Connection {
        /// The code that the instance got.
        code: ErrorCode,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Malformed {
    /// The rule violation that ended a connection, if one did.
    fn of(error: Option<&Error>) -> Option<Self> {
        match error? {
            Error::BadHttp1(reason) => Some(Self::Http1(reason)),
            &Error::PeerMisbehaved { code, reason } => Some(Self::Connection { code, reason }),
            _ => None,
        }
    }
}

impl Sidecar<'_> {
    /// The head of a response has come, and the whole of it if `is_whole`. Returns whether the request is sent again
    /// instead.
    pub(super) fn answered(
        &mut self,
        peer: &Peer,
        id: Option<u32>,
        (head, is_whole): (&ResponseHead<'_>, bool),
        now: Time,
    ) -> bool {
        let (Peer::Instance(instance), Some(id)) = (peer, id) else { return false };
        let exchange = self.exchanges.get(id);
        if exchange.watched.probes.is_some() {
            return false;
        }
        exchange.seen.head_at = Some(now);
        let took = now.since(exchange.sent_at);
        // gRPC's own status comes with the head if nothing else follows, and in trailers otherwise.
        let own = head.fields.get("grpc-status").filter(|_| exchange.watched.is_grpc).map(grpc::status_of);
        let by_status = outlier::is_failure(head.status);
        let failed = by_status || own.is_some_and(grpc::is_failure);
        exchange.is_unjudged = exchange.watched.is_grpc && !failed && own.is_none() && !is_whole;
        let is_unjudged = exchange.is_unjudged;
        self.observer.responded(*instance, head.status, failed && !by_status);
        if !failed {
            // A response that fails at once does not make the instance quick.
            self.pools.answered(*instance, took, now);
        }
        if !is_unjudged {
            self.judge(*instance, failed, now);
        }
        self.observer.reason = Again::Status;
        self.repeats_status(id, head.status, now)
    }

    /// The trailers of a message have come.
    pub(super) fn note_trailers(&mut self, peer: &Peer, id: Option<u32>, fields: Fields<'_>, now: Time) {
        let (Peer::Instance(instance), Some(id)) = (peer, id) else { return };
        let exchange = self.exchanges.get(id);
        if !exchange.watched.is_grpc {
            return;
        }
        let Some(status) = fields.get("grpc-status").map(grpc::status_of) else { return };
        exchange.seen.grpc = Some(status);
        let failed = grpc::is_failure(status);
        if std::mem::take(&mut exchange.is_unjudged) {
            self.observer.grpc_failed(*instance, failed);
            self.judge(*instance, failed, now);
        }
    }

    /// A response is complete. A gRPC response without a status of its own does not count against the instance.
    pub(super) fn judge_whole(&mut self, peer: &Peer, id: u32, now: Time) {
        if let (Peer::Instance(instance), true) =
            (peer, std::mem::take(&mut self.exchanges.get(id).is_unjudged))
        {
            self.judge(*instance, false, now);
        }
    }

    /// This side has reset a stream of an instance: returns what is reported of that, if its response was malformed.
    pub(super) fn malformed(
        &mut self,
        side: &mut Side,
        (code, initiator): (ErrorCode, Initiator),
    ) -> Option<String> {
        let Peer::Instance(instance) = side.peer else { return None };
        if initiator != Initiator::Engine
            || matches!(code, ErrorCode::ENHANCE_YOUR_CALM | ErrorCode::H3_EXCESSIVE_LOAD)
        {
            return None;
        }
        let reason =
            side.engine.take_refused().map_or("it breaks the rules of HTTP", |refused| refused.reason);
        let why = Malformed::Response { code, reason }.to_string();
        self.observer.malformed(instance, &why, self.now);
        Some(why)
    }

    /// A response, interim or final, may not be passed on: its request is answered 502, and what still comes of it is of no use.
    pub(super) fn refuse_response(
        &mut self,
        side: &mut Side,
        stream: StreamId,
        (why, is_over): (Refused, bool),
        now: Time,
    ) {
        let id = side.streams.get(stream);
        self.drop_stream(side, stream, is_over, now);
        let (Peer::Instance(instance), Some(id)) = (&side.peer, id) else { return };
        let why = Malformed::Head(why).to_string();
        self.observer.malformed(*instance, &why, now);
        self.judge(*instance, true, now);
        self.cut_as(id, false, (Fate::Answered, ProxyError::HttpProtocolError), &why);
    }

    /// A connection to an instance has ended with `error`. Returns `true` if the cause was what the instance had sent,
    /// and what the connection carried has failed because of that.
    pub(super) fn ended_malformed(
        &mut self,
        side: &mut Side,
        error: Option<&Error>,
        fate: Fate,
        now: Time,
    ) -> bool {
        let (Peer::Instance(instance), Some(malformed)) = (&side.peer, Malformed::of(error)) else {
            return false;
        };
        if fate == Fate::Unprocessed || side.streams.len() == 0 {
            return false;
        }
        let (instance, why) = (*instance, malformed.to_string());
        self.observer.malformed(instance, &why, now);
        self.judge(instance, true, now); // one failure, whatever it carried
        for (_, id) in side.streams.take() {
            self.cut_as(id, false, (fate, ProxyError::HttpProtocolError), &why);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_instance_did_wrong_is_malformed() {
        let told = |error: &Error| Malformed::of(Some(error)).map(|malformed| malformed.to_string());
        assert_eq!(
            told(&Error::BadHttp1("two lengths")).as_deref(),
            Some("the instance's response is malformed: two lengths")
        );
        let code = ErrorCode::PROTOCOL_ERROR;
        assert_eq!(
            told(&Error::PeerMisbehaved { code, reason: "a frame" }).as_deref(),
            Some("the instance violated HTTP: a frame (PROTOCOL_ERROR)")
        );
        assert_eq!(
            [
                told(&Error::GoAway(code)),
                told(&Error::Timeout("SETTINGS")),
                Malformed::of(None).map(|_| String::new())
            ],
            [None, None, None]
        );
    }
}
