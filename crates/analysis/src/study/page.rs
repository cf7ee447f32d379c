//! A study as a self-contained HTML page.

use core::fmt::Write as _;

use super::Study;
use super::text::LEGEND;
use crate::chart::escaped;
use crate::html::{page, paragraphs, table};

impl Study {
    /// Renders a self-contained page.
    pub fn html(&self) -> String {
        let mut out = paragraphs("remark", &self.summary());
        out.push_str(&paragraphs("remark", &LEGEND.map(String::from)));
        for section in &self.sections {
            let _ = writeln!(out, "<h2 id=\"{}\">{}</h2>", section.name, escaped(section.title));
            out.push_str(&paragraphs("remark", &section.remarks(self.input.records)));
            out.push_str(&paragraphs("", &section.notes));
            for one in &section.tables {
                let _ = writeln!(out, "<div class=\"sourced\">\n{}</div>", table(&one.rows()));
            }
            for plot in &section.plots {
                out.push_str(&plot.svg());
            }
        }
        page("Sessions studied", &out)
    }
}
