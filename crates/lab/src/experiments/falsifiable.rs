//! Refuses claims that no result could falsify. A claim that cannot fail says nothing, and counting
//! it would make a page of results look better than it is.

use super::metrics::{ALL, How, RunMetric, Term};
use super::spec::{Bound, Claim, Comparison, Spec, number};
use crate::error::{ClaimFlaw, SpecificationError};

/// Metrics from 0 to 1.
const SHARES: [&str; 27] = [
    "rdr",
    "rdr_latency",
    "frozen_share",
    "arrived",
    "late_frames",
    "late_for_player",
    "spurious_losses",
    "loss_rate",
    "replica_loss_rate",
    "queue_loss",
    "fairness",
    "rdr_model",
    "lossless_intervals",
    "lossless_model",
    "loss_after_1ms",
    "loss_after_50ms",
    "same_log",
    "late_100ms",
    "late_200ms",
    "late_300ms",
    "late_600ms",
    "late_1s",
    "first_frame_loss",
    "rival_first_frame_loss",
    "h",
    "h_cancelled",
    "utilisation",
];
/// Metrics of either sign.
const SIGNED: [&str; 4] = ["playhead_off_ms", "playhead_off_unheard_ms", "f_off_ms", "g_off"];
/// Upper end of metrics without a limit of their own: no run lasts longer, in milliseconds, and no
/// other unit comes near.
const UNLIMITED: f64 = 1e6;

/// Values that a metric or bound can have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueRange {
    low: f64,
    high: f64,
}

impl ValueRange {
    fn of(term: &Term) -> Self {
        let RunMetric { name, .. } = &ALL[term.metric];
        let own = match SIGNED.contains(name) {
            true => Self { low: -UNLIMITED, high: UNLIMITED },
            false if SHARES.contains(name) => Self { low: 0.0, high: 1.0 },
            false => Self { low: 0.0, high: UNLIMITED },
        };
        match term.how {
            How::Plain => own,
            How::Saved => Self { low: own.low - own.high, high: own.high - own.low },
            How::Cut if own.low >= 0.0 => Self { low: -UNLIMITED, high: 1.0 },
            How::Gain if own.low >= 0.0 => Self { low: -1.0, high: UNLIMITED },
            How::Cut | How::Gain | How::Closed => Self { low: -UNLIMITED, high: UNLIMITED },
        }
    }

    fn times(self, factor: f64) -> Self {
        let ends = [self.low * factor, self.high * factor];
        Self { low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) }
    }
}

/// A run under judgement: indices of sweep and point, and the scheme.
type Place<'a> = (usize, usize, &'a str);

/// Checks all claims of a specification.
///
/// # Errors
/// A claim cannot fail, applies to nothing, or repeats another one.
pub(super) fn check(spec: &Spec) -> Result<(), SpecificationError> {
    let places: Vec<Vec<Place<'_>>> = spec.claims.iter().map(|claim| places(spec, claim)).collect();
    for (place, claim) in spec.claims.iter().enumerate() {
        let earlier = (0..place).find(|&other| {
            let earlier = &spec.claims[other];
            places[other] == places[place]
                && earlier.metric == claim.metric
                && earlier.is == claim.is
                && earlier.given == claim.given
        });
        let flaw = match earlier {
            Some(other) => Some(ClaimFlaw::Repeats(spec.claims[other].text.clone())),
            None => flaw(spec, claim, &places[place]),
        };
        if let Some(flaw) = flaw {
            return Err(SpecificationError::Claim { text: claim.text.clone(), flaw });
        }
    }
    Ok(())
}

/// Returns the points that a claim judges.
fn places<'a>(spec: &'a Spec, claim: &Claim) -> Vec<Place<'a>> {
    let mut all = Vec::new();
    for (index, sweep) in spec.sweeps.iter().enumerate() {
        let takes_part = |label: &str| spec.schemes_of(sweep).any(|scheme| scheme.label == label);
        if rival(claim).is_some_and(|label| !takes_part(label)) {
            continue;
        }
        for scheme in spec.schemes_of(sweep).filter(|scheme| spec.is_shown(&scheme.label)) {
            let points = sweep.points();
            let covered: Vec<usize> = (0..points.len())
                .filter(|&point| claim.on.covers(sweep, &scheme.label, &points[point]))
                .collect();
            // A line has at least two positions.
            if let Comparison::Falls { .. } | Comparison::Crosses { .. } = claim.is {
                let Some(axis) = sweep.x() else { continue };
                let x = |point: &usize| {
                    let at = points[*point].iter().find(|(key, _)| key == axis.key.get_ref())?;
                    number(&at.1)
                };
                let first = covered.first().and_then(x);
                if covered.iter().all(|point| x(point) == first) {
                    continue;
                }
            }
            all.extend(covered.into_iter().map(|point| (index, point, scheme.label.as_str())));
        }
    }
    all
}

