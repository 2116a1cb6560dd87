//! A file against a server that is a table of answers.

use h2lab_core::random::Counter;
use h2lab_core::wire::event::FieldSpan;
use h2lab_core::wire::{Fields, ResponseHead};

use super::*;

const NOW: Time = Time::from_millis(1);

fn manner(lanes: u32, part: Option<u64>) -> Manner {
    Manner {
        direction: TransferDirection::Get,
        lanes,
        part,
        checksum: Algorithm::Crc32c,
        resume: true,
        chunk: Chunk::default(),
        trailers: false,
    }
}

fn fetch(manner: Manner) -> Fetch {
    Fetch::new("http://a/f".to_owned(), "/f".to_owned(), Place::Discard, manner)
}

/// Lets `fetch` hear the head of an answer.
fn answer(fetch: &mut Fetch, ask: &mut Ask, status: u16, fields: &[(&str, &str)]) {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for (name, value) in fields {
        let start = bytes.len() as u32;
        bytes.extend_from_slice(name.as_bytes());
        let value_start = bytes.len() as u32;
        bytes.extend_from_slice(value.as_bytes());
        spans.push(FieldSpan { start, value_start, end: bytes.len() as u32 });
    }
    fetch.answered(ask, NOW, &ResponseHead { status, fields: Fields::new(&bytes, &spans) });
}

/// What `ask` is answered by a server that has `content`; cut off after `most` bytes.
fn serve(fetch: &mut Fetch, mut ask: Ask, content: &[u8], most: usize) {
    let total = content.len() as u64;
    let (method, fields) = fetch.request(&ask);
    if method == "HEAD" {
        let mut digest = Digest::new(Algorithm::Crc32c);
        digest.update(content);
        let sum = digest.checksum().unwrap().to_field();
        answer(fetch, &mut ask, 200, &[("repr-digest", &sum)]);
        return fetch.ended(&mut ask, NOW, None);
    }
    let range = fields.iter().find(|(name, _)| *name == "range").map(|(_, value)| value.as_str());
    let (from, until) = match range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) {
        Some((from, "")) => (from.parse().unwrap(), total),
        Some((from, last)) => (from.parse().unwrap(), (last.parse::<u64>().unwrap() + 1).min(total)),
        None => (0, total),
    };
    let told = format!("bytes {from}-{}/{total}", until - 1);
    let length = total.to_string();
    match range {
        Some(_) => answer(fetch, &mut ask, 206, &[("etag", "\"a\""), ("content-range", &told)]),
        None => answer(fetch, &mut ask, 200, &[("etag", "\"a\""), ("content-length", &length)]),
    }
    let body = &content[from as usize..until as usize];
    let sent = &body[..body.len().min(most)];
    sent.chunks(777).for_each(|piece| fetch.store(&mut ask, piece));
    fetch.ended(&mut ask, NOW, (sent.len() < body.len()).then_some("it broke"));
}

#[test]
fn whatever_breaks_every_byte_comes_exactly_once() {
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for seed in 0..50 {
        let mut random = Counter::new(seed, "fetch");
        let lanes = 1 + random.below(4) as u32;
        let part = (random.below(2) == 0).then(|| 1_000 + random.below(100_000));
        let mut fetch = fetch(manner(lanes, part));
        let mut under_way: Vec<Ask> = Vec::new();
        while fetch.outcome().is_none() {
            while under_way.len() < lanes as usize
                && let Some(ask) = fetch.next_ask(0)
            {
                under_way.push(ask);
            }
            assert!(!under_way.is_empty(), "seed {seed}: it is stuck");
            let ask = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            // Now and then it breaks, never without a byte.
            let most = if random.below(3) == 0 { 1 + random.below(50_000) as usize } else { usize::MAX };
            serve(&mut fetch, ask, &content, most);
        }
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "seed {seed}: {:?}", fetch.outcome());
        assert_eq!(fetch.figures.arrived, content.len() as u64, "seed {seed}: something came twice");
        let (told, computed) = fetch.checksums();
        assert!(told.is_some() && told == computed, "seed {seed}");
    }
}

