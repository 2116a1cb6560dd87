//! A scenario expanded: every point of the matrix, and the order in which they are measured.

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::axis::{Axis, ConnectionCount};
use super::capture::CaptureOptions;
use super::cell::{Cell, Target};
use super::client::ClientAxes;
use super::file::{ArrivalShape, LiveTarget, MatrixAxes, Scenario, WorkAxes};
use super::link::effect;
use super::need::Need;
use super::setup::ServerSetup;
use super::sysctl::Sysctls;
use super::topology::{Sidecar, Topology};
use super::vary::joined;
use crate::workload::{Arrival, DialPolicy, EngineSettings, H2cMode, Phases, Protocol, Work};
use h2lab_base::random::derive;
use h2lab_link::LinkSpec;

/// One configuration to a server: the part in which cells of a group differ.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Variant {
    protocol: Protocol,
    h2c_mode: H2cMode,
    twin: u32,
    connections: u32,
    max_connections: u32,
    streams: u32,
    max_requests_per_connection: Option<u32>,
    dial: DialPolicy,
}

/// One condition: the part that cells of a group share.
struct Condition {
    /// Which of the scenario's matrices have its parties.
    matrices: Vec<usize>,
    seed: u64,
    /// The server that we start; `None` for live servers. Likewise the two below.
    server: Option<Target>,
    /// The client's sidecar, by name.
    sidecar: Option<String>,
    link: Option<LinkSpec>,
    congestion: Option<String>,
    sysctls: Sysctls,
    client: ClientAxes,
    capture: CaptureOptions,
    work: Work,
}

impl Scenario {
    /// The repetitions, in order: round 0 forwards, round 1 backwards, and so on (A/B/B/A), so that a drift of the machine
    /// affects all cells alike.
    ///
    /// Each condition and each configuration appears once: an axis without effect (a queue without bandwidth, rates of a
    /// closed loop) or a value given twice multiplies nothing. Only a protocol or a URL given twice does: that is an A/A
    /// run.
    pub fn plan(&self) -> Vec<Cell> {
        let points = self.points();
        let mut repetitions = Vec::with_capacity(points.len() * self.repetitions as usize);
        for repetition in 0..self.repetitions {
            let round = points.iter().map(|point| {
                let mut cell = point.clone();
                cell.repetition = repetition;
                cell.seed = derive(point.seed, &format!("{}/{repetition}", variant_key(point)));
                cell.request_seed = derive(point.seed, &format!("requests/{repetition}"));
                cell
            });
            if repetition % 2 == 0 { repetitions.extend(round) } else { repetitions.extend(round.rev()) }
        }
        repetitions
    }

    /// Every point once, with the run's seed still in `seed`.
    fn points(&self) -> Vec<Cell> {
        let mut points = self.product();
        if !self.vary.is_empty() {
            // The variations were checked when the file was read.
            let variations = self.variations().unwrap_or_default();
            points.extend(variations.iter().flat_map(Self::product));
            points = joined(points);
        }
        points
    }

    /// The points of the scenario's own axes.
    fn product(&self) -> Vec<Cell> {
        let matrices = self.matrix.matrices();
        let mut points = Vec::new();
        for (group, condition) in self.conditions(&matrices).into_iter().enumerate() {
            let matrix = &matrices[condition.matrices[0]];
            let needed = Need { link: condition.link.as_ref(), congestion: condition.congestion.as_deref() }
                .connections(&condition.work)
                .unwrap_or(1);
            let configurations =
                condition.matrices.iter().flat_map(|&place| variants(&matrices[place], needed));
            let variants = distinct(configurations);
            let mut add = |target: &Target, path: Option<&str>, variant: &Variant| {
                let mut cell =
                    point((points.len() as u32, group as u32), &condition, matrix, target, variant);
                if cell.work.bulk {
                    cell.spread_responses();
                }
                cell.server = self.server;
                if let Some(path) = path {
                    path.clone_into(&mut cell.work.path);
                }
                points.push(cell);
            };
            match &condition.server {
                Some(server) => {
                    let sidecar = condition.sidecar.is_some();
                    let variants = self.variants_of(server, sidecar, &variants);
                    for variant in &variants {
                        add(server, None, variant);
                    }
                }
                None => {
                    for (n, live) in self.matrix.live.iter().enumerate() {
                        let target = Target::Url { url: live.url.clone() };
                        for variant in self.variants_at(n, &variants) {
                            add(&target, Some(&live.path), &variant);
                        }
                    }
                }
            }
        }
        points
    }

