//! The pages in Markdown: one table for all papers, and a page per paper with plots first.

use std::fmt::Write as _;

use qoe::stats::Estimate;

use super::super::claims::{ClaimVerdict, with_ci};
use super::super::page::{Cell, ExperimentReport, near_zero, number_or_range, words};
use super::super::verdict::{CellVerdict, VerdictCounts};
use super::catalogue::{Catalogue, CataloguedPaper, Figure, StatedNumber};
use super::results::AllResults;

/// Most stated numbers of a figure that its page lists. Further ones are counted.
const MAX_STATED: usize = 16;
/// Most judged numbers of an experiment that its page lists one by one. Above, it shows their
/// counts.
const MAX_LISTED: usize = 12;
/// Most rows of such counts by scheme and metric. Above, they are counted by scheme.
const MAX_COUNTED: usize = 8;
/// Most lines of failed claims of a figure.
const MAX_FAILURES: usize = 2;
/// Directory of plots beside the pages.
pub(super) const PICTURES: &str = "pictures";

/// A stated number with our value, if there are results.
pub(super) struct Judged<'a> {
    number: &'a StatedNumber,
    pub(super) ours: Option<(Estimate, CellVerdict)>,
}

/// A figure with all of its judged numbers.
pub(super) struct JudgedFigure<'a> {
    figure: &'a Figure,
    numbers: Vec<Judged<'a>>,
    /// Verdicts on all numbers of the experiment and the catalogue. Repeated numbers count once.
    counts: VerdictCounts,
    report: Option<ExperimentReport<'a>>,
    /// Number of claims, and of those that hold.
    claims: [usize; 2],
}

/// A paper with all of its judged figures.
pub(super) struct JudgedPaper<'a> {
    paper: &'a CataloguedPaper,
    figures: Vec<JudgedFigure<'a>>,
}

impl<'a> Judged<'a> {
    pub(super) fn of(number: &'a StatedNumber, results: &AllResults) -> Self {
        let ours = number.from.as_ref().and_then(|from| results.number(from));
        let ours = ours.map(|ours| {
            let factor = if ours.is_share && number.unit == "%" { 100.0 } else { 1.0 };
            let Estimate { mean, half } = ours.value;
            let value = Estimate { mean: mean * factor, half: half.map(|half| half * factor) };
            (value, CellVerdict::of(value.mean, number.paper.ends(), &number.unit))
        });
        Self { number, ours }
    }

    pub(super) fn paper(&self) -> String {
        with_unit(&number_or_range(self.number.paper.ends()), &self.number.unit)
    }

    pub(super) fn ours(&self) -> String {
        match &self.ours {
            Some((value, _)) => with_unit(&with_ci(*value), &self.number.unit),
            None => "–".to_owned(),
        }
    }

    /// Our number, in the paper's unit.
    pub(super) fn value(&self) -> Option<Estimate> {
        self.ours.map(|(value, _)| value)
    }

    pub(super) fn verdict(&self) -> &'static str {
        self.ours.map_or("not measured", |(_, verdict)| verdict.word())
    }

    /// Reason why there is no number.
    pub(super) fn reason(&self) -> Option<&str> {
        match (&self.ours, &self.number.not_measured) {
            (Some(_), _) => None,
            (None, Some(reason)) => Some(reason),
            (None, None) => Some("no results given"),
        }
    }
}

fn with_unit(text: &str, unit: &str) -> String {
    match unit {
        "" | "1" => text.to_owned(),
        unit => format!("{text} {unit}"),
    }
}

