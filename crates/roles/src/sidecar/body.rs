//! A body on its way from one hop to the next.

use h2lab_base::units::Time;
use h2lab_proxy::head::Head;
use h2lab_wire::{Connection, Field, StreamId};

/// Bytes of a request's body that are kept until its response begins, so that it can be sent again. A longer one is sent once.
pub const KEPT: usize = 64 * 1024;
/// A buffer no larger than this is not worth another allocation.
const LEAST_SHRUNK: usize = 4 * 1024;
/// Bytes that were passed on are removed when there are this many.
const COMPACT_AT: usize = 32 * 1024;

/// The body of a message, as far as it has come and the next hop has not taken it.
#[derive(Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what has come, what was taken and what is kept are independent"
)]
pub struct Body {
    bytes: Vec<u8>,
    /// The next hop has the bytes before this one.
    taken: usize,
    /// The sender has got credit back for the bytes before this one; more than `taken` after a rewind.
    credited: usize,
    /// What was taken is kept, so that it can be sent again.
    keeps: bool,
    /// Some of what was taken was removed.
    is_cut: bool,
    /// All of it has come.
    ended: bool,
    trailers: Option<Box<Head>>,
    /// The head said that nothing follows.
    ended_with_head: bool,
    /// The next hop has all of it.
    done: bool,
}

