//! What ran, by the compiler's own counters.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{DIRECTORY, OTHER_CRATES};
use crate::limited;
use crate::workspace::{cargo, root, succeed, target_directory};

/// The longest that a program may take.
const LIMIT: Duration = Duration::from_mins(10);

/// A lane, as it runs in a build that counts.
struct Counted {
    lane: &'static str,
    /// Its programs, which are tests of the crate `pagefold`.
    programs: &'static [&'static str],
    arguments: &'static [&'static str],
    /// The number of seeds, smaller than that of the lane itself; 0 means the usual number.
    seeds: u32,
}

/// The lane of all programs that no other lane names.
pub(super) const TESTS: &str = "tests";

/// The lanes; [`TESTS`] is the first one.
const LANES: [Counted; 7] = [
    Counted { lane: TESTS, programs: &[], arguments: &[], seeds: 0 },
    Counted { lane: "model", programs: &["model"], arguments: &[], seeds: 200 },
    Counted { lane: "swap", programs: &["swap"], arguments: &[], seeds: 40 },
    Counted { lane: "power", programs: &["power_cut"], arguments: &[], seeds: 100 },
    Counted { lane: "kill", programs: &["kill"], arguments: &[], seeds: 5 },
    Counted {
        lane: "faults",
        programs: &["fault_sweep", "memory_faults"],
        // These tests make the same calls by other ways to the device.
        arguments: &["--skip", "also_where", "--skip", "where_io_uring"],
        seeds: 0,
    },
    Counted { lane: "strangers", programs: &["strangers"], arguments: &[], seeds: 20 },
];

/// The names of the lanes that are counted.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LANES.iter().map(|counted| counted.lane)
}

/// A place in a file: a line and a column in it, both from 1.
pub(super) type Position = (usize, usize);

/// How often the code from each position to the next one ran; `None` where there is no code.
type Counts = BTreeMap<Position, Option<u64>>;

/// How often code ran: by program, and by file.
///
/// Each program is exported by itself. Given several programs, `llvm-cov` takes a function's record
/// from the first program that contains the function. If this program never calls the function, and
/// other functions have it inlined, that record is empty.
#[derive(Debug, Default)]
pub(super) struct Coverage(Vec<HashMap<PathBuf, Counts>>);

impl Coverage {
    /// Whether any code between two positions of a file ran.
    pub(super) fn runs_between(&self, file: &Path, start: Position, end: Position) -> bool {
        let ran = |(_, count): (&Position, &Option<u64>)| count.is_some_and(|count| count > 0);
        self.counts(file).any(|counts| counts.range(start..end).any(ran))
    }

    /// Whether the code at a position of a file ran.
    pub(super) fn runs_at(&self, file: &Path, at: Position) -> bool {
        let ran = |counts: &Counts| counts.range(..=at).next_back().is_some_and(|(_, count)| *count > Some(0));
        self.counts(file).any(ran)
    }

    /// What each program counted in a file.
    fn counts(&self, file: &Path) -> impl Iterator<Item = &Counts> {
        self.0.iter().filter_map(move |files| files.get(file))
    }

    /// Adds what `llvm-cov export --format=text` prints for a program. This is JSON. Each segment
    /// of a file is an array of line, column, count, whether there is a count, and more.
    fn add(&mut self, text: &[u8]) -> Result<(), String> {
        let (mut files, root) = (HashMap::new(), root());
        let json: Value = serde_json::from_slice(text).map_err(|error| format!("what llvm-cov exports: {error}"))?;
        for file in json["data"].as_array().into_iter().flatten().flat_map(|data| data["files"].as_array()).flatten() {
            let number = |value: &Value| value.as_u64().map(|number| number as usize);
            let segment = |segment: &Value| {
                let count = segment[3].as_bool()?.then_some(segment[2].as_u64()?);
                Some(((number(&segment[0])?, number(&segment[1])?), count))
            };
            let name = Path::new(file["filename"].as_str().unwrap_or_default());
            let counts = file["segments"].as_array().into_iter().flatten().filter_map(segment).collect();
            files.insert(name.strip_prefix(&root).unwrap_or(name).to_owned(), counts);
        }
        self.0.push(files);
        Ok(())
    }
}

