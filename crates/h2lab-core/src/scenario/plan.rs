//! A scenario expanded: every point of the matrix, and the order in which they are visited.

use super::cell::{Cell, Target};
use super::file::{ArrivalShape, MatrixAxes, Scenario};
use crate::link::{Impairment, LinkSpec, LossShape};
use crate::random::derive;
use crate::workload::{Arrival, Phases, Protocol, Work};

/// One way to talk to a server: what cells of a group differ in.
struct Variant {
    protocol: Protocol,
    twin: u32,
    connections: u32,
    max_connections: u32,
    streams: u32,
}

/// One condition: what cells of a group share.
struct Condition {
    seed: u64,
    origin: String,
    link: LinkSpec,
    congestion: String,
    work: Work,
}

impl Scenario {
    /// The visits, in order: round 0 forwards, round 1 backwards, and so on (A/B/B/A), so that a drift of the machine
    /// falls on all cells alike.
    pub fn plan(&self) -> Vec<Cell> {
        let points = self.points();
        let mut visits = Vec::with_capacity(points.len() * self.visits as usize);
        for repetition in 0..self.visits {
            let round = points.iter().map(|point| {
                let mut cell = point.clone();
                cell.repetition = repetition;
                cell.seed = derive(point.seed, &format!("{}/{repetition}", variant_key(point)));
                cell
            });
            if repetition % 2 == 0 { visits.extend(round) } else { visits.extend(round.rev()) }
        }
        visits
    }

    /// Every point once, with the run's seed still in `seed`.
    fn points(&self) -> Vec<Cell> {
        let variants = variants(&self.matrix);
        let mut points = Vec::new();
        for (group, condition) in self.conditions().into_iter().enumerate() {
            for live in &self.matrix.live {
                let target = Target::Url { url: live.url.clone() };
                for variant in
                    variants.iter().filter(|variant| live.protocols.values().contains(&variant.protocol))
                {
                    let mut cell = point(points.len() as u32, group as u32, &condition, &target, variant);
                    cell.work.path.clone_from(&live.path);
                    points.push(cell);
                }
            }
            if self.matrix.live.is_empty() {
                let target = match condition.origin.as_str() {
                    "origin" => Target::Origin,
                    name => Target::Sut { name: name.to_owned() },
                };
                for variant in &variants {
                    points.push(point(points.len() as u32, group as u32, &condition, &target, variant));
                }
            }
        }
        points
    }

    /// The product of all axes but protocol, connections and streams.
    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for &seed in self.seed.values() {
            for origin in self.matrix.origin.values() {
                for work in self.works() {
                    for (congestion, link) in self.links() {
                        conditions.push(Condition {
                            seed,
                            origin: origin.clone(),
                            link,
                            congestion: congestion.clone(),
                            work: work.clone(),
                        });
                    }
                }
            }
        }
        conditions
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
                        arrival: match (axes.concurrency, axes.arrival) {
                            (Some(concurrency), _) => Arrival::Closed { concurrency },
                            (None, ArrivalShape::Constant) => Arrival::Constant { rate },
                            (None, ArrivalShape::Poisson) => Arrival::Poisson { rate },
                        },
                        phases: Phases { warmup: axes.warmup, measure, drain: axes.drain },
                        timeout: axes.timeout,
                    });
                }
            }
        }
        works
    }

    fn links(&self) -> Vec<(String, LinkSpec)> {
        let axes = &self.link;
        let mut links = Vec::new();
        for congestion in axes.congestion.values() {
            for &delay in axes.delay.values() {
                for &jitter in axes.jitter.values() {
                    for capacity in axes.bandwidth.values() {
                        for queue in axes.queue.values() {
                            for (shape, loss) in self.losses() {
                                let both = Impairment {
                                    delay,
                                    jitter,
                                    loss: shape.with_share(loss),
                                    bandwidth: capacity.0,
                                    queue_bytes: queue.0,
                                };
                                let link = LinkSpec {
                                    uplink: axes.uplink.apply(&both, shape),
                                    downlink: axes.downlink.apply(&both, shape),
                                };
                                links.push((congestion.clone(), link));
                            }
                        }
                    }
                }
            }
        }
        links
    }

    /// Shares of loss in each shape; no loss is the same in every shape and appears once.
    fn losses(&self) -> Vec<(LossShape, crate::units::Ratio)> {
        let mut losses = Vec::new();
        for (k, &shape) in self.link.loss_model.values().iter().enumerate() {
            for &share in self.link.loss.values() {
                if k == 0 || share.get() > 0.0 {
                    losses.push((shape, share));
                }
            }
        }
        losses
    }
}

/// The ways to talk: protocols × connections × streams, where connections and streams only vary multiplexed ones.
fn variants(matrix: &MatrixAxes) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for (k, &protocol) in matrix.protocols.values().iter().enumerate() {
        let twin =
            matrix.protocols.values()[..k].iter().filter(|earlier| **earlier == protocol).count() as u32;
        if !protocol.is_multiplexed() {
            let (connections, max_connections) = (matrix.warm_pool, matrix.max_connections);
            variants.push(Variant { protocol, twin, connections, max_connections, streams: 1 });
            continue;
        }
        for &connections in matrix.connections.values() {
            for &streams in matrix.streams.values() {
                variants.push(Variant { protocol, twin, connections, max_connections: connections, streams });
            }
        }
    }
    variants
}

