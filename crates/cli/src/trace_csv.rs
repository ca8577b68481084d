//! Parses traces in CSV as in RFC 4180: fields in quotes may contain commas, line ends and doubled
//! quotes.
//!
//! The first line may be a header. The parser then finds the columns by their names; it knows the
//! names that published traces use. It ignores columns that a replay doesn't need.
//!
//! A trace that could be misunderstood is an error:
//! - a column that may be the operation, but has an unknown name;
//! - two columns that may both be the offset, or the length;
//! - requests for several volumes, because their offsets refer to different files.

use anyhow::{Context, bail};
use csv_core::{ReadRecordResult, Reader};

use crate::trace_request::{Line, Op};
use crate::trace_text::LONE_CR;

/// The shape of a line, for messages.
const SHAPE: &str = "op,offset,length[,group[,thread]]";

/// Names of the column that holds the operation, in lower case, without blanks and punctuation. If
/// several columns match, the name that comes first in this list wins.
const OP_NAMES: [&str; 28] = [
    "op",
    "operation",
    "optype",
    "operationtype",
    "opcode",
    "opname",
    "rw",
    "readwrite",
    "wr",
    "writeread",
    "iotype",
    "type",
    "reqtype",
    "requesttype",
    "accesstype",
    "direction",
    "dir",
    "iodirection",
    "command",
    "cmd",
    "action",
    "access",
    "syscall",
    "call",
    "verb",
    "rwbs",
    "mode",
    "kind",
];
/// A column whose name contains one of these words may hold the operation. If a trace has such a
/// column, and no column with a name in `OP_NAMES`, it is refused.
const OP_WORDS: [&str; 22] = [
    "op",
    "operation",
    "opcode",
    "rw",
    "type",
    "direction",
    "dir",
    "command",
    "cmd",
    "action",
    "read",
    "write",
    "isread",
    "iswrite",
    "rwbs",
    "verb",
    "flag",
    "flags",
    "syscall",
    "call",
    "event",
    "method",
];
const OFFSET_NAMES: [&str; 5] = ["offset", "byteoffset", "offsetbytes", "position", "pos"];
const LENGTH_NAMES: [&str; 9] =
    ["length", "len", "size", "bytes", "lengthbytes", "sizebytes", "iosize", "requestsize", "reqsize"];
/// Names of columns that say which volume or file a request is for. A replay uses only one.
const VOLUME_NAMES: [&str; 18] = [
    "hostname",
    "disknumber",
    "disknum",
    "disk",
    "diskid",
    "volume",
    "volumeid",
    "vol",
    "device",
    "deviceid",
    "devicenumber",
    "dev",
    "lun",
    "asu",
    "file",
    "filename",
    "path",
    "fd",
];

/// The columns of a line.
#[derive(Debug)]
pub(crate) struct Columns {
    op: Option<usize>,
    offset: usize,
    length: usize,
    group: Option<usize>,
    thread: Option<usize>,
    volumes: Vec<Volume>,
    /// The number of columns. All further fields of a line must be empty.
    fields_max: usize,
    /// The first line has been seen.
    started: bool,
    record: Record,
}

/// The column that says which volume a request is for.
#[derive(Debug)]
struct Volume {
    column: usize,
    /// The column's name.
    name: String,
    /// The column's value in the first line that has one.
    first: Option<String>,
}

impl Volume {
    /// # Errors
    /// The line is for another volume than the lines before.
    fn check(&mut self, record: &Record) -> anyhow::Result<()> {
        let Some(found) = record.field(self.column).filter(|field| !field.is_empty()) else { return Ok(()) };
        let first = self.first.get_or_insert_with(|| found.to_owned());
        if first != found {
            bail!(
                "the column `{}` has `{found}` here and `{first}` before: requests of several volumes would be laid \
                 over \
                 each other in one file; keep those of one, or give each a place of its own in the file and leave the \
                 column out",
                self.name
            );
        }
        Ok(())
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            op: Some(0),
            offset: 1,
            length: 2,
            group: Some(3),
            thread: Some(4),
            volumes: Vec::new(),
            fields_max: 5,
            started: false,
            record: Record::default(),
        }
    }
}

