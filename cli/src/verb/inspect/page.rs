//! A session as people read it: what it is, what ran in it, behind which walls, and what to type next.

use super::super::ls::{exit_of, exit_word, paint, state, user};
use super::super::stats::bytes;
use crate::escape::{command, escape};
use crate::out::colour::Paint;
use crate::time::{age, stamp};
use wire::api::{CageView, PtyView, RunKind, RunView, SessionState, SessionView};
use wire::enforced::{Wall, WallState};
use wire::supervisor::Phase;

/// Lines, painted or not.
struct Page {
    text: String,
    colours: bool,
    now_ms: i64,
}

pub(super) fn page(session: &SessionView, now_ms: i64, colours: bool) -> String {
    let mut page = Page { text: String::new(), colours, now_ms };
    page.session(session);
    for run in &session.runs {
        page.run(run);
        for cage in session.cages.iter().filter(|cage| cage.run == run.id) {
            page.cage(cage);
        }
    }
    page.next(session);
    page.text
}

impl Page {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn head(&mut self, word: &str, rest: &str) {
        let word = Paint::Head.when(self.colours, word);
        self.line(&format!("{word}  {rest}"));
    }

    fn field(&mut self, name: &str, value: &str) {
        self.line(&format!("  {name:<10}{value}"));
    }

    /// When, and how long ago.
    fn time(&mut self, name: &str, at_ms: i64) {
        let ago = age(self.now_ms - at_ms);
        self.field(name, &format!("{} ({ago} ago)", stamp(at_ms)));
    }

    fn painted(&self, word: &str) -> String {
        paint(word).map_or_else(|| word.to_owned(), |paint| paint.when(self.colours, word))
    }

    fn session(&mut self, session: &SessionView) {
        let state = self.painted(state(session));
        let archived = if session.archived { ", archived" } else { "" };
        self.head(&escape(&session.name), &format!("{state}{archived}"));
        self.field("id", &session.id.to_string());
        self.field("folder", &escape(&session.folder));
        self.field("project", &escape(&session.project));
        self.field("source", &escape(&session.source));
        self.field("operator", &format!("{} (uid {})", user(session.uid), session.uid));
        let labels = session.labels.iter().map(|(key, value)| match value.as_str() {
            "" => escape(key),
            value => format!("{}={}", escape(key), escape(value)),
        });
        let labels = labels.collect::<Vec<_>>().join(" ");
        if !labels.is_empty() {
            self.field("labels", &labels);
        }
        self.time("created", session.created_at_ms);
        match session.ended_at_ms {
            Some(ended) => self.time("ended", ended),
            None if session.end_on_exit => self.field("ends", "with its command"),
            None => self.field("ends", "when it is told to"),
        }
        self.field("events", &session.seq.to_string());
    }

    fn run(&mut self, run: &RunView) {
        self.line("");
        let kind = match run.kind {
            RunKind::Agent => "agent",
            RunKind::Job => "job",
            RunKind::Shell => "shell",
        };
        self.head("run", &format!("{}  {kind}", run.id));
        self.field("command", &command(&run.argv));
        self.field("policy", &escape(&run.policy));
        if let Some(started) = run.started_at_ms {
            self.time("started", started);
            let until = run.ended_at_ms.unwrap_or(self.now_ms);
            let word = if run.ended_at_ms.is_some() { "took" } else { "runs for" };
            self.field(word, &age(until - started));
        }
        if run.exit.is_some() || run.error.is_some() {
            self.field("exit", &exit_of(run));
        }
        if let Some(error) = &run.error {
            self.field("error", &escape(&error.message));
        }
        let Some(exit) = &run.exit else { return };
        if let Some(message) = &exit.message {
            self.field("because", &escape(message));
        }
        let usage = &exit.usage;
        let own_ms = usage.user_us.saturating_add(usage.system_us) / 1000;
        let mut used = match usage.cpu_us {
            Some(all) => format!("{} ms of cpu, {own_ms} of them the command's own", all / 1000),
            None => format!("{own_ms} ms of cpu"),
        };
        if let Some(peak) = usage.memory_peak_bytes {
            used.push_str(&format!("; {} of memory at most", bytes(peak)));
        }
        used.push_str(&format!("; {} bytes of output", usage.output_bytes));
        self.field("used", &used);
    }

    fn cage(&mut self, cage: &CageView) {
        self.line("");
        self.head("cage", &format!("{}  {}", cage.id, phase_word(cage.phase)));
        if let Some(pid) = cage.pid {
            self.field("pid", &pid.to_string());
        }
        if let Some(build) = &cage.build {
            self.field("build", &format!("mews {}", escape(build)));
        }
        if let Some(why) = &cage.unreachable {
            let words = format!("UNREACHABLE: {}", escape(why));
            self.line(&format!("  {}", Paint::Bad.when(self.colours, &words)));
        }
        self.field("plan", &escape(&cage.plan_hash));
        for pty in &cage.ptys {
            self.terminal(pty);
        }
        for (state, head, paint) in [
            (WallState::Enforced, "enforced", Paint::Good),
            (WallState::Emulated, "by weaker means", Paint::Warn),
            (WallState::Absent, "ABSENT on this host", Paint::Bad),
            (WallState::Off, "not asked for", Paint::Back),
        ] {
            let walls: Vec<&Wall> =
                cage.enforced.walls.iter().filter(|wall| wall.state == state).collect();
            if !walls.is_empty() {
                self.line(&format!("  walls {}:", paint.when(self.colours, head)));
                walls.into_iter().for_each(|wall| self.wall(wall));
            }
        }
    }

