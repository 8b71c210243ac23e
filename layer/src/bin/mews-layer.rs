//! `mews-layer`: see `layer::run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    layer::run()
}
