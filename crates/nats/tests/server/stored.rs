//! What JetStream keeps: parts, the queue, reports, runs.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use h2lab_nats::{CELLS, Nats, NatsError, PARTS, REPORTS, RUNS};

use crate::host::{DEADLINE, Server, eventually, put};

/// Longer than any test: nothing is redelivered because the machine is busy.
const LONG: Duration = Duration::from_secs(600);

/// A file of the server's folder with so many bytes, which differ.
fn file(server: &Server, name: &str, bytes: usize) -> PathBuf {
    let path = server.file(name);
    let content: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
    fs::write(&path, content).unwrap();
    path
}

/// Stores a message as it is, for which no function of the facade is.
fn publish(nats: &Nats, subject: &str, text: &str) {
    nats.publish(subject, text.as_bytes().to_vec()).unwrap();
    nats.flush(DEADLINE).unwrap();
}

#[test]
fn setting_up_twice_changes_nothing() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    nats.runs().put("r", b"x".to_vec()).unwrap();
    nats.setup().unwrap();
    assert_eq!(nats.runs().get("r").unwrap(), Some(b"x".to_vec()));
}

#[test]
fn a_stream_of_another_kind_is_refused_and_one_with_limits_of_its_own_is_taken() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let reports = format!(
        r#"{{"name":"{REPORTS}","subjects":["h2lab.reports.>"],"retention":"limits",
            "storage":"memory","max_msgs":9,"num_replicas":1}}"#
    );
    publish(&nats, &format!("$JS.API.STREAM.CREATE.{REPORTS}"), &reports);
    nats.setup().unwrap();
    let other = Server::start().unwrap();
    let nats = other.connect();
    let cells = format!(
        r#"{{"name":"{CELLS}","subjects":["h2lab.cells.>"],"retention":"limits","storage":"file","num_replicas":1}}"#
    );
    publish(&nats, &format!("$JS.API.STREAM.CREATE.{CELLS}"), &cells);
    let error = nats.setup().unwrap_err().to_string();
    assert!(error.contains(CELLS) && error.contains("retention"), "{error}");
}

#[test]
fn a_part_comes_back_as_it_was_stored_and_is_gone_when_it_is_deleted() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let parts = nats.parts();
    for (name, bytes) in [("r.1.a.kek-1", 1_000_003), ("r.2.b.kek-1", 256 * 1024), ("other.kek-2", 0)] {
        let path = file(&server, name, bytes);
        let stored = put(&parts, name, &path).unwrap();
        assert_eq!(stored.bytes, bytes as u64);
        let back = server.file(&format!("{name}.back"));
        assert_eq!(parts.get(name, &back, bytes as u64).unwrap(), stored);
        assert!(fs::read(&path).unwrap() == fs::read(&back).unwrap(), "{name}");
    }
    assert_eq!(parts.names("r.").unwrap(), ["r.1.a.kek-1", "r.2.b.kek-1"]);
    parts.delete("r.1.a.kek-1").unwrap();
    parts.delete("r.1.a.kek-1").unwrap();
    assert_eq!(parts.names("").unwrap(), ["other.kek-2", "r.2.b.kek-1"]);
    let error = parts.get("r.1.a.kek-1", &server.file("gone"), 1 << 30).unwrap_err();
    assert!(matches!(error, NatsError::Absent { .. }), "{error}");
}

#[test]
fn a_part_that_is_stored_again_is_the_newer_one() {
    let Some(server) = Server::start() else { return };
    let parts = server.set_up().parts();
    put(&parts, "a", &file(&server, "long", 300_000)).unwrap();
    let newer = put(&parts, "a", &file(&server, "short", 5)).unwrap();
    assert_eq!(parts.get("a", &server.file("back"), 5).unwrap(), newer);
    assert_eq!(parts.names("").unwrap(), ["a"]);
}

#[test]
fn a_part_of_one_byte_more_than_is_allowed_is_not_fetched() {
    let Some(server) = Server::start() else { return };
    let parts = server.set_up().parts();
    put(&parts, "a", &file(&server, "a", 1000)).unwrap();
    let back = server.file("back");
    let error = parts.get("a", &back, 999).unwrap_err();
    assert!(matches!(error, NatsError::TooLarge { bytes: 1000, most: 999, .. }), "{error}");
    assert!(!back.exists());
    assert!(parts.get("a", &back, 1000).is_ok());
}

#[test]
fn a_file_that_is_there_is_not_overwritten() {
    let Some(server) = Server::start() else { return };
    let parts = server.set_up().parts();
    put(&parts, "a", &file(&server, "a", 10)).unwrap();
    let other = file(&server, "other", 3);
    let error = parts.get("a", &other, 10).unwrap_err();
    assert!(matches!(error, NatsError::Io { .. }), "{error}");
    assert_eq!(fs::read(&other).unwrap().len(), 3);
}

