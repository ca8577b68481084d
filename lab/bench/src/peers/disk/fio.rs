//! What `fio` says the disk does.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::contents::offset_of;
use crate::peers::disk::round::Round;
use crate::peers::disk::workload::{READS_OF_MIXED, Workload, warm_pages};
use crate::peers::scratch::Scratch;

/// Requests of a quick look.
const QUICK: u32 = 256;

/// Whether it is installed.
pub(super) fn is_installed() -> bool {
    Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs fio on `workload`, past the kernel's page cache, for `time` or, with `quick`, for a few
/// requests. Returns `None` if fio can't do the workload. Unlike the other subjects, fio checks
/// nothing, copies nothing and caches nothing. If the workload writes, the file holds fio's bytes
/// afterwards.
pub(super) fn round(
    workload: Workload,
    file: &Scratch,
    time: Duration,
    quick: bool,
    seed: u64,
) -> Result<Option<Round>> {
    let pattern: &[&str] = match workload {
        Workload::Random1 | Workload::Random16 | Workload::Random64 => &["--rw=randread", "--bs=4k"],
        Workload::Sequential => &["--rw=read", "--bs=1M"],
        Workload::Strided => &["--rw=read:28k", "--bs=4k"],
        Workload::Mixed => &["--rw=randrw", "--bs=4k", "--end_fsync=1"],
        Workload::Interleaved | Workload::Idle => return Ok(None),
    };
    let start = offset_of(warm_pages(file.pages()));
    let mut fio = Command::new("fio");
    fio.args(["--name=disk", "--direct=1", "--ioengine=io_uring", "--output-format=json", "--overwrite=1"])
        .args(pattern);
    fio.arg(format!("--iodepth={}", workload.depth())).arg(format!("--rwmixread={READS_OF_MIXED}"));
    fio.arg(format!("--offset={start}")).arg(format!("--size={}", offset_of(file.pages()) - start));
    let length = if quick { format!("--number_ios={QUICK}") } else { format!("--runtime={}ms", time.as_millis()) };
    fio.arg(length).arg(format!("--randseed={}", seed + 1));
    let output = fio.arg(format!("--filename={}", file.path().display())).output().context("cannot start fio")?;
    ensure!(output.status.success(), "fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let json: Value = serde_json::from_slice(&output.stdout).context("fio printed no JSON")?;
    parse(&json["jobs"][0]).map(Some).context("fio's JSON lacks what is expected there")
}

fn parse(job: &Value) -> Option<Round> {
    let (read, write) = (&job["read"], &job["write"]);
    let number = |value: &Value| value.as_f64();
    let percentile = |percent| Some(number(&read["clat_ns"]["percentile"][percent])? / 1e3);
    // In whole milliseconds, and in 0 of them nothing has happened.
    let seconds = number(&read["runtime"])?.max(number(&write["runtime"])?).max(1.0) / 1e3;
    Some(Round {
        reads: read["total_ios"].as_u64()?,
        writes: write["total_ios"].as_u64()?,
        bytes: read["io_bytes"].as_u64()? + write["io_bytes"].as_u64()?,
        seconds,
        cpu_seconds: (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0 * number(&job["job_runtime"])? / 1e3,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        unused: None,
        peak_bytes: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_prints_is_understood() {
        let text = r#"{"usr_cpu": 4.0, "sys_cpu": 36.0, "job_runtime": 2000,
            "read": {"io_bytes": 8192, "total_ios": 2, "runtime": 2000,
                     "clat_ns": {"percentile": {"50.000000": 1500, "99.000000": 9000}}},
            "write": {"io_bytes": 4096, "total_ios": 1, "runtime": 1900}}"#;
        let round = parse(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((round.reads, round.writes, round.bytes, round.seconds), (2, 1, 12_288, 2.0));
        assert!((round.cpu_seconds - 0.8).abs() < 1e-9, "{round:?}");
        assert_eq!((round.p50_us, round.p99_us), (1.5, 9.0));
        assert!(parse(&serde_json::from_str("{}").unwrap()).is_none());
    }
}
