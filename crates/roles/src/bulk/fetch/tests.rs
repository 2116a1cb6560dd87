//! A file against a server that is a table of answers.

use std::path::Path;

use h2lab_base::random::Counter;
use h2lab_transfer::Validator;
use h2lab_wire::{Fields, ResponseHead};

use super::*;

const NOW: Time = Time::from_millis(1);

fn options(workers: u32, part: Option<u64>) -> TransferOptions {
    TransferOptions {
        direction: TransferDirection::Get,
        workers,
        part,
        checksum: Algorithm::Crc32c,
        resume: true,
        chunk: Chunk::default(),
        trailers: false,
    }
}

fn fetch(options: TransferOptions) -> Fetch {
    Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Discard, options)
}

/// Gives `fetch` the head of an answer.
fn answer(fetch: &mut Fetch, ask: &mut FileRequest, status: u16, fields: &[(&str, &str)]) {
    Fields::of(fields, |fields| fetch.answered(ask, &ResponseHead { status, is_http10: false, fields }));
}

/// Answers `ask` like a server that has `content`; cut off after `most` bytes.
fn serve(fetch: &mut Fetch, mut ask: FileRequest, content: &[u8], most: usize) {
    let total = content.len() as u64;
    let (method, fields) = fetch.request(&ask);
    if method == "HEAD" {
        let mut digest = Digest::new(Algorithm::Crc32c);
        digest.update(content);
        let sum = digest.checksum().unwrap().to_field();
        answer(fetch, &mut ask, 200, &[("etag", "\"a\""), ("repr-digest", &sum)]);
        return fetch.ended(&mut ask, NOW, None);
    }
    let range = fields.iter().find(|(name, _)| *name == "range").map(|(_, value)| value.as_str());
    let (from, until) = match range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) {
        Some((from, "")) => (from.parse().unwrap(), total),
        Some((from, last)) => (from.parse().unwrap(), (last.parse::<u64>().unwrap() + 1).min(total)),
        None => (0, total),
    };
    let declared = format!("bytes {from}-{}/{total}", until - 1);
    let length = total.to_string();
    match range {
        Some(_) => answer(fetch, &mut ask, 206, &[("etag", "\"a\""), ("content-range", &declared)]),
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
        let workers = 1 + random.below(4) as u32;
        let part = (random.below(2) == 0).then(|| 1_000 + random.below(100_000));
        let mut fetch = fetch(options(workers, part));
        let mut under_way: Vec<FileRequest> = Vec::new();
        while fetch.outcome().is_none() {
            while under_way.len() < workers as usize
                && let Some(ask) = fetch.next_ask(0)
            {
                under_way.push(ask);
            }
            assert!(!under_way.is_empty(), "seed {seed}: it is stuck");
            let ask = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            // It breaks from time to time, never without a byte.
            let most = if random.below(3) == 0 { 1 + random.below(50_000) as usize } else { usize::MAX };
            serve(&mut fetch, ask, &content, most);
        }
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "seed {seed}: {:?}", fetch.outcome());
        assert_eq!(fetch.figures.arrived, content.len() as u64, "seed {seed}: something came twice");
        let (declared, computed) = (fetch.expected.as_ref(), fetch.found.as_ref());
        assert!(declared.is_some() && declared == computed, "seed {seed}");
    }
}

#[test]
fn one_stream_asks_for_the_whole_and_several_for_ranges() {
    let mut one = fetch(options(1, None));
    let ask = one.next_ask(0).unwrap();
    assert!(one.request(&ask).1.iter().all(|(name, _)| *name != "range"));
    assert!(one.next_ask(0).is_none(), "nothing is known before the answer");
    let mut several = fetch(options(4, None));
    let ask = several.next_ask(0).unwrap();
    let (_, fields) = several.request(&ask);
    assert!(fields.contains(&("range", "bytes=0-16777215".to_owned())), "{fields:?}");
}

