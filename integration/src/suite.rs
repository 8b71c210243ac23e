//! The suites. Each function below is a list of tests; each test is a promise of the product.

pub(crate) mod agent;
mod cage;
mod capabilities;
pub(crate) mod checkpoint;
mod ci;
mod errors;
mod escape;
mod exec;
mod exit;
pub(crate) mod faults;
mod grants;
mod hostile;
mod limits;
mod operators;
mod packaging;
mod restart;
mod scripts;
mod stopper;
mod suspend;
mod system;
pub(crate) mod terminal;
mod upgrade;
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
        scripts::tests(),
        users::tests(),
        operators::tests(),
        hostile::tests(),
        grants::tests(),
        packaging::tests(),
        capabilities::tests(),
        errors::tests(),
        restart::tests(),
        upgrade::tests(),
        suspend::tests(),
        checkpoint::tests(),
        limits::tests(),
        faults::tests(),
        agent::tests(),
        ci::tests(),
        escape::tests(),
        system::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
