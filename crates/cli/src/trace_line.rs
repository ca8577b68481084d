//! One line of a trace, in any format.

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::trace_iolog::{self, Iolog};

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// `op,offset,length[,group[,thread]]`, offset and length in bytes
    Csv,
    /// `start count …`, in blocks; further fields are ignored
    Blocks,
    /// What `fio --write_iolog` writes, version 2 or 3
    Iolog,
}

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes out of the file.
    Read,
    /// Bytes into the file.
    Write,
    /// What was written is to survive a power cut: all of it, or a range.
    Sync,
}

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) group: Option<&'a str>,
    pub(crate) thread: Option<&'a str>,
    /// Index into [`Iolog::files`]; 0 in the formats that name no files.
    pub(crate) file: usize,
}

/// Turns lines of one trace into requests.
#[derive(Debug)]
pub(crate) enum LineParser {
    Csv(Columns),
    Blocks { block_bytes: u64 },
    Iolog(Iolog),
}

impl LineParser {
    /// The parser for a trace that starts with `first`, of which only `files` matter if there are any.
    pub(crate) fn new(format: Option<Format>, first: &str, block_bytes: u64, files: Vec<String>) -> Self {
        let found = match first {
            first if trace_iolog::is_header(first) => Format::Iolog,
            first if first.contains(',') => Format::Csv,
            _ => Format::Blocks,
        };
        match format.unwrap_or(found) {
            Format::Csv => Self::Csv(Columns::default()),
            Format::Blocks => Self::Blocks { block_bytes },
            Format::Iolog => Self::Iolog(Iolog::new(files)),
        }
    }

    /// The request of a line; `None` for a header, and for what is left out.
    ///
    /// # Errors
    /// What is wrong with the line; the caller knows where it is.
    pub(crate) fn parse<'a>(&mut self, line: &'a str) -> anyhow::Result<Option<Line<'a>>> {
        match self {
            Self::Blocks { block_bytes } => parse_blocks(line, *block_bytes).map(Some),
            Self::Iolog(log) => log.parse(line),
            Self::Csv(columns) => {
                let first = !std::mem::replace(&mut columns.started, true);
                if first && let Some(header) = Columns::from_header(line)? {
                    *columns = header;
                    return Ok(None);
                }
                columns.parse(line).map(Some)
            }
        }
    }
}

/// `start count …`, as in the traces that were published with ARC (Megiddo and Modha, FAST '03); the fields that
/// follow there are of no use here.
fn parse_blocks(line: &str, block_bytes: u64) -> anyhow::Result<Line<'_>> {
    let mut fields = line.split_ascii_whitespace();
    let mut number = |what| {
        let Some(field) = fields.next() else { bail!("no {what}: expected `start count`, in blocks") };
        let number = field.parse::<u64>();
        number.with_context(|| format!("{what} `{field}` isn't a whole number: expected `start count`, in blocks"))
    };
    let (start, count) = (number("start")?, number("count")?);
    let bytes = |blocks: u64| {
        blocks.checked_mul(block_bytes).with_context(|| format!("block {blocks} of {block_bytes} bytes is beyond 2^64"))
    };
    Ok(Line { op: Op::Read, offset: bytes(start)?, len: bytes(count)?, group: None, thread: None, file: 0 })
}

/// Whether a trace's first line has anything of any format; the parser then says what is wrong with the rest.
pub(crate) fn looks_like_a_trace(line: &str) -> bool {
    if trace_iolog::is_header(line) {
        return true;
    }
    if !line.contains(',') {
        return line.split_ascii_whitespace().next().is_some_and(|field| field.parse::<i128>().is_ok());
    }
    let mut values = fields(line);
    let op = values.next().is_some_and(|op| parse_op(op).is_ok());
    let offset = parse_bytes("offset", values.next()).is_ok();
    op || offset || !matches!(Columns::from_header(line), Ok(None))
}

/// Where a CSV line has what.
#[derive(Debug)]
pub(crate) struct Columns {
    op: Option<usize>,
    offset: usize,
    length: usize,
    group: Option<usize>,
    thread: Option<usize>,
    /// With a header, columns of other names may follow.
    fields_max: Option<usize>,
    /// The first line has been seen.
    started: bool,
}

impl Default for Columns {
    fn default() -> Self {
        Self { op: Some(0), offset: 1, length: 2, group: Some(3), thread: Some(4), fields_max: Some(5), started: false }
    }
}

impl Columns {
    /// The columns that a header names, in any order; `None` if the line isn't a header.
    fn from_header(line: &str) -> anyhow::Result<Option<Self>> {
        let names: Vec<String> = fields(line).map(str::to_ascii_lowercase).collect();
        let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        let (offset, length) = (column(&["offset"]), column(&["length", "len", "size"]));
        if offset.is_none() && length.is_none() && names.first().is_none_or(|name| name != "op") {
            return Ok(None);
        }
        let (Some(offset), Some(length)) = (offset, length) else {
            bail!("the header lacks `offset` or `length`: expected op,offset,length[,group[,thread]]");
        };
        Ok(Some(Self {
            op: column(&["op", "operation"]),
            offset,
            length,
            group: column(&["group"]),
            thread: column(&["thread"]),
            fields_max: None,
            started: true,
        }))
    }

