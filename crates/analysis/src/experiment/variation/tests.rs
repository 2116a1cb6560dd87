use super::*;
use crate::stats::{CellState, Instability};
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::workload::Protocol;

fn squares(variance: f64, freedom: usize) -> Squares {
    Squares { sum: variance * freedom as f64, freedom }
}

#[test]
fn squares_are_those_of_logarithms_about_the_mean_of_their_own_cell() {
    let [found, shifted] = [[1.0, 100.0], [5.0, 500.0]].map(|figures| Squares::of(&figures));
    assert!((found.sum - 10.604).abs() < 0.001 && (shifted.sum - found.sum).abs() < 1e-9, "{found:?}");
    let none = Squares::of(&[]);
    assert_eq!((found.freedom, none.freedom), (1, 0));
    assert!(spread(none, [none; 2], [0; 2], 9) <= 0.0, "nothing is known of it");
}

#[test]
fn two_rounds_of_a_change_have_the_variation_and_the_degrees_of_freedom_of_all_cells() {
    // Four rounds without a change, two of each of ten; the two of this one happen to be alike.
    let own = [squares(0.01, 3), squares(0.0, 1)];
    let pooled = own[0].and(own[1]).and(squares(0.01, 9));
    // By the tables, Student's t at 0.1 % for 13 degrees of freedom: 4.221.
    let half = spread(pooled, own, [2, 2], 50);
    assert!((half - 0.414).abs() < 0.001, "{half}");
}

#[test]
fn a_cell_that_varies_more_is_judged_by_itself_from_its_third_round() {
    let subject = squares(0.01, 3);
    let others = squares(0.01, 5);
    let of = |own: Squares| spread(subject.and(own).and(others), [subject, own], [3, 3], 1);
    let (two, three) = (of(squares(0.08, 1)), of(squares(0.04, 2)));
    assert!((two - 0.246).abs() < 0.001 && (three - 0.304).abs() < 0.001, "{two} {three}");
    let quiet = of(squares(0.0, 2));
    let alike = spread(squares(0.008, 10), [squares(0.008, 3); 2], [3, 3], 1);
    assert!(quiet > alike, "the unchanged cell is the noisier one: {quiet} {alike}");
}

#[test]
fn a_cell_that_breaks_down_says_nothing_of_the_others() {
    let of = |index: u32, spread: f64| {
        let model = Model { repetition_spread: spread, ..Model::CLEAN };
        let measured = cell(index, 0, Protocol::H2c, 1, 0.0);
        let repetitions = [0, 1, 2].map(|round| one_repetition(&measured, round, &model));
        CellSummary::of(&repetitions.each_ref())
    };
    let mut known = Known { unchanged: of(0, 0.0), changed: vec![of(1, 0.0), of(2, 0.5)] };
    let spread = |known: &Known, changed: usize| {
        known.spread(Metric::Median, [&known.unchanged, &known.changed[changed]], 1)
    };
    let with_it = spread(&known, 0);
    let why = Instability::Served { share: 0.9, failed: 0.0 };
    known.changed[1].state = CellState::Unstable { offered_rps: 100.0, served_rps: 90.0, why };
    assert!(spread(&known, 0) * 3.0 < with_it, "{with_it}");
    assert!(spread(&known, 1) > with_it, "its own comparison has it");
}