impl<'a> JudgedFigure<'a> {
    fn of(figure: &'a Figure, results: &'a AllResults) -> Self {
        let stored = figure.experiment.as_deref().and_then(|name| results.experiment(name));
        let report = stored.map(|(_, stored)| stored.report());
        let numbers: Vec<Judged<'_>> =
            figure.numbers.iter().map(|number| Judged::of(number, results)).collect();
        let cells = report.as_ref().map(ExperimentReport::cells).unwrap_or_default();
        let mut counts: VerdictCounts = cells.iter().map(|cell| cell.verdict).collect();
        // Numbers of the catalogue repeat the experiment's.
        let is_repeated = |judged: &&Judged<'_>| {
            let from = judged.number.from.as_ref();
            !cells.is_empty()
                && from.is_some_and(|f| Some(&f.results) == figure.experiment.as_ref())
        };
        let others = numbers.iter().filter(|judged| !is_repeated(judged));
        let predicted = others.filter(|_| !figure.fitted);
        predicted.filter_map(|judged| judged.ours).for_each(|(_, verdict)| counts.add(verdict));
        drop(cells);
        let claims = report.as_ref().map_or([0, 0], |report| {
            let good = report.verdicts.iter().filter(|verdict| verdict.holds()).count();
            [report.verdicts.len(), good]
        });
        Self { figure, numbers, counts, report, claims }
    }

    fn row(&self) -> String {
        let Figure { name, subject, cause, .. } = self.figure;
        let Some(headline) = self.numbers.first() else { return String::new() };
        let cause = headline.reason().unwrap_or(cause);
        format!(
            "| {name} | {subject}: {} | {} | {} | {} | {cause} |\n",
            headline.number.of,
            headline.paper(),
            headline.ours(),
            headline.verdict()
        )
    }

    /// Renders the folded numbers and claims.
    fn details(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write_details(&mut out);
        out
    }

    fn write_details(&self, out: &mut String) -> std::fmt::Result {
        let Figure { name, subject, cause, .. } = self.figure;
        writeln!(out, "<details><summary>{name}: {subject}</summary>\n")?;
        writeln!(out, "| number | paper | ours | verdict |\n|---|---|---|---|")?;
        let (listed, others) = self.numbers.split_at(self.numbers.len().min(MAX_STATED));
        for judged in listed {
            let reason = judged.reason().map_or(String::new(), |reason| format!(": {reason}"));
            let (of, verdict) = (&judged.number.of, judged.verdict());
            writeln!(out, "| {of} | {} | {} | {verdict}{reason} |", judged.paper(), judged.ours())?;
        }
        if !others.is_empty() {
            let verdicts = others.iter().filter_map(|judged| Some(judged.ours?.1));
            let counts: VerdictCounts = verdicts.collect();
            writeln!(out, "\n{} further numbers: {COUNTED}: {}", others.len(), counts.text())?;
        }
        if !cause.is_empty() {
            writeln!(out, "\nCause: {cause}")?;
        }
        if let Some(report) = &self.report {
            writeln!(out)?;
            if !report.delivery.holds() {
                writeln!(out, "**{}**\n", report.delivery.text())?;
            }
            write_cells(out, report, &report.cells())?;
            let [all, good] = self.claims;
            writeln!(out, "{good} of {all} claims hold.\n")?;
            write_failures(out, report.verdicts)?;
        }
        writeln!(out, "\n</details>\n")
    }
}

/// Lists the claims that do not hold. Claims with the same reason share a line, and lines with the
/// most claims stand first.
fn write_failures(out: &mut String, verdicts: &[ClaimVerdict]) -> std::fmt::Result {
    let mut lines: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for verdict in verdicts.iter().filter(|verdict| !verdict.holds()) {
        let why = verdict.why.as_deref().filter(|why| !why.is_empty());
        match lines.iter_mut().find(|(known, _)| why.is_some() && *known == why) {
            Some((_, claims)) => claims.push(&verdict.text),
            None => lines.push((why, vec![&verdict.text])),
        }
    }
    lines.sort_by_key(|(why, claims)| core::cmp::Reverse((why.is_some(), claims.len())));
    for (why, claims) in lines.iter().take(MAX_FAILURES) {
        let more = match claims.len() - 1 {
            0 => String::new(),
            more => format!(" And {more} more."),
        };
        let why = why.map_or(String::new(), |why| format!(" *Why:* {why}"));
        writeln!(out, "- {}{more}{why}", claims[0])?;
    }
    let rest: usize = lines.iter().skip(MAX_FAILURES).map(|(_, claims)| claims.len()).sum();
    if rest > 0 {
        writeln!(out, "- {rest} other claims, which `mendcast lab report --page FILE` lists.")?;
    }
    Ok(())
}

