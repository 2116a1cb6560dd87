//! Trace context: `traceparent` and `tracestate` (W3C Trace Context, level 1), and B3 (`b3`, `X-B3-*`), which only passes.

use h2lab_base::random::Counter;

use crate::head::Head;

/// The field with the ids.
const PARENT: &[u8] = b"traceparent";
/// The field with what products add to them.
const STATE: &[u8] = b"tracestate";
/// The trace of B3's fields.
const B3: [&[u8]; 2] = [b"b3", b"x-b3-traceid"];
/// `00-` 32 digits `-` 16 digits `-` 2 digits (§3.2.2).
const LENGTH: usize = 55;

/// The ids of a request on this hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The trace, in lower-case hexadecimal digits.
    pub trace: [u8; 32],
    /// The span: of this hop where it takes part, else of the sender of the request.
    pub id: [u8; 16],
    /// The flags: 1 of them says that the caller may have recorded it.
    pub flags: [u8; 2],
}

impl Span {
    /// From the value of a `traceparent`; `None` where that must be ignored (§3.2.2.3). What a later version appends is
    /// ignored.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let digits = |range: std::ops::Range<usize>| {
            let digits = value.get(range)?;
            digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).then_some(digits)
        };
        let separators = [2, 35, 52].iter().all(|at| value.get(*at) == Some(&b'-'));
        let version = digits(0..2)?;
        let is_whole = match (version, value.len()) {
            (b"ff", _) => false,
            (b"00", length) => length == LENGTH,
            (_, length) => length == LENGTH || value.get(LENGTH) == Some(&b'-'),
        };
        let (trace, id) = (digits(3..35)?, digits(36..52)?);
        let is_set = |digits: &[u8]| digits.iter().any(|digit| *digit != b'0');
        if !separators || !is_whole || !is_set(trace) || !is_set(id) {
            return None;
        }
        Some(Self {
            trace: trace.try_into().ok()?,
            id: id.try_into().ok()?,
            flags: digits(53..LENGTH)?.try_into().ok()?,
        })
    }

    /// From the fields of a request: the only `traceparent`, if it is valid.
    pub fn of(head: &Head) -> Option<Self> {
        let mut parents = head.fields().filter(|field| field.name == PARENT);
        let parent = parents.next()?;
        if parents.next().is_some() { None } else { Self::parse(parent.value) }
    }

    /// As a `traceparent` of version 00.
    pub fn value(&self) -> [u8; LENGTH] {
        let mut value = [b'-'; LENGTH];
        value[..2].copy_from_slice(b"00");
        value[3..35].copy_from_slice(&self.trace);
        value[36..52].copy_from_slice(&self.id);
        value[53..].copy_from_slice(&self.flags);
        value
    }
}

/// Makes this hop a span of the request's trace: its id becomes the parent of what follows. A request without a trace
/// begins one, marked as recorded, since the access log has it. Where there is B3 and no `traceparent`, none is made:
/// it would be another trace than B3's, and all hops after this one would have to choose.
pub fn join(head: &mut Head, random: &mut Counter) -> Option<Span> {
    let before = Span::of(head);
    if before.is_none() && B3.iter().any(|name| head.field(name).is_some()) {
        return None;
    }
    let mut span = before.unwrap_or_else(|| {
        // Without a valid parent its state means nothing (§3.3.1.1).
        head.remove(STATE);
        let mut made = Span { flags: *b"01", ..Span::default() };
        made.trace[..16].copy_from_slice(&digits(random));
        made.trace[16..].copy_from_slice(&digits(random));
        made
    });
    span.id = digits(random);
    if before.is_some() {
        // Of the flags only the first one is defined (§3.2.2.5.2).
        let sampled = span.flags[1].is_ascii_digit() && (span.flags[1] - b'0') % 2 == 1
            || matches!(span.flags[1], b'b' | b'd' | b'f');
        span.flags = if sampled { *b"01" } else { *b"00" };
    }
    head.remove(PARENT);
    head.add(PARENT, &[&span.value()]);
    Some(span)
}

/// 64 random bits that are not all 0, as digits.
fn digits(random: &mut Counter) -> [u8; 16] {
    let number = random.next_u64().max(1);
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn head(fields: &[(&[u8], &[u8])]) -> Head {
        let mut head = Head::default();
        for (name, value) in fields {
            head.add(name, &[value]);
        }
        head
    }

    #[test]
    fn a_parent_is_read_as_the_standard_says() {
        let span = Span::parse(GOOD).expect("it is right");
        assert_eq!((&span.trace[..4], &span.id[..4], &span.flags), (&b"4bf9"[..], &b"00f0"[..], b"01"));
        assert_eq!(span.value(), GOOD);
        let with = |at: usize, byte: u8| {
            let mut value = GOOD.to_vec();
            value[at] = byte;
            value
        };
        let longer = [GOOD, b"-more"].concat();
        for (wrong, why) in [
            (with(3, b'A'), "upper case"),
            (with(2, b'_'), "no dash"),
            (with(0, b'g'), "no digit"),
            (longer.clone(), "version 00 has no more"),
            (GOOD[..54].to_vec(), "too short"),
            (Vec::new(), "empty"),
            ([b"ff", &GOOD[2..]].concat(), "a version that there is not"),
            (b"00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_vec(), "no trace"),
            (b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_vec(), "no span"),
        ] {
            assert_eq!(Span::parse(&wrong), None, "{why}");
        }
        let next = [b"cc", &longer[2..]].concat();
        assert_eq!(Span::parse(&next).map(|span| span.id), Some(span.id), "a later version may add to it");
    }

    #[test]
    fn this_hop_becomes_the_parent_and_the_trace_stays() {
        let mut random = Counter::new(1, "trace");
        let mut joined = head(&[(PARENT, GOOD), (STATE, b"a=b")]);
        let span = join(&mut joined, &mut random).expect("a span");
        let sent = Span::of(&joined).expect("a parent");
        assert_eq!((sent, &sent.trace[..]), (span, &GOOD[3..35]));
        assert_ne!(&sent.id[..], &GOOD[36..52]);
        assert_eq!(joined.field(STATE), Some(&b"a=b"[..]));
        assert_eq!(joined.fields().filter(|field| field.name == PARENT).count(), 1);
    }

    #[test]
    fn a_trace_is_made_where_there_is_none_or_a_wrong_one_and_b3_is_left_alone() {
        let mut random = Counter::new(1, "trace");
        let twice: &[(&[u8], &[u8])] = &[(PARENT, GOOD), (PARENT, GOOD), (STATE, b"a=b")];
        let wrong: &[(&[u8], &[u8])] = &[(PARENT, b"00-x")];
        for fields in [&[][..], wrong, twice] {
            let mut made = head(fields);
            let span = join(&mut made, &mut random).expect("a span");
            assert_eq!(Span::of(&made), Some(span));
            assert_eq!((made.field(STATE), &span.flags), (None, b"01"));
        }
        let mut b3 = head(&[(b"b3", b"80f198ee56343ba8-e457b5a2e4d86bd1-1")]);
        assert_eq!((join(&mut b3, &mut random), b3.field(PARENT)), (None, None));
        assert!(b3.field(b"b3").is_some());
        let [first, second] = [(); 2].map(|()| join(&mut head(&[]), &mut random).map(|span| span.trace));
        assert_ne!(first, second);
    }
}
