//! A paused session really stands still, and comes back as it was.

mod faults;
mod programs;
mod terminals;

use crate::runner::Test;
use crate::talk::{events, number, read, text, wait_exit};
use anyhow::ensure;
use faults::*;
use programs::*;
use serde_json::Value;
use terminals::*;
use testkit::process::LIMIT;
use testkit::{Sandbox, pause};

const FAILPOINTS: [&str; 6] = [
    "suspend.meant",
    "suspend.signalled",
    "suspend.frozen",
    "suspend.told",
    "suspend.recorded",
    "resume.thawed",
];
/// Counts in a file, as fast as it can.
const COUNT: &str = "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > count; done; exit 6";

type Body = fn(&Sandbox) -> anyhow::Result<()>;

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("suspend.a_busy_program_stands_still", stands_still),
        Test::new("suspend.a_busy_program_that_ignores_it", |s| hides(s, DEAF)),
        Test::new("suspend.keys_at_a_prompt_arrive_afterwards", keys_at_a_prompt),
        Test::new("suspend.attach_says_that_it_is_paused", attached_later),
        Test::new("suspend.who_watches_is_told", watched),
        Test::new("suspend.a_job_in_the_foreground_keeps_it", foreground),
        Test::new("suspend.a_key_that_kills_waits", key_that_kills),
        Test::new("suspend.a_pipeline", pipeline),
        Test::new("suspend.a_stopped_job_stays_stopped", stopped_job),
        Test::new("suspend.nested_shells", nested),
        Test::new("suspend.vim", |s| editor(s, false)),
        Test::new("suspend.vim_beside_a_background_job", |s| editor(s, true)),
        Test::new("suspend.vim_alone", vim_alone),
        Test::new("suspend.less", less),
        Test::new("suspend.htop_like_full_screen_program", top),
        Test::new("suspend.a_handler_that_is_quick", |s| handler(s, Handler::Quick)),
        Test::new("suspend.a_handler_that_is_late", |s| handler(s, Handler::Late)),
        Test::new("suspend.a_handler_that_never_stops", |s| handler(s, Handler::Never)),
        Test::new("suspend.a_program_that_ignores_it", |s| handler(s, Handler::Ignores)),
        Test::new("suspend.a_node_program", node),
        Test::new("suspend.htop", htop),
        Test::new("suspend.a_policy_may_rather_not", not_if_refused),
        Test::new("suspend.a_fork_loop", fork_loop),
        Test::new("suspend.what_has_left_its_session", leaderless),
        Test::new("suspend.many_processes", many),
        Test::new("suspend.a_resize_arrives_once", resize),
        Test::new("suspend.walltime_stands", walltime),
        Test::new("suspend.twice_and_for_nothing", twice),
        Test::new("suspend.so_many_of_one_operator", cap),
        Test::new("suspend.no_exec_no_signal", refused),
        Test::new("suspend.killed", |s| ended(s, "kill")),
        Test::new("suspend.ended", |s| ended(s, "end")),
        Test::new("suspend.pid_1_dies", init_dies),
        Test::new("suspend.the_broker_dies", broker_dies),
        Test::new("suspend.daemons_die_meanwhile", daemons_die),
    ];
    // Without a cgroup to freeze, signals alone must do.
    let bodies: [(&str, Body); 9] = [
        ("a_busy_program_that_ignores_it", |s| hides(s, DEAF)),
        ("a_name_that_is_no_text", |s| hides(s, STRANGE_NAME)),
        ("a_first_thread_that_has_ended", |s| hides(s, NO_FIRST_THREAD)),
        ("a_busy_program", stands_still),
        ("a_job_in_the_foreground", foreground),
        ("nested_shells", nested),
        ("vim", |s| editor(s, false)),
        ("a_late_handler", |s| handler(s, Handler::Late)),
        ("a_fork_loop", fork_loop),
    ];
    for (name, body) in bodies {
        let name = format!("suspend.for_an_ordinary_user_{name}");
        tests.push(Test::new(name, move |_root| super::users::as_user(1, body)));
    }
    for failpoint in FAILPOINTS {
        let name = format!("suspend.supervisor_dies_at_{}", failpoint.replace('.', "_"));
        tests.push(Test::new(name, move |s| supervisor_dies(s, failpoint)));
    }
    tests
}

fn pause_it(sandbox: &Sandbox, id: &str) -> anyhow::Result<()> {
    sandbox.mews(["pause", id])?.expect(0)?;
    let shown = sandbox.json(["inspect", id])?;
    for (pointer, want) in
        [("/state", "paused"), ("/cages/0/phase", "suspended"), ("/runs/0/state", "suspended")]
    {
        ensure!(text(&shown, pointer)? == want, "{pointer}: {shown}");
    }
    Ok(())
}

fn resume_it(sandbox: &Sandbox, id: &str) -> anyhow::Result<()> {
    sandbox.mews(["resume", id])?.expect(0)?;
    let shown = sandbox.json(["inspect", id])?;
    ensure!(text(&shown, "/cages/0/phase")? == "running", "{shown}");
    Ok(())
}

/// The newest suspension, as its event tells it.
fn suspension(sandbox: &Sandbox, id: &str) -> anyhow::Result<Value> {
    let all = events(sandbox, id)?;
    let found =
        all.iter().rev().find(|it| it.pointer("/type").is_some_and(|t| t == "cage.suspended"));
    let found = found.and_then(|event| event.pointer("/data")).cloned();
    found.ok_or_else(|| anyhow::anyhow!("nothing is said of a suspension: {all:?}"))
}

fn count(sandbox: &Sandbox) -> anyhow::Result<u64> {
    // The shell may be between emptying the file and writing it.
    pause::until("a number", LIMIT, || read(sandbox, "count").ok()?.trim().parse().ok())
}

/// What grows while a program runs does not, over a time in which it would have many times.
fn must_stand(sandbox: &Sandbox, name: &str) -> anyhow::Result<()> {
    let before = read(sandbox, name)?;
    for _look in 0..20 {
        pause::briefly();
        ensure!(read(sandbox, name)? == before, "{name} goes on");
    }
    Ok(())
}

/// Pauses, sees it stand, resumes, sees it go on: by the file in which it counts.
fn stands_and_goes_on(sandbox: &Sandbox, id: &str) -> anyhow::Result<()> {
    pause_it(sandbox, id)?;
    must_stand(sandbox, "count")?;
    let stood = read(sandbox, "count")?;
    resume_it(sandbox, id)?;
    must_go_on(sandbox, &stood)
}

/// `stood` may be nothing: it stood between emptying the file and writing it.
fn must_go_on(sandbox: &Sandbox, stood: &str) -> anyhow::Result<()> {
    pause::until("it goes on", LIMIT, || {
        let now = read(sandbox, "count").ok()?;
        (!now.is_empty() && now != stood).then_some(())
    })
}

fn resume_it_and_end(sandbox: &Sandbox, id: &str, code: i64) -> anyhow::Result<()> {
    sandbox.mews(["resume", id])?.expect(0)?;
    wait_exit(sandbox, id)?.expect(0)?;
    let shown = sandbox.json(["inspect", id])?;
    ensure!(number(&shown, "/runs/0/exit/code")? == code, "{shown}");
    Ok(())
}
