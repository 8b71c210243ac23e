//! The suites. Each function below is a list of tests; each test is a promise of the product.

pub(crate) mod agent;
mod cage;
mod checkpoint;
mod errors;
mod escape;
mod exec;
mod exit;
pub(crate) mod faults;
mod restart;
mod suspend;
mod terminal;
mod users;
mod viewers;

use crate::runner::Test;

pub(crate) fn all() -> Vec<Test> {
    [
        exit::tests(),
        cage::tests(),
        exec::tests(),
        terminal::tests(),
        viewers::tests(),
        users::tests(),
        errors::tests(),
        restart::tests(),
        suspend::tests(),
        checkpoint::tests(),
        faults::tests(),
        agent::tests(),
        escape::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
