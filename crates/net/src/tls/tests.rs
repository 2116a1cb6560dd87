//! Two sessions, one on each side, without a socket between them.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::crypto::{GetRandomFailed, SecureRandom, aws_lc_rs};
use rustls::server::Acceptor;

use super::*;
use crate::tcp::Read;

/// All ciphertext that a session has to send.
fn ciphertext(session: &mut TlsSession) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.wants_send() {
        session.send(&mut bytes).unwrap();
    }
    bytes
}

/// Moves ciphertext both ways until neither side has any.
fn shuttle(a: &mut TlsSession, b: &mut TlsSession) -> Result<(), TlsError> {
    loop {
        let mut moved = false;
        for _ in 0..2 {
            let bytes = ciphertext(a);
            moved |= !bytes.is_empty();
            let taken = b.receive(&bytes)?;
            assert_eq!(taken, bytes.len());
            std::mem::swap(a, b);
        }
        if !moved {
            return Ok(());
        }
    }
}

fn trust(server: &ServerTls) -> TlsOptions {
    TlsOptions { ca_pem: Some(server.certificate_pem().as_bytes().to_vec()), ..TlsOptions::default() }
}

fn trusting(server: &ServerTls, alpn: &'static str) -> ClientTls {
    let options = trust(server);
    ClientTls::new("localhost", alpn, &options).unwrap()
}

#[test]
fn plaintext_crosses_both_ways_after_the_handshake() {
    let server = ServerTls::self_signed(&["localhost"], &["h2", "http/1.1"]).unwrap();
    let (mut client, mut server) = (trusting(&server, "h2").session().unwrap(), server.session().unwrap());
    assert_eq!(client.write(b"too early").unwrap(), 0);
    shuttle(&mut client, &mut server).unwrap();
    assert_eq!((client.alpn(), server.alpn()), (Some(&b"h2"[..]), Some(&b"h2"[..])));
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut client, &mut server];
        assert_eq!(ends[from].write(b"over the wire").unwrap(), 13);
        let bytes = ciphertext(ends[from]);
        ends[to].receive(&bytes).unwrap();
        let mut space = [0; 32];
        assert_eq!(ends[to].read(&mut space).unwrap(), Read::Bytes(13));
        assert_eq!(&space[..13], b"over the wire");
        assert_eq!(ends[to].read(&mut space).unwrap(), Read::WouldBlock);
    }
}

