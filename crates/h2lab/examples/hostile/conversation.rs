//! One connection of a hostile server: it reads requests as any server would, and answers them as its row says.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use h2lab_wire::h2::frame::{FrameHeader, HEADER_LENGTH, PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;
use h2lab_wire::h2::raw;
use rustls::{ServerConnection, StreamOwned};
use socket2::SockRef;

use super::script::{Item, Step};
use super::{Plan, drain};

/// What a client asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// HTTP/2: its stream.
    stream: u32,
    fields: Vec<(String, String)>,
}

impl Request {
    /// The value of a field, `:method` among them.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it asks for this method.
    pub fn is(&self, method: &str) -> bool {
        self.field(":method") == Some(method)
    }
}

/// What carries a connection.
pub trait Transport: Read + Write {
    /// Sends `close_notify` over TLS; does nothing in clear.
    fn close_notify(&mut self) -> io::Result<()>;
}

impl Transport for TcpStream {
    fn close_notify(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for StreamOwned<ServerConnection, TcpStream> {
    fn close_notify(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Step,
    Nothing,
}

/// A connection.
pub struct Conversation<'a, S> {
    plan: &'a Plan,
    /// The connection below TLS.
    socket: TcpStream,
    stream: BufReader<S>,
    is_attacked: bool,
    requests: u64,
    /// HTTP/2: decodes the client's field blocks, and holds those that are not complete yet.
    blocks: FieldBlocks,
    pending: BTreeMap<u32, Request>,
}

impl<'a, S: Transport> Conversation<'a, S> {
    /// A connection of which nothing was read yet.
    pub fn new(plan: &'a Plan, socket: TcpStream, stream: S, is_attacked: bool) -> Self {
        let (blocks, pending) = (FieldBlocks::default(), BTreeMap::new());
        Self { plan, socket, stream: BufReader::new(stream), is_attacked, requests: 0, blocks, pending }
    }

    /// Follows the row until either side closes.
    pub fn hold(mut self) -> io::Result<()> {
        if self.begin()? == Next::Nothing {
            return Ok(());
        }
        if self.plan.speech.is_http2() && !self.is_preface()? {
            return Ok(());
        }
        while let Some(request) = self.next_request()? {
            self.requests += 1;
            if !self.is_attacked || self.requests <= self.plan.first {
                self.step(&Step::Serve, &request)?;
            } else if self.steps(&self.plan.each, &request)? == Next::Nothing {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<Next> {
        match &self.plan.begin {
            Some(begin) if self.is_attacked => {
                let next = self.steps(begin, &Request::default())?;
                if next == Next::Step && self.plan.each.is_empty() {
                    return self.step(&Step::Hold, &Request::default());
                }
                Ok(next)
            }
            _ if self.plan.speech.is_http2() => {
                self.send(&raw::frame(kind::SETTINGS, 0, 0, &[]))?;
                Ok(Next::Step)
            }
            _ => Ok(Next::Step),
        }
    }

    /// Runs the steps in order, until one of them ends the connection.
    fn steps(&mut self, steps: &[Step], request: &Request) -> io::Result<Next> {
        for step in steps {
            if self.step(step, request)? == Next::Nothing {
                return Ok(Next::Nothing);
            }
        }
        Ok(Next::Step)
    }

    fn step(&mut self, step: &Step, request: &Request) -> io::Result<Next> {
        match step {
            Step::Send(bytes) => self.send(bytes)?,
            Step::Drip(pause, bytes) => {
                for byte in bytes {
                    thread::sleep(*pause); // the pace is the attack
                    self.send(&[*byte])?;
                }
            }
            Step::Frame { kind, flags, stream, payload } => {
                let payload = payload.iter().flat_map(|item| match item {
                    Item::Bytes(bytes) => bytes.clone(),
                    Item::Stream(word) => word.number(request.stream).to_be_bytes().into(),
                });
                let payload: Vec<u8> = payload.collect();
                self.send(&raw::frame(*kind, *flags, stream.number(request.stream), &payload))?;
            }
            Step::Head(status, fields) => self.head(request, status, fields)?,
            Step::Body(bytes) => self.body(request, bytes)?,
            Step::End => self.end(request)?,
            Step::Serve => self.serve(request)?,
            Step::File(manner) => {
                let answer = manner.answer(request, self.plan.answers.fetch_add(1, Ordering::Relaxed));
                self.head(request, answer.status, &answer.fields)?;
                self.body(request, &answer.body)?;
                self.end(request)?;
            }
            Step::Times(count, step) => {
                for _ in 0..*count {
                    if self.step(step, request)? == Next::Nothing {
                        return Ok(Next::Nothing);
                    }
                }
            }
            Step::Pause(time) => thread::sleep(*time),
            Step::Slowly(pause, step) => {
                thread::sleep(*pause); // the pace is the attack
                return self.step(step, request);
            }
            Step::Exit => std::process::exit(1),
            Step::Hold | Step::Close | Step::Cut | Step::Reset => {
                self.leave(step)?;
                return Ok(Next::Nothing);
            }
        }
        Ok(Next::Step)
    }

    /// Ends the connection in the way that the step names.
    fn leave(&mut self, how: &Step) -> io::Result<()> {
        match how {
            Step::Hold => drain(&mut self.stream),
            Step::Reset => {
                SockRef::from(&self.socket).set_linger(Some(Duration::ZERO))?;
                // The socket has two handles, and is closed with the second: both are dropped with `self`.
            }
            Step::Cut => self.socket.shutdown(Shutdown::Write)?,
            _ => {
                self.stream.get_mut().close_notify()?;
                self.socket.shutdown(Shutdown::Write)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)?;
        self.stream.get_mut().flush()
    }

    fn head(&mut self, request: &Request, status: &str, fields: &[(String, String)]) -> io::Result<()> {
        if !self.plan.speech.is_http2() {
            let mut head = format!("HTTP/1.1 {status} Hostile\r\n");
            for (name, value) in fields {
                head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
            }
            return self.send((head + "\r\n").as_bytes());
        }
        let own = [(":status", status)].into_iter();
        let fields = own.chain(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let block = raw::field_block(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        self.send(&raw::frame(kind::HEADERS, flag::END_HEADERS, request.stream, &block))
    }

    /// Sends bytes of a body, unless the request was a HEAD.
    fn body(&mut self, request: &Request, bytes: &[u8]) -> io::Result<()> {
        const FRAME: usize = 16_384;
        if request.is("HEAD") {
            return Ok(());
        }
        if !self.plan.speech.is_http2() {
            return self.send(bytes);
        }
        bytes.chunks(FRAME).try_for_each(|piece| self.send(&raw::frame(kind::DATA, 0, request.stream, piece)))
    }

    fn end(&mut self, request: &Request) -> io::Result<()> {
        if self.plan.speech.is_http2() {
            self.send(&raw::frame(kind::DATA, flag::END_STREAM, request.stream, &[]))?;
        }
        Ok(())
    }

    /// As any server would.
    fn serve(&mut self, request: &Request) -> io::Result<()> {
        const BODY: &[u8] = b"hello";
        let status = if request.is("PUT") { "201" } else { "200" };
        self.head(request, status, &[("content-length".to_owned(), BODY.len().to_string())])?;
        self.body(request, BODY)?;
        self.end(request)
    }

    /// The next request, once all of it has arrived; `None` if there is none.
    fn next_request(&mut self) -> io::Result<Option<Request>> {
        if self.plan.speech.is_http2() { self.next_http2() } else { self.next_http1() }
    }

    fn is_preface(&mut self) -> io::Result<bool> {
        let mut preface = [0; PREFACE.len()];
        self.stream.read_exact(&mut preface)?;
        Ok(preface == *PREFACE)
    }

    fn next_http1(&mut self) -> io::Result<Option<Request>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                text => lines.push(text.to_owned()),
            }
        }
        let method = lines.first().and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
        if method == "PRI" {
            return Ok(None); // HTTP/2, which is not spoken here
        }
        let fields = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let fields = [(":method".to_owned(), method)].into_iter().chain(fields).collect();
        let request = Request { stream: 0, fields };
        self.skip_body(&request)?;
        Ok(Some(request))
    }

    fn skip_body(&mut self, request: &Request) -> io::Result<()> {
        if request.field("transfer-encoding").is_some() {
            // Everything up to the last chunk and the empty line after it.
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line)?;
                let size = u64::from_str_radix(line.trim_end(), 16).unwrap_or(0);
                io::copy(&mut self.stream.by_ref().take(size), &mut io::sink())?;
                self.stream.read_line(&mut line)?;
                if size == 0 {
                    return Ok(());
                }
            }
        }
        let length = request.field("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        io::copy(&mut self.stream.by_ref().take(length), &mut io::sink()).map(drop)
    }

    fn next_http2(&mut self) -> io::Result<Option<Request>> {
        loop {
            let Ok((header, payload)) = self.next_frame() else { return Ok(None) };
            let is_acknowledgement = header.flags & flag::ACK != 0;
            match header.kind {
                kind::SETTINGS if !is_acknowledgement => {
                    self.send(&raw::frame(kind::SETTINGS, flag::ACK, 0, &[]))?;
                }
                kind::PING if !is_acknowledgement => {
                    self.send(&raw::frame(kind::PING, flag::ACK, 0, &payload))?;
                }
                kind::HEADERS => self.note_head(header, payload)?,
                kind::DATA if self.plan.gives_windows && !payload.is_empty() => {
                    let more = (payload.len() as u32).to_be_bytes();
                    for stream in [0, header.stream] {
                        self.send(&raw::frame(kind::WINDOW_UPDATE, 0, stream, &more))?;
                    }
                }
                kind::RST_STREAM => drop(self.pending.remove(&header.stream)),
                _ => {}
            }
            let may_end = matches!(header.kind, kind::HEADERS | kind::DATA);
            if may_end
                && header.flags & flag::END_STREAM != 0
                && let Some(request) = self.pending.remove(&header.stream)
            {
                return Ok(Some(request));
            }
        }
    }

    fn next_frame(&mut self) -> io::Result<(FrameHeader, Vec<u8>)> {
        let mut header = [0; HEADER_LENGTH];
        self.stream.read_exact(&mut header)?;
        let header = FrameHeader::parse(&header);
        let mut payload = vec![0; header.length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((header, payload))
    }

    /// Reads a field block to its end: of a request, or of its trailers.
    fn note_head(&mut self, header: FrameHeader, mut block: Vec<u8>) -> io::Result<()> {
        let mut flags = header.flags;
        while flags & flag::END_HEADERS == 0 {
            let (next, payload) = self.next_frame()?;
            block.extend(payload);
            flags = next.flags;
        }
        let (fields, _) = self.blocks.decode(&block).map_err(io::Error::other)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = fields.iter().map(|field| (text(field.name), text(field.value))).collect();
        self.pending.entry(header.stream).or_insert(Request { stream: header.stream, fields });
        Ok(())
    }
}
