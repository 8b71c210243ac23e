//! The nemesis: a seeded mix of everything that can be asked and everything that can die, against a
//! model.
//!
//! `mews-integration nemesis [--minutes N] [--seed S] [--moves N]`. What is done follows from the seed
//! alone (`schedule.rs`). After each move the session that it is about must be where the model says:
//! exactly there if nothing died, before or behind the act if something did, and behind it if the act
//! was acknowledged. All along: every byte once (`subject.rs`), every exit once and right, sequences of
//! events whole, rows, records, cgroups and files in agreement ([`crate::audit`]), limits held. At the end
//! everything is removed and nothing may be left.

mod dice;
mod schedule;
mod subject;

use crate::audit;
use crate::talk::{daemon_pids, text};
use anyhow::{Context as _, bail, ensure};
use dice::Dice;
use link::PidFd;
use schedule::{Act, Move, SLOTS, Strike};
use std::collections::VecDeque;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};
use subject::{PIDS_MAX, State, Subject};
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox, leftovers, pause};

/// Moves between two whole audits, and two lines of the report.
const AUDIT_EACH: usize = 10;
/// Of the last moves, in the report of a violation.
const TOLD: usize = 15;

struct Options {
    time: Duration,
    moves: usize,
    seed: u64,
}

pub(crate) fn main(args: &[String]) -> ExitCode {
    let options = match parse(args) {
        Ok(options) => options,
        Err(error) => {
            println!("{error}\nmews-integration nemesis [--minutes N] [--seed S] [--moves N]");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = leftovers::adopt_orphans() {
        println!("cannot take orphans in, so leftovers would not be seen: {error}");
        return ExitCode::FAILURE;
    }
    println!("nemesis: seed {}", options.seed);
    let done = play(&options);
    testkit::programs::forget();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("nemesis: VIOLATION with seed {}: {error:#}", options.seed);
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> anyhow::Result<Options> {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
    let mut options = Options {
        time: Duration::from_secs(120),
        moves: usize::MAX,
        seed: u64::try_from(nanos % 1_000_000)?,
    };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} wants a number"))?;
        match flag.as_str() {
            "--minutes" => options.time = Duration::from_secs_f64(60.0 * value.parse::<f64>()?),
            "--seed" => options.seed = value.parse()?,
            "--moves" => options.moves = value.parse()?,
            other => bail!("{other} is no option"),
        }
    }
    Ok(options)
}

fn play(options: &Options) -> anyhow::Result<()> {
    let mut sandbox = Sandbox::new()?;
    let mut last = VecDeque::new();
    let mut game = Game { sandbox: &sandbox, slots: Vec::new(), names: 0 };
    let played = game.all(options, &mut last);
    if let Err(error) = played {
        let folder = sandbox.keep();
        // The game's clients must not outlive it.
        sandbox.finish().ok();
        let moves = last.into_iter().collect::<Vec<String>>().join("\n  ");
        return Err(error.context(format!("kept: {}\nlast moves:\n  {moves}\n", folder.display())));
    }
    sandbox.finish().context("after the end")
}

struct Game<'a> {
    sandbox: &'a Sandbox,
    slots: Vec<Subject>,
    names: usize,
}