#[test]
fn a_file_of_another_length_than_was_asked_for_is_a_failure() {
    for (declared, sent, fits) in [(Some("3"), 3, false), (None, 3, false), (Some("100"), 100, true)] {
        let mut fetch = fetch(TransferOptions { checksum: Algorithm::None, ..options(1, None) });
        fetch = fetch.with_bytes(Some(100));
        let mut ask = fetch.next_ask(0).unwrap();
        let length: Vec<(&str, &str)> =
            declared.map(|length| ("content-length", length)).into_iter().collect();
        answer(&mut fetch, &mut ask, 200, &length);
        fetch.store(&mut ask, &vec![7; sent]);
        fetch.ended(&mut ask, NOW, None);
        match fetch.outcome() {
            Some(Ok(())) => assert!(fits),
            Some(Err(FetchError::OtherLength { wanted: 100, sent: 3 })) => assert!(!fits),
            other => panic!("{declared:?}: {other:?}"),
        }
    }
}

#[test]
fn a_server_without_ranges_sends_the_whole_over_one_stream() {
    let mut fetch = fetch(options(4, Some(10)));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 200, &[("content-length", "100")]);
    assert!(fetch.next_ask(0).is_none());
    fetch.store(&mut ask, &[7; 100]);
    fetch.ended(&mut ask, NOW, None);
    assert_eq!(fetch.next_ask(0).unwrap().purpose, RequestPurpose::LastWord);
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
        let mut fetch = fetch(options(2, Some(10)));
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
    let mut fetch = fetch(options(1, None));
    for _ in 0..=MAX_FRUITLESS {
        assert!(fetch.outcome().is_none());
        let mut ask = fetch.next_ask(0).expect("it is tried again");
        fetch.ended(&mut ask, NOW, Some("it broke"));
    }
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))));
}

#[test]
fn more_bytes_than_announced_are_refused() {
    let mut fetch = fetch(options(1, None));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 200, &[("content-length", "3")]);
    fetch.store(&mut ask, b"1234");
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Contradiction(_)))));
}

/// What an earlier run of `fetch` has left at `path`: all of `content`, and the server's checksum of it.
fn leave(path: &Path, content: &[u8], url: &str) {
    let (file, _) = FileSink::open(path, true).unwrap();
    let mut sink = Sink::File(Box::new(file));
    sink.write_at(0, content).unwrap();
    let mut journal = Journal::new(url, content.len() as u64, Validator::Etag("\"a\"".to_owned()));
    journal.extents.insert(0..content.len() as u64);
    let mut digest = Digest::new(Algorithm::Crc32c);
    digest.update(content);
    journal.checksum = digest.checksum();
    sink.keep(&journal).unwrap();
}

#[test]
fn a_checksum_of_another_kind_than_the_journals_spoils_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    leave(&path, b"0123456789", "http://a/f");
    let options = TransferOptions { checksum: Algorithm::Sha256, ..options(1, None) };
    let mut fetch =
        Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::File(path.clone()), options);
    let ask = fetch.next_ask(0).unwrap();
    serve(&mut fetch, ask, b"0123456789", usize::MAX);
    let mut head = fetch.next_ask(0).expect("it asks for the checksum of this kind");
    fetch.ended(&mut head, NOW, None);
    assert!(matches!(fetch.outcome(), Some(Ok(()))), "{:?}", fetch.outcome());
    assert_eq!(fetch.expected.as_ref(), None);
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
}

#[test]
fn what_belongs_to_another_url_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    for (url, is_same) in [("http://b:81/f?key=2", true), ("http://a/other/f", false)] {
        leave(&path, b"0123456789", "http://a/f?key=1");
        let mut fetch =
            Fetch::new(url.to_owned(), "/f".to_owned(), FileLocation::File(path.clone()), options(1, None));
        assert_eq!(fetch.next_ask(0).is_some(), is_same, "{url}");
        match fetch.outcome() {
            None => assert!(is_same, "{url}"),
            Some(Err(error)) => assert!(error.to_string().contains("--no-resume"), "{error}"),
            Some(Ok(())) => panic!("it was not asked for"),
        }
        assert_eq!(std::fs::read(path.with_extension("part")).unwrap(), b"0123456789", "{url}");
    }
}

