//! Runs every target on every file of its corpus, and on random bytes. An input that takes longer
//! than `PATIENCE` counts as a hang.

use std::fs;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::abort;
use std::thread;
use std::time::{Duration, Instant};

use fuzz_targets::{TARGETS, Target};
use sync::lock::{Condvar, Mutex};
use sync::random::{Random, seeds};

/// Random inputs of each target, unless `PAGEFOLD_SEEDS` says otherwise.
const SEEDS: u64 = 100;
/// Inputs that one likes to look at are short.
const INPUT_MAX: u64 = 1 << 10;
/// No input takes so long that doesn't hang, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The inputs of a corpus, each with its file.
fn inputs(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let text = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let entries = fs::read_dir(directory).map_err(|error| text(directory, error))?;
    let mut inputs = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| text(directory, error))?.path();
        let bytes = fs::read(&path).map_err(|error| text(&path, error))?;
        inputs.push((path, bytes));
    }
    inputs.sort();
    match inputs.is_empty() {
        true => Err(format!("{}: no file is there", directory.display())),
        false => Ok(inputs),
    }
}

/// The inputs of all corpora, or only the one that is named.
fn chosen(only: Option<&Path>) -> Result<Vec<(Target, PathBuf, Vec<u8>)>, String> {
    // Every path ends with the empty one.
    let is_chosen = |path: &Path| only.is_none_or(|only| only.file_name().is_some() && path.ends_with(only));
    let mut chosen = Vec::new();
    for target in TARGETS {
        let inputs = inputs(&corpus(target.name))?.into_iter();
        chosen.extend(inputs.filter(|(path, _)| is_chosen(path)).map(|(path, bytes)| (target, path, bytes)));
    }
    match (only, chosen.is_empty()) {
        (Some(only), true) => Err(format!("PAGEFOLD_INPUT={}: no corpus has this file", only.display())),
        _ => Ok(chosen),
    }
}

/// Runs the target; says, and ends the process, if that takes for ever.
fn try_out(target: Target, bytes: &[u8], repeat: &str) {
    let (is_over, changed) = (Mutex::new(false), Condvar::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            let mut over = is_over.lock();
            while !*over {
                let Some(left) = PATIENCE.checked_sub(begun.elapsed()) else {
                    // Past the harness, which would keep it to itself.
                    let _ = writeln!(io::stderr(), "{} hangs. Repeat with: {repeat}", target.name);
                    abort();
                };
                changed.wait_for(&mut over, left);
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
        *is_over.lock() = true;
        changed.notify_one();
        assert!(result.is_ok(), "{} failed. Repeat with: {repeat}", target.name);
    });
}

#[test]
fn every_input_of_the_corpora_is_taken() {
    let only = std::env::var_os("PAGEFOLD_INPUT").map(PathBuf::from);
    for (target, path, bytes) in chosen(only.as_deref()).unwrap() {
        try_out(target, &bytes, &repeat(target, &path));
    }
}

/// The command that tries only this input of a corpus.
fn repeat(target: Target, path: &Path) -> String {
    let name = Path::new(target.name).join(path.file_name().unwrap());
    format!("PAGEFOLD_INPUT={} cargo test -p fuzz-targets --test corpora", name.display())
}

/// A name that no input has would be a test that tries nothing, and passes.
#[test]
fn an_input_that_is_named_is_found_or_an_error() {
    let all = chosen(None).unwrap();
    for (target, path, _) in &all {
        let repeat = repeat(*target, path);
        let name = repeat.strip_prefix("PAGEFOLD_INPUT=").and_then(|rest| rest.split_once(' ')).unwrap().0;
        let only: Vec<PathBuf> = chosen(Some(Path::new(name))).unwrap().into_iter().map(|(_, path, _)| path).collect();
        assert_eq!(only, std::slice::from_ref(path));
    }
    for name in ["traces/no-such-input", "", "no-such-target/a"] {
        assert!(chosen(Some(Path::new(name))).is_err_and(|error| error.contains("PAGEFOLD_INPUT=")), "{name:?}");
    }
}

#[test]
fn random_bytes_are_taken() {
    for seed in seeds(SEEDS) {
        for target in TARGETS {
            let mut random = Random::seeded(seed);
            let len = random.below(INPUT_MAX);
            let bytes = match target.name {
                "traces" | "iologs" => text(&mut random, len),
                _ => (0..len).map(|_| random.next_u64() as u8).collect(),
            };
            try_out(target, &bytes, &format!("PAGEFOLD_SEED={seed} cargo test -p fuzz-targets --test corpora"));
        }
    }
}

/// Text made of words that occur in traces, and of a few words that don't.
fn text(random: &mut Random, len: u64) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "read",
        "write",
        "r",
        "w",
        "sync",
        "datasync",
        "trim",
        "wait",
        "add",
        "open",
        "close",
        "one.dat",
        "0",
        "1",
        "4096",
        "4k",
        "-1",
        "18446744073709551615",
        "9223372036854775808",
        "1e9",
        "op,offset,length",
        "fio version 3 iolog",
        "a b",
        "\u{feff}",
    ];
    const BETWEEN: [&str; 8] = [" ", " ", ",", ",", "\n", "\n", "\t", "\r\n"];
    let mut bytes = vec![random.next_u64() as u8];
    while (bytes.len() as u64) < len {
        bytes.extend_from_slice(WORDS[random.below(WORDS.len() as u64) as usize].as_bytes());
        bytes.extend_from_slice(BETWEEN[random.below(BETWEEN.len() as u64) as usize].as_bytes());
        if random.one_in(40) {
            bytes.push(random.next_u64() as u8);
        }
    }
    bytes
}

/// A missing corpus, an empty one, or one with a file that can't be read must be an error.
#[test]
fn a_damaged_corpus_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(inputs(&path.join("gone")).unwrap_err().contains("gone"));
    assert!(inputs(path).unwrap_err().contains("no file"));
    fs::create_dir(path.join("not-a-file")).unwrap();
    assert!(inputs(path).unwrap_err().contains("not-a-file"));
}
