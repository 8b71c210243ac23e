//! Policy files: what each kind of mistake says, and how files are laid over each other.

use cage::policy::{self, Base, Bytes, Home, Millis, PathRule, Policy, PolicyError, Requirement};
use wire::PolicySource;

fn file(text: &str) -> Result<Policy, PolicyError> {
    let source = PolicySource::File { path: "./my.toml".to_owned(), text: text.to_owned() };
    policy::load(&source, &[])
}

/// Text, problem, line, key, a part of the message.
type Mistake = (&'static str, &'static str, Option<usize>, Option<&'static str>, &'static str);

const MISTAKES: &[Mistake] = &[
    ("version = 1\nname = ", "syntax", Some(2), None, ""),
    ("", "version", None, Some("version"), "begin the file with version = 1"),
    ("version = 2\nfuture = 1", "version", Some(1), Some("version"), "version = 1 only"),
    ("version = \"1\"", "version", Some(1), Some("version"), "version = 1 only"),
    (
        "version = 1\n[limits]\nmemroy = 1",
        "unknown_key",
        Some(3),
        Some("limits.memroy"),
        "did you mean \"limits.memory\"?",
    ),
    ("version = 1\nmemory = 1", "unknown_key", Some(2), Some("memory"), "\"limits.memory\""),
    (
        "version = 1\n[fs]\nxyzzy = 1",
        "unknown_key",
        Some(3),
        Some("fs.xyzzy"),
        "known here are read",
    ),
    (
        "version = 1\n[[fs.tmpfs]]\npath = \"/a\"\nmode = 7",
        "unknown_key",
        Some(4),
        Some("fs.tmpfs.mode"),
        "",
    ),
    ("version = 1\n[limits]\nmemory = \"2X\"", "bad_value", Some(3), Some("limits.memory"), "unit"),
    ("version = 1\n[limits]\nmemory = -1", "bad_value", Some(3), Some("limits.memory"), "negative"),
    ("version = 1\n[limits]\nmemory = true", "bad_value", Some(3), Some("limits.memory"), "512M"),
    ("version = 1\n[limits]\npids = 2", "bad_value", Some(3), Some("limits.pids"), "from 8 to"),
    ("version = 1\n[limits]\ncpu = 0", "bad_value", Some(3), Some("limits.cpu"), "0.01"),
    (
        "version = 1\n[limits]\nwalltime = \"1y\"",
        "bad_value",
        Some(3),
        Some("limits.walltime"),
        "30s",
    ),
    (
        "version = 1\n[limits]\nwalltime = \"0s\"",
        "bad_value",
        Some(3),
        Some("limits.walltime"),
        "no time",
    ),
    (
        "version = 1\n[fs]\nread = [\n\"/ok\",\n\"rel\"]",
        "bad_value",
        Some(5),
        Some("fs.read"),
        "relative",
    ),
    ("version = 1\n[fs]\nread = [\"/a/../b\"]", "bad_value", Some(3), Some("fs.read"), ".."),
    ("version = 1\n[fs]\nread = [\"/a/*\"]", "bad_value", Some(3), Some("fs.read"), "pattern"),
    (
        "version = 1\n[fs]\nread = [\"$NOPE/a\"]",
        "bad_value",
        Some(3),
        Some("fs.read"),
        "$WORKSPACE",
    ),
    ("version = 1\n[fs]\nread = \"/a\"", "bad_value", Some(3), Some("fs.read"), "sequence"),
    ("version = 1\n[fs]\nmissing = \"maybe\"", "bad_value", Some(3), Some("fs.missing"), "ignore"),
    (
        "version = 1\n[fs]\nhome = \"persistent:\"",
        "bad_value",
        Some(3),
        Some("fs.home"),
        "not a name",
    ),
    (
        "version = 1\n[fs]\nhome = \"persistent:../x\"",
        "bad_value",
        Some(3),
        Some("fs.home"),
        "not a name",
    ),
    ("version = 1\n[env]\npass = [\"*\"]", "bad_value", Some(3), Some("env.pass"), "LC_*"),
    ("version = 1\n[env]\nset = { \"a=b\" = \"c\" }", "bad_value", Some(3), Some("env.set"), "a=b"),
    ("version = 1\nrequire = [\"magic\"]", "bad_value", Some(2), Some("require"), "landlock>=N"),
    (
        "version = 1\n[[net.socket]]\nlisten = \"0.0.0.0:80\"\nconnect = \"unix:/s\"",
        "bad_value",
        Some(3),
        Some("net.socket.listen"),
        "loopback",
    ),
    (
        "version = 1\n[[net.socket]]\nlisten = \"127.0.0.1:80\"\nconnect = \"tcp:x\"",
        "bad_value",
        Some(4),
        Some("net.socket.connect"),
        "unix:",
    ),
    ("version = 1\n[terminal]\ncols = 9999", "bad_value", Some(3), Some("terminal.cols"), "500"),
    ("version = 1\nextends = \"nope\"", "extends", Some(2), Some("extends"), "shipped are base"),
    ("version = 1\n[fs]\nread = [\"/usr/*\"]", "bad_value", Some(3), Some("fs.read"), "a pattern"),
    ("version = 1\n[fs]\nhide = [\"*.[ab]\"]", "bad_value", Some(3), Some("fs.hide"), "for each"),
    (
        "version = 1\n[fs]\nhide = [\"keys/**\"]",
        "bad_value",
        Some(3),
        Some("fs.hide"),
        "folder itself",
    ),
    ("version = 1\n[fs]\nhide = [\"../*\"]", "bad_value", Some(3), Some("fs.hide"), ".."),
    // Known to the design, not built: refused by name.
    ("version = 1\n[fs]\nprotect = [\n\"../x\"]", "bad_value", Some(4), Some("fs.protect"), ".."),
    ("version = 1\n[fs]\ngit = true", "unsupported", Some(3), Some("fs.git"), ""),
    (
        "version = 1\n[fs]\nworkspace = \"layered\"",
        "bad_value",
        Some(3),
        Some("fs.workspace"),
        "overlay",
    ),
    (
        "version = 1\n[fs]\nhome = \"none\"",
        "unsupported",
        Some(3),
        Some("fs.home"),
        "persistent:NAME",
    ),
    (
        "version = 1\n[net]\nmode = \"host\"",
        "unsupported",
        Some(3),
        Some("net.mode"),
        "write \"none\"",
    ),
    ("version = 1\n[net]\nallow = []", "unsupported", Some(3), Some("net.allow"), ""),
    ("version = 1\n[net]\nprivate_ranges = \"deny\"", "unsupported", Some(3), None, ""),
    (
        "version = 1\n[[net.provider]]\nenv = \"X\"",
        "unsupported",
        Some(2),
        Some("net.provider"),
        "",
    ),
    ("version = 1\n[limits]\nidle = \"never\"", "bad_value", Some(3), Some("limits.idle"), "30s"),
    ("version = 1\n[limits]\noutput_bytes = \"1X\"", "bad_value", Some(3), None, "unit"),
    ("version = 1\n[limits]\nio = 0", "bad_value", Some(3), Some("limits.io"), "for ever"),
    ("version = 1\n[limits]\nworkspace_inodes = 0", "bad_value", Some(3), None, "4294967295"),
    (
        "version = 1\n[process]\nseccomp = \"log\"",
        "unsupported",
        Some(3),
        Some("process.seccomp"),
        "",
    ),
    ("version = 1\n[process]\nlandlock = \"off\"", "unsupported", Some(3), None, "\"require\""),
    (
        "version = 1\n[process]\nuser = \"isolated\"",
        "unsupported",
        Some(3),
        Some("process.user"),
        "",
    ),
    ("version = 1\n[env]\nsecrets = []", "unsupported", Some(3), Some("env.secrets"), ""),
    ("version = 1\n[terminal]\nremote_rate = \"1M\"", "unsupported", Some(3), None, ""),
    ("version = 1\n[terminal]\nflow = \"drop\"", "unsupported", Some(3), Some("terminal.flow"), ""),
    ("version = 1\n[terminal]\nrecord_input = true", "unsupported", Some(3), None, "write false"),
    ("version = 1\n[suspend]\ngrace = \"2h\"", "bad_value", Some(3), Some("suspend.grace"), "60s"),
    (
        "version = 1\n[suspend]\ngrace = \"0s\"",
        "bad_value",
        Some(3),
        Some("suspend.grace"),
        "no time",
    ),
    ("version = 1\n[suspend]\non_refuse = \"kill\"", "bad_value", Some(3), None, "freeze"),
    ("version = 1\n[suspend]\nhow = 1", "unknown_key", Some(3), None, ""),
];