impl Columns {
    /// Returns the columns that a header names, in any order; `None` if the line isn't a header.
    fn from_header(header: &Record) -> anyhow::Result<Option<Self>> {
        let plain = |name: &str| -> String {
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
        };
        let names: Vec<String> = header.fields().map(plain).collect();
        let column = |wanted: &[&str]| wanted.iter().find_map(|&wanted| names.iter().position(|name| name == wanted));
        // Finds the only matching column; if there are several, a column with exactly the wanted
        // name wins.
        let only = |wanted: &[&str]| -> anyhow::Result<Option<usize>> {
            let mut found = (0..names.len()).filter(|&at| wanted.contains(&names[at].as_str()));
            let mut named = found.clone().filter(|&at| names[at] == wanted[0]);
            match (named.next(), named.next(), found.next(), found.next()) {
                (Some(named), None, ..) => Ok(Some(named)),
                (_, _, Some(one), Some(other)) => bail!(
                    "the header's columns `{}` and `{}` may both be the {}: call one of them `{2}`",
                    header.field(one).unwrap_or_default(),
                    header.field(other).unwrap_or_default(),
                    wanted[0]
                ),
                (_, _, first, _) => Ok(first),
            }
        };
        let (offset, length) = (only(&OFFSET_NAMES)?, only(&LENGTH_NAMES)?);
        if offset.is_none() && length.is_none() && names.first().is_none_or(|name| name != "op") {
            return Ok(None);
        }
        let (Some(offset), Some(length)) = (offset, length) else {
            bail!("the header lacks `offset` or `length`: expected {SHAPE}");
        };
        let (op, group, thread) = (column(&OP_NAMES), column(&["group"]), column(&["thread"]));
        let known = [Some(offset), Some(length), group, thread];
        let doubtful =
            header.fields().enumerate().find(|(at, name)| !known.contains(&Some(*at)) && may_be_the_op(name));
        if let Some((_, name)) = doubtful.filter(|_| op.is_none()) {
            bail!(
                "the header's column `{name}` may be the operation, under a name that isn't known: call it `op` if it \
                 is, \
                 and leave it out or name another column `op` if it isn't"
            );
        }
        // A file may have another file descriptor each time it is opened, so a column with a path
        // takes precedence.
        let has_path = column(&["path", "file", "filename"]).is_some();
        let is_volume = |name: &str| VOLUME_NAMES.contains(&name) && !(has_path && name == "fd");
        let volume = |column| Volume { column, name: header.field(column).unwrap_or_default().to_owned(), first: None };
        let volumes = (0..names.len()).filter(|&at| is_volume(&names[at])).map(volume).collect();
        let (fields_max, record) = (names.len(), Record::default());
        Ok(Some(Self { op, offset, length, group, thread, volumes, fields_max, started: true, record }))
    }

    /// Returns the request of a line; `None` for a header.
    pub(crate) fn parse(&mut self, line: &str) -> anyhow::Result<Option<Line<'_>>> {
        self.record.read(line)?;
        let is_first = !std::mem::replace(&mut self.started, true);
        if is_first && let Some(header) = Self::from_header(&self.record)? {
            *self = header;
            return Ok(None);
        }
        let field = |column: usize| self.record.field(column).filter(|field| !field.is_empty());
        let optional = |column: Option<usize>| column.and_then(field);
        let count = self.record.ends.len();
        if (self.fields_max..count).any(|at| field(at).is_some()) {
            bail!("{count} fields, and {} columns: expected {SHAPE}, or what the header names", self.fields_max);
        }
        self.volumes.iter_mut().try_for_each(|volume| volume.check(&self.record))?;
        let op_text = match self.op {
            None => "r",
            Some(column) => field(column).with_context(|| format!("no op: expected {SHAPE}"))?,
        };
        let op = parse_op(op_text)?;
        let bytes = |what, column| match field(column) {
            None if op == Op::Sync => Ok(0),
            text => parse_bytes(what, text),
        };
        let (offset, len) = (bytes("offset", self.offset)?, bytes("length", self.length)?);
        let (group, thread) = (optional(self.group), optional(self.thread));
        if let Some(name) = [group, thread].into_iter().flatten().find(|name| name.contains(char::is_control)) {
            bail!("the name {name:?} contains control characters");
        }
        Ok(Some(Line { op, offset, len, group, thread, file: 0 }))
    }
}

