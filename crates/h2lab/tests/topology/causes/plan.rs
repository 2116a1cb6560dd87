//! Which packet a script drops, and the conversation in which it is dropped.

use h2lab_base::random::Counter;
use h2lab_link::ScriptLine;
use h2lab_wire::trace::Direction;

/// Payload of a full segment: the wire's 1500 bytes without headers of IPv4 and TCP and without timestamps.
const SEGMENT: usize = 1448;
/// Bytes of a message of three segments.
const LONG: usize = 3 * SEGMENT - 300;
/// Bytes of a message that fits into a segment with room to spare.
const SHORT: usize = 300;
/// What a stream may send before it needs a WINDOW_UPDATE, in the conversations that test one.
pub const SMALL_WINDOW: usize = 1000;

/// The position of the lost segment in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    First,
    Middle,
    Last,
}

/// What is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// The SYN, or its answer.
    Syn(Direction),
    /// A segment of HEADERS, or of DATA.
    Segment { direction: Direction, is_head: bool, position: Position },
    /// A segment that only acknowledges.
    Ack(Direction),
    /// The segment with a WINDOW_UPDATE.
    WindowUpdate,
    /// The first segment of a message, and its retransmission.
    Retransmission(Direction),
}

const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

impl Drop {
    /// Every kind, once in each direction that has it.
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::WindowUpdate];
        for direction in BOTH {
            all.extend([Self::Syn(direction), Self::Ack(direction), Self::Retransmission(direction)]);
            for is_head in [true, false] {
                let positions = [Position::First, Position::Middle, Position::Last];
                all.extend(positions.map(|position| Self::Segment { direction, is_head, position }));
            }
        }
        all
    }

    /// The direction of the packet.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Syn(direction)
            | Self::Ack(direction)
            | Self::Retransmission(direction)
            | Self::Segment { direction, .. } => direction,
            Self::WindowUpdate => Direction::Up,
        }
    }
}

/// A message: a head and a body of this many bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub head: usize,
    /// 0: it ends with its head.
    pub body: usize,
}

impl Shape {
    /// Fits into a segment.
    const SHORT: Self = Self { head: 20, body: SHORT };

    /// Takes three segments.
    const fn long(is_head: bool) -> Self {
        if is_head { Self { head: LONG, body: 0 } } else { Self { head: 20, body: LONG } }
    }

    /// Bytes on the wire: a frame header for each frame.
    pub const fn bytes(self) -> usize {
        9 + self.head + if self.body > 0 { 9 + self.body } else { 0 }
    }

    /// Segments that a sender makes of it, if no other data is queued before it.
    const fn segments(self) -> usize {
        self.bytes().div_ceil(SEGMENT)
    }
}

/// One conversation over one connection.
#[derive(Debug, Clone)]
pub struct ConversationPlan {
    pub drop: Drop,
    /// Requests, and their responses.
    pub requests: Vec<Shape>,
    pub responses: Vec<Shape>,
    /// The message whose segment is dropped.
    pub target: usize,
}

impl ConversationPlan {
    /// The `n`-th plan: all kinds in turn, with 1 to 8 streams.
    pub fn new(n: u64, random: &mut Counter) -> Self {
        let all = Drop::all();
        let drop = all[n as usize % all.len()];
        let mut pick = |n: usize| ((random.next_f64() * n as f64) as usize).min(n - 1);
        let streams = 1 + pick(8);
        let target = if drop == Drop::WindowUpdate { streams - 1 } else { pick(streams) };
        let mut requests = vec![Shape::SHORT; streams];
        let mut responses = requests.clone();
        let is_up = drop.direction() == Direction::Up;
        match drop {
            Drop::Segment { is_head, .. } => {
                let messages = if is_up { &mut requests } else { &mut responses };
                messages[target] = Shape::long(is_head);
            }
            // A receiver acknowledges every second segment at once.
            Drop::Ack(_) => {
                let acknowledged = if is_up { &mut responses } else { &mut requests };
                acknowledged[target] = Shape::long(false);
            }
            Drop::WindowUpdate => responses[target] = Shape { head: 20, body: SMALL_WINDOW },
            Drop::Syn(_) | Drop::Retransmission(_) => {}
        }
        Self { drop, requests, responses, target }
    }

    /// A conversation with this many short requests, for which the script drops nothing that matters.
    pub fn without_drop(streams: usize) -> Self {
        let messages = vec![Shape::SHORT; streams];
        Self { drop: Drop::Ack(Direction::Up), requests: messages.clone(), responses: messages, target: 0 }
    }

    /// The lines of the script. The first data packet of each direction opens the conversation.
    pub fn script(&self) -> Vec<ScriptLine> {
        let is_up = self.drop.direction() == Direction::Up;
        let messages = if is_up { &self.requests } else { &self.responses };
        let before: usize = 1 + messages[..self.target].iter().map(|shape| shape.segments()).sum::<usize>();
        let lines = match self.drop {
            Drop::Syn(_) => vec!["syn 1 of flow 1".to_owned()],
            // The first acknowledgement up completes the handshake.
            Drop::Ack(direction) => {
                vec![format!("ack {} of flow 1", if direction == Direction::Up { 2 } else { 1 })]
            }
            Drop::WindowUpdate => {
                vec![format!("data {} of flow 1", before + self.requests[self.target].segments() + 1)]
            }
            Drop::Segment { position, .. } => {
                let nth = match position {
                    Position::First => 1,
                    Position::Middle => 2,
                    Position::Last => 3,
                };
                vec![format!("data {} of flow 1", before + nth)]
            }
            Drop::Retransmission(_) => {
                vec![format!("data {} of flow 1", before + 1), "retransmission 1 of flow 1".to_owned()]
            }
        };
        lines.iter().map(|line| line.parse().expect("a line of a script")).collect()
    }
}
