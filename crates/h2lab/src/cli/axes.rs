//! The flags of every axis, shared by the commands that run cells. A flag replaces what the scenario says.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use h2lab_base::units::Ratio;
use h2lab_link::LossShape;
use h2lab_model::scenario::{
    ArrivalShape, Axis, AxisValue, Capacity, ConnectionCount, LinkOverride, Queue, Ramp, RequestLimit,
    Scenario, Topology,
};
use h2lab_model::workload::{DialPolicy, H2cMode, Protocol, RequestShape};

use super::flags::first_given;
use super::impair::{ImpairArgs, link_override};
use super::policy::PolicyArgs;
use super::values::{duration, size, value};

/// What to send.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Work (several values: comma list)")]
pub struct WorkArgs {
    /// Protocols: h1, h1s, h2, h2c, h3; one named twice is an A/A run
    #[arg(long = "proto", value_name = "LIST", value_parser = axis::<Protocol>)]
    pub protocols: Option<Axis<Protocol>>,
    /// How h2c begins: HTTP/2 at once, or HTTP/1.1 with `Upgrade: h2c`
    #[arg(long, value_name = "MODE")]
    pub h2c_mode: Option<H2cModeArg>,
    /// Connections of h2, h2c and h3; auto: as many as loss, RTT and rate need by the PFTK model
    #[arg(short = 'c', long, value_name = "LIST", value_parser = axis::<ConnectionCount>)]
    pub connections: Option<Axis<ConnectionCount>>,
    /// Streams that we open at most on one connection
    #[arg(short = 'm', long, value_name = "LIST", value_parser = axis::<u32>)]
    pub streams: Option<Axis<u32>>,
    /// Requests per second in all, open loop
    #[arg(short = 'q', long, value_name = "LIST", value_parser = axis::<f64>)]
    pub rate: Option<Axis<f64>>,
    /// Closed loop instead: this many requests always in flight
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "ramp"])]
    pub concurrency: Option<u32>,
    /// Open loop whose rate changes: 100..5000/60s, or in ten steps 100..5000/60s/10
    #[arg(long, value_name = "FROM..TO/TIME[/STEPS]", value_parser = value::<Ramp>, conflicts_with_all = ["rate", "arrival"])]
    pub ramp: Option<Ramp>,
    /// How open-loop requests are spread
    #[arg(long, value_name = "SHAPE", conflicts_with = "concurrency")]
    pub arrival: Option<ArrivalArg>,
    /// Measured time of one visit to a cell
    #[arg(short = 'z', long, value_name = "LIST", value_parser = axis::<Duration>)]
    pub duration: Option<Axis<Duration>>,
    /// Visits to each cell, pooled; more visits and longer ones buy precision
    #[arg(long, value_name = "N")]
    pub visits: Option<u32>,
    /// Time before measuring in which requests are sent but not counted
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Time after measuring in which what is under way may finish
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain: Option<Duration>,
    /// A request unanswered for this long is cancelled
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Header fields of each request: bare (a plain client's) or mesh (a sidecar's, 15 fields)
    #[arg(long, value_name = "LIST", value_parser = axis::<RequestShape>)]
    pub shape: Option<Axis<RequestShape>>,
    /// Request method
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// A further header field, `Name: value`; repeatable
    ///
    /// It replaces a field of the shape with the same name. `Host` takes the authority's place in every protocol, as in
    /// curl. Fields about the connection or the body's framing are refused: the client writes them itself.
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// Request body in bytes (such as 1k, 64k)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub body_bytes: Option<u64>,
    /// Request body: text, or @FILE
    #[arg(short = 'd', long = "data", value_name = "DATA", conflicts_with = "body_bytes")]
    pub data: Option<String>,
    /// Connections up to which HTTP/1.1 grows on demand
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub max_connections: Option<u32>,
    /// What h2, h2c and h3 dial when requests wait and no connection is usable
    ///
    /// single-flight: one connection for all that wait. stampede: one for each that waits, as Go's net/http and others do
    /// when a server's GOAWAY leaves none.
    #[arg(long, value_name = "LIST", value_parser = axis::<DialPolicy>)]
    pub dial_policy: Option<Axis<DialPolicy>>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Fill `{{…}}` in path, header values and body anew in each request
    #[arg(long)]
    pub template: bool,
    /// Seeds of everything random
    #[arg(long, value_name = "LIST", value_parser = axis::<u64>)]
    pub seed: Option<Axis<u64>>,
    /// A look: what the scenario's [quick] table says, else one visit of 1 s to each cell
    #[arg(long, conflicts_with_all = ["visits", "duration"])]
    pub quick: bool,
}

