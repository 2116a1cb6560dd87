//! Who may do what: credentials, TLS, permissions, an account without JetStream.

use std::sync::mpsc;
use std::time::Duration;

use h2lab_nats::{Event, Nats, NatsError, PARTS, ServerOptions};

use crate::host::{DEADLINE, Server, put, refused};
use crate::received;

/// A driver who may do everything, and the agent `kek-1` with the permissions that docs/agents.md names.
fn with_permissions() -> Option<Server> {
    Server::with(&format!(
        r#"
        jetstream {{ store_dir: "FOLDER/store" }}
        authorization {{ users = [
            {{ user: "driver", password: "d" }}
            {{ user: "kek-1", password: "k", permissions: {{
                publish: [ "h2lab.agent.kek-1.from.>", "h2lab.reports.*.*.kek-1", "$JS.ACK.H2LAB_CELLS.>",
                    "$JS.API.CONSUMER.MSG.NEXT.H2LAB_CELLS.>", "$O.{PARTS}.C.>", "$O.{PARTS}.M.>",
                    "$JS.API.STREAM.MSG.GET.KV_H2LAB_RUNS", "_INBOX_kek-1.>" ]
                subscribe: [ "h2lab.who", "h2lab.agent.kek-1.to.>", "_INBOX_kek-1.>" ]
            }} }}
            {{ user: "deaf", password: "n", permissions: {{ publish: [ ">" ], subscribe: [ "h2lab.who" ] }} }}
            {{ user: "mute", password: "m", permissions: {{ publish: [ "a" ], subscribe: [ ">" ] }} }}
        ] }}"#
    ))
}

#[test]
fn an_agent_needs_the_documented_permissions_only() {
    let Some(server) = with_permissions() else { return };
    let driver = Nats::connect(&server.user("driver", "d")).unwrap();
    let agent = Nats::connect(&server.user("kek-1", "k")).unwrap();
    driver.setup().unwrap();
    driver.runs().put("r", b"run".to_vec()).unwrap();
    driver.cells().add("r", 0, 1, b"unit".to_vec()).unwrap();
    driver.cells().open_class("r", 0, DEADLINE * 10).unwrap();

    assert_eq!(agent.runs().all().unwrap().len(), 1);
    let (_orders, orders) = received(&agent, "h2lab.agent.kek-1.to.>");
    let (_answers, answers) = received(&driver, "h2lab.agent.*.from.1");
    driver.publish("h2lab.agent.kek-1.to.1", b"order".to_vec()).unwrap();
    agent.publish("h2lab.agent.kek-1.from.1", b"answer".to_vec()).unwrap();
    assert_eq!(orders.recv_timeout(DEADLINE).unwrap().1, b"order");
    assert_eq!(answers.recv_timeout(DEADLINE).unwrap().1, b"answer");

    let taken = agent.cells().take("r", 0, DEADLINE).unwrap().unwrap();
    taken.keep().unwrap();
    let path = server.file("part");
    std::fs::write(&path, b"measured").unwrap();
    let stored = put(&agent.parts(), "r.1.kek-1", &path).unwrap();
    agent.reports().add("r", 1, "kek-1", b"report".to_vec()).unwrap();
    taken.done().unwrap();
    agent.flush(DEADLINE).unwrap();

    let reports = driver.reports().read("r", 0, DEADLINE).unwrap();
    assert_eq!(reports.iter().map(|report| report.agent.as_str()).collect::<Vec<_>>(), ["kek-1"]);
    assert_eq!(driver.parts().get("r.1.kek-1", &server.file("back"), 100).unwrap(), stored);
}

#[test]
fn what_is_not_permitted_is_said_and_not_waited_for() {
    let Some(server) = with_permissions() else { return };
    Nats::connect(&server.user("driver", "d")).unwrap().setup().unwrap();
    let agent = Nats::connect(&server.user("kek-1", "k")).unwrap();
    let results = [
        agent.subscribe("h2lab.agent.kek-2.to.>", |_, _| {}).map(drop),
        agent.cells().waiting("r").map(drop),
        agent.cells().add("r", 0, 1, Vec::new()),
        agent.parts().names("").map(drop),
        agent.runs().put("r", Vec::new()),
        agent.reports().add("r", 1, "kek-2", Vec::new()),
        agent.setup(),
    ];
    for result in results {
        assert!(matches!(result, Err(NatsError::Denied { .. })), "{result:?}");
    }
}