    fn parse<'a>(&self, line: &'a str) -> anyhow::Result<Line<'a>> {
        let field = |column: usize| fields(line).nth(column).filter(|field| !field.is_empty());
        let optional = |column: Option<usize>| column.and_then(field);
        let count = fields(line).count();
        if self.fields_max.is_some_and(|max| count > max) {
            bail!("{count} fields: expected op,offset,length[,group[,thread]]");
        }
        let op_text = match self.op {
            None => "r",
            Some(column) => field(column).context("no op: expected op,offset,length[,group[,thread]]")?,
        };
        let op = parse_op(op_text)?;
        let bytes = |what, column| match field(column) {
            None if op == Op::Sync => Ok(0),
            text => parse_bytes(what, text),
        };
        let (offset, len) = (bytes("offset", self.offset)?, bytes("length", self.length)?);
        Ok(Line { op, offset, len, group: optional(self.group), thread: optional(self.thread), file: 0 })
    }
}

/// Fields of a CSV line, without white space and quotes around them. Nothing here has a use for commas in quotes.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|field| field.trim().trim_matches('"'))
}

fn parse_op(text: &str) -> anyhow::Result<Op> {
    let is = |names: &[&str]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
    if is(&["r", "read", "pread"]) {
        Ok(Op::Read)
    } else if is(&["w", "write", "pwrite"]) {
        Ok(Op::Write)
    } else if is(&["s", "sync", "fsync", "fdatasync", "flush"]) {
        Ok(Op::Sync)
    } else {
        bail!("op `{text}` is none of r, read, w, write, sync, fsync, flush");
    }
}

/// A number of bytes: decimal, hexadecimal with `0x`, or with a unit.
fn parse_bytes(what: &str, field: Option<&str>) -> anyhow::Result<u64> {
    let Some(text) = field else { bail!("no {what}: expected op,offset,length[,group[,thread]]") };
    if let Ok(bytes) = text.parse() {
        return Ok(bytes);
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let bytes = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse::<pagefold::Size>().ok().map(|size| size.0),
    };
    bytes.with_context(|| format!("{what} `{text}` isn't a number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(format: Option<Format>, lines: &[&'static str]) -> Result<Vec<Line<'static>>, String> {
        let mut parser = LineParser::new(format, lines[0], 512, vec![]);
        let parsed = lines.iter().filter_map(|line| parser.parse(line).transpose());
        parsed.collect::<anyhow::Result<_>>().map_err(|error| format!("{error:#}"))
    }

    fn line(offset: u64, len: u64, group: Option<&'static str>, thread: Option<&'static str>) -> Line<'static> {
        Line { op: Op::Read, offset, len, group, thread, file: 0 }
    }

    #[test]
    fn csv_with_and_without_header() {
        let bare = parse(None, &["r,0,4096", "r, 4k , 1KiB, a, 1"]).unwrap();
        assert_eq!(bare, [line(0, 4096, None, None), line(4096, 1024, Some("a"), Some("1"))]);
        let named = parse(None, &["time,Length,Offset,\"group\"", "17,10,20,g", "18,1,0x10,\"h\""]).unwrap();
        assert_eq!(named, [line(20, 10, Some("g"), None), line(16, 1, Some("h"), None)]);
        assert_eq!(parse(None, &["op,offset,length"]).unwrap(), []);
    }

    #[test]
    fn writes_and_syncs_are_told_apart() {
        let lines = parse(None, &["w,0,1", "fsync", "flush,4k,4k,g", "pwrite,1,2"]).unwrap();
        let ops: Vec<_> = lines.iter().map(|line| (line.op, line.offset, line.len, line.group)).collect();
        let expected = [
            (Op::Write, 0, 1, None),
            (Op::Sync, 0, 0, None),
            (Op::Sync, 4096, 4096, Some("g")),
            (Op::Write, 1, 2, None),
        ];
        assert_eq!(ops, expected);
        assert!(parse(None, &["w,0"]).unwrap_err().contains("no length"));
    }

    #[test]
    fn csv_lines_that_do_not_parse() {
        for (bad, message) in [
            ("x,0,1", "op `x` is none of"),
            ("r,abc,1", "offset `abc`"),
            ("r,-1,1", "offset `-1`"),
            ("r,0xzz,1", "offset `0xzz`"),
            ("r,0,99999999999999999999", "length `9999"),
            ("r,0", "no length"),
            ("r,,1", "no offset"),
            (",,", "no op"),
            ("r,0,1,a,b,c", "6 fields"),
            ("op,offset", "header lacks"),
        ] {
            let error = parse(None, &[bad]).unwrap_err();
            assert!(error.contains(message), "{bad}: {error}");
        }
    }

    #[test]
    fn blocks_count_in_blocks_and_ignore_the_rest() {
        let blocks = parse(None, &["3 2 0 17", "5\t1"]).unwrap();
        assert_eq!(blocks, [line(1536, 1024, None, None), line(2560, 512, None, None)]);
    }

    #[test]
    fn block_lines_that_do_not_parse() {
        for (bad, message) in [
            ("3", "no count"),
            ("x 1", "start `x`"),
            ("1 -1", "count `-1`"),
            ("99999999999999999999 1", "start `9999"),
            ("36028797018963968 1", "is beyond 2^64"),
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
