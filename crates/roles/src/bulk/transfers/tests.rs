//! Requests in flight, by what is received of them.

use h2lab_transfer::Algorithm;
use h2lab_wire::Fields;
use h2lab_wire::trace::Direction;

use super::*;
use h2lab_net::storage::Chunk;

const TIMEOUT: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Time {
    Time::from_millis(1000 * seconds)
}

fn head(transfers: &mut Transfers, number: u32) {
    let head = ResponseHead { status: 200, is_http10: false, fields: Fields::new(b"", &[]) };
    transfers.head(number, Time::ZERO, &head);
}

fn options(direction: TransferDirection) -> TransferOptions {
    TransferOptions {
        direction,
        workers: 1,
        part: None,
        checksum: Algorithm::Crc32c,
        resume: false,
        chunk: Chunk::default(),
        trailers: false,
    }
}

/// As many files as `slots`, each requested on a connection of its own at the beginning, and being sent.
fn begun(slots: &[usize]) -> Transfers {
    let mut transfers = asked(slots);
    (0..slots.len() as u32).for_each(|number| head(&mut transfers, number));
    transfers
}

/// The same before an answer.
fn asked(slots: &[usize]) -> Transfers {
    let wanted = |n: &usize| RequestedFile {
        url: format!("http://a/{n}"),
        path: format!("/{n}"),
        place: FileLocation::Discard,
        bytes: None,
    };
    let mut transfers =
        Transfers::new(slots.iter().map(wanted).collect(), options(TransferDirection::Get), None);
    for (n, slot) in (0..).zip(slots) {
        let number = transfers.next(at(0)).expect("each file asks");
        transfers.begun(number, *slot, n, StreamId::of_request(n));
    }
    transfers
}

/// What is left to be cancelled, by slot.
fn doomed(transfers: &mut Transfers) -> Vec<usize> {
    let mut slots = Vec::new();
    while let Some(doomed) = transfers.next_doomed() {
        assert!(doomed.is_silent);
        slots.push(doomed.slot);
    }
    slots.sort_unstable();
    slots
}

#[test]
fn one_that_stays_silent_is_asked_again_while_others_carry() {
    let mut transfers = begun(&[0, 1]);
    transfers.set_now(at(30));
    transfers.body(1, b"a byte");
    assert_eq!((transfers.fail_silent(TIMEOUT), doomed(&mut transfers)), (None, vec![]));
    transfers.set_now(at(31));
    assert_eq!((transfers.fail_silent(TIMEOUT), doomed(&mut transfers)), (None, vec![0]));
    transfers.ended(0, at(31), RequestEnd::Failed { outcome: Outcome::Cancelled, code: 8 });
    assert!(transfers.fetches()[0].outcome().is_some_and(Result::is_err), "the length was not declared");
    assert!(transfers.fetches()[1].outcome().is_none());
}

#[test]
fn a_server_of_which_nothing_comes_has_gone() {
    let mut transfers = begun(&[0, 1]);
    transfers.set_now(at(10));
    transfers.body(0, b"a byte");
    transfers.body(1, b"a byte");
    transfers.set_now(at(40));
    assert_eq!(transfers.fail_silent(TIMEOUT), None);
    transfers.set_now(at(41));
    assert_eq!(transfers.fail_silent(TIMEOUT), Some(Duration::from_secs(31)));
    transfers.give_up(|| FetchError::Vanished("it has gone".to_owned()));
    assert!(transfers.fetches().iter().all(|fetch| fetch.outcome().is_some()));
}

#[test]
fn no_stream_is_silent_while_another_has_its_connection() {
    let mut transfers = begun(&[0, 0]);
    for seconds in 1..100 {
        transfers.set_now(at(seconds));
        transfers.body(0, b"a byte");
        assert_eq!((transfers.fail_silent(TIMEOUT), doomed(&mut transfers)), (None, vec![]), "{seconds}");
    }
}

#[test]
fn what_a_disk_held_up_is_heard_before_anybody_is_called_silent() {
    let mut transfers = begun(&[0]);
    transfers.set_now(at(1));
    // Storing the bytes takes 100 s; silence is judged by when they came.
    transfers.body(0, b"a byte");
    assert_eq!(transfers.fail_silent(TIMEOUT), None);
    // The next read of the sockets finds more at once.
    transfers.set_now(at(101));
    transfers.body(0, b"another");
    assert_eq!(transfers.fail_silent(TIMEOUT), None);
}