#[test]
fn both_versions_of_tls_begin_with_aes_128_gcm() {
    let suites = provider().unwrap().cipher_suites;
    assert_eq!(suites.len(), aws_lc_rs::default_provider().cipher_suites.len());
    let first = |is_13: bool| suites.iter().find(|suite| suite.tls13().is_some() == is_13).unwrap().suite();
    assert_eq!(first(true), CipherSuite::TLS13_AES_128_GCM_SHA256);
    assert_eq!(first(false), CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    assert!(suites[0].tls13().is_some());
    let server = ServerTls::self_signed(&["localhost"], &["h2"]).unwrap();
    let (mut client, mut server) = (trusting(&server, "h2").session().unwrap(), server.session().unwrap());
    shuttle(&mut client, &mut server).unwrap();
    assert_eq!(client.facts().unwrap().cipher.unwrap(), "TLS_AES_128_GCM_SHA256");
}

#[test]
fn more_than_the_session_holds_is_taken_in_pieces() {
    let server = ServerTls::self_signed(&["localhost"], &["h2"]).unwrap();
    let (mut client, mut server) = (trusting(&server, "h2").session().unwrap(), server.session().unwrap());
    shuttle(&mut client, &mut server).unwrap();
    let sent = vec![42; 60_000];
    assert_eq!(client.write(&sent).unwrap(), sent.len());
    let cipher = ciphertext(&mut client);
    let (mut at, mut plain, mut space) = (0, Vec::new(), vec![0; 16_384]);
    while at < cipher.len() {
        at += server.receive(&cipher[at..]).unwrap();
        while let Read::Bytes(n) = server.read(&mut space).unwrap() {
            plain.extend_from_slice(&space[..n]);
        }
    }
    assert_eq!(plain, sent);
}

#[test]
fn an_unknown_certificate_is_refused_unless_configured_otherwise() {
    let (server, other) = (
        ServerTls::self_signed(&["localhost"], &["h2"]).unwrap(),
        ServerTls::self_signed(&["localhost"], &["h2"]).unwrap(),
    );
    let error = shuttle(&mut trusting(&other, "h2").session().unwrap(), &mut server.session().unwrap());
    assert!(matches!(error, Err(TlsError::Certificate(_))), "{error:?}");
    let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
    let client = ClientTls::new("localhost", "h2", &insecure).unwrap();
    shuttle(&mut client.session().unwrap(), &mut server.session().unwrap()).unwrap();
}

#[test]
fn a_server_without_our_protocol_is_an_error_and_no_fallback() {
    let server = ServerTls::self_signed(&["localhost"], &["http/1.1"]).unwrap();
    let mut client = trusting(&server, "h2").session().unwrap();
    let mut session = server.session().unwrap();
    let hello = ciphertext(&mut client);
    assert!(session.receive(&hello).is_err());
    let alert = ciphertext(&mut session);
    let error = client.receive(&alert).unwrap_err();
    assert!(matches!(error, TlsError::Alpn { .. }), "{error:?}");
}

#[test]
fn a_server_that_knows_no_alpn_speaks_http_1_1_only() {
    let server = ServerTls::self_signed(&["localhost"], &[]).unwrap();
    shuttle(&mut trusting(&server, "http/1.1").session().unwrap(), &mut server.session().unwrap()).unwrap();
    let error = shuttle(&mut trusting(&server, "h2").session().unwrap(), &mut server.session().unwrap());
    assert!(matches!(error, Err(TlsError::Alpn { .. })), "{error:?}");
}

#[test]
fn an_http_answer_is_recognised_as_no_tls() {
    let server = ServerTls::self_signed(&["localhost"], &[]).unwrap();
    let mut client = trusting(&server, "h2").session().unwrap();
    assert_eq!(client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(TlsError::NotTls));
    let mut session = server.session().unwrap();
    assert_eq!(session.receive(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"), Err(TlsError::NotTls));
}

#[test]
fn an_empty_ca_file_is_refused_by_name() {
    let options = TlsOptions { ca_pem: Some(b"not a certificate".to_vec()), ..TlsOptions::default() };
    assert!(matches!(ClientTls::new("localhost", "h2", &options), Err(TlsError::Authority(_))));
    assert!(matches!(ClientTls::new("no spaces", "h2", &TlsOptions::default()), Err(TlsError::Name(_))));
}

/// A connection of `client` to `server`; whether either side says that it was resumed.
fn resumes(client: &ClientTls, server: &ServerTls) -> bool {
    let (mut client, mut server) = (client.session().unwrap(), server.session().unwrap());
    assert_eq!(client.is_resumed(), None, "nobody knows yet");
    shuttle(&mut client, &mut server).unwrap();
    assert_eq!(client.is_resumed(), server.is_resumed());
    client.is_resumed().unwrap()
}

#[test]
fn a_second_connection_resumes_unless_either_side_does_not_want_it() {
    for (client_full, server_full) in [(false, false), (true, false), (false, true)] {
        let options = ServerTlsOptions { full_handshakes: server_full, ..ServerTlsOptions::default() };
        let server = ServerTls::new(&options, &["localhost"], &["h2"]).unwrap();
        let options = TlsOptions { full_handshakes: client_full, ..trust(&server) };
        let client = ClientTls::new("localhost", "h2", &options).unwrap();
        assert!(!resumes(&client, &server), "the first has nothing to resume");
        let wanted = !client_full && !server_full;
        assert_eq!(resumes(&client, &server), wanted, "{client_full} {server_full}");
        assert_eq!(resumes(&client.clone(), &server), wanted, "clones share the sessions");
    }
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_accepted_from_who_is_trusted_by_it_alone() {
    let shown = || {
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificates_pem = parameters.self_signed(&key).unwrap().pem();
        Identity { certificates_pem, key_pem: key.serialize_pem() }
    };
    let (own, other) = (shown(), shown());
    let options = ServerTlsOptions { identity: Some(own.clone()), ..ServerTlsOptions::default() };
    let server = ServerTls::new(&options, &[], &["h2"]).unwrap();
    let connect = |trusted: &[&Identity], name: &str| {
        let pem: String = trusted.iter().map(|identity| identity.certificates_pem.as_str()).collect();
        let options = TlsOptions { ca_pem: Some(pem.into_bytes()), ..TlsOptions::default() };
        let client = ClientTls::new(name, "h2", &options).unwrap();
        shuttle(&mut client.session().unwrap(), &mut server.session().unwrap())
    };
    connect(&[&own], "localhost").unwrap();
    connect(&[&other, &own], "localhost").unwrap();
    for refused in [connect(&[&own], "elsewhere.test"), connect(&[&other], "localhost")] {
        let error = refused.unwrap_err();
        assert!(matches!(error, TlsError::Certificate(_)), "{error:?}");
        assert!(!error.to_string().contains("CaUsedAsEndEntity"), "{error}");
    }
}

#[test]
fn a_certificate_that_is_trusted_by_itself_needs_no_issuer_and_may_name_its_host_by_its_common_name() {
    let authority = Authority::new();
    let signed = |parameters: rcgen::CertificateParams| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &authority.0).unwrap();
        Identity { certificates_pem: certificate.pem(), key_pem: key.serialize_pem() }
    };
    let named = |names: &[&str], common_name: &str| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, common_name);
        parameters
    };
    let connect = |shown: &Identity, trusted: &str, name: &str| {
        let options = ServerTlsOptions { identity: Some(shown.clone()), ..ServerTlsOptions::default() };
        let server = ServerTls::new(&options, &[], &["h2"]).unwrap();
        let options = TlsOptions { ca_pem: Some(trusted.as_bytes().to_vec()), ..TlsOptions::default() };
        let client = ClientTls::new(name, "h2", &options).unwrap();
        shuttle(&mut client.session().unwrap(), &mut server.session().unwrap())
    };
    let by_itself = |shown: &Identity, name: &str| connect(shown, &shown.certificates_pem, name);
    let leaf = signed(named(&["localhost", "127.0.0.1"], "elsewhere.test"));
    by_itself(&leaf, "localhost").unwrap();
    let error = by_itself(&leaf, "elsewhere.test").expect_err("it has a subjectAltName, which alone counts");
    assert!(error.to_string().contains("only valid for localhost or 127.0.0.1; "), "{error}");
    connect(&leaf, &signed(named(&["localhost"], "x")).certificates_pem, "localhost")
        .expect_err("another one");

    let nameless = signed(named(&[], "localhost"));
    by_itself(&nameless, "localhost").unwrap();
    by_itself(&nameless, "LOCALHOST").unwrap();
    by_itself(&nameless, "elsewhere.test").expect_err("another name");
    let error = connect(&nameless, &authority.0.pem(), "localhost").unwrap_err().to_string();
    assert!(error.contains("no subjectAltName"), "an authority's certificates have one: {error}");

    let mut expired = named(&["localhost"], "localhost");
    (expired.not_before, expired.not_after) =
        (rcgen::date_time_ymd(2001, 1, 1), rcgen::date_time_ymd(2002, 1, 1));
    let error = by_itself(&signed(expired), "localhost").unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

/// An authority and what it signs.
struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        Self(rcgen::CertifiedIssuer::self_signed(parameters, key).unwrap())
    }

    fn sign(&self, name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Identity { certificates_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }
}