/// A file of 10 bytes that is here, and the answer to its HEAD, which has `fields`.
fn verified(status: u16, fields: &[(&str, &str)]) -> Fetch {
    let mut fetch = fetch(options(1, None));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 200, &[("content-length", "10"), ("etag", "\"a\"")]);
    fetch.store(&mut ask, b"0123456789");
    fetch.ended(&mut ask, NOW, None);
    let mut head = fetch.next_ask(0).expect("it asks for the checksum");
    answer(&mut fetch, &mut head, status, fields);
    fetch.ended(&mut head, NOW, None);
    fetch
}

#[test]
fn a_file_that_the_server_has_changed_meanwhile_is_none() {
    const WRONG: (&str, &str) = ("repr-digest", "crc32c=:AAAAAA==:");
    let same = verified(200, &[("content-length", "10"), ("etag", "\"a\""), WRONG]);
    assert!(matches!(same.outcome(), Some(Err(FetchError::Mismatch { .. }))), "{:?}", same.outcome());
    for fields in [
        &[("content-length", "10"), ("etag", "\"b\"")][..],
        &[("content-length", "10"), ("etag", "\"b\""), WRONG],
        &[("content-length", "11"), ("etag", "\"a\""), WRONG],
    ] {
        let changed = verified(200, fields);
        assert!(matches!(changed.outcome(), Some(Err(FetchError::Changed(_)))), "{:?}", changed.outcome());
    }
}

#[test]
fn a_checksum_of_which_the_server_does_not_say_what_it_is_of_is_a_doubt() {
    const WRONG: (&str, &str) = ("repr-digest", "crc32c=:AAAAAA==:");
    for (status, fields, has_doubt) in [
        (200, &[("content-length", "10"), WRONG][..], true),
        (200, &[("etag", "\"a\""), ("content-encoding", "gzip"), WRONG], true),
        (404, &[WRONG], false),
    ] {
        let fetch = verified(status, fields);
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "{fields:?}: {:?}", fetch.outcome());
        assert_eq!((fetch.expected.as_ref(), fetch.doubt().is_some()), (None, has_doubt), "{fields:?}");
    }
}

#[test]
fn a_checksum_is_taken_only_from_answers_that_carry_the_file() {
    const WRONG: (&str, &str) = ("repr-digest", "crc32c=:AAAAAA==:");
    for (status, fields) in [
        (503, &[WRONG][..]),
        (206, &[("content-range", "bytes 10-19/100"), ("etag", "\"b\""), WRONG]),
        (206, &[("content-range", "bytes 0-9/100"), ("etag", "\"a\""), WRONG]),
    ] {
        let mut fetch = fetch(options(2, Some(10)));
        let mut first = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut first, 206, &[("content-range", "bytes 0-9/100"), ("etag", "\"a\"")]);
        let mut second = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut second, status, fields);
        assert_eq!(fetch.expected.as_ref(), None, "{status} {fields:?}");
    }
}

#[test]
fn parts_of_different_versions_are_not_joined_even_if_their_validators_are_weak() {
    const RANGE: (&str, &str) = ("content-range", "bytes 10-19/100");
    let modified = |text| ("last-modified", text);
    for (first, second, is_same) in [
        (&[("etag", "W/\"a\"")][..], &[("etag", "W/\"a\""), RANGE][..], true),
        (&[("etag", "W/\"a\"")], &[("etag", "\"a\""), RANGE], true),
        (&[("etag", "W/\"a\"")], &[("etag", "W/\"b\""), RANGE], false),
        (&[("etag", "W/\"a\"")], &[("etag", "\"b\""), RANGE], false),
        (&[("etag", "W/\"a\"")], &[RANGE], false),
        (&[modified("noon")], &[modified("noon"), RANGE], true),
        (&[modified("noon")], &[modified("one"), RANGE], false),
        (&[("etag", "W/\"a\""), modified("noon")], &[("etag", "W/\"a\""), modified("one"), RANGE], false),
    ] {
        let mut fetch = fetch(options(2, Some(10)));
        let mut ask = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut ask, 206, &[first, &[("content-range", "bytes 0-9/100")]].concat());
        let mut ask = fetch.next_ask(0).expect("there is something to compare answers by");
        answer(&mut fetch, &mut ask, 206, second);
        let is_refused = matches!(fetch.outcome(), Some(Err(FetchError::Changed(_))));
        assert_eq!(is_refused, !is_same, "{first:?} {second:?}: {:?}", fetch.outcome());
    }
}