/// Returns whether a column's name contains a word for operations: `DiskOp`, `io_type`, `Is Write`.
fn may_be_the_op(name: &str) -> bool {
    let (mut words, mut before) = (vec![String::new()], ' ');
    for c in name.chars() {
        let is_new = !c.is_ascii_alphanumeric() || c.is_ascii_uppercase() && before.is_ascii_lowercase();
        if is_new {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.iter().any(|word| OP_WORDS.contains(&word.as_str()))
}

/// Returns whether a line ends within quotes. Then the field continues in the next line.
pub(crate) fn goes_on(line: &[u8]) -> bool {
    let before_last = line.strip_suffix(b"\n").unwrap_or(line).iter().rposition(|&byte| byte == b'\n');
    let last = before_last.map_or(line, |at| &line[at..]);
    match last.contains(&b'"') {
        true => Record::default().take_apart(line).0 == ReadRecordResult::InputEmpty,
        // The last line has no quotes, so it ends within quotes if, and only if, it begins within
        // quotes. If there is a line before it, it does: the caller appends a line only while this
        // function returns true.
        false => before_last.is_some(),
    }
}

/// Returns whether a trace's first line looks like CSV. If the rest doesn't, parsing fails.
pub(crate) fn looks_like_a_trace(line: &str) -> bool {
    let mut record = Record::default();
    if record.read(line).is_err() {
        return true;
    }
    let op = record.field(0).is_some_and(|op| parse_op(op).is_ok());
    let offset = parse_bytes("offset", record.field(1)).is_ok();
    op || offset || !matches!(Columns::from_header(&record), Ok(None))
}

/// The fields of a line.
struct Record {
    reader: Reader,
    line: Vec<u8>,
    text: String,
    /// Where each field ends in `text`.
    ends: Vec<usize>,
}

impl Default for Record {
    fn default() -> Self {
        // A reader made by `Default` isn't built, and finds no fields.
        Self { reader: Reader::new(), line: Vec::new(), text: String::new(), ends: Vec::new() }
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.fields()).finish()
    }
}

impl Record {
    /// Splits a line into fields.
    ///
    /// # Errors
    /// A field's quotes aren't closed; or a carriage return ends the record, and more follows.
    fn read(&mut self, line: &str) -> anyhow::Result<()> {
        match self.take_apart(line.as_bytes()) {
            (ReadRecordResult::Record, len) if len > line.len() => Ok(()),
            (ReadRecordResult::Record, _) => bail!(LONE_CR),
            _ => bail!("quotes that aren't closed"),
        }
    }

    /// Splits a line. Also returns how many bytes the parser has consumed, including the record's
    /// end: at most `line.len() + 1`.
    fn take_apart(&mut self, line: &[u8]) -> (ReadRecordResult, usize) {
        self.line.clear();
        self.line.extend_from_slice(line);
        self.line.push(b'\n');
        // All fields together have at most as many bytes as the line, and there is at most one
        // field more than there are commas. Both buffers have room for one entry more than that,
        // because the parser stops as soon as a buffer is full.
        let mut text = std::mem::take(&mut self.text).into_bytes();
        text.resize(self.line.len() + 1, 0);
        self.ends.resize(line.iter().filter(|&&byte| byte == b',').count() + 2, 0);
        self.reader.reset();
        let (result, taken, len, count) = self.reader.read_record(&self.line, &mut text, &mut self.ends);
        text.truncate(len);
        self.ends.truncate(count);
        // Fields are cut only at ASCII characters, so they are UTF-8 if the line is. A line that
        // isn't UTF-8 gets no fields.
        self.text = String::from_utf8(text).unwrap_or_default();
        (result, taken)
    }

    /// Returns all fields, without white space around them.
    fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).filter_map(|at| self.field(at))
    }

    fn field(&self, at: usize) -> Option<&str> {
        let start = if at == 0 { 0 } else { *self.ends.get(at - 1)? };
        let field = self.text.get(start..*self.ends.get(at)?)?.trim();
        // A field with white space before its quotes keeps the quotes, so they are removed here.
        Some(field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).unwrap_or(field))
    }
}

fn parse_op(text: &str) -> anyhow::Result<Op> {
    let is = |names: &[&str]| names.iter().any(|name| text.eq_ignore_ascii_case(name));
    if is(&["r", "rd", "read", "readv", "pread", "pread64", "preadv"]) {
        Ok(Op::Read)
    } else if is(&["w", "wr", "write", "writev", "pwrite", "pwrite64", "pwritev"]) {
        Ok(Op::Write)
    } else if is(&["s", "sync", "fsync", "fdatasync", "flush"]) {
        Ok(Op::Sync)
    } else {
        bail!("op `{text}` is none of r, read, w, write, sync, fsync, flush");
    }
}

