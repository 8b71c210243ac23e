//! What a cage costs beside plain bwrap with the same mounts, run as an ordinary uid (CAGE.md 11).
//!
//! CPU is that of all processes of either side: until the payload runs (it is a shell that says so
//! through a FIFO), or until nothing of the run is left. The two sides take turns.

mod gate;
mod idle;
pub(super) mod link;
mod meter;
mod plain;

use crate::bench::rounds;
use crate::bench::table::{Aim, Series, Table};
use gate::Gate;
use link::Supervisor;
use meter::Meter;
use plain::Plain;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::Sandbox;
use wire::Size;

/// CPU and wall, in ms.
#[derive(Debug, Default)]
struct Cost {
    cpu: Series,
    wall: Series,
}

impl Cost {
    fn push(&mut self, wall: Duration, cpu: Duration) {
        self.wall.push_ms(wall);
        self.cpu.push_ms(cpu);
    }
}

/// Everything that the rows share.
struct Bench {
    meter: Meter,
    sandbox: Sandbox,
    plain: Plain,
    /// Of bwrap: until its payload runs, and to its end.
    plain_exec: Cost,
    plain_whole: Cost,
    table: Table,
}

/// Whether every row is within twice its aim.
///
/// # Errors
/// Something could not be started at all.
pub(crate) fn run(rows: &[String]) -> anyhow::Result<bool> {
    let wants = |row: &str| rows.is_empty() || rows.iter().any(|asked| asked == row);
    let meter = Meter::new()?;
    let sandbox = Sandbox::new()?;
    let plain = Plain::new(sandbox.root())?;
    let table = Table::new("spawn, in ms", "bwrap");
    let mut bench = Bench {
        meter,
        sandbox,
        plain,
        plain_exec: Cost::default(),
        plain_whole: Cost::default(),
        table,
    };
    if wants("request") {
        bench.request_to_exec()?;
    }
    if wants("oneshot") {
        bench.whole_run(
            "mews run --no-daemon -- true",
            &["run", "--no-daemon"],
            Aim::AtMost(2.4),
        )?;
    }
    if wants("daemons") {
        bench.sandbox.mews(["daemon", "start"])?.expect(0)?;
        bench.whole_run("mews run -- true, daemons running", &["run"], Aim::None)?;
        bench.sandbox.mews(["daemon", "stop", "--kill"])?.expect(0)?;
    }
    if wants("exec") {
        bench.exec()?;
    }
    if wants("four") {
        bench.four_at_a_time()?;
    }
    if wants("idle") {
        bench.idle()?;
    }
    if wants("plan") {
        bench.plan()?;
    }
    let Bench { meter, sandbox, table, .. } = bench;
    sandbox.finish()?;
    drop(meter);
    Ok(table.all_met())
}

impl Bench {
    fn request_to_exec(&mut self) -> anyhow::Result<()> {
        let workspace = self.sandbox.workspace();
        let (ours, theirs) = (Gate::new(&workspace)?, Gate::new(&self.plain.workspace)?);
        let mut supervisor = Supervisor::start(&self.sandbox)?;
        let mut cost = Cost::default();
        self.meter.settle(2);
        for round in 0..=rounds(40) {
            let at_rest = self.meter.processes();
            let (cpu, began) = (self.meter.others(), Instant::now());
            let cage = supervisor.spawn(&workspace, &Gate::payload())?;
            ours.wait()?;
            let (wall, cpu) = (began.elapsed(), self.meter.others().saturating_sub(cpu));
            ours.open()?;
            supervisor.wait_for(cage, "cage.gone")?;
            self.meter.settle(at_rest);

            let plain = self.plain_until_exec(&theirs)?;
            if round > 0 {
                // The first is cold.
                cost.push(wall, cpu);
                self.plain_exec.push(plain.0, plain.1);
            }
            self.meter.settle(at_rest);
        }
        drop(supervisor);
        self.meter.settle(1);
        self.show("request to exec", true, &cost, Aim::AtMost(1.8));
        for name in ["up", "down"] {
            std::fs::remove_file(self.plain.workspace.join(name))?;
            std::fs::remove_file(workspace.join(name))?;
        }
        Ok(())
    }

    fn plain_until_exec(&self, gate: &Gate) -> anyhow::Result<(Duration, Duration)> {
        let (mut command, _files) = self.plain.command(&Gate::payload())?;
        let (cpu, began) = (self.meter.others(), Instant::now());
        let mut child = command.spawn()?;
        gate.wait()?;
        let cost = (began.elapsed(), self.meter.others().saturating_sub(cpu));
        gate.open()?;
        anyhow::ensure!(child.wait()?.success(), "bwrap failed");
        Ok(cost)
    }

    /// `mews ARGS --no-tty -- true` from its start to its end.
    fn whole_run(&mut self, row: &str, args: &[&str], aim: Aim) -> anyhow::Result<()> {
        let mut cost = Cost::default();
        self.plain_whole = Cost::default();
        for round in 0..=rounds(40) {
            let (mut bwrap, _files) = self.plain.command(&["true"])?;
            let plain = self.whole(&mut bwrap)?;
            let mut command = self.sandbox.command(args)?;
            command.args(["--no-tty", "--", "true"]).stdin(Stdio::null()).stdout(Stdio::null());
            let ours = self.whole(&mut command)?;
            if round > 0 {
                cost.push(ours.0, ours.1);
                self.plain_whole.push(plain.0, plain.1);
            }
        }
        self.show(row, false, &cost, aim);
        Ok(())
    }

