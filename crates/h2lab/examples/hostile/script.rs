//! The words of `servers.toml`: steps of a hostile server, and what is drawn at random in them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use h2lab_base::random::Counter;
use h2lab_wire::h2::frame::{flag, kind};

use super::file::FileManner;

/// One thing that a server does.
#[derive(Debug, Clone)]
pub enum Step {
    /// These bytes, as they are.
    Send(Vec<u8>),
    /// A byte at a time, with this pause before each.
    Drip(Duration, Vec<u8>),
    /// A frame of HTTP/2.
    Frame { kind: u8, flags: u8, stream: StreamWord, payload: Vec<Item> },
    /// The head of a response: its status and its fields.
    Head(String, Vec<(String, String)>),
    /// Bytes of a body.
    Body(Vec<u8>),
    /// The end of a response.
    End,
    /// A whole response, as it should be.
    Serve,
    /// A response of a server of files.
    File(FileManner),
    /// A step repeated this many times, or until the client takes no more.
    Times(u64, Box<Self>),
    /// Silence for this long.
    Pause(Duration),
    /// A step after this long a silence.
    Slowly(Duration, Box<Self>),
    /// Reads until the client closes.
    Hold,
    /// An orderly close; over TLS with `close_notify`.
    Close,
    /// The end of the TCP connection; over TLS without `close_notify`.
    Cut,
    /// RST.
    Reset,
    /// The end of the process.
    Exit,
}

/// A stream: one by number, or an offset from that of the request.
#[derive(Debug, Clone, Copy)]
pub enum StreamWord {
    Number(u32),
    Request(i64),
}

impl StreamWord {
    /// The number of the stream, for a request on stream `request`.
    pub fn number(self, request: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Request(offset) => (i64::from(request) + offset).max(0) as u32,
        }
    }

    fn parse(word: &str) -> Result<Self> {
        match word.strip_prefix('s') {
            None => Ok(Self::Number(word.parse()?)),
            Some("") => Ok(Self::Request(0)),
            Some(offset) => Ok(Self::Request(offset.parse()?)),
        }
    }
}

/// A part of a frame's payload.
#[derive(Debug, Clone)]
pub enum Item {
    Bytes(Vec<u8>),
    Stream(StreamWord),
}

impl Item {
    fn parse(word: &str) -> Result<Self> {
        let (form, value) = word.split_once(':').context("an item is FORM:VALUE")?;
        Ok(match form {
            "u16" => Self::Bytes(value.parse::<u16>()?.to_be_bytes().into()),
            "u32" => Self::Bytes(value.parse::<u32>()?.to_be_bytes().into()),
            "stream" => Self::Stream(StreamWord::parse(value)?),
            "hex" => Self::Bytes(hex(value)?),
            "text" => Self::Bytes(unescaped(value)?),
            _ => bail!("no item has the form {form}"),
        })
    }
}

impl Step {
    /// Reads one step; what is random in it is drawn.
    pub fn parse(text: &str, draws: &mut Draws) -> Result<Self> {
        let text = draws.fill(text)?;
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        Ok(match verb {
            "send" => Self::Send(unescaped(rest)?),
            "drip" => {
                let (pause, bytes) = rest.split_once(' ').context("drip MS TEXT")?;
                Self::Drip(milliseconds(pause)?, unescaped(bytes)?)
            }
            "frame" => frame(rest)?,
            "head" => head(rest)?,
            "body" => Self::Body(unescaped(rest)?),
            "end" => Self::End,
            "serve" => Self::Serve,
            "file" => Self::File(FileManner::parse(rest)?),
            "times" => {
                let (count, step) = rest.split_once(' ').context("times N STEP")?;
                Self::Times(count.parse()?, Box::new(Self::parse(step, draws)?))
            }
            "forever" => Self::Times(u64::MAX, Box::new(Self::parse(rest, draws)?)),
            "slowly" => {
                let (pause, step) = rest.split_once(' ').context("slowly MS STEP")?;
                Self::Slowly(milliseconds(pause)?, Box::new(Self::parse(step, draws)?))
            }
            "pause" => Self::Pause(milliseconds(rest)?),
            "hold" => Self::Hold,
            "close" => Self::Close,
            "cut" => Self::Cut,
            "reset" => Self::Reset,
            "exit" => Self::Exit,
            _ => bail!("no step is called {verb}"),
        })
    }
}

fn milliseconds(word: &str) -> Result<Duration> {
    Ok(Duration::from_millis(word.parse()?))
}