    /// The configurations for a server that we start, each once. They have no limit if the limits are for other
    /// servers. A sidecar makes its own decisions about streams and dialling.
    fn variants_of(&self, server: &Target, has_sidecar: bool, variants: &[Variant]) -> Vec<Variant> {
        let named = |limited: &Axis<String>| limited.values().iter().any(|name| name == server.name());
        let is_limited = self.matrix.limited.as_ref().is_none_or(named);
        let limit = |variant: &Variant| variant.max_requests_per_connection.filter(|_| is_limited);
        let own = |variant: &Variant| {
            if has_sidecar && variant.protocol.is_multiplexed() {
                Variant { streams: self.matrix.streams.values()[0], dial: DialPolicy::default(), ..*variant }
            } else {
                *variant
            }
        };
        distinct(
            variants
                .iter()
                .map(|variant| Variant { max_requests_per_connection: limit(variant), ..own(variant) }),
        )
    }

    /// The configurations for the n-th live server, in the protocols that it speaks. If its URL was given before, they
    /// are twins of the earlier ones.
    fn variants_at(&self, n: usize, variants: &[Variant]) -> Vec<Variant> {
        let live = &self.matrix.live[n];
        let speaks = |live: &LiveTarget, protocol| live.protocols.values().contains(&protocol);
        let spoken = variants.iter().filter(|variant| speaks(live, variant.protocol));
        let as_twin = |variant: &Variant| {
            let again = self.matrix.live[..n]
                .iter()
                .filter(|earlier| earlier.url == live.url && speaks(earlier, variant.protocol))
                .count();
            let mentions = self.matrix.protocols.values().iter().filter(|p| **p == variant.protocol).count();
            Variant { twin: variant.twin + (again * mentions) as u32, ..*variant }
        };
        spoken.map(as_twin).collect()
    }

    /// The product of all axes but those that cells of a group differ in.
    fn conditions(&self, matrices: &[MatrixAxes]) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for seed in distinct(self.seed.values().iter().copied()) {
            let mut of_seed = Vec::new();
            for (of, (server, sidecar)) in servers(matrices) {
                let mut place = 0;
                for work in self.works() {
                    for (congestion, link) in self.links() {
                        for sysctls in self.sysctls() {
                            let condition = Condition {
                                matrices: of.clone(),
                                seed,
                                server: server.clone(),
                                sidecar: sidecar.clone(),
                                link: link.clone(),
                                congestion: congestion.clone(),
                                sysctls,
                                client: self.client,
                                capture: self.capture,
                                work: work.clone(),
                            };
                            of_seed.push((place, condition));
                            place += 1;
                        }
                    }
                }
            }
            if !self.matrix.arms.is_empty() {
                // Arms are compared with each other: measured close together, they meet similar noise.
                of_seed.sort_by_key(|(place, _)| *place);
            }
            conditions.extend(of_seed.into_iter().map(|(_, condition)| condition));
        }
        conditions
    }

    /// The seed of a group's condition, of the several that a scenario may have; `None` if the plan has no such group.
    pub fn seed_of(&self, group: u32) -> Option<u64> {
        if !self.vary.is_empty() {
            return Some(self.seed.values()[0]); // there is only one
        }
        let servers = servers(&self.matrix.matrices()).len();
        let conditions_each = servers * self.works().len() * self.links().len() * self.sysctls().len();
        let seeds = distinct(self.seed.values().iter().copied());
        seeds.get(group as usize / conditions_each).copied()
    }

    /// The kernel settings of each condition; none for live servers.
    fn sysctls(&self) -> Vec<Sysctls> {
        if self.matrix.live.is_empty() { distinct(self.sysctl.points()) } else { vec![Sysctls::default()] }
    }

    fn works(&self) -> Vec<Work> {
        let axes = &self.work;
        let mut works = Vec::new();
        for &shape in axes.shape.values() {
            for &rate in axes.rate.values() {
                for &measure in axes.measure.values() {
                    works.push(Work {
                        method: axes.method.clone(),
                        path: axes.path.clone(),
                        shape,
                        headers: axes.headers.clone(),
                        body_bytes: axes.body_bytes,
                        body: axes.body.clone(),
                        mix: axes.mix.clone(),
                        template: axes.template,
                        secrets: axes.secrets,
                        bulk: axes.bulk,
                        arrival: arrival(axes, rate),
                        phases: Phases { warmup: axes.warmup, measure, drain: axes.drain },
                        timeout: axes.timeout,
                        replay: axes.replay,
                    });
                }
            }
        }
        distinct(works)
    }

    /// Congestion control and link of each condition, equal ones once; none for live servers.
    fn links(&self) -> Vec<(Option<String>, Option<LinkSpec>)> {
        if !self.matrix.live.is_empty() {
            return vec![(None, None)];
        }
        let links: Vec<Option<LinkSpec>> = if self.link.loopback {
            vec![None]
        } else {
            distinct_by(self.link.specs(), effect).into_iter().map(Some).collect()
        };
        let with = |congestion: &String| {
            let congestion = congestion.clone();
            links.iter().map(move |link| (Some(congestion.clone()), link.clone())).collect::<Vec<_>>()
        };
        distinct(self.link.congestion.values()).into_iter().flat_map(with).collect()
    }
}

