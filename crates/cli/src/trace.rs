//! Access traces from a file: which reads, writes and syncs each thread issues, and for which
//! group.
//!
//! The whole trace is parsed before the run, so a bad line is reported before anything runs, and
//! the measurement doesn't include the parsing. The requests are kept in memory, 16 bytes each, in
//! one list for each thread that will replay them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail};

use crate::failure::Failure;
use crate::signals;
use crate::trace_files::{self, Mapped, Reach, Skipped, TraceFile};
use crate::trace_iolog::Iolog;
use crate::trace_line::{Format, LineParser, looks_like_a_trace};
use crate::trace_request::{Line, Op};
use crate::trace_text::{Place, TraceText};

/// The maximum number of threads that replay a trace, if the trace names threads and the user
/// doesn't pass `--threads`. Each thread takes memory, so there has to be a maximum. If the trace
/// names more threads, one thread replays several of them.
pub(crate) const NAMED_THREADS_MAX: usize = 128;

/// The group of lines that name no group, in a trace in which other lines name one.
const GROUP_UNNAMED: &str = "default";

/// Lines between two checks of the clock and of Ctrl-C.
const LINES_PER_TICK: u64 = 1 << 16;

/// One operation: kind, offset, length and group. A trace holds millions of operations, so they are
/// packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    offset: u64,
    /// Length in the upper 46 bits, operation in the next two, group in the lower 16.
    len_op_group: u64,
}

impl Request {
    const GROUP_BITS: u32 = 16;

    const OP_BITS: u32 = 2;
    const LEN_SHIFT: u32 = Self::GROUP_BITS + Self::OP_BITS;
    const OPS: [Op; 3] = [Op::Read, Op::Write, Op::Sync];

    /// Returns `None` if the length or the group doesn't fit.
    fn new(op: Op, offset: u64, len: u64, group: usize) -> Option<Self> {
        let group = u16::try_from(group).ok()?;
        let op = (op as u64) << Self::GROUP_BITS;
        (len < 1 << (64 - Self::LEN_SHIFT))
            .then(|| Self { offset, len_op_group: len << Self::LEN_SHIFT | op | u64::from(group) })
    }

    /// The kind of the operation.
    pub(crate) fn op(self) -> Op {
        let number = self.len_op_group >> Self::GROUP_BITS & ((1 << Self::OP_BITS) - 1);
        Self::OPS[number as usize]
    }

    /// First byte.
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// Number of bytes.
    pub(crate) fn len(self) -> u64 {
        self.len_op_group >> Self::LEN_SHIFT
    }

    /// Returns the same request at another place.
    fn moved(self, offset: u64, len: u64) -> Option<Self> {
        Self::new(self.op(), offset, len, 0)
    }

    /// Index into [`Trace::groups`].
    pub(crate) fn group(self) -> usize {
        (self.len_op_group & ((1 << Self::GROUP_BITS) - 1)) as usize
    }
}

/// Options for loading a trace.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Detected from the first line if not given.
    pub(crate) format: Option<Format>,
    /// The unit of block lists.
    pub(crate) block_bytes: u64,
    /// Leave writes and syncs out, and count the writes.
    pub(crate) skip_writes: bool,
    /// Stop after this many requests.
    pub(crate) requests_max: Option<u64>,
    /// The number of threads that lines without a thread name are dealt to.
    pub(crate) threads: usize,
    /// The maximum number of threads. If the trace names more threads, several of them share one
    /// thread of the run.
    pub(crate) threads_max: usize,
    /// The only groups that may occur, if the user named their limits.
    pub(crate) groups_allowed: Option<Vec<String>>,
    /// Where files of the trace begin. If there are any entries, other files are left out.
    pub(crate) map: Vec<Mapped>,
    /// Other files of the trace begin at multiples of this.
    pub(crate) page_bytes: u64,
}

impl Default for Options {
    /// Returns the options of a `replay` whose command line gives none for the trace. Only the
    /// block size differs: it is 512 bytes here, and the page size in `replay`.
    fn default() -> Self {
        Self {
            format: None,
            block_bytes: 512,
            skip_writes: false,
            requests_max: None,
            threads: 1,
            threads_max: NAMED_THREADS_MAX,
            groups_allowed: None,
            map: Vec::new(),
            page_bytes: 4096,
        }
    }
}

