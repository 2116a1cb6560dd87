//! Loss models as values: their kinds, text forms and shares of loss.

use h2lab_base::JsonSchema;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use h2lab_base::units::{ParseQuantityError, Ratio, duration_text, format_exact, parse_duration};

/// Which packets are lost.
///
/// Models clocked by packets draw by the packet's index, never by its arrival time: two protocols under one seed meet
/// the same losses. But a burst stalls together with the connection that it hits, because no packet advances it. A
/// model clocked by time stays in a state for as long as was drawn, whoever sends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
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
    /// Two states, clocked by time; each lasts for an exponentially distributed time.
    GilbertElliottByTime {
        /// Share of the time in the bad state.
        share: Ratio,
        /// Mean time in it.
        #[serde(with = "duration_text")]
        #[schemars(with = "String")]
        burst: Duration,
    },
    /// Bursts of always the same number of packets in a row.
    Burst {
        /// Probability that a packet outside a burst begins one.
        p: Ratio,
        /// Packets that it takes, the first included; at least 1.
        length: u32,
    },
    /// Bursts that always last for the same time, at exponentially distributed intervals.
    BurstByTime {
        /// Share of the time inside bursts.
        share: Ratio,
        /// How long each lasts.
        #[serde(with = "duration_text")]
        #[schemars(with = "String")]
        length: Duration,
    },
}

/// `1.0 - share`, never 0: a divisor.
fn rest(share: Ratio) -> f64 {
    (1.0 - share.get()).max(f64::EPSILON)
}

impl LossModel {
    /// Mean burst, in packets, of a model in bursts given only its share of loss.
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
        let p = (share.get() * r / rest(share)).min(1.0);
        Self::GilbertElliott {
            p: Ratio::new(p).unwrap_or(Ratio::ONE),
            r: Ratio::new(r).unwrap_or(Ratio::ONE),
        }
    }

    /// Bursts of exactly `length` packets that lose this share in all.
    ///
    /// A cycle has 1/p - 1 packets that pass and `length` that do not.
    pub fn burst(share: Ratio, length: u32) -> Self {
        if share == Ratio::ZERO {
            return Self::None;
        }
        let p = share.get() / (f64::from(length) * (1.0 - share.get()) + share.get());
        Self::Burst { p: Ratio::new(p).unwrap_or(Ratio::ONE), length }
    }

    /// The share of packets that is lost in the long run; of the time, if time is the model's clock.
    pub fn share(&self) -> Ratio {
        match *self {
            Self::None => Ratio::ZERO,
            Self::Bernoulli { p } => p,
            Self::GilbertElliott { p, r } if p.get() + r.get() == 0.0 => Ratio::ZERO,
            Self::GilbertElliott { p, r } => Ratio::new(p.get() / (p.get() + r.get())).unwrap_or(Ratio::ZERO),
            Self::Burst { p, .. } if p == Ratio::ZERO => Ratio::ZERO,
            Self::Burst { p, length } => {
                let (lost, passed) = (f64::from(length), 1.0 / p.get() - 1.0);
                Ratio::new(lost / (lost + passed)).unwrap_or(Ratio::ONE)
            }
            Self::GilbertElliottByTime { share, .. } | Self::BurstByTime { share, .. } => share,
        }
    }

    /// The name in JSON and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bernoulli { .. } => "bernoulli",
            Self::GilbertElliott { .. } => "gilbert-elliott",
            Self::GilbertElliottByTime { .. } => "gilbert-elliott by time",
            Self::Burst { .. } => "burst",
            Self::BurstByTime { .. } => "burst by time",
        }
    }

    /// How long its bursts are, on average or always; `None` if it has none.
    pub fn extent(&self) -> Option<Extent> {
        match *self {
            Self::None | Self::Bernoulli { .. } => None,
            // 1 / (1 / 49) is a hair below 49.
            Self::GilbertElliott { r, .. } => Some(Extent::Packets((1e6 / r.get()).round() / 1e6)),
            Self::Burst { length, .. } => Some(Extent::Packets(f64::from(length))),
            Self::GilbertElliottByTime { burst: length, .. } | Self::BurstByTime { length, .. } => {
                Some(Extent::Time(length))
            }
        }
    }
}

/// How long a burst is, and so by what a model is clocked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// In packets.
    Packets(f64),
    /// In time.
    Time(Duration),
}

impl Extent {
    /// The shortest burst in time. A chain must step through all states since the last packet: with shorter ones the first packet
    /// after a pause would be late.
    pub const SHORTEST: Duration = Duration::from_micros(100);

    fn parse(text: &str) -> Option<Self> {
        if let Ok(packets) = text.parse::<f64>() {
            return (packets.is_finite() && (1.0..=1e6).contains(&packets)).then_some(Self::Packets(packets));
        }
        let time = parse_duration(text).ok()?;
        (Self::SHORTEST..=Duration::from_secs(3600)).contains(&time).then_some(Self::Time(time))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}"),
            Self::Time(time) => f.write_str(&format_exact(*time)),
        }
    }
}

/// `--loss-model`: how a share of loss is spread. The unit of a burst selects its clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum LossShape {
    /// Independent.
    #[default]
    Bernoulli,
    /// In bursts that are this long on average.
    GilbertElliott {
        /// Mean burst.
        mean_burst: Extent,
    },
    /// In bursts that are always this long.
    Burst {
        /// Packets (a whole number) or time.
        length: Extent,
    },
}