#[test]
fn without_a_word_of_the_version_it_comes_in_one_answer() {
    let mut fetch = fetch(options(4, Some(10)));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 206, &[("content-range", "bytes 0-9/100")]);
    assert!(ask.outcome_class == OutcomeClass::Idle && fetch.next_ask(0).is_none());
    fetch.store(&mut ask, &[1; 10]);
    fetch.ended(&mut ask, NOW, Some("it was cancelled"));
    let mut ask = fetch.next_ask(0).unwrap();
    assert!(fetch.request(&ask).1.iter().all(|(name, _)| *name != "range"));
    answer(&mut fetch, &mut ask, 200, &[("content-length", "100")]);
    assert!(fetch.next_ask(0).is_none());
    fetch.store(&mut ask, &[7; 100]);
    fetch.ended(&mut ask, NOW, None);
    assert_eq!(fetch.next_ask(0).unwrap().purpose, RequestPurpose::LastWord);
    assert_eq!(fetch.figures.arrived, 100, "what nobody needed is not counted");
}

#[test]
fn a_range_that_is_all_needs_no_version() {
    let mut fetch = fetch(options(4, Some(10)));
    let mut ask = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut ask, 206, &[("content-range", "bytes 0-4/5")]);
    fetch.store(&mut ask, &[7; 5]);
    fetch.ended(&mut ask, NOW, None);
    assert_eq!(fetch.next_ask(0).unwrap().purpose, RequestPurpose::LastWord);
}

#[test]
fn a_server_that_processes_no_request_is_asked_ever_more_rarely_and_given_up() {
    for direction in [TransferDirection::Get, TransferDirection::Put] {
        let options = TransferOptions { direction, ..options(2, None) };
        let mut fetch =
            Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(100), options);
        let (mut now, mut asked) = (NOW, 0);
        while fetch.outcome().is_none() {
            let mut ask = fetch.next_ask(0).expect("it is asked again");
            ask.outcome_class = OutcomeClass::Unprocessed;
            fetch.ended(&mut ask, now, Some("the server processed no request"));
            asked += 1;
            while fetch.is_put_off(now) {
                now += Duration::from_millis(100);
            }
        }
        let error = fetch.outcome().unwrap().as_ref().unwrap_err().to_string();
        assert_eq!(error, "the server processed no request, after every retry");
        assert!(asked < 30 && now.since(NOW) > Duration::from_secs(10), "{direction:?}: {asked} in {now:?}");
    }
}

#[test]
fn requests_that_the_server_did_not_process_are_not_held_against_it() {
    let mut fetch = fetch(options(2, Some(10)));
    let mut first = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut first, 206, &[("content-range", "bytes 0-9/1000"), ("etag", "\"a\"")]);
    for _ in 0..100 {
        let mut ask = fetch.next_ask(0).expect("it is asked again");
        ask.outcome_class = OutcomeClass::Unprocessed;
        fetch.ended(&mut ask, NOW, Some("the server processed no request"));
    }
    for n in 0..2 * MAX_FRUITLESS {
        let mut ask =
            fetch.next_ask(0).unwrap_or_else(|| panic!("both workers may break so often, not {n} times"));
        fetch.ended(&mut ask, NOW, Some("it broke"));
    }
    assert!(fetch.outcome().is_none());
}

#[test]
fn a_byte_of_any_worker_says_that_the_server_is_well() {
    let mut fetch = fetch(options(2, Some(10)));
    let mut first = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut first, 206, &[("content-range", "bytes 0-9/1000"), ("etag", "\"a\"")]);
    for _ in 0..5 {
        for _ in 0..2 * MAX_FRUITLESS {
            let mut ask = fetch.next_ask(0).expect("it is asked again");
            fetch.ended(&mut ask, NOW, Some("it broke"));
        }
        fetch.store(&mut first, b"1");
    }
    for _ in 0..=2 * MAX_FRUITLESS {
        let mut ask = fetch.next_ask(0).expect("it is asked again");
        fetch.ended(&mut ask, NOW, Some("it broke"));
    }
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))), "{:?}", fetch.outcome());
}

