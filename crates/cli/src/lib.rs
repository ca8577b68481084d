//! The `pagefold` command.
//!
//! | module | what it knows |
//! |---|---|
//! | `args`, `choices`, `room`, `units` | the command line |
//! | `trace`, `trace_text`, `trace_line`, `trace_request`, `trace_csv`, `trace_iolog`, `trace_files` | access traces |
//! | `generate`, `zipf` | made-up accesses |
//! | `content`, `temp_file`, `target`, `subject` | the file that is read and written |
//! | `stamp`, `write_log`, `checker`, `reread` | whether what is read is what was written |
//! | `plan`, `accesses` | which thread reads and writes what, for which group |
//! | `run`, `worker`, `batch`, `shared`, `syncer`, `write_back`, `backend`, `process`, `machine` | a run within one budget |
//! | `page_order`, `policy_report` | what known policies would miss |
//! | `tally`, `report`, `table`, `policy_table`, `columns`, `plot`, `live` | what the user sees |
//! | `failure`, `explain`, `signals` | how it ends |
//! | `log`, `output` | the log of the library, and where results go |
#![forbid(unsafe_code)]

mod accesses;
mod args;
mod backend;
mod batch;
mod checker;
mod choices;
mod columns;
mod content;
mod explain;
mod failure;
mod generate;
mod live;
mod log;
mod machine;
mod output;
mod page_order;
mod plan;
mod plot;
mod policy_report;
mod policy_table;
mod process;
mod replay;
mod report;
mod reread;
mod room;
mod run;
mod shared;
mod signals;
mod stamp;
mod subject;
mod syncer;
mod table;
mod tally;
mod target;
mod temp_file;
mod trace;
mod trace_csv;
mod trace_files;
mod trace_iolog;
mod trace_line;
mod trace_request;
mod trace_text;
mod units;
mod worker;
mod write_back;
mod write_log;
mod zipf;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, ValueEnum};

use crate::args::{Cli, Command};
use crate::failure::{EXIT_SUCCESS, Failure};

/// Runs the command with the arguments of its command line. Returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(args) => log::start().and_then(|()| replay::replay(&args)),
        Command::Completions { shell } => completions(shell),
    };
    match result {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                // If this fails, there is no other place to report it.
                let _ = writeln!(std::io::stderr(), "{}{failure}", prefix(&failure));
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn prefix(failure: &Failure) -> &'static str {
    if matches!(failure, Failure::Interrupted(_)) { "" } else { "error: " }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "pagefold", &mut script);
    output::print_bytes(&script)
}

/// Parses an access trace as `replay` would, in the format called `format`, or in the format that
/// is detected.
///
/// # Errors
/// The message says what is wrong with the trace and in which line, or that there is no such
/// format.
pub fn check_trace(trace: &[u8], format: Option<&str>) -> Result<(), String> {
    let format = format.map(|name| trace_line::Format::from_str(name, true)).transpose()?;
    let options = trace::Options { format, ..trace::Options::default() };
    trace::Trace::read(trace, "a trace", &options, |_| ()).map(drop).map_err(|failure| failure.to_string())
}
