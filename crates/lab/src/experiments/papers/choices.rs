//! `papers/choices.md`: the papers' experiments once more with one thing changed, such as loss as
//! in real calls, or without a rule of ours that no paper states. Lists the changed results.

use std::fmt::Write as _;

use super::catalogue::{Catalogue, CataloguedPaper, Figure};
use super::page::Judged;
use super::results::AllResults;

/// File name, beside the papers' pages.
pub(super) const FILE: &str = "choices.md";
/// Change of a number that is listed.
const LISTED: f64 = 0.1;

const HEAD: &str = "\
# What each choice changes

Made by `mendcast lab report --papers DIR --beside CHOICE=DIR`; do not edit.

The papers leave much open, and their testbeds lose packets independently of each other. Each line \
repeats the papers' experiments with one thing changed: `mendcast lab run` with `--set KEY=VALUE`, \
which is in the first column. Numbers count if they change by more than \
10 % and by more than both confidence intervals. Claims that the change decides depend on it.

| changed | figures | numbers that change | claims that only hold without it | only with it |
|---|---|---|---|---|
";

/// Results of the papers' experiments with one thing changed.
pub(super) struct Choice<'a> {
    pub title: &'a str,
    pub results: AllResults,
}

/// A figure with results of both kinds.
struct Pair<'a> {
    paper: &'a CataloguedPaper,
    figure: &'a Figure,
    /// Numbers that differ: name, paper's, ours, and ours with the change.
    numbers: Vec<[String; 4]>,
    /// Number of compared numbers.
    compared: usize,
    /// Texts of claims that hold only without the change, and only with it.
    claims: [Vec<String>; 2],
}

impl<'a> Pair<'a> {
    /// Returns the pair, if both results have the figure's experiment.
    fn of(
        paper: &'a CataloguedPaper,
        figure: &'a Figure,
        [ours, changed]: [&AllResults; 2],
    ) -> Option<Self> {
        let name = figure.experiment.as_deref()?;
        let (here, there) =
            (ours.experiment(name)?.1.report(), changed.experiment(name)?.1.report());
        let mut claims = [Vec::new(), Vec::new()];
        for (here, there) in here.verdicts.iter().zip(there.verdicts) {
            match (here.holds(), there.holds()) {
                (true, false) => claims[0].push(here.text.clone()),
                (false, true) => claims[1].push(here.text.clone()),
                _ => {}
            }
        }
        let of = |number| [ours, changed].map(|results| Judged::of(number, results));
        let pairs: Vec<_> = figure.numbers.iter().map(|number| (&number.of, of(number))).collect();
        let both = pairs.iter().filter_map(|(name, [here, there])| {
            Some((name, here, there, here.value()?, there.value()?))
        });
        let compared = both.clone().count();
        let numbers = both.filter(|(.., here, there)| {
            let noise = here.half.unwrap_or(0.0) + there.half.unwrap_or(0.0);
            let change = (here.mean - there.mean).abs();
            change > LISTED * here.mean.abs() && change > noise
        });
        let row = |(name, here, there): (&&String, &Judged<'_>, &Judged<'_>)| {
            [(**name).clone(), here.paper(), here.ours(), there.ours()]
        };
        let numbers = numbers.map(|(name, here, there, ..)| row((name, here, there))).collect();
        Some(Self { paper, figure, numbers, compared, claims })
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Self { paper, figure, .. } = self;
        if self.numbers.is_empty() && self.claims.iter().all(Vec::is_empty) {
            return Ok(());
        }
        writeln!(out, "**{}, {}: {}**\n", paper.title, figure.name, figure.subject)?;
        if !self.numbers.is_empty() {
            writeln!(out, "| number | paper | ours | changed |\n|---|---|---|---|")?;
            for row in &self.numbers {
                writeln!(out, "| {} |", row.join(" | "))?;
            }
            writeln!(out)?;
        }
        for (texts, when) in self.claims.iter().zip(["without", "with"]) {
            for text in texts {
                writeln!(out, "- Holds only {when} the change: {text}")?;
            }
        }
        writeln!(out)
    }
}

/// Renders the page from our results and the results of each choice.
pub(super) fn page(catalogue: &Catalogue, ours: &AllResults, choices: &[Choice<'_>]) -> String {
    let (mut out, mut sections) = (HEAD.to_owned(), String::new());
    for Choice { title, results } in choices {
        let figures = catalogue
            .papers
            .iter()
            .flat_map(|paper| paper.figures.iter().map(move |figure| (paper, figure)));
        let pairs: Vec<Pair<'_>> = figures
            .filter_map(|(paper, figure)| Pair::of(paper, figure, [ours, results]))
            .collect();
        let sum = |of: &dyn Fn(&Pair<'_>) -> usize| pairs.iter().map(of).sum::<usize>();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "| {title} | {} | {} of {} | {} | {} |",
            pairs.len(),
            sum(&|pair| pair.numbers.len()),
            sum(&|pair| pair.compared),
            sum(&|pair| pair.claims[0].len()),
            sum(&|pair| pair.claims[1].len())
        );
        let _ = writeln!(sections, "\n<details><summary>{title}</summary>\n");
        pairs.iter().for_each(|pair| {
            let _ = pair.write(&mut sections);
        });
        let _ = writeln!(sections, "</details>");
    }
    out + &sections
}
