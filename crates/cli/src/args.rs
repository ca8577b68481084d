//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::choices::{Advised, BackendChoice, Groups, SwapChoices, SwapPlacement};
use crate::generate::Pattern;
use crate::trace_files::Mapped;
use crate::trace_line::Format;
use crate::units::{
    parse_count, parse_depth, parse_duration, parse_percent, parse_positive_size, parse_seed, parse_threads,
};

/// Files larger than memory, read and written through a page cache with a real budget, for many
/// tenants at once.
#[derive(Debug, Parser)]
#[command(name = "pagefold", version, max_term_width = 100, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Access a file through Pagefold, from a trace or with generated accesses, and report
    ///
    /// Without arguments: a temporary 1 GiB file, read through a budget of 128 MiB by four groups
    /// for ten seconds, every byte checked.
    Replay(Box<ReplayArgs>),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  pagefold completions bash > ~/.local/share/bash-completion/completions/pagefold"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The arguments of `pagefold replay`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and more on each option.")]
pub(crate) struct ReplayArgs {
    /// File to use; a temporary one with checkable content if not given. Written to only with
    /// --allow-writes
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Trace to replay; `-` for standard input
    ///
    /// Three formats are known.
    ///
    /// CSV: `op,offset,length[,group[,thread]]`, with or without a header. op is r or read, w or
    /// write, or sync, fsync or flush. offset and length are in bytes; group and thread are any
    /// names. A write past the end makes the file longer. A sync without offset and length syncs
    /// the whole file.
    ///
    /// With a header, the columns may come in any order and among other columns, and may have other
    /// names, such as type, rw or size.
    ///
    /// Block list: `start count …`, one request a line; further numbers are ignored (the format of
    /// the ARC traces).
    ///
    /// The output of `fio --write_iolog`, version 2 or 3. It is replayed as fast as possible:
    /// timestamps, waits and trims are ignored. If it names several files, see --map.
    ///
    /// Empty lines and lines that begin with `#` are skipped. Each group named in the trace becomes
    /// a group, and each thread named there becomes a thread. If the trace names more threads than
    /// --threads [default: 128], several of them share one thread.
    ///
    /// A trace that names no threads is replayed by one thread, in order. With --threads N, its
    /// operations are dealt to N threads in turn. --groups N does the same if --threads isn't
    /// given.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Accesses")]
    pub(crate) trace: Option<PathBuf>,

    /// Format of the trace, if its first line doesn't tell
    #[arg(long, value_enum, requires = "trace", help_heading = "Accesses")]
    pub(crate) format: Option<Format>,