impl Game<'_> {
    fn all(&mut self, options: &Options, last: &mut VecDeque<String>) -> anyhow::Result<()> {
        let mut dice = Dice::new(options.seed);
        let started = Instant::now();
        self.sandbox.mews(["daemon", "start"])?.expect(0)?;
        for _ in 0..SLOTS {
            let fresh = self.fresh(0);
            self.slots.push(fresh);
        }
        let (mut count, mut deaths, mut acknowledged) = (0, 0, 0);
        while started.elapsed() < options.time && count < options.moves {
            let next = schedule::next(&mut dice);
            count += 1;
            last.push_back(format!("{count}. {next}"));
            if last.len() > TOLD {
                last.pop_front();
            }
            let done = self.play(next).with_context(|| format!("move {count}: {next}"))?;
            if let Some(told) = last.back_mut() {
                told.push_str(&format!(" → {}", done.words));
            }
            deaths += usize::from(done.struck);
            acknowledged += usize::from(done.acknowledged);
            if count % AUDIT_EACH == 0 {
                self.audit().with_context(|| format!("after move {count}"))?;
                println!(
                    "{:>4} s · {count} moves, {acknowledged} acknowledged, {deaths} deaths · {next}",
                    started.elapsed().as_secs()
                );
            }
        }
        self.end().context("at the end")?;
        println!("nemesis: {count} moves, {acknowledged} acknowledged, {deaths} deaths: all held");
        Ok(())
    }

    /// A name that was never used.
    fn fresh(&mut self, code: u8) -> Subject {
        self.names += 1;
        Subject::new(format!("n{}", self.names), code)
    }

    fn audit(&mut self) -> anyhow::Result<()> {
        // Whoever was killed comes back with the next command.
        self.sandbox.mews(["ls"])?.expect(0)?;
        audit::agrees(self.sandbox)?;
        for slot in &mut self.slots {
            let state = slot.look(self.sandbox).with_context(|| slot.name.clone())?;
            ensure!(state == slot.state, "{} is {state:?}, not {:?}", slot.name, slot.state);
        }
        limits(self.sandbox)
    }

    /// Everything ends as it should, and goes.
    fn end(&mut self) -> anyhow::Result<()> {
        self.audit()?;
        for slot in &mut self.slots {
            if slot.state == State::Paused {
                self.sandbox.mews(["resume", &slot.name])?.expect(0)?;
                slot.state = State::Running;
            }
            if slot.state == State::Running {
                slot.drained(self.sandbox)?;
                self.sandbox.file(&format!("ws/stop-{}", slot.name), "")?;
                self.sandbox.mews(["wait", "--exit", &slot.name])?.expect(0)?;
                slot.state = State::Exited;
                slot.clients_end(self.sandbox)?;
            }
        }
        self.audit()?;
        for slot in self.slots.iter().filter(|slot| slot.state != State::Absent) {
            self.sandbox.mews(["rm", "--force", &slot.name])?.expect(0)?;
        }
        audit::agrees(self.sandbox)?;
        for folder in ["state/sup", "state/cages", "run/sup"] {
            let left = std::fs::read_dir(self.sandbox.root().join(folder))?.flatten().next();
            ensure!(left.is_none(), "{left:?} is left");
        }
        Ok(())
    }

    fn play(&mut self, next: Move) -> anyhow::Result<Done> {
        let sandbox = self.sandbox;
        let runs = matches!(next.act, Act::Run | Act::RunPipes);
        let taken = self.slots.get(next.slot).is_none_or(|slot| slot.state != State::Absent);
        if runs && !taken {
            let fresh = self.fresh(next.code);
            if let Some(slot) = self.slots.get_mut(next.slot) {
                *slot = fresh;
            }
        }
        let slot = self.slots.get_mut(next.slot).context("a slot")?;
        let struck = strike_before(sandbox, next.strike)?;
        let done = apply(sandbox, slot, next)?;
        let struck = struck | done.1 | disarm(sandbox, next.strike)?;
        let acknowledged = done.0.is_some_and(|ok| ok);
        Ok(Done { acknowledged, struck, words: done.2 })
    }
}

struct Done {
    acknowledged: bool,
    struck: bool,
    words: String,
}

fn kill(pid: i32) -> anyhow::Result<()> {
    let handle = PidFd::open(pid)?;
    handle.signal(libc::SIGKILL)?;
    pause::until("it is dead", LIMIT, || (!handle.is_alive()).then_some(()))
}

/// `(sessiond, supervisor)`, from the moment when both are there.
fn daemons(sandbox: &Sandbox) -> anyhow::Result<(i32, i32)> {
    sandbox.mews(["ls"])?.expect(0)?;
    pause::until("both daemons are there", LIMIT, || daemon_pids(sandbox).ok())
}

fn strike_before(sandbox: &Sandbox, strike: Strike) -> anyhow::Result<bool> {
    match strike {
        Strike::None | Strike::SessiondUnder | Strike::SupervisorUnder => return Ok(false),
        Strike::At(step) => {
            sandbox.arm(step, testkit::Act::Kill)?;
            return Ok(false);
        }
        Strike::Sessiond => kill(daemons(sandbox)?.0)?,
        Strike::Supervisor => kill(daemons(sandbox)?.1)?,
        Strike::Both => {
            let (sessiond, supervisor) = daemons(sandbox)?;
            kill(supervisor)?;
            kill(sessiond)?;
        }
    }
    Ok(true)
}

/// Nobody dies there any more; whether somebody did.
fn disarm(sandbox: &Sandbox, strike: Strike) -> anyhow::Result<bool> {
    let Strike::At(step) = strike else { return Ok(false) };
    let folder = sandbox.root().join("steps");
    // Gone: it was reached, now or before.
    std::fs::remove_file(folder.join(step)).ok();
    Ok(std::fs::remove_file(folder.join(format!("{step}.met"))).is_ok())
}

/// Whether it was acknowledged (none: there was nobody to say so), whether something died, words.
type Applied = (Option<bool>, bool, String);

