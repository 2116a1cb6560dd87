//! When a page is requested, its links are sent to the client at once: as 103, and what they preload as pushes.
//!
//! By default only to HTTP/2 clients. Over HTTP/1.1 a client that does not know 103 takes it for the response, and
//! browsers ignore it there for that reason.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use h2lab_base::units::Time;
use h2lab_proxy::fields::Version;
use h2lab_proxy::head::{Head, Part};
use h2lab_proxy::hints::pushable;
use h2lab_wire::Field;
use h2lab_wire::connection::Request;
use h2lab_wire::event::RequestHead;

use super::Sidecar;
use super::exchange::StreamAt;
use super::side::{Peer, Side};

/// "Early Hints" (RFC 8297).
const EARLY_HINTS: u16 = 103;
/// Paths that are pushed on a connection at most, each once: its client has them then.
const MOST_PUSHED: usize = 256;
/// Fields of the page's request that those of its pushes have, too: what responses depend on.
const REPEATED: [&[u8]; 3] = [b"accept-encoding", b"accept-language", b"user-agent"];
/// Likewise, for the instance alone.
const ADDED: [&[u8]; 7] = [
    b"via",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-real-ip",
];

impl Sidecar<'_> {
    /// A request has come, on `side`, which is not in its slot meanwhile: sends its client what the response will link
    /// to.
    pub(super) fn hint(&mut self, id: u32, slot: u32, side: &mut Side, now: Time) {
        let hints = self.config.file.hints;
        let exchange = self.exchanges.get(id);
        if self.pages.are_off() || exchange.refusal.is_some() || exchange.asked.is_tunnel() {
            return;
        }
        if side.version == Version::H1 && !hints.http1 {
            return;
        }
        let Some(links) = self.pages.links(&exchange.head, now) else { return };
        let links = links.to_vec();
        let mut interim = Head::default();
        interim.status = EARLY_HINTS;
        interim.add(b"link", &[&links]);
        exchange.interims.push(interim);
        if hints.push
            && let Some(page) = exchange.down
        {
            let head = exchange.head.clone();
            for path in pushable(&links) {
                self.push(&head, path, page, (slot, side), now);
            }
        }
    }

    /// Promises what is at `path` to a client that allows it, and asks an instance for it.
    fn push(&mut self, page: &Head, path: &str, on: StreamAt, to: (u32, &mut Side), now: Time) {
        let (slot, side) = to;
        let Peer::Client { listener, address } = &side.peer else { return };
        let (listener, address) = (*listener, address.clone());
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let mark = hasher.finish();
        if path.as_bytes() == page.get(Part::Path)
            || side.pushed.len() >= MOST_PUSHED
            || side.pushed.contains(&mark)
        {
            return;
        }
        let mut head = Head::default();
        head.set(Part::Method, b"GET");
        head.set(Part::Authority, page.get(Part::Authority));
        head.set(Part::Path, path.as_bytes());
        let asked = RequestHead {
            method: b"GET",
            scheme: b"",
            authority: page.get(Part::Authority),
            path: path.as_bytes(),
            protocol: b"",
            is_http10: false,
            fields: h2lab_wire::Fields::default(),
        };
        // A promise that is not kept is worse than none.
        let Ok(service) = self.listeners.service(listener, &asked) else { return };
        let of = |names: &'static [&[u8]]| page.fields().filter(move |field| names.contains(&field.name));
        let fields: Vec<Field<'_>> = of(&REPEATED).collect();
        let authority = str::from_utf8(page.get(Part::Authority)).unwrap_or_default();
        let request =
            Request { method: "GET", authority, path, fields: &fields, body_length: None, end_stream: true };
        let Some(stream) = side.engine.send_push(now, on.stream, &request) else { return };
        side.pushed.push(mark);
        of(&REPEATED).chain(of(&ADDED)).for_each(|field| head.add(field.name, &[field.value]));
        let id = self.exchanges.begin();
        side.streams.insert(stream, id);
        let exchange = self.exchanges.get(id);
        (exchange.head, exchange.service) = (head, service);
        exchange.down = Some(StreamAt { slot, serial: side.serial, stream });
        exchange.began_at = now;
        exchange.request.push(&[], true);
        self.observer.began(exchange, &side.peer, side.version, Some(service));
        self.admit_request(id, listener, &address, now);
        self.totals.pushed += 1;
    }

    /// The head of a response has come.
    pub(super) fn learn(&mut self, id: Option<u32>, now: Time) {
        let Some(id) = id else { return };
        let exchange = self.exchanges.get(id);
        if let Some(answer) = &exchange.answer {
            self.pages.learn(&exchange.head, answer, now);
        }
    }
}