#[test]
fn a_message_that_is_not_permitted_is_an_event() {
    let Some(server) = with_permissions() else { return };
    let agent = Nats::connect(&server.user("kek-1", "k")).unwrap();
    let (events, happened) = mpsc::channel();
    agent.on_event(move |event| drop(events.send(event)));
    agent.publish("h2lab.agent.kek-2.from.1", Vec::new()).unwrap();
    let denied = Event::Denied { subject: "h2lab.agent.kek-2.from.1".into() };
    while happened.recv_timeout(DEADLINE).unwrap() != denied {}
    assert!(agent.is_connected());
}

#[test]
fn a_user_who_may_not_read_his_answers_is_told_so() {
    let Some(server) = with_permissions() else { return };
    let deaf = Nats::connect(&server.user("deaf", "n")).unwrap();
    match deaf.runs().all() {
        Err(NatsError::Denied { subject }) => assert_eq!(&*subject, "_INBOX_deaf.>"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_published_is_known_to_be_taken_even_by_who_may_not_publish_to_his_inbox() {
    let Some(server) = with_permissions() else { return };
    let mute = Nats::connect(&server.user("mute", "m")).unwrap();
    let (events, happened) = mpsc::channel();
    mute.on_event(move |event| drop(events.send(event)));
    let (_subscription, messages) = received(&mute, "a");
    mute.publish("a", b"x".to_vec()).unwrap();
    mute.flush(DEADLINE).unwrap();
    assert!(messages.recv_timeout(DEADLINE).is_ok());
    let is_denial = |event: Event| matches!(event, Event::Denied { .. });
    assert!(!happened.try_iter().any(is_denial));
}

#[test]
fn wrong_credentials_are_refused_at_once() {
    let Some(server) = with_permissions() else { return };
    for options in [server.user("kek-1", "wrong"), server.options("kek-1")] {
        let error = refused(&options);
        assert!(matches!(error, NatsError::Refused { .. }), "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
}

#[test]
fn a_token_is_taken() {
    let Some(server) = Server::with("authorization { token: \"t\" }") else { return };
    let with = |token: &str| ServerOptions { token: Some(token.to_owned()), ..server.options("test") };
    assert!(Nats::connect(&with("t")).is_ok());
    assert!(matches!(refused(&with("u")), NatsError::Refused { .. }));
}

#[test]
fn a_server_without_jetstream_says_so() {
    let Some(server) = Server::with("") else { return };
    let nats = server.connect();
    let path = server.file("part");
    std::fs::write(&path, b"x").unwrap();
    let results = [
        nats.setup(),
        nats.runs().all().map(drop),
        nats.reports().add("r", 1, "kek-1", Vec::new()),
        nats.cells().take("r", 0, DEADLINE).map(drop),
        put(&nats.parts(), "a", &path).map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(NatsError::NoJetStream)), "{result:?}");
    }
}

/// An authority, and the certificate that it signs: PEM of the authority, the certificate, its key.
fn certificate(name: &str) -> (String, String, String) {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, format!("authority of {name}"));
    let authority =
        rcgen::CertifiedIssuer::self_signed(parameters, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = parameters.signed_by(&key, &authority).unwrap();
    (authority.pem(), certificate.pem(), key.serialize_pem())
}

#[test]
fn tls_is_checked_at_both_ends() {
    let ((server_ca, server_pem, server_key), (client_ca, client_pem, client_key)) =
        (certificate("server"), certificate("client"));
    let files = [
        ("server_ca.pem", server_ca),
        ("server.pem", server_pem),
        ("server.key", server_key),
        ("client_ca.pem", client_ca),
        ("client.pem", client_pem),
        ("client.key", client_key),
    ];
    let config = "tls { cert_file: \"FOLDER/server.pem\", key_file: \"FOLDER/server.key\", \
                  ca_file: \"FOLDER/client_ca.pem\", verify: true }";
    let Some(server) = Server::with_files(config, &files) else { return };
    let identity = Some((server.file("client.pem"), server.file("client.key")));
    let good = ServerOptions { ca: Some(server.file("server_ca.pem")), identity, ..server.options("test") };
    Nats::connect(&good).unwrap().flush(DEADLINE).unwrap();
    // A server that only tells of TLS gets it as well.
    let plain = ServerOptions { servers: vec![format!("nats://127.0.0.1:{}", server.port)], ..good.clone() };
    Nats::connect(&plain).unwrap().flush(DEADLINE).unwrap();

    let other_authority = ServerOptions { ca: Some(server.file("client_ca.pem")), ..good.clone() };
    let error = refused(&other_authority);
    assert!(matches!(error, NatsError::Tls { .. }), "{error}");
    // How far the handshake has come when the server ends it differs, and with it whether TLS or the socket says so.
    let nobody = ServerOptions { identity: None, timeout: Duration::from_secs(2), ..good };
    let error = refused(&nobody);
    assert!(matches!(error, NatsError::Tls { .. } | NatsError::Unreachable { .. }), "{error}");
}