/// Runs the lanes, and stores which code they ran, beside the results of earlier turns.
pub(super) fn count_turn(turn: u32) -> Result<(), String> {
    if turn == 0 {
        let _ = fs::remove_dir_all(place()); // Of the last time.
    }
    let (place, programs) = (place().join(turn.to_string()), build()?);
    for counted in &LANES {
        println!("== reach: {}", counted.lane);
        count(counted, &programs, &place).map_err(|error| format!("{}: {error}", counted.lane))?;
    }
    Ok(())
}

/// What each lane ran, in all turns.
pub(super) fn of_lanes() -> Result<Vec<(&'static str, Coverage)>, String> {
    let text = |error: io::Error| format!("{}: {error}", place().display());
    let mut lanes: Vec<_> = LANES.iter().map(|counted| (counted.lane, Coverage::default())).collect();
    for turn in fs::read_dir(place()).map_err(text)? {
        let turn = turn.map_err(text)?.path();
        for (lane, coverage) in &mut lanes {
            for exported in fs::read_dir(turn.join(lane)).map_err(text)? {
                coverage.add(&fs::read(exported.map_err(text)?.path()).map_err(text)?)?;
            }
        }
    }
    Ok(lanes)
}

/// Returns the directory of what the lanes ran.
fn place() -> PathBuf {
    target_directory(DIRECTORY).join("reach")
}

/// A program that cargo has built.
#[derive(Debug, PartialEq)]
struct Program {
    path: PathBuf,
    /// The folder of its crate, in which its tests run.
    folder: PathBuf,
    /// The program's name, if it is a test in its crate's folder `tests`.
    test: Option<String>,
    /// The program runs tests.
    has_tests: bool,
}

impl Program {
    /// Parses one line of cargo's messages.
    fn parse(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let target = &message["target"];
        Some(Self {
            path: message["executable"].as_str()?.into(),
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            test: (target["kind"][0] == "test").then(|| target["name"].as_str().map(str::to_owned)).flatten(),
            has_tests: message["profile"]["test"] == true,
        })
    }

    fn lane(&self) -> &'static str {
        let test = self.test.as_deref().filter(|_| self.folder.ends_with("crates/pagefold"));
        let has_it = |counted: &&Counted| test.is_some_and(|test| counted.programs.contains(&test));
        LANES.iter().find(has_it).unwrap_or(&LANES[0]).lane
    }
}

/// Builds the tests of the product.
fn build() -> Result<Vec<Program>, String> {
    // A missing tool is reported now, not after the tests have run for a quarter of an hour.
    for name in ["llvm-profdata", "llvm-cov"] {
        tool(name)?;
    }
    let mut build = instrumented(cargo());
    build.args(["test", "--workspace", "--tests", "--no-run", "--message-format=json"]).current_dir(root());
    build.args(OTHER_CRATES.iter().flat_map(|name| ["--exclude", name]));
    // Build scripts and macros write profiles, too, when they run. These mustn't go into the
    // workspace.
    build.env("LLVM_PROFILE_FILE", target_directory(DIRECTORY).join("build-%m.profraw"));
    let messages = succeed(&mut build)?;
    Ok(String::from_utf8_lossy(&messages).lines().filter_map(Program::parse).collect())
}

/// Runs the tests of a lane's programs. Then stores, for each program, which of its code ran: in
/// its own tests, or when the tests of another program started it.
fn count(counted: &Counted, programs: &[Program], place: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let of_lane = || programs.iter().filter(|program| program.lane() == counted.lane);
    let (folder, profiles) = (place.join(counted.lane), place.join("profiles"));
    fs::create_dir_all(&folder).map_err(text)?;
    for program in of_lane().filter(|program| program.has_tests) {
        let mut test = instrumented(Command::new(&program.path));
        test.args(counted.arguments).current_dir(&program.folder);
        test.env("LLVM_PROFILE_FILE", profiles.join("%m-%p.profraw"));
        if counted.seeds > 0 {
            test.env("PAGEFOLD_SEEDS", counted.seeds.to_string());
        }
        let (status, printed) = limited::printed(test, LIMIT).map_err(text)?;
        if !status.is_some_and(|status| status.success()) {
            let name = program.path.display();
            return Err(format!("{name} fails, or takes too long:\n{}", String::from_utf8_lossy(&printed)));
        }
    }
    let merged = place.join("profile");
    let mut merge = tool("llvm-profdata")?;
    merge.args(["merge", "--sparse", "--failure-mode=all"]).arg(&profiles).arg("-o").arg(&merged);
    succeed(&mut merge)?;
    for program in of_lane() {
        let mut export = tool("llvm-cov")?;
        export.args(["export", "--format=text", "--skip-functions", "--skip-expansions"]);
        export.args(["--ignore-filename-regex=/(registry|rustc|tests)/", "--instr-profile"]).arg(&merged);
        let exported = match succeed(export.arg(&program.path)) {
            // None of its tests are for this build.
            Err(error) if error.contains("no coverage data found") => continue,
            exported => exported?,
        };
        let name = program.path.file_name().unwrap_or_default();
        fs::write(folder.join(name).with_extension("json"), exported).map_err(text)?;
    }
    fs::remove_dir_all(profiles).map_err(text)
}