    /// What a block list counts in [default: the page size]
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, requires = "trace", help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) block_size: Option<u64>,

    /// Where files of a trace begin in FILE, as in a.dat=0,b.dat=1GiB; operations on other files
    /// are left out
    ///
    /// An iolog of fio names files. If there are several, they lie one after the other in FILE,
    /// unless this option says otherwise.
    #[arg(long, value_name = "NAME=OFFSET", value_delimiter = ',', requires = "trace", help_heading = "Accesses")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| Mapped::parse(&text)))]
    pub(crate) map: Vec<Mapped>,

    /// Leave the trace's writes and syncs out
    #[arg(long, requires = "trace", help_heading = "Accesses")]
    pub(crate) skip_writes: bool,

    /// Start the trace over when it ends, until --time or --ops
    #[arg(long = "loop", requires = "trace", help_heading = "Accesses")]
    pub(crate) looped: bool,

    /// Accesses to make up: zipf:EXPONENT, uniform, seq, scan+zipf:EXPONENT
    ///
    /// The file is divided into blocks of --read-size bytes. zipf: a few blocks are hot; each group
    /// has its own hot blocks. uniform: every block is equally likely. seq: all blocks in order,
    /// over and over; the threads start at evenly spaced blocks. scan+zipf: reads alternate between
    /// seq and zipf. A list, as in `seq,zipf:0.99`, assigns its patterns to the groups round robin.
    #[arg(short, long, value_name = "PATTERN", value_delimiter = ',', default_value = "zipf:0.99")]
    #[arg(conflicts_with = "trace", help_heading = "Accesses")]
    pub(crate) generate: Vec<Pattern>,

    /// Length of each generated read or write
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, default_value = "4KiB")]
    #[arg(conflicts_with = "trace", help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) read_size: u64,

    /// How many of a hundred generated accesses are reads; the others are writes
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, default_value = "100")]
    #[arg(conflicts_with = "trace", help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) reads: u64,

    /// Sync the file each time that this much time has passed [default: only at the end]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) sync_every: Option<Duration>,

    /// Permit writes to FILE, which loses its contents
    #[arg(long, help_heading = "Accesses")]
    pub(crate) allow_writes: bool,

    /// Size of the temporary file, or the part of FILE to use
    ///
    /// By default the temporary file is 1 GiB, or as long as the trace needs, and all of FILE is
    /// used.
    #[arg(long, value_name = "SIZE", value_parser = parse_positive_size, help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) size: Option<u64>,

    /// Stop each run after this time [default: 10s, or when the trace ends]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) time: Option<Duration>,

    /// Stop each run after this many operations, as in 5M
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) ops: Option<u64>,

    /// Seed of generated accesses and of the temporary file's content
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value = "1", help_heading = "Accesses")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) seed: u64,

    /// Memory budget; a list, as in 64MiB,128MiB,256MiB, gives one run each and a hit-rate curve
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_positive_size)]
    #[arg(default_value = "128MiB", help_heading = "Memory")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) memory: Vec<u64>,

    /// Room for so many pages of data, in place of --memory; a list, as in 1k,2k,4k, gives one run
    /// each
    ///
    /// The groups share this room. The budget is larger, because it also has room for page maps and
    /// other metadata.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_count, help_heading = "Memory")]
    #[arg(conflicts_with_all = ["memory", "anonymous"], allow_hyphen_values = true)]
    pub(crate) pages: Vec<u64>,

    /// The order of reads that Pagefold is told to expect: random (nothing is read ahead),
    /// sequential, normal
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true, default_value = "normal")]
    #[arg(conflicts_with = "anonymous", help_heading = "Memory")]
    pub(crate) advise: Advised,

    /// Use anonymous memory of --size bytes in place of a file; it is filled before the run
    ///
    /// The memory belongs to one group. Pages that don't fit into the budget go to --swap.
    #[arg(long, help_heading = "Memory")]
    #[arg(conflicts_with_all = ["file", "groups", "sync_every", "allow_writes", "temp_dir"])]
    pub(crate) anonymous: bool,

    /// Swap areas for --anonymous: a list of FILE:SIZE. Each area is a new file without a name, in
    /// the directory of FILE
    ///
    /// FILE is that directory, or a name in it that isn't in use; no file gets this name.
    /// `memory:SIZE` keeps pages in memory outside the budget.
    ///
    /// `compressed:SIZE` keeps compressed pages in memory, in up to SIZE of the budget. It is
    /// filled before the other swap areas. A page that doesn't shrink to at most three quarters of
    /// its size goes to the other areas. When SIZE is full, the pages that were compressed longest
    /// ago move to the other areas, too. Example: compressed:64MiB,/var/tmp/pf.swap:2GiB.
    #[arg(long, value_name = "FILE:SIZE", requires = "anonymous", help_heading = "Memory")]
    #[arg(value_parser = OsStringValueParser::new().try_map(|text| SwapChoices::parse(&text)))]
    pub(crate) swap: Vec<SwapChoices>,

    /// Encrypt what goes to --swap, with a key that is in memory alone
    ///
    /// Pages in `compressed:SIZE` are in memory, and aren't encrypted there.
    #[arg(long, requires = "swap", help_heading = "Memory")]
    pub(crate) swap_encrypted: bool,

    /// How CPUs share the slots of --swap: per-cpu, or sequential (for a disk that seeks) [default:
    /// depends on the disk]
    ///
    /// per-cpu: each CPU has a cluster of slots of its own. sequential: all CPUs fill one cluster
    /// after the other, so that pages are written in order. The report says what was chosen for
    /// each area, and why. Areas for compressed pages, which stay in memory, are always per-cpu.
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true, requires = "swap")]
    #[arg(help_heading = "Memory")]
    pub(crate) swap_placement: Option<SwapPlacement>,

    /// Number of groups, or a limit for each by name: a=64MiB,b=32MiB [default: 4, or the trace's]
    ///
    /// A number creates that many groups, each with an equal share of the budget as its limit. The
    /// groups that a trace names get equal limits, too. Limits given by name may add up to more
    /// than the budget; then the groups compete for memory. Threads are dealt to the groups in
    /// turn, unless a trace names the group of each operation.
    #[arg(long, value_name = "GROUPS", help_heading = "Memory")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) groups: Option<Groups>,

    /// Number of threads [default: one for each group, or the trace's]
    ///
    /// If a trace names no threads, its operations are dealt to the N threads in turn. If it names
    /// threads, there are as many as it names, at most N.
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_hyphen_values = true, help_heading = "Memory")]
    pub(crate) threads: Option<u16>,

    /// Operations that a thread has under way at a time, up to 1024
    ///
    /// Successive reads, or successive writes, are issued together, in batches of up to N. The time
    /// of each is the time of its batch. Operations of more than 1 MiB are issued one at a time.
    #[arg(long, value_name = "N", value_parser = parse_depth, default_value = "1", help_heading = "Memory")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) depth: u16,

    /// Page size, a power of two from 4KiB to 2MiB
    #[arg(long, help_heading = "Memory")]
    #[arg(value_name = "SIZE", value_parser = parse_positive_size, default_value = "4KiB")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) page_size: u64,

    /// How pages are read and written: auto, uring, threads[:N], posix, direct, buffered,
    /// simulated[:CAPACITY]
    #[arg(long, value_name = "BACKEND", default_value = "auto", help_heading = "Memory", long_help = BACKENDS)]
    pub(crate) backend: BackendChoice,

    /// How long an access waits for the device before it fails [default: as long as the device
    /// takes]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Memory")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) io_timeout: Option<Duration>,

    /// Touch all memory before the clock starts
    #[arg(long, help_heading = "Memory")]
    pub(crate) pretouch: bool,

    /// Compare every byte read with what the file holds [default for a temporary file]
    ///
    /// Each write stamps its bytes with the writing thread, the time and the place. So every byte
    /// that is read must be either a byte from before the run, or a byte that some thread wrote to
    /// that place; anything else is an error. It is also an error if a thread reads bytes that are
    /// older than its own last write to that place.
    ///
    /// At the end the file is synced, read once more without Pagefold, and compared with the last
    /// writes. This takes memory besides the budget: about 60 bytes for each range written.
    #[arg(long, conflicts_with = "no_verify", help_heading = "Checks and output")]
    pub(crate) verify: bool,

    /// Compare nothing
    #[arg(long, help_heading = "Checks and output")]
    pub(crate) no_verify: bool,

    /// Print JSON instead of tables
    #[arg(long, help_heading = "Checks and output")]
    pub(crate) json: bool,

    /// Print what known policies would have missed beside what Pagefold loaded
    ///
    /// The policies LRU, ARC, S3-FIFO, W-TinyLFU, LIRS and OPT (which knows the future) are
    /// simulated on the pages that the run touched. Each has room for as many pages as the budget
    /// would hold without metadata; with --pages, Pagefold has the same room. The simulated
    /// policies read nothing ahead. A write to a page that isn't in memory counts as a miss. For
    /// Pagefold, the report counts its misses plus the pages that it read ahead.
    ///
    /// With one thread and without --depth, the simulated accesses have the order of the run.
    /// Otherwise that order isn't known exactly, and each thread's accesses are spread evenly over
    /// the run. The report takes memory besides the budget: about 12 bytes for each access.
    #[arg(long, conflicts_with = "anonymous", help_heading = "Checks and output")]
    pub(crate) policy_report: bool,

    /// Write the hit rate over the budget as a picture; needs a list in --memory or --pages
    ///
    /// With --policy-report, the curves are those of the policies and of Pagefold.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath, help_heading = "Checks and output")]
    pub(crate) plot: Option<PathBuf>,

    /// Write the latencies of the (last) run by percentile as a picture: for each group, with reads
    /// and writes apart
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath, help_heading = "Checks and output")]
    pub(crate) plot_latency: Option<PathBuf>,

    /// Write the (last) run's metrics for Prometheus
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Checks and output")]
    pub(crate) prometheus: Option<PathBuf>,

    /// Where the temporary file goes [default: $TMPDIR, else /tmp or /var/tmp, whichever is on a
    /// disk]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "file")]
    #[arg(help_heading = "Checks and output")]
    pub(crate) temp_dir: Option<PathBuf>,

    /// No progress bars and no live line
    #[arg(short, long, help_heading = "Checks and output")]
    pub(crate) quiet: bool,
}