/// A server that we start (`None` for a live one), and the client's sidecar before it.
type Parties = (Option<Target>, Option<String>);

/// All parties, each once with the places of the matrices that have them: these are compared with each other.
fn servers(matrices: &[MatrixAxes]) -> Vec<(Vec<usize>, Parties)> {
    let mut found: Vec<(Vec<usize>, Parties)> = Vec::new();
    for (place, matrix) in matrices.iter().enumerate() {
        for parties in servers_of(matrix) {
            match found.iter_mut().find(|(_, known)| *known == parties) {
                Some((places, _)) => places.push(place),
                None => found.push((vec![place], parties)),
            }
        }
    }
    found
}

/// The servers that we start and the client's sidecar before each, in each topology; one `None` for live servers. With
/// two sidecars the server is the sidecar's program, whatever else there is.
fn servers_of(matrix: &MatrixAxes) -> Vec<Parties> {
    if !matrix.live.is_empty() {
        return vec![(None, None)];
    }
    let server = |name: &String| match name.as_str() {
        "origin" => Some(Target::Origin),
        name => Some(Target::Sut { name: name.to_owned() }),
    };
    let origins = || matrix.origin.values().iter().map(server);
    let sidecars: Vec<&String> = matrix.sidecar.iter().flat_map(Axis::values).collect();
    let servers = matrix.topology.values().iter().flat_map(|topology| match topology {
        Topology::Direct => origins().map(|origin| (origin, None)).collect::<Vec<_>>(),
        Topology::Sidecar => sidecars
            .iter()
            .flat_map(|&name| origins().map(move |origin| (origin, Some(name.clone()))))
            .collect(),
        Topology::TwoSidecars => sidecars.iter().map(|&name| (server(name), Some(name.clone()))).collect(),
    });
    distinct(servers)
}

/// The arrival of requests at this rate, if it has one.
fn arrival(axes: &WorkAxes, rate: f64) -> Arrival {
    match (axes.concurrency, axes.ramp, axes.arrival) {
        (Some(concurrency), ..) => Arrival::Closed { concurrency },
        (None, Some(ramp), _) => ramp.arrival(),
        (None, None, ArrivalShape::Constant) => Arrival::Constant { rate },
        (None, None, ArrivalShape::Poisson) => Arrival::Poisson { rate },
    }
}

/// The values without those that came before.
fn distinct<T: PartialEq + Clone>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    distinct_by(values, T::clone)
}

/// The values without those whose `key` equals an earlier one's.
fn distinct_by<T, K: PartialEq>(values: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = Vec::new();
    let is_new = |value: &T| {
        let key = key(value);
        let is_new = !seen.contains(&key);
        if is_new {
            seen.push(key);
        }
        is_new
    };
    values.into_iter().filter(is_new).collect()
}

