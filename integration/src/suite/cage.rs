//! The walls, seen from inside and from outside.

use crate::runner::{Test, need_root};
use crate::talk::{Mode, in_workspace, read, run, run_with_status, sh, start, text, wall};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use testkit::Sandbox;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cage.root_becomes_a_user_with_name_and_home", root_becomes_a_user),
        Test::new("cage.files_belong_to_the_operator_outside", files_belong),
        Test::new("cage.host_files_are_not_there", host_files),
        Test::new("cage.no_privilege_is_left", no_privilege),
        Test::new("cage.namespaces_are_its_own", namespaces),
        Test::new("cage.no_network", no_network),
        Test::new("cage.limits_are_in_the_cgroup", limits_in_cgroup),
        Test::new("cage.pids_limit_holds", pids_limit),
        Test::new("cage.rlimits_hold", rlimits),
        Test::new("cage.forbidden_acts_fail", forbidden),
        Test::new("cage.read_and_write_grants", grants),
        Test::new("cage.only_the_workspace_is_writable", only_workspace),
        Test::new("cage.persistent_home_persists", persistent_home),
        Test::new("cage.environment_is_picked", environment),
        Test::new("cage.terminals_are_limited", terminals_limited),
        Test::new("cage.processes_end_with_it", processes_end),
        Test::new("cage.what_is_said_is_enforced", said_is_enforced),
        Test::new("cage.forwarder_reaches_a_socket", forwarder),
        Test::new("cage.doctor_ends_with_a_real_cage", doctor),
    ]
}

fn root_becomes_a_user(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script =
        "id -u; id -un; echo $HOME; echo $USER; test -d $HOME && test -w $HOME; echo $?; id -G";
    let shown = sh(sandbox, &[], script)?.expect(0)?.out();
    let lines: Vec<&str> = shown.lines().collect();
    let [uid, name, home, user, writable, groups] = lines.as_slice() else {
        anyhow::bail!("six lines, not {lines:?}");
    };
    ensure!(*uid != "0" && !name.is_empty() && *name != "root", "{lines:?}");
    ensure!(home.starts_with("/home/") && *writable == "0" && user == name, "{lines:?}");
    ensure!(!groups.split(' ').any(|group| group == "0"), "{lines:?}");
    Ok(())
}

fn files_belong(sandbox: &Sandbox) -> anyhow::Result<()> {
    std::fs::create_dir(in_workspace(sandbox, "old"))?;
    sh(sandbox, &[], "echo hello > made; mkdir folder; echo x > old/in-old; chmod 700 folder")?
        .expect(0)?;
    for name in ["made", "folder", "old/in-old"] {
        let facts = std::fs::metadata(in_workspace(sandbox, name))?;
        ensure!(facts.uid() == sandbox.caller().uid(), "{name} belongs to {}", facts.uid());
    }
    ensure!(read(sandbox, "made")? == "hello\n", "content");
    Ok(())
}

fn host_files(sandbox: &Sandbox) -> anyhow::Result<()> {
    let secret = sandbox.file("home/secret", "s3cret")?;
    let script = format!(
        "for f in /etc/shadow /root /sys/kernel /run/mews {} {} /var/lib /home/*/.ssh; do \
         test -e $f && echo there: $f; done; ls /home 2>/dev/null | grep -vcx $USER; true",
        secret.display(),
        sandbox.state_dir().display(),
    );
    let shown = sh(sandbox, &[], &script)?.expect(0)?.out();
    ensure!(!shown.contains("there:"), "{shown}");
    ensure!(shown.trim() == "0", "other homes: {shown}");
    Ok(())
}

/// One `Name:\tvalue` line of `/proc/self/status`.
fn field<'a>(status: &'a str, name: &str) -> anyhow::Result<&'a str> {
    let prefix = format!("{name}:");
    let line = status.lines().find_map(|line| line.strip_prefix(prefix.as_str()));
    line.map(str::trim).with_context(|| format!("no {name} in {status}"))
}

fn no_privilege(sandbox: &Sandbox) -> anyhow::Result<()> {
    let status = sh(sandbox, &[], "cat /proc/self/status")?.expect(0)?.out();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(&status, set)? == "0000000000000000", "{set}: {}", field(&status, set)?);
    }
    ensure!(field(&status, "NoNewPrivs")? == "1" && field(&status, "Seccomp")? == "2", "{status}");
    Ok(())
}