#[test]
fn a_complete_file_does_not_wait_for_a_checksum_for_ever() {
    let complete = || {
        let mut fetch = fetch(options(1, None));
        let mut ask = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut ask, 200, &[("content-length", "10"), ("etag", "\"a\"")]);
        fetch.store(&mut ask, b"0123456789");
        fetch.ended(&mut ask, NOW, None);
        let head = fetch.next_ask(0).expect("it asks for the checksum");
        (fetch, head)
    };
    let (mut silent, mut head) = complete();
    head.outcome_class = OutcomeClass::Silent;
    silent.ended(&mut head, NOW, Some("it was cancelled"));
    let (mut broken, mut head) = complete();
    for _ in 0..MAX_FRUITLESS {
        broken.ended(&mut head, NOW, Some("it broke"));
        head = broken.next_ask(0).expect("it is asked again");
    }
    broken.ended(&mut head, NOW, Some("it broke"));
    let (mut gone, mut head) = complete();
    gone.give_up(FetchError::Vanished("the server has gone".to_owned()), NOW);
    gone.ended(&mut head, Time::from_millis(99), Some("it was cancelled"));
    for fetch in [silent, broken, gone] {
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "{:?}", fetch.outcome());
        assert!(fetch.doubt().is_some() && fetch.expected.is_none());
        assert!(fetch.figures.ended < Time::from_millis(99), "it was over before");
    }
}

#[test]
fn the_size_of_parts_is_reported_as_it_was_in_force() {
    for (workers, part, declared) in [
        (1, None, None),
        (1, Some(10), None),
        (2, Some(100_000), Some(100_000)),
        (2, Some(1 << 30), Some(500_000)),
        (2, None, Some(500_000)),
    ] {
        let mut fetch = fetch(options(workers, part));
        let mut ask = fetch.next_ask(0).unwrap();
        let total = ("content-length", "1000000");
        // A first answer that brings only the first byte.
        match workers {
            1 => answer(&mut fetch, &mut ask, 200, &[total, ("etag", "\"a\"")]),
            _ => {
                let range = ("content-range", "bytes 0-0/1000001");
                answer(&mut fetch, &mut ask, 206, &[range, ("etag", "\"a\"")]);
            }
        }
        assert_eq!(fetch.part_bytes, declared, "{workers} {part:?}");
    }
}

/// A server for uploads that is a table of bytes, with what it counts.
struct Store {
    held: Extents,
    bytes: Vec<u8>,
    /// Bytes that arrived.
    arrived: u64,
    /// The checksum that was declared at the end.
    declared: Option<String>,
}

impl Store {
    fn new(total: u64) -> Self {
        Self { held: Extents::new(), bytes: vec![0; total as usize], arrived: 0, declared: None }
    }

    /// Carries out `ask`, of whose body only the first `most` bytes arrive.
    fn serve(&mut self, fetch: &mut Fetch, ask: FileRequest, most: u64) {
        self.serve_or_answer(fetch, ask, most, false);
    }