#[test]
fn a_part_with_another_digest_size_or_pieces_is_damaged_and_leaves_no_file() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let back = server.file("back");
    let digest = "SHA-256=WZRHGrsBESr8wYFZ9sx0tPURuZgG2lmzyvWpwXPKz8U=";
    // Each with a name of its own, and that in base 64.
    for (name, encoded, nuid, size, digest, is_good) in [
        ("abc", "YWJj", "x", 5, digest, true),
        ("abd", "YWJk", "x", 5, "SHA-256=AAAA", false),
        ("abe", "YWJl", "x", 4, digest, false),
        ("abf", "YWJm", "x", 6, digest, false),
        ("abg", "YWJn", "y", 5, digest, false),
        ("abh", "YWJo", ">", 5, digest, false),
    ] {
        publish(&nats, &format!("$O.{PARTS}.C.x"), "12345");
        let subject = format!("$O.{PARTS}.M.{encoded}");
        let document = format!(
            r#"{{"name":"{name}","bucket":"{PARTS}","nuid":"{nuid}","size":{size},"chunks":1,"digest":"{digest}"}}"#
        );
        publish(&nats, &subject, &document);
        eventually("the document is stored", || nats.parts().names(name).unwrap() == [name]);
        match nats.parts().get(name, &back, 100) {
            Ok(_) => assert!(is_good, "{document}"),
            Err(error) => {
                assert!(!is_good && matches!(error, NatsError::Corrupt { .. }), "{document}: {error}");
            }
        }
        assert_eq!(back.exists(), is_good, "{document}");
        let _: Result<(), _> = fs::remove_file(&back);
        nats.parts().delete(name).unwrap();
    }
    assert!(nats.parts().names("").unwrap().is_empty());
}

#[test]
fn a_store_that_is_full_says_so_and_keeps_no_pieces_of_what_did_not_fit() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let config = format!(
        r#"{{"name":"OBJ_{PARTS}","subjects":["$O.{PARTS}.C.>","$O.{PARTS}.M.>"],"retention":"limits","storage":"file",
            "num_replicas":1,"discard":"new","max_bytes":600000,"allow_rollup_hdrs":true,"allow_direct":true}}"#
    );
    publish(&nats, &format!("$JS.API.STREAM.CREATE.OBJ_{PARTS}"), &config);
    nats.setup().unwrap();
    let error = put(&nats.parts(), "big", &file(&server, "big", 700_000)).unwrap_err();
    assert!(matches!(error, NatsError::Quota { .. }), "{error}");
    let small = put(&nats.parts(), "small", &file(&server, "small", 500_000)).unwrap();
    assert_eq!(small.bytes, 500_000);
    assert_eq!(nats.parts().names("").unwrap(), ["small"]);
}

#[test]
fn a_limit_of_the_account_says_so() {
    let config = "jetstream { store_dir: \"FOLDER/store\", max_file_store: 400KB }";
    let Some(server) = Server::with(config) else { return };
    let nats = server.set_up();
    let error = put(&nats.parts(), "big", &file(&server, "big", 2_000_000)).unwrap_err();
    assert!(matches!(error, NatsError::Quota { .. }), "{error}");
}

#[test]
fn a_limit_of_the_account_counts_nothing_that_was_deleted() {
    let config = "jetstream { store_dir: \"FOLDER/store\", max_file_store: 300KB }";
    let Some(server) = Server::with(config) else { return };
    let parts = server.set_up().parts();
    let path = file(&server, "part", 50_000);
    for number in 0..20 {
        let name = format!("{number}.kek-1");
        let stored = put(&parts, &name, &path);
        assert!(stored.is_ok(), "part {number}: {stored:?}");
        parts.delete(&name).unwrap();
    }
    assert!(parts.names("").unwrap().is_empty());
}

#[test]
fn a_limit_of_the_account_names_the_stream_and_the_part() {
    let config = "jetstream { store_dir: \"FOLDER/store\", max_file_store: 300KB }";
    let Some(server) = Server::with(config) else { return };
    let parts = server.set_up().parts();
    let error = put(&parts, "1.kek-1", &file(&server, "part", 1_000_000)).unwrap_err().to_string();
    assert!(error.contains("the stream OBJ_H2LAB_PARTS, part `1.kek-1`"), "{error}");
}

