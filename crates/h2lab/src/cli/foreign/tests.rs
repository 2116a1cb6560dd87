//! Command lines of other tools.

use std::ffi::OsString;

use super::super::parse;
use super::doubtful_threads;
use super::table::FOREIGN;

/// The message for a command line that is refused.
fn told(line: &str) -> String {
    let words = ["h2lab"].into_iter().chain(line.split(' ')).map(OsString::from);
    parse(&words.collect::<Vec<_>>()).map_or_else(|error| error.to_string(), |_| "taken".to_owned())
}

#[test]
fn a_mistyped_command_gets_the_one_that_is_meant_and_no_hidden_one() {
    for line in ["lod", "laod", "lo", "lod http://h/", "laod -c 4 http://h/", "laod h:8080"] {
        let told = told(line);
        assert!(told.contains("'load'") && !told.contains("__"), "{line}: {told}");
    }
    for line in ["_lab", "__lob", "__syscttls"] {
        assert!(!told(line).contains("similar"), "{line}: {}", told(line));
    }
    assert!(told("bulk gett http://h/").contains("'get'"));
    for line in ["http://load/", "loads:8080", "frobnicate http://h/"] {
        assert!(told(line).contains("needs a command before it"), "{line}: {}", told(line));
    }
    // `run` has this flag only to refuse it.
    let told = told("run x.toml --resolv a:1:b");
    assert!(!told.contains("similar"), "{told}");
}

#[test]
fn a_value_that_is_read_as_a_flag_is_named_with_its_flag() {
    for (line, expected) in
        [("load --agents -x http://h/", "--agents=-x"), ("load -H --bogus http://h/", "-H=--bogus")]
    {
        assert!(told(line).contains(expected), "{line}: {}", told(line));
    }
    assert!(told("load --agents=-x http://h/").contains("no - at the beginning"));
    assert!(told("load -c 4 --bogus http://h/").contains("--bogus: there is no such flag"));
}

#[test]
fn a_word_with_one_hyphen_is_neither_a_body_nor_a_question_for_help() {
    assert!(told("load -debug http://h/").contains("-debug: there is no such flag"));
    assert!(told("load -halfclose http://h/").contains("-halfclose: there is no such flag"));
    for body in ["-d debug", "-d{}", "-d@file", "-da=b"] {
        assert_eq!(told(&format!("load {body} http://h/")), "taken");
    }
}

#[test]
fn flags_of_other_tools_that_mean_the_same_are_taken() {
    for line in [
        "load -t2 -c10 -R 100 -D 1s --latency http://a/",
        "load --h1 -D 10 http://a/",
        "load --qps 50 http://a/",
        "load --warm-up-time 5 --silent http://a/",
        "load -s -z 10 a:8080",
        "load --data-binary @f http://a/",
        "load --data-raw 1s http://a/",
        "load -l --latencies --cert c.pem http://a/",
        "load -E c.pem --http3-only https://a/",
        "compare -R 50,100 -D 10,20s --h1 -s localhost:8080/x",
        "run s.toml --qps 50 -z 10",
        "bulk get -D 5 --discard -s http://a/x",
        "probe a:80 --timeout 2",
    ] {
        assert_eq!(told(line), "taken", "{line}");
    }
}

#[test]
fn flags_of_other_tools_that_mean_something_else_are_refused_with_ours_named() {
    for (line, ours) in [
        ("load -t2 -c10 -d1s http://a/", "a duration? use -z"),
        ("load -d 10 http://a/", "--data-raw"),
        ("load -m GET http://a/", "-X METHOD"),
        ("load -t 10s http://a/", "-z TIME"),
        ("load -D body.json http://a/", "-d @FILE"),
        ("load -f http://a/", "--fail-if"),
        ("load -duration=5s http://a/", "-z/--duration"),
        ("load -rate 50 http://a/", "-q/--rate"),
        ("load -qps 100 http://a/", "-q RATE"),
        ("load -data x http://a/", "-d/--data"),
        ("load -disable-keepalive http://a/", "--reconnect-every 1"),
        ("load -h2 http://a/", "--http2"),
        ("load -http2 http://a/", "--http2"),
        ("load -targets t.txt", "--urls FILE"),
        ("load -p h2c http://a/", "--proto h2c"),
        ("load --rps=5 http://a/", "-q RATE"),
        ("load -L http://a/", "redirects are never followed"),
        ("load -A x http://a/", "-H 'user-agent: NAME'"),
        ("load -i urls.txt http://a/", "--urls FILE"),
        ("load --max-concurrent-streams 5 http://a/", "-m N"),
        ("load -v http://a/", "h2lab trace"),
        ("load -n 10 -s 5 http://a/", "--timeout TIME"),
        ("load -f body.json http://a/", "-d @FILE"),
        ("load -f TLS1.2 http://a/", "cannot be chosen"),
        ("load -w http://a/", "--html FILE"),
        ("load -q http://a/", "use -s"),
        ("load -c cookies.txt http://a/", "-b NAME=VALUE"),
        ("load -t 10s http://a/", "--timeout TIME"),
        ("load -laddr 127.0.0.1 http://a/", "no flag for the local address"),
        ("load -loglevel x http://a/", "there is no such flag"),
        ("compare -duration=5s http://a/", "-z/--duration"),
        ("bulk get -q http://a/x", "-s or --quiet"),
    ] {
        let told = told(line);
        assert!(told.starts_with("error: ") && told.contains(ours), "{line}: {told}");
        assert!(!told.contains("similar"), "{line}: {told}");
    }
}

