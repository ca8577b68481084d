//! What a subject's process is told, whatever it measures.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::peers::cgroup;
use crate::peers::scratch::Scratch;
use crate::peers::subjects::Kind;

/// The subject, its file and its budget. The experiment's own arguments are added to these.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    #[arg(long)]
    pub(crate) subject: Kind,
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Of the file.
    #[arg(long)]
    pub(crate) pages: u32,
    #[arg(long)]
    pub(crate) budget_pages: u32,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The length of the round.
    #[arg(long)]
    pub(crate) seconds: f64,
    #[arg(long)]
    pub(crate) cgroup: Option<PathBuf>,
}

impl SubjectArgs {
    /// Of a subject that isn't confined yet.
    pub(crate) fn new(subject: Kind, file: &Scratch, budget_pages: u32, seed: u32, time: Duration) -> Self {
        let (file, pages) = (file.path(), file.pages());
        Self { subject, file, pages, budget_pages, seed: u64::from(seed), seconds: time.as_secs_f64(), cgroup: None }
    }

    /// As a command line has them.
    pub(crate) fn to_command_line(&self) -> Vec<String> {
        vec![
            format!("--subject={}", self.subject.name()),
            format!("--file={}", self.file.display()),
            format!("--pages={}", self.pages),
            format!("--budget-pages={}", self.budget_pages),
            format!("--seed={}", self.seed),
            format!("--seconds={}", self.seconds),
        ]
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// What the process does first: joins its cgroup, and opens the file.
    pub(crate) fn enter(&self) -> Result<Scratch> {
        self.cgroup.as_deref().map_or(Ok(()), cgroup::join)?;
        Scratch::open(&self.file, self.pages)
    }
}
