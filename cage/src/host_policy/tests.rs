use super::file::{Accounts, parse};
use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

struct Known;

impl Accounts for Known {
    fn user(&self, name: &str) -> nix::Result<Option<u32>> {
        Ok([("alice", 1000), ("bob", 1001)].iter().find(|(n, _)| *n == name).map(|(_, id)| *id))
    }
    fn group(&self, name: &str) -> nix::Result<Option<u32>> {
        Ok([("dev", 50), ("wheel", 10)].iter().find(|(n, _)| *n == name).map(|(_, id)| *id))
    }
}

fn read(text: &str) -> Result<HostPolicy, String> {
    parse("host.toml", text, &Known).map_err(|error| error.to_string())
}

const WHOLE: &str = r#"
version = 1
cages = 100
[admins]
groups = ["wheel"]
[[allow]]
users = ["alice", 2000]
policies = ["shell", "team-*"]
widen = false
cages = 3
[allow.limits]
memory = "2G"
walltime = "8h"
[[allow]]
groups = ["dev"]
"#;

fn who(uid: u32, groups: &[u32]) -> Who<'_> {
    Who { uid, gid: uid, groups }
}

#[test]
fn the_first_rule_that_names_an_operator_is_theirs() {
    let host = read(WHOLE).unwrap();
    assert_eq!((host.cages_max, host.unknown.len()), (Some(100), 0));
    let cages = |who| host.rule_for(who).map(|rule| rule.cages_max);
    assert_eq!(cages(who(1000, &[50])), Some(Some(3)), "alice, although in dev too");
    assert_eq!(cages(who(2000, &[])), Some(Some(3)));
    assert_eq!(cages(who(1001, &[50])), Some(None));
    assert_eq!(cages(Who { uid: 7, gid: 50, groups: &[] }), Some(None), "by the primary group");
    assert_eq!(cages(who(1001, &[])), None);
    for (uid, groups, admin) in [(0, vec![], true), (1000, vec![], false), (5, vec![10], true)] {
        assert_eq!(host.is_admin(who(uid, &groups)), admin, "{uid}");
    }
}

#[test]
fn a_ceiling_on_swap_needs_one_on_memory() {
    let rule = |limits: &str| {
        read(&format!("version = 1\n[[allow]]\nusers = [1]\n[allow.limits]\n{limits}\n"))
    };
    assert!(rule("swap = \"0\"").unwrap_err().contains("limits.memory"));
    assert!(rule("swap = \"0\"\nmemory = \"1G\"").is_ok());
}

#[test]
fn policies_and_flags_of_a_rule() {
    let host = read(WHOLE).unwrap();
    let (alice, bob) = (host.rule_for(who(1000, &[])), host.rule_for(who(1001, &[50])));
    let (alice, bob) = (alice.unwrap(), bob.unwrap());
    let name = |name: &str| PolicySource::Name(name.to_owned());
    let own = PolicySource::File { path: "./x.toml".into(), text: String::new() };
    let none = Overrides::default();
    let read = Overrides { read: vec!["/opt/x".into()], ..Overrides::default() };
    let limit = Overrides { memory: Some("64G".into()), ..Overrides::default() };
    for (rule, source, overrides, allowed) in [
        (alice, name("shell"), &none, true),
        (alice, name("shell"), &limit, true),
        (alice, name("team-a"), &none, true),
        (alice, name("ci"), &none, false),
        (alice, name("shell"), &read, false),
        (alice, own.clone(), &none, false),
        (bob, name("ci"), &read, true),
        (bob, own, &none, true),
    ] {
        let told = rule.admits(&source, overrides);
        assert_eq!(told.is_ok(), allowed, "{source:?} {told:?}");
        if let Err(error) = told {
            assert_eq!(error.code, ErrorCode::Forbidden);
        }
    }
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    for (text, want) in [
        ("", "version"),
        ("version = 2", "write version = 1"),
        ("version = 1\nadmin = 3", "host.toml:2"),
        ("version = 1\n[[allow]]\npolicies = [\"shell\"]", "names nobody"),
        ("version = 1\n[[allow]]\nusers = [true]", "host.toml:3"),
        ("version = 1\n[[allow]]\nusers = [\"alice\"]\npolicies = [\"../x\"]", "policies"),
        ("version = 1\n[[allow]]\nusers = [1]\n[allow.limits]\nmemory = \"much\"", "not a size"),
        ("version = 1\n[[allow]]\nusers = [1]\n[allow.limits]\noom = \"group\"", "oom"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(want), "{text}: {error}");
    }
    let host = read("version = 1\n[[allow]]\nusers = [\"carol\"]\ngroups = [\"ops\"]").unwrap();
    assert_eq!(host.unknown, ["user carol", "group ops"]);
    assert_eq!(host.rule_for(who(1000, &[50])), None);
}

#[test]
fn only_a_file_that_nobody_else_can_write_is_believed() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("etc");
    let me = nix::unistd::geteuid().as_raw();
    assert!(open(&folder, me).unwrap().is_none());
    std::fs::create_dir(&folder).unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(&folder, 0o755);
    assert!(open(&folder, me).unwrap().is_none());
    let file = folder.join(FILE_NAME);
    std::fs::write(&file, "version = 1\n").unwrap();
    mode(&file, 0o644);
    assert!(open(&folder, me).unwrap().is_some());
    let unsafe_because = |want: &str| {
        let error = open(&folder, me).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    mode(&file, 0o664);
    unsafe_because("mode 664");
    mode(&file, 0o644);
    mode(&folder, 0o777);
    unsafe_because("mode 777");
    mode(&folder, 0o755);
    assert!(open(&folder, me + 1).unwrap_err().to_string().contains("belongs to uid"));
    std::fs::rename(&file, base.path().join("elsewhere")).unwrap();
    symlink(base.path().join("elsewhere"), &file).unwrap();
    unsafe_because("a link");
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    unsafe_because("no ordinary file");
}
