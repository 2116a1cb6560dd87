//! Who is there: drivers ask all agents at once, and each answers with its card and its clock.
//!
//! Two agents must not have one name, since both would follow the orders for it. So an agent asks for its own name, too, at
//! a subject that no other agent may use: when it begins, after each interruption of its connection, and when another one of
//! its name has asked whose question does not decide which of both must end.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use h2lab_base::units::{Time, format_bytes, nanos};
use h2lab_model::fleet::messages::{decode_printable, encode};
use h2lab_model::fleet::subjects::{self, RandomId};
use h2lab_model::fleet::{AgentCard, AgentName, ClockOffset, RoundTrip};
use h2lab_nats::{Nats, Subscription};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

/// Round trips by which clocks are compared.
const ROUNDS: usize = 8;
/// How long each but the first of them is waited for, at most.
const ROUND: Duration = Duration::from_millis(500);
/// How long answers of those are waited for who must be there, at a time, and in all.
const ANSWER: Duration = Duration::from_secs(1);
const MISSING: Duration = Duration::from_secs(10);
/// Answers of one round that are read: more than there can be agents.
const MOST: usize = 10_000;
/// The longest answer that is read, in bytes, and all of one round together: whoever may publish can answer.
const LONGEST_ANSWER: usize = 64 << 10;
const MOST_BYTES: usize = 64 << 20;
/// The longest card, in bytes: an answer has more than that, for one who is busy says with whom.
const LONGEST_CARD: usize = LONGEST_ANSWER / 2;
/// The longest question, in bytes.
const LONGEST: usize = 256;

/// The question.
#[derive(Debug, Serialize, Deserialize)]
struct Who {
    /// Where the answer goes.
    session: RandomId,
    /// Who asks, if it is an agent that asks for its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asker: Option<Served>,
}

/// A process of an agent, and for how long it has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Served {
    /// A random number of its process.
    instance: u64,
    /// In nanoseconds.
    serves_ns: u64,
}

/// The question in an envelope of any version: the answer tells the driver that its version differs.
#[derive(Debug, Deserialize)]
struct Question {
    message: Who,
}

/// The answer of an agent.
#[derive(Debug, Serialize, Deserialize)]
struct WhoAnswer {
    /// What it is.
    card: AgentCard,
    /// A random number of its process.
    instance: u64,
    /// For how long that has served, in nanoseconds.
    serves_ns: u64,
    /// The time of day by its clock, since 1970.
    at: Time,
}

/// An agent that has answered.
#[derive(Debug)]
pub struct Seen {
    /// What it is.
    pub card: AgentCard,
    /// Our time of day against its own; `None` if one of both has no sound one.
    pub clock: Option<ClockOffset>,
}

/// The agents that have answered.
#[derive(Debug, Default)]
pub struct Present {
    /// By name; of two of one name the first that answered.
    pub agents: Vec<Seen>,
    /// Answers of no use, and names that two agents have, in words.
    pub doubts: Vec<String>,
}

/// Asks all agents, and waits so long for their answers; then compares the clocks of those that have answered.
pub fn ask(nats: &Nats, wait: Duration) -> Result<Present> {
    let mut gathered = Gathered::default();
    let (answers, sent) = ask_once(nats, wait, MOST)?;
    for answer in answers {
        gathered.take(sent, &answer);
    }
    for _ in 1..ROUNDS {
        let known = gathered.agents.len();
        if known > 0 {
            let (answers, sent) = ask_once(nats, wait.min(ROUND), known)?;
            for answer in answers {
                gathered.take(sent, &answer);
            }
        }
    }
    Ok(gathered.present())
}

/// Asks until the agents of these names have answered, for ten seconds at most: one that begins tries first what its machine can
/// do, and one on a busy machine answers late.
pub fn ask_for(nats: &Nats, names: &[AgentName]) -> Result<Present> {
    let until = Instant::now() + MISSING;
    loop {
        let present = ask(nats, ANSWER)?;
        let is_there = |name: &AgentName| present.agents.iter().any(|seen| seen.card.name == *name);
        if names.iter().all(is_there) || Instant::now() >= until {
            return Ok(present);
        }
    }
}

