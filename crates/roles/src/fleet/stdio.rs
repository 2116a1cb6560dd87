//! An agent with its orders on standard input and its reports on standard output: `h2lab agent --stdio`.
//!
//! The end of the input ends it, and with the process everything that it started; so does a closed output. Behind ssh both come
//! with the end of the connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use h2lab_model::fleet::messages::{LONGEST_LINE, MessageError, decode, encode};

use super::agent::{self, AgentSetup};
use super::event::{AgentEvent, Summarize};

/// At the end a driver that does not read is waited for so long.
const LAST: Duration = Duration::from_secs(5);

/// Works until the input ends.
pub fn work(summarize: Summarize) -> io::Result<()> {
    let (sender, events) = channel();
    let own = sender.clone();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || listen(&sender))?;
    // In a thread of its own: an agent must find out that it is deserted although nobody reads what it says.
    let ((lines, said), (done, is_done)) = (channel(), channel());
    std::thread::Builder::new().name("stdout".to_owned()).spawn(move || report(&said, done))?;
    let setup = AgentSetup::of_driver(summarize, agent::SILENCE_TIMEOUT);
    agent::work(&events, own, &setup, &mut |message| {
        encode(&message).is_ok_and(|line| lines.send(line).is_ok())
    });
    drop(lines);
    let _ = is_done.recv_timeout(LAST); // nothing is ever sent: it ends with the thread, or the time
    Ok(())
}

/// Writes lines, until nothing more can be said or nobody can read it.
fn report(said: &Receiver<String>, done: Sender<()>) {
    let mut out = io::stdout().lock();
    for line in said {
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    drop(done);
}

/// Passes on the messages.
fn listen(events: &Sender<AgentEvent>) {
    let mut input = BufReader::new(io::stdin());
    loop {
        let event = match read(&mut input, decode) {
            Ok(Some(message)) => AgentEvent::Message(message),
            Ok(None) => AgentEvent::End(None),
            Err(error) => AgentEvent::End(Some(error.to_string())),
        };
        let is_last = matches!(event, AgentEvent::End(_));
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The pipe broke.
    #[error("the messages cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A message that is not for an agent.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A line without end.
    #[error("a line of the other end is longer than {LONGEST_LINE} bytes")]
    TooLong,
}

/// The next message, as `decode` makes it of its line; `None` at the end of the input. A last line without its end was cut off, and
/// is none.
pub fn read<T>(
    input: &mut impl BufRead,
    decode: impl FnOnce(&str) -> Result<T, MessageError>,
) -> Result<Option<T>, ReadError> {
    let mut line = Vec::new();
    input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
    if line.len() == LONGEST_LINE {
        return Err(ReadError::TooLong);
    }
    match line.strip_suffix(b"\n") {
        None => Ok(None),
        Some(line) => Ok(Some(decode(&String::from_utf8_lossy(line))?)),
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::ToAgent;

    use super::*;

    #[test]
    fn messages_are_read_line_by_line_and_a_cut_one_is_the_end() {
        let lines = format!(
            "{}\n{}\n{{\"agent\":2",
            encode(&ToAgent::Stop).unwrap(),
            encode(&ToAgent::Stop).unwrap()
        );
        let mut input = lines.as_bytes();
        for _ in 0..2 {
            assert_eq!(read::<ToAgent>(&mut input, decode).unwrap(), Some(ToAgent::Stop));
        }
        assert_eq!(read::<ToAgent>(&mut input, decode).unwrap(), None);
    }

    #[test]
    fn a_line_without_end_fills_no_memory() {
        let mut input = BufReader::new(io::repeat(b'x'));
        assert!(matches!(read::<ToAgent>(&mut input, decode), Err(ReadError::TooLong)));
        let longest = "x".repeat(LONGEST_LINE - 2) + "\n";
        let read_whole = read::<ToAgent>(&mut longest.as_bytes(), decode);
        assert!(matches!(read_whole, Err(ReadError::Message(_))), "it is read, and no message");
        let mut binary = &[0xff, 0xfe, b'\n'][..];
        assert!(matches!(read::<ToAgent>(&mut binary, decode), Err(ReadError::Message(_))));
    }
}