impl LossShape {
    /// The model that loses `share` in this shape.
    pub fn with_share(self, share: Ratio) -> LossModel {
        match self {
            _ if share == Ratio::ZERO => LossModel::None,
            Self::Bernoulli => LossModel::bernoulli(share),
            Self::GilbertElliott { mean_burst: Extent::Packets(burst) } => {
                LossModel::gilbert_elliott(share, burst)
            }
            Self::GilbertElliott { mean_burst: Extent::Time(burst) } => {
                LossModel::GilbertElliottByTime { share, burst }
            }
            Self::Burst { length: Extent::Packets(length) } => LossModel::burst(share, length as u32),
            Self::Burst { length: Extent::Time(length) } => LossModel::BurstByTime { share, length },
        }
    }
}

impl FromStr for LossShape {
    type Err = ParseQuantityError;

    /// `bernoulli`; `gilbert-elliott` (bursts of 3 packets), `gilbert-elliott:5`, `gilbert-elliott:50ms`; `burst` likewise.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            ParseQuantityError::new(
                text,
                "a loss model (bernoulli, gilbert-elliott[:BURST], burst[:BURST], where BURST is at least 1 packet \
                 or 100us, such as 5 or 50ms; for burst a whole number)",
            )
        };
        let (name, extent) = match text.split_once(':') {
            None => (text, Extent::Packets(LossModel::DEFAULT_BURST)),
            Some((name, extent)) => (name, Extent::parse(extent).ok_or_else(refuse)?),
        };
        match (name, extent) {
            ("bernoulli", _) if text == name => Ok(Self::Bernoulli),
            ("gilbert-elliott", mean_burst) => Ok(Self::GilbertElliott { mean_burst }),
            ("burst", Extent::Packets(packets)) if packets.fract() != 0.0 => Err(refuse()),
            ("burst", length) => Ok(Self::Burst { length }),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for LossShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bernoulli => f.write_str("bernoulli"),
            Self::GilbertElliott { mean_burst } => write!(f, "gilbert-elliott:{mean_burst}"),
            Self::Burst { length } => write!(f, "burst:{length}"),
        }
    }
}

/// Which packets share a loss model's chain and random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseQuantityError, parse_err_fn = no_loss_per)]
pub enum LossPer {
    /// All packets of the direction: a burst hits whatever is on the link.
    #[default]
    Link,
    /// Each flow has its own: a burst hits one connection, as where paths differ, and packet n of flow k meets the same
    /// fate however the flows interleave.
    Connection,
}

fn no_loss_per(text: &str) -> ParseQuantityError {
    ParseQuantityError::new(text, "the scope of the losses (link, connection)")
}

super::super::text_form!(LossPer);

#[cfg(test)]
mod tests {
    use super::*;

    fn share(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    #[test]
    fn every_shape_makes_a_model_that_loses_the_share_it_was_asked_for() {
        let shapes =
            ["bernoulli", "gilbert-elliott:3", "gilbert-elliott:50ms", "burst:1", "burst:7", "burst:20ms"];
        for shape in shapes {
            for asked in [0.0, 1e-4, 0.03, 0.5] {
                let model = shape.parse::<LossShape>().unwrap().with_share(share(asked));
                assert!((model.share().get() - asked).abs() < 1e-12, "{shape}: {model:?}");
                assert_eq!(model == LossModel::None, asked == 0.0, "{shape}: {model:?}");
            }
        }
    }

    #[test]
    fn a_model_says_how_long_its_bursts_are() {
        let extent = |shape: &str| shape.parse::<LossShape>().unwrap().with_share(share(0.03)).extent();
        assert_eq!(extent("bernoulli"), None);
        assert_eq!(extent("gilbert-elliott:49"), Some(Extent::Packets(49.0)));
        assert_eq!(extent("burst"), Some(Extent::Packets(3.0)));
        assert_eq!(extent("burst:20ms"), Some(Extent::Time(Duration::from_millis(20))));
        assert_eq!(extent("gilbert-elliott:2s"), Some(Extent::Time(Duration::from_secs(2))));
    }

    #[test]
    fn loss_shapes_parse_and_print_alike() {
        for text in ["bernoulli", "gilbert-elliott:1.5", "gilbert-elliott:100us", "burst:1", "burst:20ms"] {
            assert_eq!(text.parse::<LossShape>().unwrap().to_string(), text);
        }
        for bad in [
            "bernoulli:3",
            "gilbert-elliott:0.9",
            "gilbert-elliott:99us",
            "burst:2.5",
            "burst:0",
            "burst:",
            "burst:2h",
            "bursts",
            "burst:1000001",
        ] {
            assert!(bad.parse::<LossShape>().is_err(), "{bad}");
        }
    }

    #[test]
    fn models_of_recorded_runs_read_as_before() {
        let model: LossModel =
            serde_json::from_str(r#"{"model":"gilbert-elliott","p":"1%","r":"33%"}"#).unwrap();
        assert_eq!(model, LossModel::GilbertElliott { p: share(0.01), r: share(0.33) });
        let timed = LossModel::BurstByTime { share: share(0.03), length: Duration::from_millis(20) };
        let text = serde_json::to_string(&timed).unwrap();
        assert_eq!(text, r#"{"model":"burst-by-time","share":"3%","length":"20ms"}"#);
        assert_eq!(serde_json::from_str::<LossModel>(&text).unwrap(), timed);
    }
}
