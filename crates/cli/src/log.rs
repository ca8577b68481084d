//! Prints the library's log on standard error: warnings, or the levels that `PAGEFOLD_LOG` sets.

use std::fmt;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use crate::failure::Failure;

/// The variable that sets the levels.
pub(crate) const VARIABLE: &str = "PAGEFOLD_LOG";

/// A target whose messages the command prints itself, in terms of its options.
const SAID_BY_THE_COMMAND: &str = "pagefold::room";

/// Starts logging.
///
/// # Errors
/// Usage: an invalid level.
pub(crate) fn start() -> Result<(), Failure> {
    let level = match std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        None => LevelFilter::WARN,
        Some(text) => level(&text.to_string_lossy())?,
    };
    let events = tracing_subscriber::fmt::layer().event_format(Plain).with_writer(std::io::stderr).with_ansi(false);
    let filter = Targets::new().with_default(level).with_target(SAID_BY_THE_COMMAND, LevelFilter::OFF);
    // In a test there may already be a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(events));
    Ok(())
}

fn level(text: &str) -> Result<LevelFilter, Failure> {
    let unknown = |_| Failure::usage(format!("{VARIABLE}={text} is none of off, error, warn, info, debug, trace"));
    text.parse().map_err(unknown)
}

/// `warning: what happened field=value`.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let kind = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "note",
            _ => "detail",
        };
        write!(to, "{kind}: ")?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused() {
        assert_eq!(level("info").unwrap(), LevelFilter::INFO);
        assert!(level("loud").unwrap_err().to_string().contains("PAGEFOLD_LOG=loud is none of off, error"));
    }
}
