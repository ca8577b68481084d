//! `cargo xtask kernels`: tests the product on other kernels, and on machines that lack something.
//!
//! Each case boots a guest in qemu (software emulation, so that any host will do). The guest has a
//! kernel of Debian's, and a root file system in memory with busybox, the command `pagefold` and a
//! test. For each step, the guest's script prints `RESULT name status` on the console.
//!
//! In one case, the guest is killed, with its kernel, while it writes. Then a second guest with the
//! same disks checks that everything that `sync` promised is there. The test records these promises
//! on a disk of its own, which is mounted so that each write reaches it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::check::{Check, this_program};
use crate::workspace::{self, cargo, root, target_directory};

/// The limit of a guest's time: ten times what it takes.
const LIMIT: Duration = Duration::from_mins(5);
/// How long a guest writes before it is killed, once it has begun.
const WRITES_FOR: Duration = Duration::from_secs(8);
const MIRROR: &str = "http://deb.debian.org/debian";
/// Where kernels, root file systems and disks lie.
const DIRECTORY: &str = "kernels";

/// Programs that are needed, and the packages that they are in.
const TOOLS: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("mkfs.ext4", "e2fsprogs"),
    ("dpkg-deb", "dpkg"),
    ("curl", "curl"),
    ("xz", "xz-utils"),
];

/// A guest.
struct Case {
    name: &'static str,
    /// The release of Debian that its kernel is of.
    release: &'static str,
    /// Further arguments for qemu; of two that exclude each other the last counts.
    machine: &'static [&'static str],
    script: &'static str,
    /// Results that the script must report.
    results: usize,
    /// The script of the second guest, which checks the disks, if the first guest is killed while
    /// it writes.
    then: Option<&'static str>,
}

const ALL_BACKENDS: &str = "
for backend in uring threads posix direct buffered; do
    pagefold replay -q --size 16MiB --memory 8MiB --ops 2000 --time 200s --reads 70 --backend $backend --temp-dir /data
    echo RESULT $backend $?
done
pagefold replay -q --anonymous --size 16MiB --memory 8MiB --swap /data/swap:32MiB --ops 2000 --time 200s
echo RESULT swap $?
";
const USUAL: &str = "
pagefold replay -q --size 16MiB --memory 8MiB --ops 2000 --time 200s --reads 70 --temp-dir /data
echo RESULT replay $?
pagefold replay -q --anonymous --size 16MiB --memory 8MiB --swap /data/swap:32MiB --ops 2000 --time 200s
echo RESULT swap $?
";
const NO_PROC: &str = "
umount /proc
pagefold replay -q --size 16MiB --memory 8MiB --ops 2000 --time 200s --reads 70 --temp-dir /data
echo RESULT replay $?
mount -t proc none /proc
";
const NO_URING: &str = "
echo 2 > /proc/sys/kernel/io_uring_disabled
pagefold replay -q --size 16MiB --memory 8MiB --ops 2000 --time 200s --reads 70 --temp-dir /data
echo RESULT replay $?
pagefold replay -q --size 16MiB --memory 8MiB --ops 2000 --time 200s --backend uring --temp-dir /data
echo RESULT refused $?
";
const WRITE: &str = "
ln -sf /ledger/ledger /data/ledger
[ -s /ledger/ledger ] || dd if=/dev/zero of=/ledger/ledger bs=6400 count=1 2>/dev/null
sync
echo WRITING
PAGEFOLD_KILL_IN=/data PAGEFOLD_KILL_SEED=1 killed --exact write_until_killed --ignored
echo RESULT ended 1
";
const LOOK: &str = "
PAGEFOLD_KILL_IN=/data killed --exact what_was_promised_is_there --ignored --nocapture
echo RESULT promised $?
";

const fn usual(name: &'static str, release: &'static str, machine: &'static [&'static str]) -> Case {
    Case { name, release, machine, script: USUAL, results: 2, then: None }
}

const fn all(name: &'static str, release: &'static str) -> Case {
    Case { name, release, machine: &[], script: ALL_BACKENDS, results: 6, then: None }
}

const CASES: [Case; 9] = [
    all("5.10", "bullseye"),
    all("6.1", "bookworm"),
    all("6.12", "trixie"),
    all("newest", "sid"),
    usual("one-cpu", "trixie", &["-smp", "1"]),
    usual("no-avx", "trixie", &["-cpu", "Nehalem"]),
    Case { name: "no-proc", release: "trixie", machine: &[], script: NO_PROC, results: 1, then: None },
    Case { name: "no-uring", release: "trixie", machine: &[], script: NO_URING, results: 2, then: None },
    Case { name: "killed", release: "bookworm", machine: &[], script: WRITE, results: 0, then: Some(LOOK) },
];