/// The configurations: protocols × limits × connections × streams × dial policies, where all but the limits only vary
/// multiplexed protocols: HTTP/1.1 has a connection for each request in flight, and dials for each that waits. `needed`
/// connections stand for `auto`.
fn variants(matrix: &MatrixAxes, needed: u32) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    let limits = limits(matrix);
    for (k, &protocol) in matrix.protocols.values().iter().enumerate() {
        let twin =
            matrix.protocols.values()[..k].iter().filter(|earlier| **earlier == protocol).count() as u32;
        let http1 = Variant {
            protocol,
            h2c_mode: matrix.h2c_mode,
            twin,
            connections: matrix.warm_pool,
            max_connections: matrix.max_connections,
            streams: 1,
            max_requests_per_connection: None,
            dial: DialPolicy::default(),
        };
        let configurations =
            if protocol.is_multiplexed() { multiplexed(matrix, needed, http1) } else { vec![http1] };
        variants.extend(configurations.into_iter().flat_map(|configuration| {
            limits.iter().map(move |&limit| Variant { max_requests_per_connection: limit, ..configuration })
        }));
    }
    variants
}

/// `like` with each number of connections and streams and in each dial policy.
fn multiplexed(matrix: &MatrixAxes, needed: u32, like: Variant) -> Vec<Variant> {
    let mut configurations = Vec::new();
    let count = |count: &ConnectionCount| match *count {
        ConnectionCount::Exactly(n) => n,
        ConnectionCount::Auto => needed,
    };
    for connections in distinct(matrix.connections.values().iter().map(count)) {
        for streams in distinct(matrix.streams.values().iter().copied()) {
            for dial in distinct(matrix.dial_policy.values().iter().copied()) {
                configurations.push(Variant {
                    connections,
                    max_connections: connections,
                    streams,
                    dial,
                    ..like
                });
            }
        }
    }
    configurations
}

/// The limits of requests per connection; none for a live server.
fn limits(matrix: &MatrixAxes) -> Vec<Option<u32>> {
    if matrix.live.is_empty() {
        distinct(matrix.max_requests_per_connection.values().iter().map(|limit| limit.0))
    } else {
        vec![None]
    }
}

fn point(
    (index, group): (u32, u32),
    condition: &Condition,
    matrix: &MatrixAxes,
    target: &Target,
    variant: &Variant,
) -> Cell {
    Cell {
        index,
        group,
        repetition: 0,
        seed: condition.seed,
        request_seed: condition.seed,
        target: target.clone(),
        sidecar: condition.sidecar.clone().map(|name| Sidecar {
            name,
            warm_pool: matrix.warm_pool,
            max_connections: matrix.max_connections,
        }),
        protocol: variant.protocol,
        h2c_mode: variant.h2c_mode,
        twin: variant.twin,
        connections: variant.connections,
        max_connections: variant.max_connections,
        streams: variant.streams,
        link: condition.link.clone(),
        congestion: condition.congestion.clone(),
        sysctls: condition.sysctls.clone(),
        max_requests_per_connection: variant.max_requests_per_connection,
        client: condition.client.engine,
        server: EngineSettings::default(),
        setup: ServerSetup::default(),
        dial: variant.dial,
        policy: condition.client.policy,
        capture: condition.capture,
        work: condition.work.clone(),
    }
}

/// The part of the repetition's seed that distinguishes it from the other cells of its group. It leaves out the link
/// and what is behind it, so that two links, or two servers behind one, can be compared under the same drops. Live
/// servers share a group. Options newer than the first version are included only where they are not the default:
/// recorded runs keep their seeds.
fn variant_key(cell: &Cell) -> String {
    let mut variant = format!("{}#{}/{}/{}", cell.protocol, cell.twin, cell.connections, cell.streams);
    if let Some(requests) = cell.max_requests_per_connection {
        let _ = write!(variant, "/limit {requests}");
    }
    if cell.dial != DialPolicy::default() {
        let _ = write!(variant, "/{}", cell.dial.name());
    }
    match &cell.target {
        Target::Origin | Target::Sut { .. } => variant,
        Target::Url { url } => format!("{variant} at {url}"),
    }
}