    fn wall(&mut self, wall: &Wall) {
        self.line(&format!("    {:<18}{}", escape(&wall.name), escape(&wall.how)));
    }

    fn terminal(&mut self, pty: &PtyView) {
        let kind = match pty.size {
            Some(size) => format!("{}x{}", size.cols, size.rows),
            None if pty.tty => "terminal".to_owned(),
            None => "pipes".to_owned(),
        };
        let state = match (&pty.exit, pty.viewers) {
            (Some(exit), _) => format!("exit {}", exit_word(exit)),
            (None, 0) => "nobody watches".to_owned(),
            (None, 1) => "1 viewer".to_owned(),
            (None, viewers) => format!("{viewers} viewers"),
        };
        let is_exec = if pty.main { "" } else { "exec: " };
        let argv = command(&pty.argv);
        self.field("terminal", &format!("{}  {kind}  {state}  {is_exec}{argv}", pty.id));
    }

    /// What one does with such a session.
    fn next(&mut self, session: &SessionView) {
        let name = escape(&session.name);
        let is_apart = session.cages.iter().any(|cage| cage.enforced.keeps_apart());
        let mut next: Vec<(&str, &str)> = match session.state {
            SessionState::Running => vec![
                ("attach", "watch it, or take it over"),
                ("pause", "let it stand still"),
                ("stats", "what it uses now"),
                ("end", "end it"),
            ],
            SessionState::Paused => vec![
                ("resume", "let it go on"),
                ("checkpoint", "keep its state"),
                ("end", "end it"),
            ],
            SessionState::Idle | SessionState::Queued => vec![("end", "end it")],
            SessionState::Ended | SessionState::Failed => {
                vec![("logs", "what it printed"), ("rm", "remove it with all it has kept")]
            }
        };
        if is_apart {
            next.push(("diff", "what it has changed, apart from your folder"));
        }
        self.line("");
        self.line(&Paint::Head.when(self.colours, "next"));
        let width = next.iter().map(|(verb, _words)| verb.len()).max().unwrap_or_default();
        for (verb, words) in next {
            let typed = format!("mews {verb} {name}");
            let room = name.chars().count() + width + 8;
            self.line(&format!("  {typed:<room$}{words}"));
        }
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Suspended => "suspended",
        Phase::Ending => "ending",
        Phase::Gone => "gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api::RunState;
    use wire::{Cause, Enforced, Exit, RunId, SessionId, Usage};

    fn session(exit: Option<Exit>) -> SessionView {
        let id: SessionId = "01J00000000000000000ABCDEF".parse().unwrap();
        let run: RunId = "01J00000000000000000ABCDEG".parse().unwrap();
        let mut enforced = Enforced::default();
        enforced.push("landlock", WallState::Enforced, "ABI 7");
        enforced.push("cgroup.memory", WallState::Absent, "no cgroup\x1b[2J");
        SessionView {
            id,
            name: "pi-1".into(),
            project: "p".into(),
            folder: "/p".into(),
            state: if exit.is_some() { SessionState::Ended } else { SessionState::Running },
            archived: false,
            labels: [("team".to_owned(), "blue".to_owned())].into(),
            source: "cli:run".into(),
            end_on_exit: true,
            uid: 4_000_000_000,
            created_at_ms: 0,
            ended_at_ms: exit.as_ref().map(|_exit| 60_000),
            seq: 9,
            runs: vec![RunView {
                id: run,
                session: id,
                kind: RunKind::Job,
                state: if exit.is_some() { RunState::Failed } else { RunState::Running },
                argv: vec!["pi".into()],
                policy: "shell".into(),
                created_at_ms: 0,
                started_at_ms: Some(0),
                ended_at_ms: exit.as_ref().map(|_exit| 60_000),
                exit,
                error: None,
            }],
            cages: vec![CageView {
                id: wire::CageId::new(),
                run,
                session: id,
                phase: Phase::Running,
                pid: Some(7),
                plan_hash: "h".into(),
                enforced,
                exit: None,
                started_at_ms: Some(0),
                ended_at_ms: None,
                ptys: Vec::new(),
                build: None,
                unreachable: None,
            }],
        }
    }

    #[test]
    fn a_living_one_says_what_stands_what_is_absent_and_what_to_type() {
        let page = page(&session(None), 180_000, false);
        for words in [
            "pi-1  running\n",
            "  labels    team=blue\n",
            "(3m ago)",
            "  runs for  3m\n",
            "  walls ABSENT on this host:\n    cgroup.memory     no cgroup\\u{1b}[2J\n",
            "  mews attach pi-1  watch it, or take it over\n",
        ] {
            assert!(page.contains(words), "no {words:?} in\n{page}");
        }
        assert!(!page.contains("exit"), "{page}");
    }

    #[test]
    fn an_ended_one_says_how_and_why() {
        let exit = Exit {
            code: None,
            signal: Some(9),
            core: false,
            cause: Cause::Oom,
            message: Some("out of memory".into()),
            usage: Usage { memory_peak_bytes: Some(3 << 19), ..Usage::default() },
        };
        let page = page(&session(Some(exit)), 180_000, true);
        for words in ["137 oom", "because   out of memory", "1.5M of memory", "took      1m"] {
            assert!(page.contains(words), "no {words:?} in\n{page}");
        }
        assert!(page.contains("\x1b[1;31mABSENT"), "{page:?}");
        assert!(page.contains("mews rm pi-1"), "{page}");
    }
}