#[test]
fn a_server_that_asks_who_we_are_takes_its_authoritys_certificates_only() {
    let (ours, other) = (Authority::new(), Authority::new());
    let options = ServerTlsOptions {
        identity: Some(ours.sign("localhost")),
        client_ca_pem: Some(ours.0.pem().into_bytes()),
        ..ServerTlsOptions::default()
    };
    let server = ServerTls::new(&options, &[], &["h2"]).unwrap();
    let connect = |identity| {
        let ca_pem = Some(ours.0.pem().into_bytes());
        let options = TlsOptions { ca_pem, identity, ..TlsOptions::default() };
        let client = ClientTls::new("localhost", "h2", &options).unwrap();
        let (mut client, mut server) = (client.session().unwrap(), server.session().unwrap());
        while client.is_handshaking() {
            let hello = ciphertext(&mut client);
            server.receive(&hello).unwrap();
            let answer = ciphertext(&mut server);
            client.receive(&answer).unwrap();
        }
        // Only now does the server see our certificate, and we its reaction.
        let finished = ciphertext(&mut client);
        let refused = server.receive(&finished).is_err();
        let reported = client.receive(&ciphertext(&mut server));
        assert_eq!(refused, reported.is_err());
        reported.map(drop)
    };
    assert_eq!(connect(Some(ours.sign("client"))), Ok(()));
    assert_eq!(connect(None), Err(TlsError::ClientCertificateRequired));
    let error = connect(Some(other.sign("client")));
    assert!(matches!(error, Err(TlsError::ClientCertificateRefused(_))), "{error:?}");
}

