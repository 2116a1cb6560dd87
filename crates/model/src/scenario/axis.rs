//! One axis of the matrix: a list of values with the same text form on the command line and in a scenario file.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::workload::{DialPolicy, Protocol, RequestShape};
use h2lab_base::units::{Bandwidth, ParseQuantityError, Ratio, format_exact, parse_bytes, parse_duration};
use h2lab_link::{JitterOrder, LossPer, LossShape, QueueDiscipline, Reorder};

/// A value that an axis can hold: parsed and printed the same way everywhere.
pub trait AxisValue: Sized + Clone {
    /// Reads one value.
    fn parse(text: &str) -> Result<Self, ParseQuantityError>;
    /// Writes it so that [`AxisValue::parse`] reads it back.
    fn print(&self) -> String;
}

/// The values of one axis, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis<T>(Vec<T>);

impl<T: Clone> Axis<T> {
    /// An axis of one value.
    pub fn one(value: T) -> Self {
        Self(vec![value])
    }

    /// An axis of these values; `None` if there is none.
    pub fn new(values: Vec<T>) -> Option<Self> {
        (!values.is_empty()).then_some(Self(values))
    }

    /// The values, in the order given.
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// Whether there is more than one value, so that tables must name it.
    pub fn varies(&self) -> bool {
        self.0.len() > 1
    }
}

impl<T: AxisValue> FromStr for Axis<T> {
    type Err = ParseQuantityError;

    /// Reads a comma list: `0,10ms,25ms`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let values: Result<Vec<T>, _> = text.split(',').map(|value| T::parse(value.trim())).collect();
        Ok(Self(values?))
    }
}

impl<T: AxisValue> fmt::Display for Axis<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.0.iter().map(AxisValue::print).collect();
        f.write_str(&values.join(","))
    }
}

impl<T: AxisValue> Serialize for Axis<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(AxisValue::print))
    }
}

impl<'de, T: AxisValue> Deserialize<'de> for Axis<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values: Vec<T> = deserializer.deserialize_any(Values(PhantomData))?;
        Self::new(values).ok_or_else(|| serde::de::Error::custom("an axis needs at least one value"))
    }
}

/// Reads one value or a list, each as text or as a number.
struct Values<T>(PhantomData<T>);

impl<T: AxisValue> Values<T> {
    fn one<E: serde::de::Error>(text: &str) -> Result<Vec<T>, E> {
        text.parse::<Axis<T>>().map(|axis| axis.0).map_err(E::custom)
    }
}

impl<'de, T: AxisValue> Visitor<'de> for Values<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::one(text)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Self::one(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Self::one(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Self::one(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(item) = list.next_element::<Axis<T>>()? {
            values.extend(item.0);
        }
        Ok(values)
    }
}

/// Implements [`AxisValue`] for a type by its parser and printer.
macro_rules! axis_value {
    ($type:ty, $parse:expr, $print:expr) => {
        impl AxisValue for $type {
            fn parse(text: &str) -> Result<Self, ParseQuantityError> {
                let parse: fn(&str) -> Result<Self, ParseQuantityError> = $parse;
                parse(text)
            }

            fn print(&self) -> String {
                let print: fn(&Self) -> String = $print;
                print(self)
            }
        }
    };
}

axis_value!(Duration, parse_duration, |duration| format_exact(*duration));
axis_value!(Ratio, Ratio::from_str, |ratio| ratio.to_exact_text());
axis_value!(LossShape, LossShape::from_str, LossShape::to_string);
axis_value!(LossPer, LossPer::from_str, LossPer::to_string);
axis_value!(JitterOrder, JitterOrder::from_str, JitterOrder::to_string);
axis_value!(QueueDiscipline, QueueDiscipline::from_str, QueueDiscipline::to_string);
axis_value!(Reorder, Reorder::from_str, Reorder::to_string);
axis_value!(
    Protocol,
    |text| if text == Protocol::Tcp.name() { Ok(Protocol::Tcp) } else { text.parse() },
    Protocol::to_string
);
axis_value!(RequestShape, RequestShape::from_str, RequestShape::to_string);
axis_value!(
    u64,
    |text| text.parse().map_err(|_| ParseQuantityError::new(text, "a whole number")),
    u64::to_string
);
axis_value!(
    u32,
    |text| match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(ParseQuantityError::new(text, "a whole number of at least 1")),
    },
    u32::to_string
);
/// How many connections a multiplexed protocol opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionCount {
    /// This many.
    Exactly(u32),
    /// `auto`: as many as the PFTK model predicts for the work over the cell's link ([`h2lab_link::pftk`]).
    Auto,
}

