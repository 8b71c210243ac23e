//! One order, one report.
fn main() {}