#[test]
fn a_unit_is_given_to_one_agent_until_it_is_done() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let cells = nats.cells();
    cells.add("r", 0, 7, b"seven".to_vec()).unwrap();
    cells.add("r", 0, 7, b"seven".to_vec()).unwrap();
    cells.add("r", 1, 8, b"eight".to_vec()).unwrap();
    cells.add("other", 0, 9, b"nine".to_vec()).unwrap();
    assert_eq!(cells.waiting("r").unwrap(), [(0, 7), (1, 8)]);
    cells.open_class("r", 0, LONG).unwrap();
    cells.open_class("r", 1, LONG).unwrap();
    let taken = cells.take("r", 0, DEADLINE).unwrap().unwrap();
    assert_eq!((taken.payload(), taken.delivered()), (&b"seven"[..], 1));
    taken.keep().unwrap();
    assert!(cells.take("r", 0, Duration::ZERO).unwrap().is_none());
    // It is still in the queue: a driver that comes back sees it.
    assert_eq!(cells.waiting("r").unwrap(), [(0, 7), (1, 8)]);
    taken.done().unwrap();
    eventually("the unit is gone", || cells.waiting("r").unwrap() == [(1, 8)]);
    let other = cells.take("r", 1, DEADLINE).unwrap().unwrap();
    assert_eq!(other.payload(), b"eight");
}

#[test]
fn a_unit_that_is_given_back_is_delivered_again() {
    let Some(server) = Server::start() else { return };
    let cells = server.set_up().cells();
    cells.open_class("r", 0, LONG).unwrap();
    cells.add("r", 0, 1, Vec::new()).unwrap();
    for (delivered, delay) in [(1, Duration::ZERO), (2, Duration::from_millis(10))] {
        let taken = cells.take("r", 0, DEADLINE).unwrap().unwrap();
        assert_eq!(taken.delivered(), delivered);
        taken.give_back(delay).unwrap();
    }
    assert_eq!(cells.take("r", 0, DEADLINE).unwrap().unwrap().delivered(), 3);
}

#[test]
fn a_unit_that_is_done_while_the_server_starts_again_is_given_to_nobody_else() {
    let Some(mut server) = Server::start() else { return };
    let nats = server.set_up();
    let cells = nats.cells();
    cells.add("r", 0, 1, Vec::new()).unwrap();
    cells.open_class("r", 0, LONG).unwrap();
    let taken = cells.take("r", 0, DEADLINE).unwrap().unwrap();
    server.stop();
    eventually("the connection ends", || !nats.is_connected());
    let acknowledging = thread::spawn(move || taken.done());
    server.start_again();
    // A machine that is busy may need longer than the operation's deadline: then nothing was claimed either.
    match acknowledging.join().unwrap() {
        Ok(()) => eventually("the unit is gone", || cells.waiting("r").is_ok_and(|units| units.is_empty())),
        Err(error) => {
            let is_late = matches!(error, NatsError::Timeout { .. } | NatsError::Unreachable { .. });
            assert!(is_late, "its class is there: {error}");
        }
    }
}

#[test]
fn a_unit_whose_class_was_deleted_is_nobodys() {
    let Some(server) = Server::start() else { return };
    let cells = server.set_up().cells();
    cells.add("r", 0, 1, Vec::new()).unwrap();
    cells.open_class("r", 0, LONG).unwrap();
    let taken = cells.take("r", 0, DEADLINE).unwrap().unwrap();
    cells.purge("r").unwrap();
    let error = taken.done().unwrap_err();
    assert!(matches!(error, NatsError::Absent { .. }), "{error}");
}

#[test]
fn a_unit_that_its_agent_does_not_keep_goes_to_another() {
    let Some(server) = Server::start() else { return };
    let cells = server.set_up().cells();
    cells.add("r", 0, 1, b"x".to_vec()).unwrap();
    cells.open_class("r", 0, Duration::from_millis(100)).unwrap();
    drop(cells.take("r", 0, DEADLINE).unwrap().unwrap());
    let again = cells.take("r", 0, DEADLINE).unwrap().unwrap();
    assert!(again.delivered() >= 2, "{}", again.delivered());
    // A class that is opened again takes the new time.
    cells.open_class("r", 0, LONG).unwrap();
}

#[test]
fn a_run_that_is_purged_has_no_units_and_no_classes_and_others_keep_theirs() {
    let Some(server) = Server::start() else { return };
    let cells = server.set_up().cells();
    for run in ["r", "other"] {
        cells.add(run, 0, 1, Vec::new()).unwrap();
        cells.open_class(run, 0, LONG).unwrap();
    }
    cells.purge("r").unwrap();
    cells.purge("r").unwrap();
    assert!(cells.waiting("r").unwrap().is_empty());
    cells.add("r", 0, 1, Vec::new()).unwrap();
    assert_eq!(cells.waiting("r").unwrap(), [(0, 1)], "it can be added again");
    cells.purge("r").unwrap();
    let taken = cells.take("r", 0, Duration::from_millis(100));
    assert!(matches!(taken, Ok(None) | Err(NatsError::Absent { .. })));
    assert!(cells.take("other", 0, DEADLINE).unwrap().is_some());
}

