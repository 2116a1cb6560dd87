//! The next block of a file.

use super::link_layer::network;
use super::{
    CaptureError, CapturedPacket, Entry, Format, Interface, LONGEST_BLOCK, Order, SECOND, Step, printable,
};

/// Types of pcapng's blocks (draft-ietf-opsawg-pcapng §4).
mod block {
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
    pub const OLD_PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const PACKET: u32 = 6;
    pub const SECRETS: u32 = 10;
}

/// Options of an interface.
mod option {
    pub const NAME: u16 = 2;
    pub const RESOLUTION: u16 = 9;
    pub const OFFSET: u16 = 14;
}

/// The kind of secrets: lines of an NSS key log ("TLSK").
const KEY_LOG: u32 = 0x544c_534b;
/// Header of a pcap file, and of a packet in it.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Units of a time in a second, unless the file says otherwise.
const MICROSECONDS: u128 = 1_000_000;
/// The most interfaces that a file may describe. More than a machine can have mean that the file is damaged.
const MOST_INTERFACES: usize = 1 << 16;

impl Format {
    /// Reads one header or block from `bytes`, which begin `at` in the file.
    pub(super) fn step(
        &mut self,
        bytes: &[u8],
        at: u64,
        sink: &mut impl FnMut(Entry<'_>),
    ) -> Result<Step, CaptureError> {
        match self {
            Self::Unknown => self.begin(bytes),
            Self::Pcap { order, interface } => pcap_packet(*order, interface, bytes, at, sink),
            Self::Pcapng { .. } => self.block(bytes, at, sink),
        }
    }

    fn begin(&mut self, bytes: &[u8]) -> Result<Step, CaptureError> {
        let Some(magic) = Order::Little.u32(bytes, 0) else { return Ok(Step::More) };
        let (order, per_second) = match magic {
            block::SECTION => {
                *self = Self::Pcapng { order: Order::Little, interfaces: Vec::new(), before: 0 };
                return Ok(Step::Used(0));
            }
            0xa1b2_c3d4 => (Order::Little, MICROSECONDS),
            0xd4c3_b2a1 => (Order::Big, MICROSECONDS),
            0xa1b2_3c4d => (Order::Little, SECOND),
            0x4d3c_b2a1 => (Order::Big, SECOND),
            _ if magic & 0xffff == 0x8b1f => {
                return Err(CaptureError::NotACapture(": it is compressed (gzip -d)"));
            }
            0xfd2f_b528 => return Err(CaptureError::NotACapture(": it is compressed (zstd -d)")),
            _ => return Err(CaptureError::NotACapture("")),
        };
        let Some(link_type) = bytes.get(..FILE_HEADER).and_then(|header| order.u32(header, 20)) else {
            return Ok(Step::More);
        };
        let interface = Interface { link_type: link_type as u16, name: String::new(), per_second, offset: 0 };
        *self = Self::Pcap { order, interface };
        Ok(Step::Used(FILE_HEADER))
    }

    /// A block of pcapng: type, length, body, length.
    fn block(
        &mut self,
        bytes: &[u8],
        at: u64,
        sink: &mut impl FnMut(Entry<'_>),
    ) -> Result<Step, CaptureError> {
        let Self::Pcapng { order, interfaces, before } = self else { return Ok(Step::More) };
        let malformed = |what| CaptureError::Malformed { what, at };
        let Some(head) = bytes.get(..12) else { return Ok(Step::More) };
        if Order::Little.u32(head, 0) == Some(block::SECTION) {
            *order = match Order::Little.u32(head, 8) {
                Some(0x1a2b_3c4d) => Order::Little,
                Some(0x4d3c_2b1a) => Order::Big,
                _ => return Err(malformed("a section without a byte order")),
            };
            *before += interfaces.len() as u32;
            interfaces.clear();
        }
        let (Some(kind), Some(length)) = (order.u32(head, 0), order.u32(head, 4)) else {
            return Ok(Step::More);
        };
        let length = length as usize;
        if length < 12 || !length.is_multiple_of(4) || length > LONGEST_BLOCK {
            return Err(malformed("a block of an impossible length"));
        }
        let Some(body) = bytes.get(8..length) else { return Ok(Step::More) };
        let body = &body[..body.len() - 4];
        match kind {
            block::INTERFACE if interfaces.len() < MOST_INTERFACES => {
                interfaces.push(interface(*order, body).ok_or_else(|| malformed("an interface cut short"))?);
            }
            block::PACKET | block::OLD_PACKET => {
                let place = if kind == block::PACKET {
                    order.u32(body, 0)
                } else {
                    order.u16(body, 0).map(u32::from)
                };
                let place = place.ok_or_else(|| malformed("a packet cut short"))?;
                let interface = interfaces.get(place as usize);
                let interface =
                    interface.ok_or_else(|| malformed("a packet of an interface that is not described"))?;
                let entry = timed(*order, interface, before.saturating_add(place), body);
                sink(entry.ok_or_else(|| malformed("a packet longer than its block"))?);
            }
            block::SIMPLE_PACKET => sink(Entry::Untimed),
            block::SECRETS if order.u32(body, 0) == Some(KEY_LOG) => {
                let most = order.u32(body, 4).unwrap_or(0) as usize;
                let lines = body.get(8..).unwrap_or_default();
                sink(Entry::Secrets(&lines[..most.min(lines.len())]));
            }
            _ => {}
        }
        Ok(Step::Used(length))
    }
}

/// An Enhanced Packet Block or its forerunner, whose words after the interface are alike: time, bytes kept, bytes, data.
fn timed<'a>(order: Order, interface: &'a Interface, number: u32, body: &'a [u8]) -> Option<Entry<'a>> {
    let words = [4, 8, 12, 16].map(|place| order.u32(body, place));
    let [Some(high), Some(low), Some(kept), Some(length)] = words else { return None };
    let data = body.get(20..)?.get(..kept as usize)?;
    let time = u128::from(high) << 32 | u128::from(low);
    Some(packet(interface, number, time, data, length))
}

fn pcap_packet(
    order: Order,
    interface: &Interface,
    bytes: &[u8],
    at: u64,
    sink: &mut impl FnMut(Entry<'_>),
) -> Result<Step, CaptureError> {
    let words = [0, 4, 8, 12].map(|place| order.u32(bytes, place));
    let [Some(seconds), Some(fraction), Some(kept), Some(length)] = words else { return Ok(Step::More) };
    let kept = kept as usize;
    if kept > LONGEST_BLOCK {
        return Err(CaptureError::Malformed { what: "a packet of an impossible length", at });
    }
    let Some(data) = bytes.get(PACKET_HEADER..PACKET_HEADER + kept) else { return Ok(Step::More) };
    let time = u128::from(seconds) * interface.per_second + u128::from(fraction);
    sink(packet(interface, 0, time, data, length));
    Ok(Step::Used(PACKET_HEADER + kept))
}

fn packet<'a>(interface: &'a Interface, number: u32, time: u128, data: &'a [u8], length: u32) -> Entry<'a> {
    let start = network(interface.link_type, data);
    let nanos = time.saturating_mul(SECOND) / interface.per_second;
    let offset = i128::from(interface.offset) * SECOND.cast_signed();
    let nanos = nanos.cast_signed().saturating_add(offset).max(0);
    Entry::Packet(CapturedPacket {
        interface: number,
        name: &interface.name,
        at_nanos: u64::try_from(nanos).unwrap_or(u64::MAX),
        bytes: start.and_then(|start| data.get(start..)).unwrap_or_default(),
        length: length.saturating_sub(start.unwrap_or(0) as u32),
    })
}

/// An interface's description: link type, reserved, longest packet, options.
fn interface(order: Order, body: &[u8]) -> Option<Interface> {
    let mut interface = Interface {
        link_type: order.u16(body, 0)?,
        name: String::new(),
        per_second: MICROSECONDS,
        offset: 0,
    };
    let mut options = body.get(8..)?;
    while let (Some(code), Some(length)) = (order.u16(options, 0), order.u16(options, 2)) {
        let length = usize::from(length);
        let Some(value) = options.get(4..4 + length).filter(|_| code != 0) else { break };
        match code {
            option::NAME => interface.name = printable(value),
            option::RESOLUTION => interface.per_second = resolution(*value.first()?)?,
            option::OFFSET => {
                let [high, low] = match order {
                    Order::Little => [4, 0],
                    Order::Big => [0, 4],
                };
                let offset = u64::from(order.u32(value, high)?) << 32 | u64::from(order.u32(value, low)?);
                interface.offset = offset.cast_signed();
            }
            _ => {}
        }
        options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(interface)
}

/// Units in a second: a power of ten, or of two if the highest bit is set. `None` if it is finer than any clock.
fn resolution(value: u8) -> Option<u128> {
    const BINARY: u8 = 0x80;
    let power = u32::from(value & !BINARY);
    let base = if value & BINARY != 0 { 2_u128 } else { 10 };
    base.checked_pow(power).filter(|units| *units <= u128::from(u64::MAX))
}
