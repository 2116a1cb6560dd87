//! Who fetches from whom.

use h2lab_base::JsonSchema;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use h2lab_base::random::Counter;
use h2lab_base::units::ParseQuantityError;

/// How clients come to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Pairing {
    /// Each client's transfers go to all servers, evenly: no server gets more than one more than another, over all.
    #[default]
    All,
    /// Each client has one server, dealt in turn.
    One,
    /// Each transfer of a client draws its server, by the seed.
    Random,
}

impl Pairing {
    /// All of them, in the order of the help.
    pub const EACH: [Self; 3] = [Self::All, Self::One, Self::Random];

    /// The name in flags, JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Pairing {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::EACH.into_iter().find(|pairing| pairing.name() == text);
        found.ok_or_else(|| ParseQuantityError::new(text, "all, one or random"))
    }
}

/// A client and a server from which it fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// The client's place among the clients.
    pub client: u32,
    /// The server's place among the servers.
    pub server: u32,
    /// Connections, at least 1.
    pub connections: u32,
    /// Concurrent requests on each, at least 1; just 1 in HTTP/1.1.
    pub streams: u32,
}

impl Pair {
    /// Transfers at a time.
    pub const fn workers(&self) -> u32 {
        self.connections.saturating_mul(self.streams)
    }
}

/// Who fetches from whom, and with how much concurrency.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FleetPlan {
    /// Client by client, server by server; pairs without work are left out.
    pub pairs: Vec<Pair>,
}

/// The input of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanInput {
    /// How many clients there are.
    pub clients: u32,
    /// How many servers there are.
    pub servers: u32,
    /// Transfers at a time of each client.
    pub concurrency: u32,
    /// Connections of each pair where one carries several transfers; `None` in HTTP/1.1, which has one for each.
    pub connections: Option<u32>,
    /// How clients are assigned to servers.
    pub pairing: Pairing,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FleetPlanError {
    /// No clients or no servers.
    #[error("a drive needs a client and a server")]
    Nobody,
    /// No transfers.
    #[error("a client needs at least one concurrent transfer")]
    NoWorkers,
    /// Connections with different numbers of streams would be needed.
    #[error(
        "{workers} concurrent transfers between a client and a server cannot be spread evenly over {connections} \
         connections; change the concurrency or the connections"
    )]
    Uneven {
        /// Transfers at a time.
        workers: u32,
        /// Connections that were asked for.
        connections: u32,
    },
}

impl FleetPlan {
    /// The purpose under which servers are drawn from a run's seed.
    pub const PURPOSE: &'static str = "fleet pairs";

    /// The plan of a input; the same one for the same input.
    pub fn make(input: &PlanInput) -> Result<Self, FleetPlanError> {
        if input.clients == 0 || input.servers == 0 {
            return Err(FleetPlanError::Nobody);
        }
        if input.concurrency == 0 {
            return Err(FleetPlanError::NoWorkers);
        }
        let random = Counter::new(input.seed, Self::PURPOSE);
        let mut pairs = Vec::new();
        for client in 0..input.clients {
            let workers = workers_of(input, client, &random);
            for (server, workers) in (0..).zip(workers).filter(|(_, workers)| *workers > 0) {
                pairs.push(pair(client, server, workers, input.connections)?);
            }
        }
        Ok(Self { pairs })
    }

    /// The places in [`FleetPlan::pairs`] of what a client fetches.
    pub fn of_client(&self, client: u32) -> impl Iterator<Item = usize> + '_ {
        (0..).zip(&self.pairs).filter(move |(_, pair)| pair.client == client).map(|(place, _)| place)
    }
}

/// A client's concurrent transfers with each server.
fn workers_of(input: &PlanInput, client: u32, random: &Counter) -> Vec<u32> {
    let mut workers = vec![0; input.servers as usize];
    let servers = u64::from(input.servers);
    for worker in 0..input.concurrency {
        let n = u64::from(client) * u64::from(input.concurrency) + u64::from(worker);
        let server = match input.pairing {
            // Dealt in turn across clients: a remainder goes to another server each time.
            Pairing::All => n % servers,
            Pairing::One => u64::from(client) % servers,
            Pairing::Random => ((u128::from(random.at(n)) * u128::from(servers)) >> 64) as u64,
        };
        workers[server as usize] += 1;
    }
    workers
}

