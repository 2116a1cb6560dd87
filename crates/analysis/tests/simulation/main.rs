//! Engines and link against each other in virtual time: no sockets, no clock, no waiting (test level T2).
//!
//! `model` measures a cell as a lab does, with our client engine, our server engine and `h2lab_link` unchanged, and
//! with a model of TCP (`h2lab_link::tcp`) between them in place of the kernel's. The outcome is a `CellRecord`, so
//! that statistics, rules and reports process it like any other. The model of TCP is small; its page lists what it
//! leaves out. The figures are the model's: they are compared with measured ones in `claim`, and never mixed with them.
//!
//! # How to write such a test
//!
//! ```ignore
//! let mut scenario = trial::scenario();                 // compare's: RTT 25 ms, 1,000 POSTs of 1 KiB per second
//! scenario.link.delay = Axis::one(Duration::from_millis(125));
//! scenario.matrix.protocols = Axis::one(Protocol::H2c);
//! let mut setup = Setup::new();                         // the engines and TCP as the lab has them
//! setup.client.flow.stream_window = 1 << 20;            // engine: any field of `wire::Config`, either role
//! setup.server_tcp.congestion = Congestion::Reno;       // transport: any field of `h2lab_link::tcp::Config`, either end
//! setup.application = &at_once(10 << 20);               // server: a closure from (time, path) to an `Answer`
//! setup.reader = Bandwidth::from_bits_per_second(8_000_000); // user: takes bodies at its own pace
//! for cell in scenario.plan() {
//!     let repetition = model::repetition(&cell, &setup);          // repetition.record, repetition.servers
//! }
//! ```
//!
//! The link is the cell's: delay, jitter, loss, bandwidth, queue, per direction. Deliberate faults are a list of
//! `Disturbance`s. Assert on `repetition.record` (samples, frames of the Tap, connections, packet log) and on
//! `repetition.servers`, the counters of the server's engines, which include its stalls. `flow_control` is a good
//! example to start from.
//!
//! It is in `tests/` and not in a layer of the crate: it uses only the public interface, and
//! nothing that ships may depend on it.

mod calibration;
mod chaos;
mod claim;
mod determinism;
mod flow_control;
mod head_of_line;
mod model;
mod omission;
mod trial;
mod tuning;