/// Lists all numbers that the paper states, or counts them.
fn write_cells(
    out: &mut String,
    report: &ExperimentReport<'_>,
    cells: &[Cell<'_>],
) -> std::fmt::Result {
    if cells.is_empty() {
        return Ok(());
    }
    if cells.len() > MAX_LISTED {
        return write_counts(out, cells);
    }
    writeln!(
        out,
        "| point | scheme | metric | paper | ours | verdict |\n|---|---|---|---|---|---|"
    )?;
    for cell in cells {
        let point = match cell.point.is_empty() {
            true => report.spec.sweeps[cell.sweep].title.clone(),
            false => words(&cell.point),
        };
        let (paper, ours) = (number_or_range(cell.paper), with_ci(cell.ours));
        let (scheme, term, verdict) = (cell.scheme, &cell.term.text, cell.verdict.word());
        writeln!(out, "| {point} | {scheme} | {term} | {paper} | {ours} | {verdict} |")?;
    }
    writeln!(out)
}

/// Counts verdicts by scheme and metric, or by scheme if those are many.
fn write_counts(out: &mut String, cells: &[Cell<'_>]) -> std::fmt::Result {
    let mut counts: Vec<((&str, &str), VerdictCounts)> = Vec::new();
    let mut count = |key, verdict| match counts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, counts)) => counts.add(verdict),
        None => counts.push((key, [verdict].into_iter().collect())),
    };
    cells.iter().for_each(|cell| count((cell.scheme, cell.term.text.as_str()), cell.verdict));
    if counts.len() > MAX_COUNTED {
        let mut by_scheme: Vec<((&str, &str), VerdictCounts)> = Vec::new();
        for ((scheme, _), own) in counts {
            match by_scheme.iter_mut().find(|((known, _), _)| *known == scheme) {
                Some((_, counts)) => *counts += own,
                None => by_scheme.push(((scheme, "all"), own)),
            }
        }
        counts = by_scheme;
    }
    writeln!(out, "| scheme | metric | {COUNTED} |\n|---|---|---|")?;
    for ((scheme, metric), counts) in &counts {
        writeln!(out, "| {scheme} | {metric} | {} |", counts.text())?;
    }
    writeln!(out)
}

/// Heading of counts.
pub(super) const COUNTED: &str = "within 10 % / 25 % / 2× / beyond / opposite sign";

impl<'a> JudgedPaper<'a> {
    fn of(paper: &'a CataloguedPaper, results: &'a AllResults) -> Self {
        let figures = paper.figures.iter().map(|figure| JudgedFigure::of(figure, results));
        Self { paper, figures: figures.collect() }
    }

    fn counts(&self) -> VerdictCounts {
        let mut all = VerdictCounts::default();
        self.figures.iter().for_each(|figure| all += figure.counts);
        all
    }

    /// A row of the table of all papers.
    fn row(&self) -> String {
        let counts = self.counts();
        let measured = |figure: &&JudgedFigure<'_>| figure.counts.all() > 0;
        let good: usize = counts.values()[..2].iter().sum();
        let claims = self
            .figures
            .iter()
            .fold([0, 0], |all, figure| [all[0] + figure.claims[0], all[1] + figure.claims[1]]);
        let CataloguedPaper { key, title, .. } = self.paper;
        format!(
            "| [{title}](papers/{key}.md) | {} of {} | **{good} of {}** | {} | {} of {} |\n",
            self.figures.iter().filter(measured).count(),
            self.figures.len(),
            counts.all(),
            counts.values().map(|count| count.to_string()).join(" | "),
            claims[1],
            claims[0]
        )
    }