#[test]
fn certificates_and_keys_that_are_of_no_use_are_distinguished() {
    let authority = Authority::new();
    let (good, other) = (authority.sign("a"), authority.sign("b"));
    let check = |certificates: &str, key: &str| {
        Identity { certificates_pem: certificates.to_owned(), key_pem: key.to_owned() }.check()
    };
    assert_eq!(good.check(), Ok(()));
    assert_eq!(check(&good.certificates_pem, &other.key_pem), Err(TlsError::KeyMismatch));
    assert!(matches!(check("none", &good.key_pem), Err(TlsError::Identity(_))));
    assert!(matches!(check(&good.certificates_pem, "none"), Err(TlsError::Key(_))));
    let encrypted = good.key_pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let error = check(&good.certificates_pem, &encrypted).unwrap_err().to_string();
    assert!(error.contains("openssl pkey"), "{error}");
    assert!(!format!("{good:?}").contains("PRIVATE"), "a key is never printed");
}

#[test]
fn names_are_sent_as_sni_and_addresses_are_not() {
    for (name, sent) in [("a.example", Some("a.example")), ("127.0.0.1", None), ("::1", None)] {
        let options = TlsOptions { insecure: true, ..TlsOptions::default() };
        let mut session = ClientTls::new(name, "h2", &options).unwrap().session().unwrap();
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut ciphertext(&mut session).as_slice()).unwrap();
        let accepted = acceptor.accept().unwrap().expect("the whole ClientHello");
        assert_eq!(accepted.client_hello().server_name(), sent);
    }
}

/// Counts the draws.
#[derive(Debug)]
struct Counting(AtomicUsize);

impl SecureRandom for Counting {
    fn fill(&self, _: &mut [u8]) -> Result<(), GetRandomFailed> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn randomness_is_drawn_before_the_first_handshake_begins() {
    static RANDOM: Counting = Counting(AtomicUsize::new(0));
    let provider = CryptoProvider { secure_random: &RANDOM, ..aws_lc_rs::default_provider() };
    seeded(provider).unwrap();
    assert_eq!(RANDOM.0.load(Ordering::Relaxed), 1);
}