fn point(index: u32, group: u32, condition: &Condition, target: &Target, variant: &Variant) -> Cell {
    let is_url = matches!(target, Target::Url { .. });
    Cell {
        index,
        group,
        repetition: 0,
        seed: condition.seed,
        target: target.clone(),
        protocol: variant.protocol,
        twin: variant.twin,
        connections: variant.connections,
        max_connections: variant.max_connections,
        streams: variant.streams,
        link: (!is_url).then(|| condition.link.clone()),
        congestion: (!is_url).then(|| condition.congestion.clone()),
        work: condition.work.clone(),
    }
}

/// What tells the visit's seed from those of the other cells of its group; not the link, so that two links can be
/// compared under the same drops.
fn variant_key(cell: &Cell) -> String {
    format!("{}#{}/{}/{}", cell.protocol, cell.twin, cell.connections, cell.streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(cells: &[Cell]) -> Vec<String> {
        cells.iter().map(Cell::label).collect()
    }

    fn scenario(text: &str) -> Scenario {
        Scenario::from_toml(text).unwrap()
    }

    #[test]
    fn rounds_alternate_their_direction() {
        let plan = scenario("[matrix]\nprotocols = ['h1', 'h2c']\nconnections = [1, 4]").plan();
        assert_eq!(labels(&plan), ["h1", "h2c × 1", "h2c × 4", "h2c × 4", "h2c × 1", "h1"]);
        assert_eq!(plan[0].index, plan[5].index);
        assert_ne!(plan[0].seed, plan[5].seed, "each visit has a seed of its own");
    }

    #[test]
    fn links_make_groups_and_protocols_do_not() {
        let plan = scenario("visits = 1\n[link]\nloss = ['0%', '3%']").plan();
        assert_eq!(plan.iter().map(|cell| cell.group).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(plan[0].seed, plan[2].seed, "the same cell on another link meets the same draws");
    }

    #[test]
    fn a_protocol_named_twice_is_an_a_a_run() {
        let plan = scenario("visits = 1\n[matrix]\nprotocols = ['h1', 'h1']").plan();
        assert_eq!(labels(&plan), ["h1", "h1#2"]);
        assert_ne!(plan[0].seed, plan[1].seed);
    }

    #[test]
    fn live_servers_share_a_group_and_have_no_link() {
        let live = "visits = 1\n[[matrix.live]]\nurl = 'http://127.0.0.1:1/a'\npath = '/a'\nprotocols = 'h1'\n\
                    [[matrix.live]]\nurl = 'http://127.0.0.1:2/'\npath = '/'\nprotocols = 'h1,h2c'";
        let plan = scenario(live).plan();
        assert_eq!(labels(&plan), ["h1", "h1", "h2c × 1"]);
        assert_eq!(plan[0].work.path, "/a");
        assert!(plan.iter().all(|cell| cell.group == 0 && cell.link.is_none()));
    }

    #[test]
    fn no_loss_appears_once_whatever_the_models() {
        let plan = scenario(
            "visits = 1\n[link]\nloss = ['0%', '3%']\nloss-model = ['bernoulli', 'gilbert-elliott']",
        )
        .plan();
        let groups = plan.iter().map(|cell| cell.group).max().unwrap() + 1;
        assert_eq!(groups, 3);
    }

    #[test]
    fn one_direction_can_differ() {
        let plan =
            scenario("visits = 1\n[link]\nloss = '3%'\ndelay = '10ms'\n[link.uplink]\nloss = '0%'").plan();
        let link = plan[0].link.as_ref().unwrap();
        assert_eq!(link.uplink.loss.share().to_string(), "0%");
        assert_eq!(link.downlink.loss.share().to_string(), "3%");
        assert_eq!(link.uplink.delay, link.downlink.delay);
    }

    #[test]
    fn a_typo_is_refused_with_its_line() {
        let error = Scenario::from_toml("[work]\nrate = 10\nmesure = '3s'").unwrap_err().to_string();
        assert!(error.contains("mesure") && error.contains("line 3"), "{error}");
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (text, field) in [
            ("visits = 0", "visits"),
            ("[work]\nrate = 20000000", "rate"),
            ("[work]\nmeasure = '1ms'", "measure"),
            ("[work]\npath = 'x'", "path"),
            ("[work]\nmethod = 'G T'", "method"),
            ("[work]\nheaders = [['a', \"b\\r\\nc\"]]", "headers"),
            ("[link]\ndelay = '61s'", "delay"),
            ("[matrix]\nconnections = 20001", "connections"),
            ("[matrix]\nwarm-pool = 600", "warm-pool"),
        ] {
            match Scenario::from_toml(text).unwrap_err() {
                super::super::ScenarioError::Range { field: named, .. } => assert_eq!(named, field),
                super::super::ScenarioError::Syntax(why) => panic!("{text}: {why}"),
            }
        }
    }

    #[test]
    fn a_scenario_survives_its_own_file() {
        let scenario = scenario(
            "visits = 3\n[link]\nloss = ['0%', '3%']\n[link.uplink]\ndelay = '5ms'\n[work]\nconcurrency = 8",
        );
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    }
}