/// An answer that has come.
struct Answer {
    subject: String,
    /// By our time of day.
    received: Time,
    text: String,
}

/// What is known of those that have answered.
#[derive(Default)]
struct Gathered {
    agents: BTreeMap<AgentName, (WhoAnswer, Vec<RoundTrip>)>,
    doubts: Vec<String>,
}

impl Gathered {
    /// An answer to the question of `sent`.
    fn take(&mut self, sent: Time, answer: &Answer) {
        let here = match read(answer) {
            Ok(here) => here,
            Err(why) => return self.doubts.push(why),
        };
        let (name, instance) = (here.card.name.clone(), here.instance);
        let trip = RoundTrip { sent, theirs: here.at, received: answer.received };
        let (first, trips) = self.agents.entry(name).or_insert_with(|| (here, Vec::new()));
        if first.instance == instance {
            trips.push(trip);
        } else {
            self.doubts.push(format!("{}: two agents have this name; end one of them", first.card.name));
        }
    }

    fn present(mut self) -> Present {
        // Each round may have had the same ones.
        self.doubts.sort();
        self.doubts.dedup();
        let seen = |(here, trips): (WhoAnswer, Vec<RoundTrip>)| Seen {
            card: here.card,
            clock: ClockOffset::of(&trips),
        };
        Present { agents: self.agents.into_values().map(seen).collect(), doubts: self.doubts }
    }
}

/// One question, and the answers that come within `wait`, at most `enough`. With the time when it was asked.
fn ask_once(nats: &Nats, wait: Duration, enough: usize) -> Result<(Vec<Answer>, Time)> {
    let session = random_id()?;
    let (sender, receiver) = sync_channel(enough);
    let _subscription = nats.subscribe(&subjects::from_all_agents(session), keep_answers(sender))?;
    let sent = time_of_day();
    nats.publish(subjects::WHO, question(session, None)?)?;
    let until = Instant::now() + wait;
    let mut answers = Vec::new();
    while answers.len() < enough {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(answer) => answers.push(answer),
            Err(_) => break,
        }
    }
    Ok((answers, sent))
}

/// Keeps answers for whoever asked, without waiting: as many as have room there, none that is too long, and no more
/// bytes than an honest fleet answers.
fn keep_answers(sender: SyncSender<Answer>) -> impl FnMut(&str, &[u8]) + Send + 'static {
    let mut room = MOST_BYTES;
    move |subject, text| {
        if text.len() > LONGEST_ANSWER {
            return;
        }
        let Some(rest) = room.checked_sub(text.len()) else { return };
        room = rest;
        let text = String::from_utf8_lossy(text).into_owned();
        // Fails if there are too many, or after the last answer that is read.
        let _ = sender.try_send(Answer { subject: subject.to_owned(), received: time_of_day(), text });
    }
}

fn question(session: RandomId, asker: Option<Served>) -> Result<Vec<u8>> {
    Ok(encode(&Who { session, asker }).context("cannot write a message")?.into_bytes())
}

/// What an answer says, if it is one of the agent whose subject it has: what the server permits goes by subjects.
fn read(answer: &Answer) -> Result<WhoAnswer, String> {
    let (name, _) = subjects::of_session(&answer.subject).ok_or("an answer came at a subject of no agent")?;
    let here: WhoAnswer = decode_printable(&answer.text).map_err(|error| format!("{name}: {error}"))?;
    if here.card.name == name {
        Ok(here)
    } else {
        Err(format!("{name}: its answer has the name {}", here.card.name))
    }
}

/// An agent that answers. Dropping it ends that.
pub struct Presence {
    answering: Arc<Answering>,
    _subscriptions: [Subscription; 3],
}

/// What the answers are made of.
struct Answering {
    nats: Nats,
    card: AgentCard,
    instance: u64,
    /// Where answers to its own questions go.
    own: RandomId,
    since: Instant,
    /// For how long it had served when it asked last.
    asked_ns: AtomicU64,
    busy: Box<dyn Fn() -> Option<String> + Send + Sync>,
    is_double: AtomicBool,
}