#[test]
fn one_stream_asks_for_the_whole_and_several_for_ranges() {
    let mut one = fetch(manner(1, None));
    let ask = one.next_ask(0).unwrap();
    assert!(one.request(&ask).1.iter().all(|(name, _)| *name != "range"));
    assert!(one.next_ask(0).is_none(), "nothing is known before the answer");
    let mut several = fetch(manner(4, None));
    let ask = several.next_ask(0).unwrap();
    let (_, fields) = several.request(&ask);
    assert!(fields.contains(&("range", "bytes=0-16777215".to_owned())), "{fields:?}");
}

#[test]
fn a_server_without_ranges_sends_the_whole_over_one_stream() {
    let mut fetch = fetch(manner(4, Some(10)));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 200, &[("content-length", "100")]);
    assert!(fetch.next_ask(0).is_none());
    fetch.store(&mut ask, &[7; 100]);
    fetch.ended(&mut ask, NOW, None);
    assert_eq!(fetch.next_ask(0).unwrap().errand, Errand::LastWord);
}

#[test]
fn what_an_answer_says_about_another_file_is_refused() {
    for (status, fields, is_changed) in [
        (206, &[("content-range", "bytes 10-19/101"), ("etag", "\"a\"")][..], true),
        (206, &[("content-range", "bytes 10-19/100"), ("etag", "\"b\"")], true),
        (206, &[("content-range", "bytes 10-19/100")], true),
        (200, &[("content-length", "100"), ("etag", "\"b\"")], true),
        (200, &[("content-length", "100"), ("etag", "\"a\"")], false),
        (206, &[("content-range", "bytes 20-29/100"), ("etag", "\"a\"")], false),
        (404, &[], false),
    ] {
        let mut fetch = fetch(manner(2, Some(10)));
        let mut first = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut first, 206, &[("content-range", "bytes 0-9/100"), ("etag", "\"a\"")]);
        let mut second = fetch.next_ask(0).unwrap();
        let (_, asked) = fetch.request(&second);
        assert!(asked.contains(&("if-range", "\"a\"".to_owned())), "{asked:?}");
        answer(&mut fetch, &mut second, status, fields);
        let error = fetch.outcome().expect("it has failed").as_ref().unwrap_err();
        assert_eq!(matches!(error, FetchError::Changed(_)), is_changed, "{status} {fields:?}: {error}");
        fetch.store(&mut second, b"words");
        assert_eq!(fetch.figures.arrived, 0, "an error's body is not the file's");
    }
}

#[test]
fn a_server_that_never_sends_a_byte_is_given_up() {
    let mut fetch = fetch(manner(1, None));
    for _ in 0..=MAX_FRUITLESS {
        assert!(fetch.outcome().is_none());
        let mut ask = fetch.next_ask(0).expect("it is tried again");
        fetch.ended(&mut ask, NOW, Some("it broke"));
    }
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))));
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let mut fetch = fetch(manner(1, None));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 200, &[("content-length", "3")]);
    fetch.store(&mut ask, b"1234");
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Contradiction(_)))));
}

/// A server of uploads that is a table of bytes, and what it counts.
struct Store {
    held: Extents,
    bytes: Vec<u8>,
    /// Bytes that arrived.
    arrived: u64,
    /// The checksum that it was told at the end.
    told: Option<String>,
}

