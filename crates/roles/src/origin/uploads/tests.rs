//! Uploads, as their server keeps them.

use std::fs;
use std::time::{Duration, Instant};

use h2lab_net::storage::Spare;
use h2lab_transfer::{Algorithm, Digest};
use tempfile::TempDir;

use crate::origin::plan::ResponsePlan;
use h2lab_wire::Fields;

use super::*;
use crate::origin::put_content::tests::offer;
use crate::origin::receipt::Receipt;

/// A server of uploads into a folder of its own.
struct Place {
    // Before the folder: what is unfinished is written to it when this is dropped.
    uploads: Arc<Uploads>,
    folder: TempDir,
}

const CONTENT: &[u8] = b"0123456789";

impl Place {
    fn new() -> Self {
        Self::with(UploadLimits { overwrite: true, ..UploadLimits::default() })
    }

    fn with(limits: UploadLimits) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), uploads: Arc::new(Uploads::new(limits)) }
    }

    fn destination(&self) -> Destination {
        self.named("f")
    }

    fn named(&self, name: &str) -> Destination {
        Destination::File(Names::of(&self.folder.path().join(name)).unwrap(), PathBuf::from(name))
    }

    fn begin(&self, fields: &[(&str, &str)]) -> Result<Receipt, Refusal> {
        self.uploads.begin(Time::ZERO, offer(fields)?, self.destination())
    }

    /// The response to a request with these fields and this body.
    fn put(&self, fields: &[(&str, &str)], body: &[u8]) -> ResponsePlan {
        self.put_to("f", fields, body)
    }

    /// The status of the response once the previous upload, which may still be being saved, is closed.
    fn replace(&self, fields: &[(&str, &str)], body: &[u8]) -> u16 {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.put(fields, body).status {
                409 => assert!(Instant::now() < until, "it is never put away"),
                status => return status,
            }
            std::thread::yield_now();
        }
    }

    /// The same as [`Place::put`] for another file.
    fn put_to(&self, name: &str, fields: &[(&str, &str)], body: &[u8]) -> ResponsePlan {
        match offer(fields).and_then(|offer| self.uploads.begin(Time::ZERO, offer, self.named(name))) {
            Ok(mut receipt) => {
                receipt.take(body);
                receipt.complete();
                answer(&mut receipt)
            }
            Err(refusal) => refusal.plan(Time::ZERO),
        }
    }

    /// Bytes `from..until` of [`CONTENT`], as a part.
    fn part(&self, from: usize, until: usize) -> ResponsePlan {
        let range = format!("bytes {from}-{}/10", until - 1);
        let fields = [(TAG, "\"t\""), ("content-range", range.as_str()), ("upload-complete", "?0")];
        self.put(&fields, &CONTENT[from..until])
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn read(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("f")).unwrap()
    }
}

const TAG: &str = h2lab_transfer::upload::TAG_FIELD;
const LAST_WORD: (&str, &str) = ("content-range", "bytes */10");

fn answer(receipt: &mut Receipt) -> ResponsePlan {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(plan) = receipt.answer(Time::ZERO) {
            return plan;
        }
        assert!(Instant::now() < until, "it is never finished");
        std::thread::yield_now();
    }
}

fn sum(algorithm: Algorithm) -> String {
    let mut digest = Digest::new(algorithm);
    digest.update(CONTENT);
    digest.checksum().unwrap().to_field()
}

#[test]
fn a_name_that_is_too_long_for_a_file_or_for_its_part_is_the_clients_fault() {
    let place = Place::new();
    for (length, status) in [(100, 201), (250, 414), (255, 414), (256, 414), (300, 414)] {
        let answer = place.put_to(&"n".repeat(length), &[], CONTENT);
        assert_eq!(answer.status, status, "{length} bytes");
    }
    assert_eq!(place.names(), ["n".repeat(100)]);
}

#[test]
fn parts_in_any_order_become_a_file_with_the_last_word() {
    for algorithm in [Algorithm::Crc32c, Algorithm::Sha256] {
        let place = Place::new();
        assert_eq!(place.part(7, 10).status, 204);
        assert_eq!(place.part(0, 4).status, 204);
        let held = place.uploads.held(&place.destination(), "\"t\"");
        assert_eq!(held, [0..4, 7..10].into_iter().collect());
        assert!(place.uploads.held(&place.destination(), "\"other\"").is_empty());
        assert_eq!(place.put(&[(TAG, "\"t\""), LAST_WORD], b"").status, 409, "something is missing");
        assert_eq!(place.part(4, 7).status, 204);
        assert_eq!(place.names(), ["f.part"], "it has no name yet");
        let (sum, want) = (sum(algorithm), algorithm.want().unwrap());
        let fields = [(TAG, "\"t\""), LAST_WORD, ("repr-digest", sum.as_str()), ("want-repr-digest", &want)];
        let done = place.put(&fields, b"");
        assert_eq!(done.status, 201);
        assert!(done.fields.contains(&("repr-digest", sum.clone())), "{:?}", done.fields);
        assert_eq!((place.read(), place.names()), (CONTENT.to_vec(), vec!["f".to_owned()]));
        // The answer may have been lost: it is given again.
        assert_eq!(place.put(&fields, b"").status, 201);
        assert_eq!(place.uploads.held(&place.destination(), "\"t\""), Extents::all(10));
    }
}

