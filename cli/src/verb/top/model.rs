//! What `top` knows and what its keys mean. No terminal, no daemons.

use super::feed::Found;
use super::history::History;
use super::keys::Key;
use crate::escape::{command, escape};
use crate::verb::ls;
use std::collections::{HashMap, VecDeque};
use wire::api::{SessionEvent, SessionState, SessionView};
use wire::{CageId, SessionId};

/// Events of the chosen one that are kept.
const EVENTS: usize = 200;

/// A session on the list.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) session: SessionView,
    pub(super) cage: Option<CageId>,
    /// Counted at the last look; not while it is built or ends.
    pub(super) is_counted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Age,
    Cpu,
    Memory,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Age => Self::Cpu,
            Self::Cpu => Self::Memory,
            Self::Memory => Self::Age,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}

/// What the keys are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    List,
    /// They are letters of the filter; what it was before.
    Filter(String),
    /// y kills this one.
    Kill { session: SessionId, cage: CageId, name: String },
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Leave,
    Attach(String),
    Pause(SessionId, String),
    Resume(SessionId, String),
    Kill { session: SessionId, cage: CageId, name: String },
}

#[derive(Debug, Default)]
pub(super) struct Model {
    all: Vec<Row>,
    histories: HashMap<CageId, History>,
    /// By id, so that it stays the same when the list moves.
    chosen: Option<SessionId>,
    pub(super) filter: String,
    pub(super) order: Order,
    pub(super) mode: Mode,
    /// What came of the last key.
    pub(super) told: String,
    is_cut_off: bool,
    events_of: Option<SessionId>,
    events: VecDeque<SessionEvent>,
}

impl Model {
    pub(super) fn new(filter: String) -> Self {
        Self { filter, ..Self::default() }
    }

    /// All that lives now.
    pub(super) fn learn(&mut self, found: Vec<Found>) {
        if std::mem::take(&mut self.is_cut_off) {
            self.told.clear();
        }
        self.histories.retain(|cage, _history| found.iter().any(|one| one.cage == Some(*cage)));
        self.all.clear();
        for Found { session, cage, stats } in found {
            if let (Some(cage), Some(stats)) = (cage, &stats) {
                self.histories.entry(cage).or_default().push(stats);
            }
            self.all.push(Row { session, cage, is_counted: stats.is_some() });
        }
        self.sort();
        self.keep_chosen();
    }

