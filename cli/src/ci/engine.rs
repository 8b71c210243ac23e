//! Which engine started us, by the variables that it sets.

use std::collections::BTreeMap;
use wire::api::LABEL_BYTES_MAX;

/// Names of a job as engines say them; they become labels under the same names.
const VARIABLES: [&str; 20] = [
    "GITHUB_REPOSITORY",
    "GITHUB_WORKFLOW",
    "GITHUB_JOB",
    "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT",
    "GITHUB_SHA",
    "CI_PROJECT_PATH",
    "CI_PIPELINE_ID",
    "CI_JOB_ID",
    "CI_JOB_NAME",
    "CI_COMMIT_SHA",
    "BUILDKITE_PIPELINE_SLUG",
    "BUILDKITE_BUILD_ID",
    "BUILDKITE_JOB_ID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "NOMAD_ALLOC_ID",
    "POD_NAME",
];

/// What this job is called by the engine that runs it.
pub(crate) fn labels(env: &impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let fits = |value: &String| !value.is_empty() && value.len() <= LABEL_BYTES_MAX;
    let label = |name: &str| Some((name.to_owned(), env(name).filter(fits)?));
    VARIABLES.into_iter().filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_that_the_engine_sets() {
        let env = |name: &str| match name {
            "SLURM_JOB_ID" => Some("17".to_owned()),
            "GITHUB_JOB" => Some(String::new()),
            "CI_JOB_NAME" => Some("x".repeat(LABEL_BYTES_MAX + 1)),
            "HOME" => Some("/root".to_owned()),
            _ => None,
        };
        let found = labels(&env);
        assert_eq!(found, BTreeMap::from([("SLURM_JOB_ID".to_owned(), "17".to_owned())]));
        assert!(VARIABLES.len() <= wire::api::LABELS_MAX);
    }
}
