//! Commands in a real cage: starts, ends, failures.

#[path = "driver/cage.rs"]
mod driver;

use driver::{Cage, program};

#[test]
fn a_command_runs_and_its_exit_is_reported() {
    let (mut cage, attestation) = Cage::ready(program(), None);
    println!("{attestation:#?}");
    let output = cage.sh("echo out; echo err >&2; exit 7");
    assert_eq!((output.exit.code, output.exit.signal), (Some(7), None));
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
}
