//! The suites. Each function below is a list of tests; each test is a promise of the product.

pub(crate) mod agent;
mod cage;
mod capabilities;
pub(crate) mod checkpoint;
mod ci;
mod errors;
mod escape;
mod everyday;
mod exec;
mod exit;
pub(crate) mod faults;
mod grants;
mod guards;
mod hostile;
mod limits;
mod mistakes;
mod operators;
mod packaging;
mod restart;
mod scripts;
mod stopper;
mod suspend;
mod system;
pub(crate) mod terminal;
mod tour;
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
        guards::tests(),
        packaging::tests(),
        capabilities::tests(),
        errors::tests(),
        everyday::tests(),
        mistakes::tests(),
        tour::tests(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// What a page says is shown must be.
    #[test]
    fn the_threat_model_names_tests_that_exist() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = std::fs::read_to_string(page.join("docs/threat-model.md")).unwrap();
        let tests: BTreeSet<String> = super::all().into_iter().map(|test| test.name).collect();
        let suites: BTreeSet<&str> =
            tests.iter().filter_map(|name| name.split('.').next()).collect();
        let words = page.split('`').skip(1).step_by(2);
        let named = |word: &&str| suites.contains(word.split('.').next().unwrap_or_default());
        let named: Vec<&str> =
            words.filter(named).filter(|word| word.contains('.') && !word.contains('*')).collect();
        let missing: Vec<&&str> = named.iter().filter(|word| !tests.contains(**word)).collect();
        assert!(missing.is_empty() && named.len() > 80, "{missing:?} of {}", named.len());
        let (_who, stopped) = page.split_once("## What is stopped").unwrap();
        let (stopped, _not) = stopped.split_once("## What is not stopped").unwrap();
        for row in stopped.lines().filter(|line| line.starts_with("| ")) {
            let shown = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            if shown.trim() == "shown by" || shown.trim() == "---" {
                continue;
            }
            let shows: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
            assert!(!shows.is_empty(), "no test: {row}");
            for name in shows {
                assert!(tests.contains(name), "{name} is no test: {row}");
            }
        }
    }
}
