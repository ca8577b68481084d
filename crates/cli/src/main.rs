//! The `pagefold` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pagefold_cli::main()
}
