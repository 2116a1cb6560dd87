//! The link emulator's logic: which packets are lost, and when the others come out. No devices, no clock.
//!
//! Start at [`Pipe`], one direction: [`Pipe::admit`] a packet, [`Pipe::enqueue`] what passes, [`Pipe::poll`] what is due, sleep
//! until [`Pipe::next_at`]. [`Flows`] number the flows of both directions. Each impairment has a file of its own.
//! Devices hand over super-packets: [`IpPacket`] cuts them before, [`may_follow`] and [`write_header`] merge the survivors after.
//!
//! Never contains: devices, a clock, HTTP.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Serialises a value with a text form as that text in JSON and TOML.
macro_rules! text_form {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    };
}
use text_form;

pub mod blackout;
pub mod bottleneck;
pub mod capture_file;
mod chance;
mod checksum;
pub mod codel;
pub mod corrupt;
pub mod delay;
pub mod flow;
pub mod impairment;
pub mod loss;
pub mod merge;
mod network;
pub mod packet;
pub mod pcapng;
pub mod pftk;
pub mod pipe;
pub mod reorder;
pub mod script;
pub mod segment;
#[cfg(any(test, feature = "testing"))]
pub mod tcp;
#[cfg(test)]
mod testing;

pub use blackout::BlackOut;
pub use bottleneck::QueueDiscipline;
pub use corrupt::{write_corrupted, write_packet};
pub use delay::JitterOrder;
pub use flow::Flows;
pub use impairment::{Impairment, LinkSpec, Step};
pub use loss::{Extent, LossModel, LossPer, LossShape};
pub use merge::may_follow;
pub use packet::{ChecksumState, Flow, FlowEndpoint, FlowNumber, Offload, Packet};
pub use pipe::{Admission, DirectionTotals, DropCause, Marks, Passage, Pipe};
pub use reorder::{Displacement, Reorder};
pub use script::{Among, PacketKind, ScriptLine};
pub use segment::{IpPacket, IpPacketError, Segment, write_header};