impl Body {
    /// Begins anew; what is taken of it is kept up to [`KEPT`] bytes, if asked for.
    pub fn begin(&mut self, keeps: bool) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, keeps, ..Self::default() };
    }

    /// More of it has come.
    pub fn push(&mut self, data: &[u8], ends: bool) {
        self.bytes.extend_from_slice(data);
        self.ended |= ends;
    }

    /// The head said that nothing follows.
    pub const fn end_with_head(&mut self) {
        (self.ended, self.ended_with_head) = (true, true);
    }

    /// Whether the head said that nothing follows. To gRPC, a head with an empty DATA frame behind it is a different
    /// message, and gRPC needs the head alone.
    pub const fn has_ended_with_head(&self) -> bool {
        self.ended_with_head
    }

    /// It ends with these trailers.
    pub fn end_with(&mut self, trailers: Head) {
        self.trailers = Some(Box::new(trailers));
        self.ended = true;
    }

    /// Whether all of it has come.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the next hop has all of it.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the message has no body, and no trailers.
    pub const fn is_none(&self) -> bool {
        self.ended && self.bytes.is_empty() && self.trailers.is_none()
    }

    /// Bytes that have come and were not taken.
    pub const fn waiting(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Bytes of memory that it takes.
    pub const fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it can be sent again from its first byte.
    pub const fn can_rewind(&self) -> bool {
        !self.is_cut
    }

    /// It is sent again. Only where [`Body::can_rewind`].
    pub const fn rewind(&mut self) {
        (self.taken, self.done) = (0, false);
    }

    /// It will not be sent again.
    pub fn keep_no_longer(&mut self) {
        self.keeps = false;
        self.compact();
    }

    /// The head with which it was announced said that nothing follows.
    pub const fn was_sent_with_head(&mut self) {
        self.done = true;
    }

    /// Gives the next hop what it takes. Returns for how many bytes the sender gets credit.
    pub fn pump(&mut self, now: Time, sink: &mut Connection, stream: StreamId) -> usize {
        if self.done {
            return 0;
        }
        let rest = &self.bytes[self.taken..];
        let ends = self.ended && self.trailers.is_none();
        if !rest.is_empty() || ends {
            let n = sink.send_data(now, stream, rest, ends);
            self.done = ends && n == rest.len();
            self.taken += n;
        }
        if self.ended
            && !self.done
            && self.taken == self.bytes.len()
            && let Some(trailers) = &self.trailers
        {
            let fields: Vec<Field<'_>> = trailers.fields().collect();
            sink.send_trailers(now, stream, &fields);
            self.done = true;
        }
        let credit = self.taken.saturating_sub(self.credited);
        self.credited += credit;
        self.keeps &= self.bytes.len() <= KEPT;
        self.compact();
        credit
    }

    /// Credit that its sender never got back: nobody will take the rest. All of it is returned once.
    pub const fn owed(&mut self) -> usize {
        let owed = self.bytes.len() - self.credited;
        self.credited = self.bytes.len();
        owed
    }

    /// Frees memory that the waiting bytes do not need.
    pub fn shrink(&mut self) {
        let needed = self.bytes.len() - if self.keeps { 0 } else { self.taken };
        if self.bytes.capacity() <= LEAST_SHRUNK.max(2 * needed) {
            return;
        }
        if !self.keeps {
            self.drop_taken();
        }
        self.bytes.shrink_to_fit();
    }

    /// Removes what was taken.
    fn compact(&mut self) {
        if self.keeps || (self.taken < COMPACT_AT && self.taken < self.bytes.len()) {
            return;
        }
        self.drop_taken();
    }

    fn drop_taken(&mut self) {
        self.is_cut |= self.taken > 0;
        self.bytes.drain(..self.taken);
        self.credited -= self.taken;
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::connection::Request;
    use h2lab_wire::{Config, Event, Role};

    use super::*;

    const NOW: Time = Time::from_millis(1);

    /// A client of HTTP/2 whose request waits for its body, and its server, with a stream window of so many bytes.
    fn pair(window: u32) -> (Connection, StreamId, Connection) {
        let mut config = Config::new(Role::Server);
        config.flow.stream_window = window;
        config.flow.manual_release = true;
        let (mut client, mut server) =
            (Connection::h2(Config::new(Role::Client), NOW), Connection::h2(config, NOW));
        client.handle_input(NOW, &server.take_transmit(NOW));
        while client.poll_event(NOW).is_some() {}
        let request = Request {
            method: "POST",
            authority: "a",
            path: "/",
            fields: &[],
            body_length: None,
            end_stream: false,
        };
        let stream = client.send_request(NOW, &request).expect("it has room");
        (client, stream, server)
    }

    fn received(client: &mut Connection, server: &mut Connection) -> (Vec<u8>, Vec<String>, bool) {
        server.handle_input(NOW, &client.take_transmit(NOW));
        let (mut body, mut trailers, mut is_over) = (Vec::new(), Vec::new(), false);
        while let Some(event) = server.poll_event(NOW) {
            match event {
                Event::Data { data, end_stream, .. } => {
                    body.extend_from_slice(data);
                    is_over |= end_stream;
                }
                Event::Trailers { fields, .. } => {
                    trailers
                        .extend(fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()));
                    is_over = true;
                }
                _ => {}
            }
        }
        (body, trailers, is_over)
    }

    #[test]
    fn what_a_window_does_not_take_waits_and_its_sender_gets_no_credit_for_it() {
        let (mut client, stream, mut server) = pair(1_000);
        let mut body = Body::default();
        body.begin(false);
        body.push(&[b'x'; 1_500], true);
        assert_eq!(body.pump(NOW, &mut client, stream), 1_000);
        assert_eq!((body.waiting(), body.is_done()), (500, false));
        assert_eq!(received(&mut client, &mut server).0.len(), 1_000);
        server.release(NOW, stream, 1_000);
        client.handle_input(NOW, &server.take_transmit(NOW));
        while client.poll_event(NOW).is_some() {}
        assert_eq!(body.pump(NOW, &mut client, stream), 500);
        assert_eq!((received(&mut client, &mut server).2, body.is_done(), body.owed()), (true, true, 0));
    }

    #[test]
    fn a_short_body_is_sent_again_and_credited_once() {
        let mut body = Body::default();
        body.begin(true);
        let (mut client, stream, _server) = pair(65_535);
        body.push(b"abc", false);
        assert_eq!(body.pump(NOW, &mut client, stream), 3);
        assert!(body.can_rewind());
        body.rewind();
        body.push(b"de", false);
        body.end_with(Head::default());
        let (mut client, stream, mut server) = pair(65_535);
        assert_eq!(body.pump(NOW, &mut client, stream), 2);
        let (bytes, _, is_over) = received(&mut client, &mut server);
        assert_eq!((bytes, is_over), (b"abcde".to_vec(), true));
    }

    #[test]
    fn a_body_that_a_goaway_left_unprocessed_can_be_sent_again_up_to_the_bound_and_no_further() {
        for (length, is_kept) in [(KEPT, true), (KEPT + 1, false)] {
            let (mut client, stream, _server) = pair(65_535);
            let mut body = Body::default();
            body.begin(true);
            body.push(&vec![b'x'; length], true);
            assert!(body.pump(NOW, &mut client, stream) > 0);
            // The only GOAWAY of a server that has not read the request: its last stream is 0 (RFC 9113 §6.8).
            client.handle_input(NOW, &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let mut refused = None;
            while let Some(event) = client.poll_event(NOW) {
                if let Event::Reset { stream, code, .. } = event {
                    refused = Some((stream, code.is_refusal()));
                }
            }
            assert_eq!((refused, body.can_rewind()), (Some((stream, true)), is_kept), "{length}");
        }
    }

    #[test]
    fn a_long_body_is_not_kept_and_what_nobody_takes_is_owed() {
        let (mut client, stream, _server) = pair(65_535);
        let mut body = Body::default();
        body.begin(true);
        body.push(&vec![0; KEPT + 1], false);
        let taken = body.pump(NOW, &mut client, stream);
        assert!(taken > 0 && !body.can_rewind());
        assert_eq!(body.owed(), KEPT + 1 - taken);
        assert_eq!(body.owed(), 0);
    }

    #[test]
    fn a_body_that_shrinks_keeps_what_waits_and_what_is_owed() {
        let (mut client, stream, mut server) = pair(1_000);
        let mut body = Body::default();
        body.begin(false);
        body.push(&vec![b'x'; 30_000], false);
        body.push(&[b'y'; 10], true);
        assert_eq!(body.pump(NOW, &mut client, stream), 1_000);
        received(&mut client, &mut server);
        body.shrink();
        assert_eq!((body.waiting(), body.held(), body.owed()), (29_010, 29_010, 29_010));
    }

    #[test]
    fn trailers_follow_the_last_byte() {
        let (mut client, stream, mut server) = pair(65_535);
        let mut body = Body::default();
        body.begin(false);
        body.push(b"x", false);
        let mut trailers = Head::default();
        trailers.add(b"grpc-status", &[b"0"]);
        body.end_with(trailers);
        body.pump(NOW, &mut client, stream);
        assert_eq!(received(&mut client, &mut server), (b"x".to_vec(), vec!["grpc-status".to_owned()], true));
    }
}
