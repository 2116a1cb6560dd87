//! What a link does to packets: the values a user sets, in netem's words.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bandwidth, ParseQuantityError, Ratio, duration_text, format_bytes, format_duration};

/// Both directions of a link, and the seed of all its random choices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
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

    /// The sum of both one-way delays.
    pub fn rtt(&self) -> Duration {
        self.uplink.delay + self.downlink.delay
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Impairment {
    /// One-way delay.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub delay: Duration,
    /// Half-width of a uniform variation of the delay. The order of packets is kept: a packet never overtakes.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub jitter: Duration,
    /// Which packets are lost at random.
    pub loss: LossModel,
    /// Capacity; `None` is unlimited.
    pub bandwidth: Option<Bandwidth>,
    /// Bytes that may wait for the bandwidth before the tail is dropped. `None`: 1000 packets of 1500 bytes, as
    /// netem's `limit`. Meaningless without `bandwidth`.
    pub queue_bytes: Option<u64>,
}

/// A queue that nobody set: netem's default of 1000 packets, at 1500 bytes each.
pub const DEFAULT_QUEUE_BYTES: u64 = 1_500_000;

/// Which packets are lost. Every model draws from the seed by the packet's index, never by its arrival time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "model", deny_unknown_fields)]
pub enum LossModel {
    /// None.
    #[default]
    None,
    /// Each packet independently.
    Bernoulli {
        /// Probability of loss.
        p: Ratio,
    },
    /// Two states, stepped per packet; everything is lost in the bad one (Gilbert's simple model).
    GilbertElliott {
        /// Probability of going from good to bad.
        p: Ratio,
        /// Probability of going from bad to good; the mean burst is 1/r packets.
        r: Ratio,
    },
}

impl LossModel {
    /// Mean burst, in packets, of a Gilbert-Elliott model given only its share of loss.
    pub const DEFAULT_BURST: f64 = 3.0;

    /// Independent loss of this share.
    pub fn bernoulli(p: Ratio) -> Self {
        if p == Ratio::ZERO { Self::None } else { Self::Bernoulli { p } }
    }

    /// Bursts of `mean_burst` packets that lose this share in all.
    pub fn gilbert_elliott(share: Ratio, mean_burst: f64) -> Self {
        if share == Ratio::ZERO {
            return Self::None;
        }
        let r = 1.0 / mean_burst.max(1.0);
        let p = (share.get() * r / (1.0 - share.get()).max(f64::EPSILON)).min(1.0);
        Self::GilbertElliott {
            p: Ratio::new(p).unwrap_or(Ratio::ONE),
            r: Ratio::new(r).unwrap_or(Ratio::ONE),
        }
    }

    /// The share of packets that is lost in the long run.
    pub fn share(&self) -> Ratio {
        match self {
            Self::None => Ratio::ZERO,
            Self::Bernoulli { p } => *p,
            Self::GilbertElliott { p, r } if p.get() + r.get() == 0.0 => Ratio::ZERO,
            Self::GilbertElliott { p, r } => Ratio::new(p.get() / (p.get() + r.get())).unwrap_or(Ratio::ZERO),
        }
    }

    /// The name in flags, JSON and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bernoulli { .. } => "bernoulli",
            Self::GilbertElliott { .. } => "gilbert-elliott",
        }
    }
}

/// `--loss-model`: how a share of loss is spread.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub enum LossShape {
    /// Independent.
    #[default]
    Bernoulli,
    /// In bursts of this many packets on average.
    GilbertElliott {
        /// Mean burst in packets.
        mean_burst: f64,
    },
}

impl LossShape {
    /// The model that loses `share` in this shape.
    pub fn with_share(self, share: Ratio) -> LossModel {
        match self {
            Self::Bernoulli => LossModel::bernoulli(share),
            Self::GilbertElliott { mean_burst } => LossModel::gilbert_elliott(share, mean_burst),
        }
    }
}

impl FromStr for LossShape {
    type Err = ParseQuantityError;

    /// `bernoulli`, `gilbert-elliott` (bursts of 3) or `gilbert-elliott:5` (bursts of 5).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            ParseQuantityError::new(
                text,
                "a loss model (bernoulli, gilbert-elliott, gilbert-elliott:BURST with a mean burst of at least 1 packet)",
            )
        };
        match text.split_once(':') {
            None if text == "bernoulli" => Ok(Self::Bernoulli),
            None if text == "gilbert-elliott" => {
                Ok(Self::GilbertElliott { mean_burst: LossModel::DEFAULT_BURST })
            }
            Some(("gilbert-elliott", burst)) => {
                let mean_burst: f64 = burst.parse().map_err(|_| refuse())?;
                if mean_burst.is_finite() && mean_burst >= 1.0 {
                    Ok(Self::GilbertElliott { mean_burst })
                } else {
                    Err(refuse())
                }
            }
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for LossShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bernoulli => f.write_str("bernoulli"),
            Self::GilbertElliott { mean_burst } => write!(f, "gilbert-elliott:{mean_burst}"),
        }
    }
}

impl fmt::Display for Impairment {
    /// `delay 12.5ms, loss 3% (bernoulli)`, naming only what is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", format_duration(self.delay))?;
        if !self.jitter.is_zero() {
            write!(f, " ± {}", format_duration(self.jitter))?;
        }
        if self.loss != LossModel::None {
            write!(f, ", loss {} ({})", self.loss.share(), self.loss.name())?;
        }
        if let Some(bandwidth) = self.bandwidth {
            let queue = format_bytes(self.queue_bytes.unwrap_or(DEFAULT_QUEUE_BYTES));
            write!(f, ", bandwidth {bandwidth}, queue {queue}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    #[test]
    fn a_gilbert_elliott_model_loses_the_share_it_was_asked_for() {
        let model = LossModel::gilbert_elliott(share(0.03), 3.0);
        assert!((model.share().get() - 0.03).abs() < 1e-12);
        let LossModel::GilbertElliott { r, .. } = model else { panic!("{model:?}") };
        assert!((r.get() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn no_share_is_no_model() {
        assert_eq!(LossShape::Bernoulli.with_share(Ratio::ZERO), LossModel::None);
    }

    #[test]
    fn loss_shapes_parse_and_print_alike() {
        assert_eq!("bernoulli".parse::<LossShape>().unwrap(), LossShape::Bernoulli);
        let shape: LossShape = "gilbert-elliott:5".parse().unwrap();
        assert_eq!(shape.to_string().parse::<LossShape>().unwrap(), shape);
        assert!("gilbert-elliott:0.5".parse::<LossShape>().is_err());
        assert!("burst".parse::<LossShape>().is_err());
    }

    #[test]
    fn a_link_reads_like_a_sentence() {
        let impairment = Impairment {
            delay: Duration::from_micros(12_500),
            loss: LossModel::bernoulli(share(0.03)),
            bandwidth: Some("100mbit".parse().unwrap()),
            ..Impairment::default()
        };
        assert_eq!(
            impairment.to_string(),
            "delay 12.5ms, loss 3% (bernoulli), bandwidth 100mbit, queue 1.431 MiB"
        );
    }
}