#[test]
fn each_report_is_kept_with_the_agent_whose_it_is() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let reports = nats.reports();
    // Of no agent, as another program may write it.
    publish(&nats, "h2lab.reports.r.1", "z");
    for (run, agent, text) in
        [("r", "kek-1", "first"), ("other", "kek-1", "x"), ("r", "kek-2", "second"), ("r", "kek-1", "third")]
    {
        reports.add(run, 1, agent, text.as_bytes().to_vec()).unwrap();
    }
    let all = reports.read("r", 0, Duration::ZERO).unwrap();
    let known =
        all.iter().map(|report| (report.agent.as_str(), std::str::from_utf8(&report.payload).unwrap()));
    let known: Vec<(&str, &str)> = known.collect();
    assert_eq!(known, [("kek-1", "first"), ("kek-2", "second"), ("kek-1", "third")]);
    let (first, last) = (all[0].sequence, all[2].sequence);
    assert_eq!(reports.read("r", first, Duration::ZERO).unwrap(), all[1..]);
    assert!(reports.read("r", last, Duration::ZERO).unwrap().is_empty());
    reports.purge("r").unwrap();
    assert!(reports.read("r", 0, Duration::ZERO).unwrap().is_empty());
    assert_eq!(reports.read("other", 0, Duration::ZERO).unwrap().len(), 1);
}

#[test]
fn whoever_waits_for_a_report_gets_it_when_it_comes() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let reading = nats.reports();
    let reader = thread::spawn(move || reading.read("r", 0, DEADLINE).unwrap());
    nats.reports().add("r", 1, "kek-1", b"x".to_vec()).unwrap();
    assert_eq!(reader.join().unwrap().len(), 1);
}

#[test]
fn more_reports_than_one_reading_takes_come_in_several() {
    let Some(server) = Server::start() else { return };
    let reports = server.set_up().reports();
    for unit in 0..65 {
        reports.add("r", unit, "kek-1", vec![unit as u8]).unwrap();
    }
    let first = reports.read("r", 0, DEADLINE).unwrap();
    let rest = reports.read("r", first.last().unwrap().sequence, DEADLINE).unwrap();
    assert_eq!((first.len(), rest.len()), (64, 1));
}

#[test]
fn a_run_is_known_from_its_first_writing_to_its_end() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let runs = nats.runs();
    // Before any driver: agents may come first.
    assert!(runs.all().unwrap().is_empty() && runs.get("a").unwrap().is_none());
    nats.setup().unwrap();
    assert!(runs.all().unwrap().is_empty());
    for (run, text) in [("a", "1"), ("b", "2"), ("a", "3")] {
        runs.put(run, text.as_bytes().to_vec()).unwrap();
    }
    let known = |run: &str, text: &str| (run.to_owned(), text.as_bytes().to_vec());
    assert_eq!(runs.all().unwrap(), [known("b", "2"), known("a", "3")]);
    assert_eq!(runs.get("a").unwrap(), Some(b"3".to_vec()));
    runs.delete("a").unwrap();
    runs.delete("a").unwrap();
    assert_eq!(runs.get("a").unwrap(), None);
    assert_eq!(runs.all().unwrap(), [known("b", "2")]);
    // A name that is none of a run, as another program may write it.
    publish(&nats, &format!("$KV.{RUNS}.x.y"), "z");
    assert_eq!(runs.all().unwrap(), [known("b", "2")]);
}

#[test]
fn a_name_with_a_wildcard_is_refused_everywhere() {
    let Some(server) = Server::start() else { return };
    let nats = server.set_up();
    let path = file(&server, "a", 1);
    let results = [
        nats.cells().purge(">"),
        nats.reports().purge("*"),
        nats.reports().add("r", 1, "*", Vec::new()),
        nats.runs().delete(">"),
        nats.parts().delete("*"),
        put(&nats.parts(), "../a", &path).map(drop),
        nats.parts().get("..", &server.file("b"), 1).map(drop),
        nats.publish("a.*", Vec::new()),
    ];
    for result in results {
        assert!(matches!(result, Err(NatsError::Invalid { .. })), "{result:?}");
    }
}

#[test]
fn a_server_that_comes_back_without_its_streams_is_set_up_again() {
    let Some(mut server) = Server::start() else { return };
    let nats = server.set_up();
    server.stop();
    fs::remove_dir_all(server.file("store")).unwrap();
    server.start_again();
    eventually("the streams are there again", || nats.runs().put("r", b"x".to_vec()).is_ok());
}