fn namespaces(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done; \
                  cat /proc/1/comm; hostname; cat /proc/self/cgroup";
    let shown = sh(sandbox, &[], script)?.expect(0)?.out();
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{name}"))?;
        ensure!(!shown.contains(&*ours.to_string_lossy()), "{name} is the host's: {shown}");
    }
    ensure!(shown.contains("\ncage\n"), "hostname: {shown}");
    ensure!(!shown.contains("/..") && !shown.contains("mews-test"), "cgroup seen: {shown}");
    Ok(())
}

fn no_network(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "tail -n +3 /proc/net/dev | cut -d: -f1; \
                  timeout 5 bash -c 'echo > /dev/tcp/1.1.1.1/80' 2>&1 || echo unreachable";
    let shown = sh(sandbox, &[], script)?.expect(0)?.out();
    let first = shown.lines().next().unwrap_or_default().trim();
    ensure!(first == "lo" && shown.contains("unreachable"), "{shown}");
    Ok(())
}

/// The group of this cage that has the file, in any hierarchy.
pub(super) fn cgroup_file(sandbox: &Sandbox, cage: &str, file: &str) -> anyhow::Result<String> {
    let parent = sandbox.cgroup_parent().trim_start_matches('/');
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup")?.flatten().map(|entry| entry.path());
    let roots = hierarchies.chain(std::iter::once("/sys/fs/cgroup".into()));
    for root in roots {
        for end in ["payload", ""] {
            let path = root.join(parent).join(cage).join(end).join(file);
            if let Ok(text) = std::fs::read_to_string(&path) {
                return Ok(text.trim().to_owned());
            }
        }
    }
    anyhow::bail!("no {file} of cage {cage}")
}

fn limits_in_cgroup(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_root()?;
    let run = start(sandbox, &["--memory", "128M", "--pids", "77"], &["sleep", "100"])?;
    let memory = cgroup_file(sandbox, &run.cage, "memory.limit_in_bytes")
        .or_else(|_v2| cgroup_file(sandbox, &run.cage, "memory.max"))?;
    ensure!(memory == (128 << 20).to_string(), "memory {memory}");
    ensure!(cgroup_file(sandbox, &run.cage, "pids.max")? == "77", "pids");
    let members = cgroup_file(sandbox, &run.cage, "cgroup.procs")?;
    ensure!(members.lines().count() >= 2, "members: {members}");
    sandbox.mews(["kill", &run.session])?.expect(0)?;
    ensure!(cgroup_file(sandbox, &run.cage, "pids.max").is_err(), "the group outlived its cage");
    Ok(())
}

fn pids_limit(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "import os, time\nn = 0\ntry:\n  while n < 60:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n\
                  except OSError: pass\nprint(n)";
    let command = ["/usr/bin/python3", "-c", script];
    let shown = run(sandbox, Mode::Daemons, &["--pids", "30"], &command)?.expect(0)?.out();
    let count: u32 = shown.trim().parse()?;
    ensure!((5..30).contains(&count), "{count} processes were made");
    Ok(())
}

fn rlimits(sandbox: &Sandbox) -> anyhow::Result<()> {
    let policy = "version = 1\nname = \"tight\"\nextends = \"shell\"\n[limits]\nnofile = 99\n\
                  fsize = \"1M\"\n";
    let policy = sandbox.file("home/tight.toml", policy)?;
    let script =
        "ulimit -n; ulimit -Hn; ulimit -c; head -c 3000000 /dev/zero > big; stat -c %s big";
    let options = ["--policy", &*policy.to_string_lossy()];
    let shown = run(sandbox, Mode::Daemons, &options, &["bash", "-c", script])?.out();
    let lines: Vec<&str> = shown.lines().collect();
    ensure!(lines == ["99", "99", "0", "1048576"], "{lines:?}");
    Ok(())
}

/// Acts that only the walls prevent; each prints what it managed to do, or why not.
const FORBIDDEN: &str = r"
import ctypes, errno, os, socket, fcntl, termios
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    ctypes.set_errno(0)
    if libc.syscall(number, *args) >= 0: print('DONE', name)
    else: print('refused', name, errno.errorcode[ctypes.get_errno()])
def attempt(name, act):
    try: act(); print('DONE', name)
    except OSError as e: print('refused', name, errno.errorcode[e.errno])