impl Presence {
    /// Answers from now on for the agent of this card; `busy` says with whom it is busy. Asks whether another agent has its
    /// name. A card that nobody would read is refused.
    pub fn begin(
        nats: &Nats,
        card: AgentCard,
        busy: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        check_length(&card)?;
        let name = card.name.clone();
        let mut instance = [0; 8];
        getrandom(&mut instance[..], GetRandomFlags::empty())?;
        let answering = Arc::new(Answering {
            nats: nats.clone(),
            card,
            instance: u64::from_ne_bytes(instance),
            own: random_id()?,
            since: Instant::now(),
            asked_ns: AtomicU64::new(0),
            busy: Box::new(busy),
            is_double: AtomicBool::new(false),
        });
        let comparing = Arc::downgrade(&answering);
        let subscriptions = [
            nats.subscribe(subjects::WHO, answers(Arc::downgrade(&answering)))?,
            nats.subscribe(&who_of(&name), answers(Arc::downgrade(&answering)))?,
            nats.subscribe(&subjects::from_agent(&name, answering.own), move |_, answer| {
                if let Some(answering) = comparing.upgrade() {
                    answering.compare(answer);
                }
            })?,
        ];
        let presence = Self { answering, _subscriptions: subscriptions };
        presence.ask_for_doubles()?;
        Ok(presence)
    }

    /// Asks whether another agent has this name: one may have begun, or have been reached again.
    pub fn ask_for_doubles(&self) -> Result<()> {
        self.answering.ask()
    }

    /// Whether this one must end, since another agent of its name was there before.
    pub fn is_double(&self) -> bool {
        self.answering.is_double.load(Ordering::Relaxed)
    }
}

/// Refuses a card with which an answer could be too long.
fn check_length(card: &AgentCard) -> Result<()> {
    let bytes = encode(card).context("cannot write a message")?.len();
    ensure!(
        bytes <= LONGEST_CARD,
        "the description of this agent has {}, and drivers read {} at most: give it fewer --allow",
        format_bytes(bytes as u64),
        format_bytes(LONGEST_CARD as u64)
    );
    Ok(())
}

/// Where an agent is asked by others of its name: below its own subjects, so that it may ask there.
fn who_of(name: &AgentName) -> String {
    format!("h2lab.agent.{name}.who")
}

/// Handles questions. A subscription must not keep its own connection.
fn answers(answering: Weak<Answering>) -> impl FnMut(&str, &[u8]) + Send + 'static {
    move |subject, question| {
        if let Some(answering) = answering.upgrade() {
            answering.answer(subject, question);
        }
    }
}

impl Answering {
    /// Answers a question that came at `subject`; anything else is ignored.
    fn answer(&self, subject: &str, question: &[u8]) {
        let Some(Who { session, asker }) = asked(question) else { return };
        let since = self.since.elapsed();
        let card = AgentCard { busy: (self.busy)(), serves_s: since.as_secs(), ..self.card.clone() };
        let here = WhoAnswer { card, instance: self.instance, serves_ns: nanos(since), at: time_of_day() };
        if let Ok(line) = encode(&here) {
            // Fails if too much waits to be sent: who needs the answer asks again.
            let _ = self.nats.publish(&subjects::from_agent(&self.card.name, session), line.into_bytes());
        }
        // Drivers may ask all agents, and must not end one.
        let Some(asker) = asker.filter(|_| subject != subjects::WHO) else { return };
        let ours = Served { instance: self.instance, serves_ns: nanos(since) };
        self.end_if(must_end(asker, ours));
        if asker.instance > self.instance {
            // That question decides nothing; ours does. The other one does not ask again then.
            let _ = self.ask();
        }
    }

    /// Asks for other agents of this name.
    fn ask(&self) -> Result<()> {
        let ours = Served { instance: self.instance, serves_ns: nanos(self.since.elapsed()) };
        self.asked_ns.store(ours.serves_ns, Ordering::Relaxed);
        Ok(self.nats.publish(&who_of(&self.card.name), question(self.own, Some(ours))?)?)
    }

