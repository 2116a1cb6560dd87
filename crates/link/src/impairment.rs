//! What a link does to packets: the values a user sets, in netem's words where it has them.

use h2lab_base::JsonSchema;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlackOut, JitterOrder, LossModel, LossPer, QueueDiscipline, Reorder, ScriptLine};
use h2lab_base::units::{
    Bandwidth, Ratio, duration_text, format_bytes, format_duration, optional_duration_text,
};

/// Both directions of a link, and the seed of all its random choices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Client to server.
    pub uplink: Impairment,
    /// Server to client.
    pub downlink: Impairment,
}

impl LinkSpec {
    /// The same impairment in both directions.
    pub fn symmetric(impairment: Impairment) -> Self {
        Self { uplink: impairment.clone(), downlink: impairment }
    }

    /// The sum of both one-way delays, as they are at first.
    pub fn rtt(&self) -> Duration {
        self.uplink.delay + self.downlink.delay
    }

    /// Whether it may drop or damage a packet. If it does neither, a peer that is silent has sent nothing.
    pub fn may_drop(&self) -> bool {
        [&self.uplink, &self.downlink].into_iter().any(Impairment::may_drop)
    }
}

/// One direction of a link. Fields that earlier versions did not have are written only where they are set, so that the
/// runs of those versions read the same.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Impairment {
    /// One-way delay.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub delay: Duration,
    /// Jitter: the delay varies uniformly by up to this, both ways.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub jitter: Duration,
    /// Whether jitter lets packets overtake each other.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter_order: JitterOrder,
    /// Which packets are lost at random.
    pub loss: LossModel,
    /// Which packets share a loss model's chain.
    #[serde(skip_serializing_if = "is_default")]
    pub loss_per: LossPer,
    /// Capacity; `None` is unlimited.
    pub bandwidth: Option<Bandwidth>,
    /// Queue limit in bytes; packets beyond it are dropped. `None`: what passes in a round trip, or in 150 ms if that is more,
    /// but 10 to 1000 packets of 1500 bytes. Meaningless without `bandwidth`.
    pub queue_bytes: Option<u64>,
    /// What keeps the queue short. Meaningless without `bandwidth`.
    #[serde(skip_serializing_if = "is_default")]
    pub queue_discipline: QueueDiscipline,
    /// Which packets leave their place in the order.
    #[serde(skip_serializing_if = "is_default")]
    pub reorder: Reorder,
    /// Packet duplication, as a share.
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate: Ratio,
    /// Share of packets of which a bit of the payload is flipped.
    #[serde(skip_serializing_if = "is_default")]
    pub corrupt: Ratio,
    /// Packets that are dropped individually.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<ScriptLine>,
    /// Times in which nothing passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blackouts: Vec<BlackOut>,
    /// What changes while the link carries packets, in the order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A change of a direction at a time; what is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// When, counted from when the link began to carry packets.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub at: Duration,
    /// One-way delay.
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub delay: Option<Duration>,
    /// Half-width of its variation.
    #[serde(with = "optional_duration_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub jitter: Option<Duration>,
    /// Which packets are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossModel>,
    /// Capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Which packets leave their place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Packet duplication, as a share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Ratio>,
    /// Share of packets of which a bit is flipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Ratio>,
}

/// The longest default queue: netem's default of 1000 packets, at 1500 bytes each.
const LONGEST_QUEUE: u64 = 1_500_000;
/// The shortest default queue: ten such packets, an initial window of TCP.
const SHORTEST_QUEUE: u64 = 15_000;
/// For how long a full default queue delays, at least, if it is not the longest or the shortest.
const QUEUE_TIME: Duration = Duration::from_millis(150);

impl Impairment {
    /// The size of its queue, in bytes: as given, else what passes in a round trip, or in 150 ms if that is more, but
    /// 10 to 1000 packets of 1500 bytes. The round trip is that of two directions as slow as this one. With steps, the
    /// highest bandwidth and the longest delay count.
    pub fn queue_limit(&self) -> u64 {
        let delays = self.steps.iter().filter_map(|step| step.delay).chain([self.delay]);
        let time = delays.max().map_or(QUEUE_TIME, |delay| QUEUE_TIME.max(delay * 2));
        let rates = self.steps.iter().filter_map(|step| step.bandwidth).chain(self.bandwidth);
        let fastest = rates.map(Bandwidth::bits_per_second).max().unwrap_or(u64::MAX);
        let passes = u128::from(fastest) * time.as_nanos() / 8_000_000_000;
        let default = u64::try_from(passes).unwrap_or(u64::MAX).clamp(SHORTEST_QUEUE, LONGEST_QUEUE);
        self.queue_bytes.unwrap_or(default)
    }

