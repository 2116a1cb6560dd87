//! Tests that drive the `h2lab` binary as a user does: real sockets, real namespaces, real servers.
//!
//! No test depends on timing: figures belong to `cargo xtask verify`. A test whose program is missing fails with
//! the line that installs it (`support::need`).

/// Helpers: where the binary is, running it with a deadline, programs that a test needs. No tests.
mod support;

/// What ships for agents over NATS, and the commands and permissions of docs/agents.md.
#[cfg(feature = "nats")]
mod agents_packaging;

/// `h2lab bulk`: large files over every protocol, interrupted, resumed, checked.
mod bulk;

/// What slow requests waited for: `--causes`.
mod causes;

/// `h2lab probe client`: clients that are not ours, graded.
mod client_under_test;

/// Mistakes of users and broken input: one clear error, the right exit code, never a panic. A new kind of bad input
/// goes here.
mod cli_errors;

/// h2spec and h2specd: every case of both.
mod conformance;

/// curl as an independent client. No tests.
mod curl;

/// Defects of other load generators that `load` does not have.
mod defects;

/// The commands of README.md and docs/, run as they are written.
mod documented;

/// Processes of a measurement that are killed or stopped while it runs: none of that becomes a verdict.
mod disturbed;

/// Runs that end before their plan does, cells that cannot be measured, several runs in one report.
mod endings;

/// The flags that every command which makes requests has.
mod flags;

/// Clients that attack the origin while another one keeps being served.
mod hostile;

/// The hostile servers of `cargo xtask verify faults`, which are instances of a sidecar here. No tests but that their rows are understood.
#[path = "../../examples/hostile/main.rs"]
#[expect(dead_code, reason = "what makes a program of one of them")]
mod hostile_servers;

/// Programs in Go that are built for a test. No tests.
mod go;

/// Header compression against nghttp2's.
mod hpack;

/// `h2lab link`: arbitrary programs at both ends of the emulated link.
mod link;

/// `h2lab diagnose --config`: a configuration of the user's in the lab.
mod own_config;

/// `h2lab load`, the load generator.
mod load;

/// Proxies with a limit of requests per connection: the shipped scenarios, made short.
mod keepalive;

/// What a load reports while it runs: `--prometheus`, `--dump`.
mod load_beside;

/// The files of `load -o`, read by programs that are not ours.
mod load_files;

/// `runs` and `report A B`: what is kept of loads, and whether two differ.
mod load_history;

/// `h2lab diagnose`: the same work with one setting changed at a time.
mod diagnose;

/// `h2lab diagnose --run`: what a client's connections show.
mod diagnosed_client;

/// What `load` sends, to which address, and when it times out.
mod load_requests;

/// Nothing outlives us: namespaces, processes, after every way to end.
mod leftovers;

/// The built-in server, met by clients that are not ours.
mod origin;

/// Text of peers and of foreign files is printable, wherever it is shown.
mod printable;

/// What ships beside the program: CI templates, completions, scenarios.
mod packaging;

/// `h2lab probe`: limits, readiness, attacks, the target authorization before them.
mod probe;

/// Agents over NATS: loads, runs and transfers by several of them, what they refuse, and what goes wrong.
#[cfg(feature = "nats")]
mod nats;

/// The same run as root, as a user without any privilege, and where nothing is allowed.
mod privileges;

/// Parts of HTTP/2 that few use: push, trailers, padding, with implementations that are not ours at the other end.
mod http2;

/// HTTP/3: our client and our origin with each other, with quic-go's, and over the emulated link.
mod http3;

/// The HTML report in a real browser.
mod report_html;

/// Packets that `h2lab_link` writes for Wireshark, as tshark reads them.
mod pcapng;

/// Packets captured at the link: `--pcap` of runs and of `link`.
mod pcap;

/// Servers that are not ours, as peers of our client. No tests.
mod peers;

/// `h2lab load` against servers that do all but answer, and at a scale; every request is accounted for.
mod robust;

/// What is generated from the program and checked in: it must not lag behind.
#[cfg(feature = "schema")]
mod generated;

/// HTTP/2 in clear by `Upgrade: h2c`, both sides, each against implementations that are not ours.
mod upgrade;

/// What root still may do once it measures, and whose its files are.
mod rights;

/// Runs that were killed or interrupted, and resumed.
mod resume;

/// Secrets that commands are given stay out of what they write.
mod secrets;

/// The study of sidecars on lossy links, in small.
mod study;

/// `h2lab probe smuggling`: real proxies, configured to be safe and not.
mod smuggling;