    /// Notes which of two agents must end.
    fn end_if(&self, instance: Option<u64>) {
        if instance == Some(self.instance) {
            self.is_double.store(true, Ordering::Relaxed);
        }
    }

    /// An answer for our own name has come: ours, or that of another agent.
    fn compare(&self, answer: &[u8]) {
        if answer.len() > LONGEST_ANSWER {
            return;
        }
        let Ok(other) = decode_printable::<WhoAnswer>(&String::from_utf8_lossy(answer)) else { return };
        // What the other one has read in the question.
        let ours = Served { instance: self.instance, serves_ns: self.asked_ns.load(Ordering::Relaxed) };
        self.end_if(must_end(ours, Served { instance: other.instance, serves_ns: other.serves_ns }));
    }
}

/// Who asks, and where the answer goes.
fn asked(question: &[u8]) -> Option<Who> {
    if question.len() > LONGEST {
        return None;
    }
    serde_json::from_slice::<Question>(question).ok().map(|question| question.message)
}

/// Which of two agents of one name must end, the one that has asked or the one that answers: the later one. Both find the same, for
/// both have these two figures, so that exactly one is left: had each compared what it hears with its own age at that time, two
/// that begin within the time of a message would both stay. `None` if this question decides nothing, since only those of the one
/// with the lower number do, or since it is its own.
const fn must_end(asker: Served, answerer: Served) -> Option<u64> {
    if asker.instance >= answerer.instance {
        return None;
    }
    Some(if asker.serves_ns < answerer.serves_ns { asker.instance } else { answerer.instance })
}

/// The number of a session, a run or a part: nobody can guess it.
pub fn random_id() -> io::Result<RandomId> {
    let mut random = [0; 16];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    Ok(RandomId::new(u128::from_ne_bytes(random)))
}

