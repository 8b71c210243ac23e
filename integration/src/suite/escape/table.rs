//! What is wanted of each probe: `integration/escape/cases.toml`.

use anyhow::Context as _;
use serde::Deserialize;

const TABLE: &str = include_str!("../../../escape/cases.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) id: String,
    pub(super) what: String,
    /// What stops it.
    pub(super) wall: String,
    /// Verdicts that are right in every cage, `A|B`.
    want: String,
    /// Verdicts that are right where an ordinary user started mews, if others.
    want_user: Option<String>,
    /// Verdicts that are right in the policy of one agent, if others.
    want_agent: Option<String>,
    /// Why something else than BLOCKED is right.
    pub(super) accepted: Option<String>,
    /// How the rest of the line must begin.
    #[serde(default)]
    pub(super) detail: String,
    pub(super) control: Control,
    /// What getting through is called in the control.
    #[serde(default = "open")]
    pub(super) through: String,
    /// Why there is no control.
    pub(super) why: Option<String>,
    /// It ends its cage: it gets one of its own.
    #[serde(default)]
    pub(super) alone: bool,
    /// Descriptors that the control may open: some resources are the whole host's.
    #[serde(default)]
    control_nofile: u32,
}

/// Where the same program must print OPEN, so that BLOCKED in a cage says anything.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Control {
    /// On the host, by an ordinary user.
    Host,
    /// On the host, by root: harmless acts that root may do.
    HostRoot,
    /// By an ordinary user in plain `bwrap --unshare-all --ro-bind / /`: mews' own walls left out.
    Bwrap,
    /// The same by root, who keeps every capability there.
    BwrapRoot,
    /// Nowhere on this host.
    None,
}

impl Control {
    pub(super) const RUN: [Self; 4] = [Self::Host, Self::HostRoot, Self::Bwrap, Self::BwrapRoot];

    pub(super) fn by_root(self) -> bool {
        matches!(self, Self::HostRoot | Self::BwrapRoot)
    }

    pub(super) fn in_bwrap(self) -> bool {
        matches!(self, Self::Bwrap | Self::BwrapRoot)
    }
}

fn open() -> String {
    "OPEN".to_owned()
}

impl Case {
    pub(super) fn wanted(&self, by_user: bool, by_agent: bool) -> &str {
        let agents = self.want_agent.as_deref().filter(|_| by_agent);
        let users = self.want_user.as_deref().filter(|_| by_user);
        agents.or(users).unwrap_or(&self.want)
    }

    /// A case that tells what is so, not what is stopped.
    pub(super) fn is_record(&self) -> bool {
        !self.want.starts_with("BLOCKED")
    }

    /// As `tools/run.c` takes it.
    pub(super) fn control_word(&self) -> String {
        match self.control_nofile {
            0 => self.id.clone(),
            nofile => format!("{}@{nofile}", self.id),
        }
    }
}

pub(super) fn load() -> anyhow::Result<Vec<Case>> {
    let table: Table = toml::from_str(TABLE).context("integration/escape/cases.toml")?;
    for case in &table.case {
        let needs_reason = case.is_record() || case.want_user.is_some();
        anyhow::ensure!(
            case.accepted.is_some() || !needs_reason,
            "{}: something else than BLOCKED is wanted, and no reason given",
            case.id
        );
    }
    Ok(table.case)
}
