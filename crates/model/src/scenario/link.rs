//! The `[link]` table: what the emulated link does, and the conditions that result from it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::axis::{Axis, AxisValue, Capacity, QueueSize};
use super::error::ScenarioError;
use h2lab_base::units::{Bandwidth, ParseQuantityError, Ratio, duration_text, format_exact};
use h2lab_link::{
    BlackOut, Impairment, JitterOrder, LinkSpec, LossPer, LossShape, QueueDiscipline, Reorder, ScriptLine,
    Step,
};

/// What the emulated link does; every value applies to both directions unless `uplink` or `downlink` overrides it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkAxes {
    /// No link at all: both ends talk over the loopback device of one namespace, as fast as this machine can. The only
    /// other key that it allows is the congestion control.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub loopback: bool,
    /// One-way delay.
    pub delay: Axis<Duration>,
    /// Jitter: the delay varies uniformly by up to this, both ways.
    pub jitter: Axis<Duration>,
    /// Whether jitter lets packets overtake each other.
    #[serde(skip_serializing_if = "is_default")]
    pub jitter_order: Axis<JitterOrder>,
    /// Share of packets lost.
    pub loss: Axis<Ratio>,
    /// How losses are spread.
    pub loss_model: Axis<LossShape>,
    /// Which packets share a loss model's chain.
    #[serde(skip_serializing_if = "is_default")]
    pub loss_per: Axis<LossPer>,
    /// Capacity.
    pub bandwidth: Axis<Capacity>,
    /// Bytes that may wait for the capacity.
    pub queue: Axis<QueueSize>,
    /// What keeps the queue short.
    #[serde(skip_serializing_if = "is_default")]
    pub queue_discipline: Axis<QueueDiscipline>,
    /// Packets that leave their place in the order.
    #[serde(skip_serializing_if = "is_default")]
    pub reorder: Axis<Reorder>,
    /// Packet duplication, as a share.
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate: Axis<Ratio>,
    /// Share of packets of which a bit of the payload is flipped.
    #[serde(skip_serializing_if = "is_default")]
    pub corrupt: Axis<Ratio>,
    /// Congestion control of both ends.
    pub congestion: Axis<String>,
    /// Times in which nothing passes, the same in every cell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blackout: Vec<BlackOut>,
    /// What changes while the link carries packets, the same in every cell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<LinkStep>,
    /// What is different from client to server.
    pub uplink: LinkOverride,
    /// What is different from server to client.
    pub downlink: LinkOverride,
}

/// Whether an axis is the default.
fn is_default<T: Default + PartialEq + Clone>(axis: &Axis<T>) -> bool {
    *axis == Axis::one(T::default())
}

/// What one direction does differently.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkOverride {
    /// One-way delay.
    #[serde(with = "optional_text")]
    pub delay: Option<Duration>,
    /// Half-width of the variation of the delay.
    #[serde(with = "optional_text")]
    pub jitter: Option<Duration>,
    /// Share of packets lost.
    #[serde(with = "optional_text")]
    pub loss: Option<Ratio>,
    /// Capacity.
    #[serde(with = "optional_text")]
    pub bandwidth: Option<Capacity>,
    /// Queue.
    #[serde(with = "optional_text")]
    pub queue: Option<QueueSize>,
    /// What keeps the queue short.
    pub queue_discipline: Option<QueueDiscipline>,
    /// Packets that leave their place in the order.
    pub reorder: Option<Reorder>,
    /// Packet duplication, as a share.
    pub duplicate: Option<Ratio>,
    /// Share of packets of which a bit of the payload is flipped.
    pub corrupt: Option<Ratio>,
    /// Times in which nothing passes.
    pub blackout: Option<Vec<BlackOut>>,
    /// Packets that are dropped individually: a packet has one direction, and so has a script.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<ScriptLine>,
    /// What changes while the link carries packets.
    pub steps: Option<Vec<LinkStep>>,
}

