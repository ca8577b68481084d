//! Translates the command line into the settings of each experiment: the sizes for the tables, or
//! those of a quick run.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::peers::cli::{Common, DiskArgs, HitArgs, MissArgs, MissRateArgs, ScanArgs, Size, Timed, WriteArgs};
use crate::peers::disk::Workload;
use crate::peers::measure::Effort;
use crate::peers::subject::Operation;
use crate::peers::subjects::Kind;
use crate::peers::table::distinct;
use crate::peers::{atomics, disk, hit, miss, miss_rate, scan, write};
use crate::usage::Usage;

/// Long enough to leave the processor's caches between two passes.
const SEQUENCE: usize = 1 << 22;
const SEQUENCE_QUICK: usize = 1 << 16;

pub(crate) fn hit(args: &HitArgs) -> Result<hit::Settings> {
    let quick = args.common.quick;
    Ok(hit::Settings {
        kinds: kinds(&args.common, Kind::all(), Kind::all(), "hit")?,
        operations: if args.reads.is_empty() { Operation::value_variants().to_vec() } else { args.reads.clone() },
        pages: pages(&args.size, quick, 1 << 17, 4096),
        threads: args.timed.threads.clone(),
        rounds: rounds(&args.common, 7),
        effort: effort(&args.timed, quick, 0.3),
        sequence: if quick { SEQUENCE_QUICK } else { SEQUENCE },
        file: args.size.file.clone(),
    })
}

pub(crate) fn atomics(args: &HitArgs) -> Result<atomics::Settings> {
    Ok(atomics::Settings {
        counted: atomics::Counted::Hits,
        kinds: kinds(&args.common, atomics::usual(), Kind::all(), "hit --count")?,
        pages: pages(&args.size, args.common.quick, 1 << 14, 1024),
        ops: counted_ops(&args.timed, args.common.quick)?,
        file: args.size.file.clone(),
    })
}

pub(crate) fn miss_atomics(args: &MissArgs) -> Result<atomics::Settings> {
    Ok(atomics::Settings {
        counted: atomics::Counted::Misses,
        kinds: kinds(&args.common, miss::possible(), miss::possible(), "miss --count")?,
        pages: pages(&args.size, args.common.quick, 1 << 16, 4096),
        ops: counted_ops(&args.timed, args.common.quick)?,
        file: args.size.file.clone(),
    })
}

fn counted_ops(timed: &Timed, quick: bool) -> Result<usize> {
    Ok(usize::try_from(timed.ops.unwrap_or(if quick { 100 } else { 1_000 }))?)
}

pub(crate) fn miss(args: &MissArgs) -> Result<miss::Settings> {
    let quick = args.common.quick;
    Ok(miss::Settings {
        kinds: kinds(&args.common, miss::possible(), miss::possible(), "miss")?,
        pages: pages(&args.size, quick, 1 << 20, 16_384),
        threads: args.timed.threads.clone(),
        rounds: rounds(&args.common, 5),
        effort: effort(&args.timed, quick, 1.0),
        sequence: if quick { SEQUENCE_QUICK } else { SEQUENCE },
        file: args.size.file.clone(),
    })
}

pub(crate) fn miss_rate(args: &MissRateArgs) -> Result<miss_rate::Settings> {
    let quick = args.common.quick;
    let ops = args.ops.unwrap_or(if quick { 1 << 17 } else { 1 << 22 });
    Ok(miss_rate::Settings {
        kinds: kinds(&args.common, Kind::evicting(), Kind::evicting(), "miss-rate")?,
        pages: pages(&args.size, quick, 1 << 20, 32_768),
        rounds: rounds(&args.common, 3),
        ops: usize::try_from(ops)?,
        file: args.size.file.clone(),
    })
}

pub(crate) fn scan(args: &ScanArgs) -> Result<scan::Settings> {
    Ok(scan::Settings {
        kinds: kinds(&args.common, Kind::evicting(), Kind::evicting(), "scan")?,
        budget_pages: pages(&args.size, args.common.quick, 1 << 16, 4096),
        rounds: rounds(&args.common, 3),
        file: args.size.file.clone(),
    })
}