call('unshare user', 272, 0x10000000)
call('unshare mount', 272, 0x00020000)
call('mount', 165, b'none', b'/tmp', b'tmpfs', 0, 0)
call('umount', 166, b'/tmp', 2)
call('chroot', 161, b'/tmp')
call('keyctl', 250, 0, -3, 0)
call('bpf', 321, 0, 0, 0)
call('io_uring', 425, 1, 0)
call('ptrace 1', 101, 16, 1, 0, 0)
call('perf', 298, 0, 0, -1, -1, 0)
call('userfaultfd', 323, 0)
call('pidfd_getfd', 438, 0, 0, 0)
call('setns', 308, 0, 0)
call('reboot', 169, 0, 0, 0, 0)
call('setuid 0', 105, 0)
attempt('packet socket', lambda: socket.socket(17, 3, 0))
attempt('vsock', lambda: socket.socket(40, 1, 0))
attempt('alg', lambda: socket.socket(38, 5, 0))
attempt('raw', lambda: socket.socket(2, 3, 1))
attempt('read /proc/1/mem', lambda: open('/proc/1/mem', 'rb').read(1))
attempt('read /proc/1/environ', lambda: open('/proc/1/environ', 'rb').read())
attempt('kill 1', lambda: os.kill(1, 9))
attempt('write /usr', lambda: open('/usr/x', 'w'))
attempt('mknod', lambda: os.mknod('/tmp/node', 0o20666, 0x103))
attempt('setuid file', lambda: (open('s', 'w'), os.chmod('s', 0o4755)))
attempt('tiocsti', lambda: fcntl.ioctl(0, termios.TIOCSTI, b'x'))
attempt('write sysctl', lambda: open('/proc/sys/kernel/hostname', 'w').write('x'))
attempt('sysrq', lambda: open('/proc/sysrq-trigger', 'w').write('b'))
";

fn forbidden(sandbox: &Sandbox) -> anyhow::Result<()> {
    let command = forbidden_acts(sandbox)?;
    let shown = run(sandbox, Mode::Daemons, &[], &command)?.expect(0)?.out();
    check_refusals(&shown)
}

/// Puts them into the workspace; the command that tries them.
pub(crate) fn forbidden_acts(sandbox: &Sandbox) -> anyhow::Result<[&'static str; 2]> {
    sandbox.file("ws/forbidden.py", FORBIDDEN)?;
    Ok(["/usr/bin/python3", "forbidden.py"])
}

/// Each act was refused, and by a wall: the kernel alone would find other faults with many of them
/// (ENOTTY, EFAULT, EBADF).
pub(crate) fn check_refusals(shown: &str) -> anyhow::Result<()> {
    /// The first with a scope for signals. Before it the kernel takes one for pid 1 and throws it away:
    /// the lines behind that one are printed by a cage that lives.
    const SIGNAL_SCOPE_ABI: u32 = 6;
    let has_scope = cage::probe::landlock_abi() >= SIGNAL_SCOPE_ABI;
    for line in shown.lines().filter(|line| has_scope || *line != "DONE kill 1") {
        let by_a_wall = match line.rsplit_once(' ') {
            // There is no such user, and on many a kernel no such file.
            Some(("refused setuid 0", errno)) => errno == "EINVAL",
            Some(("refused sysrq", "ENOENT")) => true,
            Some((act, errno)) => {
                act.starts_with("refused ")
                    && ["EPERM", "EACCES", "EROFS", "ENOSYS"].contains(&errno)
            }
            None => false,
        };
        ensure!(by_a_wall, "{line}");
    }
    ensure!(shown.lines().count() == 28, "{} acts: {shown}", shown.lines().count());
    Ok(())
}

fn grants(sandbox: &Sandbox) -> anyhow::Result<()> {
    let readable = sandbox.folder("granted-read")?;
    let writable = sandbox.folder("granted-write")?;
    std::fs::write(readable.join("a"), "can read")?;
    let script = format!(
        "cat {r}/a; echo x > {r}/b && echo WROTE; echo y > {w}/c; cat {w}/c",
        r = readable.display(),
        w = writable.display()
    );
    let (read, write) = (readable.to_string_lossy(), writable.to_string_lossy());
    let options = ["--read", &*read, "--write", &*write];
    let shown = run(sandbox, Mode::Daemons, &options, &["sh", "-c", &script])?.out();
    ensure!(shown == "can ready\n", "{shown:?}");
    let facts = std::fs::metadata(writable.join("c"))?;
    ensure!(facts.uid() == sandbox.caller().uid(), "belongs to {}", facts.uid());
    Ok(())
}

fn only_workspace(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "for d in / /usr /etc /home /proc /dev /var /opt /bin; do \
                  touch $d/mews-was-here 2>/dev/null && echo WROTE $d; done; touch ok && echo fine";
    let shown = sh(sandbox, &[], script)?.expect(0)?.out();
    ensure!(shown == "fine\n", "{shown}");
    Ok(())
}

