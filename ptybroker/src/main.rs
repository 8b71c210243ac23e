//! `mews-ptybroker`: started by mews-supervisor, once for each cage.

use std::process::ExitCode;

fn main() -> ExitCode {
    ptybroker::run()
}
