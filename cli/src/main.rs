//! `mews`: see `cli::run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