    pub(super) fn happened(&mut self, session: SessionId, events: Vec<SessionEvent>) {
        if self.events_of != Some(session) {
            self.events.clear();
            self.events_of = Some(session);
        }
        self.events.extend(events);
        let over = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..over);
    }

    pub(super) fn say(&mut self, words: String) {
        self.told = words;
        self.is_cut_off = false;
    }

    /// Nobody answers; said until somebody does.
    pub(super) fn cut_off(&mut self, words: String) {
        self.told = words;
        self.is_cut_off = true;
    }

    fn sort(&mut self) {
        let histories = &self.histories;
        let of = |row: &Row, value: fn(&History) -> Option<u64>| {
            row.cage.and_then(|cage| histories.get(&cage)).and_then(value)
        };
        // A stable sort: the daemons' order is by age.
        match self.order {
            Order::Age => self.all.sort_by_key(|row| row.session.id),
            Order::Cpu => {
                self.all.sort_by_key(|row| std::cmp::Reverse(of(row, |one| one.cpu.last())));
            }
            Order::Memory => {
                self.all.sort_by_key(|row| std::cmp::Reverse(of(row, |one| one.memory.last())));
            }
        }
    }

    /// Those that fit the filter.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        self.all.iter().filter(|row| fits(&row.session, &wanted)).collect()
    }

    /// How many live in all.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let of = |state| self.all.iter().filter(|row| row.session.state == state).count();
        (self.all.len(), of(SessionState::Running), of(SessionState::Paused))
    }

    pub(super) fn chosen(&self) -> Option<&Row> {
        self.rows().into_iter().find(|row| Some(row.session.id) == self.chosen)
    }

    pub(super) fn chosen_at(&self) -> Option<usize> {
        self.rows().iter().position(|row| Some(row.session.id) == self.chosen)
    }

    pub(super) fn history(&self, row: &Row) -> Option<&History> {
        self.histories.get(&row.cage?)
    }

    /// Of the chosen one, the newest last.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &SessionEvent> {
        let is_its = self.events_of.is_some() && self.events_of == self.chosen;
        self.events.iter().filter(move |_event| is_its)
    }

    fn keep_chosen(&mut self) {
        if self.chosen_at().is_none() {
            self.chosen = self.rows().first().map(|row| row.session.id);
        }
    }

    fn choose(&mut self, at: usize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        self.chosen = rows.get(at.min(last)).map(|row| row.session.id);
    }

    pub(super) fn press(&mut self, key: Key) -> Act {
        self.told.clear();
        match std::mem::take(&mut self.mode) {
            Mode::List => self.press_list(key),
            Mode::Filter(before) => self.press_filter(key, before),
            Mode::Kill { session, cage, name } => {
                if matches!(key, Key::Char('y' | 'Y')) {
                    return Act::Kill { session, cage, name };
                }
                if key == Key::Quit {
                    return Act::Leave;
                }
                self.cannot("not killed")
            }
        }
    }

    fn press_list(&mut self, key: Key) -> Act {
        let at = self.chosen_at().unwrap_or_default();
        match key {
            Key::Char('q') | Key::Quit => return Act::Leave,
            Key::Up => self.choose(at.saturating_sub(1)),
            Key::Down => self.choose(at.saturating_add(1)),
            Key::PageUp => self.choose(at.saturating_sub(10)),
            Key::PageDown => self.choose(at.saturating_add(10)),
            Key::Home => self.choose(0),
            Key::End => self.choose(usize::MAX),
            Key::Char('/') => self.mode = Mode::Filter(self.filter.clone()),
            Key::Escape => {
                self.filter.clear();
                self.keep_chosen();
            }
            Key::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            Key::Enter => return self.attach(),
            Key::Char('p') => return self.pause(),
            Key::Char('k') => self.ask_kill(),
            Key::Char(_) | Key::Backspace => {}
        }
        Act::Nothing
    }

    fn press_filter(&mut self, key: Key, before: String) -> Act {
        match key {
            Key::Enter => return Act::Nothing,
            Key::Quit => return Act::Leave,
            Key::Escape => {
                self.filter = before;
                self.keep_chosen();
                return Act::Nothing;
            }
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => drop(self.filter.pop()),
            Key::Up | Key::Down | Key::Home | Key::End | Key::PageUp | Key::PageDown => {}
        }
        self.mode = Mode::Filter(before);
        self.keep_chosen();
        Act::Nothing
    }

    fn attach(&mut self) -> Act {
        match self.chosen() {
            Some(row) if row.cage.is_some() => Act::Attach(row.session.id.to_string()),
            Some(_idle) => self.cannot("nothing runs in it"),
            None => Act::Nothing,
        }
    }

    fn pause(&mut self) -> Act {
        let Some(row) = self.chosen() else { return Act::Nothing };
        let (id, name) = (row.session.id, row.session.name.clone());
        match row.session.state {
            SessionState::Running => Act::Pause(id, name),
            SessionState::Paused => Act::Resume(id, name),
            SessionState::Idle
            | SessionState::Queued
            | SessionState::Ended
            | SessionState::Failed => self.cannot("nothing runs in it"),
        }
    }

    fn ask_kill(&mut self) {
        let Some(row) = self.chosen() else { return };
        let (session, mut name) = (row.session.id, row.session.name.clone());
        if row.session.uid != nix::unistd::geteuid().as_raw() {
            name = format!("{name} of {}", ls::user(row.session.uid));
        }
        match row.cage {
            Some(cage) => self.mode = Mode::Kill { session, cage, name },
            None => drop(self.cannot("nothing runs in it")),
        }
    }

    fn cannot(&mut self, why: &str) -> Act {
        why.clone_into(&mut self.told);
        Act::Nothing
    }
}