/// `kernels`.
#[derive(Clone, Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Only these cases [default: all]
    #[arg(value_name = "CASE", value_parser = PossibleValuesParser::new(CASES.map(|case| case.name)))]
    cases: Vec<String>,
}

/// The lane's check.
pub(crate) fn check() -> Check {
    this_program("kernels", DIRECTORY, "kernels")
}

/// `kernels`.
pub(crate) fn run(args: &KernelsArgs) -> ExitCode {
    match run_all(args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: kernels: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many cases failed.
fn run_all(args: &KernelsArgs) -> Result<usize, String> {
    let missing: Vec<&str> = TOOLS.iter().filter(|(tool, _)| !is_here(tool)).map(|&(_, package)| package).collect();
    if !missing.is_empty() {
        return Err(format!("programs are missing: `apt install {}`", missing.join(" ")));
    }
    let place = target_directory(DIRECTORY);
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let programs = build()?;
    let mut failed = 0;
    for case in CASES.iter().filter(|case| args.cases.is_empty() || args.cases.iter().any(|name| name == case.name)) {
        let start = Instant::now();
        let result = Release::get(&place, case.release).and_then(|release| case.run(&place, &release, &programs));
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(said) => println!("{}: ok in {seconds} s: {said}", case.name),
            Err(error) => {
                println!("{}: FAILED in {seconds} s\nerror: {error}", case.name);
                println!("repeat with: cargo xtask kernels {}", case.name);
                failed += 1;
            }
        }
    }
    Ok(failed)
}

/// Returns the search path for programs, the administrator's included.
fn path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

fn is_here(program: &str) -> bool {
    env::split_paths(&path()).any(|path| path.join(program).exists())
}

/// Builds what guests run. Returns each program's name in the guest, and its path here.
fn build() -> Result<[(&'static str, PathBuf); 2], String> {
    let built = |arguments: &[&str], name: &str| {
        let printed =
            succeed(cargo().args(arguments).args(["--release", "--message-format=json"]).current_dir(root()))?;
        let messages = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut programs = messages.filter(|message| message["target"]["name"] == name);
        let found = programs.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        found.ok_or_else(|| format!("cargo built no {name}"))
    };
    let pagefold = built(&["build", "-p", "pagefold-cli"], "pagefold")?;
    let kill = built(&["test", "-p", "pagefold", "--test", "kill", "--no-run"], "kill")?;
    Ok([("pagefold", pagefold), ("killed", kill)])
}

/// A kernel of Debian's, unpacked.
struct Release {
    folder: PathBuf,
}

impl Release {
    /// Returns a release's newest kernel for clouds, which is fetched if it isn't here.
    fn get(place: &Path, release: &str) -> Result<Self, String> {
        let this = Self { folder: place.join(release) };
        if this.kernel().is_ok() {
            return Ok(this);
        }
        eprintln!("kernels: fetching the kernel of {release}");
        let index = format!("{MIRROR}/dists/{release}/main/binary-amd64/Packages.xz");
        let packages = succeed(Command::new("sh").args(["-c", &format!("curl -fsS {index} | xz -dc")]))?;
        let field = |package: &str, name: &str| {
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
        };
        let is_kernel = |package: &&str| {
            let name = field(package, "Package").unwrap_or_default();
            let version = name.strip_prefix("linux-image-").and_then(|rest| rest.strip_suffix("-cloud-amd64"));
            version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        };
        let image = packages.split("\n\n").filter(is_kernel).last();
        let image = image.ok_or_else(|| format!("{release} has no kernel for clouds"))?;
        // The newest releases have the kernel and its modules in packages of their own.
        let parts = field(image, "Depends").unwrap_or_default();
        let parts = parts.split(", ").map(|part| part.split(' ').next().unwrap_or_default().to_owned());
        let parts: Vec<String> =
            parts.filter(|part| part.starts_with("linux-binary-") || part.starts_with("linux-modules-")).collect();
        let is_wanted = |package: &&str| field(package, "Package").is_some_and(|name| parts.contains(&name));
        // The folder has a temporary name until it is complete, because this program may be ended
        // while it unpacks the packages.
        let unpacked = place.join(format!("{release}.new"));
        for package in packages.split("\n\n").filter(is_wanted).chain([image]) {
            let file = field(package, "Filename").ok_or("a package without a file")?;
            let here = place.join("package.deb");
            succeed(Command::new("curl").args(["-fsS", "-o"]).arg(&here).arg(format!("{MIRROR}/{file}")))?;
            succeed(Command::new("dpkg-deb").arg("-x").arg(&here).arg(&unpacked))?;
        }
        fs::rename(&unpacked, &this.folder).map_err(|error| format!("{}: {error}", this.folder.display()))?;
        this.kernel().map(|_| this)
    }

    /// Returns the kernel's path. Newer packages have the kernel beside its modules.
    fn kernel(&self) -> Result<PathBuf, String> {
        first(&self.folder.join("boot"), "vmlinuz-").or_else(|_| first(&self.modules()?, "vmlinuz"))
    }

    /// The folder of the modules, which is named after the kernel.
    fn modules(&self) -> Result<PathBuf, String> {
        let all = ["lib/modules", "usr/lib/modules"].map(|folder| first(&self.folder.join(folder), ""));
        all.into_iter().find(Result::is_ok).unwrap_or_else(|| Err("the kernel has no modules".to_owned()))
    }
}

/// Returns the first entry of a folder whose name begins with `prefix`.
fn first(folder: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names = entries.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    names.find(is_it).ok_or_else(|| format!("{} has no {prefix}", folder.display()))
}

impl Case {
    /// Boots the case's guests. Returns the number of results or, if there is a second guest, its
    /// line about the pages that had been promised.
    fn run(&self, place: &Path, release: &Release, programs: &[(&str, PathBuf)]) -> Result<String, String> {
        let root = self.root(place, release, programs)?;
        let disks = ["data", "ledger"].map(|name| place.join(format!("{}.{name}", self.name)));
        for disk in &disks {
            let _ = fs::remove_file(disk);
            succeed(Command::new("truncate").args(["-s", "128M"]).arg(disk))?;
            succeed(Command::new("mkfs.ext4").env("PATH", path()).args(["-q", "-F"]).arg(disk))?;
        }
        let boot = |script: &str, kill: bool| self.boot(place, release, &root, &disks, script, kill);
        let printed = boot(self.script, self.then.is_some())?;
        self.judge(&printed, self.results)?;
        let Some(script) = self.then else { return Ok(format!("{} results", self.results)) };
        if !printed.contains("WRITING") {
            return Err(format!("the guest didn't begin to write:\n{printed}"));
        }
        let printed = boot(script, false)?;
        self.judge(&printed, 1)?;
        let said = printed.lines().find(|line| line.contains("pages promised")).map(str::trim);
        match said {
            Some(said) if !said.contains(" 0 pages promised") && !said.starts_with("0 pages") => Ok(said.to_owned()),
            _ => Err(format!("nothing had been promised:\n{printed}")),
        }
    }

    /// Checks that the guest reported `wanted` results, and only successes.
    fn judge(&self, printed: &str, wanted: usize) -> Result<(), String> {
        let results: Vec<&str> = printed.lines().filter_map(|line| line.trim().strip_prefix("RESULT ")).collect();
        let is_good = |result: &&&str| match result.split_once(' ') {
            // `uring` was asked for, and the system refuses it.
            Some(("refused", status)) => status == "2" || status == "1",
            Some((_, status)) => status == "0",
            None => false,
        };
        if results.iter().filter(is_good).count() == wanted && results.len() == wanted {
            return Ok(());
        }
        let last: Vec<&str> = printed.lines().rev().take(60).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Err(format!("{}: {wanted} results wanted, {results:?} came:\n{}", self.name, last.join("\n")))
    }

    /// The root file system, as a folder.
    fn root(&self, place: &Path, release: &Release, programs: &[(&str, PathBuf)]) -> Result<PathBuf, String> {
        let root = place.join(format!("{}.root", self.name));
        let text = |error: std::io::Error| format!("{}: {error}", root.display());
        let _ = fs::remove_dir_all(&root);
        for folder in ["bin", "proc", "sys", "dev", "tmp", "data", "ledger"] {
            fs::create_dir_all(root.join(folder)).map_err(text)?;
        }
        let busybox = succeed(Command::new("sh").args(["-c", "command -v busybox"]))?;
        fs::copy(busybox.trim(), root.join("bin/busybox")).map_err(text)?;
        for applet in ["sh", "mount", "umount", "modprobe", "echo", "dd", "ln", "sync", "poweroff"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).map_err(text)?;
        }
        for (name, program) in programs {
            fs::copy(program, root.join("bin").join(name)).map_err(text)?;
            let libraries = succeed(Command::new("ldd").arg(program))?;
            for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
                let there = root.join(library.trim_start_matches('/'));
                fs::create_dir_all(there.parent().unwrap_or(&root)).map_err(text)?;
                fs::copy(library, there).map_err(text)?;
            }
        }
        let modules = release.modules()?;
        let name = modules.file_name().unwrap_or_default();
        let there = root.join("lib/modules").join(name);
        fs::create_dir_all(&there).map_err(text)?;
        let kept = "kernel/drivers/virtio kernel/drivers/block/virtio_blk.ko* kernel/fs/ext4 kernel/fs/jbd2 \
                    kernel/fs/mbcache.ko* kernel/lib kernel/crypto modules.builtin modules.builtin.modinfo \
                    modules.order";
        let copy = format!("cp -r --parents $(ls -d {kept} 2>/dev/null) '{}'", there.display());
        succeed(Command::new("sh").args(["-c", &copy]).current_dir(&modules))?;
        let unpack = format!("find '{}' -name '*.xz' -exec xz -d {{}} +", there.display());
        succeed(Command::new("sh").args(["-c", &unpack]))?;
        let depmod =
            if is_here("depmod") && Path::new("/usr/sbin/depmod").exists() { "/usr/sbin/depmod" } else { "depmod" };
        succeed(Command::new(depmod).arg("-b").arg(&root).arg(name))?;
        let init = "#!/bin/sh\nexport PATH=/bin\nmount -t devtmpfs none /dev; mount -t sysfs none /sys\n\
                    mount -t proc none /proc; mount -t tmpfs none /tmp\n\
                    modprobe virtio_pci; modprobe virtio_blk; modprobe ext4\n\
                    mount -t ext4 /dev/vda /data; mount -t ext4 -o sync /dev/vdb /ledger\n\
                    . /script\nsync; poweroff -f\n";
        fs::write(root.join("init"), init).map_err(text)?;
        succeed(Command::new("chmod").arg("+x").arg(root.join("init")))?;
        Ok(root)
    }

    /// Boots a guest. Returns its output when the guest has ended. With `kill`, kills the guest
    /// after it has written for a while, and returns its output so far.
    fn boot(
        &self,
        place: &Path,
        release: &Release,
        root: &Path,
        disks: &[PathBuf],
        script: &str,
        kill: bool,
    ) -> Result<String, String> {
        fs::write(root.join("script"), script).map_err(|error| error.to_string())?;
        let image = place.join(format!("{}.initrd", self.name));
        let pack = format!("find . | cpio -o -H newc 2>/dev/null | gzip -1 > '{}'", image.display());
        succeed(Command::new("sh").args(["-c", &pack]).current_dir(root))?;
        let mut qemu = Command::new("qemu-system-x86_64");
        // One thread emulates all CPUs. With a thread for each CPU, a CPU sometimes executes an
        // instruction that another CPU is patching, and the guest's kernel panics while it boots.
        qemu.args([
            "-accel",
            "tcg,thread=single",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "1024",
            "-nographic",
            "-no-reboot",
            "-kernel",
        ]);
        qemu.arg(release.kernel()?).arg("-initrd").arg(image);
        qemu.args(["-append", "console=ttyS0 quiet no_timer_check panic=-1 rdinit=/init"]);
        for disk in disks {
            qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=writethrough", disk.display()));
        }
        let child =
            qemu.args(self.machine).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut guest = Guest(child.map_err(|error| format!("qemu: {error}"))?);
        let output = guest.0.stdout.take().ok_or("qemu has no output")?;
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            lines.map(|line| String::from_utf8_lossy(&line).into_owned()).try_for_each(|line| tell.send(line))
        });
        let (mut printed, mut end) = (String::new(), Instant::now() + LIMIT);
        loop {
            match told.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if kill && line.contains("WRITING") {
                        end = Instant::now() + WRITES_FOR;
                    }
                    printed += &(line + "\n");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(printed),
                Err(mpsc::RecvTimeoutError::Timeout) if kill => return Ok(printed),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("the guest didn't end within {} s:\n{printed}", LIMIT.as_secs()));
                }
            }
        }
    }
}

/// A guest, which is killed when this is dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command that has to succeed. Returns what it prints, as text.
fn succeed(command: &mut Command) -> Result<String, String> {
    workspace::succeed(command).map(|printed| String::from_utf8_lossy(&printed).into_owned())
}