#[test]
fn a_wrong_checksum_leaves_nothing_and_names_what_arrived() {
    for wrong in [("repr-digest", "crc32c=:AAAAAA==:"), ("content-digest", "crc32c=:AAAAAA==:")] {
        let place = Place::new();
        let refused = place.put(&[("content-length", "10"), wrong], CONTENT);
        assert_eq!(refused.status, 400, "{wrong:?}");
        assert!(refused.fields.contains(&("repr-digest", sum(Algorithm::Crc32c))), "{wrong:?}");
        assert!(place.names().is_empty(), "{wrong:?}");
    }
    let place = Place::new();
    let mut receipt = place.begin(&[("content-length", "10")]).unwrap();
    receipt.take(CONTENT);
    Fields::of(&[("repr-digest", "crc32c=:AAAAAA==:")], |fields| receipt.take_trailers(fields));
    receipt.complete();
    assert_eq!(answer(&mut receipt).status, 400, "in a trailer, too");
    assert!(place.names().is_empty());
}

#[test]
fn what_broke_is_kept_if_it_has_a_name_and_outlives_the_server() {
    let mut place = Place::new();
    let mut nameless = place.begin(&[("content-length", "10")]).unwrap();
    nameless.take(&CONTENT[..3]);
    assert_eq!(place.begin(&[(TAG, "\"t\""), ("content-length", "10")]).unwrap_err().status, 409);
    drop(nameless);
    assert!(place.names().is_empty());
    let mut named = place.begin(&[(TAG, "\"t\""), ("content-length", "10")]).unwrap();
    named.take(&CONTENT[..3]);
    drop(named);
    place.uploads = Arc::new(Uploads::new(UploadLimits { overwrite: true, ..UploadLimits::default() }));
    assert_eq!(place.uploads.held(&place.destination(), "\"t\""), std::iter::once(0..3).collect());
    assert_eq!(place.part(3, 10).status, 204);
    let sum = sum(Algorithm::Crc32c);
    assert_eq!(place.put(&[(TAG, "\"t\""), LAST_WORD, ("repr-digest", &sum)], b"").status, 201);
    assert_eq!(place.read(), CONTENT);
    // Another state of the file begins anew, and replaces it.
    assert_eq!(place.put(&[(TAG, "\"u\""), ("content-length", "2")], b"xy").status, 204);
    assert_eq!(place.read(), b"xy");
}

#[test]
fn more_or_less_than_was_announced_is_refused() {
    for body in [&CONTENT[..9], b"0123456789a"] {
        let place = Place::new();
        assert_eq!(place.put(&[("content-length", "10")], body).status, 400, "{}", body.len());
        assert!(place.names().is_empty());
    }
}

#[test]
fn an_upload_that_cannot_be_resumed_belongs_to_its_request() {
    let place = Place::new();
    let mut open = place.begin(&[(TAG, "\"t\"")]).unwrap();
    open.take(CONTENT);
    let part = [(TAG, "\"t\""), ("content-range", "bytes 70-99/100"), ("upload-complete", "?0")];
    assert_eq!(place.put(&part, &[0; 30]).status, 409, "it has no length, and is under way");
    open.complete();
    assert!(matches!(answer(&mut open).status, 201 | 204));
    assert_eq!(place.read(), CONTENT);
}

#[test]
fn a_last_word_that_comes_again_with_another_sum_is_not_believed() {
    let place = Place::new();
    assert_eq!(place.part(0, 10).status, 204);
    let right = sum(Algorithm::Crc32c);
    let last = |sum: &str| place.put(&[(TAG, "\"t\""), LAST_WORD, ("repr-digest", sum)], b"").status;
    assert_eq!(last(&right), 201);
    assert!(matches!(last(&right), 201 | 204));
    assert_eq!(last("crc32c=:AAAAAA==:"), 400);
}

