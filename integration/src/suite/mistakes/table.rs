//! The mistakes as data: who makes them where, what is typed, and all that is said to it.

use Who::{Guest, Root, Tester, User};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Whoever runs the tests.
    Tester,
    /// The same, where it takes root.
    Root,
    /// An ordinary user with daemons of their own.
    User,
    /// An ordinary user at the door of root's daemons.
    Guest,
}

/// A host on which some mistakes are made, one after the other.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// For the page.
    pub(super) title: &'static str,
    pub(super) who: Who,
    /// The build that the daemons are told to be of (`MEWS_SPEAKS`); nothing: their own.
    pub(super) daemons: &'static str,
    /// The same of the client.
    pub(super) client: &'static str,
    /// Both daemons are killed before anything is typed.
    pub(super) dead: bool,
    pub(super) prepare: &'static str,
    pub(super) after: &'static str,
}

/// What all scenes have in common.
const SCENE: Scene = Scene {
    name: "",
    title: "",
    who: Tester,
    daemons: "",
    client: "",
    dead: false,
    prepare: "",
    after: "",
};

pub(super) const SCENES: &[Scene] = &[
    Scene {
        name: "typing",
        title: "Typed wrong: verbs, flags, values",
        prepare: "mews run -d -n pi -- sh -i",
        ..SCENE
    },
    Scene {
        name: "ids",
        title: "Names and ids",
        prepare: "mews run -d -n pi -- sleep 1000
                  mews run -d -n build -- sleep 1000
                  mews ls --json | sed 's/^{\"id\":\"\\([^\"]*\\).*/\\1/' | head -1 > id",
        ..SCENE
    },
    Scene {
        name: "states",
        title: "Not now: it has ended, lives, stands still, has no layer",
        prepare: "mews run -d -n pi -- sleep 1000
                  mews run -d -n still -- sleep 1000 && mews pause still
                  mews run -d -n layered --overlay -- sleep 1000
                  mews run --no-tty -n done -- sh -c 'exit 3' || true
                  until mews ls -a --state ended | grep -q done; do :; done",
        after: "mews resume still",
        ..SCENE
    },
    Scene {
        name: "cages",
        title: "A cage that cannot be built, or does not do what was meant",
        prepare: "printf 'version = 1\\nname = \"bad\"\\n[fs]\\nraed = [\"/x\"]\\n' > bad.toml
                  mews daemon start > daemons; echo 'echo hi' > script",
        ..SCENE
    },
    Scene {
        name: "files",
        title: "Files, pipes, terminals",
        prepare: "mews run -d -n pi --overlay -- sh -i; echo taken > key",
        ..SCENE
    },
    Scene { name: "nothing_ran", title: "Nothing ever ran here", ..SCENE },
    Scene {
        name: "daemons",
        title: "The daemons are not there, or cannot be",
        prepare: "mews run -d -n pi -- sleep 1000
                  mkdir $SANDBOX/odd; touch $SANDBOX/odd/file $SANDBOX/odd/api.sock",
        dead: true,
        ..SCENE
    },
    Scene {
        name: "older_client",
        title: "An old mews, and daemons that are new",
        daemons: "3..4:0.4.0",
        client: "1..2:0.2.0",
        prepare: "mews run -d -n pi -- sleep 1000",
        ..SCENE
    },
    Scene {
        name: "newer_client",
        title: "A new mews, and daemons that are old",
        daemons: "1..2:0.2.0",
        client: "3..4:0.4.0",
        prepare: "mews run -d -n pi -- sleep 1000",
        ..SCENE
    },
    Scene {
        name: "full_disk",
        title: "A full disk",
        who: Root,
        prepare: "mount -t tmpfs -o size=24m,mode=0755 mews-test $MEWS_STATE_DIR
                  mews run -d -n pi -- sleep 1000
                  dd if=/dev/zero of=$MEWS_STATE_DIR/filler bs=64k count=400 2> dd || true",
        after: "rm $MEWS_STATE_DIR/filler; mews daemon stop --kill; umount -l $MEWS_STATE_DIR",
        ..SCENE
    },
    Scene {
        name: "user",
        title: "An ordinary user",
        who: User,
        prepare: "mews daemon start > daemons
                  mkdir closed; touch closed/file; chmod 000 closed",
        after: "chmod 700 closed",
        ..SCENE
    },
    Scene {
        name: "guest",
        title: "An ordinary user at the door of root's daemons",
        who: Guest,
        prepare: "mews run -d -n pi -- sleep 1000",
        ..SCENE
    },
];