fn persistent_home(sandbox: &Sandbox) -> anyhow::Result<()> {
    sh(sandbox, &["--home", "mine"], "echo kept > ~/file")?.expect(0)?;
    let shown = sh(sandbox, &["--home", "mine"], "cat ~/file")?.expect(0)?.out();
    ensure!(shown == "kept\n", "{shown:?}");
    let other = sh(sandbox, &["--home", "other"], "cat ~/file")?;
    ensure!(other.code != 0, "another home has the file");
    let private = sh(sandbox, &[], "cat ~/file")?;
    ensure!(private.code != 0, "a private home has the file");
    Ok(())
}

fn environment(sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut command =
        sandbox.command(["run", "--no-tty", "--env", "PASSED", "--env", "SET=v", "--", "env"])?;
    command.env("PASSED", "p").env("SECRET_TOKEN", "t");
    let shown = testkit::process::run(&mut command, b"", testkit::process::LIMIT)?.expect(0)?.out();
    ensure!(shown.contains("PASSED=p\n") && shown.contains("SET=v\n"), "{shown}");
    ensure!(!shown.contains("SECRET_TOKEN") && !shown.contains("MEWS_"), "{shown}");
    Ok(())
}

fn terminals_limited(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script = "import os\nn = 0\ntry:\n  while n < 200: os.openpty(); n += 1\nexcept OSError: pass\nprint(n)";
    let shown = run(sandbox, Mode::Daemons, &[], &["/usr/bin/python3", "-c", script])?.expect(0)?;
    let count: u32 = shown.out().trim().parse()?;
    ensure!((1..=16).contains(&count), "{count} terminals could be opened");
    Ok(())
}

fn processes_end(sandbox: &Sandbox) -> anyhow::Result<()> {
    let script =
        "trap '' TERM HUP INT; (trap '' TERM HUP; setsid sleep 431) & setsid sleep 432 & exit 0";
    run(sandbox, Mode::Daemons, &[], &["bash", "-c", script])?.expect(0)?;
    testkit::pause::until("stray processes are gone", std::time::Duration::from_secs(5), || {
        let gone = |seconds| testkit::leftovers::with_arguments(&["sleep", seconds]).is_empty();
        (gone("431") && gone("432")).then_some(())
    })
}

fn said_is_enforced(sandbox: &Sandbox) -> anyhow::Result<()> {
    let options = ["--memory", "256M", "--pids", "50"];
    let (finished, status) = run_with_status(sandbox, Mode::Daemons, &options, &["true"])?;
    finished.expect(0)?;
    let enforced = status.pointer("/enforced").context("enforced")?;
    for name in ["userns", "landlock", "seccomp"] {
        ensure!(wall(enforced, name)? == "enforced", "{name}: {enforced}");
    }
    let by_cgroup = if testkit::caller::is_root() { "enforced" } else { "absent" };
    ensure!(wall(enforced, "cgroup.memory")? == by_cgroup, "{enforced}");
    let session = text(&status, "/session")?;
    let events = crate::talk::events(sandbox, &session)?;
    let attested = events
        .iter()
        .find(|event| event.pointer("/type").and_then(Value::as_str) == Some("cage.attested"));
    let told = attested.and_then(|event| event.pointer("/data/enforced"));
    ensure!(told == Some(enforced), "event and status file differ: {told:?} {enforced}");
    Ok(())
}

fn forwarder(sandbox: &Sandbox) -> anyhow::Result<()> {
    let socket = sandbox.root().join("provider.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket)?;
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut line = [0_u8; 6];
        std::io::Read::read_exact(&mut stream, &mut line)?;
        std::io::Write::write_all(&mut stream, b"pong\n")?;
        std::io::Result::Ok(line)
    });
    let provider = format!("unix:{}", socket.display());
    let script = "exec 3<>/dev/tcp/127.0.0.1/8399; echo hello >&3; head -n 1 <&3";
    let options = ["--policy", "agent-offline", "--provider", &provider];
    let shown = run(sandbox, Mode::Daemons, &options, &["bash", "-c", script])?.expect(0)?.out();
    ensure!(shown == "pong\n", "{shown:?}");
    let got = server.join().map_err(|_panic| anyhow::anyhow!("the server panicked"))??;
    ensure!(&got == b"hello\n", "the socket got {got:?}");
    Ok(())
}

fn doctor(sandbox: &Sandbox) -> anyhow::Result<()> {
    let shown = sandbox.mews(["doctor"])?.expect(0)?.out();
    for name in ["bwrap", "userns", "landlock", "seccomp", "cgroup"] {
        ensure!(shown.contains(name), "no {name} in {shown}");
    }
    Ok(())
}