#[test]
fn parts_that_nothing_keeps_are_refused_a_sum_of_their_order_before_they_come() {
    let uploads = Arc::new(Uploads::default());
    let begin = |want: &str, range: &str| {
        let fields =
            [(TAG, "\"t\""), ("content-range", range), ("upload-complete", "?0"), ("want-repr-digest", want)];
        let nowhere = Destination::Nowhere("f".to_owned());
        uploads.begin(Time::ZERO, offer(&fields).unwrap(), nowhere).map(drop)
    };
    let refusal = begin("sha-256=10", "bytes 0-4/10").unwrap_err().plan(Time::ZERO);
    assert_eq!(refusal.status, 400);
    assert!(begin("crc32c=10", "bytes 0-4/10").is_ok());
}

#[test]
fn gaps_have_a_bound() {
    let uploads = Arc::new(Uploads::default());
    let mut status = 204;
    let part = |from: u64, length: usize| {
        let range = format!("bytes {from}-{}/1000000", from + length as u64 - 1);
        let fields = [(TAG, "\"t\""), ("content-range", range.as_str()), ("upload-complete", "?0")];
        let nowhere = Destination::Nowhere("f".to_owned());
        let mut receipt = uploads.begin(Time::ZERO, offer(&fields).unwrap(), nowhere).unwrap();
        receipt.take(&vec![0; length]);
        receipt.complete();
        answer(&mut receipt).status
    };
    let mut pieces = 0;
    while status == 204 && pieces < 20_000 {
        status = part(2 * pieces, 1);
        pieces += 1;
    }
    assert_eq!((status, pieces), (409, 10_001));
    assert_eq!(part(1, 1), 204, "what fills a gap is taken");
}

#[test]
fn who_replaces_an_upload_that_is_still_being_saved_waits_elsewhere() {
    let place = Place::new();
    assert_eq!(place.part(0, 4).status, 204);
    for upload in lock(&place.uploads.inner).open.values() {
        lock(upload).sink.as_ref().unwrap().seem_saving();
    }
    assert_eq!(place.put(&[("content-length", "10")], CONTENT).status, 409, "nobody waits under the lock");
    assert_eq!(place.replace(&[("content-length", "10")], CONTENT), 201);
    assert_eq!(place.read(), CONTENT);
}

#[test]
fn what_could_not_be_saved_for_another_save_is_saved_later() {
    let place = Place::new();
    let part = [(TAG, "\"t\""), ("content-range", "bytes 0-9/10"), ("upload-complete", "?0")];
    let mut receipt = place.begin(&part).unwrap();
    receipt.take(&CONTENT[..5]);
    for upload in lock(&place.uploads.inner).open.values() {
        lock(upload).sink.as_ref().unwrap().seem_saving();
    }
    let later = Time::ZERO + Duration::from_secs(10);
    assert!(receipt.save(later).happened(), "it asks to be asked again");
    assert!(receipt.save(later + Duration::from_secs(10)).happened());
}

#[test]
fn a_head_takes_no_room_and_bytes_take_at_most_as_much_again() {
    use std::os::unix::fs::MetadataExt as _;
    let place = Place::new();
    let part = place.folder.path().join("f.part");
    let taken = || fs::metadata(&part).unwrap().blocks() * 512;
    let length = (64_u64 << 20).to_string();
    let mut receipt = place.begin(&[(TAG, "\"t\""), ("content-length", &length)]).unwrap();
    assert_eq!(taken(), 0);
    let block = vec![1; 1 << 20];
    for mib in 1..=4_u64 {
        receipt.take(&block);
        assert!((mib << 20..=(2 * mib + 1) << 20).contains(&taken()), "{mib}: {}", taken());
    }
    assert_eq!(place.uploads.held(&place.destination(), "\"t\""), std::iter::once(0..4 << 20).collect());
}

#[test]
fn a_file_that_is_too_long_is_refused_with_its_head_or_when_it_gets_too_long() {
    let place = Place::with(UploadLimits { max_upload: Some(9), ..UploadLimits::default() });
    let parts = [("content-range", "bytes 0-4/10"), ("upload-complete", "?0")];
    for fields in [&[("content-length", "10")][..], &parts, &[(TAG, "\"t\""), ("upload-length", "10")]] {
        assert_eq!(place.begin(fields).unwrap_err().status, 413, "{fields:?}");
    }
    assert_eq!(place.put(&[], CONTENT).status, 413, "its length was not announced");
    assert!(place.names().is_empty());
    assert_eq!(place.put(&[], &CONTENT[..9]).status, 201);
}

#[test]
fn all_uploads_together_have_a_limit_of_which_what_is_removed_takes_nothing() {
    let place = Place::with(UploadLimits { max_total: Some(10), ..UploadLimits::default() });
    let refused = place.put(&[("content-length", "11")], b"");
    assert_eq!(refused.status, 507);
    for _ in 0..3 {
        let wrong = [("content-length", "10"), ("repr-digest", "crc32c=:AAAAAA==:")];
        assert_eq!(place.put(&wrong, CONTENT).status, 400, "nothing of it is left");
        let mut broken = place.begin(&[("content-length", "10")]).unwrap();
        broken.take(CONTENT);
    }
    let part = place.part(0, 8);
    assert_eq!(part.status, 204);
    assert_eq!(place.part(0, 8).status, 204, "bytes that are sent again take nothing");
    assert_eq!(place.replace(&[("content-length", "10")], CONTENT), 201, "it replaces the part");
    assert_eq!(place.put_to("g", &[], b"x").status, 507, "also if no length was announced");
    assert_eq!(place.names(), ["f"]);
}