/// An optional [`AxisValue`] in its text form.
mod optional_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::axis::{Axis, AxisValue};

    #[expect(clippy::ref_option, reason = "serde's `with` calls it with a reference to the field")]
    pub(super) fn serialize<T: AxisValue, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(AxisValue::print).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: AxisValue, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let axis = Option::<Axis<T>>::deserialize(deserializer)?;
        match axis.as_ref().map(Axis::values) {
            None => Ok(None),
            Some([value]) => Ok(Some(value.clone())),
            Some(_) => Err(serde::de::Error::custom("one direction takes one value, not a list")),
        }
    }
}

/// A change at a time, counted from when the link began to carry packets; what it does not name stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkStep {
    /// When.
    #[serde(with = "duration_text")]
    pub at: Duration,
    /// One-way delay.
    #[serde(with = "optional_text")]
    pub delay: Option<Duration>,
    /// Half-width of the variation of the delay.
    #[serde(with = "optional_text")]
    pub jitter: Option<Duration>,
    /// Share of packets lost, in the cell's loss model.
    #[serde(with = "optional_text")]
    pub loss: Option<Ratio>,
    /// Capacity.
    pub bandwidth: Option<Bandwidth>,
    /// Packets that leave their place in the order.
    pub reorder: Option<Reorder>,
    /// Packet duplication, as a share.
    pub duplicate: Option<Ratio>,
    /// Share of packets of which a bit of the payload is flipped.
    pub corrupt: Option<Ratio>,
}

impl LinkStep {
    /// The step of a link that loses packets in this shape.
    fn with_shape(&self, shape: LossShape) -> Step {
        let Self { at, delay, jitter, loss, bandwidth, reorder, duplicate, corrupt } = *self;
        let loss = loss.map(|share| shape.with_share(share));
        Step { at, delay, jitter, loss, bandwidth, reorder, duplicate, corrupt }
    }

    /// Whether it changes something.
    pub(super) fn says_something(&self) -> bool {
        *self != Self { at: self.at, ..Self::default() }
    }