/// A trace in memory.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The requests of each thread.
    pub(crate) streams: Vec<Vec<Request>>,
    /// Names in order of appearance; empty if the trace has no groups.
    pub(crate) groups: Vec<String>,
    /// Requests in all streams.
    pub(crate) requests: u64,
    /// Writes in all streams.
    pub(crate) writes: u64,
    /// The place of the first write: `name:line`.
    pub(crate) first_write: Option<String>,
    pub(crate) skipped: Skipped,
    /// The files that the trace names; empty in most formats.
    pub(crate) files: Vec<TraceFile>,
    /// The first byte of all requests, if any of them has an offset.
    pub(crate) first: Option<u64>,
    /// The first byte past all requests.
    pub(crate) end: u64,
}

impl Trace {
    /// Reads the trace at `path`, or standard input for `-`. `progress` gets the number of bytes
    /// read so far.
    ///
    /// # Errors
    /// A file that can't be read, or a line that doesn't parse, with its number.
    pub(crate) fn load(path: &Path, options: &Options, progress: impl FnMut(u64)) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Self::read(std::io::stdin().lock(), "<stdin>", options, progress);
        }
        let file = File::open(path).with_context(|| format!("can't open the trace {}", path.display()))?;
        Self::read(file, &path.display().to_string(), options, progress)
    }

    /// Reads the trace from `input`.
    pub(crate) fn read(
        input: impl Read,
        name: &str,
        options: &Options,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, Failure> {
        let mut text = TraceText::new(BufReader::with_capacity(1 << 18, input), name);
        let mut loader = Loader::new(options);
        let mut parser: Option<LineParser> = None;
        loop {
            let goes_on = |line: &[u8]| match &parser {
                Some(parser) => parser.goes_on(line),
                None => options.format.unwrap_or_else(|| Format::of(line)).goes_on(line),
            };
            let Some((line, place)) = text.next(goes_on)? else { break };
            if parser.is_none() && options.format.is_none() && !looks_like_a_trace(line) {
                return Err(anyhow!(
                    "{place}: neither CSV, op,offset,length[,group[,thread]], nor a block list, start count …, nor an \
                     iolog of fio, fio version 3 iolog; is this a trace? --format csv, blocks or iolog says what is \
                     wrong \
                     with the line"
                )
                .into());
            }
            let parser = parser.get_or_insert_with(|| {
                let files = options.map.iter().map(|mapped| mapped.name.clone()).collect();
                LineParser::new(options.format, line, options.block_bytes, files)
            });
            if place.number.is_multiple_of(LINES_PER_TICK) {
                signals::check()?;
                progress(place.bytes);
            }
            if let Some(line) = parser.parse(line).with_context(|| place.to_string())? {
                loader.add(&line, &place)?;
            }
            if options.requests_max == Some(loader.trace.requests) {
                break;
            }
        }
        loader.finish(name, parser)
    }

    /// Memory that the requests take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.streams.iter().map(|stream| (stream.capacity() * size_of::<Request>()) as u64).sum()
    }
}

/// Sorts parsed lines into streams.
struct Loader<'a> {
    options: &'a Options,
    trace: Trace,
    group_numbers: HashMap<String, usize>,
    thread_numbers: HashMap<String, usize>,
    /// A read or write came before the first line that names a group.
    unnamed: bool,
    /// How far each file is used, by the file's number. Has one entry if the trace names no files.
    reach: Vec<Reach>,
}

impl<'a> Loader<'a> {
    fn new(options: &'a Options) -> Self {
        let (group_numbers, thread_numbers) = (HashMap::new(), HashMap::new());
        Self { options, trace: Trace::default(), group_numbers, thread_numbers, unnamed: false, reach: vec![] }
    }

    fn new_group(&mut self, name: &str, place: &Place<'_>) -> anyhow::Result<usize> {
        if let Some(allowed) = &self.options.groups_allowed
            && !allowed.iter().any(|allowed| allowed == name)
        {
            bail!("{place}: group `{name}` has no limit: --groups names {}", allowed.join(", "));
        }
        let number = self.trace.groups.len();
        self.group_numbers.insert(name.to_owned(), number);
        self.trace.groups.push(name.to_owned());
        Ok(number)
    }

