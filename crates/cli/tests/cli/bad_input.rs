//! For any wrong input, the command says what is wrong, and leaves no file behind. Its exit code is
//! 2 for a wrong command line, and 1 for everything else.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::place::{Done, Place, not_here, wait_for_operations};
use crate::replay::wait_for_temporary_file;

const USAGE: i32 = 2;
const FAILURE: i32 = 1;

/// A small run, if nothing were wrong with it.
const SMALL: &str = "replay --size 1MiB --memory 512KiB --ops 100 --groups 1 --quiet";

fn assert_fails(done: &Done, code: i32, message: &str) {
    assert_eq!(done.code, Some(code), "{done:?}");
    assert!(done.err.contains(message), "expected `{message}` in {done:?}");
    assert!(done.err.starts_with("error: "), "{done:?}");
}

#[test]
fn arguments_that_make_no_sense() {
    let place = Place::new();
    for (more, message) in [
        ("--memory 12parsecs", "`12parsecs` isn't a size"),
        ("--memory 0", "more than 0 bytes"),
        ("--memory 64MiB,", "--memory"),
        ("--memory 99999999999TiB", "isn't a size"),
        ("--memory 100TiB --pretouch", "a budget of 100 TiB can't be touched: this "),
        ("--pages 100", "cannot be used with"),
        ("--page-size 3000", "page size"),
        ("--page-size 64MiB", "page size"),
        ("--size 10furlongs", "isn't a size"),
        ("--size 16EiB", "isn't a size"),
        ("--time 10parsecs", "unknown unit `parsecs`"),
        ("--time=-1s", "--time"),
        ("--ops many", "whole number"),
        ("--threads 0", "`0` isn't a number of threads from 1 to"),
        ("--threads 100000", "`100000` isn't a number of threads from 1 to"),
        ("--threads -1", "`-1` isn't a number of threads from 1 to"),
        ("--threads abc", "`abc` isn't a number of threads"),
        ("--seed -1", "`-1` isn't a whole number"),
        ("--memory -5MiB", "`-5MiB` isn't a size"),
        ("--size -1", "`-1` isn't a size"),
        ("--ops -1", "whole number"),
        ("--groups -1", "`-1` is neither"),
        ("--verify --no-verify", "cannot be used with"),
        ("--memory 1MiB,2MiB --plot x.png", "plots are SVG: name the file x.svg"),
        ("--plot-latency x.png", "plots are SVG: name the file x.svg"),
        ("--plot-latency no/such/dir.svg", "no such directory"),
        ("--groups 0", "must be from 1 to"),
        ("--groups a=64MiB,a=1MiB", "named twice"),
        ("--groups a=lots", "limit of `a`"),
        ("--generate zipf:x", "exponent"),
        ("--generate random", "expected zipf"),
        ("--generate seq,zipf", "lists 2 patterns, more than there are groups to deal them to (1)"),
        ("--depth 8 --read-size 2MiB", "at most 1 MiB together, and --read-size is 2 MiB"),
        ("--plot-latency a.svg --prometheus a.svg", "a.svg is named for two outputs"),
        ("--plot-latency a.svg --prometheus ./a.svg", "a.svg is named for two outputs"),
        ("--backend floppy", "expected auto"),
        ("--backend threads:0", "number of threads"),
        ("--plot curve.svg", "two budgets or more"),
        ("--prometheus no/such/dir", "no such directory"),
        ("--trace t --generate seq", "cannot be used with"),
        ("--trace t --loop", "--loop needs --time or --ops"),
        ("--skip-writes", "--trace"),
        ("--map a=0", "--trace"),
        ("--trace t --map a", "as in a.dat=0"),
        ("--trace t --map a=b", "offset of `a`"),
        ("--reads 101", "`101` isn't a whole number from 0 to 100"),
        ("--reads -1", "`-1` isn't a whole number from 0 to 100"),
        ("--reads 50.5", "isn't a whole number"),
        ("--trace t --reads 50", "cannot be used with"),
        ("--reads 50 --sync-every 0", "more than 0"),
        ("--io-timeout soon", "--io-timeout"),
        ("--reads 50 --sync-every often", "--sync-every"),
        ("--sync-every 1s", "--sync-every has nothing to sync"),
        ("--backend simulated:none", "capacity"),
        ("--frobnicate", "--frobnicate"),
        ("a b", "unexpected argument"),
    ] {
        // An option of this case replaces the same option of the small run, because clap refuses
        // some options that are given twice.
        let option = more.split_whitespace().next().unwrap();
        let repeated = SMALL.find(&format!("{option} ")).filter(|_| option.starts_with("--"));
        let mut line = SMALL.to_owned();
        if let Some(at) = repeated {
            let end = line[at..].match_indices(' ').nth(1).map_or(line.len(), |(end, _)| at + end);
            line.replace_range(at..end, "");
        }
        if more.starts_with("--trace t --loop") {
            line = "replay".to_owned();
        }
        assert_fails(&place.run(&format!("{line} {more}"), &[]), USAGE, message);
    }
    assert!(place.temporary_files().is_empty());
}