/// Parses a number of bytes: decimal, hexadecimal with `0x`, or with a unit.
fn parse_bytes(what: &str, field: Option<&str>) -> anyhow::Result<u64> {
    let Some(text) = field else { bail!("no {what}: expected {SHAPE}") };
    if let Ok(bytes) = text.parse() {
        return Ok(bytes);
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let bytes = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => match text.split_once('.') {
            // Some programs write `17.0` for 17 if other values of the column are missing.
            Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole.parse().ok(),
            // A fraction of a byte: the field is a time, or has another meaning.
            Some((_, fraction)) if !has_unit(fraction) => None,
            _ => text.parse::<pagefold::Size>().ok().map(|size| size.0),
        },
    };
    bytes.with_context(|| format!("{what} `{text}` isn't a number of bytes"))
}

/// Returns whether a number is followed by a unit larger than a byte.
fn has_unit(number: &str) -> bool {
    let unit = number.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').trim_start();
    unit.starts_with(|c: char| "kmgtpe".contains(c.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operation, offset, length, group, thread.
    type Found = (Op, u64, u64, Option<String>, Option<String>);

    fn parse(lines: &[&str]) -> Result<Vec<Found>, String> {
        let (mut columns, mut found) = (Columns::default(), Vec::new());
        for line in lines {
            let parsed = columns.parse(line).map_err(|error| format!("{error:#}"))?;
            let owned = |name: Option<&str>| name.map(str::to_owned);
            found.extend(parsed.map(|line| (line.op, line.offset, line.len, owned(line.group), owned(line.thread))));
        }
        Ok(found)
    }

    fn read(offset: u64, len: u64, group: Option<&str>, thread: Option<&str>) -> Found {
        (Op::Read, offset, len, group.map(str::to_owned), thread.map(str::to_owned))
    }

    #[test]
    fn csv_with_and_without_header() {
        let bare = parse(&["r,0,4096", "r, 4k , 1KiB, a, 1"]).unwrap();
        assert_eq!(bare, [read(0, 4096, None, None), read(4096, 1024, Some("a"), Some("1"))]);
        let named = parse(&["time,Length,Offset,\"group\"", "17,10,20,g", "18,1,0x10, \"h\""]).unwrap();
        assert_eq!(named, [read(20, 10, Some("g"), None), read(16, 1, Some("h"), None)]);
        assert_eq!(parse(&["op,offset,length"]).unwrap(), []);
    }

    #[test]
    fn quotes_are_those_of_the_standard() {
        let lines = ["op,offset,length,group", "r,0,1,\"a,b\"", "\"w\",\"2\",\"1\",\"say \"\"c\"\"\""];
        let groups: Vec<_> = parse(&lines).unwrap().into_iter().map(|line| line.3.unwrap()).collect();
        assert_eq!(groups, ["a,b", "say \"c\""]);
        assert!(parse(&["r,0,1,\"a"]).unwrap_err().contains("aren't closed"));
        // A quoted field may continue in the next line. A quote inside an unquoted field is an
        // ordinary character.
        assert!(goes_on(b"r,0,1,\"a\n") && goes_on(b"r,0,1,\"a\n\"\"b\r\n"));
        assert!(!goes_on(b"r,0,1,\"a\nb\"\n") && !goes_on(b"r,0,1,5\" disk\n"));
        let commented = ["note,op,offset,length,group", "\"two\nlines\",w,8,1,a"];
        assert_eq!(parse(&commented).unwrap(), [(Op::Write, 8, 1, Some("a".to_owned()), None)]);
        assert!(parse(&["r,0,1,\"a\nb\""]).unwrap_err().contains("control characters"));
        assert_eq!(parse(&["r,0,1,grün"]).unwrap(), [read(0, 1, Some("grün"), None)]);
    }

    /// The MSR traces' writes were replayed as reads.
    #[test]
    fn the_operation_is_found_under_its_usual_names() {
        let ops = |header: &str, line: &str| parse(&[header, line]).map(|found| found[0].0);
        let msr = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
        assert_eq!(ops(msr, "1,hm,1,Write,0,4096,9"), Ok(Op::Write));
        assert_eq!(ops(msr, "1,hm,1,Read,0,4096,9"), Ok(Op::Read));
        for name in ["rw", "R/W", "opcode", "Op_Code", "io type", "direction", "operation", "IOType", "request_type"] {
            assert_eq!(ops(&format!("offset,size,{name}"), "0,4096,W"), Ok(Op::Write), "{name}");
        }
        assert!(ops(msr, "1,hm,1,Erase,0,4096,9").unwrap_err().contains("op `Erase` is none of"));
        for name in ["W/R", "Syscall", "call"] {
            assert_eq!(ops(&format!("offset,size,{name}"), "0,4096,pwrite64"), Ok(Op::Write), "{name}");
        }
        for name in ["DiskOp", "is_write", "scsi command", "writeFlag", "flags", "Event Class"] {
            let error = ops(&format!("offset,size,{name}"), "0,4096,1").unwrap_err();
            assert!(error.contains(&format!("column `{name}` may be the operation")), "{error}");
        }
        assert_eq!(ops("offset,size,latency,hostname,prototype,top", "0,4096,1,2,3,4"), Ok(Op::Read));
        assert_eq!(ops("type,op,offset,size", "7,w,0,1"), Ok(Op::Write), "the likelier one");
    }

    #[test]
    fn writes_and_syncs_are_told_apart() {
        let lines = parse(&["w,0,1", "fsync", "flush,4k,4k,g", "pwrite,1,2"]).unwrap();
        let ops: Vec<_> = lines.into_iter().map(|(op, offset, len, group, _)| (op, offset, len, group)).collect();
        let expected = [
            (Op::Write, 0, 1, None),
            (Op::Sync, 0, 0, None),
            (Op::Sync, 4096, 4096, Some("g".to_owned())),
            (Op::Write, 1, 2, None),
        ];
        assert_eq!(ops, expected);
        assert!(parse(&["w,0"]).unwrap_err().contains("no length"));
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
            ("r,0,0.5", "length `0.5`"),
            ("r,17.25,1", "offset `17.25`"),
            ("r,17.25 bytes,1", "offset `17.25 bytes`"),
            ("r,0,1\rw,0,1", "carriage return"),
            ("op,offset", "header lacks"),
        ] {
            let error = parse(&[bad]).unwrap_err();
            assert!(error.contains(message), "{bad}: {error}");
        }
        assert_eq!(
            parse(&["r,0,1.5k,,,,", "r,8.0,1_000"]).unwrap(),
            [read(0, 1536, None, None), read(8, 1000, None, None)]
        );
    }

    /// Each of these was silently replayed as another trace than intended.
    #[test]
    fn what_a_header_leaves_open_is_an_error() {
        let second = |header: &str, line: &str| parse(&[header, line]).unwrap_err();
        assert!(second("offset,length", "1,2,w").contains("3 fields, and 2 columns"));
        assert_eq!(parse(&["offset,length", "1,2,,"]).unwrap(), [read(1, 2, None, None)]);
        assert!(parse(&["offset,size,bytes"]).unwrap_err().contains("`size` and `bytes` may both be the length"));
        assert!(
            parse(&["pos,length,ByteOffset"]).unwrap_err().contains("`pos` and `ByteOffset` may both be the offset")
        );
        assert_eq!(parse(&["offset,size,length,pos", "1,2,3,4"]).unwrap(), [read(1, 3, None, None)]);
        let volumes = ["Hostname,DiskNumber,Type,Offset,Size", "hm,1,Read,0,1", "hm,,Read,1,1", "hm,0,Write,0,1"];
        assert!(parse(&volumes).unwrap_err().contains("`DiskNumber` has `0` here and `1` before"));
        assert_eq!(parse(&volumes[..3]).unwrap().len(), 2);
        let hosts = [volumes[0], volumes[1], "proj,1,Read,0,1"];
        assert!(parse(&hosts).unwrap_err().contains("`Hostname` has `proj` here and `hm` before"));
        let files = ["path,fd,op,offset,size", "/a,3,r,0,1", "/a,4,r,0,1", "/b,4,r,0,1"];
        assert_eq!(parse(&files[..3]).unwrap().len(), 2);
        assert!(parse(&files).unwrap_err().contains("`path` has `/b` here"));
        assert!(parse(&["offset,size,offset"]).unwrap_err().contains("may both be the offset"));
    }
}