const BACKENDS: &str = "How pages are read and written

auto: uring, or threads if the system refuses io_uring. uring: the thread that misses reads a single page itself; \
several pages at once, and pages read ahead, go through io_uring; both bypass the kernel's page cache where the file \
system allows it. threads[:N]: like uring, with up to N threads (default 32) in place of io_uring. posix: the thread \
that misses, reads ahead or writes back makes each system call itself. direct: like posix, but always past the \
kernel's page cache; an error if the file system doesn't allow that. buffered: like posix, but through the kernel's \
page cache; pages are dropped from it soon after. simulated[:CAPACITY]: a disk that exists in memory only, with a \
clock of its own. The file can grow by CAPACITY there (default: no limit). The disk's power is cut before the \
comparison at the end.";

const EXAMPLES: &str = "\
Examples:
  A first look: 1 GiB in 128 MiB, four groups, ten seconds, verified
      pagefold replay
  Your file, your budget, uniform reads by eight threads
      pagefold replay data.bin --memory 512MiB --generate uniform --threads 8 --groups 1
  A trace, with limits for the groups it names
      pagefold replay data.bin --trace day.csv --memory 1GiB --groups web=768MiB,batch=256MiB
  How much memory is worth having: one run for each budget, and a curve
      pagefold replay --trace oltp.lis --memory 32MiB,64MiB,128MiB,256MiB --plot curve.svg
  How good is the choice of pages? Pagefold beside known policies, in the same room
      pagefold replay --trace oltp.lis --pages 1k,2k,4k --policy-report
  Does a scan in one group hurt another?
      pagefold replay --generate seq,zipf:0.99 --groups scan=64MiB,web=64MiB
  Half of it writes, a sync each second, everything checked
      pagefold replay --reads 50 --sync-every 1s
  Random overwrites of a file of yours, WHICH LOSES WHAT IT HOLDS
      pagefold replay scratch.bin --reads 0 --generate uniform --allow-writes --verify
  Anonymous memory of eight times the budget, with swap; half of the accesses are writes
      pagefold replay --anonymous --swap /var/tmp/pf.swap:2GiB --size 1GiB --reads 50
  The same with a part of the budget for compressed pages, before the file
      pagefold replay --anonymous --swap compressed:32MiB,/var/tmp/pf.swap:2GiB --size 1GiB --reads 50
  Swap on a virtual disk that the host keeps on a rotating one
      pagefold replay --anonymous --swap /mnt/slow:2GiB --swap-placement sequential --size 1GiB
  What fio did, once more, in a temporary file
      fio job.fio --write_iolog=job.log; pagefold replay --trace job.log
  A compressed trace, the result as JSON
      zstdcat day.csv.zst | pagefold replay data.bin --trace - --json