/// `--arrival`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArrivalArg {
    /// At even intervals.
    Constant,
    /// At exponentially distributed intervals.
    Poisson,
}

/// `--h2c-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum H2cModeArg {
    /// Prior knowledge, as between services that know each other.
    PriorKnowledge,
    /// One `OPTIONS *` more per connection, before anything is measured.
    Upgrade,
}

/// What the link does.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Emulated link (several values: comma list)")]
pub struct LinkArgs {
    /// One-way delay, both directions (the RTT is twice that)
    #[arg(long, value_name = "LIST", value_parser = axis::<Duration>)]
    pub delay: Option<Axis<Duration>>,
    /// Half-width of a uniform variation of the delay
    #[arg(long, value_name = "LIST", value_parser = axis::<Duration>)]
    pub jitter: Option<Axis<Duration>>,
    /// Share of packets lost, each direction (such as 3%)
    #[arg(long, value_name = "LIST", value_parser = axis::<Ratio>)]
    pub loss: Option<Axis<Ratio>>,
    /// How losses are spread: bernoulli, gilbert-elliott[:MEAN-BURST], burst[:BURST]; a burst of 5 packets or 50ms
    #[arg(long, value_name = "LIST", value_parser = axis::<LossShape>)]
    pub loss_model: Option<Axis<LossShape>>,
    /// Capacity, each direction (such as 100mbit), or unlimited
    #[arg(long, value_name = "LIST", value_parser = axis::<Capacity>)]
    pub bandwidth: Option<Axis<Capacity>>,
    /// Bytes that may wait for the bandwidth before the tail is dropped
    #[arg(long, value_name = "LIST", value_parser = axis::<Queue>)]
    pub queue: Option<Axis<Queue>>,
    /// Congestion control of both ends: cubic, bbr, reno … (h3: those three)
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub congestion: Option<Axis<String>>,
    /// A kernel setting of the client's network namespace, as sysctl(8) writes it; repeatable
    ///
    /// Several values are compared with each other: `net.ipv4.tcp_rto_min_us=200000,20000`. It is read back, and refused if
    /// it is not in force.
    #[arg(long, value_name = "KEY=VALUE[,VALUE]", value_parser = sysctl)]
    pub sysctl_client: Vec<(String, Axis<String>)>,
    /// The same of the server's
    #[arg(long, value_name = "KEY=VALUE[,VALUE]", value_parser = sysctl)]
    pub sysctl_server: Vec<(String, Axis<String>)>,
    #[command(flatten)]
    pub impair: ImpairArgs,
    /// What is different from client to server: delay=5ms,loss=0%,script=data 3 of flow 2
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = link_override)]
    pub up: Option<LinkOverride>,
    /// What is different from server to client
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = link_override)]
    pub down: Option<LinkOverride>,
}