#[test]
fn who_is_refused_over_and_over_is_given_up_in_the_end() {
    let mut transfers = asked(&[0]);
    transfers.ended(0, at(0), RequestEnd::Unprocessed);
    let mut asked = 1;
    for seconds in 1..=61 {
        transfers.set_now(at(seconds));
        // Until it is put off, and then once in each pause.
        while let Some(number) = transfers.next(at(seconds)) {
            asked += 1;
            transfers.begun(number, 0, 0, StreamId::of_request(asked));
            transfers.ended(number, at(seconds), RequestEnd::Unprocessed);
        }
    }
    assert!(transfers.is_over() && asked < 20, "{asked}");
    assert!(matches!(transfers.fetches()[0].outcome(), Some(Err(FetchError::Vanished(_)))));
}

#[test]
fn credit_is_what_is_returned_for_data() {
    let mut transfers = asked(&[0]);
    let frame = |kind, direction, connection, stream| FrameEvent {
        at: at(0),
        connection,
        stream,
        length: 4,
        value: 100,
        kind,
        flags: 0,
        direction,
    };
    let (up, down) = (Direction::Up, Direction::Down);
    let (all, one) = (StreamId::CONNECTION, StreamId(1));
    for (kind, direction, connection, stream, counted) in [
        (FrameKind::WINDOW_UPDATE, up, 0, all, 0),
        (FrameKind::WINDOW_UPDATE, up, 0, one, 1),
        (FrameKind::DATA, down, 0, one, 1),
        (FrameKind::WINDOW_UPDATE, up, 0, all, 2),
        (FrameKind::WINDOW_UPDATE, up, 1, all, 2),
    ] {
        transfers.frame(frame(kind, direction, connection, stream));
        assert_eq!(transfers.frames().updates, counted, "{kind:?} {connection} {stream}");
    }
}

#[test]
fn a_number_that_is_free_again_is_not_doomed() {
    let mut transfers = begun(&[0]);
    transfers.set_now(at(1));
    transfers.give_up(|| FetchError::Deadline);
    transfers.ended(0, at(1), RequestEnd::Complete);
    assert_eq!(transfers.next_doomed(), None);
    assert!(transfers.doomed.is_empty());
}

/// An upload of so many bytes of filler, to a server without support for uploads, whose body is being sent on slot 0.
fn sending(bytes: u64) -> Transfers {
    let wanted = RequestedFile {
        url: "http://a/f".to_owned(),
        path: "/f".to_owned(),
        place: FileLocation::Memory(bytes),
        bytes: None,
    };
    let mut transfers = Transfers::new(vec![wanted], options(TransferDirection::Put), None);
    for n in 0..2 {
        let number = transfers.next(at(0)).expect("first it asks what is there, then it sends");
        transfers.begun(number, 0, 0, StreamId::of_request(n));
        if n == 0 {
            let head = ResponseHead { status: 404, is_http10: false, fields: Fields::new(b"", &[]) };
            transfers.head(number, at(0), &head);
            transfers.ended(number, at(0), RequestEnd::Complete);
        }
    }
    transfers
}

#[test]
fn a_server_that_takes_an_upload_slowly_is_not_silent() {
    let mut transfers = sending(10);
    for seconds in 1..=5 {
        transfers.set_now(at(20 * seconds));
        transfers.body_sent(0, at(20 * seconds), 2);
        assert_eq!((transfers.fail_silent(TIMEOUT), doomed(&mut transfers)), (None, vec![]), "{seconds}");
    }
    // Everything is in our socket, from which the server keeps taking.
    for seconds in 6..=20 {
        transfers.set_now(at(20 * seconds));
        transfers.taken(0, 0, || Some((seconds, true)));
        let verdict = (transfers.fail_silent(TIMEOUT), doomed(&mut transfers));
        // The first call has nothing to compare with.
        assert_eq!(verdict, (None, vec![]), "{seconds}");
    }
}

#[test]
fn a_server_that_holds_its_answer_back_is_given_up_after_the_timeout() {
    let mut transfers = sending(10);
    transfers.set_now(at(1));
    transfers.body_sent(0, at(1), 10);
    for seconds in [10, 20, 31] {
        transfers.set_now(at(seconds));
        // It sends a PING from time to time.
        transfers.taken(0, 0, || Some((10 + seconds, false)));
        assert_eq!(transfers.fail_silent(TIMEOUT), None, "{seconds}");
    }
    transfers.set_now(at(32));
    transfers.taken(0, 0, || Some((50, false)));
    assert_eq!(transfers.fail_silent(TIMEOUT), Some(Duration::from_secs(31)));
    transfers.give_up(|| FetchError::Vanished("it has gone".to_owned()));
    assert!(transfers.fetches()[0].outcome().is_some_and(Result::is_err), "nobody said that it is there");
}

