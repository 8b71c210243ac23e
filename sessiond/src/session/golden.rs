//! The whole tables, compared with what is checked in. `UPDATE_GOLDEN=1` writes them anew.

use super::{run_state, state};
use std::fmt::Write;
use std::path::Path;
use wire::api::RunState;

fn compare(name: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(table, kept, "{name}: run with UPDATE_GOLDEN=1 and read the diff");
}

#[test]
fn the_session_machine_is_this_table() {
    use state::{Event, PauseReason, Room, State};
    let states = [
        State::Idle,
        State::Running,
        State::Queued,
        State::Paused(PauseReason::Operator),
        State::Ended,
        State::Failed,
    ];
    let events = [
        Event::Message(Room::Free),
        Event::Message(Room::FullQueue),
        Event::Message(Room::FullRefuse),
        Event::Command(Room::Free),
        Event::Command(Room::FullQueue),
        Event::Command(Room::FullRefuse),
        Event::Resume(Room::Free),
        Event::Resume(Room::FullQueue),
        Event::Resume(Room::FullRefuse),
        Event::ResumeElsewhere,
        Event::Discard,
        Event::RunEnded,
        Event::Pause(PauseReason::Operator),
        Event::Rollback,
        Event::NothingLeft,
        Event::End,
        Event::Fail,
    ];
    let mut table = String::from("# session: state × event → state, actions | denied\n");
    for from in states {
        for event in events {
            let told = match state::step(from, event) {
                Ok(step) => format!("{:?} {:?}", step.next, step.actions),
                Err(denied) => format!("denied {:?}", denied.code),
            };
            let from = format!("{from:?}");
            let event = format!("{event:?}");
            writeln!(table, "{from:<17} {event:<21} {told}").unwrap();
        }
    }
    compare("session_machine.txt", &table);
}

#[test]
fn the_run_machine_is_this_table() {
    use run_state::{Event, Outcome};
    let states = [
        RunState::Pending,
        RunState::Running,
        RunState::Suspended,
        RunState::Done,
        RunState::Failed,
        RunState::Cancelled,
    ];
    let events = [
        Event::Started,
        Event::Suspended,
        Event::Resumed,
        Event::Ended(Outcome::Done),
        Event::Ended(Outcome::Failed),
        Event::Ended(Outcome::Cancelled),
    ];
    let mut table = String::from("# run: state × event → state | denied\n");
    for from in states {
        for event in events {
            let told = match run_state::step(from, event) {
                Ok(next) => format!("{next:?}"),
                Err(denied) => format!("denied {:?}", denied.code),
            };
            let from = format!("{from:?}");
            let event = format!("{event:?}");
            writeln!(table, "{from:<9} {event:<16} {told}").unwrap();
        }
    }
    compare("run_machine.txt", &table);
}
