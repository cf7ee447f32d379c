//! Pages that hold the numbers of the five papers against ours: `papers.md`, and a
//! page per paper. Every number comes from the given results or is `not measured`.
//!
//! From the ground up: `catalogue` (figures and their sources) · `results` (our numbers) · `page` ·
//! `choices` (the same with one thing changed) · `conditions` (one paper's numbers against several
//! of our results).

mod catalogue;
mod choices;
mod conditions;
mod page;
mod results;

use std::path::Path;

use super::output::write_file;
use crate::error::{Context as _, Error};
use catalogue::Catalogue;
use choices::Choice;
pub(crate) use conditions::Conditions;
use page::PICTURES;
use results::AllResults;
pub(crate) use results::ResultLine;

/// Writes `papers.md` and a page per paper (`papers/*.md`) to `out`, from the results in these
/// directories. Plots go to `papers/pictures`. With results of the same experiments with one thing
/// changed, by title, `papers/choices.md` says what the change alters.
///
/// # Errors
/// One line: results cannot be read, or a page cannot be written.
pub fn papers(out: &Path, folders: &[&Path], beside: &[(&str, &Path)]) -> Result<(), Error> {
    let (catalogue, results) = (Catalogue::built_in()?, AllResults::read(folders)?);
    write(&catalogue, &results, out)?;
    if beside.is_empty() {
        return Ok(());
    }
    let read = |&(title, folder)| Ok(Choice { title, results: AllResults::read(&[folder])? });
    let choices = beside.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    let page = choices::page(&catalogue, &results, &choices);
    write_file(&out.join("papers").join(choices::FILE), &page)
}

fn write(catalogue: &Catalogue, results: &AllResults, out: &Path) -> Result<(), Error> {
    let papers = page::judge(catalogue, results);
    let pages = out.join("papers");
    let pictures = pages.join(PICTURES);
    std::fs::create_dir_all(&pictures).at(&pictures)?;
    for paper in &papers {
        let mut copied = Vec::new();
        for (experiment, plot, picture) in paper.plots() {
            let Some((folder, _)) = results.experiment(experiment) else { continue };
            // An experiment with few points has fewer plots.
            if folder.join(plot).is_file() {
                let path = pictures.join(&picture);
                std::fs::copy(folder.join(plot), &path).at(&path)?;
                copied.push(picture);
            }
        }
        let is_there = |picture: &str| copied.iter().any(|copied| copied == picture);
        write_file(&pages.join(paper.file()), &paper.page(&is_there))?;
    }
    write_file(&out.join("papers.md"), &page::overview(&papers))
}

#[cfg(test)]
mod tests;
