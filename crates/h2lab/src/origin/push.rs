//! `/push`: resources that are sent before they are asked for (RFC 9113 §8.4).

use h2lab_core::units::Time;
use h2lab_core::wire::connection::Request;
use h2lab_core::wire::{Connection, Fields, RequestHead, StreamId};

use super::exchange::Exchange;
use super::exchanges::Exchanges;
use super::handler;

/// What is pushed because of a request.
#[derive(Debug)]
pub struct Promise {
    /// The stream of that request.
    pub because_of: StreamId,
    /// Its authority, which the promised requests share.
    pub authority: String,
    /// How many resources.
    pub pushes: u32,
}

impl Promise {
    /// Promises what the client will take, and begins to answer it as if it had asked.
    pub fn make(&self, now: Time, engine: &mut Connection, exchanges: &mut Exchanges) {
        for n in 1..=self.pushes {
            let path = handler::pushed_path(n);
            let request = Request {
                method: "GET",
                authority: &self.authority,
                path: &path,
                fields: &[],
                body_length: None,
                end_stream: true,
            };
            let Some(stream) = engine.send_push(now, self.because_of, &request) else { return };
            let head = RequestHead {
                method: b"GET",
                scheme: b"",
                authority: self.authority.as_bytes(),
                path: path.as_bytes(),
                protocol: b"",
                fields: Fields::default(),
            };
            exchanges.insert(Exchange::new(stream, handler::route(now, &head), false, true));
        }
    }
}
