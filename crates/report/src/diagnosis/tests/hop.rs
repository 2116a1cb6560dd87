//! What is said of a proxy in front of the server, and of the server itself.

use super::*;

#[test]
fn a_server_without_the_difference_leaves_the_proxy() {
    let fixture = Fixture::new();
    let verdict = |is_wanted: fn(&CellVerdict) -> bool| {
        fixture.analysis.verdicts.iter().find(|one| is_wanted(one)).cloned().expect("the fixture has one")
    };
    let slower = verdict(|one| matches!(one.conclusion, Conclusion::Slower | Conclusion::Unstable { .. }));
    let alike = verdict(CellVerdict::is_no_slower);
    let said = |via: &CellVerdict, direct: &CellVerdict| {
        let mut experiment = experiment(&fixture);
        (experiment.verdict, experiment.direct) = (Some(via.clone()), Some(direct.clone()));
        experiment.hops.clear();
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(said(&slower, &alike).contains("the difference arises at the proxy"));
    assert!(said(&slower, &slower).contains("it is so without the proxy as well"));
    assert!(said(&alike, &slower).contains("clients of the proxy do not notice"));
    let stuck = CellVerdict { conclusion: Conclusion::BothUnstable, ..slower.clone() };
    assert!(said(&stuck, &alike).contains("does not carry this load in either protocol"));
    assert!(said(&alike, &alike).contains("have no protocol in common"));
}

#[test]
fn a_proxy_with_most_of_the_time_is_named_though_the_server_itself_is_open() {
    let fixture = Fixture::new();
    let verdict = |is_wanted: fn(&CellVerdict) -> bool| {
        fixture.analysis.verdicts.iter().find(|one| is_wanted(one)).cloned().expect("the fixture has one")
    };
    let open = CellVerdict {
        median_conclusion: Some(Conclusion::Slower),
        ..verdict(|one| one.is_no_slower() && !one.is_slower())
    };
    let slower = CellVerdict { conclusion: Conclusion::Slower, ..verdict(CellVerdict::is_slower) };
    let said = |medians: [u64; 2], protocol: Protocol| {
        let medians = Ok(medians.map(Duration::from_millis));
        let experiment = Experiment {
            verdict: Some(slower.clone()),
            direct: Some(open.clone()),
            hops: vec![Hop { protocols: [protocol; 2], medians }],
            ..experiment(&fixture)
        };
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let named = "but most of the time arises at the proxy";
    assert!(said([2, 14], Protocol::H2).contains(named));
    for said in [said([2, 4], Protocol::H2), said([2, 14], Protocol::H1)] {
        assert!(said.contains("nothing is known of where") && !said.contains(named), "{said}");
    }
}

#[test]
fn a_load_that_only_the_server_itself_carries_leaves_the_proxy() {
    let fixture = Fixture::new();
    let any = fixture.analysis.verdicts.first().cloned().expect("the fixture has one");
    let lost = || Conclusion::Unstable { offered_rps: 50.0, served_rps: 37.0 };
    let said = |via: Conclusion, direct: Conclusion| {
        let of = |conclusion: Conclusion| {
            Some(CellVerdict { conclusion, tail_ratio: None, median_conclusion: None, ..any.clone() })
        };
        let experiment = Experiment { verdict: of(via), direct: of(direct), ..experiment(&fixture) };
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let place = "this load is carried there, so the difference arises at the proxy, or between";
    for direct in [Conclusion::NoDifference, Conclusion::Faster] {
        let said = said(lost(), direct);
        assert!(said.contains(place) && !said.contains("nothing is known of where"), "{said}");
    }
    let also = said(lost(), Conclusion::Slower);
    assert!(also.contains("what keeps it from being carried through the proxy is at the proxy"), "{also}");
    for direct in [lost(), Conclusion::Invalid, Conclusion::BothUnstable] {
        assert!(!said(lost(), direct).contains("this load is carried there"));
    }
    let open = said(Conclusion::Slower, Conclusion::NoDifference);
    assert!(!open.contains("this load is carried there"), "{open}");
}

#[test]
fn of_two_medians_a_difference_below_the_floor_is_not_claimed() {
    let fixture = Fixture::new();
    let said = |via: u64| {
        let mut experiment = experiment(&fixture);
        let verdict = experiment.verdict.as_mut().expect("the fixture has one");
        verdict.floor = Duration::from_micros(200);
        let medians = Ok([80_400, via].map(Duration::from_micros));
        experiment.hops = vec![Hop { protocols: [Protocol::H1; 2], medians }];
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let below = said(80_599);
    let not_claimed = "80.6 ms through the proxy (h1): a difference below 0.2 ms is not claimed.";
    assert!(below.contains(not_claimed), "{below}");
    assert!(said(80_600).contains(" longer."));
}

#[test]
fn no_share_of_the_time_is_told_where_the_proxy_adds_less_than_the_floor() {
    let fixture = Fixture::new();
    let said = |via: u64| {
        let mut experiment = experiment(&fixture);
        let verdict = experiment.verdict.as_mut().expect("the fixture has one");
        (verdict.conclusion, verdict.median_conclusion) = (Conclusion::NoDifference, None);
        verdict.floor = Duration::from_micros(200);
        let medians = Ok([80_400, via].map(Duration::from_micros));
        experiment.hops = vec![Hop { protocols: [Protocol::H2; 2], medians }];
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (below, above) = (said(80_599), said(80_600));
    assert!(!below.contains("% arises at the server itself"), "{below}");
    assert!(above.contains(" through the proxy 100 % arises at the server itself."), "{above}");
}

#[test]
fn a_proxy_that_is_slower_in_the_median_is_compared_by_the_median_of_the_server_itself() {
    let fixture = Fixture::new();
    let any = fixture.analysis.verdicts.first().cloned().expect("the fixture has one");
    let said = |direct: Conclusion, in_median: Conclusion| {
        let of = |conclusion: Conclusion, in_median: Conclusion| {
            let median_conclusion = Some(in_median);
            Some(CellVerdict { conclusion, median_conclusion, ..any.clone() })
        };
        let verdict = of(Conclusion::NoDifference, Conclusion::Slower);
        let experiment = Experiment { verdict, direct: of(direct, in_median), ..experiment(&fixture) };
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let also = "it is so without the proxy as well";
    assert!(said(Conclusion::NoDifference, Conclusion::Slower).contains(also));
    let tail_alone = said(Conclusion::Slower, Conclusion::NoDifference);
    assert!(!tail_alone.contains(also), "{tail_alone}");
}

#[test]
fn a_server_that_speaks_http1_alone_is_compared_by_its_medians() {
    let fixture = Fixture::new();
    let said = |medians: Result<[u64; 2], String>| {
        let hop = Hop {
            protocols: [Protocol::H1, Protocol::H1s],
            medians: medians.map(|both| both.map(Duration::from_millis)),
        };
        let experiment = Experiment { hops: vec![hop], ..experiment(&fixture) };
        text(&experiment, &fixture).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let at_server = said(Ok([50, 60]));
    assert!(at_server.contains("The server itself speaks h1 alone: HTTP/2 ends at the proxy"), "{at_server}");
    assert!(at_server.contains("through the proxy (h1s): 10 ms longer."), "{at_server}");
    assert!(!at_server.contains('%') || !at_server.contains("% of it"), "no share of what HTTP/1.1 takes");
    assert!(said(Ok([60, 60])).contains("the proxy adds nothing to it"));
    assert!(said(Err("it was late".to_owned())).contains("is not known: it was late."));
}

/// What is said where HTTP/2 takes these many times as long as HTTP/1.1 through the proxy and at the server itself, of 100 ms;
/// its medians are 40 ms at the server itself and 50 ms through the proxy.
fn at_hops(fixture: &Fixture, factors: [f64; 2], tails: [f64; 2]) -> String {
    let verdict = |factor: f64, share: f64| {
        let mut verdicts = fixture.analysis.verdicts.iter();
        let mut verdict = verdicts.find(|one| one.is_no_slower()).cloned().expect("the fixture has one");
        let baseline = Duration::from_millis(100);
        let ratio = h2lab_analysis::stats::RatioInterval {
            share,
            baseline,
            candidate: baseline.mul_f64(factor),
            ratio: factor,
            low: factor * 0.99,
            high: factor * 1.01,
            block: Duration::from_millis(250),
            longest_stall: Duration::ZERO,
            blocks: 24,
        };
        verdict.conclusion = if factor > 1.0 { Conclusion::Slower } else { Conclusion::NoDifference };
        verdict.median_conclusion = None;
        verdict.tail = h2lab_analysis::stats::Tail::P99;
        (verdict.tail_ratio, verdict.median_ratio) = (Some(ratio), None);
        verdict
    };
    let hop = |protocol, medians: [u64; 2]| Hop {
        protocols: [protocol; 2],
        medians: Ok(medians.map(Duration::from_millis)),
    };
    let experiment = Experiment {
        verdict: Some(verdict(factors[0], tails[0])),
        direct: Some(verdict(factors[1], tails[1])),
        hops: vec![hop(Protocol::H1, [20, 25]), hop(Protocol::H2, [40, 50])],
        trials: Vec::new(),
        ..experiment(fixture)
    };
    let subject = fixture.findings[0].cell;
    diagnosis(fixture, &experiment, subject).answer().join(" ")
}

#[test]
fn the_share_of_the_server_itself_is_of_the_difference_where_there_is_one_else_of_the_time_over_http2() {
    let fixture = Fixture::new();
    let of = |factors| at_hops(&fixture, factors, [0.99; 2]);
    let slower = of([1.5, 1.2]);
    let told = "and at the server itself 20 ms: 40 % of the difference arises at the server itself, the rest at the proxy";
    assert!(slower.contains(told) && slower.contains("Through the proxy the p99 of "), "{slower}");
    for times in [
        "The median request takes 20 ms at the server itself (h1) and 25 ms through the proxy (h1): 5 ms longer.",
        "The median request takes 40 ms at the server itself (h2) and 50 ms through the proxy (h2): 10 ms longer.",
    ] {
        assert!(slower.contains(times), "{slower}");
    }
    assert!(of([1.2, 1.5]).contains("100 % of the difference arises at the server itself. "));
    assert!(!of([1.5, 1.0]).contains("of the difference arises"), "the server itself has none");
    let other_tail = at_hops(&fixture, [1.5, 1.2], [0.99, 0.95]);
    assert!(!other_tail.contains("of the difference arises"), "{other_tail}");
    let alike = of([1.0, 1.0]);
    assert!(alike.contains("Of the median response time of "), "{alike}");
    assert!(alike.contains(" 80 % arises at the server itself, the rest at the proxy"), "{alike}");
    assert!(!slower.contains("Of the median response time"), "{slower}");
}

#[test]
fn why_no_change_was_tried_through_the_proxy_is_said() {
    let fixture = Fixture::new();
    let of = |factors| at_hops(&fixture, factors, [0.99; 2]);
    let alike = of([1.0, 1.0]);
    assert!(alike.contains("No change was tried: through the proxy HTTP/2 is no slower, so"), "{alike}");
    let at_server = of([1.0, 1.5]);
    let examined = "where changes are made, HTTP/2 is no slower; `h2lab diagnose URL` without --via examines";
    assert!(at_server.contains(examined), "{at_server}");
    assert!(of([1.5, 1.0]).contains("No change was tried: none that h2lab can make"));
}