impl Store {
    /// Does what `ask` wants, of whose body only the first `most` bytes arrive.
    fn serve(&mut self, fetch: &mut Fetch, mut ask: Ask, most: u64) {
        let (method, fields) = fetch.request(&ask);
        let field =
            |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        if method == "HEAD" {
            let told = h2lab_core::bulk::upload::to_fields(&self.held);
            let told: Vec<(&str, &str)> = told.iter().map(|(name, value)| (*name, value.as_str())).collect();
            answer(fetch, &mut ask, 204, &told);
            return fetch.ended(&mut ask, NOW, None);
        }
        self.told = field("repr-digest").or(self.told.take());
        let from = field("content-range").and_then(|range| h2lab_core::bulk::content_range::parse(&range));
        let mut at = from.map_or(0, |(range, _)| range.start);
        let Some(sending) = ask.sending.clone() else {
            answer(fetch, &mut ask, 201, &[]);
            return fetch.ended(&mut ask, NOW, None);
        };
        let (mut left, mut sent) = (sending.borrow().left(), 0);
        while left > 0 && sent < most {
            let taken = sending.borrow_mut().show(left, |piece, _| {
                let n = piece.len().min((most - sent) as usize).min(7_777);
                self.bytes[at as usize..at as usize + n].copy_from_slice(&piece[..n]);
                n as u64
            });
            self.held.insert(at..at + taken);
            fetch.sent(&mut ask, NOW, taken);
            (at, left, sent) = (at + taken, left - taken, sent + taken);
        }
        self.arrived += sent;
        if left > 0 {
            return fetch.ended(&mut ask, NOW, Some("it broke"));
        }
        if sending.borrow().has_trailer() {
            self.told = sending.borrow().sum().and_then(Digest::checksum).map(|sum| sum.to_field());
        }
        answer(fetch, &mut ask, 204, &[]);
        fetch.ended(&mut ask, NOW, None);
    }
}

#[test]
fn whatever_breaks_every_byte_goes_exactly_once() {
    const TOTAL: u64 = 300_000;
    for seed in 0..50 {
        let mut random = Counter::new(seed, "put");
        let lanes = 1 + random.below(4) as u32;
        let part = (random.below(2) == 0).then(|| 1_000 + random.below(100_000));
        let manner = Manner { direction: TransferDirection::Put, ..manner(lanes, part) };
        let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), Place::Memory(TOTAL), manner);
        let mut store =
            Store { held: Extents::new(), bytes: vec![0; TOTAL as usize], arrived: 0, told: None };
        let mut under_way: Vec<Ask> = Vec::new();
        while fetch.outcome().is_none() {
            while under_way.len() < lanes as usize
                && let Some(ask) = fetch.next_ask(0)
            {
                under_way.push(ask);
            }
            assert!(!under_way.is_empty(), "seed {seed}: it is stuck");
            let ask = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            let most = if random.below(3) == 0 { 1 + random.below(50_000) } else { u64::MAX };
            store.serve(&mut fetch, ask, most);
        }
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "seed {seed}: {:?}", fetch.outcome());
        assert_eq!(
            (store.arrived, fetch.figures.arrived),
            (TOTAL, TOTAL),
            "seed {seed}: something went twice"
        );
        let filler: Vec<u8> = (b'a'..=b'z').cycle().take(TOTAL as usize).collect();
        assert!(store.bytes == filler, "seed {seed}");
        let computed = fetch.checksums().1.map(h2lab_core::bulk::Checksum::to_field);
        assert!(computed.is_some() && store.told == computed, "seed {seed}");
    }
}

#[test]
fn a_server_that_says_nothing_of_uploads_gets_one_plain_put() {
    let manner = Manner { direction: TransferDirection::Put, ..manner(4, Some(10)) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), Place::Memory(100), manner);
    let mut probe = fetch.next_ask(0).unwrap();
    assert_eq!(fetch.request(&probe).0, "HEAD");
    answer(&mut fetch, &mut probe, 404, &[]);
    fetch.ended(&mut probe, NOW, None);
    let mut ask = fetch.next_ask(0).unwrap();
    assert!(fetch.next_ask(0).is_none(), "all goes over one stream");
    let (method, fields) = fetch.request(&ask);
    assert_eq!((method, fields.len()), ("PUT", 2), "nothing that others could misunderstand: {fields:?}");
    fetch.sent(&mut ask, NOW, 50);
    fetch.ended(&mut ask, NOW, Some("it broke"));
    let Some(Err(error)) = fetch.outcome() else { panic!("it cannot be gone on with") };
    assert!(error.to_string().contains("cannot be gone on with"), "{error}");
}