fn apply(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Applied> {
    let name = slot.name.clone();
    let before = slot.state;
    let (words, after): (Vec<String>, State) = match next.act {
        Act::Run => (slot.run_words(false), State::Running),
        Act::RunPipes if before == State::Absent => return run_pipes(sandbox, slot, next),
        Act::RunPipes => (slot.run_words(true), State::Running),
        Act::Exec => {
            let file = slot.exec_file();
            let script = format!("echo ran >> {file}");
            (strings(&["exec", "--no-tty", &name, "--", "sh", "-c", &script]), State::Running)
        }
        Act::Pause => (strings(&["pause", &name]), State::Paused),
        Act::Resume => (strings(&["resume", &name]), State::Running),
        Act::Stop => return stop(sandbox, slot, next),
        Act::Kill => (strings(&["kill", &name]), State::Cancelled),
        Act::End => (strings(&["end", &name]), State::Cancelled),
        Act::Remove => (strings(&["rm", &name]), State::Absent),
        Act::Attach | Act::Detach | Act::Type | Act::Flood | Act::KillClient => {
            return aside(sandbox, slot, next);
        }
        Act::KillBroker => return kill_broker(sandbox, slot, next),
        Act::Wrong => (wrong(next), before),
    };
    let is_right = match next.act {
        Act::Run | Act::RunPipes => before == State::Absent,
        Act::Exec => before == State::Running,
        Act::Pause => matches!(before, State::Running | State::Paused),
        // One whose answer was lost finds a session that runs, and cannot tell.
        Act::Resume => {
            before == State::Paused || (before == State::Running && next.strike != Strike::None)
        }
        Act::Kill => before != State::Absent,
        Act::End => matches!(before, State::Running | State::Paused),
        Act::Remove => before.is_over(),
        Act::Stop
        | Act::Attach
        | Act::Detach
        | Act::Type
        | Act::Flood
        | Act::KillClient
        | Act::KillBroker
        | Act::Wrong => false,
    };
    let after = if next.act == Act::Kill && before.is_over() { before } else { after };
    let file = slot.exec_file();
    let (client, struck) = ask(sandbox, &words, next.strike)?;
    let ok = client.code == 0;
    if next.act == Act::Exec && is_right {
        slot.expect_exec(file, ok);
    }
    if !is_right {
        ensure!(!ok, "{words:?} is acknowledged, and it is {before:?}");
        ensure!(!client.err().is_empty(), "{words:?} fails without a word");
        settle(sandbox, slot, &[before])?;
        return Ok((Some(false), struck, "refused".to_owned()));
    }
    let excused = struck || before == after;
    ensure!(ok || excused, "{words:?}: {}", client.err());
    let allowed: &[State] = match (ok, next.act) {
        (true, _) => &[after],
        // A client that gives up ends what it began.
        (false, Act::Run | Act::RunPipes) => {
            &[State::Absent, State::NeverRan, State::Running, State::Cancelled]
        }
        (false, _) => &[before, after],
    };
    settle(sandbox, slot, allowed)?;
    Ok((Some(ok), struck, format!("{ok}, {:?}", slot.state)))
}

/// Sends it, and strikes while it is under way.
fn ask(sandbox: &Sandbox, words: &[String], strike: Strike) -> anyhow::Result<(Finished, bool)> {
    let under = match strike {
        Strike::SessiondUnder => Some(daemons(sandbox)?.0),
        Strike::SupervisorUnder => Some(daemons(sandbox)?.1),
        Strike::None | Strike::Sessiond | Strike::Supervisor | Strike::Both | Strike::At(_) => None,
    };
    let mut command = sandbox.command(words)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    if let Some(pid) = under {
        kill(pid)?;
    }
    let before = matches!(strike, Strike::Sessiond | Strike::Supervisor | Strike::Both);
    let client = crate::talk::finish(child)?;
    // From here on nobody dies: what follows must find everything again.
    let at_step = disarm(sandbox, strike)?;
    Ok((client, under.is_some() || before || at_step))
}

/// Waits until nothing is under way; then it must be where it may be.
fn settle(sandbox: &Sandbox, slot: &mut Subject, allowed: &[State]) -> anyhow::Result<()> {
    let looked = || -> anyhow::Result<State> {
        sandbox.mews(["ls"])?.expect(0)?;
        audit::agrees(sandbox)?;
        slot.look(sandbox)
    }();
    let state = looked.with_context(|| slot.name.clone())?;
    ensure!(allowed.contains(&state), "{} is {state:?}, not one of {allowed:?}", slot.name);
    let was_over = slot.state.is_over();
    slot.state = state;
    if state.is_over() && !was_over {
        slot.clients_end(sandbox)?;
    }
    Ok(())
}

fn run_pipes(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Applied> {
    let under = match next.strike {
        Strike::SessiondUnder => Some(daemons(sandbox)?.0),
        Strike::SupervisorUnder => Some(daemons(sandbox)?.1),
        Strike::None | Strike::Sessiond | Strike::Supervisor | Strike::Both | Strike::At(_) => None,
    };
    let mut runner: Child = slot.start_pipes(sandbox)?;
    if let Some(pid) = under {
        kill(pid)?;
    }
    let began = pause::until("it prints, or its client ends", LIMIT, || {
        if slot.has_output(sandbox) {
            return Some(true);
        }
        matches!(runner.try_wait(), Ok(Some(_status))).then_some(false)
    })?;
    let at_step = disarm(sandbox, next.strike)?;
    let before = matches!(next.strike, Strike::Sessiond | Strike::Supervisor | Strike::Both);
    let struck = under.is_some() || before || at_step;
    ensure!(began || struck, "its client ends before it prints");
    if began {
        slot.keep_runner(runner);
        settle(sandbox, slot, &[State::Running])?;
    } else {
        process::wait(&mut runner, LIMIT)?;
        let allowed = [State::Absent, State::NeverRan, State::Running, State::Cancelled];
        settle(sandbox, slot, &allowed)?;
    }
    Ok((Some(began), struck, format!("{:?}", slot.state)))
}

fn stop(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Applied> {
    if slot.state != State::Running {
        return Ok((None, false, "not running".to_owned()));
    }
    slot.drained(sandbox)?;
    sandbox.file(&format!("ws/stop-{}", slot.name), "")?;
    let (waited, struck) = ask(sandbox, &strings(&["wait", "--exit", &slot.name]), next.strike)?;
    let ok = waited.code == 0;
    ensure!(ok || struck, "wait: {}", waited.err());
    ensure!(!ok || waited.out().trim() == slot.code.to_string(), "wait says {}", waited.out());
    if !ok {
        sandbox.mews(["wait", "--exit", &slot.name])?.expect(0)?;
    }
    settle(sandbox, slot, &[State::Exited])?;
    Ok((Some(ok), struck, format!("exit {}", slot.code)))
}

/// What changes no state.
fn aside(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Applied> {
    let done = match (next.act, slot.state) {
        (Act::Attach, State::Running | State::Paused) if slot.is_free() => {
            slot.attach(sandbox)?;
            "attached"
        }
        (Act::Detach, State::Running | State::Paused) => {
            slot.detach(sandbox)?;
            "detached"
        }
        (Act::Type, State::Running | State::Paused) if slot.type_word()? => "typed",
        (Act::Flood, State::Running) => {
            sandbox.file(&format!("ws/flood-{}", slot.name), "")?;
            "flood"
        }
        (Act::KillClient, State::Running) => {
            slot.drained(sandbox)?;
            slot.kill_client()?;
            "client killed"
        }
        _ => "nothing to do",
    };
    Ok((None, false, done.to_owned()))
}

fn kill_broker(sandbox: &Sandbox, slot: &mut Subject, next: Move) -> anyhow::Result<Applied> {
    if !matches!(slot.state, State::Running | State::Paused) {
        return Ok((None, false, "no broker".to_owned()));
    }
    let shown = sandbox.json(["inspect", &slot.name])?;
    let cage = text(&shown, "/cages/0/id")?;
    let record = std::fs::read(sandbox.state_dir().join("sup").join(format!("{cage}.json")))?;
    let record: serde_json::Value = serde_json::from_slice(&record)?;
    kill(i32::try_from(crate::talk::number(&record, "/broker/pid")?)?)?;
    let (_listed, _struck) = ask(sandbox, &strings(&["ls"]), next.strike)?;
    settle(sandbox, slot, &[State::BrokerLost])?;
    Ok((None, true, "broker killed".to_owned()))
}

/// Requests that are never right.
fn wrong(next: Move) -> Vec<String> {
    match next.code % 5 {
        0 => strings(&["attach", "nobody-of-this-name"]),
        1 => strings(&["run", "-d", "-p", "no-such-policy", "--", "true"]),
        2 => strings(&["exec", "nobody-of-this-name", "--", "true"]),
        3 => strings(&["run", "-d", "--memory", "much", "--", "true"]),
        _ => strings(&["kill", "-s", "99", "nobody-of-this-name"]),
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// No cage has more processes than it may have.
fn limits(sandbox: &Sandbox) -> anyhow::Result<()> {
    for line in leftovers::cgroups(sandbox.cgroup_parent()) {
        let Some(path) = line.split_whitespace().nth(1) else { continue };
        let read = |name: &str| std::fs::read_to_string(format!("{path}/{name}")).ok();
        let (Some(max), Some(current)) = (read("pids.max"), read("pids.current")) else { continue };
        // The parent has none of its own.
        if max.trim() == "max" {
            continue;
        }
        ensure!(max.trim() == PIDS_MAX, "{path} has pids.max {max}");
        let current: u64 = current.trim().parse()?;
        ensure!(current <= PIDS_MAX.parse()?, "{path} has {current} processes");
    }
    Ok(())
}
