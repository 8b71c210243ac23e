//! Every step, and what is so afterwards when something dies there by kill -9.
//!
//! The columns say who dies: the daemon that is at the step, the other daemon, both, the broker of the
//! cage. `docs/faults.md` is made of this table.

use super::flow::Flow::{self, *};

/// Who is at the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Daemon {
    Supervisor,
    Sessiond,
}

use Daemon::{Sessiond, Supervisor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The daemon at the step.
    Itself,
    Other,
    Both,
    Broker,
}

pub(super) const VICTIMS: [Victim; 4] =
    [Victim::Itself, Victim::Other, Victim::Both, Victim::Broker];

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) step: &'static str,
    pub(super) at: Daemon,
    pub(super) flow: Flow,
    /// By victim; none: there is nothing to kill yet, or it is another row's.
    pub(super) outcomes: [Option<&'static str>; 4],
}

const fn row(
    step: &'static str,
    at: Daemon,
    flow: Flow,
    outcomes: [Option<&'static str>; 4],
) -> Row {
    Row { step, at, flow, outcomes }
}

const fn all(outcome: &'static str, broker: &'static str) -> [Option<&'static str>; 4] {
    [Some(outcome), Some(outcome), Some(outcome), Some(broker)]
}

const NOTHING: &str = "nothing ran";
const RUNS: &str = "runs";
const STANDS: &str = "stands still";
const LOST: &str = "ended: broker_lost";
const CANCELLED: &str = "ended: cancelled";
const EXITED: &str = "ended: exited";
const REMOVED: &str = "removed";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row("spawn.asked", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.recorded", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.folders", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.planned", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.cgroup", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.socket", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.layer", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.lent", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("spawn.forked", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.fork_recorded", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.hello", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.attested", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.go_recorded", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.went", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), Some(NOTHING)]),
    row("spawn.commanded", Supervisor, Run, all(RUNS, LOST)),
    row("spawn.started", Supervisor, Run, all(RUNS, LOST)),
    row("spawn.done", Supervisor, Run, all(RUNS, LOST)),
    row("grant.opened", Supervisor, Granted, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("grant.counted", Supervisor, Granted, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("run.rows", Sessiond, Run, [Some(NOTHING), Some(NOTHING), Some(NOTHING), None]),
    row("run.answered", Sessiond, Run, all(RUNS, LOST)),
    row("run.went", Sessiond, Run, all(RUNS, LOST)),
    row("run.refused", Sessiond, Refused, [Some(NOTHING), Some(NOTHING), Some(NOTHING), None]),
    row("exec.rows", Sessiond, Exec, all(RUNS, LOST)),
    row("exec.asked", Supervisor, Exec, all(RUNS, LOST)),
    row("exec.taken", Supervisor, Exec, all(RUNS, LOST)),
    row("exec.done", Supervisor, Exec, all(RUNS, LOST)),
    row("exec.answered", Sessiond, Exec, all(RUNS, LOST)),
    row("pause.asked", Sessiond, Pause, all(STANDS, LOST)),
    row("suspend.meant", Supervisor, Pause, all(STANDS, LOST)),
    row("suspend.signalled", Supervisor, Pause, all(STANDS, LOST)),
    row("suspend.frozen", Supervisor, Pause, all(STANDS, LOST)),
    row("suspend.told", Supervisor, Pause, all(STANDS, LOST)),
    row("suspend.recorded", Supervisor, Pause, all(STANDS, LOST)),
    row("suspend.done", Supervisor, Pause, all(STANDS, LOST)),
    row("pause.answered", Sessiond, Pause, all(STANDS, LOST)),
    row("unpause.asked", Sessiond, Resume, all(RUNS, LOST)),
    row("resume.asked", Supervisor, Resume, all(RUNS, LOST)),
    row("resume.thawed", Supervisor, Resume, all(RUNS, LOST)),
    row("resume.recorded", Supervisor, Resume, all(RUNS, LOST)),
    row("resume.done", Supervisor, Resume, all(RUNS, LOST)),
    row("unpause.answered", Sessiond, Resume, all(RUNS, LOST)),
    row("kill.asked", Supervisor, Kill, all(CANCELLED, CANCELLED)),
    row("kill.announced", Supervisor, Kill, all(CANCELLED, CANCELLED)),
    row("kill.signalled", Supervisor, Kill, all(CANCELLED, CANCELLED)),
    row("kill.done", Supervisor, Kill, [Some(CANCELLED), Some(CANCELLED), Some(CANCELLED), None]),
    row("cancel.asked", Sessiond, Kill, all(CANCELLED, LOST)),
    row("cancel.answered", Sessiond, Kill, [Some(CANCELLED), Some(CANCELLED), Some(CANCELLED), None]),
    row("end.asked", Supervisor, End, all(CANCELLED, CANCELLED)),
    row("end.announced", Supervisor, End, all(CANCELLED, CANCELLED)),
    row("end.signalled", Supervisor, End, all(CANCELLED, CANCELLED)),
    row("end.done", Supervisor, End, [Some(CANCELLED), Some(CANCELLED), Some(CANCELLED), None]),
    row("cancel.told", Sessiond, End, [Some(CANCELLED), Some(CANCELLED), Some(CANCELLED), None]),
    row("exit.heard", Supervisor, Exit, all(EXITED, EXITED)),
    row("exit.emptied", Supervisor, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("exit.gone_told", Supervisor, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("exit.gone_recorded", Supervisor, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("exit.groups_removed", Supervisor, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("exit.broker_ended", Supervisor, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("events.stored", Sessiond, Exit, all(EXITED, EXITED)),
    row("filing.read", Sessiond, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("filing.stored", Sessiond, Exit, [Some(EXITED), Some(EXITED), Some(EXITED), None]),
    row("remove.rows", Sessiond, Remove, [Some(REMOVED), Some(REMOVED), Some(REMOVED), None]),
    row("forget.asked", Supervisor, Remove, [Some(REMOVED), Some(REMOVED), Some(REMOVED), None]),
    row("forget.files", Supervisor, Remove, [Some(REMOVED), Some(REMOVED), Some(REMOVED), None]),
    row("record.written", Supervisor, Run, [Some(NOTHING), Some(RUNS), Some(NOTHING), None]),
    row("forget.record", Supervisor, Remove, [Some(REMOVED), Some(REMOVED), Some(REMOVED), None]),
    row("forget.done", Supervisor, Remove, [Some(REMOVED), Some(REMOVED), Some(REMOVED), None]),
    row("adopt.connected", Supervisor, Adopt, [Some(RUNS), None, None, None]),
    row("adopt.told", Supervisor, Adopt, [Some(RUNS), None, None, None]),
    row("reconcile.listed", Sessiond, Adopt, [Some(RUNS), None, None, None]),
    row("reconcile.rows", Sessiond, Adopt, [Some(RUNS), None, None, None]),
    row("bury.found", Supervisor, Bury, [Some(LOST), None, None, None]),
    row("bury.told", Supervisor, Bury, [Some(LOST), None, None, None]),
    row("discard.found", Supervisor, Discard, [Some(NOTHING), None, None, None]),
    row("discard.told", Supervisor, Discard, [Some(NOTHING), None, None, None]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn top() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        // A suite may be one file.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push(path);
            }
        }
    }

    /// A step that nobody dies at proves nothing.
    #[test]
    fn every_step_in_the_daemons_has_a_row() {
        let mut files = Vec::new();
        for daemon in ["supervisor/src", "sessiond/src"] {
            sources(&top().join(daemon), &mut files);
        }
        let step = regex::Regex::new(r#"failpoint::reach\(\s*"([a-z._]+)""#).unwrap();
        let mut named = BTreeSet::new();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            named.extend(step.captures_iter(&text).map(|found| found[1].to_owned()));
        }
        let mut rows: BTreeSet<String> = ROWS.iter().map(|row| row.step.to_owned()).collect();
        // Steps of these are died at where they are tested.
        let mut others = Vec::new();
        for suite in ["checkpoint", "limits", "restart", "grants"] {
            sources(&top().join("integration/src/suite").join(suite), &mut others);
            others.push(top().join(format!("integration/src/suite/{suite}.rs")));
        }
        let word = regex::Regex::new(r#""([a-z]+\.[a-z._]+)""#).unwrap();
        for file in others {
            let text = std::fs::read_to_string(file).unwrap();
            rows.extend(word.captures_iter(&text).map(|found| found[1].to_owned()));
        }
        let missing: Vec<&String> = named.difference(&rows).collect();
        assert!(missing.is_empty() && named.len() > 40, "no row: {missing:?}");
    }

    #[test]
    fn the_page_shows_this_table() {
        let page = top().join("docs/faults.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let (head, rest) = text.split_once("<!-- table -->\n").unwrap();
        let (_old, tail) = rest.split_once("<!-- end -->").unwrap();
        let want = format!("{head}<!-- table -->\n{}<!-- end -->{tail}", rendered());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&page, &want).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&page).unwrap(), want, "UPDATE_GOLDEN=1 writes it");
    }

    fn rendered() -> String {
        let mut text = String::from(
            "| step | in | itself | the other daemon | both | the broker |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        );
        for row in ROWS {
            let at = match row.at {
                Supervisor => "supervisor",
                Sessiond => "sessiond",
            };
            let cells = row.outcomes.map(|outcome| outcome.unwrap_or("–"));
            text.push_str(&format!("| `{}` | {at} | {} |\n", row.step, cells.join(" | ")));
        }
        text
    }
}