impl LinkArgs {
    /// The first flag given, if any: a live server has no emulated link.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.delay.is_some(), "--delay"),
            (self.jitter.is_some(), "--jitter"),
            (self.loss.is_some(), "--loss"),
            (self.loss_model.is_some(), "--loss-model"),
            (self.bandwidth.is_some(), "--bandwidth"),
            (self.queue.is_some(), "--queue"),
            (self.congestion.is_some(), "--congestion"),
            (!self.sysctl_client.is_empty(), "--sysctl-client"),
            (!self.sysctl_server.is_empty(), "--sysctl-server"),
            (self.up.is_some(), "--up"),
            (self.down.is_some(), "--down"),
        ];
        first_given(flags).or_else(|| self.impair.given())
    }

    /// Puts the flags in place of what the scenario says.
    pub fn apply(&self, scenario: &mut Scenario) {
        let link = &mut scenario.link;
        replace(&mut link.delay, self.delay.as_ref());
        replace(&mut link.jitter, self.jitter.as_ref());
        replace(&mut link.loss, self.loss.as_ref());
        replace(&mut link.loss_model, self.loss_model.as_ref());
        replace(&mut link.bandwidth, self.bandwidth.as_ref());
        replace(&mut link.queue, self.queue.as_ref());
        replace(&mut link.congestion, self.congestion.as_ref());
        replace(&mut link.uplink, self.up.as_ref());
        replace(&mut link.downlink, self.down.as_ref());
        self.impair.apply(link);
        scenario.sysctl.client.extend(self.sysctl_client.iter().cloned());
        scenario.sysctl.server.extend(self.sysctl_server.iter().cloned());
    }
}

/// Who stands behind the link.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Servers behind the link (several values: comma list)")]
pub struct ServerArgs {
    /// Servers to start behind the link: origin (built in), nginx, go; or proxies in front of origin: nginx-proxy, envoy,
    /// haproxy, caddy, nghttpx, apache, h2o
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub origin: Option<Axis<String>>,
    /// Where sidecars stand: direct (nowhere), sidecar (beside the client), two-sidecars (at both ends of the link)
    ///
    /// The generator speaks HTTP/1.1 to its sidecar, and --proto is what is spoken over the link.
    #[arg(long, value_name = "LIST", value_parser = axis::<Topology>)]
    pub topology: Option<Axis<Topology>>,
    /// Programs that are sidecars: haproxy, envoy, nghttpx, caddy, apache, nginx-proxy, h2o
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub sidecar: Option<Axis<String>>,
    /// Requests after which a server that we start ends a connection, or unlimited
    #[arg(long, value_name = "LIST", value_parser = axis::<RequestLimit>)]
    pub max_requests_per_connection: Option<Axis<RequestLimit>>,
    /// Those of --origin that have this limit (all if not given): a proxy, but not the origin beside it
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub limited: Option<Axis<String>>,
}

impl ServerArgs {
    /// The first flag given, if any: a live server is not started by us.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.origin.is_some(), "--origin"),
            (self.topology.is_some(), "--topology"),
            (self.sidecar.is_some(), "--sidecar"),
            (self.max_requests_per_connection.is_some(), "--max-requests-per-connection"),
            (self.limited.is_some(), "--limited"),
        ];
        first_given(flags)
    }

    /// Puts the flags in place of what the scenario says.
    pub fn apply(&self, scenario: &mut Scenario) {
        let matrix = &mut scenario.matrix;
        if self.origin.is_some() || self.topology.is_some() || self.sidecar.is_some() {
            // Who takes part is said anew.
            matrix.arms.clear();
        }
        replace(&mut matrix.origin, self.origin.as_ref());
        replace(&mut matrix.topology, self.topology.as_ref());
        if self.sidecar.is_some() {
            matrix.sidecar.clone_from(&self.sidecar);
        }
        replace(&mut matrix.max_requests_per_connection, self.max_requests_per_connection.as_ref());
        if self.limited.is_some() {
            matrix.limited.clone_from(&self.limited);
        } else if self.origin.is_some() {
            // Servers that are not there any more have no limit to be told of.
            matrix.limited = None;
        }
    }
}