#[test]
fn output_that_can_not_be_written_is_noticed_before_the_run() {
    let place = Place::new();
    // Not even root makes files there.
    for more in ["--prometheus /proc/metrics", "--memory 512KiB,1MiB --plot /proc/x.svg"] {
        let done = place.run(&format!("replay --size 1MiB --time 1h {more}"), &[]);
        assert_fails(&done, FAILURE, "can't write /proc/");
        assert_eq!(done.out, "");
    }
    let done = place.run("replay gone.bin --prometheus metrics", &[]);
    assert_fails(&done, FAILURE, "gone.bin");
    assert!(!place.path("metrics").exists(), "no empty file is left behind");
}

/// Regression: if `--prometheus`, `--plot` or `--plot-latency` named the file that was read, or the
/// trace, the command overwrote it without asking. It must refuse.
#[test]
fn output_that_would_replace_the_input_is_refused() {
    let place = Place::new();
    let trace = place.file("trace.svg", "0 4096\n");
    let data = place.file("data.svg", vec![7; 1 << 20]);
    std::fs::hard_link(&data, place.path("other.svg")).unwrap();
    let (before, same) = (std::fs::read(&trace).unwrap(), place.path("other.svg").to_str().unwrap().to_owned());
    for output in ["--prometheus", "--plot-latency", "--memory 512KiB,1MiB --plot"] {
        for path in [&trace, &data, &same] {
            let done = place.run("replay --quiet --ops 100 --groups 1 --trace", &[&trace, &data]);
            assert_eq!(done.code, Some(0), "{done:?}");
            let line = format!("replay --quiet --ops 100 --groups 1 {output} {path} --trace");
            assert_fails(&place.run(&line, &[&trace, &data]), USAGE, "which would be lost");
        }
    }
    // Standard input may be the same file, too.
    let line = format!("replay --quiet --ops 100 --trace - --prometheus {trace}");
    let input = std::fs::File::open(&trace).unwrap();
    let child = place.command(&line, &[]).stdin(input).spawn().unwrap();
    assert_fails(&Done::of(child), USAGE, "which would be lost");
    // One output would replace the other.
    let one = place.file("one.svg", "");
    std::fs::hard_link(&one, place.path("two.svg")).unwrap();
    let line = format!("replay --quiet --ops 100 --plot-latency {one} --prometheus two.svg");
    assert_fails(&place.run(&line, &[]), USAGE, "two outputs: one would be lost");
    assert_eq!(std::fs::read(&trace).unwrap(), before);
    assert_eq!(std::fs::read(&data).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn a_file_that_another_program_writes_to_is_not_written() {
    let place = Place::new();
    let data = place.file("data.bin", vec![7; 1 << 20]);
    let other = std::fs::File::open(&data).unwrap();
    other.lock().unwrap();
    let line = "replay --quiet --memory 512KiB --ops 100 --groups 1 --reads 50 --allow-writes";
    assert_fails(&place.run(line, &[&data]), FAILURE, "wait until that program has closed it");
    assert_eq!(place.run("replay --quiet --memory 512KiB --ops 100 --groups 1", &[&data]).code, Some(0));
}

#[test]
fn a_budget_too_small_for_its_threads() {
    let place = Place::new();
    let done = place.run("replay --size 1MiB --memory 256KiB --threads 64 --groups 1", &[]);
    assert_fails(&done, USAGE, "64 threads");
    assert!(done.err.contains("256 KiB") && done.err.contains("1 MiB at least"), "{done:?}");
    let done = place.run("replay --size 1MiB --memory 1MiB --groups a=8KiB,b=512KiB", &[]);
    assert_fails(&done, USAGE, "group a has 8 KiB");
    let done = place.run("replay --size 1MiB --memory 4KiB --groups 1", &[]);
    assert_fails(&done, USAGE, "too small");
}

#[test]
fn trace_lines_that_do_not_parse() {
    let place = Place::new();
    for (name, text, message) in [
        ("op.csv", "op,offset,length\nr,0,1\nx,0,1\n", "op.csv:3: op `x`"),
        ("offset.csv", "r,0,1\nr,zero,1\n", "offset.csv:2: offset `zero`"),
        ("short.csv", "r,0\n", "short.csv:1: no length"),
        ("overflow.csv", "r,18446744073709551615,1\n", "overflow.csv:1: offset"),
        ("blocks.lis", "1 1 0 0\n1\n", "blocks.lis:2: no count"),
        ("huge.lis", "9223372036854775807 1\n", "huge.lis:1: block"),
        ("prose.txt", "It was a dark\n", "prose.txt:1: neither CSV, op,offset"),
        ("packed.gz", "\u{1f}", "packed.gz:1: not text"),
        ("empty.csv", "", "nothing to replay"),
        ("four.log", "fio version 4 iolog\n", "four.log:1: `fio version 4 iolog`: versions 2 and 3"),
        ("erase.log", "fio version 2 iolog\na add\na erase 0 1\n", "erase.log:3: action `erase` with offset"),
        ("late.log", "fio version 3 iolog\na read 0 1\n", "late.log:2: `a` isn't a timestamp"),
        (
            "trims.log",
            "fio version 2 iolog\na trim 0 1\n",
            "trims.log: the trace has nothing to replay; left out: 1 trim",
        ),
    ] {
        let trace = place.file(name, text);
        assert_fails(&place.run("replay --quiet --trace", &[&trace]), FAILURE, message);
    }
    let trace = place.file("noise.csv", vec![0xff; 300_000]);
    assert_fails(&place.run("replay --quiet --trace", &[&trace]), FAILURE, "noise.csv:1:");
    let trace = place.file("far.csv", "r,8EiB,1\n");
    assert_eq!(place.run("replay --quiet --trace", &[&trace]).code, Some(FAILURE));
    assert!(place.temporary_files().is_empty());
}

#[test]
fn a_trace_with_a_group_that_has_no_limit() {
    let place = Place::new();
    let trace = place.file("t.csv", "r,0,1,a\nr,0,1,b\n");
    assert_fails(&place.run("replay --groups a=1MiB --trace", &[&trace]), FAILURE, "t.csv:2: group `b` has no limit");
    assert_fails(&place.run("replay --groups 3 --trace", &[&trace]), USAGE, "the trace names 2 groups");
    let log = place.file("t.log", "fio version 2 iolog\na read 0 1\nb read 0 1\n");
    assert_fails(&place.run("replay --map c=0 --trace", &[&log]), USAGE, "--map c=0: the trace names a, b");
    assert_fails(&place.run("replay --map c=0 --trace", &[&trace]), USAGE, "the trace names no files");
}

#[test]
fn files_that_are_missing_or_none() {
    let place = Place::new();
    assert_fails(&place.run(SMALL, &["gone.bin"]), FAILURE, "can't read gone.bin: No such file");
    assert_fails(&place.run(SMALL, &["."]), FAILURE, "is a directory");
    assert_fails(&place.run(SMALL, &["/dev/zero"]), FAILURE, "neither a regular file nor a block device");
    let empty = place.file("empty.bin", "");
    assert_fails(&place.run(SMALL, &[&empty]), FAILURE, "is empty");
    let short = place.file("short.bin", "short");
    assert_fails(&place.run(SMALL, &[&short]), USAGE, "--size 1 MiB is more than");
    assert_fails(&place.run("replay --trace gone.csv", &[]), FAILURE, "can't open the trace gone.csv: No such file");
    assert_fails(&place.run("replay --trace tmp", &[]), FAILURE, "can't read the trace tmp: Is a directory");
    assert_fails(&place.run(SMALL, &["--temp-dir", "gone"]), FAILURE, "gone");
}

#[test]
fn a_file_that_may_not_be_read() {
    let place = Place::new();
    let secret = place.file("secret.bin", "secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&secret).is_ok() {
        return not_here("a user with less rights than root");
    }
    assert_fails(&place.run("replay", &[&secret]), FAILURE, "Permission denied");
    assert_fails(&place.run("replay --trace", &[&secret]), FAILURE, "Permission denied");
}

/// The message named `/proc/self/fd/5`, and an invalid argument.
#[test]
fn a_file_system_without_direct_input_and_output_is_named() {
    let place = Place::new();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return not_here("/dev/shm") };
    let done =
        place.run("replay --size 1MiB --memory 512KiB --backend direct --temp-dir", &[memory.path().to_str().unwrap()]);
    if done.code == Some(0) {
        // Since Linux 6.6.
        return not_here("a tmpfs that takes no direct I/O");
    }
    assert_fails(&done, FAILURE, "its file system takes no direct I/O");
    assert!(done.err.contains("/dev/shm/") && !done.err.contains("/proc/"), "{done:?}");
}

#[test]
fn a_file_larger_than_the_disk() {
    let place = Place::new();
    let done = place.run("replay --quiet --size 1PiB", &[]);
    assert_fails(&done, FAILURE, "no room for a temporary file of 1 PiB");
    assert!(done.err.contains("--temp-dir"), "{done:?}");
    assert!(place.temporary_files().is_empty());
}

#[test]
fn a_file_that_shrinks_under_us() {
    let place = Place::new();
    let path = place.file("data.bin", vec![7; 16 << 20]);
    for more in ["", "--verify"] {
        let line = format!("replay --memory 1MiB --groups 1 --generate uniform --time 1h {more}");
        let child = place.command(&line, &[&path]).spawn().unwrap();
        wait_for_operations(&child);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();
        let done = Done::of(child);
        assert_fails(&done, FAILURE, "shrank while it was in use: from 16777216 to 4096 bytes");
        assert!(done.out.contains("ops/s"), "what was done so far is reported: {done:?}");
        file.set_len(16 << 20).unwrap();
    }
}

#[test]
fn wrong_bytes_are_noticed() {
    let place = Place::new();
    // The test overwrites the temporary file, as another program might, once it is complete.
    let line = "replay --size 1MiB --memory 256KiB --groups 1 --generate uniform --time 1h";
    let child = place.command(line, &[]).spawn().unwrap();
    let path = wait_for_temporary_file(&place, &child, 1 << 20);
    wait_for_operations(&child);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&vec![0; 1 << 20]).unwrap();
    let done = Done::of(child);
    assert_eq!(done.code, Some(FAILURE), "{done:?}");
    assert!(done.err.contains("was read as 0x00, but "), "{done:?}");
}

/// Regression: `--generate` accepted more patterns than there were groups (four by default, one
/// with `--anonymous`). The report listed the further patterns, but no thread used them. They must
/// be refused.
#[test]
fn patterns_that_no_group_gets() {
    let place = Place::new();
    for line in [
        "replay --generate seq,uniform,zipf:0.5,zipf:0.9,zipf:1.2",
        "replay --anonymous --size 64MiB --generate seq,zipf",
    ] {
        assert_fails(&place.run(line, &[]), USAGE, "more than there are groups to deal them to");
    }
}

#[test]
fn output_that_nobody_reads() {
    let place = Place::new();
    let mut child = place.command(SMALL, &["--json"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = Done::of(child);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert!(place.temporary_files().is_empty());
}