    /// What passes in a round trip of `rtt`, in bytes: a queue shorter than that runs empty when a full one has made TCP
    /// halve its window. `None` if the capacity is unlimited, or if a step changes it or the delay.
    pub fn bandwidth_delay_product(&self, rtt: Duration) -> Option<u64> {
        let is_steady = !self.steps.iter().any(|step| step.bandwidth.is_some() || step.delay.is_some());
        let bits = self.bandwidth.filter(|_| is_steady)?.bits_per_second();
        u64::try_from(u128::from(bits) * rtt.as_nanos() / 8_000_000_000).ok()
    }

    /// The largest share of loss that it reaches, initially or by a step.
    pub fn worst_loss(&self) -> Ratio {
        let steps = self.steps.iter().filter_map(|step| step.loss);
        let shares = std::iter::once(self.loss).chain(steps).map(|loss| loss.share());
        shares.fold(Ratio::ZERO, |worst, share| if share > worst { share } else { worst })
    }

    /// Whether it may drop or damage a packet, also by a full queue or after a step.
    fn may_drop(&self) -> bool {
        self.worst_loss() > Ratio::ZERO
            || self.bandwidth.is_some()
            || self.corrupt > Ratio::ZERO
            || !(self.script.is_empty() && self.blackouts.is_empty() && self.steps.is_empty())
    }

    /// The actions at a time or on a packet, each in a few words: `black-out 2s..3s`, `drop syn 1 of flow 1`.
    pub fn events(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.blackouts.iter().map(|blackout| format!("black-out {blackout}")));
        words.extend(self.script.iter().map(|line| format!("drop {line}")));
        words.extend(self.steps.iter().map(Step::to_string));
        words
    }
}

impl fmt::Display for Step {
    /// `at 10s: delay 50ms, loss 3% (bernoulli)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |name: &str, share: Option<Ratio>| share.map(|share| format!("{name} {share}"));
        let words = [
            self.delay.map(|delay| format!("delay {}", format_duration(delay))),
            self.jitter.map(|jitter| format!("jitter {}", format_duration(jitter))),
            self.loss.map(|loss| match loss {
                LossModel::None => "no loss".to_owned(),
                loss => format!("loss {} ({})", loss.share(), loss.name()),
            }),
            self.bandwidth.map(|bandwidth| format!("bandwidth {bandwidth}")),
            self.reorder.map(|reorder| format!("reorder {reorder}")),
            share("duplicate", self.duplicate),
            share("corrupt", self.corrupt),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        write!(f, "at {}: {}", format_duration(self.at), words.join(", "))
    }
}