    /// The same. A request whose body is not complete is answered as if it were if `is_answered`; otherwise it breaks.
    fn serve_or_answer(&mut self, fetch: &mut Fetch, mut ask: FileRequest, most: u64, is_answered: bool) {
        let (method, fields) = fetch.request(&ask);
        let field =
            |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        if method == "HEAD" {
            let declared = h2lab_transfer::upload::to_fields(&self.held);
            let declared: Vec<(&str, &str)> =
                declared.iter().map(|(name, value)| (*name, value.as_str())).collect();
            answer(fetch, &mut ask, 204, &declared);
            return fetch.ended(&mut ask, NOW, None);
        }
        self.declared = field("repr-digest").or(self.declared.take());
        let from = field("content-range").and_then(|range| h2lab_transfer::content_range::parse(&range));
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
        if left > 0 && is_answered {
            answer(fetch, &mut ask, 204, &[]);
            return fetch.ended(&mut ask, NOW, None);
        }
        if left > 0 {
            return fetch.ended(&mut ask, NOW, Some("it broke"));
        }
        if sending.borrow().has_trailer() {
            self.declared = sending.borrow().sum().and_then(Digest::checksum).map(|sum| sum.to_field());
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
        let workers = 1 + random.below(4) as u32;
        let part = (random.below(2) == 0).then(|| 1_000 + random.below(100_000));
        let options = TransferOptions { direction: TransferDirection::Put, ..options(workers, part) };
        let mut fetch =
            Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(TOTAL), options);
        let mut store = Store::new(TOTAL);
        let mut under_way: Vec<FileRequest> = Vec::new();
        while fetch.outcome().is_none() {
            while under_way.len() < workers as usize
                && let Some(ask) = fetch.next_ask(0)
            {
                under_way.push(ask);
            }
            assert!(!under_way.is_empty(), "seed {seed}: it is stuck");
            let ask = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
            let most = if random.below(3) == 0 { 1 + random.below(50_000) } else { u64::MAX };
            // Some servers answer before they have read everything.
            let is_answered = random.below(2) == 0;
            store.serve_or_answer(&mut fetch, ask, most, is_answered);
        }
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "seed {seed}: {:?}", fetch.outcome());
        assert_eq!(
            (store.arrived, fetch.figures.arrived),
            (TOTAL, TOTAL),
            "seed {seed}: something went twice"
        );
        let filler: Vec<u8> = (b'a'..=b'z').cycle().take(TOTAL as usize).collect();
        assert!(store.bytes == filler, "seed {seed}");
        let computed = fetch.found.as_ref().map(h2lab_transfer::Checksum::to_field);
        assert!(computed.is_some() && store.declared == computed, "seed {seed}");
    }
}

#[test]
fn a_server_that_says_nothing_of_uploads_gets_one_plain_put() {
    let options = TransferOptions { direction: TransferDirection::Put, ..options(4, Some(10)) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(100), options);
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
    let Some(Err(error)) = fetch.outcome() else { panic!("it cannot be resumed") };
    assert!(error.to_string().contains("cannot be resumed"), "{error}");
}

/// A checksum of something else.
const OTHER: (&str, &str) = ("repr-digest", "crc32c=:AAAAAA==:");

#[test]
fn trailers_have_the_checksum_only_behind_an_answer_that_carries_the_file() {
    for (status, fields, is_taken) in [
        (206, &[("content-range", "bytes 0-9/100"), ("etag", "\"a\"")][..], true),
        (200, &[("content-length", "100")], true),
        (206, &[("content-range", "bytes 0-9/100")], false),
        (503, &[], false),
    ] {
        let mut fetch = fetch(options(2, Some(10)));
        let mut ask = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut ask, status, fields);
        Fields::of(&[OTHER], |fields| fetch.trailed(&ask, fields));
        assert_eq!(fetch.expected.is_some(), is_taken, "{status} {fields:?}");
    }
}

#[test]
fn an_upload_is_compared_with_nothing_that_the_server_had_before_or_says_beside_it() {
    for has_words in [false, true] {
        let options = TransferOptions { direction: TransferDirection::Put, ..options(1, None) };
        let mut fetch =
            Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(100), options);
        let mut probe = fetch.next_ask(0).unwrap();
        answer(&mut fetch, &mut probe, 200, &[OTHER]);
        Fields::of(&[OTHER], |fields| fetch.trailed(&probe, fields));
        fetch.ended(&mut probe, NOW, None);
        let mut ask = fetch.next_ask(0).unwrap();
        let sending = ask.sending.clone().unwrap();
        sending.borrow_mut().show(100, |piece, is_last| assert!(piece.len() == 100 && is_last));
        fetch.sent(&mut ask, NOW, 100);
        answer(&mut fetch, &mut ask, 201, &[]);
        if has_words {
            fetch.store(&mut ask, b"<p>Created</p>");
        }
        fetch.ended(&mut ask, NOW, None);
        assert!(matches!(fetch.outcome(), Some(Ok(()))), "{:?}", fetch.outcome());
        assert_eq!((fetch.expected.as_ref(), fetch.figures.arrived), (None, 100));
    }
}

