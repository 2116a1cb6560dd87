//! Certificates on both sides over TCP, and what an instance speaks by ALPN.

use std::fs;
use std::process::Command;

use crate::hostile_servers::{Draws, Row, Speech, start};
use crate::origin::Origin;
use crate::sidecar_admin::Watched;
use crate::support::{DEADLINE, Finished, binary, h2lab};
use crate::tls::Files;

/// A sidecar in front of `service` with an admin listener; its listeners are in clear and over TLS, where it requires a
/// certificate of `ca.pem`.
fn sidecar(files: &Files, service: &str) -> Watched {
    let text = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n\
         [[listen]]\naddress = '127.0.0.1:0'\ntls = true\nclient-ca = 'ca.pem'\nservice = 'a'\n\
         [identity]\ncert = 'server.pem'\nkey = 'server.key'\n[admin]\naddress = '127.0.0.1:0'\n[log]\nfile = '-'\n\
         [service.a]\n{service}\n"
    );
    fs::write(files.path("sidecar.toml"), text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(files.path("sidecar.toml"));
    Watched::run(command)
}

const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";

/// The value of a metric with the label of the only service, or without labels.
fn metric(sidecar: &Watched, name: &str) -> u64 {
    let metrics = sidecar.get("/metrics").1;
    let of = |line: &&str| {
        line.strip_prefix("h2lab_sidecar_")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let line = metrics.lines().find(of).unwrap_or_else(|| panic!("no {name}: {metrics}"));
    line.rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number")
}

#[test]
fn certificates_are_shown_and_checked_on_both_sides_over_tcp() {
    let files = Files::make();
    let [cert, key] = files.identity("server");
    let origin = Origin::start(&[&cert, &key, &files.flag("--client-ca", "ca.pem")]);
    for scheme in ["h1s", "h2", "https"] {
        let service = |identity: &str, ca: &str| {
            format!(
                "instances = ['{scheme}://{}']\nca = '{ca}.pem'\nidentity = {{ cert = '{identity}.pem', key = '{identity}.key' }}",
                origin.tls
            )
        };
        let right = sidecar(&files, &service("client", "ca"));
        let told = right.ask(POST);
        assert!(told.starts_with("HTTP/1.1 200 "), "{scheme}: {told}");
        for (identity, ca) in [("stranger", "ca"), ("client", "other-ca")] {
            let told = sidecar(&files, &service(identity, ca)).ask(POST);
            assert!(told.starts_with("HTTP/1.1 502 "), "{scheme} {identity} {ca}: {told}");
        }

        // Certificates of clients are checked, too.
        let tls = right
            .child
            .wait_for_line(DEADLINE, |line| {
                Some(line.strip_prefix("listening ")?.to_owned()).filter(|url| url.starts_with("https"))
            })
            .expect("it listens");
        let load = |protocol: &str, more: &[String]| -> Finished {
            let common =
                ["load", "--json", "-n", "5", "-X", "POST", "-d", "x", "--drain=60s"].map(str::to_owned);
            let which = [format!("--proto={protocol}"), files.flag("--cacert", "ca.pem"), format!("{tls}/")];
            h2lab(&[&common[..], &which, more].concat())
        };
        for protocol in ["h1s", "h2"] {
            let served = load(protocol, &files.identity("client"));
            served.assert_code_unless_busy(0);
            assert_eq!(
                served.json()["requests"]["succeeded"],
                5,
                "{scheme} {protocol}: {}",
                served.transcript()
            );
            let before = metric(&right, "tls_failures_total");
            let nobody = load(protocol, &[]);
            assert!(nobody.stderr.contains("certificate"), "{scheme} {protocol}: {}", nobody.transcript());
            let stranger = load(protocol, &files.identity("stranger"));
            assert!(
                stranger.code.is_some_and(|code| code != 0),
                "{scheme} {protocol}: {}",
                stranger.transcript()
            );
            let failed = metric(&right, "tls_failures_total") - before;
            assert!(failed >= 2, "{scheme} {protocol}: {failed} counted: {}", right.child.log());
        }
        right.stop();
    }
}

#[test]
fn an_instance_whose_alpn_says_http1_is_asked_so_and_is_remembered() {
    // Each request needs a connection of its own, so that the number of dials shows what the sidecar has learned.
    const EACH: &str = "each = ['head 200; content-length: 5; connection: close', 'body hello', 'close']";
    const ASKED: u64 = 10;
    // An instance that supports only `http/1.1`, and one that does not support ALPN.
    for alpn in ["http/1.1", "none"] {
        let row: Row = toml::from_str(&format!("{EACH}\nalpn = '{alpn}'")).expect("a row");
        let address = start(&row, Speech::H1s, 0, &mut Draws::new(1, "good")).expect("a free port");
        let files = Files::make();
        let sidecar = sidecar(&files, &format!("instances = ['https://{address}']\ninsecure = true"));
        for n in 0..ASKED {
            let told = sidecar.ask(POST);
            assert!(told.starts_with("HTTP/1.1 200 "), "{alpn} {n}: {told}");
        }
        // The first request found that out. Otherwise each would cost two dials: with the ALPN that the instance does
        // not accept, and without.
        let (dialled, failed) = (metric(&sidecar, "dials_total"), metric(&sidecar, "dials_failed_total"));
        println!("{alpn}: {dialled} dialled, {failed} failed");
        assert!((ASKED..ASKED + 5).contains(&dialled), "{alpn}: {dialled} connections for {ASKED} requests");
        sidecar.stop();
    }
}