/// The time of day since 1970.
fn time_of_day() -> Time {
    Time::from_nanos(nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use h2lab_model::fleet::testing::agent_card;

    use super::*;

    fn here(name: &str, instance: u64, at: Time) -> WhoAnswer {
        let card = agent_card(name);
        WhoAnswer { card, instance, serves_ns: 0, at }
    }

    /// An answer that came at the subject of an agent, 20 ms after it was asked at 1 s.
    fn answer(subject: &str, text: String) -> Answer {
        let subject = format!("h2lab.agent.{subject}.from.{}", RandomId::new(1));
        Answer { subject, received: Time::from_millis(1020), text }
    }

    #[test]
    fn a_clock_is_compared_by_each_answer_of_its_agent() {
        let mut gathered = Gathered::default();
        let sent = Time::from_millis(1000);
        for theirs in [3010, 3015] {
            let here = here("kek-1", 1, Time::from_millis(theirs));
            gathered.take(sent, &answer("kek-1", encode(&here).unwrap()));
        }
        let present = gathered.present();
        let clock = present.agents[0].clock.unwrap();
        assert_eq!((clock.nanos(), clock.uncertainty), (-2_002_500_000, Duration::from_micros(7500)));
        assert!(present.doubts.is_empty(), "{:?}", present.doubts);
    }

    #[test]
    fn a_second_agent_of_a_name_and_one_that_uses_another_name_are_doubts() {
        let mut gathered = Gathered::default();
        let mut take = |subject: &str, name: &str, instance| {
            let here = here(name, instance, Time::from_millis(1010));
            gathered.take(Time::from_millis(1000), &answer(subject, encode(&here).unwrap()));
        };
        take("kek-1", "kek-1", 1);
        take("kek-1", "kek-1", 2);
        take("kek-1", "kek-1", 2);
        take("kek-2", "kek-1", 3);
        let present = gathered.present();
        assert_eq!(present.agents.len(), 1);
        let [double, other] = &present.doubts[..] else { panic!("{:?}", present.doubts) };
        assert!(double.starts_with("kek-1: two agents have this name"), "{double}");
        assert_eq!(other, "kek-2: its answer has the name kek-1");
    }

    #[test]
    fn an_agent_of_another_version_is_named_with_the_reason() {
        let mut gathered = Gathered::default();
        gathered.take(Time::ZERO, &answer("kek-1", r#"{"agent":1,"message":{}}"#.to_owned()));
        let [doubt] = &gathered.present().doubts[..] else { panic!("one doubt") };
        assert!(doubt.starts_with("kek-1: ") && doubt.contains("version 1 "), "{doubt}");
    }

    /// How many of these answers, given by their lengths, are kept where there is room for so many.
    fn kept(enough: usize, lengths: impl IntoIterator<Item = usize>) -> usize {
        let (sender, receiver) = sync_channel(enough);
        let mut keep = keep_answers(sender);
        let longest = vec![b'x'; LONGEST_ANSWER + 1];
        lengths.into_iter().for_each(|length| keep("h2lab.agent.kek-1.from.x", &longest[..length]));
        receiver.try_iter().count()
    }

    #[test]
    fn answers_that_are_too_many_too_long_or_too_much_together_are_not_kept() {
        assert_eq!(kept(2, [1, 1]), 2);
        assert_eq!(kept(2, [1, 1, 1]), 2, "who receives does not wait");
        assert_eq!(kept(2, [LONGEST_ANSWER + 1, LONGEST_ANSWER]), 1);
        let all = MOST_BYTES / LONGEST_ANSWER;
        assert_eq!(kept(MOST, vec![LONGEST_ANSWER; all]), all);
        assert_eq!(kept(MOST, vec![LONGEST_ANSWER; all + 1]), all);
    }

    #[test]
    fn a_card_that_nobody_would_read_is_refused_with_what_to_do() {
        let of_length = |allow: usize| {
            let here = here("kek-1", 1, Time::ZERO);
            AgentCard { allow: vec!["x".repeat(allow)], ..here.card }
        };
        let rest = LONGEST_CARD - encode(&of_length(0)).unwrap().len();
        assert!(check_length(&of_length(rest)).is_ok());
        let refused = check_length(&of_length(rest + 1)).unwrap_err().to_string();
        assert!(refused.contains("give it fewer --allow"), "{refused}");
    }

    #[test]
    fn a_question_of_another_version_has_an_answer_and_what_is_none_has_not() {
        let session = RandomId::new(7);
        let of = |question: &[u8]| asked(question).map(|who| (who.session, who.asker));
        assert_eq!(of(&question(session, None).unwrap()), Some((session, None)));
        let longest = Some(served(u64::MAX, u64::MAX));
        assert_eq!(of(&question(session, longest).unwrap()), Some((session, longest)));
        assert_eq!(
            of(format!(r#"{{"agent":1,"message":{{"session":"{session}"}}}}"#).as_bytes()),
            Some((session, None))
        );
        let long = format!(r#"{{"message":{{"session":"{session}"}},"x":"{}"}}"#, "x".repeat(LONGEST));
        for bad in ["", "{}", r#"{"message":{"session":"h2lab.who"}}"#, &long] {
            assert_eq!(of(bad.as_bytes()), None, "{bad}");
        }
    }

    const fn served(instance: u64, serves_ns: u64) -> Served {
        Served { instance, serves_ns }
    }

    #[test]
    fn of_two_agents_of_one_name_the_later_one_ends_whichever_has_the_lower_number() {
        assert_eq!(must_end(served(1, 5), served(2, 9)), Some(1));
        assert_eq!(must_end(served(1, 9), served(2, 5)), Some(2));
        assert_eq!(must_end(served(1, 5), served(1, 9)), None, "its own question");
    }

    #[test]
    fn of_two_agents_that_begin_at_the_same_time_exactly_one_ends() {
        // Both ask at once, and each hears the other's question, and the answer to its own, one delay of 7 later.
        for (first, second) in [(0, 0), (0, 7), (7, 0)] {
            let (one, two) = (served(1, first), served(2, second));
            let later = |agent: Served| served(agent.instance, agent.serves_ns + 7);
            let verdicts = [must_end(one, later(two)), must_end(two, later(one))];
            let ends: Vec<u64> = verdicts.into_iter().flatten().collect();
            assert_eq!(ends.len(), 1, "{one:?}, {two:?}: {ends:?}");
        }
    }
}