/// `KIND FLAGS STREAM ITEM…`.
fn frame(text: &str) -> Result<Step> {
    const KINDS: [(&str, u8); 10] = [
        ("DATA", kind::DATA),
        ("HEADERS", kind::HEADERS),
        ("PRIORITY", kind::PRIORITY),
        ("RST_STREAM", kind::RST_STREAM),
        ("SETTINGS", kind::SETTINGS),
        ("PUSH_PROMISE", kind::PUSH_PROMISE),
        ("PING", kind::PING),
        ("GOAWAY", kind::GOAWAY),
        ("WINDOW_UPDATE", kind::WINDOW_UPDATE),
        ("CONTINUATION", kind::CONTINUATION),
    ];
    let mut words = text.split(' ');
    let mut next = || words.next().context("frame KIND FLAGS STREAM ITEM…");
    let kind = next()?;
    let kind = match KINDS.iter().find(|(name, _)| *name == kind) {
        Some((_, number)) => *number,
        None => kind.parse()?,
    };
    let mut flags = 0;
    for name in next()?.split(',') {
        flags |= match name {
            "-" => 0,
            "es" => flag::END_STREAM,
            "eh" => flag::END_HEADERS,
            "ack" => flag::ACK,
            _ => bail!("no flag is called {name}"),
        };
    }
    let stream = StreamWord::parse(next()?)?;
    Ok(Step::Frame { kind, flags, stream, payload: words.map(Item::parse).collect::<Result<_>>()? })
}

/// `STATUS; NAME: VALUE; …`.
fn head(text: &str) -> Result<Step> {
    let (status, fields) = text.split_once("; ").unwrap_or((text, ""));
    let field = |field: &str| {
        let (name, value) = field.split_once(": ").context("NAME: VALUE")?;
        Ok((name.to_owned(), String::from_utf8(unescaped(value)?)?))
    };
    let fields = fields.split("; ").filter(|field| !field.is_empty()).map(field);
    Ok(Step::Head(status.to_owned(), fields.collect::<Result<_>>()?))
}

fn hex(digits: &str) -> Result<Vec<u8>> {
    ensure!(digits.is_ascii() && digits.len().is_multiple_of(2), "two hexadecimal digits for each byte");
    let byte = |at: usize| Ok(u8::from_str_radix(&digits[at..at + 2], 16)?);
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// `\r`, `\n`, `\s` (a space), `\\` and `\xHH` as the bytes that they stand for.
fn unescaped(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b's') => b' ',
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                hex(&String::from_utf8(digits)?)?.pop().context("\\xHH")?
            }
            other => bail!("no escape has the letter {other:?}"),
        });
    }
    Ok(bytes)
}

/// What is drawn at random: the same for the same seed and the same row.
#[derive(Debug)]
pub struct Draws {
    counter: Counter,
    drawn: Vec<u64>,
}

impl Draws {
    /// The draws of the row called `name`.
    pub fn new(seed: u64, name: &str) -> Self {
        Self { counter: Counter::new(seed, name), drawn: Vec::new() }
    }

    /// All that were drawn, in order.
    pub fn drawn(&self) -> &[u64] {
        &self.drawn
    }

    /// A number that a row has as text; `otherwise`, if it has none.
    pub fn number(&mut self, text: &str, otherwise: u64) -> Result<u64> {
        if text.is_empty() { Ok(otherwise) } else { Ok(self.fill(text)?.parse()?) }
    }

    /// `{A..B}` becomes a number from A to B, `{X*N}` the text X repeated N times; the inner ones first.
    fn fill(&mut self, text: &str) -> Result<String> {
        let mut filled = text.to_owned();
        while let Some(end) = filled.find('}') {
            let start = filled[..end].rfind('{').context("a } without a {")?;
            let inner = &filled[start + 1..end];
            let value = if let Some((from, to)) = inner.split_once("..") {
                self.draw(from.parse()?, to.parse()?)?.to_string()
            } else {
                let (text, times) = inner.rsplit_once('*').context("{A..B} or {TEXT*N}")?;
                text.repeat(times.parse()?)
            };
            filled.replace_range(start..=end, &value);
        }
        Ok(filled)
    }

    fn draw(&mut self, from: u64, to: u64) -> Result<u64> {
        ensure!(from <= to, "{{A..B}} where A is at most B");
        let drawn = from + self.counter.below(to - from + 1);
        self.drawn.push(drawn);
        Ok(drawn)
    }
}