/// One mistake. `says` and `next` are all that standard error holds, behind `mews:` and `try:`, with
/// `…` for what varies; nothing is on standard output.
pub(super) struct Mistake {
    pub(super) scene: &'static str,
    pub(super) what: &'static str,
    pub(super) typed: &'static str,
    pub(super) status: i32,
    pub(super) says: &'static str,
    pub(super) next: &'static str,
}

const fn row(
    (scene, what): (&'static str, &'static str),
    typed: &'static str,
    status: i32,
    says: &'static str,
    next: &'static str,
) -> Mistake {
    Mistake { scene, what, typed, status, says, next }
}

#[rustfmt::skip]
pub(super) const MISTAKES: &[Mistake] = &[
    row(("typing", "a verb with a slip"), "mews atach pi", 2,
        "unrecognized subcommand 'atach'\n  tip: a similar subcommand exists: 'attach'",
        "mews attach pi"),
    row(("typing", "the verb of another program"), "mews ps", 2,
        "unrecognized subcommand 'ps'\n  tip: a similar subcommand exists: 'ls'",
        "mews ls"),
    row(("typing", "another program's word for the end"), "mews stop pi", 2,
        "unrecognized subcommand 'stop'\n  tip: a similar subcommand exists: 'end'",
        "mews end pi"),
    row(("typing", "a verb that nobody has"), "mews frobnicate", 2,
        "unrecognized subcommand 'frobnicate'",
        "mews --help"),
    row(("typing", "half a verb"), "mews policy", 2,
        "mews policy: say which of them: list, show, explain, init, check",
        "mews policy --help"),
    row(("typing", "a flag that is not there"), "mews ls --al", 2,
        "unexpected argument '--al' found\n  tip: a similar argument exists: '--all'",
        "mews ls --help"),
    row(("typing", "the same with run, whose status may be the command's"), "mews run --bogus -- true", 125,
        "unexpected argument '--bogus' found\n  tip: to pass '--bogus' as a value, use '-- --bogus'",
        "mews run --help"),
    row(("typing", "no id"), "mews kill", 2,
        "the following required arguments were not provided:\n  <ID>...\nUsage: mews kill <ID>...",
        "mews kill --help"),
    row(("typing", "no command"), "mews exec pi", 125,
        "the following required arguments were not provided:\n  <CMD>...\nUsage: mews exec <ID> <CMD>...",
        "mews exec --help"),
    row(("typing", "two flags against each other"), "mews run --overlay --copy -- true", 125,
        "the argument '--overlay' cannot be used with '--copy'",
        "mews run --help"),
    row(("typing", "in the background, without daemons"), "mews run -d --no-daemon -- true", 125,
        "the argument '--detach' cannot be used with '--no-daemon'",
        "mews run --help"),
    row(("typing", "a size that is none"), "mews run --memory lots -- true", 125,
        "--memory: \"lots\" is not a size: unknown unit \"lots\"; write a number of bytes or a size such as \"512M\" or \"2G\"",
        "mews run --help"),
    row(("typing", "a time that is none"), "mews run --timeout soon -- true", 125,
        "--timeout: \"soon\" is not a length of time; write a length of time such as \"500ms\", \"30s\", \"10m\" or \"1h30m\"",
        "mews run --help"),
    row(("typing", "a number that is none"), "mews run --pids many -- true", 125,
        "invalid value 'many' for '--pids <N>': invalid digit found in string",
        "mews run --help"),
    row(("typing", "a limit that is none"), "mews run --limit speed=9 -- true", 125,
        "--limit: there is no limit \"speed\" for a flag; known are memory, swap, pids, cpu, io, walltime, idle, output_bytes, workspace_bytes, workspace_inodes",
        "mews run --help"),
    row(("typing", "a limit without a value"), "mews limits pi memory", 2,
        "\"memory\" is not KEY=VALUE, such as memory=4G",
        "mews limits --help"),
    row(("typing", "a limit given twice"), "mews limits pi pids=90 pids=80", 2,
        "pids is given twice; say it once",
        "mews limits --help"),
    row(("typing", "a variable's name that is none"), "mews run --env 1=2 -- true", 125,
        "--env: \"1\" is not the name of a variable",
        "mews run --help"),
    row(("typing", "a label without a value"), "mews label pi urgent", 2,
        "\"urgent\" is neither KEY=VALUE nor KEY-, such as team=blue or team-",
        "mews label --help"),
    row(("typing", "a signal that is none"), "mews kill -s FOO pi", 2,
        "invalid value 'FOO' for '--signal <SIGNAL>': 'FOO' is no signal; write TERM, INT, HUP or a number",
        "mews kill --help"),
    row(("typing", "a key that is none"), "mews send pi --key retrun", 2,
        "invalid value 'retrun' for '--key <KEY>': 'retrun' is no key; write one character, or a name as enter, …",
        "mews send --help"),
    row(("typing", "nothing to type"), "mews send pi", 2,
        "say what to type: a text, --key or --stdin",
        "mews send pi 'text' --key enter"),
    row(("typing", "nothing to wait for"), "mews wait pi", 2,
        "say what to wait for: --exit, --for REGEX or --idle T",
        "mews wait --exit pi"),
    row(("typing", "a pattern that is none"), "mews wait pi --for '('", 2,
        "The pattern is no regular expression: regex parse error:\n…\nerror: unclosed group",
        "mews wait --help"),
    row(("typing", "a state that is none"), "mews ls --state dead", 2,
        "invalid value 'dead' for '--state <STATE>'\n  [possible values: idle, running, queued, paused, ended, failed]",
        "mews ls --help"),
    row(("typing", "a label to look for without a key"), "mews ls --label =x", 2,
        "The query's 'label': it is KEY or KEY=VALUE, not '=x'.",
        "mews ls --help"),
    row(("typing", "a time of day where a length is meant"), "mews logs --since yesterday pi", 2,
        "--since: \"yesterday\" is not a length of time; write a length of time such as \"500ms\", \"30s\", \"10m\" or \"1h30m\"",
        "mews logs --help"),
    row(("typing", "a grant for no cage"), "mews grants make -n g --cages 0 --for 2h", 2,
        "a grant is for 1 to 1000 cages, not 0",
        "mews grants make --help"),
    row(("typing", "detach keys that are none"), "mews attach --detach-keys hash pi", 125,
        "--detach-keys: 'hash' is no key; …",
        "mews attach --help"),

    row(("ids", "a name that nothing has"), "mews logs nobody", 3,
        "Nothing is called 'nobody'. `mews ls -a` lists what there is.",
        "mews ls -a"),
    row(("ids", "the same, where the status may be the command's"), "mews attach p", 125,
        "Nothing is called 'p'. `mews ls -a` lists what there is.\n  did you mean: pi",
        "mews ls -a"),
    row(("ids", "the first characters of every id"), "mews inspect $(cut -c1-4 id)", 5,
        "'…' means more than one: … Type more of it.\n  candidates: build, pi",
        "mews ls"),
    row(("ids", "no id where several run"), "mews attach", 125,
        "2 sessions are running: pi, build",
        "mews attach pi, or mews attach build"),
    row(("ids", "a name used twice"), "mews run -n pi -- true", 125,
        "There is a session 'pi' already; choose another name or `mews rm pi`.",
        "mews attach pi; or the same with another --name"),
    row(("ids", "another name that is taken"), "mews rename build pi", 5,
        "There is a session 'pi' already; choose another name or `mews rm pi`.",
        "mews rename build ANOTHER"),
    row(("ids", "a name with a slash"), "mews run -n a/b -- true", 125,
        "'a/b' cannot be a session's name: 1 to 64 of A-Z a-z 0-9 . _ - and no dash first.",
        "mews run --help"),
    row(("ids", "a new name with a blank"), "mews rename pi 'my agent'", 2,
        "'my agent' cannot be a session's name: 1 to 64 of A-Z a-z 0-9 . _ - and no dash first.",
        "mews rename --help"),
    row(("ids", "a grant that is not there"), "mews grants revoke 7Q2M", 3,
        "there is no grant '7Q2M'",
        "mews grants"),
    row(("ids", "a checkpoint that is not there"), "mews rollback pi 7Q2M", 3,
        "pi has no checkpoint '7Q2M'",
        "mews checkpoints pi"),
    row(("ids", "a policy that is not there"), "mews policy show nobody", 3,
        "no policy is called 'nobody'",
        "mews policy list"),

    row(("states", "a signal to what has ended"), "mews kill -s TERM done", 3,
        "done has ended; there is nothing to send a signal to",
        "mews inspect done"),
    row(("states", "a command in what has ended"), "mews exec done -- true", 125,
        "done has ended, and its cage with it",
        "mews run -- CMD"),
    row(("states", "keys for what has ended"), "mews send done x", 3,
        "done has ended; nobody reads its keys",
        "mews logs done"),
    row(("states", "a pause of what has ended"), "mews pause done", 3,
        "This session has ended.",
        "mews inspect done"),
    row(("states", "an end of what has ended"), "mews end done", 3,
        "Session done has ended already; `mews rm done` removes it.",
        "mews rm done"),
    row(("states", "a checkpoint of what has ended"), "mews checkpoint done", 3,
        "This session has ended.",
        "mews checkpoints done"),
    row(("states", "limits for what has ended"), "mews limits done memory=1G", 3,
        "This cage has ended; `mews inspect` says what it used.",
        "mews inspect done"),
    row(("states", "waiting for what ended before"), "mews wait done --for ready", 3,
        "done has ended (exit 3) before that came",
        "mews logs done"),
    row(("states", "a screen where there was none"), "mews screen done", 5,
        "This command has no terminal (it was started on pipes), and so no screen; `mews logs` shows what it has printed.",
        "mews logs done"),
    row(("states", "removing what lives"), "mews rm pi", 5,
        "Session pi is living; type `mews end pi` first.",
        "mews end pi; mews rm pi"),
    row(("states", "archiving what lives"), "mews archive pi", 5,
        "Session pi is living, and what is archived is not listed; type `mews end pi` first.",
        "mews end pi; mews archive pi"),
    row(("states", "stopping the daemons under living cages"), "mews daemon stop", 5,
        "3 cages are running. `mews daemon stop --leave` lets them run on, --kill ends them",
        "mews daemon stop --kill"),
    row(("states", "resuming what runs"), "mews resume pi", 5,
        "This session is not paused.",
        "mews inspect pi"),
    row(("states", "a command in what stands still"), "mews exec still -- true", 125,
        "the cage is suspended; `mews resume` lets it go on",
        "mews resume still"),
    row(("states", "changes where none are kept apart"), "mews diff pi", 3,
        "this session has no layer: its programs work in the folder itself. Start it with --overlay or --copy to keep changes apart",
        "mews run --overlay -- CMD"),
    row(("states", "going back to nothing"), "mews rollback layered", 3,
        "layered has no checkpoint to go back to",
        "mews checkpoints layered"),
    row(("states", "throwing away under a program that lives"), "mews discard layered --yes", 5,
        "a program of this session is living and works in these files; end it first: `mews kill`",
        "mews end layered, and the same again"),
    row(("states", "a limit that cannot change"), "mews limits pi nofile=5", 5,
        "limits.nofile cannot change while the cage lives: every process got it as an rlimit when it started, and may not raise it",
        "mews limits pi"),
    row(("states", "a limit that nothing can live in"), "mews limits pi memory=1K", 2,
        "memory: no cage can live in so little; give it 8M or more",
        "mews limits --help"),

    row(("cages", "a policy's name with a slip"), "mews run -p shel -- true", 125,
        "shel: there is no policy of this name; …; list yours with: mews policy list\n  did you mean: shell",
        "mews policy list"),
    row(("cages", "a policy file that is not there"), "mews run -p ./mine.toml -- true", 125,
        "the policy file ./mine.toml cannot be read: No such file or directory (os error 2)",
        "mews policy list"),
    row(("cages", "a policy file with a slip"), "mews run -p ./bad.toml -- true", 125,
        "…/bad.toml:4: fs.raed: there is no such key; did you mean \"fs.read\"?",
        "mews policy check …/bad.toml"),
    row(("cages", "a folder that is not there"), "mews run -w /no/such/folder -- true", 125,
        "the workspace /no/such/folder cannot be used: No such file or directory (os error 2)",
        "mews run -w FOLDER -- CMD"),
    row(("cages", "a folder that vanished under the shell"), "mkdir gone; cd gone; rmdir ../gone; mews run -- true", 125,
        "the workspace . cannot be used: No such file or directory (os error 2)",
        "mews run -w FOLDER -- CMD"),
    row(("cages", "a file as the folder"), "mews run -w bad.toml -- true", 125,
        "the workspace …/bad.toml is not a folder",
        "mews run -w FOLDER -- CMD"),
    row(("cages", "everything as the folder"), "mews run -w / -- true", 125,
        "the workspace /: is a folder of the system; name a folder of your own with -w",
        "mews run --help"),
    row(("cages", "the system's settings as the folder"), "cd /etc && mews run -- true", 125,
        "the workspace /etc: is a folder of the system; name a folder of your own with -w",
        "mews run --help"),
    row(("cages", "a path to lend that is not there"), "mews run --read /no/such/place -- true", 125,
        "--read \"/no/such/place\": does not exist; check the path",
        "mews run --help"),
    row(("cages", "a path that is too wide"), "mews run --write /etc -- true", 125,
        "--write \"/etc\": is too wide to lend as a whole; name the folders in it that are needed",
        "mews run --help"),
    row(("cages", "memory for nothing"), "mews run --memory 1M -- true", 125,
        "limits.memory \"1048576\": no cage can start in so little; give it 8M or more",
        "mews run --help"),
    row(("cages", "a network, which is not built"), "mews run --net host -- true", 125,
        "--net: \"host\" is not supported by this version; write none",
        "mews run --help"),
    row(("cages", "a provider for a policy without one"), "mews run --provider unix:/no -- true", 125,
        "--provider: policy shell has no [[net.socket]] with \"unix:$PROVIDER\"; use -p agent-offline",
        "mews run --help"),
    row(("cages", "a program that is not there"), "mews run --no-tty -- no-such-program", 127,
        "no-such-program: command not found",
        "mews run -- sh -c 'LINE' for a line of shell; --read FOLDER for what is not below /usr"),
    row(("cages", "a line of shell as one word"), "mews run --no-tty -- 'echo hi; ls'", 127,
        "echo hi; ls: command not found",
        "mews run -- sh -c 'LINE' for a line of shell; --read FOLDER for what is not below /usr"),
    row(("cages", "a script that is not executable"), "mews run --no-tty -- ./script", 126,
        "./script: permission denied",
        "chmod +x FILE; or its interpreter: mews run -- sh FILE"),
    row(("cages", "a limit that was too short"), "mews run --no-tty --timeout 200ms -- sleep 60", 124,
        "the time limit was reached; the cage was killed (walltime: it ran for 2…ms)",
        "the same with a longer --timeout"),

    row(("files", "a status file below a file"), "mews run --status-file key/s.json -- touch ran", 125,
        "the status file …/key/s.json cannot be made: key is no folder, and links in a workspace are not followed",
        "the same with a file in a folder that you may write to"),
    row(("files", "a status descriptor that is closed"), "mews run --status-fd 77 -- touch ran", 125,
        "--status-fd 77: no such descriptor is open",
        "the same with 77>FILE behind it, or --status-file FILE"),
    row(("files", "output to a full disk"), "mews ls > /dev/full", 1,
        "cannot write to standard output: No space left on device (os error 28)",
        "the same with its output to where there is room: df -h"),
    row(("files", "bytes where text is typed"), "printf '\\377' | mews send pi --stdin", 2,
        "standard input is not UTF-8; a keyboard types text",
        "give it a file below its workspace"),
    row(("files", "a key over a file that is there"), "mews grants make -n g --cages 1 --for 1h --to key", 2,
        "key cannot be made for the key: File exists (os error 17)",
        "the same with --to of a new file, in a folder that is there"),
    row(("files", "a key that is not there"), "mews grants use no.key -- true", 2,
        "the key in no.key cannot be read: No such file or directory (os error 2)",
        "mews grants use FILE -- CMD, with the file that make --to has written"),
    row(("files", "a file that is no key"), "mews grants use key -- true", 2,
        "key: this is no key of a grant (mews-grant.ID.SECRET); `mews grants make` prints one",
        "mews grants use --help"),
    row(("files", "no terminal to ask on"), "mews discard pi", 2,
        "throw away everything that pi has changed? Nobody is here to ask: say --yes",
        "the same with --yes"),

    row(("nothing_ran", "looking for what never was"), "mews logs pi", 3,
        "nothing is called 'pi': nothing has run yet (… has no sessions)",
        "mews run -- CMD"),
    row(("nothing_ran", "asking after daemons that are not there"), "mews daemon status", 69,
        "no daemon is running (…/run/api.sock)",
        "mews daemon start"),

    row(("daemons", "both are dead, and only asked after"), "mews daemon status", 69,
        "no daemon is running (…/run/api.sock)",
        "mews daemon start"),
    row(("daemons", "the run folder cannot be made"), "MEWS_RUN_DIR=$SANDBOX/odd/file/run mews ls", 69,
        "cannot reach …/odd/file/run/api.sock: Not a directory (os error 20)",
        "ls -ld …/odd/file …/odd/file/run; or other folders: MEWS_RUN_DIR, MEWS_STATE_DIR"),
    row(("daemons", "the state folder is a file"), "MEWS_RUN_DIR=$SANDBOX/odd MEWS_STATE_DIR=$SANDBOX/odd/file mews run -- true", 125,
        "cannot make …/odd/file: File exists (os error 17)",
        "ls -ld …/odd …/odd/file; or other folders: MEWS_RUN_DIR, MEWS_STATE_DIR"),
    row(("daemons", "a program of mews is missing"), "cp $(command -v mews) $SANDBOX/odd/mews; $SANDBOX/odd/mews run -- true", 125,
        "mews-supervisor is not beside …/odd/mews",
        "cargo xtask build, or install mews again"),

    row(("older_client", "a run"), "mews run -- touch ran", 125,
        "This client is mews 0.2.0 (protocol 1 to 2), the daemons are mews 0.4.0 (protocol 3 to 4): they have no version of the protocol in common.",
        "install mews 0.4.0 for yourself too, or use the one that is installed"),
    row(("older_client", "a look"), "mews ls", 69,
        "This client is mews 0.2.0 (protocol 1 to 2), the daemons are mews 0.4.0 (protocol 3 to 4): they have no version of the protocol in common.",
        "install mews 0.4.0 for yourself too, or use the one that is installed"),

    row(("newer_client", "a run"), "mews run -- touch ran", 125,
        "This client is mews 0.4.0 (protocol 3 to 4), the daemons are mews 0.2.0 (protocol 1 to 2): they have no version of the protocol in common.",
        "mews daemon restart (cages run on)"),
    row(("newer_client", "a look"), "mews logs pi", 69,
        "This client is mews 0.4.0 (protocol 3 to 4), the daemons are mews 0.2.0 (protocol 1 to 2): they have no version of the protocol in common.",
        "mews daemon restart (cages run on)"),

    row(("full_disk", "a run"), "mews run -- touch ran", 125,
        "The database cannot be written (database or disk is full); living cages go on. Make room on its disk and try again.",
        "mews daemon status; df -h"),
    row(("full_disk", "a session's new name"), "mews rename pi other", 69,
        "The database cannot be written (database or disk is full); living cages go on. Make room on its disk and try again.",
        "mews daemon status; df -h"),

    row(("user", "a folder that is closed"), "mews run -w closed/in -- true", 125,
        "the workspace closed/in cannot be used: Permission denied (os error 13)",
        "mews run -w FOLDER -- CMD"),
    row(("user", "a policy file that is closed"), "mews run -p closed/file -- true", 125,
        "the policy file closed/file cannot be read: Permission denied (os error 13)",
        "mews policy list"),
    row(("user", "a status file where nobody may write"), "mews run --status-file /etc/s.json -- true", 125,
        "the status file /etc/s.json cannot be made: Permission denied (os error 13)",
        "the same with a file in a folder that you may write to"),
    row(("user", "a policy that needs more than a user has"), "mews run -p ci -- true", 125,
        "policy ci requires cgroup.memory, which this host cannot enforce: no memory cgroup that we may write to (run as root, or in a delegated subtree); see: mews doctor",
        "mews doctor"),
    row(("user", "the system's mews where there is none"), "unset MEWS_RUN_DIR; export MEWS_SYSTEM_RUN_DIR=$SANDBOX/none; mews --system run -- true", 125,
        "no daemon is running (…/none/api.sock)",
        "ask the admin of this host to start it, or use your own: mews --user run"),
    row(("user", "the folders of somebody else"), "MEWS_RUN_DIR=/root/mews mews ls", 4,
        "/root/mews/api.sock is another user's",
        "unset MEWS_RUN_DIR to use your own daemons"),

    row(("guest", "a look"), "mews ls", 4,
        "this mews was started by root and serves root alone, not uid …: there is no …/config/host.toml. Start your own: `mews --user run`",
        "ask the admin of this host, or use daemons of your own: mews --user run"),
    row(("guest", "a run"), "mews run -- touch ran", 125,
        "this mews was started by root and serves root alone, not uid …: there is no …/config/host.toml. Start your own: `mews --user run`",
        "ask the admin of this host, or use daemons of your own: mews --user run"),
    row(("guest", "a stop"), "mews daemon stop --kill", 4,
        "this mews was started by root and serves root alone, not uid …: there is no …/config/host.toml. Start your own: `mews --user run`",
        "ask the admin of this host, or use daemons of your own: mews --user run"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_rows_are_whole() {
        assert!(MISTAKES.len() >= 50, "{}", MISTAKES.len());
        let scenes: BTreeSet<&str> = SCENES.iter().map(|scene| scene.name).collect();
        let used: BTreeSet<&str> = MISTAKES.iter().map(|row| row.scene).collect();
        assert_eq!(scenes, used);
        for row in MISTAKES {
            assert_ne!((row.says, row.status), ("…", 0), "{}", row.what);
            assert!(row.says != "…" && row.next != "…", "{}: the words are not there", row.what);
        }
    }

    #[test]
    fn the_page_shows_this_table() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = top.join("docs/mistakes.md");
        let text = std::fs::read_to_string(&page).unwrap();
        let (head, _old) = text.split_once("<!-- table -->\n").unwrap();
        let want = format!("{head}<!-- table -->\n{}", rendered());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&page, &want).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&page).unwrap(), want, "UPDATE_GOLDEN=1 writes it");
    }

    fn rendered() -> String {
        let mut text = String::new();
        for scene in SCENES {
            text.push_str(&format!(
                "\n## {}\n\n| what | typed | it says | try | exit |\n| --- | --- | --- | --- | --- |\n",
                scene.title
            ));
            for row in MISTAKES.iter().filter(|row| row.scene == scene.name) {
                text.push_str(&format!(
                    "| {} | `{}` | {} | `{}` | {} |\n",
                    row.what,
                    cell(row.typed),
                    cell(row.says).replace('<', "&lt;"),
                    cell(row.next),
                    row.status
                ));
            }
        }
        text
    }

    /// Nothing in it ends a cell or has lines.
    fn cell(text: &str) -> String {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        lines.join(" ").replace('|', "\\|")
    }
}