    fn sentences(&self) -> String {
        let CataloguedPaper { stands, fails, depends, .. } = self.paper;
        format!("- **Holds**: {stands}\n- **Fails**: {fails}\n- **Depends on**: {depends}\n")
    }

    fn table(&self) -> String {
        let rows: String = self.figures.iter().map(JudgedFigure::row).collect();
        let diagrams = &self.paper.diagrams;
        format!(
            "| figure | number | paper | ours | verdict | cause |\n|---|---|---|---|---|---|\n\
             {rows}| {diagrams} | no numbers | | | | |\n"
        )
    }

    /// File name of the page.
    pub(super) fn file(&self) -> String {
        format!("{}.md", self.paper.key)
    }

    /// Plots to copy: experiment, file name, and file name in the directory of pictures.
    pub(super) fn plots(&self) -> Vec<(&'a str, &'a str, String)> {
        let mut all = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.report.is_some()) {
            let Some(name) = figure.figure.experiment.as_deref() else { continue };
            all.extend(figure.figure.plots.iter().map(|plot| (name, &**plot, picture(name, plot))));
        }
        all
    }

    /// Renders the paper's page; `is_there` says whether a plot exists.
    pub(super) fn page(&self, is_there: &dyn Fn(&str) -> bool) -> String {
        let mut out = format!(
            "# {}\n\n{MADE}\n\n{}\n{} Verdicts ({COUNTED}): {}.\n\n",
            self.paper.title,
            self.sentences(),
            "[All papers](../papers.md).",
            self.counts().text()
        );
        for figure in self.figures.iter().filter(|figure| figure.report.is_some()) {
            let Some(name) = figure.figure.experiment.as_deref() else { continue };
            for plot in &figure.figure.plots {
                let file = picture(name, plot);
                if is_there(&file) {
                    let _ = writeln!(out, "![{}]({PICTURES}/{file})\n", figure.figure.name);
                }
            }
        }
        self.figures.iter().for_each(|figure| out.push_str(&figure.details()));
        out
    }
}

fn picture(experiment: &str, plot: &str) -> String {
    format!("{experiment}-{plot}")
}

/// Head of the table of all papers.
const HEAD: &str = "\
| paper | figures measured | numbers within 25 % | 10 % | 25 % | 2× | beyond | opposite sign | \
claims that hold |\n|---|---|---|---|---|---|---|---|---|\n";
const MADE: &str = "Made by `mendcast lab report --papers DIR`; do not edit.";

/// Judges all papers.
pub(super) fn judge<'a>(catalogue: &'a Catalogue, results: &'a AllResults) -> Vec<JudgedPaper<'a>> {
    catalogue.papers.iter().map(|paper| JudgedPaper::of(paper, results)).collect()
}

/// Renders the page of all papers.
pub(super) fn overview(papers: &[JudgedPaper<'_>]) -> String {
    let mut out = format!("# What holds of the papers\n\n{MADE}\n\n{HEAD}");
    papers.iter().for_each(|paper| out.push_str(&paper.row()));
    let _ = writeln!(
        out,
        "\nEvery number that a paper states is compared with ours, at every point and in every \
         reading that we measure. The bold column is the answer in short. `Beyond` means less than \
         half or more than double, `opposite sign` an increase in place of a decrease. A number \
         without results of this run is `not measured`. Numbers that a population was fitted to \
         do not count. {} A claim is a sentence with a value that would falsify it. That every \
         run delivers the right bytes is an invariant: a run that breaks it fails, and none \
         counts as a claim.\n",
        near_zero()
    );
    for paper in papers {
        let title = &paper.paper.title;
        let _ = writeln!(out, "## {title}\n\n{}\n{}", paper.sentences(), paper.table());
    }
    out
}