#[test]
fn an_upload_is_not_complete_before_the_server_has_said_so() {
    let options = TransferOptions { direction: TransferDirection::Put, ..options(2, Some(10)) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(20), options);
    let mut store = Store::new(20);
    for _ in 0..3 {
        let ask = fetch.next_ask(0).unwrap();
        store.serve(&mut fetch, ask, u64::MAX);
    }
    let mut last = fetch.next_ask(0).unwrap();
    assert_eq!((store.arrived, last.purpose), (20, RequestPurpose::LastWord));
    fetch.give_up(FetchError::Vanished("it has gone".to_owned()), NOW);
    fetch.ended(&mut last, NOW, Some("it was cancelled"));
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))), "{:?}", fetch.outcome());
}

/// An upload to a server that takes parts, whose first query was answered with nothing.
fn put(place: FileLocation, workers: u32, part: Option<u64>) -> Fetch {
    let options = TransferOptions { direction: TransferDirection::Put, ..options(workers, part) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), place, options);
    let mut probe = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut probe, 204, &[("upload-offset", "0")]);
    fetch.ended(&mut probe, NOW, None);
    fetch
}

/// Sends all of a request's bytes, and receives `status`.
fn send_all(fetch: &mut Fetch, ask: &mut FileRequest, status: u16) {
    let left = ask.sending.as_ref().unwrap().borrow().left();
    ask.sending.as_ref().unwrap().borrow_mut().show(left, |piece, _| assert_eq!(piece.len() as u64, left));
    fetch.sent(ask, NOW, left);
    answer(fetch, ask, status, &[]);
    fetch.ended(ask, NOW, None);
}

#[test]
fn who_answers_before_all_of_it_was_taken_has_not_got_it() {
    // A server without support for uploads, such as nginx's `return 200`.
    let options = TransferOptions { direction: TransferDirection::Put, ..options(1, None) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(100), options);
    let mut probe = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut probe, 404, &[]);
    fetch.ended(&mut probe, NOW, None);
    let mut ask = fetch.next_ask(0).unwrap();
    fetch.sent(&mut ask, NOW, 60);
    answer(&mut fetch, &mut ask, 200, &[]);
    fetch.ended(&mut ask, NOW, None);
    let Some(Err(error)) = fetch.outcome() else { panic!("it would wait for ever") };
    assert!(error.to_string().contains("60 bytes"), "{error}");
    // A server that reports what it has is queried, and is given up if it never gets more.
    let mut fetch = put(FileLocation::Memory(100), 1, None);
    for _ in 0..=MAX_FRUITLESS {
        let mut ask = fetch.next_ask(0).expect("the rest is sent");
        assert_eq!(ask.purpose, RequestPurpose::Bytes);
        fetch.sent(&mut ask, NOW, 60);
        answer(&mut fetch, &mut ask, 204, &[]);
        fetch.ended(&mut ask, NOW, None);
        if let Some(mut held) = fetch.next_ask(0) {
            assert_eq!(held.purpose, RequestPurpose::Held);
            answer(&mut fetch, &mut held, 204, &[("upload-offset", "0")]);
            fetch.ended(&mut held, NOW, None);
        }
    }
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))), "{:?}", fetch.outcome());
    assert_eq!(fetch.take_back(), u64::from(MAX_FRUITLESS) * 60, "what went again counts once");
}

#[test]
fn a_file_that_changes_while_it_is_sent_never_becomes_one_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, "0123456789").unwrap();
    // In parts: the server never learns that it has everything.
    let mut fetch = put(FileLocation::File(path.clone()), 2, Some(5));
    let mut first = fetch.next_ask(0).unwrap();
    let mut second = fetch.next_ask(0).unwrap();
    send_all(&mut fetch, &mut first, 204);
    // The file changes after the last bytes of this part were sent.
    second
        .sending
        .as_ref()
        .unwrap()
        .borrow_mut()
        .show(5, |piece, is_last| assert!(piece == b"56789" && is_last));
    std::fs::write(&path, "another one").unwrap();
    fetch.sent(&mut second, NOW, 5);
    answer(&mut fetch, &mut second, 204, &[]);
    fetch.ended(&mut second, NOW, None);
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::SourceChanged))), "{:?}", fetch.outcome());
    assert!(fetch.next_ask(0).is_none(), "no last word");
    fetch.keep();
    assert!(!fetch.is_resumable(), "another run begins anew");
    // In one request: its end is not sent.
    let mut fetch = put(FileLocation::File(path.clone()), 1, None);
    let ask = fetch.next_ask(0).unwrap();
    std::fs::write(&path, "and another, longer one").unwrap();
    let sending = ask.sending.clone().unwrap();
    sending.borrow_mut().show(11, |piece, is_last| assert!(piece.is_empty() && !is_last));
    fetch.ran_dry(&ask);
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::SourceChanged))), "{:?}", fetch.outcome());
}