impl WorkArgs {
    /// The first flag given that says how load is made; a single exchange has a protocol and a timeout, too, and may have a
    /// quick look.
    pub fn given_of_load(&self) -> Option<&'static str> {
        let Self {
            protocols: _,
            h2c_mode,
            connections,
            streams,
            rate,
            concurrency,
            ramp,
            arrival,
            duration,
            visits,
            warmup,
            drain,
            timeout: _,
            shape,
            method,
            headers,
            body_bytes,
            data,
            max_connections,
            dial_policy,
            policy,
            template,
            seed,
            quick: _,
        } = self;
        let flags = [
            (h2c_mode.is_some(), "--h2c-mode"),
            (connections.is_some(), "--connections"),
            (streams.is_some(), "--streams"),
            (rate.is_some(), "--rate"),
            (concurrency.is_some(), "--concurrency"),
            (ramp.is_some(), "--ramp"),
            (arrival.is_some(), "--arrival"),
            (duration.is_some(), "--duration"),
            (visits.is_some(), "--visits"),
            (warmup.is_some(), "--warmup"),
            (drain.is_some(), "--drain"),
            (shape.is_some(), "--shape"),
            (method.is_some(), "-X"),
            (!headers.is_empty(), "-H"),
            (body_bytes.is_some(), "--body-bytes"),
            (data.is_some(), "-d"),
            (max_connections.is_some(), "--max-connections"),
            (dial_policy.is_some(), "--dial-policy"),
            (*template, "--template"),
            (seed.is_some(), "--seed"),
        ];
        first_given(flags).or_else(|| policy.given())
    }

    /// The scenario of a file as long as it is wanted, before flags replace what it says.
    pub fn chosen(&self, file: &Scenario) -> Result<Scenario> {
        Ok(if self.quick { file.quickened()? } else { file.in_full() })
    }

    /// Puts the flags in place of what the scenario says.
    pub fn apply(&self, scenario: &mut Scenario) -> Result<()> {
        let work = &mut scenario.work;
        replace(&mut work.shape, self.shape.as_ref());
        replace(&mut work.method, self.method.as_ref());
        replace(&mut work.warmup, self.warmup.as_ref());
        replace(&mut work.drain, self.drain.as_ref());
        replace(&mut work.timeout, self.timeout.as_ref());
        replace(&mut work.measure, self.duration.as_ref());
        if let Some(bytes) = self.body_bytes {
            (work.body_bytes, work.body) = (bytes, None);
        }
        if let Some(rate) = &self.rate {
            (work.rate, work.concurrency, work.ramp) = (rate.clone(), None, None);
        }
        if let Some(ramp) = self.ramp {
            // Rates of a file would be the same cell again and again.
            (work.ramp, work.concurrency, work.rate) = (Some(ramp), None, Axis::one(work.rate.values()[0]));
            work.arrival = ArrivalShape::Constant;
        }
        if let Some(concurrency) = self.concurrency {
            // Rates of a file would be the same cell again and again.
            (work.concurrency, work.rate) = (Some(concurrency), Axis::one(work.rate.values()[0]));
            work.ramp = None;
        }
        work.arrival = match self.arrival {
            Some(ArrivalArg::Constant) => ArrivalShape::Constant,
            Some(ArrivalArg::Poisson) => ArrivalShape::Poisson,
            None => work.arrival,
        };
        work.replay &= !self.policy.no_replay;
        work.template |= self.template;
        for line in &self.headers {
            work.headers.push(header(line)?);
        }
        if let Some(data) = &self.data {
            work.body = Some(read_data(data)?);
            if self.method.is_none() {
                "POST".clone_into(&mut work.method); // as curl does
            }
        }
        let matrix = &mut scenario.matrix;
        for arm in &mut matrix.arms {
            // What is asked for is asked of every arm.
            arm.protocols = arm.protocols.take().filter(|_| self.protocols.is_none());
            arm.connections = arm.connections.take().filter(|_| self.connections.is_none());
        }
        replace(&mut matrix.protocols, self.protocols.as_ref());
        matrix.h2c_mode = match self.h2c_mode {
            Some(H2cModeArg::PriorKnowledge) => H2cMode::PriorKnowledge,
            Some(H2cModeArg::Upgrade) => H2cMode::Upgrade,
            None => matrix.h2c_mode,
        };
        replace(&mut matrix.connections, self.connections.as_ref());
        replace(&mut matrix.streams, self.streams.as_ref());
        replace(&mut matrix.dial_policy, self.dial_policy.as_ref());
        if let Some(max_connections) = self.max_connections {
            matrix.max_connections = max_connections;
            matrix.warm_pool = matrix.warm_pool.min(max_connections);
        }
        self.policy.apply(&mut scenario.client.policy);
        replace(&mut scenario.visits, self.visits.as_ref());
        replace(&mut scenario.seed, self.seed.as_ref());
        Ok(())
    }
}

