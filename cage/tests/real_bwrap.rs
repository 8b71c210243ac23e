//! The plans of the shipped policies, put up by the real bwrap as an ordinary uid. The inner walls
//! (Landlock, seccomp) are cage-init's and are not part of this.
#![expect(clippy::unwrap_used, reason = "what fails in a fixture fails the test")]

use cage::bwrap::{self, BwrapFds, Sources};
use cage::plan::{CagePlan, Controller, HostFacts, Operator, RealPaths, Request};
use cage::policy::{self, Ceiling};
use std::path::Path;
use std::process::{Command, Output};
use wire::{Arg, ExecSpec, Overrides, PolicySource};

/// Nobody's: the first uid of the range that a root supervisor lends.
const UID: u32 = 1_879_048_192;

struct Bench {
    folder: tempfile::TempDir,
    uid: u32,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("mews-policy-").tempdir().unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let uid = if is_root { UID } else { nix::unistd::geteuid().as_raw() };
        let bench = Self { folder, uid };
        let ws = bench.workspace();
        std::fs::create_dir(&ws).unwrap();
        if is_root {
            let uid = Some(nix::unistd::Uid::from_raw(uid));
            nix::unistd::chown(ws.as_path(), uid, None).unwrap();
            open(bench.folder.path());
        }
        bench
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.folder.path().join("ws")
    }

    fn plan(&self, name: &str, overrides: Overrides) -> CagePlan {
        let policy = policy::load(&PolicySource::Name(name.to_owned()), &[]).unwrap();
        let facts = HostFacts {
            userns: true,
            seccomp: true,
            landlock_abi: 7,
            memory: Controller::V1,
            pids: Controller::V1,
            telling: cage::probe::telling(),
            ..HostFacts::default()
        };
        let request = Request {
            operator: Operator { uid: self.uid, gid: self.uid, name: None, home: None },
            uid: self.uid,
            gid: self.uid,
            workspace: self.workspace(),
            overrides,
            project: None,
            ceiling: Ceiling::default(),
            homes: self.folder.path().join("homes"),
            never: vec![self.folder.path().join("run")],
            never_write: Vec::new(),
        };
        cage::plan::resolve(&policy, &facts, &request, &RealPaths::default()).unwrap()
    }

    /// Descriptors come through bash: 10 the options, 11 and up the synthetic files.
    fn run(&self, plan: &CagePlan, script: &str) -> Output {
        let files = bwrap::data_files(plan);
        let fds = BwrapFds { data: (11..).take(files.len()).collect() };
        let args = bwrap::args(plan, &Sources::in_place(plan), &fds).unwrap();
        let mut redirects = String::new();
        let all = std::iter::once(args).chain(files.into_iter().map(|file| file.contents));
        for (fd, bytes) in (10..).zip(all) {
            let path = self.folder.path().join(format!("fd-{fd}"));
            std::fs::write(&path, bytes).unwrap();
            open(&path);
            redirects.push_str(&format!(" {fd}<{}", path.display()));
        }
        let drop = match nix::unistd::geteuid().is_root() {
            true => format!("setpriv --reuid {UID} --regid {UID} --clear-groups "),
            false => String::new(),
        };
        let spec = ExecSpec {
            argv: vec![Arg::from("sh")],
            env: vec![(Arg::from("LANG"), Arg::from("C.UTF-8"))],
            cwd: Some(Arg::from(self.workspace().to_str().unwrap())),
            umask: None,
            tty: None,
            hold: false,
            stdin: false,
        };
        let exec = plan.exec(&spec).unwrap();
        let env: Vec<String> = exec
            .env
            .iter()
            .map(|(name, value)| format!("{}={}", name.lossy(), value.lossy()))
            .collect();
        Command::new("bash")
            .arg("-c")
            .arg(format!("exec {drop}bwrap --args 10 -- /usr/bin/env -i -C \"$@\"{redirects}"))
            .arg("bash")
            .arg(exec.cwd.lossy())
            .args(env)
            .args(["sh", "-c", script])
            .output()
            .unwrap()
    }
}

