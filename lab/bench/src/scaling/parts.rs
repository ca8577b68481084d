//! The CPU time that is lost in a part of the program: waiting there, and moving its cache lines.

use manycore::{LineShare, Report};

/// A part of the program.
#[derive(Debug)]
pub(crate) struct Part {
    /// Parts of the paths of its files.
    pub(crate) files: &'static [&'static str],
    /// Its regions of the profile, in designs that have some.
    pub(crate) regions: &'static [&'static str],
}

impl Part {
    /// Returns the source lines whose file or innermost region is the part's.
    pub(crate) fn lines<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = &'a LineShare> {
        report.lines.iter().filter(|line| {
            let region = line.region.split('.').next().unwrap_or("");
            self.regions.contains(&region) || self.files.iter().any(|file| line.line.contains(file))
        })
    }

    /// Returns the time that is lost there, in percent of all CPU time.
    pub(crate) fn lost(&self, report: &Report) -> f64 {
        self.lines(report).fold(0.0, |sum, line| sum + line.shares.lost())
    }
}