    fn whole(&self, command: &mut Command) -> anyhow::Result<(Duration, Duration)> {
        let at_rest = self.meter.processes();
        let (cpu, began) = (self.meter.others(), Instant::now());
        let status = command.status()?;
        let wall = began.elapsed();
        anyhow::ensure!(status.success(), "{command:?}: {status}");
        self.meter.settle(at_rest);
        Ok((wall, self.meter.others().saturating_sub(cpu)))
    }

    /// Supervisor's request to payload's exec in a living cage.
    fn exec(&mut self) -> anyhow::Result<()> {
        let workspace = self.sandbox.workspace();
        let (ours, theirs) = (Gate::new(&workspace)?, Gate::new(&self.plain.workspace)?);
        let mut supervisor = Supervisor::start(&self.sandbox)?;
        let cage = supervisor.spawn(&workspace, &["/bin/sleep", "1000"])?;
        supervisor.wait_for(cage, "pty.started")?;
        self.meter.settle(usize::MAX);
        let (mut pipes, mut terminal) = (Cost::default(), Cost::default());
        self.plain_exec = Cost::default();
        for round in 0..=rounds(60) {
            for (cost, tty) in
                [(&mut pipes, None), (&mut terminal, Some(Size { cols: 80, rows: 24 }))]
            {
                let at_rest = self.meter.processes();
                let (cpu, began) = (self.meter.others(), Instant::now());
                supervisor.exec(cage, &workspace, &Gate::payload(), tty)?;
                ours.wait()?;
                let (wall, cpu) = (began.elapsed(), self.meter.others().saturating_sub(cpu));
                ours.open()?;
                supervisor.wait_for(cage, "pty.closed")?;
                self.meter.settle(at_rest);
                if round > 0 {
                    cost.push(wall, cpu);
                }
            }
            let at_rest = self.meter.processes();
            let plain = self.plain_until_exec(&theirs)?;
            self.meter.settle(at_rest);
            if round > 0 {
                self.plain_exec.push(plain.0, plain.1);
            }
        }
        supervisor.kill(cage)?;
        drop(supervisor);
        self.meter.settle(1);
        self.show("exec in a living cage, pipes", true, &pipes, Aim::AtMost(0.3));
        self.show("exec in a living cage, terminal", true, &terminal, Aim::AtMost(0.35));
        Ok(())
    }

    /// Whole cages per second, four under way at any time.
    fn four_at_a_time(&mut self) -> anyhow::Result<()> {
        let workspace = self.sandbox.workspace();
        let each = rounds(40);
        let mut supervisor = Supervisor::start(&self.sandbox)?;
        let (mut ours, mut theirs) = (Series::default(), Series::default());
        for round in 0..=3 {
            let began = Instant::now();
            for _ in 0..4 {
                supervisor.spawn(&workspace, &["/bin/true"])?;
            }
            for done in 1..=each {
                supervisor.next("cage.gone")?;
                if done + 4 <= each {
                    supervisor.spawn(&workspace, &["/bin/true"])?;
                }
            }
            let mews = each as f64 / began.elapsed().as_secs_f64();
            let bwrap = self.plain_four(each)?;
            if round > 0 {
                ours.push(mews);
                theirs.push(bwrap);
            }
        }
        drop(supervisor);
        self.meter.settle(1);
        self.table.compare("4 at a time, cages per second", &theirs, &ours, Aim::AtLeast(0.7));
        Ok(())
    }

    fn plain_four(&self, each: usize) -> anyhow::Result<f64> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let one = || -> anyhow::Result<()> {
                for _ in 0..each / 4 {
                    let (mut command, _files) = self.plain.command(&["/bin/true"])?;
                    anyhow::ensure!(command.status()?.success(), "bwrap failed");
                }
                Ok(())
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"))
            })
        })?;
        Ok((each / 4 * 4) as f64 / began.elapsed().as_secs_f64())
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        let workspace = self.sandbox.workspace();
        let mut supervisor = Supervisor::start(&self.sandbox)?;
        for (count, aim) in [(1, Aim::None), (20, Aim::AtMost(0.8))] {
            let (sum, parts) = idle::pss_mb(&mut supervisor, &workspace, count)?;
            self.table.alone(&format!("PSS of an idle cage of {count}, MB"), sum, aim);
            let parts: Vec<_> = parts.iter().map(|(name, mb)| format!("{name} {mb:.2}")).collect();
            println!("    {}", parts.join(", "));
        }
        drop(supervisor);
        self.meter.settle(1);
        Ok(())
    }

    fn plan(&mut self) -> anyhow::Result<()> {
        let facts = plain::facts();
        let mut series = Series::default();
        for _ in 0..rounds(200) {
            let began = Instant::now();
            std::hint::black_box(plain::resolve(&facts, &self.plain.workspace)?);
            series.push(began.elapsed().as_secs_f64() * 1e6);
        }
        self.table.alone("plan, policy to plan, microseconds", series.median(), Aim::AtMost(100.0));
        Ok(())
    }

    /// The aim is one of CPU.
    fn show(&mut self, row: &str, until_exec: bool, cost: &Cost, aim: Aim) {
        let plain = if until_exec { &self.plain_exec } else { &self.plain_whole };
        self.table.compare(&format!("{row}: CPU"), &plain.cpu, &cost.cpu, aim);
        self.table.compare(&format!("{row}: wall"), &plain.wall, &cost.wall, Aim::None);
    }
}