fn pair(client: u32, server: u32, workers: u32, connections: Option<u32>) -> Result<Pair, FleetPlanError> {
    // Use no connection without a stream.
    let connections = connections.map_or(workers, |connections| connections.clamp(1, workers));
    if !workers.is_multiple_of(connections) {
        return Err(FleetPlanError::Uneven { workers, connections });
    }
    Ok(Pair { client, server, connections, streams: workers / connections })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INPUT: PlanInput = PlanInput {
        clients: 2,
        servers: 2,
        concurrency: 8,
        connections: None,
        pairing: Pairing::All,
        seed: 1,
    };

    fn reported(input: &PlanInput) -> Vec<(u32, u32, u32, u32)> {
        let plan = FleetPlan::make(input).unwrap();
        plan.pairs.iter().map(|pair| (pair.client, pair.server, pair.connections, pair.streams)).collect()
    }

    #[test]
    fn each_client_fetches_from_each_server_evenly() {
        assert_eq!(reported(&INPUT), [(0, 0, 4, 1), (0, 1, 4, 1), (1, 0, 4, 1), (1, 1, 4, 1)]);
        let http2 = PlanInput { connections: Some(1), ..INPUT };
        assert_eq!(reported(&http2), [(0, 0, 1, 4), (0, 1, 1, 4), (1, 0, 1, 4), (1, 1, 1, 4)]);
        let two = PlanInput { connections: Some(2), clients: 1, ..INPUT };
        assert_eq!(reported(&two), [(0, 0, 2, 2), (0, 1, 2, 2)]);
    }

    #[test]
    fn what_does_not_come_out_even_goes_to_another_server_each_time() {
        let odd = PlanInput { concurrency: 3, ..INPUT };
        assert_eq!(reported(&odd), [(0, 0, 2, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 2, 1)]);
        let fewer_than_servers = PlanInput { concurrency: 1, servers: 3, ..INPUT };
        assert_eq!(reported(&fewer_than_servers), [(0, 0, 1, 1), (1, 1, 1, 1)]);
    }

    #[test]
    fn one_server_each_is_dealt_in_turn() {
        let input = PlanInput { pairing: Pairing::One, clients: 3, ..INPUT };
        assert_eq!(reported(&input), [(0, 0, 8, 1), (1, 1, 8, 1), (2, 0, 8, 1)]);
    }

    #[test]
    fn the_seed_decides_what_is_random_and_nothing_else() {
        let random = |seed| {
            reported(&PlanInput { pairing: Pairing::Random, seed, concurrency: 20, servers: 5, ..INPUT })
        };
        assert_eq!(random(7), random(7));
        assert_ne!(random(7), random(8));
        assert_eq!(reported(&INPUT), reported(&PlanInput { seed: 2, ..INPUT }));
    }

    #[test]
    fn streams_that_cannot_be_dealt_evenly_are_refused_rather_than_dropped() {
        let uneven = PlanInput { concurrency: 3, servers: 1, connections: Some(2), ..INPUT };
        assert_eq!(FleetPlan::make(&uneven), Err(FleetPlanError::Uneven { workers: 3, connections: 2 }));
        let more_than_streams =
            PlanInput { concurrency: 3, servers: 1, clients: 1, connections: Some(9), ..INPUT };
        assert_eq!(reported(&more_than_streams), [(0, 0, 3, 1)]);
        assert_eq!(FleetPlan::make(&PlanInput { clients: 0, ..INPUT }), Err(FleetPlanError::Nobody));
        assert_eq!(FleetPlan::make(&PlanInput { servers: 0, ..INPUT }), Err(FleetPlanError::Nobody));
        assert_eq!(FleetPlan::make(&PlanInput { concurrency: 0, ..INPUT }), Err(FleetPlanError::NoWorkers));
    }

    #[test]
    fn names_of_pairings_read_back() {
        for pairing in Pairing::EACH {
            assert_eq!(pairing.name().parse(), Ok(pairing));
        }
        assert!("each".parse::<Pairing>().is_err());
    }

    proptest! {
        #[test]
        fn every_client_has_all_its_transfers_and_no_server_is_favoured(
            clients in 1_u32..9, servers in 1_u32..9, concurrency in 1_u32..40, which in 0_usize..3, seed in any::<u64>(),
        ) {
            let pairing = Pairing::EACH[which];
            let plan = FleetPlan::make(&PlanInput { clients, servers, concurrency, connections: None, pairing, seed }).unwrap();
            for client in 0..clients {
                let workers: u32 = plan.of_client(client).map(|place| plan.pairs[place].workers()).sum();
                prop_assert_eq!(workers, concurrency);
            }
            let of_server = |server| plan.pairs.iter().filter(|pair| pair.server == server).map(Pair::workers).sum::<u32>();
            let workers: Vec<u32> = (0..servers).map(of_server).collect();
            if pairing == Pairing::All {
                prop_assert!(workers.iter().max().unwrap() - workers.iter().min().unwrap() <= 1);
            }
        }
    }
}