impl fmt::Display for Impairment {
    /// `delay 12.5ms, loss 3% (bernoulli)`, naming only what is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", format_duration(self.delay))?;
        if !self.jitter.is_zero() {
            write!(f, " ± {}", format_duration(self.jitter))?;
            if self.jitter_order == JitterOrder::Free {
                f.write_str(" in free order")?;
            }
        }
        if self.loss != LossModel::None {
            let per = if self.loss_per == LossPer::Connection { " per connection" } else { "" };
            write!(f, ", loss {} ({}{per})", self.loss.share(), self.loss.name())?;
        }
        if let Some(bandwidth) = self.bandwidth {
            let queue = format_bytes(self.queue_limit());
            write!(f, ", bandwidth {bandwidth}, queue {queue}")?;
            if self.queue_discipline != QueueDiscipline::DropTail {
                write!(f, " ({})", self.queue_discipline)?;
            }
        }
        if self.reorder.share != Ratio::ZERO {
            write!(f, ", reorder {}", self.reorder)?;
        }
        for (name, share) in [("duplicate", self.duplicate), ("corrupt", self.corrupt)] {
            if share != Ratio::ZERO {
                write!(f, ", {name} {share}")?;
            }
        }
        self.events().iter().try_for_each(|words| write!(f, ", {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    #[test]
    fn a_link_reads_like_a_sentence() {
        let plain = Impairment {
            delay: Duration::from_micros(12_500),
            loss: LossModel::bernoulli(share(0.03)),
            bandwidth: Some("100mbit".parse().unwrap()),
            ..Impairment::default()
        };
        assert_eq!(
            plain.to_string(),
            "delay 12.5ms, loss 3% (bernoulli), bandwidth 100mbit, queue 1.431 MiB"
        );
        let full = Impairment {
            jitter: Duration::from_millis(2),
            jitter_order: JitterOrder::Free,
            loss_per: LossPer::Connection,
            queue_discipline: QueueDiscipline::CODEL,
            reorder: "1%:2ms".parse().unwrap(),
            corrupt: share(0.01),
            blackouts: vec!["2s..3s".parse().unwrap()],
            script: vec!["syn 1 of flow 1".parse().unwrap()],
            steps: vec![Step {
                at: Duration::from_secs(10),
                loss: Some(LossModel::None),
                delay: Some(Duration::ZERO),
                ..Step::default()
            }],
            ..plain
        };
        assert_eq!(
            full.to_string(),
            "delay 12.5ms ± 2ms in free order, loss 3% (bernoulli per connection), bandwidth 100mbit, \
             queue 1.431 MiB (codel), reorder 1%:2ms, corrupt 1%, black-out 2s..3s, drop syn 1 of flow 1, \
             at 10s: delay 0ms, no loss"
        );
        let json = serde_json::to_string(&full).unwrap();
        assert_eq!(serde_json::from_str::<Impairment>(&json).unwrap(), full, "{json}");
    }

    #[test]
    fn what_passes_in_a_round_trip_is_known_of_a_steady_capacity() {
        let of = |steps: Vec<Step>| {
            let bandwidth = "20mbit".parse().ok();
            let one = Impairment { bandwidth, steps, ..Impairment::default() };
            one.bandwidth_delay_product(Duration::from_millis(50))
        };
        assert_eq!(of(Vec::new()), Some(125_000));
        assert_eq!(of(vec![Step { loss: Some(LossModel::None), ..Step::default() }]), Some(125_000));
        assert_eq!(of(vec![Step { delay: Some(Duration::ZERO), ..Step::default() }]), None);
        assert_eq!(Impairment::default().bandwidth_delay_product(Duration::from_millis(50)), None);
    }

    #[test]
    fn a_default_queue_is_bounded_by_time_and_by_packets() {
        let of = |bandwidth: &str, delay_ms: u64| {
            let delay = Duration::from_millis(delay_ms);
            Impairment { delay, bandwidth: bandwidth.parse().ok(), ..Impairment::default() }
        };
        for (bandwidth, delay_ms, bytes) in [
            ("100kbit", 0, 15_000),
            ("10mbit", 0, 187_500),
            ("10mbit", 75, 187_500),
            ("10mbit", 100, 250_000),
            ("100mbit", 10, 1_500_000),
            ("1gbit", 100, 1_500_000),
        ] {
            assert_eq!(of(bandwidth, delay_ms).queue_limit(), bytes, "{bandwidth}, {delay_ms} ms");
        }
        let delay = Duration::from_micros(80_300);
        let odd = Impairment { delay, ..of("20mbit", 0) };
        assert_eq!(
            Some(odd.queue_limit()),
            odd.bandwidth_delay_product(delay * 2),
            "a round trip, to the byte"
        );
        let given = Impairment { queue_bytes: Some(3_000), ..of("100mbit", 10) };
        assert_eq!(given.queue_limit(), 3_000);
        let faster = Step { bandwidth: "10mbit".parse().ok(), ..Step::default() };
        let slower = Step { delay: Some(Duration::from_millis(100)), ..Step::default() };
        let changing = Impairment { steps: vec![faster, slower], ..of("100kbit", 0) };
        assert_eq!(changing.queue_limit(), 250_000);
    }

    #[test]
    fn a_link_of_an_earlier_version_is_written_as_it_was() {
        let json =
            r#"{"delay":"10ms","jitter":"0ms","loss":{"model":"none"},"bandwidth":null,"queue_bytes":null}"#;
        let impairment: Impairment = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&impairment).unwrap(), json);
    }

    #[test]
    fn the_worst_loss_may_come_later() {
        let step = |loss| Step { loss: Some(LossModel::bernoulli(share(loss))), ..Step::default() };
        let impairment = Impairment {
            loss: LossModel::bernoulli(share(0.01)),
            steps: vec![step(0.03), step(0.0)],
            ..Impairment::default()
        };
        assert_eq!(impairment.worst_loss(), share(0.03));
    }
}