#[test]
fn a_server_that_has_no_time_is_asked_again_after_a_pause_and_not_for_ever() {
    let options = TransferOptions { direction: TransferDirection::Put, ..options(1, None) };
    let mut fetch = Fetch::new("http://a/f".to_owned(), "/f".to_owned(), FileLocation::Memory(100), options);
    let (mut now, mut asked) = (NOW, 0);
    while fetch.outcome().is_none() {
        let mut probe = fetch.next_ask(0).unwrap();
        assert_eq!(
            probe.purpose,
            RequestPurpose::Held,
            "it is not taken for one that knows nothing of uploads"
        );
        answer(&mut fetch, &mut probe, 503, &[]);
        fetch.ended(&mut probe, now, None);
        asked += 1;
        assert!(fetch.outcome().is_some() || (fetch.is_put_off(now) && asked < 20));
        while fetch.is_put_off(now) {
            now += Duration::from_millis(100);
        }
    }
    assert!(
        matches!(fetch.outcome(), Some(Err(FetchError::Status { status: 503, .. }))),
        "{:?}",
        fetch.outcome()
    );
    assert!(asked > 3 && now.since(NOW) > Duration::from_secs(5), "{asked} {now:?}");
}

#[test]
fn an_upload_that_somebody_else_has_for_a_moment_is_continued() {
    let mut fetch = put(FileLocation::Memory(100), 1, None);
    let mut ask = fetch.next_ask(0).unwrap();
    send_all(&mut fetch, &mut ask, 409);
    assert!(fetch.outcome().is_none() && fetch.is_put_off(NOW));
    let mut probe = fetch.next_ask(0).unwrap();
    answer(&mut fetch, &mut probe, 204, &[("upload-offset", "0")]);
    fetch.ended(&mut probe, NOW, None);
    let mut ask = fetch.next_ask(0).unwrap();
    send_all(&mut fetch, &mut ask, 204);
    assert!(matches!(fetch.outcome(), Some(Ok(()))), "{:?}", fetch.outcome());
}

#[test]
fn an_answer_that_is_older_than_what_was_taken_since_takes_nothing_back() {
    let mut fetch = put(FileLocation::Memory(30), 3, Some(10));
    let mut asks: Vec<FileRequest> = (0..3).map(|_| fetch.next_ask(0).unwrap()).collect();
    // Two break one after the other, and after each the server is queried.
    fetch.ended(&mut asks[0], NOW, Some("it broke"));
    let mut first = fetch.next_ask(0).unwrap();
    fetch.ended(&mut asks[1], NOW, Some("it broke"));
    let mut second = fetch.next_ask(0).unwrap();
    assert_eq!((first.purpose, second.purpose), (RequestPurpose::Held, RequestPurpose::Held));
    // The third arrives; the second answer was made before that.
    answer(&mut fetch, &mut first, 204, &[("upload-offset", "0")]);
    fetch.ended(&mut first, NOW, None);
    let mut third = asks.pop().unwrap();
    send_all(&mut fetch, &mut third, 204);
    answer(&mut fetch, &mut second, 204, &[("upload-offset", "0")]);
    fetch.ended(&mut second, NOW, None);
    let mut sent = Vec::new();
    while let Some(mut ask) = fetch.next_ask(0).filter(|ask| ask.purpose == RequestPurpose::Bytes) {
        sent.push(ask.from);
        send_all(&mut fetch, &mut ask, 204);
    }
    sent.sort_unstable();
    assert_eq!(sent, [0, 10], "what it had taken is not sent again");
}