Sizes are in bytes, or in KiB, MiB, GiB and TiB; K and KB, M and MB and so on mean the same (1 MB is \
1 MiB). Times are in seconds, or in ms, s, m and h.

PAGEFOLD_LOG sets how much of the library's log is printed on standard error: off, error, warn (the default), info, \
debug or trace.

In the table, `hits` is the share of page lookups that found the page in memory. Percentiles are of the time that \
reads took, hits and misses alike; in the table of writes, of the time that writes took. `in` is what came from the \
backend; a refault is the return of a page that was evicted. `peak` is the most memory that was charged at any \
moment. A page is charged to the group that loads it; if other groups then read it, that is a hit. `CPU/op` of a \
group is the CPU time of its threads, which also choose the accesses and check the bytes; that of the total is the \
CPU time of the whole process. In the table of writes, `written` is what the threads wrote into memory, `out` is \
what went to the backend in whole pages, and `unclean` is what hadn't gone there yet when the operations ended; the \
sync at the end writes it.

Ctrl-C stops the run, writes back what was written, prints what was done so far and removes the temporary file; \
pressed \
again, it ends at once, and says how much wasn't written.

Exit code: 0 done; 1 a file, a trace or a check failed; 2 the command line makes no sense; 130 Ctrl-C (SIGINT), \
143 SIGTERM, 129 SIGHUP.
";
