//! What is enforced: the walls of one cage, as they were read back.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WallState {
    /// Put up and read back.
    Enforced,
    /// By a weaker means, which `how` names (an rlimit for a cgroup limit).
    Emulated,
    /// Not there: this host cannot, and the policy does not require it.
    Absent,
    /// The policy does not ask for it.
    Off,
}

/// One wall: `userns`, `landlock`, `seccomp`, `cgroup.memory`, `cgroup.pids`, `cgroup.cpu`, `ptys`, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wall {
    pub name: String,
    pub state: WallState,
    /// For people: `Landlock ABI 7`, `cgroup v1, 2147483648 bytes`, `rlimit AS`.
    pub how: String,
}

/// All walls of a cage, in the order in which they are put up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enforced {
    pub walls: Vec<Wall>,
}

impl Enforced {
    pub fn push(&mut self, name: &str, state: WallState, how: impl Into<String>) {
        self.walls.push(Wall { name: name.to_owned(), state, how: how.into() });
    }

    /// Whether the workspace has a layer, and what it changes stays apart from the operator's folder.
    #[must_use]
    pub fn keeps_apart(&self) -> bool {
        self.state("workspace").is_some()
    }

    #[must_use]
    pub fn state(&self, name: &str) -> Option<WallState> {
        self.walls.iter().find(|wall| wall.name == name).map(|wall| wall.state)
    }
}
