//! `papers/calls.md`: the papers' experiments once more under loss as in real calls. Their testbeds
//! lose packets independently of each other, which no access network does.

use std::fmt::Write as _;

use super::catalogue::{Catalogue, CataloguedPaper, Figure};
use super::page::Judged;
use super::results::AllResults;

/// File name, beside the papers' pages.
pub(super) const FILE: &str = "calls.md";

const HEAD: &str = "\
# What survives loss as in calls

Made by `mendcast lab report --papers DIR --calls DIR`; do not edit.

The papers' testbeds lose packets independently of each other. These are the same experiments with \
`--set path.loss_model=calls:rate={}`: the same mean loss, in bursts as recorded in video calls. \
A claim that fails here depends on independent loss.

| figure | claims that hold, as in the paper | as in calls |
|---|---|---|
";

/// A figure with results under both models of loss.
struct Pair<'a> {
    paper: &'a CataloguedPaper,
    figure: &'a Figure,
    /// Texts of all claims, and whether each holds, without and with loss as in calls.
    claims: Vec<(String, [bool; 2])>,
    results: [&'a AllResults; 2],
}

impl<'a> Pair<'a> {
    /// Returns the pair, if both results have the figure's experiment.
    fn of(
        paper: &'a CataloguedPaper,
        figure: &'a Figure,
        results: [&'a AllResults; 2],
    ) -> Option<Self> {
        let name = figure.experiment.as_deref()?;
        let [here, calls] = results.map(|results| results.experiment(name));
        let (here, calls) = (here?.1.report(), calls?.1.report());
        let claims = here
            .verdicts
            .iter()
            .zip(calls.verdicts)
            .map(|(here, calls)| (here.text.clone(), [here.holds(), calls.holds()]));
        Some(Self { paper, figure, claims: claims.collect(), results })
    }

    fn holding(&self, which: usize) -> usize {
        self.claims.iter().filter(|(_, holds)| holds[which]).count()
    }

    fn row(&self) -> String {
        let (all, [here, calls]) = (self.claims.len(), [0, 1].map(|which| self.holding(which)));
        let Self { paper, figure, .. } = self;
        format!("| {}, {} | {here} of {all} | {calls} of {all} |\n", paper.title, figure.name)
    }

    fn write_numbers(&self, out: &mut String) -> std::fmt::Result {
        let Self { paper, figure, .. } = self;
        writeln!(out, "\n## {}, {}: {}\n", paper.title, figure.name, figure.subject)?;
        writeln!(out, "| number | paper | ours | ours, loss as in calls |\n|---|---|---|---|")?;
        for number in figure.numbers.iter().filter(|number| number.from.is_some()) {
            let [here, calls] = self.results.map(|results| Judged::of(number, results));
            let (paper, ours) = (here.paper(), here.ours());
            writeln!(out, "| {} | {paper} | {ours} | {} |", number.of, calls.ours())?;
        }
        let lost: Vec<&str> = self
            .claims
            .iter()
            .filter(|(_, holds)| *holds == [true, false])
            .map(|(text, _)| text.as_str())
            .collect();
        if !lost.is_empty() {
            writeln!(out, "\nHolds under independent loss only:\n")?;
            for text in lost {
                writeln!(out, "- {text}")?;
            }
        }
        Ok(())
    }
}

/// Renders the page from results under independent loss and under loss as in calls.
pub(super) fn page(catalogue: &Catalogue, here: &AllResults, calls: &AllResults) -> String {
    let figures = catalogue
        .papers
        .iter()
        .flat_map(|paper| paper.figures.iter().map(move |figure| (paper, figure)));
    let pairs: Vec<Pair<'_>> =
        figures.filter_map(|(paper, figure)| Pair::of(paper, figure, [here, calls])).collect();
    let mut out = HEAD.to_owned();
    pairs.iter().for_each(|pair| out.push_str(&pair.row()));
    for pair in &pairs {
        // Writing to a string does not fail.
        let _ = pair.write_numbers(&mut out);
    }
    out
}