impl From<u32> for ConnectionCount {
    fn from(connections: u32) -> Self {
        Self::Exactly(connections)
    }
}

axis_value!(
    ConnectionCount,
    |text| match text.parse() {
        Ok(n) if n > 0 => Ok(ConnectionCount::Exactly(n)),
        _ if text == "auto" => Ok(ConnectionCount::Auto),
        _ => Err(ParseQuantityError::new(text, "a whole number of at least 1, or `auto`")),
    },
    |count| match count {
        ConnectionCount::Exactly(n) => n.to_string(),
        ConnectionCount::Auto => "auto".to_owned(),
    }
);
axis_value!(
    f64,
    |text| match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err(ParseQuantityError::new(text, "a number above 0")),
    },
    f64::to_string
);
axis_value!(String, |text| Ok(text.to_owned()), Clone::clone);

/// A capacity, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity(pub Option<Bandwidth>);

axis_value!(
    Capacity,
    |text| if text == "unlimited" {
        Ok(Capacity(None))
    } else {
        text.parse().map(|bandwidth| Capacity(Some(bandwidth)))
    },
    |capacity| capacity.0.map_or_else(|| "unlimited".to_owned(), Bandwidth::to_exact_text)
);

/// A queue in bytes, or `default` (150 ms or a round trip, see [`h2lab_link::Impairment::queue_limit`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSize(pub Option<u64>);

axis_value!(
    QueueSize,
    |text| if text == "default" {
        Ok(QueueSize(None))
    } else {
        parse_bytes(text).map(|bytes| QueueSize(Some(bytes)))
    },
    |queue| queue.0.map_or_else(|| "default".to_owned(), |bytes| bytes.to_string())
);

/// Requests after which a server ends a connection, 1 or more, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimit(pub Option<u32>);

axis_value!(
    RequestLimit,
    |text| match text.parse() {
        Ok(requests) if requests > 0 => Ok(RequestLimit(Some(requests))),
        _ if text == "unlimited" => Ok(RequestLimit(None)),
        _ => Err(ParseQuantityError::new(text, "a whole number of at least 1, or `unlimited`")),
    },
    |limit| limit.0.map_or_else(|| "unlimited".to_owned(), |requests| requests.to_string())
);
axis_value!(
    DialPolicy,
    |text| {
        let named = DialPolicy::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| ParseQuantityError::new(text, "a dial policy (single-flight, stampede)"))
    },
    |policy| policy.name().to_owned()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        loss: Axis<Ratio>,
        connections: Axis<u32>,
    }

    #[test]
    fn one_value_a_list_and_a_comma_list_read_alike() {
        for text in [
            "loss = '0%,3%'\nconnections = [1, 4]",
            "loss = ['0%', '3%']\nconnections = '1,4'",
            "loss = [0, 0.03]\nconnections = ['1', 4]",
        ] {
            let file: File = toml::from_str(text).unwrap();
            assert_eq!(file.loss.to_string(), "0%,3%");
            assert_eq!(file.connections.values(), [1, 4]);
        }
    }

    #[test]
    fn an_empty_list_and_a_bad_value_are_refused() {
        assert!(toml::from_str::<File>("loss = []\nconnections = 1").is_err());
        let error = toml::from_str::<File>("loss = '300%'\nconnections = 1").err().unwrap().to_string();
        assert!(error.contains("`300%` is not a share"), "{error}");
        assert!("0".parse::<Axis<u32>>().is_err());
    }

    #[test]
    fn unlimited_and_default_are_words() {
        let axis: Axis<Capacity> = "unlimited,100mbit".parse().unwrap();
        assert_eq!(axis.values()[0], Capacity(None));
        assert_eq!(axis.to_string(), "unlimited,100mbit");
        assert_eq!("default,64k".parse::<Axis<QueueSize>>().unwrap().to_string(), "default,65536");
        let limits: Axis<RequestLimit> = "unlimited,1,4294967295".parse().unwrap();
        assert_eq!(limits.values()[0], RequestLimit(None));
        assert_eq!(limits.to_string(), "unlimited,1,4294967295");
        for bad in ["0", "-1", "4294967296", "never"] {
            assert!(bad.parse::<Axis<RequestLimit>>().is_err(), "{bad}");
            assert!(bad.parse::<Axis<ConnectionCount>>().is_err(), "{bad}");
        }
        let connections: Axis<ConnectionCount> = "1,auto".parse().unwrap();
        assert_eq!(connections.values(), [ConnectionCount::Exactly(1), ConnectionCount::Auto]);
        assert_eq!(connections.to_string(), "1,auto");
    }
}