pub(crate) fn write(args: &WriteArgs) -> Result<write::Settings> {
    let quick = args.common.quick;
    let seconds = args.seconds.unwrap_or(if quick { 0.1 } else { 4.0 });
    Ok(write::Settings {
        kinds: kinds(&args.common, write::possible(), write::possible(), "write")?,
        parts: if args.parts.is_empty() { write::Part::value_variants().to_vec() } else { args.parts.clone() },
        directory: args.dir.clone(),
        budget_pages: args.pages.unwrap_or(if quick { 2048 } else { 1 << 16 }),
        synced_pages: if quick { 4096 } else { 1 << 18 },
        rounds: rounds(&args.common, 3),
        overwriting: Duration::from_secs_f64(seconds),
        reading: Duration::from_secs_f64(if quick { 0.02 } else { 0.5 }),
        sync_period: Duration::from_secs_f64(if quick { 0.05 } else { 1.0 }),
    })
}

pub(crate) fn disk(args: &DiskArgs) -> Result<disk::Settings> {
    let quick = args.common.quick;
    let workloads = if args.workloads.is_empty() { Workload::value_variants() } else { &args.workloads };
    let seconds = args.seconds.unwrap_or(if quick { 0.05 } else { 1.0 });
    Ok(disk::Settings {
        kinds: kinds(&args.common, disk::possible(), disk::possible(), "disk")?,
        workloads: distinct(workloads.iter().copied()),
        directory: args.dir.clone(),
        budget_pages: args.pages.unwrap_or(if quick { 2048 } else { 1 << 16 }),
        rounds: rounds(&args.common, 3),
        time: Duration::from_secs_f64(seconds),
        idle: Duration::from_secs_f64(if quick { 0.05 } else { 10.0 }),
        quick,
    })
}

/// Returns the subjects that the user names, or `usual` if the user names none. Fails if one of
/// them isn't in `possible`.
fn kinds(common: &Common, usual: Vec<Kind>, possible: Vec<Kind>, experiment: &str) -> Result<Vec<Kind>> {
    if common.subjects.is_empty() {
        return Ok(usual);
    }
    for kind in &common.subjects {
        if !possible.contains(kind) {
            let names: Vec<String> = possible.iter().map(|kind| kind.name()).collect();
            let message = format!("{} has no place in {experiment}, but {} have", kind.name(), names.join(", "));
            return Err(Usage::error(message));
        }
    }
    Ok(distinct(common.subjects.iter().copied()))
}

fn pages(size: &Size, quick: bool, usual: u32, small: u32) -> u32 {
    size.pages.unwrap_or(if quick { small } else { usual })
}

fn rounds(common: &Common, usual: u32) -> u32 {
    common.rounds.unwrap_or(if common.quick { 2 } else { usual })
}

fn effort(timed: &Timed, quick: bool, usual_seconds: f64) -> Effort {
    if let Some(ops) = timed.ops {
        return Effort::Ops(ops);
    }
    let seconds = timed.seconds.unwrap_or(if quick { 0.01 } else { usual_seconds });
    Effort::Time(Duration::from_secs_f64(seconds))
}

/// The parts of `peers all`: every experiment that can measure at least one of the wanted subjects,
/// with its usual sizes.
pub(crate) struct All {
    pub(crate) hit: Option<HitArgs>,
    pub(crate) miss: Option<MissArgs>,
    pub(crate) miss_rate: Option<MissRateArgs>,
    pub(crate) scan: Option<ScanArgs>,
    pub(crate) write: Option<WriteArgs>,
    pub(crate) disk: Option<DiskArgs>,
}

impl All {
    /// Each experiment gets those of the wanted subjects that it knows.
    pub(crate) fn of(common: &Common) -> Self {
        let only = |possible: Vec<Kind>| {
            let subjects: Vec<Kind> = common.subjects.iter().copied().filter(|kind| possible.contains(kind)).collect();
            (common.subjects.is_empty() || !subjects.is_empty()).then(|| Common { subjects, ..common.clone() })
        };
        let size = || Size { pages: None, file: None };
        let timed = || Timed { threads: vec![1, 2], seconds: None, ops: None };
        let evicting = only(Kind::evicting());
        Self {
            hit: only(Kind::all()).map(|common| HitArgs {
                common,
                size: size(),
                timed: timed(),
                reads: vec![],
                count: false,
            }),
            miss: only(miss::possible()).map(|common| MissArgs { common, size: size(), timed: timed(), count: false }),
            miss_rate: evicting.clone().map(|common| MissRateArgs { common, size: size(), ops: None }),
            scan: evicting.map(|common| ScanArgs { common, size: size() }),
            disk: only(disk::possible()).map(|common| DiskArgs {
                common,
                workloads: vec![],
                pages: None,
                dir: None,
                seconds: None,
            }),
            write: only(write::possible()).map(|common| WriteArgs {
                common,
                pages: None,
                dir: None,
                seconds: None,
                parts: vec![],
            }),
        }
    }
}
