//! Which packets are lost at random: the models, and the chains that apply them.

mod chain;
mod model;

pub use model::{Extent, LossModel, LossPer, LossShape};

use chain::LossChain;

use super::packet::FlowNumber;
use h2lab_base::random::derive;
use h2lab_base::units::Time;

/// The state of a loss model for one direction.
#[derive(Debug)]
pub struct Loss {
    model: LossModel,
    per: LossPer,
    seed: u64,
    /// The chain shared by all packets.
    shared: LossChain,
    /// The chain of flow n at n - 1, from its first packet on.
    flows: Vec<Option<LossChain>>,
}

impl Loss {
    /// `model` under `seed`, from `start` on.
    pub fn new(model: LossModel, per: LossPer, seed: u64, start: Time) -> Self {
        Self { model, per, seed, shared: LossChain::new(model, seed, start), flows: Vec::new() }
    }

    /// Whether the next packet, which comes at `now` and belongs to `flow`, is lost.
    pub fn takes(&mut self, now: Time, flow: FlowNumber) -> bool {
        let place = match (self.per, flow.index()) {
            (LossPer::Connection, Some(index)) => {
                if index >= self.flows.len() {
                    self.flows.resize(index + 1, None);
                }
                &mut self.flows[index]
            }
            (LossPer::Link, _) | (LossPer::Connection, None) => return self.shared.takes_next(now),
        };
        let new = || LossChain::new(self.model, derive(self.seed, &format!("loss of flow {flow}")), now);
        place.get_or_insert_with(new).takes_next(now)
    }

    /// Changes the model from `now` on.
    pub fn change(&mut self, model: LossModel, now: Time) {
        self.model = model;
        let chains = self.flows.iter_mut().flatten().chain(std::iter::once(&mut self.shared));
        chains.for_each(|chain| chain.change(model, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_base::units::Ratio;

    fn loss(per: LossPer) -> Loss {
        Loss::new(LossModel::gilbert_elliott(Ratio::new(0.1).unwrap(), 3.0), per, 3, Time::ZERO)
    }

    /// The fates of 10,000 packets of flow 1, with `others` packets of flow 2 between each two.
    fn of_first_flow(per: LossPer, others: usize) -> Vec<bool> {
        let mut loss = loss(per);
        let mut next = || {
            for _ in 0..others {
                loss.takes(Time::ZERO, FlowNumber::new(2));
            }
            loss.takes(Time::ZERO, FlowNumber::new(1))
        };
        (0..10_000).map(|_| next()).collect()
    }

    #[test]
    fn a_connection_of_its_own_chain_does_not_notice_the_others() {
        assert_eq!(of_first_flow(LossPer::Connection, 0), of_first_flow(LossPer::Connection, 2));
        assert_ne!(of_first_flow(LossPer::Link, 0), of_first_flow(LossPer::Link, 2));
    }

    #[test]
    fn connections_lose_independently_of_each_other() {
        let mut loss = loss(LossPer::Connection);
        let both = |loss: &mut Loss| [1, 2].map(|flow| loss.takes(Time::ZERO, FlowNumber::new(flow)));
        let fates: Vec<[bool; 2]> = (0..100_000).map(|_| both(&mut loss)).collect();
        let together = fates.iter().filter(|fates| **fates == [true, true]).count() as f64;
        // 1 % of pairs if independent. Both come in bursts, by which the deviation grows no more than by sqrt(2 · 3 - 1).
        let sd = (1e5 * 0.01 * 0.99 * 5.0_f64).sqrt();
        assert!((together - 1000.0).abs() <= 3.0 * sd, "{together}");
    }

    #[test]
    fn packets_of_no_flow_share_a_chain() {
        let (mut own, mut shared) = (loss(LossPer::Connection), loss(LossPer::Link));
        let mut same =
            || own.takes(Time::ZERO, FlowNumber::NONE) == shared.takes(Time::ZERO, FlowNumber::new(1));
        assert!((0..1000).all(|_| same()));
    }

    #[test]
    fn a_change_concerns_known_and_new_connections() {
        let mut loss = loss(LossPer::Connection);
        loss.takes(Time::ZERO, FlowNumber::new(1));
        loss.change(LossModel::Bernoulli { p: Ratio::ONE }, Time::ZERO);
        for flow in [FlowNumber::new(1), FlowNumber::new(2), FlowNumber::NONE] {
            assert!(loss.takes(Time::ZERO, flow), "{flow}");
        }
        loss.change(LossModel::None, Time::ZERO);
        for flow in [FlowNumber::new(1), FlowNumber::new(2), FlowNumber::NONE] {
            assert!(!loss.takes(Time::ZERO, flow), "{flow}");
        }
    }
}