fn fits(session: &SessionView, wanted: &str) -> bool {
    let argv = session.runs.last().map(|run| command(&run.argv)).unwrap_or_default();
    [escape(&session.name), argv].iter().any(|text| text.to_lowercase().contains(wanted))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use wire::stats::{CpuUse, MemoryUse, Stats};

    pub(in crate::verb::top) fn found(name: &str, state: SessionState, memory: u64) -> Found {
        let session = crate::verb::samples::session(name, state);
        let stats = Stats {
            at_ms: 1,
            cpu: Some(CpuUse::default()),
            memory: Some(MemoryUse { current_bytes: memory, ..MemoryUse::default() }),
            ..Stats::default()
        };
        Found { session, cage: Some(CageId::new()), stats: Some(stats) }
    }

    fn names(model: &Model) -> Vec<&str> {
        model.rows().into_iter().map(|row| row.session.name.as_str()).collect()
    }

    fn chosen(model: &Model) -> &str {
        model.chosen().map_or("", |row| row.session.name.as_str())
    }

    fn two() -> Model {
        let mut model = Model::new(String::new());
        let one = found("one", SessionState::Running, 5);
        model.learn(in_order(one, found("two", SessionState::Paused, 9)));
        model
    }

    /// Ids of the same millisecond have no order.
    pub(in crate::verb::top) fn in_order(one: Found, mut two: Found) -> Vec<Found> {
        while two.session.id <= one.session.id {
            two.session.id = SessionId::new();
        }
        vec![one, two]
    }

    #[test]
    fn the_chosen_one_stays_chosen_when_the_list_moves() {
        let mut model = two();
        assert_eq!(chosen(&model), "one");
        model.press(Key::Down);
        model.press(Key::Down);
        assert_eq!(chosen(&model), "two");
        model.press(Key::Char('s'));
        model.press(Key::Char('s'));
        assert_eq!((model.order, names(&model)), (Order::Memory, vec!["two", "one"]));
        assert_eq!((chosen(&model), model.chosen_at()), ("two", Some(0)));
        model.learn(vec![found("three", SessionState::Running, 1)]);
        assert_eq!(chosen(&model), "three", "the other one has ended");
        model.learn(Vec::new());
        assert!(model.chosen().is_none());
        assert_eq!(model.press(Key::Enter), Act::Nothing);
    }

    #[test]
    fn p_pauses_what_runs_and_resumes_what_stands() {
        let mut model = two();
        assert!(matches!(model.press(Key::Char('p')), Act::Pause(_, name) if name == "one"));
        model.press(Key::Down);
        assert!(matches!(model.press(Key::Char('p')), Act::Resume(_, name) if name == "two"));
    }

    #[test]
    fn k_kills_after_a_yes_and_nothing_else_is_one() {
        let mut model = two();
        assert_eq!(model.press(Key::Char('k')), Act::Nothing);
        assert!(matches!(&model.mode, Mode::Kill { name, .. } if name == "one"));
        assert_eq!(model.press(Key::Enter), Act::Nothing);
        assert_eq!((&model.mode, model.told.as_str()), (&Mode::List, "not killed"));
        model.press(Key::Char('k'));
        assert!(matches!(model.press(Key::Char('y')), Act::Kill { name, .. } if name == "one"));
        assert_eq!(model.mode, Mode::List);
    }

    #[test]
    fn a_filter_is_typed_kept_and_taken_back() {
        let mut model = two();
        for key in [Key::Char('/'), Key::Char('t'), Key::Char('q'), Key::Backspace] {
            assert_eq!(model.press(key), Act::Nothing);
        }
        assert_eq!((names(&model), chosen(&model)), (vec!["two"], "two"));
        model.press(Key::Enter);
        assert_eq!((model.mode.clone(), model.filter.as_str()), (Mode::List, "t"));
        model.press(Key::Char('/'));
        model.press(Key::Char('x'));
        assert!(names(&model).is_empty());
        model.press(Key::Escape);
        assert_eq!(model.filter, "t");
        model.press(Key::Escape);
        assert_eq!(names(&model), ["one", "two"]);
        assert_eq!(model.press(Key::Char('q')), Act::Leave);
    }

    #[test]
    fn events_are_those_of_the_chosen_one() {
        let mut model = two();
        let (one, two) = (model.rows()[0].session.id, model.rows()[1].session.id);
        let event = |seq| SessionEvent {
            seq,
            at_ms: 0,
            kind: "run.started".into(),
            data: serde_json::Value::Null,
            run: None,
            cage: None,
        };
        model.happened(one, (0..300).map(event).collect());
        assert_eq!((model.events().count(), model.events().next_back().unwrap().seq), (200, 299));
        model.press(Key::Down);
        assert_eq!(model.events().count(), 0);
        model.happened(two, vec![event(1)]);
        assert_eq!(model.events().count(), 1);
    }
}