#[test]
fn a_part_that_is_put_down_counts_until_it_is_replaced() {
    let limits = UploadLimits { max_total: Some(201), ..UploadLimits::default() };
    let place = Place::with(limits);
    let part = [(TAG, "\"t\""), ("content-range", "bytes 0-0/2"), ("upload-complete", "?0")];
    for n in 0..200 {
        assert_eq!(place.put_to(&format!("f{n}"), &part, b"x").status, 204, "{n}");
    }
    assert_eq!(place.put_to("g", &part, b"x").status, 507);
    assert!(!lock(&place.uploads.inner).closed.is_empty());
}

#[test]
fn what_is_to_stay_free_is_refused_with_the_head_and_nothing_is_left() {
    let spare = Spare::Bytes(u64::MAX / 2);
    let place = Place::with(UploadLimits { spare, ..UploadLimits::default() });
    let refused = place.begin(&[(TAG, "\"t\""), ("content-length", "10")]).unwrap_err();
    assert!(refused.status == 507 && refused.words.contains("--reserve"), "{}", refused.words);
    assert_eq!(place.put(&[], CONTENT).status, 507, "its length was not announced");
    assert!(place.names().is_empty());
}

#[test]
fn a_file_that_is_there_is_replaced_only_if_that_is_allowed() {
    let place = Place::with(UploadLimits::default());
    assert_eq!(place.put(&[(TAG, "\"t\""), ("content-length", "10")], CONTENT).status, 201);
    let part = [(TAG, "\"u\""), ("content-range", "bytes 0-4/10"), ("upload-complete", "?0")];
    for fields in [&[][..], &[("content-length", "2")], &part, &[(TAG, "\"u\""), LAST_WORD]] {
        let refused = place.begin(fields).unwrap_err();
        assert_eq!(refused.status, 412, "{fields:?}");
        assert!(refused.words.contains("--overwrite"), "{}", refused.words);
    }
    // Its own final request is answered again.
    assert_eq!(place.put(&[(TAG, "\"t\""), LAST_WORD], b"").status, 201);
    assert_eq!((place.read(), place.names()), (CONTENT.to_vec(), vec!["f".to_owned()]));
}

#[test]
fn a_file_that_appears_while_one_of_its_name_comes_is_not_replaced() {
    for allowed in [false, true] {
        let place = Place::with(UploadLimits { overwrite: allowed, ..UploadLimits::default() });
        for (fields, replaces) in [(&[][..], allowed), (&[("if-none-match", "*")], false)] {
            let mut receipt = place.begin(fields).unwrap();
            receipt.take(CONTENT);
            fs::write(place.folder.path().join("f"), "others'").unwrap();
            receipt.complete();
            assert_eq!(answer(&mut receipt).status, if replaces { 204 } else { 412 }, "{fields:?}");
            assert_eq!(place.read() == CONTENT, replaces, "{fields:?}");
            assert_eq!(place.names(), ["f"], "{fields:?}");
            fs::remove_file(place.folder.path().join("f")).unwrap();
        }
    }
}

#[test]
fn who_names_the_state_to_replace_replaces_no_other() {
    let place = Place::new();
    assert_eq!(place.put(&[("if-match", "*")], CONTENT).status, 412, "there is none");
    let first = place.put(&[("if-none-match", "*")], CONTENT);
    assert_eq!(first.status, 201);
    let (_, tag) = first.fields.iter().find(|(name, _)| *name == "etag").unwrap();
    assert_eq!(place.put(&[("if-none-match", "*")], CONTENT).status, 412);
    assert_eq!(place.put(&[("if-match", "\"other\"")], CONTENT).status, 412);
    let mut late = place.begin(&[("if-match", tag)]).unwrap();
    late.take(CONTENT);
    fs::write(place.folder.path().join("f"), "others'").unwrap();
    late.complete();
    assert_eq!(answer(&mut late).status, 412, "it has changed meanwhile");
    assert_eq!(place.read(), b"others'");
}

#[test]
fn files_are_finished_side_by_side() {
    let place = Place::new();
    for n in 0..20 {
        let name = format!("f{n}");
        assert_eq!(place.put_to(&name, &[("content-length", "10")], CONTENT).status, 201, "{n}");
    }
    assert_eq!(place.names().len(), 20);
}