/// Has `n` files of one byte fetched one after the other.
fn fetch_over_and_over(listed: usize, n: u64) -> Transfers {
    let wanted = RequestedFile {
        url: "http://a/f".to_owned(),
        path: "/f".to_owned(),
        place: FileLocation::Discard,
        bytes: None,
    };
    let options = TransferOptions { checksum: Algorithm::None, ..options(TransferDirection::Get) };
    let mut transfers = Transfers::new(vec![wanted], options, Some(listed));
    for round in 0..n {
        let now = Time::from_millis(round + 1);
        transfers.set_now(now);
        let number = transfers.next(now).expect("it continues");
        transfers.begun(number, 0, 7, StreamId::of_request(round as u32));
        Fields::of(&[("content-length", "1")], |fields| {
            transfers.head(number, now, &ResponseHead { status: 200, is_http10: false, fields });
        });
        transfers.body(number, b"x");
        transfers.ended(number, now + Duration::from_millis(1), RequestEnd::Complete);
    }
    transfers
}

#[test]
fn what_is_fetched_over_and_over_fills_no_memory_and_is_counted_all_the_same() {
    let transfers = fetch_over_and_over(10, 1000);
    let (listed, overflow) = transfers.complete();
    assert_eq!((listed.len(), overflow.files, overflow.bytes, overflow.streams), (10, 990, 990, 990));
    assert_eq!((transfers.fetches.len(), transfers.requests.len()), (1, 1), "places are taken again");
    assert_eq!(
        (transfers.count(), transfers.amount(), transfers.at_a_time(7)),
        ((1000, 1000), (1000, 1000), 1)
    );
    assert_eq!(overflow.connections[&7].bytes, 990);
    // Where each is wanted each is recorded.
    let all = fetch_over_and_over(usize::MAX, 50);
    assert_eq!((all.complete().0.len(), all.complete().1.files, all.fetches.len()), (50, 0, 1));
}

#[test]
fn no_second_copy_of_a_file_begins_before_the_first_is_known() {
    let wanted = RequestedFile {
        url: "http://a/f".to_owned(),
        path: "/f".to_owned(),
        place: FileLocation::Discard,
        bytes: None,
    };
    let options = TransferOptions { workers: 4, ..options(TransferDirection::Get) };
    let mut transfers = Transfers::new(vec![wanted], options, Some(10));
    let first = transfers.next(at(0)).expect("it is asked for");
    transfers.begun(first, 0, 0, StreamId::of_request(0));
    assert!(!transfers.waits() && transfers.next(at(0)).is_none());
    head(&mut transfers, first);
    assert!(transfers.waits() && transfers.next(at(0)).is_some(), "it has no parts: a copy");
    assert!(transfers.next(at(0)).is_some(), "later ones do not wait");
}

#[test]
fn what_failed_of_that_is_listed_however_much_went_before() {
    let mut transfers = fetch_over_and_over(0, 100);
    let number = transfers.next(at(1)).unwrap();
    transfers.begun(number, 0, 7, StreamId::of_request(100));
    transfers.head(
        number,
        at(1),
        &ResponseHead { status: 404, is_http10: false, fields: Fields::new(b"", &[]) },
    );
    transfers.ended(number, at(1), RequestEnd::Complete);
    assert!(transfers.next(at(1)).is_none(), "it would fail over and over");
    assert_eq!(transfers.count(), (101, 101));
    let left = transfers.into_fetches();
    assert!(
        matches!(left[0].outcome(), Some(Err(FetchError::Status { status: 404, .. }))) && left.len() == 1
    );
}

#[test]
fn a_server_that_goes_while_no_file_is_in_flight_fails_what_is_fetched_repeatedly() {
    let mut transfers = fetch_over_and_over(0, 100);
    transfers.give_up(|| FetchError::Vanished("the server has gone".to_owned()));
    assert!(transfers.is_over());
    assert_eq!(transfers.count(), (101, 101));
    assert!(matches!(transfers.into_fetches()[0].outcome(), Some(Err(FetchError::Vanished(_)))));
    let mut transfers = fetch_over_and_over(0, 100);
    transfers.give_up(|| FetchError::Deadline);
    assert_eq!(
        (transfers.is_over(), transfers.count()),
        (true, (100, 100)),
        "its time was over: nothing failed"
    );
}

#[test]
fn bytes_that_never_left_us_are_not_counted() {
    let mut transfers = sending(1000);
    transfers.set_now(at(1));
    transfers.body_sent(0, at(1), 600);
    assert_eq!(transfers.take_fresh(), (600, 0));
    // 250 of them lie in our socket when it breaks.
    transfers.left_behind(0, 250);
    transfers.ended(0, at(2), RequestEnd::Failed { outcome: Outcome::Closed, code: 0 });
    assert_eq!(transfers.take_fresh(), (0, 250));
    let fetch = &transfers.fetches()[0];
    assert!(matches!(fetch.outcome(), Some(Err(FetchError::Vanished(_)))), "{:?}", fetch.outcome());
    assert_eq!((fetch.figures.arrived, fetch.parts()[0].bytes), (350, 350));
    assert_eq!(transfers.amount().0, 350);
}
