//! Gives the program the same addresses in each run, so that runs on virtual CPUs always give the
//! same figures. Some of the code makes choices that depend on an address, for example which set of
//! a CPU's handles is used (`sync::Nearby`).

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Asks for the personality as it is (personality(2)).
const AS_IT_IS: libc::c_ulong = 0xffff_ffff;

/// Starts this program again without randomised addresses, unless it runs without them already. If
/// the system refuses this, prints a warning and continues.
pub(crate) fn ensure() {
    // SAFETY: it takes a number and changes no memory.
    let personality = |wanted| unsafe { libc::personality(wanted) };
    let now = personality(AS_IT_IS);
    if now != -1 && now & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    if now != -1 && personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) != -1 {
        // It returns only if it fails.
        let _ = Command::new("/proc/self/exe").args(env::args_os().skip(1)).exec();
    }
    eprintln!("bench: addresses stay random here: some figures differ by some per cent from run to run");
}