/// Returns the scheme that a claim compares with.
fn rival(claim: &Claim) -> Option<&str> {
    match &claim.is {
        Comparison::Below { scheme } | Comparison::Crosses { scheme } => Some(scheme),
        Comparison::AtMost { bound, .. }
        | Comparison::AtLeast { bound, .. }
        | Comparison::Near { bound, .. } => match bound {
            Bound::Metric { of, .. } => of.as_deref(),
            Bound::Number(_) | Bound::Key { .. } => None,
        },
        Comparison::Falls { .. } => None,
    }
}

fn flaw(spec: &Spec, claim: &Claim, places: &[Place<'_>]) -> Option<ClaimFlaw> {
    if !numbers(&claim.is).iter().all(|number| number.is_finite()) {
        return Some(ClaimFlaw::NotFinite);
    }
    if let Comparison::Near { share, .. } = claim.is
        && share >= 1.0
    {
        return Some(ClaimFlaw::WholeShare);
    }
    if places.is_empty() {
        return Some(ClaimFlaw::NoPoint);
    }
    if places.iter().all(|(_, _, scheme)| is_with_itself(claim, scheme)) {
        return Some(ClaimFlaw::Itself);
    }
    places.iter().all(|place| !can_fail(spec, claim, place)).then_some(ClaimFlaw::CannotFail)
}

/// All numbers of a comparison.
fn numbers(is: &Comparison) -> Vec<f64> {
    let of = |bound: &Bound| match bound {
        Bound::Number(value) => *value,
        Bound::Key { factor, .. } | Bound::Metric { factor, .. } => *factor,
    };
    match is {
        Comparison::AtMost { bound, margin } | Comparison::AtLeast { bound, margin } => {
            vec![of(bound), *margin]
        }
        Comparison::Near { bound, share, margin, .. } => vec![of(bound), *share, *margin],
        Comparison::Falls { margin } => vec![*margin],
        Comparison::Below { .. } | Comparison::Crosses { .. } => Vec::new(),
    }
}

/// Returns whether a claim compares a metric of this scheme with itself.
fn is_with_itself(claim: &Claim, scheme: &str) -> bool {
    match &claim.is {
        Comparison::Below { scheme: other } | Comparison::Crosses { scheme: other } => {
            other == scheme
        }
        Comparison::AtMost { bound, .. }
        | Comparison::AtLeast { bound, .. }
        | Comparison::Near { bound, .. } => match bound {
            Bound::Metric { metric, of, .. } => {
                *metric == claim.metric && of.as_deref().is_none_or(|of| of == scheme)
            }
            Bound::Number(_) | Bound::Key { .. } => false,
        },
        Comparison::Falls { .. } => false,
    }
}

/// Returns whether some value of the metric, and of the bound, is a counterexample at this place.
fn can_fail(spec: &Spec, claim: &Claim, &(sweep, point, scheme): &Place<'_>) -> bool {
    let all = ValueRange::of(&claim.metric);
    let range = |bound: &Bound| match bound {
        Bound::Number(value) => Some(ValueRange { low: *value, high: *value }),
        Bound::Key { key, factor } => {
            let sweep = &spec.sweeps[sweep];
            let scheme = spec.schemes.iter().find(|other| other.label == scheme)?;
            let setup = spec.setup(sweep, &sweep.points()[point], &[], scheme).ok()?;
            let value = setup.number_of(key)? * factor;
            Some(ValueRange { low: value, high: value })
        }
        Bound::Metric { metric, factor, .. } => Some(ValueRange::of(metric).times(*factor)),
    };
    match &claim.is {
        Comparison::AtMost { bound, margin } => {
            range(bound).is_some_and(|bound| all.high > bound.low + margin)
        }
        Comparison::AtLeast { bound, margin } => {
            range(bound).is_some_and(|bound| all.low < bound.high - margin)
        }
        Comparison::Near { bound, share, margin, .. } => range(bound).is_some_and(|bound| {
            let allowed = |bound: f64| (share * bound.abs()).max(*margin);
            all.high > bound.low + allowed(bound.low) || all.low < bound.high - allowed(bound.high)
        }),
        Comparison::Falls { margin } => *margin < all.high - all.low,
        Comparison::Below { .. } | Comparison::Crosses { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_with_a_range_exist() {
        for name in SHARES.iter().chain(&SIGNED) {
            assert!(RunMetric::index(name).is_some(), "{name}");
        }
    }

    #[test]
    fn comparisons_have_ranges_of_their_own() {
        let of = |text: &str| ValueRange::of(&Term::parse(text).expect("a term"));
        assert_eq!(of("rdr"), ValueRange { low: 0.0, high: 1.0 });
        assert_eq!(of("saved:rdr"), ValueRange { low: -1.0, high: 1.0 });
        assert_eq!(of("cut:goodput_mbps").high, 1.0);
        assert_eq!(of("gain:goodput_mbps").low, -1.0);
        assert!(of("f_off_ms").low < 0.0 && of("fct_ms").low == 0.0);
    }

    /// A specification with one scheme beside the baseline, and these claims.
    fn refusal(claims: &str) -> Option<String> {
        let text = format!(
            "name = \"t\"\ntitle = \"T\"\nabout = \"A.\"\nruns = 2\nbaseline = \"ARQ\"\n\
             metrics = [\"rdr\"]\n\
             [source]\nduration = \"4s\"\nrate = \"12mbps\"\n\
             [[schemes]]\nlabel = \"own\"\nset = {{ recovery.scheme = \"autorec\" }}\n\
             [[schemes]]\nlabel = \"ARQ\"\nset = {{ recovery.scheme = \"arq\" }}\n\
             [[sweeps]]\ntitle = \"Loss\"\n\
             axes = [{{ key = \"path.loss\", values = [\"1%\", \"5%\"] }}]\n{claims}"
        );
        Spec::parse(&text).err().map(|error| error.to_string())
    }

    fn claim(on: &str, metric: &str, is: &str) -> String {
        format!(
            "[[claims]]\ntext = \"C.\"\non = {{ {on} }}\nmetric = \"{metric}\"\n\
             is = {{ {is} }}\n"
        )
    }

    #[test]
    fn claims_that_no_result_could_falsify_are_refused() {
        let own = "scheme = \"own\"";
        for (on, metric, is, reason) in [
            (own, "rdr", "at-most = { bound = 1 }", "cannot leave the bound"),
            (own, "rdr", "at-most = { bound = 0.5, margin = 0.5 }", "cannot leave the bound"),
            (own, "rdr", "at-least = { bound = 0 }", "cannot leave the bound"),
            (own, "fct_ms", "at-most = { bound = 1e9 }", "cannot leave the bound"),
            (own, "fct_ms", "at-most = { bound = inf }", "not finite"),
            (own, "fct_ms", "falls = { margin = nan }", "not finite"),
            (own, "rdr", "falls = { margin = 1 }", "cannot leave the bound"),
            (own, "rdr", "near = { bound = 0.5, margin = 0.5 }", "cannot leave the bound"),
            (own, "fct_ms", "near = { bound = 5, share = 1 }", "share below 1"),
            (own, "cut:fct_ms", "at-most = { bound = 1 }", "cannot leave the bound"),
            (own, "gain:fct_ms", "at-least = { bound = -1 }", "cannot leave the bound"),
            (own, "rdr", "below = { scheme = \"own\" }", "with itself"),
            (own, "rdr", "at-most = { bound = { metric = \"rdr\" } }", "with itself"),
            (
                own,
                "rdr",
                "at-least = { bound = { metric = \"loss_rate\", of = \"ARQ\" }, margin = 1 }",
                "cannot leave the bound",
            ),
            (
                "scheme = \"own\", at = { path.loss = \"2%\" }",
                "rdr",
                "below = { scheme = \"ARQ\" }",
                "no point",
            ),
            ("scheme = \"own\", at = { path.loss = \"5%\" }", "rdr", "falls = {}", "no point"),
        ] {
            let line = refusal(&claim(on, metric, is)).expect(is);
            assert!(line.contains("`C.`") && line.contains(reason), "{is}: {line}");
        }
    }

    #[test]
    fn claims_that_a_result_could_falsify_are_accepted() {
        let own = "scheme = \"own\"";
        for (metric, is) in [
            ("rdr", "at-most = { bound = 0.99 }"),
            ("rdr", "at-least = { bound = 0.01 }"),
            ("saved:rdr", "at-least = { bound = 0 }"),
            ("rdr", "falls = { margin = 0.1 }"),
            ("fct_ms", "near = { bound = 5, share = 0.9 }"),
            ("rdr", "below = { scheme = \"ARQ\" }"),
            ("rdr", "at-most = { bound = { metric = \"rdr\", of = \"ARQ\" } }"),
            ("redundancy_cost", "at-most = { bound = { key = \"recovery.cost\" } }"),
        ] {
            assert_eq!(refusal(&claim(own, metric, is)), None, "{is}");
        }
    }

    #[test]
    fn a_claim_that_repeats_another_one_is_refused() {
        let is = "at-most = { bound = 0.5 }";
        let one = claim("scheme = \"own\"", "rdr", is);
        let same = claim("sweep = \"Loss\", scheme = \"own\"", "rdr", is).replace("C.", "D.");
        let line = refusal(&format!("{one}{same}")).expect("refused");
        assert!(line.contains("`D.`: it judges the same as `C.`"), "{line}");
        let other = claim("scheme = \"own\", at = { path.loss = \"5%\" }", "rdr", is);
        assert_eq!(refusal(&format!("{one}{other}")), None);
    }
}
