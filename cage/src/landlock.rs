//! The Landlock wall: a program of paths and rights becomes a domain around the calling process.

use crate::orders::{Access, Forwarder, LandlockProgram};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

/// What stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Domain {
    /// 0: none.
    pub(crate) abi: u32,
    /// Whether every right that the program asked for is enforced.
    pub(crate) full: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LandlockError {
    #[error("the rule for {path} cannot be made: {source}")]
    Path { path: String, source: landlock::PathFdError },
    #[error("the rules cannot be made: {0}")]
    Rules(#[from] landlock::RulesetError),
    #[error("only a part of the rules is enforced by this kernel")]
    Partial,
}

/// Puts the calling process into a domain of its own, for good.
///
/// # Errors
/// A rule's path is missing, or the kernel lacks what a required program asks for.
pub(crate) fn restrict(
    program: &LandlockProgram,
    forwarders: &[Forwarder],
) -> Result<Domain, LandlockError> {
    let abi = ABI::from(i32::try_from(program.abi).unwrap_or(i32::MAX));
    if abi == ABI::Unsupported && !program.required {
        return Ok(Domain::default());
    }
    let level =
        if program.required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let mut rules =
        Ruleset::default().set_compatibility(level).handle_access(AccessFs::from_all(abi))?;
    if program.connect_ports.is_some() && abi >= ABI::V4 {
        // Listening stays free: the cage's network namespace has nothing but loopback.
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    if abi >= ABI::V6 {
        rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    let mut rules = rules.create()?.set_compatibility(level);
    for rule in &program.rules {
        rules = rules.add_rule(beneath(&rule.path, rights(rule.access, abi))?)?;
    }
    if abi >= ABI::V9 {
        // From here on the kernel also guards sockets that have a path.
        for forwarder in forwarders {
            rules = rules.add_rule(beneath(&forwarder.connect, AccessFs::ResolveUnix.into())?)?;
        }
    }
    if abi >= ABI::V4 {
        for port in program.connect_ports.iter().flatten() {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    let status = rules.restrict_self()?;
    let full = status.ruleset == RulesetStatus::FullyEnforced;
    if program.required && !full {
        return Err(LandlockError::Partial);
    }
    let abi = if status.ruleset == RulesetStatus::NotEnforced { 0 } else { program.abi };
    Ok(Domain { abi, full })
}

fn beneath(path: &str, rights: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, LandlockError> {
    let fd = PathFd::new(path)
        .map_err(|source| LandlockError::Path { path: path.to_owned(), source })?;
    // Rights of folders on a file would be an error of the strict kind; the kernel knows what it is.
    let is_folder = std::fs::metadata(path).is_ok_and(|meta| meta.is_dir());
    let abi = ABI::V10;
    let rights = if is_folder { rights } else { rights & AccessFs::from_file(abi) };
    Ok(PathBeneath::new(fd, rights))
}

fn rights(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
    let ioctl = if abi >= ABI::V5 { AccessFs::IoctlDev.into() } else { BitFlags::EMPTY };
    match access {
        Access::List => AccessFs::ReadDir.into(),
        Access::Read => AccessFs::ReadFile | AccessFs::ReadDir,
        Access::ReadExecute => AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute,
        // Devices in a writable folder of the operator's get no ioctl.
        Access::Write => AccessFs::from_all(abi) & !devices & !ioctl,
        Access::Device => {
            (AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | ioctl)
                | (AccessFs::from_all(abi) & AccessFs::Truncate)
        }
    }
}
