//! One line of a trace, in any format.

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::trace_csv::{self, Columns};
use crate::trace_iolog::{self, Iolog};
use crate::trace_request::{Line, Op};
use crate::trace_text::{LONE_CR, as_text};

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// `op,offset,length[,group[,thread]]`, offset and length in bytes
    Csv,
    /// `start count …`, in blocks, all reads; further numbers are ignored
    Blocks,
    /// What `fio --write_iolog` writes, version 2 or 3
    Iolog,
}

/// The parser of a trace's lines.
#[derive(Debug)]
pub(crate) enum LineParser {
    Csv(Box<Columns>),
    Blocks { block_bytes: u64 },
    Iolog(Iolog),
}

impl Format {
    /// Detects the format of a trace that starts with this line.
    pub(crate) fn of(first: &[u8]) -> Self {
        match first {
            first if trace_iolog::is_header(first) => Self::Iolog,
            first if first.contains(&b',') => Self::Csv,
            _ => Self::Blocks,
        }
    }

    /// Returns whether a line's last field continues in the next line.
    pub(crate) fn goes_on(self, line: &[u8]) -> bool {
        self == Self::Csv && trace_csv::goes_on(line)
    }
}

impl LineParser {
    /// Creates the parser for a trace that starts with `first`. If `files` isn't empty, operations
    /// on other files are left out.
    pub(crate) fn new(format: Option<Format>, first: &[u8], block_bytes: u64, files: Vec<Vec<u8>>) -> Self {
        match format.unwrap_or_else(|| Format::of(first)) {
            Format::Csv => Self::Csv(Box::default()),
            Format::Blocks => Self::Blocks { block_bytes },
            Format::Iolog => Self::Iolog(Iolog::new(files)),
        }
    }

    /// See [`Format::goes_on`].
    pub(crate) fn goes_on(&self, line: &[u8]) -> bool {
        matches!(self, Self::Csv(_)) && trace_csv::goes_on(line)
    }

    /// Returns the request of a line; `None` for a header, and for operations that are left out.
    ///
    /// # Errors
    /// What is wrong with the line; the caller adds its number.
    pub(crate) fn parse(&mut self, line: &[u8]) -> anyhow::Result<Option<Line<'_>>> {
        match self {
            Self::Blocks { block_bytes } => parse_blocks(as_text(line)?, *block_bytes).map(Some),
            Self::Iolog(log) => log.parse(line),
            Self::Csv(columns) => columns.parse(as_text(line)?),
        }
    }
}

/// Parses the line `start count …` of a block list, the format of the traces that were published
/// with ARC (Megiddo and Modha, FAST '03). Ignores further numbers, which those traces have.
fn parse_blocks(line: &str, block_bytes: u64) -> anyhow::Result<Line<'static>> {
    let mut fields = line.split_ascii_whitespace();
    let mut number = |what| {
        let Some(field) = fields.next() else { bail!("no {what}: expected `start count`, in blocks") };
        let number = field.parse::<u64>();
        number.with_context(|| format!("{what} `{field}` isn't a whole number: expected `start count`, in blocks"))
    };
    let (start, count) = (number("start")?, number("count")?);
    if line.contains('\r') {
        bail!(LONE_CR);
    }
    if let Some(field) = fields.find(|field| field.parse::<f64>().is_err()) {
        bail!("the field `{field}` may be the operation, and a block list is of reads alone: write the trace as CSV");
    }
    let bytes = |blocks: u64| {
        blocks.checked_mul(block_bytes).with_context(|| format!("block {blocks} of {block_bytes} bytes is beyond 2^64"))
    };
    Ok(Line { op: Op::Read, offset: bytes(start)?, len: bytes(count)?, group: None, thread: None, file: 0 })
}

/// Returns whether a trace's first line looks like any format. If the rest doesn't, parsing fails.
pub(crate) fn looks_like_a_trace(line: &[u8]) -> bool {
    if trace_iolog::is_header(line) {
        return true;
    }
    // Text that isn't UTF-8 gets its error from the parser.
    let Ok(line) = as_text(line) else { return true };
    match line.contains(',') {
        true => trace_csv::looks_like_a_trace(line),
        false => line.split_ascii_whitespace().next().is_some_and(|field| field.parse::<i128>().is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(format: Option<Format>, lines: &[&str]) -> Result<Vec<(u64, u64)>, String> {
        let mut parser = LineParser::new(format, lines[0].as_bytes(), 512, vec![]);
        let mut found = Vec::new();
        for line in lines {
            let parsed = parser.parse(line.as_bytes()).map_err(|error| format!("{error:#}"))?;
            found.extend(parsed.map(|line| (line.offset, line.len)));
        }
        Ok(found)
    }

    #[test]
    fn blocks_count_in_blocks_and_ignore_the_rest() {
        let blocks = parse(None, &["3 2 0 17", "5\t1"]).unwrap();
        assert_eq!(blocks, [(1536, 1024), (2560, 512)]);
    }

    #[test]
    fn block_lines_that_do_not_parse() {
        for (bad, message) in [
            ("3", "no count"),
            ("x 1", "start `x`"),
            ("1 -1", "count `-1`"),
            ("99999999999999999999 1", "start `9999"),
            ("36028797018963968 1", "is beyond 2^64"),
            ("0 8 W", "`W` may be the operation"),
            ("0 8\r5 1", "carriage return"),
        ] {
            let error = parse(None, &[bad]).unwrap_err();
            assert!(error.contains(message), "{bad}: {error}");
        }
    }

    #[test]
    fn the_user_decides_against_the_first_line() {
        assert!(parse(Some(Format::Blocks), &["r,0,1"]).is_err());
        assert!(parse(Some(Format::Csv), &["1 2"]).is_err());
    }
}