/// The sidecar between clients, servers and peers that misbehave.
mod sidecar;
mod sidecar_pool;

/// Attempts of the sidecar that take too long, checks of busy instances, names without an address yet.
mod sidecar_attempts;

/// Where the sidecar listens: addresses that overlap, in one configuration and across a reload.
mod sidecar_addresses;

/// How many clients the sidecar has at a time.
mod sidecar_clients;

/// How many streams the sidecar begins on a connection that has not said how many it takes.
mod sidecar_streams;

/// What the sidecar says of certificates that expire, and of files that are none.
mod sidecar_certificates;

/// What the sidecar logs and counts beside requests that end well.
mod sidecar_logged;

/// Instances that were said to speak HTTP/2 and close the connection.
mod sidecar_fallback;

/// What the sidecar does about instances that fail, callers that are too many, and its own memory.
mod sidecar_guard;

/// Instances that fail in ways that look like success, and when they are checked.
mod sidecar_outcomes;

/// Instances that stand in for others of the sidecar's, and which are reachable.
mod sidecar_backup;

/// The end of a sidecar, and its successor.
mod sidecar_handover;

/// Clients of a sidecar that another one replaces.
mod sidecar_handed_over;

/// What the sidecar tells its clients early.
mod sidecar_hints;

/// The sidecar and each version's own means.
mod sidecar_protocol;

/// HTTP/3 on either side of the sidecar.
mod sidecar_http3;

/// The sidecar under attack, and by the suites that the field goes by.
mod sidecar_attacks;

/// Clients that attack it over both listeners at once.
mod sidecar_attackers;

/// Instances that attack it.
mod sidecar_instances;

/// Our own probes against it.
mod sidecar_probed;

/// Requests that an instance does not take, and how many connections are dialled.
mod sidecar_dials;

/// Certificates on both sides of it, and ALPN of instances.
mod sidecar_mutual;

/// Bounds of the sidecar: memory, early answers, what is too much for an instance.
mod sidecar_bounds;

/// Clients and servers that nobody changed, through one sidecar and through two.
mod sidecar_callers;

/// A pair of sidecars whose instances are disturbed: every request is accounted for.
mod sidecar_soak;

/// HTTP/2 by `Upgrade: h2c` at its listener.
mod sidecar_upgrade;

/// Which host its instances are asked for.
mod sidecar_host;

/// Health checks of instances whose connections are all in use.
mod sidecar_checks;

/// Instances whose name has several addresses.
mod sidecar_names;

/// Requests that are refused or read in one way only, and what instances are told of connections.
mod sidecar_requests;

/// Registries that name instances without an address.
mod sidecar_unresolved;

/// Uploads to an instance that reads slowly.
mod sidecar_upload;

/// Instances by the records of a name server.
mod sidecar_srv;

/// Connections that rules of netfilter bring to the sidecar.
mod sidecar_transparent;

/// What a sidecar gives up once it runs.
mod sidecar_confined;

/// What a sidecar does where the system has no more of what it needs.
mod sidecar_scarce;

/// What the sidecar tells of its work: log, traces, admin listener, diagnosis.
mod sidecar_admin;

/// What it says of limits of its instances.
mod sidecar_diagnosed;

/// Instances of a sidecar that appear and disappear: files, DNS, Consul.
mod sidecar_registry;

/// A sidecar whose configuration changes while it runs.
mod sidecar_reload;

/// The sidecar and what stands on the wire.
mod sidecar_wire;

/// The same beside what protects services.
mod sidecar_reload_guard;

/// What a reload keeps, and what it replaces.
mod sidecar_reload_state;

/// A sidecar with several threads: what is bounded is bounded for all of them together.
mod sidecar_threads;

/// What a sidecar says: of its file, its flags, and how it ends.
mod sidecar_texts;

/// Kernel settings of either side: in force, reported, refused.
mod sysctls;

/// Real servers: configured, started, ready, gone.
mod sut;

/// Sidecars beside the client and at both ends of the link.
mod topologies;

/// TLS as users set it up: certificates of their own, resumption, mistakes.
mod tls;

/// `h2lab timeline` and studies of timelines: our origin, and along real proxies.
mod timeline;

/// What a terminal gets: lines that fit, characters that its locale has, nothing that stays of progress.
mod terminal;

/// `h2lab trace`: what it shows of connections that end, of secrets, of servers that fall silent.
mod trace;

/// The Tap's frames against those that tshark decodes of a capture.
mod tshark;

/// What people type who know other tools, and the exit codes that scripts rely on.
mod typed;
mod unread;

/// Windows that are held back, by memory and by tunnels.
mod windows;