#[test]
fn a_url_alone_is_answered_with_what_can_be_done_with_it() {
    for line in ["http://a/x", "-t2 -c10 http://a/x", "https://a/ --http2", "localhost:8080", "-k http://a/x"]
    {
        let told = told(line);
        for command in ["h2lab compare http", "h2lab load http", "h2lab probe http", "h2lab trace http"] {
            assert!(told.contains(command), "{line}: {told}");
        }
    }
    assert!(told("http://me:hunter2@a/").contains("***") && told("loda").contains("load"));
}

#[test]
fn a_flag_of_another_command_is_refused_with_the_reason() {
    for command in ["trace http://a/", "timeline http://a/", "bulk get http://a/x", "probe http://a/"] {
        for (flag, why) in [
            ("--connect-timeout=1s", "its --timeout covers connecting, too"),
            ("--loss=1%", "it has no emulated link"),
            ("--delay=1ms", "it has no emulated link"),
            ("--topology=direct", "it starts no servers behind a link"),
            ("--causes", "it has no emulated link to capture"),
            ("--dial-policy=stampede", "it keeps no pool of connections"),
        ] {
            let told = told(&format!("{command} {flag}"));
            let name = flag.split('=').next().unwrap();
            assert!(told.contains(name) && told.contains(why), "{command} {flag}: {told}");
            assert!(told.contains("`h2lab compare`"), "{command} {flag}: {told}");
        }
    }
    let told = told("origin --loss=1%");
    let owners = "it is a flag of `h2lab compare`, `h2lab diagnose`, `h2lab run`, `h2lab link`";
    assert!(told.contains(owners), "{told}");
}

#[test]
fn every_flag_of_the_table_is_refused_with_what_is_written_there_and_is_none_of_ours() {
    for (flags, here) in FOREIGN {
        for flag in *flags {
            let told = told(&format!("load {flag} http://a/"));
            assert_eq!(told, format!("error: {flag}: {here}\n"), "{flag}");
        }
    }
}

#[test]
fn a_value_that_is_negative_or_none_is_refused_with_the_flag_and_what_is_expected() {
    for (line, words) in [
        ("load -z -1s http://a/", ["--duration", "`-1s`", "a duration"]),
        ("load -n -5 http://a/", ["--requests", "`-5`", "a whole number, 1 or more"]),
        ("load --requests -5 http://a/", ["--requests", "`-5`", "a whole number, 1 or more"]),
        ("load -c -3 http://a/", ["--connections", "`-3`", "a whole number from 1 to 20000"]),
        ("load -q -.5 http://a/", ["--rate", "`-.5`", "a rate"]),
        ("load -m 0 http://a/", ["--streams", "`0`", "a whole number from 1 to 1000000"]),
        ("load -t 0 http://a/", ["--threads", "`0`", "a whole number from 1 to 1024"]),
        ("load -n ten http://a/", ["--requests", "`ten`", "a whole number, 1 or more"]),
        ("compare --repetitions -1 http://a/", ["--repetitions", "`-1`", "a whole number"]),
        ("compare --delay -5ms", ["--delay", "`-5ms`", "a duration"]),
        ("bulk get -c -1 http://a/x", ["--connections", "`-1`", "a whole number from 1 to 1000"]),
        ("load -nope http://a/", ["-nope", "there is no such flag", "-n ope"]),
        ("load -verbose http://a/", ["-v", "", ""]),
        ("load --http1.1 -5ms http://a/", ["-5", "there is no such flag", ""]),
        ("load --zzzz http://a/", ["--zzzz", "there is no such flag", ""]),
    ] {
        let told = told(line);
        for word in words {
            assert!(told.contains(word), "{line}: `{word}` is not said: {told}");
        }
        assert!(!told.contains("invalid digit") && !told.contains("tip:"), "{line}: {told}");
    }
    for line in
        ["load -4 -z 1s http://a/", "load -z 1s -6 http://a/", "load -d -1 http://a/", "load -k -4 http://a/"]
    {
        assert_eq!(told(line), "taken", "{line}");
    }
}

#[test]
fn threads_are_doubted_where_they_are_more_than_cpus() {
    assert_eq!(doubtful_threads(4, 4), None);
    let told = doubtful_threads(10, 4).unwrap();
    for words in ["-t 10 is threads", "-z 10s", "--timeout 10s"] {
        assert!(told.contains(words), "{told}");
    }
}