fn open(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn said(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{:?}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn the_payload_is_somebody_with_a_home_and_a_workspace() {
    let bench = Bench::new();
    let plan = bench.plan("shell", Overrides::default());
    let script = "id -u; id -un; echo $HOME; cd ~ && echo x > f && cat f; cd - >/dev/null; pwd; \
                  echo made > made; hostname; cat /proc/1/cmdline | tr '\\0' ' ' | cut -c1-3; \
                  ls -d /bin /tmp /var/tmp/. | tr '\\n' ' '";
    let said = said(&bench.run(&plan, script));
    let ws = bench.workspace();
    let wanted = format!(
        "{}\ncaged\n/home/caged\nx\n{}\ncage\nsh \n/bin /tmp /var/tmp/.",
        bench.uid,
        ws.display()
    );
    assert_eq!(said, wanted);
    assert_eq!(std::fs::read_to_string(ws.join("made")).unwrap(), "made\n");
}

#[test]
fn what_is_not_lent_is_not_there_and_what_is_there_is_read_only() {
    let bench = Bench::new();
    let plan = bench.plan("shell", Overrides::default());
    let script = r#"
        for path in /etc/shadow /root /sys /run/user /var/lib /boot /opt; do
            test -e "$path" && echo "there: $path"
        done
        for place in / /etc /usr /dev /home /etc/passwd /usr/bin/env; do
            test -d "$place" && place="$place/x"
            (echo > "$place") 2>/dev/null && echo "writable: $place"
        done
        for file in kallsyms keys interrupts cmdline modules; do
            cat "/proc/$file" >/dev/null 2>&1 && echo "readable: $file"
        done
        unshare -U true 2>/dev/null && echo "nested user namespace"
        grep -v 0000000000000000 /proc/self/status | grep ^Cap
        echo > /dev/shm/x; echo > /tmp/x; echo > /dev/null; head -c1 /dev/zero | wc -c
        ls /proc/1/root/etc | tr '\n' ' '
    "#;
    let said = said(&bench.run(&plan, script));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("1"), "{said}");
    let etc = lines.next().unwrap_or_default();
    assert!(etc.contains("passwd") && !etc.contains("shadow"), "{etc}");
    assert_eq!(lines.next(), None);
}

#[test]
fn tools_work_inside() {
    let bench = Bench::new();
    let plan = bench.plan("shell", Overrides::default());
    for (tool, script, wanted) in [
        (
            "git",
            "git init -q . && git config user.email a@b && git config user.name a && echo a > a && git add a && git commit -qm a && git log --oneline | wc -l",
            "1",
        ),
        (
            "python3",
            "python3 -c 'import ssl, multiprocessing; multiprocessing.Lock(); print(1)'",
            "1",
        ),
        ("node", "node -e 'console.log(require(\"os\").userInfo().username)'", "caged"),
        ("vim", "vim -es -c 'normal i2' -c 'wq! out' </dev/null; cat out", "2"),
        (
            "tmux",
            "TERM=xterm tmux -L t new -d 'sleep 9' && tmux -L t ls | wc -l; tmux -L t kill-server",
            "1",
        ),
        ("less", "echo hi | less | cat", "hi"),
        ("bash", "bash -lc 'echo <(true) | cut -c1-8'", "/dev/fd/"),
    ] {
        let found = Command::new("sh").args(["-c", &format!("test -x /usr/bin/{tool}")]).status();
        if !found.unwrap().success() {
            continue;
        }
        assert_eq!(said(&bench.run(&plan, script)), wanted, "{tool}");
    }
}

#[test]
fn a_socket_is_lent_and_a_persistent_home_stays() {
    use std::os::unix::fs::FileTypeExt;
    let bench = Bench::new();
    let socket = bench.folder.path().join("provider.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let home = bench.folder.path().join("homes/agent");
    std::fs::create_dir_all(&home).unwrap();
    if nix::unistd::geteuid().is_root() {
        let uid = Some(nix::unistd::Uid::from_raw(UID));
        nix::unistd::chown(home.as_path(), uid, None).unwrap();
        open(&bench.folder.path().join("homes"));
    }
    let overrides = Overrides {
        provider: Some(format!("unix:{}", socket.display())),
        home: Some("agent".to_owned()),
        ..Overrides::default()
    };
    let plan = bench.plan("agent-offline", overrides);
    let inside = &plan.forwarders[0].connect;
    let script =
        format!("test -S {inside} && echo socket; echo kept > ~/kept; echo $OPENAI_BASE_URL");
    assert_eq!(said(&bench.run(&plan, &script)), "socket\nhttp://127.0.0.1:8399/v1");
    assert_eq!(std::fs::read_to_string(home.join("kept")).unwrap(), "kept\n");
    assert!(std::fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
}
