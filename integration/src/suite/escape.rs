//! Attacks from inside: small hostile programs, each tried in a real cage of every shipped policy, in
//! the first command and in later ones, started by root and by an ordinary user.
//!
//! A probe that is stopped proves something only if the same program gets through where the walls
//! are left out; that control is run too. Table and probes: `integration/escape`.

mod baits;
mod places;
mod probes;
mod table;

use crate::runner::{Test, need_root, skip};
use anyhow::Context as _;
use baits::Baits;
use places::{Pass, Places, Report};
use probes::Probes;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use table::{Case, Control};
use testkit::{Caller, Sandbox};

/// `ci` wants limits that an ordinary user's mews cannot give, and refuses by name.
const ROOT_POLICIES: [&str; 4] = ["shell", "agent-offline", "pi", "ci"];
const USER_POLICIES: [&str; 3] = ["shell", "agent-offline", "pi"];

/// One test per probe; the first that is asked runs them all.
pub(crate) fn tests() -> Vec<Test> {
    let cases = match table::load() {
        Ok(cases) => Rc::new(cases),
        Err(error) => {
            let told = format!("{error:#}");
            return vec![Test::new("escape.table", move |_| anyhow::bail!("{told}"))];
        }
    };
    let outcome: Rc<OnceCell<Result<Outcome, String>>> = Rc::default();
    let test = |case: &Case| {
        let (case, cases, outcome) = (case.clone(), Rc::clone(&cases), Rc::clone(&outcome));
        Test::new(format!("escape.{}", case.id), move |_| {
            need_root()?;
            let outcome = outcome
                .get_or_init(|| Outcome::of(&cases).map_err(|error| format!("{error:#}")))
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error}"))?;
            outcome.judge(&case)
        })
    };
    cases.iter().map(test).collect()
}

struct Outcome {
    passes: Vec<Pass>,
    controls: BTreeMap<Control, Report>,
}

impl Outcome {
    fn of(cases: &[Case]) -> anyhow::Result<Self> {
        let probes = Probes::compile()?;
        let mut baits = Baits::make(&probes).context("the baits")?;
        let places = Places { cases, probes: &probes, baits: &baits };
        let mut passes = Vec::new();
        for (caller, policies) in
            [(Caller::Me, &ROOT_POLICIES[..]), (Caller::ordinary(7), &USER_POLICIES[..])]
        {
            let sandbox = Sandbox::of(caller)?;
            for policy in policies {
                let done = places.cage(&sandbox, policy);
                passes.extend(done.map_err(|error| error.context(sandbox.logs()))?);
            }
            sandbox.finish()?;
        }
        let mut controls = BTreeMap::new();
        for control in Control::RUN {
            controls.insert(control, places.control(control)?);
        }
        baits.unharmed()?;
        if let Some(file) = std::env::var_os("MEWS_ESCAPE_REPORT") {
            std::fs::write(file, told(&passes, &controls))?;
        }
        Ok(Self { passes, controls })
    }

    fn judge(&self, case: &Case) -> anyhow::Result<()> {
        let wrong: Vec<String> =
            self.passes.iter().filter_map(|pass| self.wrong(case, pass)).collect();
        anyhow::ensure!(
            wrong.is_empty(),
            "{}\nwall: {}\n{}",
            case.what,
            case.wall,
            wrong.join("\n")
        );
        if case.is_record() {
            return Ok(());
        }
        let control = self.controls.get(&case.control).and_then(|report| report.get(&case.id));
        match (control, &case.why) {
            (Some((word, _)), _) if *word == case.through => Ok(()),
            (Some((word, detail)), _) => Err(skip(&format!(
                "PROVES NOTHING HERE: control {:?} says {word} {detail}",
                case.control
            ))),
            (None, why) => Err(skip(&format!(
                "PROVES NOTHING HERE: no control, {}",
                why.as_deref().unwrap_or("and no reason given")
            ))),
        }
    }

    fn wrong(&self, case: &Case, pass: &Pass) -> Option<String> {
        if case.alone != pass.label.ends_with("/alone") {
            return None;
        }
        let wanted = case.wanted(pass.by_user, pass.label.contains("/pi/"));
        let nothing = ("NOTHING".to_owned(), String::new());
        let (word, detail) = pass.report.get(&case.id).unwrap_or(&nothing);
        let right = wanted.split('|').any(|one| one == word) && detail.starts_with(&case.detail);
        (!right).then(|| format!("{}: {word} {detail} (wanted: {wanted})", pass.label))
    }
}

/// Every verdict, a line each.
fn told(passes: &[Pass], controls: &BTreeMap<Control, Report>) -> String {
    let passes = passes.iter().map(|pass| (pass.label.clone(), &pass.report));
    let controls =
        controls.iter().map(|(control, report)| (format!("control {control:?}"), report));
    let mut text = String::new();
    for (label, report) in passes.chain(controls) {
        for (id, (word, detail)) in report {
            text += &format!("{id} {label} {word} {detail}\n");
        }
    }
    text
}