pub(super) fn replace<T: Clone>(place: &mut T, flag: Option<&T>) {
    if let Some(flag) = flag {
        place.clone_from(flag);
    }
}

/// The value parser of an axis.
pub(super) fn axis<T: AxisValue>(text: &str) -> Result<Axis<T>, String> {
    value(text)
}

/// `Name: value` as curl has it.
pub(super) fn header(line: &str) -> Result<(String, String)> {
    let (name, value) = line.split_once(':').with_context(|| format!("-H '{line}' is not `Name: value`"))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// Text, or the content of a file after `@`.
pub(super) fn read_data(data: &str) -> Result<String> {
    match data.strip_prefix('@') {
        None => Ok(data.to_owned()),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("-d @{path}: cannot read it as text"))
        }
    }
}

/// `net.ipv4.tcp_rto_min_us=200000,20000`.
fn sysctl(text: &str) -> Result<(String, Axis<String>), String> {
    let (key, values) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.trim().to_owned(), axis(values)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_for_every_arm_and_other_parties_are_no_arms() {
        let file = "[[matrix.arms]]\nprotocols = 'h2c'\nconnections = '1,4'\n\
                    [[matrix.arms]]\ntopology = 'sidecar'\nsidecar = 'envoy'\nprotocols = 'h1'";
        let scenario = Scenario::from_toml(file).unwrap();
        let mut with = scenario.clone();
        let flags = WorkArgs { protocols: "h1,h2".parse().ok(), ..WorkArgs::default() };
        flags.apply(&mut with).unwrap();
        assert_eq!(
            with.matrix.matrices().iter().map(|m| m.protocols.values().len()).collect::<Vec<_>>(),
            [2, 2]
        );
        assert_eq!(with.matrix.matrices()[0].connections.values().len(), 2, "nothing was said of them");
        let mut with = scenario;
        ServerArgs { topology: "direct".parse().ok(), ..ServerArgs::default() }.apply(&mut with);
        assert!(with.matrix.arms.is_empty());
    }

    #[test]
    fn a_quick_look_is_the_files_own_or_one_short_visit() {
        let own = Scenario::from_toml("visits = 9\n[quick]\nvisits = 2").unwrap();
        let quick = |file: &Scenario| WorkArgs { quick: true, ..WorkArgs::default() }.chosen(file).unwrap();
        assert_eq!((quick(&own).visits, quick(&Scenario::default()).visits), (2, 1));
        assert_eq!(WorkArgs::default().chosen(&own).unwrap().quick, None, "a run has no such table");
    }

    #[test]
    fn a_rate_on_the_command_line_ends_a_closed_loop() {
        let mut scenario = Scenario::default();
        scenario.work.concurrency = Some(8);
        let flags = WorkArgs { rate: Some(Axis::one(10.0)), ..WorkArgs::default() };
        flags.apply(&mut scenario).unwrap();
        assert_eq!(scenario.work.concurrency, None);
    }

    #[test]
    fn a_concurrency_on_the_command_line_ends_an_open_loop_of_any_rates() {
        let mut scenario = Scenario::default();
        scenario.work.rate = "100,200".parse().unwrap();
        WorkArgs { concurrency: Some(8), ..WorkArgs::default() }.apply(&mut scenario).unwrap();
        scenario.visits = 1;
        assert_eq!(scenario.plan().len(), 2, "one h1 cell and one h2c cell");
        scenario.validate().unwrap();
    }

    #[test]
    fn every_flag_of_the_client_has_its_key_in_a_scenario_file() {
        let flags = WorkArgs {
            dial_policy: "single-flight,stampede".parse().ok(),
            policy: PolicyArgs {
                reconnect_every: Some(10),
                pool_size: Some(3),
                cancel_after: Some(Duration::from_millis(20)),
                connect_timeout: Some(Duration::from_secs(2)),
                no_replay: true,
            },
            ramp: "1..2/1s/4".parse().ok(),
            template: true,
            ..WorkArgs::default()
        };
        let mut scenario = Scenario::default();
        flags.apply(&mut scenario).unwrap();
        let file = "[matrix]\ndial-policy = ['single-flight', 'stampede']\n[client]\nreconnect-every = 10\n\
                    pool-size = 3\ncancel-after = '20ms'\nconnect-timeout = '2s'\n[work]\nramp = '1..2/1s/4'\nreplay = false\ntemplate = true";
        assert_eq!(scenario, Scenario::from_toml(file).unwrap());
    }

    #[test]
    fn a_ramp_on_the_command_line_ends_a_closed_loop_and_a_rate_ends_a_ramp() {
        let mut scenario = Scenario::default();
        scenario.work.concurrency = Some(8);
        WorkArgs { ramp: "1..2/1s".parse().ok(), ..WorkArgs::default() }.apply(&mut scenario).unwrap();
        assert_eq!((scenario.work.concurrency, scenario.work.ramp.is_some()), (None, true));
        WorkArgs { rate: Some(Axis::one(10.0)), ..WorkArgs::default() }.apply(&mut scenario).unwrap();
        assert_eq!(scenario.work.ramp, None);
    }

    #[test]
    fn every_flag_of_the_servers_has_its_key_in_a_scenario_file() {
        let flags = ServerArgs {
            max_requests_per_connection: "1000".parse().ok(),
            limited: "origin".parse().ok(),
            ..ServerArgs::default()
        };
        let mut scenario = Scenario::default();
        flags.apply(&mut scenario);
        let file = Scenario::from_toml("[matrix]\nmax-requests-per-connection = 1000\nlimited = 'origin'");
        assert_eq!(scenario, file.unwrap());
    }

    #[test]
    fn a_sysctl_on_the_command_line_replaces_that_of_the_file_and_leaves_the_others() {
        let file = "[sysctl.client]\n'net.core.somaxconn' = 1\n'net.ipv4.tcp_rmem' = '1 2 3'";
        let mut scenario = Scenario::from_toml(file).unwrap();
        let flags = LinkArgs {
            sysctl_client: vec![sysctl("net.core.somaxconn=2,3").unwrap()],
            sysctl_server: vec![sysctl("net.ipv4.tcp_rto_min_us = 20000").unwrap()],
            ..LinkArgs::default()
        };
        flags.apply(&mut scenario);
        let expected = "[sysctl.client]\n'net.core.somaxconn' = [2, 3]\n'net.ipv4.tcp_rmem' = '1 2 3'\n\
                        [sysctl.server]\n'net.ipv4.tcp_rto_min_us' = 20000";
        assert_eq!(scenario, Scenario::from_toml(expected).unwrap());
        assert!(sysctl("net.core.somaxconn").is_err());
    }

    #[test]
    fn data_makes_a_post_as_in_curl() {
        let mut scenario = Scenario::default();
        scenario.work.method = "GET".to_owned();
        WorkArgs { data: Some("{}".to_owned()), ..WorkArgs::default() }.apply(&mut scenario).unwrap();
        assert_eq!((scenario.work.method.as_str(), scenario.work.body.as_deref()), ("POST", Some("{}")));
    }

    #[test]
    fn header_lines_are_split_and_lower_cased() {
        assert_eq!(header("X-Tenant:  a b ").unwrap(), ("x-tenant".to_owned(), "a b".to_owned()));
        assert!(header("no colon").is_err());
    }
}
