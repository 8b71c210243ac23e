//! The nemesis: a seeded mix of everything that can be asked and everything that can die, against a
//! model.
//!
//! `mews-integration nemesis [--minutes N] [--seed S] [--moves N]`. What is done follows from the seed
//! alone (`schedule.rs`). After each move the session that it is about must be where the model says:
//! exactly there if nothing died, before or behind the act if something did, and behind it if the act
//! was acknowledged. All along: every byte once (`subject.rs`), every exit once and right, sequences of
//! events whole, rows, records, cgroups and files in agreement ([`crate::audit`]), limits held. At the end
//! everything is removed and nothing may be left.

mod act;
mod dice;
mod layer;
mod schedule;
mod strike;
mod subject;

use crate::audit;
use anyhow::{Context as _, bail, ensure};
use dice::Dice;
use layer::Layer;
use schedule::{Act, Move, SLOTS};
use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use subject::{PIDS_MAX, State, Subject};
use testkit::process::{self, LIMIT};
use testkit::{Sandbox, leftovers};

/// Moves between two whole audits, and two lines of the report.
const AUDIT_EACH: usize = 10;
/// The uid of nobody.
const STRANGER: u32 = 65534;
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
        let (mut kept, mut back) = (0, 0);
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
            kept += usize::from(done.acknowledged && next.act == Act::Checkpoint);
            back += usize::from(done.acknowledged && next.act == Act::Rollback);
            if count % AUDIT_EACH == 0 {
                self.audit().with_context(|| format!("after move {count}"))?;
                println!(
                    "{:>4} s · {count} moves, {acknowledged} acknowledged, {deaths} deaths · {next}",
                    started.elapsed().as_secs()
                );
            }
        }
        self.end().context("at the end")?;
        println!(
            "nemesis: {count} moves, {acknowledged} acknowledged ({kept} checkpoints, {back} rollbacks), \
             {deaths} deaths: all held"
        );
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
            slot.limits_hold(self.sandbox).with_context(|| slot.name.clone())?;
            slot.files_hold(self.sandbox).with_context(|| slot.name.clone())?;
        }
        limits(self.sandbox)?;
        self.stranger()
    }

    /// Whoever is let in by nobody learns of nothing.
    fn stranger(&self) -> anyhow::Result<()> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let name = self.slots.first().map_or("n1", |slot| slot.name.as_str());
        for words in [&["ls", "--all"][..], &["inspect", name], &["events", name], &["kill", name]]
        {
            let mut command = self.sandbox.command(["--system", "--json"])?;
            command.args(words).uid(STRANGER).gid(STRANGER);
            let said = process::run(&mut command, b"", LIMIT)?;
            let told = said.out() + &said.err();
            let ours = |slot: &Subject| slot.name != name && told.contains(&slot.name);
            ensure!(said.code != 0 && !self.slots.iter().any(ours), "a stranger is told {told}");
        }
        Ok(())
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
                slot.order(self.sandbox, "stop")?;
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
        audit::no_cage_is_left(self.sandbox)
    }

    fn play(&mut self, next: Move) -> anyhow::Result<act::Done> {
        let sandbox = self.sandbox;
        let runs = matches!(next.act, Act::Run | Act::RunPipes | Act::RunLayered);
        let taken = self.slots.get(next.slot).is_none_or(|slot| slot.state != State::Absent);
        if runs && !taken {
            let mut fresh = self.fresh(next.code);
            fresh.layer = (next.act == Act::RunLayered).then(Layer::default);
            if let Some(slot) = self.slots.get_mut(next.slot) {
                *slot = fresh;
            }
        }
        let slot = self.slots.get_mut(next.slot).context("a slot")?;
        let before = strike::before(sandbox, next.strike)?;
        let mut done = act::apply(sandbox, slot, next)?;
        done.struck |= before | strike::disarm(sandbox, next.strike)?;
        Ok(done)
    }
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