#[test]
fn each_mistake_has_its_line_and_its_words() {
    for (text, problem, line, key, words) in MISTAKES {
        let error = file(text).unwrap_err();
        assert_eq!(error.problem.code(), *problem, "{text}\n{error}");
        assert_eq!(error.line, *line, "{text}\n{error}");
        if key.is_some() {
            assert_eq!(error.key.as_deref(), *key, "{text}\n{error}");
        }
        assert!(error.message.contains(words), "{text}\n{error}");
        assert!(error.to_string().starts_with("./my.toml"), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn the_wire_error_tells_programs_the_same() {
    let error = file("version = 1\n[limits]\nmemory = \"2X\"").unwrap_err();
    let wire = wire::WireError::from(error);
    assert_eq!(wire.code, wire::ErrorCode::PolicyInvalid);
    assert_eq!(wire.details["line"], 3);
    assert_eq!(wire.details["file"], "./my.toml");
    assert_eq!(wire.details["key"], "limits.memory");
    assert_eq!(wire.details["reason"], "bad_value");
}

#[test]
fn shipped_policies_are_right_and_say_what_they_do_not_stop() {
    for name in policy::preset_names() {
        let policy = policy::load(&PolicySource::Name(name.to_owned()), &[]).unwrap();
        assert_eq!(policy.name, name);
        let text = policy::preset_text(name).unwrap();
        assert!(text.contains("# Does not stop:"), "{name}");
    }
    let ci = policy::load(&PolicySource::Name("ci".to_owned()), &[]).unwrap();
    assert!(ci.require.contains(&Requirement::CgroupMemory));
    assert!(ci.require.contains(&Requirement::CgroupPids));
    assert!(ci.require.contains(&Requirement::Userns), "base's requirements stay");
}

#[test]
fn a_child_adds_to_lists_and_replaces_the_rest() {
    let policy = file(
        r#"
        version = 1
        name = "mine"
        extends = "shell"
        require = ["landlock>=2", "userns"]
        [fs]
        read = ["~/.gitconfig", "/usr"]
        tmpfs = [{ path = "/tmp", size = "1G" }, { path = "/scratch" }]
        home = "persistent:mine"
        [limits]
        memory = "1.5G"
        walltime = "1h30m"
        idle = "30m"
        output_bytes = "1G"
        cpu = 1.5
        [env]
        pass = ["FOO"]
        set = { A = "b" }
        [terminal]
        cols = 100
        "#,
    )
    .unwrap();
    assert_eq!(policy.name, "mine");
    assert_eq!(policy.files, ["./my.toml", "preset shell", "preset base"]);
    assert_eq!(policy.limits.memory_bytes, Some(3 << 29));
    assert_eq!(policy.limits.walltime_ms, Some(5_400_000));
    assert_eq!(policy.limits.idle_ms, Some(1_800_000));
    assert_eq!(policy.limits.output_bytes, Some(1 << 30));
    assert_eq!(policy.limits.cpu_milli, Some(1500));
    assert_eq!(policy.limits.pids, Some(512), "shell's");
    assert_eq!(policy.limits.nofile, Some(4096), "base's");
    assert_eq!(policy.terminal.cols, 100);
    assert!(matches!(&policy.home, Home::Persistent(name) if name.0 == "mine"));
    let paths: Vec<String> = policy.tmpfs.iter().map(|rule| rule.path.to_string()).collect();
    assert_eq!(paths, ["/tmp", "/scratch"]);
    assert_eq!(policy.tmpfs[0].size, Some(Bytes(1 << 30)));
    assert_eq!(policy.read.iter().filter(|path| path.to_string() == "/usr").count(), 1);
    assert!(policy.read.contains(&PathRule {
        base: Base::Home,
        rest: ".gitconfig".to_owned(),
        is_pattern: false
    }));
    assert!(policy.env_pass.iter().any(|name| name == "FOO"));
    assert!(policy.env_pass.iter().any(|name| name == "LANG"));
}

#[test]
fn folders_come_before_presets_and_circles_are_found() {
    let folder = tempfile::Builder::new().prefix("mews-policy-").tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let load = |name: &str| {
        policy::load(&PolicySource::Name(name.to_owned()), &[folder.path().to_owned()])
    };
    // An admin's own `shell` over the shipped one.
    write("shell.toml", "version = 1\nextends = \"shell\"\n[limits]\nmemory = \"1G\"\n");
    let shell = load("shell").unwrap();
    assert_eq!(shell.limits.memory_bytes, Some(1 << 30));
    assert_eq!(shell.limits.pids, Some(512));
    write("a.toml", "version = 1\nextends = \"b\"\n");
    write("b.toml", "version = 1\nextends = \"a\"\n");
    let error = load("a").unwrap_err();
    assert_eq!(error.problem.code(), "extends");
    assert!(error.message.contains("circle"), "{error}");
    for number in 0..12 {
        write(
            &format!("deep{number}.toml"),
            &format!("version = 1\nextends = \"deep{}\"\n", number + 1),
        );
    }
    assert!(load("deep0").unwrap_err().message.contains("more than 8"));
    write("broken.toml", "version = 1\nx = 1\n");
    let error = load("broken").unwrap_err();
    assert!(error.file.ends_with("broken.toml"), "{error}");
    assert_eq!(error.line, Some(2));
    for name in ["../shell", ".hidden", "a/b", ""] {
        assert_eq!(load(name).unwrap_err().problem.code(), "not_found", "{name}");
    }
}

#[test]
fn sizes_and_times() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("4k", 4096),
        ("512M", 512 << 20),
        ("2G", 2 << 30),
        ("1.5GiB", 3 << 29),
        ("0.5K", 512),
        (" 8 M ", 8 << 20),
    ] {
        assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
    }
    for text in ["", "M", "1.2.3G", "-1", "1e9", "99999999999999G", "1.2345G", ".5G", "5.G"] {
        assert!(Bytes::parse(text).is_err(), "{text}");
    }
    for (text, ms) in [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("1h30m", 5_400_000)] {
        assert_eq!(Millis::parse(text), Ok(Millis(ms)), "{text}");
    }
    for text in ["", "5", "s", "1x", "0s", "99999999999999999d", "1h-1m"] {
        assert!(Millis::parse(text).is_err(), "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn a_size_reads_back_as_itself(bytes: u64) {
        let shown = Bytes(bytes).to_string();
        proptest::prop_assert_eq!(Bytes::parse(&shown), Ok(Bytes(bytes)));
    }

    #[test]
    fn no_text_breaks_the_parser(text in ".{0,200}") {
        let _result = Bytes::parse(&text);
        let _result = Millis::parse(&text);
        let _result = PathRule::parse(&text);
        let _result = file(&format!("version = 1\n{text}"));
    }

    #[test]
    fn a_path_that_is_taken_is_clean(text in "(/|~|\\$WORKSPACE)(/|[a-z.]{0,3}){0,6}") {
        if let Ok(rule) = PathRule::parse(&text) {
            let parts: Vec<&str> = rule.rest.split('/').collect();
            proptest::prop_assert!(!parts.contains(&".."));
            proptest::prop_assert!(!rule.rest.starts_with('/') && !rule.rest.ends_with('/'));
            proptest::prop_assert_eq!(PathRule::parse(&rule.to_string()), Ok(rule.clone()));
        }
    }

    /// Laying the same child over its parent again changes nothing; what the child says wins.
    #[test]
    fn merging(memory in 8u64..1 << 40, pids in 8u64..1000, read in "/[a-z]{1,8}") {
        let folder = tempfile::Builder::new().prefix("mews-policy-").tempdir().unwrap();
        let parent = format!("version = 1\n[limits]\nmemory = {memory}\npids = {pids}\n[fs]\nread = [\"/usr\"]\n");
        let body = format!("[limits]\nmemory = 1048576\n[fs]\nread = [\"{read}\", \"/usr\"]\n");
        std::fs::write(folder.path().join("p.toml"), parent).unwrap();
        std::fs::write(folder.path().join("c.toml"), format!("version = 1\nextends = \"p\"\n{body}")).unwrap();
        std::fs::write(folder.path().join("d.toml"), format!("version = 1\nextends = \"c\"\n{body}")).unwrap();
        let load = |name: &str| {
            policy::load(&PolicySource::Name(name.to_owned()), &[folder.path().to_owned()]).unwrap()
        };
        let (once, twice) = (load("c"), load("d"));
        proptest::prop_assert_eq!(once.limits.memory_bytes, Some(1 << 20));
        proptest::prop_assert_eq!(once.limits.pids, Some(pids));
        proptest::prop_assert_eq!(&once.read, &twice.read);
        proptest::prop_assert_eq!(&once.limits, &twice.limits);
    }
}

/// The page that people read must not show a file that is refused.
#[test]
fn the_documented_example_is_right() {
    let page = include_str!("../../docs/policies.md");
    let (_before, rest) = page.split_once("```toml\n").unwrap();
    let (example, _after) = rest.split_once("```").unwrap();
    assert_eq!(file(example).unwrap().limits.walltime_ms, Some(3_600_000));
}