    /// Sets one value by its key.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ParseQuantityError> {
        match key {
            "delay" => self.delay = Some(AxisValue::parse(value)?),
            "jitter" => self.jitter = Some(AxisValue::parse(value)?),
            "loss" => self.loss = Some(AxisValue::parse(value)?),
            "bandwidth" => self.bandwidth = Some(value.parse()?),
            "reorder" => self.reorder = Some(value.parse()?),
            "duplicate" => self.duplicate = Some(value.parse()?),
            "corrupt" => self.corrupt = Some(value.parse()?),
            other => {
                return Err(ParseQuantityError::new(
                    other,
                    "a value that can change (delay, jitter, loss, bandwidth, reorder, duplicate, corrupt)",
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for LinkStep {
    type Err = ParseQuantityError;

    /// `10s:loss=3%,delay=20ms`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse =
            || ParseQuantityError::new(text, "a change (TIME:KEY=VALUE,…, such as 10s:loss=3%,delay=20ms)");
        let (at, changes) = text.split_once(':').ok_or_else(refuse)?;
        let mut step = Self { at: h2lab_base::units::parse_duration(at)?, ..Self::default() };
        for change in changes.split(',') {
            let (key, value) = change.split_once('=').ok_or_else(refuse)?;
            step.set(key.trim(), value.trim())?;
        }
        Ok(step)
    }
}

impl fmt::Display for LinkStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = [
            self.delay.map(|delay| format!("delay={}", format_exact(delay))),
            self.jitter.map(|jitter| format!("jitter={}", format_exact(jitter))),
            self.loss.map(|loss| format!("loss={loss}")),
            self.bandwidth.map(|bandwidth| format!("bandwidth={bandwidth}")),
            self.reorder.map(|reorder| format!("reorder={reorder}")),
            self.duplicate.map(|share| format!("duplicate={share}")),
            self.corrupt.map(|share| format!("corrupt={share}")),
        ];
        let changes: Vec<String> = changes.into_iter().flatten().collect();
        write!(f, "{}:{}", format_exact(self.at), changes.join(","))
    }
}

impl LinkOverride {
    /// `impairment` with what is different here. Shares of loss given here keep the axis's `shape`.
    pub fn apply(&self, impairment: &Impairment, shape: LossShape) -> Impairment {
        let all = impairment.clone();
        let steps = |steps: &Vec<LinkStep>| steps.iter().map(|step| step.with_shape(shape)).collect();
        Impairment {
            delay: self.delay.unwrap_or(all.delay),
            jitter: self.jitter.unwrap_or(all.jitter),
            loss: self.loss.map_or(all.loss, |share| shape.with_share(share)),
            bandwidth: self.bandwidth.map_or(all.bandwidth, |capacity| capacity.0),
            queue_bytes: self.queue.map_or(all.queue_bytes, |queue| queue.0),
            queue_discipline: self.queue_discipline.unwrap_or(all.queue_discipline),
            reorder: self.reorder.unwrap_or(all.reorder),
            duplicate: self.duplicate.unwrap_or(all.duplicate),
            corrupt: self.corrupt.unwrap_or(all.corrupt),
            blackouts: self.blackout.clone().unwrap_or(all.blackouts),
            script: self.script.clone(),
            steps: self.steps.as_ref().map_or(all.steps, steps),
            ..all
        }
    }
}

impl Default for LinkAxes {
    fn default() -> Self {
        Self {
            loopback: false,
            delay: Axis::one(Duration::ZERO),
            jitter: Axis::one(Duration::ZERO),
            jitter_order: Axis::one(JitterOrder::default()),
            loss: Axis::one(Ratio::ZERO),
            loss_model: Axis::one(LossShape::Bernoulli),
            loss_per: Axis::one(LossPer::default()),
            bandwidth: Axis::one(Capacity(None)),
            queue: Axis::one(QueueSize(None)),
            queue_discipline: Axis::one(QueueDiscipline::default()),
            reorder: Axis::one(Reorder::default()),
            duplicate: Axis::one(Ratio::ZERO),
            corrupt: Axis::one(Ratio::ZERO),
            congestion: Axis::one("cubic".to_owned()),
            blackout: Vec::new(),
            steps: Vec::new(),
            uplink: LinkOverride::default(),
            downlink: LinkOverride::default(),
        }
    }
}

/// One point of the product of the axes, before a direction overrides it.
#[derive(Clone)]
struct Both {
    impairment: Impairment,
    shape: LossShape,
}

/// Each of `links` with each value of an axis; the last axis varies fastest.
fn times<T: Clone>(links: Vec<Both>, axis: &Axis<T>, set: impl Fn(&mut Both, &T)) -> Vec<Both> {
    let with = |link: Both| {
        let set = &set;
        axis.values().iter().map(move |value| {
            let mut link = link.clone();
            set(&mut link, value);
            link
        })
    };
    links.into_iter().flat_map(with).collect()
}

impl LinkAxes {
    /// Every link of the product of the axes, in the order of the plan; some can be alike in effect.
    pub(super) fn specs(&self) -> Vec<LinkSpec> {
        let blackouts = self.blackout.clone();
        let impairment = Impairment { blackouts, ..Impairment::default() };
        let mut links = vec![Both { impairment, shape: LossShape::default() }];
        links = times(links, &self.delay, |link, delay| link.impairment.delay = *delay);
        links = times(links, &self.jitter, |link, jitter| link.impairment.jitter = *jitter);
        links = times(links, &self.jitter_order, |link, order| link.impairment.jitter_order = *order);
        links = times(links, &self.bandwidth, |link, capacity| link.impairment.bandwidth = capacity.0);
        links = times(links, &self.queue, |link, queue| link.impairment.queue_bytes = queue.0);
        links = times(links, &self.queue_discipline, |link, codel| link.impairment.queue_discipline = *codel);
        links = times(links, &self.reorder, |link, reorder| link.impairment.reorder = *reorder);
        links = times(links, &self.duplicate, |link, share| link.impairment.duplicate = *share);
        links = times(links, &self.corrupt, |link, share| link.impairment.corrupt = *share);
        links = times(links, &self.loss_per, |link, per| link.impairment.loss_per = *per);
        links = times(links, &self.loss_model, |link, shape| link.shape = *shape);
        // A share of 0 is the same in every shape, but only for the whole link: the other direction may override it.
        links = times(links, &self.loss, |link, share| link.impairment.loss = link.shape.with_share(*share));
        let spec = |mut both: Both| {
            both.impairment.steps = self.steps.iter().map(|step| step.with_shape(both.shape)).collect();
            LinkSpec {
                uplink: self.uplink.apply(&both.impairment, both.shape),
                downlink: self.downlink.apply(&both.impairment, both.shape),
            }
        };
        links.into_iter().map(spec).collect()
    }

    /// Checks every range.
    pub(super) fn validate(&self) -> Result<(), ScenarioError> {
        const LONGEST: Duration = Duration::from_secs(60);
        let refuse = |field, value: Duration, expected| {
            Err(ScenarioError::Range { field, value: format!("{value:?}"), expected })
        };
        for spec in self.specs() {
            for impairment in [&spec.uplink, &spec.downlink] {
                let steps = || impairment.steps.iter();
                let mut delays = steps().filter_map(|step| step.delay).chain([impairment.delay]);
                if let Some(delay) = delays.find(|delay| *delay > LONGEST) {
                    return refuse("delay", delay, "0 to 60 s, one way");
                }
                let mut jitters = steps().filter_map(|step| step.jitter).chain([impairment.jitter]);
                if let Some(jitter) = jitters.find(|jitter| *jitter > LONGEST) {
                    return refuse("jitter", jitter, "0 to 60 s");
                }
            }
        }
        Ok(())
    }
}

/// A normalised link: values without effect are reset to their defaults, and a default queue gets its size.
pub(super) fn effect(link: &LinkSpec) -> LinkSpec {
    let one = |impairment: &Impairment| {
        let is_limited =
            impairment.bandwidth.is_some() || impairment.steps.iter().any(|step| step.bandwidth.is_some());
        let varies = !impairment.jitter.is_zero()
            || impairment.steps.iter().any(|step| step.delay.or(step.jitter).is_some());
        Impairment {
            queue_bytes: is_limited.then(|| impairment.queue_limit()),
            queue_discipline: if is_limited {
                impairment.queue_discipline
            } else {
                QueueDiscipline::default()
            },
            jitter_order: if varies { impairment.jitter_order } else { JitterOrder::default() },
            loss_per: if impairment.worst_loss() > Ratio::ZERO {
                impairment.loss_per
            } else {
                LossPer::default()
            },
            ..impairment.clone()
        }
    };
    LinkSpec { uplink: one(&link.uplink), downlink: one(&link.downlink) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use h2lab_link::LossModel;

    const FULL: &str = "[link]
delay = '10ms'
jitter = '2ms'
jitter-order = ['kept', 'free']
loss = '1%'
loss-model = 'burst:20ms'
loss-per = 'connection'
bandwidth = '10mbit'
queue-discipline = 'drop-tail,codel'
reorder = '1%:3ms'
duplicate = '2%'
corrupt = '3%'
blackout = ['1s..1.5s', '2s..3s']

[[link.steps]]
at = '2s'
loss = '5%'

[link.uplink]
script = ['syn 1 of flow 1', 'data 3 of each flow']

[link.downlink]
reorder = '0%'
blackout = []
steps = [{ at = '1s', bandwidth = '1mbit' }, { at = '2s', delay = '20ms' }]
";

    #[test]
    fn every_key_reaches_the_direction_that_it_is_for() {
        let scenario = Scenario::from_toml(FULL).unwrap();
        let specs = scenario.link.specs();
        assert_eq!(specs.len(), 4);
        let LinkSpec { uplink, downlink } = specs.last().unwrap();
        assert_eq!(
            uplink.to_string(),
            "delay 10ms ± 2ms in free order, loss 1% (burst by time per connection), bandwidth 10mbit, \
             queue 183.1 KiB (codel), reorder 1%:3ms, duplicate 2%, corrupt 3%, black-out 1s..1500ms, \
             black-out 2s..3s, drop syn 1 of flow 1, drop data 3 of each flow, at 2s: loss 5% (burst by time)"
        );
        assert_eq!(
            downlink.to_string(),
            "delay 10ms ± 2ms in free order, loss 1% (burst by time per connection), bandwidth 10mbit, \
             queue 183.1 KiB (codel), duplicate 2%, corrupt 3%, at 1s: bandwidth 1mbit, at 2s: delay 20ms"
        );
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    }

    #[test]
    fn axes_multiply_in_the_order_in_which_they_did_before_there_were_more() {
        let scenario = Scenario::from_toml(
            "[link]\ndelay = '0ms,1ms'\nloss = '0%,3%'\nloss-model = 'bernoulli,burst'\nduplicate = '0%,1%'",
        );
        let specs = scenario.unwrap().link.specs();
        let rendered: Vec<String> = specs[..8].iter().map(|spec| spec.uplink.to_string()).collect();
        let (none, bernoulli, burst) = ("delay 0ms", ", loss 3% (bernoulli)", ", loss 3% (burst)");
        let group =
            [none.to_owned(), format!("{none}{bernoulli}"), none.to_owned(), format!("{none}{burst}")];
        assert_eq!(rendered[..4], group);
        assert_eq!(rendered[4..], group.map(|rendered| format!("{rendered}, duplicate 1%")));
        assert_eq!(specs[8].uplink.delay, Duration::from_millis(1));
    }

    #[test]
    fn a_step_loses_in_the_shape_of_its_cell() {
        let text = "[link]\nloss-model = 'bernoulli,burst:2'\nsteps = [{ at = '1s', loss = '3%' }]";
        let specs = Scenario::from_toml(text).unwrap().link.specs();
        let models: Vec<LossModel> = specs.iter().map(|spec| spec.downlink.steps[0].loss.unwrap()).collect();
        let three = "3%".parse().unwrap();
        assert_eq!(models, [LossModel::bernoulli(three), LossModel::burst(three, 2)]);
    }

    #[test]
    fn what_has_no_effect_is_no_condition_of_its_own() {
        for text in [
            "queue-discipline = 'drop-tail,codel'\nbandwidth = 'unlimited,10mbit'",
            "jitter-order = 'kept,free'\njitter = '0ms,2ms'\ndelay = '5ms'",
            "loss-per = 'link,connection'\nloss = '0%,3%'",
        ] {
            let scenario =
                Scenario::from_toml(&format!("repetitions = 1\n[link]\n{text}\n[matrix]\nprotocols = 'h1'"));
            assert_eq!(scenario.unwrap().plan().len(), 3, "{text}");
        }
    }

    #[test]
    fn steps_parse_as_they_print() {
        let text = "10s:delay=20ms,loss=3%,bandwidth=1mbit,reorder=1%:2ms,corrupt=1%";
        assert_eq!(text.parse::<LinkStep>().unwrap().to_string(), text);
        for bad in
            ["10s", "10s:", "10s:loss", "10s:loss=200%", "10s:queue=5", "loss=3%", "10s:bandwidth=unlimited"]
        {
            assert!(bad.parse::<LinkStep>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_hold_for_directions_and_steps_too() {
        for (text, is_right) in [
            ("delay = '60s'", true),
            ("delay = '60.1s'", false),
            ("[link.uplink]\ndelay = '61s'", false),
            ("[link.downlink]\ndelay = '60s'\njitter = '61s'", false),
            ("steps = [{ at = '1s', delay = '60s' }]", true),
            ("steps = [{ at = '1s', delay = '61s' }]", false),
        ] {
            assert_eq!(Scenario::from_toml(&format!("[link]\n{text}")).is_ok(), is_right, "{text}");
        }
    }
}