    fn add(&mut self, line: &Line<'_>, place: &Place<'_>) -> anyhow::Result<()> {
        if self.options.skip_writes && line.op != Op::Read {
            self.trace.skipped.writes += u64::from(line.op == Op::Write);
            return Ok(());
        }
        let Some(end) = line.offset.checked_add(line.len) else {
            bail!("{place}: offset {} + length {} is beyond 2^64", line.offset, line.len);
        };
        let group = match line.group {
            // A format that names files names no groups. So the group field of a request holds the
            // file's number until all files have their places.
            None if line.file > 0 => line.file,
            None if line.op == Op::Sync => 0, // A sync is of the file, whichever group asks.
            name => self.group(name, place)?,
        };
        let Some(request) = Request::new(line.op, line.offset, line.len, group) else {
            bail!(
                "{place}: length {} is beyond what a trace can hold, or it names more than 65536 groups or files",
                line.len
            );
        };
        let worker = self.worker(line.thread);
        if line.op != Op::Sync {
            if self.reach.len() <= line.file {
                self.reach.resize(line.file + 1, Reach::default());
            }
            self.reach[line.file].add(line.offset, end);
        }
        if line.op == Op::Write {
            self.trace.writes += 1;
            self.trace.first_write.get_or_insert_with(|| place.to_string());
        }
        self.trace.requests += 1;
        let stream = &mut self.trace.streams[worker];
        stream.try_reserve(1).with_context(|| format!("{place}: the trace doesn't fit in memory"))?;
        stream.push(request);
        Ok(())
    }

    /// Returns the number of the group that a line names.
    fn group(&mut self, name: Option<&str>, place: &Place<'_>) -> anyhow::Result<usize> {
        let name = match name {
            Some(name) => name,
            None if self.trace.groups.is_empty() => {
                self.unnamed = true;
                return Ok(0);
            }
            None => GROUP_UNNAMED,
        };
        if self.trace.groups.is_empty() && self.unnamed {
            // Earlier lines named no group, and were counted as group number 0.
            self.new_group(GROUP_UNNAMED, place)?;
        }
        match self.group_numbers.get(name) {
            Some(&number) => Ok(number),
            None => self.new_group(name, place),
        }
    }

    /// Returns the stream for a line, creating it if necessary. All lines with the same thread name
    /// go to one stream, in their order.
    fn worker(&mut self, name: Option<&str>) -> usize {
        let worker = match name {
            None => (self.trace.requests % self.options.threads.max(1) as u64) as usize,
            Some(name) => match self.thread_numbers.get(name) {
                Some(&number) => number,
                None => {
                    let number = self.thread_numbers.len() % self.options.threads_max.max(1);
                    self.thread_numbers.insert(name.to_owned(), number);
                    number
                }
            },
        };
        if self.trace.streams.len() <= worker {
            self.trace.streams.resize_with(worker + 1, Vec::new);
        }
        worker
    }

    fn finish(mut self, name: &str, parser: Option<LineParser>) -> Result<Trace, Failure> {
        self.trace.streams.iter_mut().for_each(Vec::shrink_to_fit);
        let log = match &parser {
            Some(LineParser::Iolog(log)) => Some(log),
            _ => None,
        };
        self.trace.skipped =
            Skipped { writes: self.trace.skipped.writes, ..log.map(Iolog::skipped).unwrap_or_default() };
        let names = log.map_or(&[][..], Iolog::files);
        self.trace.files = trace_files::lay_out(names, &self.reach, &self.options.map, self.options.page_bytes)?;
        if self.trace.requests == 0 {
            let skipped = self.trace.skipped.to_text().map_or_else(String::new, |text| format!("; left out: {text}"));
            return Err(anyhow!("{name}: the trace has nothing to replay{skipped}").into());
        }
        let offset = |file: usize| self.trace.files.get(file).map_or(0, |file| file.offset);
        let reach = self.reach.iter().enumerate().map(|(file, reach)| (offset(file), reach));
        self.trace.end = reach.clone().map(|(offset, reach)| offset.saturating_add(reach.end)).max().unwrap_or(0);
        self.trace.first = reach.filter_map(|(offset, reach)| Some(offset.saturating_add(reach.first?))).min();
        if !self.trace.files.is_empty() {
            self.move_requests();
        }
        let map = &self.options.map;
        self.trace.files.retain(|file| map.is_empty() || map.iter().any(|mapped| mapped.name == file.name));
        Ok(self.trace)
    }

    /// Moves each request to the place of its file.
    fn move_requests(&mut self) {
        let files = &self.trace.files;
        let several = files.iter().filter(|file| file.bytes > 0).count() > 1;
        for request in self.trace.streams.iter_mut().flatten() {
            let Some(file) = files.get(request.group()) else { continue };
            let moved = match request.op() {
                // A sync is of a whole file of the trace. If there are several files, each is only
                // a part of the run's file.
                Op::Sync if several => request.moved(file.offset, file.bytes),
                Op::Sync => request.moved(0, 0),
                Op::Read | Op::Write => request.moved(file.offset.saturating_add(request.offset()), request.len()),
            };
            // A sync becomes one of the whole file if its range is too long for a `Request`.
            *request = moved.or_else(|| request.moved(0, 0)).unwrap_or(*request);
        }
    }
}

#[cfg(test)]
mod tests;
