//! Our own origin, started as an ordinary server: the same program in another role, in a process of its own.

use std::net::SocketAddr;

use h2lab_base::units::format_exact;
use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::{EngineSettings, Protocol};
use rustix::process::Signal;

use super::early::Page;
use super::error::SutError;
use super::kind::{
    About, BulkServer, Endpoints, Launch, MAX_CONCURRENT_STREAMS, Ports, Program, Ready, Site, StartOptions,
    Sut, VersionQuery,
};

/// See the [module](self).
#[derive(Debug)]
pub struct Origin;

impl Sut for Origin {
    fn about(&self) -> About {
        About {
            name: "origin",
            program: Program::Ourselves,
            version: VersionQuery { arguments: &["--version"], read: |line| line.strip_prefix("h2lab ") },
            is_proxy: false,
            has_hints_switch: false,
            ready: Ready::Addresses(listens),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    /// Its handlers decide what they announce, and when.
    fn pages(&self) -> Vec<Page> {
        let page = |announcement, setting, path: &str| Page {
            source: PageSource::Handler,
            announcement,
            setting,
            path: path.to_owned(),
        };
        vec![
            page(Announcement::Link, "on=final, push=final", "/early?at=none&on=final&push=final&links=2"),
            page(Announcement::Early, "push=request", "/early?at=none&on=none&push=request&links=2"),
            page(Announcement::Early, "103, push=interim", "/early?push=interim&links=2"),
        ]
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        let ports = site.ports;
        let arguments = match &options.bulk {
            Some(bulk) => bulk_arguments(ports, options, bulk),
            None => arguments(ports, options),
        };
        Ok(Launch { files: Vec::new(), check: Vec::new(), arguments, endpoints: Endpoints::new() })
    }
}

/// What it counts is for the lab's record.
const COUNTS: &str = "--counts";

/// The command line of the origin with its paths for tests and comparisons.
fn arguments(ports: Ports, options: &StartOptions) -> Vec<String> {
    let listen = |port| SocketAddr::new(options.ip, port).to_string();
    let mut arguments = vec![
        "origin".to_owned(),
        format!("--listen={}", listen(ports.h1)),
        format!("--tls-listen={}", listen(ports.tls)),
        format!("--max-concurrent-streams={MAX_CONCURRENT_STREAMS}"),
        "--h2c-upgrade".to_owned(), // for cells whose mode is `upgrade`
        COUNTS.to_owned(),
    ];
    arguments.extend(options.engine.iter().flat_map(engine_flags));
    if options.is_stand_in {
        arguments.push("--any-path".to_owned());
    }
    if let Some(requests) = options.max_requests_per_connection {
        arguments.push(format!("--max-requests-per-connection={requests}"));
    }
    if let Some(h3) = &options.h3 {
        arguments.extend(["--h3", "--quic-samples"].map(str::to_owned));
        arguments.extend(h3.congestion.iter().map(|name| format!("--quic-congestion={name}")));
    }
    arguments
}

/// Whether every socket listens. It prints a line per socket when all of them do; the line for TLS over TCP comes last.
pub(super) fn listens(line: &str, endpoints: &mut Endpoints) -> bool {
    let Some((scheme, address)) = line.strip_prefix("listening ").and_then(|url| url.split_once("://"))
    else {
        return false;
    };
    let (address, is_h3) = match address.strip_suffix(" h3") {
        Some(address) => (address, true),
        None => (address, false),
    };
    let Ok(address) = address.trim_end_matches('/').parse::<SocketAddr>() else { return false };
    if scheme == Protocol::Tcp.name() {
        endpoints.insert(Protocol::Tcp, address);
        return true;
    }
    let protocols: &[Protocol] = match scheme {
        "http" => &[Protocol::H1, Protocol::H2c],
        _ if is_h3 => &[Protocol::H3],
        _ => &[Protocol::H1s, Protocol::H2],
    };
    endpoints.extend(protocols.iter().map(|protocol| (*protocol, address)));
    Protocol::OVER_TCP.iter().all(|protocol| endpoints.contains_key(protocol))
}

/// Minimum bytes that a server of bulk data writes at once.
const LEAST_CHUNK: u32 = 64 << 10;

/// The command line of the origin as a server of bulk data.
fn bulk_arguments(ports: Ports, options: &StartOptions, bulk: &BulkServer) -> Vec<String> {
    let listen = |port| SocketAddr::new(options.ip, port).to_string();
    let congestion = bulk.congestion.as_ref();
    if bulk.is_raw {
        let name = congestion.map(|name| format!("--congestion={name}"));
        return ["__tcp".to_owned(), listen(ports.h1)].into_iter().chain(name).collect();
    }
    let mut arguments = vec![
        "bulk".to_owned(),
        "serve".to_owned(),
        "--memory".to_owned(),
        format!("--listen={}", listen(ports.h1)),
        format!("--tls-listen={}", listen(ports.tls)),
        COUNTS.to_owned(),
    ];
    arguments.extend(options.engine.iter().flat_map(engine_flags));
    // The client limits the frames that it may be sent; the length of frames that it accepts itself is another setting,
    // and changes nothing else.
    let chunk = bulk.client_frame.unwrap_or(0).max(LEAST_CHUNK);
    arguments.push(format!("--chunk={chunk}"));
    arguments.extend(options.h3.as_ref().map(|_| "--h3".to_owned()));
    let of_quic = options.h3.as_ref().and_then(|h3| h3.congestion.as_ref());
    arguments.extend(congestion.or(of_quic).map(|name| format!("--congestion={name}")));
    arguments
}

/// Settings of the engine as flags.
fn engine_flags(settings: &EngineSettings) -> impl Iterator<Item = String> {
    let EngineSettings {
        stream_window,
        connection_window,
        auto_window,
        window_update_threshold,
        window_update_bytes,
        max_frame_size,
        window_budget,
        no_coalesce,
        keep_alive,
        encoder_header_table_size,
        no_huffman,
        push: _,           // the client's
        await_settings: _, // likewise
    } = settings;
    let flags = [
        stream_window.map(|bytes| format!("--stream-window={bytes}")),
        connection_window.map(|bytes| format!("--connection-window={bytes}")),
        auto_window.map(|bytes| format!("--auto-window={bytes}")),
        window_update_threshold.map(|percent| format!("--window-update-threshold={percent}")),
        window_update_bytes.map(|bytes| format!("--window-update-bytes={bytes}")),
        max_frame_size.map(|bytes| format!("--max-frame-size={bytes}")),
        window_budget.map(|bytes| format!("--window-budget={bytes}")),
        no_coalesce.then(|| "--no-coalesce".to_owned()),
        keep_alive.map(|time| format!("--keep-alive={}", format_exact(time))),
        encoder_header_table_size.map(|bytes| format!("--encoder-header-table-size={bytes}")),
        no_huffman.then(|| "--no-huffman".to_owned()),
    ];
    flags.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::options;
    use super::*;

    #[test]
    fn it_is_ready_when_both_sockets_have_reported_their_address() {
        let mut endpoints = Endpoints::new();
        assert!(!listens("error: something else", &mut endpoints));
        assert!(!listens("listening http://10.9.0.2:8080", &mut endpoints));
        assert!(listens("listening https://[fd00::2]:8443", &mut endpoints));
        assert_eq!(endpoints[&Protocol::H2c], "10.9.0.2:8080".parse().unwrap());
        assert_eq!(endpoints[&Protocol::H2], "[fd00::2]:8443".parse().unwrap());
        assert!(!endpoints.contains_key(&Protocol::H3));
    }

    #[test]
    fn where_it_speaks_http_3_is_reported_before_it_is_ready() {
        let mut endpoints = Endpoints::new();
        assert!(!listens("listening http://10.9.0.2:8080", &mut endpoints));
        assert!(!listens("listening https://10.9.0.2:8443 h3", &mut endpoints));
        assert!(listens("listening https://10.9.0.2:8443", &mut endpoints));
        assert_eq!(endpoints[&Protocol::H3], endpoints[&Protocol::H2]);
    }

    #[test]
    fn what_is_wanted_is_passed_on_and_nothing_else() {
        let mut options = options();
        let site = Site { folder: Path::new("x"), ports: Ports::LAB, upstream: None };
        let arguments = |options: &StartOptions| Origin.launch(site, options).unwrap().arguments;
        assert!(!arguments(&options).iter().any(|argument| argument.contains("max-requests")));
        assert!(
            !arguments(&options).iter().any(|argument| argument.contains("h3") || argument.contains("quic"))
        );
        options.h3 = Some(super::super::kind::H3 { congestion: Some("bbr".to_owned()) });
        assert!(
            arguments(&options)
                .ends_with(&["--h3", "--quic-samples", "--quic-congestion=bbr"].map(str::to_owned))
        );
        options.max_requests_per_connection = Some(7);
        assert!(arguments(&options).contains(&"--max-requests-per-connection=7".to_owned()));
        assert!(!arguments(&options).contains(&"--any-path".to_owned()));
        options.is_stand_in = true;
        assert!(arguments(&options).contains(&"--any-path".to_owned()));
        options.engine = Some(EngineSettings {
            no_coalesce: true,
            encoder_header_table_size: Some(0),
            no_huffman: true,
            ..EngineSettings::default()
        });
        for flag in ["--no-coalesce", "--encoder-header-table-size=0", "--no-huffman"] {
            assert!(arguments(&options).contains(&flag.to_owned()), "{flag}");
        }
        let bulk = StartOptions { bulk: Some(BulkServer::default()), ..options };
        assert!(arguments(&bulk).contains(&COUNTS.to_owned()), "a server of bulk data counts as well");
    }

    #[test]
    fn a_server_of_bulk_data_writes_as_much_at_once_as_its_client_lets_in() {
        let chunk = |client_frame, server_frame| {
            let engine = EngineSettings { max_frame_size: server_frame, ..EngineSettings::default() };
            let bulk = BulkServer { client_frame, ..BulkServer::default() };
            let options = StartOptions { engine: Some(engine), bulk: Some(bulk), ..options() };
            let site = Site { folder: Path::new("x"), ports: Ports::LAB, upstream: None };
            let arguments = Origin.launch(site, &options).unwrap().arguments;
            arguments.iter().find_map(|word| word.strip_prefix("--chunk=").map(str::to_owned)).unwrap()
        };
        assert_eq!([chunk(None, None), chunk(Some(16_384), None), chunk(None, Some(1 << 20))], ["65536"; 3]);
        assert_eq!(chunk(Some((1 << 24) - 1), None), "16777215");
    }
}
