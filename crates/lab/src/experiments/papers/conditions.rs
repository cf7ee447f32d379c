//! Numbers of one paper against our results under several conditions, side by side.

use std::fmt::Write as _;

use toml::Value;

use super::super::verdict::VerdictCounts;
use super::catalogue::{Catalogue, CataloguedPaper, Figure, StatedNumber};
use super::page::{COUNTED, Judged};
use super::results::{AllResults, ResultLine};
use crate::error::Error;

/// Conditions of the results of one command: values of an axis of their points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    /// Key of the paper in the catalogue.
    pub paper: &'a str,
    /// Name of the results in the catalogue.
    pub results: &'a str,
    /// Key of the axis.
    pub axis: &'a str,
    /// Its values, one per column.
    pub values: &'a [&'a str],
}

impl Conditions<'_> {
    /// Renders a table per figure of the paper with numbers from these results. Every number is
    /// judged under every condition.
    ///
    /// # Errors
    /// The catalogue is malformed.
    pub(crate) fn tables(&self, lines: Vec<ResultLine>) -> Result<String, Error> {
        let catalogue = Catalogue::built_in()?;
        let results = AllResults::of_lines(self.results, lines);
        let papers = catalogue.papers.iter().filter(|paper| paper.key == self.paper);
        Ok(papers.map(|paper| self.of_paper(paper, &results)).collect())
    }

    fn of_paper(&self, paper: &CataloguedPaper, results: &AllResults) -> String {
        let mut counts = vec![VerdictCounts::default(); self.values.len()];
        let mut tables = String::new();
        for figure in &paper.figures {
            // Numbers of a further condition repeat the first one's.
            let further = self.values.get(1..).unwrap_or_default();
            let is_further = |value: &Value| value.as_str().is_some_and(|v| further.contains(&v));
            let is_ours = |number: &&StatedNumber| {
                number.from.as_ref().is_some_and(|from| {
                    from.results == self.results && !from.at.get(self.axis).is_some_and(is_further)
                })
            };
            let numbers: Vec<&StatedNumber> = figure.numbers.iter().filter(is_ours).collect();
            if !numbers.is_empty() {
                // Writing to a string does not fail.
                let _ = self.write_figure(&mut tables, figure, &numbers, results, &mut counts);
            }
        }
        let mut out = format!("| verdicts | {COUNTED} |\n|---|---|\n");
        for (value, counts) in self.values.iter().zip(counts) {
            let _ = writeln!(out, "| {value} | {} |", counts.text());
        }
        out + "\n" + &tables
    }

    fn write_figure(
        &self,
        out: &mut String,
        figure: &Figure,
        numbers: &[&StatedNumber],
        results: &AllResults,
        counts: &mut [VerdictCounts],
    ) -> std::fmt::Result {
        writeln!(out, "**{}**: {}\n", figure.name, figure.subject)?;
        writeln!(out, "| number | paper | {} |", self.values.join(" | "))?;
        writeln!(out, "|---|---|{}", "---|".repeat(self.values.len()))?;
        for number in numbers {
            let paper = Judged::of(number, results).paper();
            write!(out, "| {} | {paper} |", number.of)?;
            for (value, counts) in self.values.iter().zip(counts.iter_mut()) {
                let number = self.at(number, value);
                let judged = Judged::of(&number, results);
                if let Some((_, verdict)) = judged.ours.filter(|_| !figure.fitted) {
                    counts.add(verdict);
                }
                let verdict = judged.reason().unwrap_or_else(|| judged.verdict());
                write!(out, " {}, {verdict} |", judged.ours())?;
            }
            writeln!(out)?;
        }
        match &*figure.cause {
            "" => writeln!(out),
            cause => writeln!(out, "\nCause of differences: {cause}.\n"),
        }
    }

    /// The number, from the results under this condition.
    fn at(&self, number: &StatedNumber, value: &str) -> StatedNumber {
        let mut number = number.clone();
        if let Some(from) = &mut number.from {
            from.at.insert(self.axis.to_owned(), Value::from(value));
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_results_is_judged_under_every_condition() {
        let line = |condition: &str, metric: &str, mean| ResultLine {
            sweep: Some("all".to_owned()),
            scheme: "wira".to_owned(),
            point: [("condition".to_owned(), Value::from(condition))].into(),
            metric: metric.to_owned(),
            unit: "1".to_owned(),
            mean,
            ci95: Some(0.01),
        };
        let (paper, results, axis) = ("wira", "visits", "condition");
        let conditions = Conditions { paper, results, axis, values: &["fitted", "fleet"] };
        let lines = vec![
            line("fitted", "gain:ffct_ms", -0.1),
            line("fleet", "gain:ffct_ms", 0.1),
            // An input of the population, which does not count.
            ResultLine { scheme: "fixed".to_owned(), ..line("fitted", "ffct_ms", 159.0) },
        ];
        let text = conditions.tables(lines).expect("a catalogue");
        let row = text.lines().find(|line| line.starts_with("| change of the mean, Wira |"));
        let row = row.expect("a number of figure 11");
        assert!(row.starts_with("| change of the mean, Wira | -10.6 % |"), "{row}");
        assert!(row.contains("-10.0 ± 1.0 %, within 10 %"), "{row}");
        assert!(row.contains("10.0 ± 1.0 %, opposite sign"), "{row}");
        assert!(text.contains("| mean, baseline | 159 ms | 159.0"), "{text}");
        assert!(text.contains("| fitted | 1 / 0 / 0 / 0 / 0 |"), "{text}");
        assert!(text.contains("| fleet | 0 / 0 / 0 / 0 / 1 |"), "{text}");
        assert!(text.contains("no results given") && !text.contains("Figure 2**"), "{text}");
    }
}