/// Prepares a command that makes a build with counters, or runs it.
fn instrumented(mut command: Command) -> Command {
    command.env("RUSTFLAGS", "-Cinstrument-coverage").env("CARGO_TARGET_DIR", target_directory(DIRECTORY));
    // Counters don't need debug information: they have positions of their own.
    command.env("CARGO_PROFILE_DEV_DEBUG", "none");
    command
}

/// A program of the toolchain's component `llvm-tools`.
fn tool(name: &str) -> Result<Command, String> {
    let mut rustc = Command::new("rustc");
    let printed = succeed(rustc.args(["--print", "target-libdir"]))?;
    let path = Path::new(String::from_utf8_lossy(&printed).trim()).with_file_name("bin").join(name);
    if path.exists() {
        Ok(Command::new(path))
    } else {
        Err(format!("there is no {name}: `rustup component add llvm-tools`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_counts_until_the_next_one() {
        let file = root().join("crates/a.rs");
        let segments =
            "[[3,1,2,true,true,false],[4,9,0,true,true,false],[4,20,2,true,false,false],[6,2,0,false,false,false]]";
        let text = format!(r#"{{"data":[{{"files":[{{"filename":"{}","segments":{segments}}}]}}]}}"#, file.display());
        let mut coverage = Coverage::default();
        coverage.add(br#"{"data":[]}"#).unwrap();
        coverage.add(text.as_bytes()).unwrap();
        let runs = |at| coverage.runs_at(Path::new("crates/a.rs"), at);
        assert_eq!(
            [(2, 9), (3, 1), (4, 8), (4, 9), (4, 21), (6, 1), (6, 2)].map(runs),
            [false, true, true, false, true, true, false]
        );
        assert!(!coverage.runs_at(Path::new("crates/b.rs"), (3, 1)));
        let between = |start, end| coverage.runs_between(Path::new("crates/a.rs"), start, end);
        assert!(between((4, 1), (4, 21)) && !between((4, 1), (4, 20)));
    }

    #[test]
    fn programs_are_read_from_what_cargo_says() {
        let said = |kind: &str, has_tests: bool, executable: &str| {
            let manifest = "/w/crates/pagefold/Cargo.toml";
            let target = format!(r#"{{"kind":["{kind}"],"name":"model"}}"#);
            let rest = format!(r#""profile":{{"test":{has_tests}}},"executable":{executable}"#);
            format!(r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","target":{target},{rest}}}"#)
        };
        assert_eq!(Program::parse("warning: a"), None);
        assert_eq!(Program::parse(&said("lib", false, "null")), None);
        let [model, library, command] = [
            Program::parse(&said("test", true, "\"/w/model-1\"")).unwrap(),
            Program::parse(&said("lib", true, "\"/w/model-2\"")).unwrap(),
            Program::parse(&said("bin", false, "\"/w/model\"")).unwrap(),
        ];
        assert_eq!(
            model,
            Program {
                path: "/w/model-1".into(),
                folder: "/w/crates/pagefold".into(),
                test: Some("model".to_owned()),
                has_tests: true,
            }
        );
        assert_eq!([model.lane(), library.lane(), command.lane()], ["model", "tests", "tests"]);
        assert!(library.has_tests && !command.has_tests);
    }
}
