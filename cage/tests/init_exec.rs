//! Commands in a real cage: starts, ends, failures.

#[path = "driver/cage.rs"]
mod driver;

use cage::orders::Report;
use driver::{Cage, program};

#[test]
fn a_command_runs_and_its_exit_is_reported() {
    let (mut cage, attestation) = Cage::ready(program(), None);
    println!("{attestation:#?}");
    let output = cage.sh("echo out; echo err >&2; exit 7");
    assert_eq!((output.exit.code, output.exit.signal), (Some(7), None));
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn the_number_of_terminals_is_limited_from_outside() {
    let (mut cage, _attestation) = Cage::ready(program(), None);
    assert_eq!(cage::devpts::max_of(cage.pid).unwrap(), None);
    cage::devpts::limit(cage.pid, 2).unwrap();
    assert_eq!(cage::devpts::max_of(cage.pid).unwrap(), Some(2));
    let (first, _started) = cage.terminal(&["cat"]);
    let (_second, _started) = cage.terminal(&["cat"]);
    let third = cage.send_exec(&["true"], &[], Some(wire::Size::DEFAULT), &[]);
    match cage.report() {
        (Report::ExecFailed { id, errno, .. }, None) => {
            assert_eq!((id, errno), (third, libc::ENOSPC));
        }
        other => panic!("{other:?}"),
    }
    drop(first);
}
