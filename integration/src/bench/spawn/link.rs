//! sessiond's side of a one-shot supervisor: requests, answers, events, each acknowledged.

use anyhow::Context as _;
use link::{Packets, memfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::Sandbox;
use wire::control::{Hello, Message};
use wire::supervisor::{SupervisorNotice, SupervisorRequest};
use wire::{
    Arg, CageId, Cause, Event, ExecSpec, Overrides, PolicySource, PtyId, RunId, SessionId, Size,
    SpawnSpec,
};

#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
    link: Option<Packets>,
    authority: (UnixStream, UnixStream),
    next_id: u64,
    events: Vec<Event>,
}

impl Supervisor {
    /// # Errors
    /// It does not start.
    pub(crate) fn start(sandbox: &Sandbox) -> anyhow::Result<Self> {
        let (ours, theirs) = Packets::pair()?;
        let program = testkit::programs::folder()?.join("mews-supervisor");
        // A shell moves the link to descriptor 3.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" --one-shot 3<&0 </dev/null"]).arg(program);
        command.env_clear().envs(sandbox.env()?).stdin(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn()?;
        drop(command);
        let authority = UnixStream::pair()?;
        let me = Self { child, link: Some(ours), authority, next_id: 1, events: Vec::new() };
        me.send(&Message::Hello(Hello::ours()), &[])?;
        match me.receive()? {
            Message::Hello(_) => Ok(me),
            other @ (Message::Request(_) | Message::Answer(_) | Message::Notify(_)) => {
                anyhow::bail!("no hello: {other:?}")
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the request to build a cage and start `argv`; answered later.
    ///
    /// # Errors
    /// The link ended.
    pub(crate) fn spawn(&mut self, workspace: &Path, argv: &[&str]) -> anyhow::Result<CageId> {
        self.spawn_with(workspace, argv, Overrides::default())
    }

    /// # Errors
    /// As [`Self::spawn`].
    pub(crate) fn spawn_with(
        &mut self,
        workspace: &Path,
        argv: &[&str],
        overrides: Overrides,
    ) -> anyhow::Result<CageId> {
        let spec = SpawnSpec {
            session: SessionId::new(),
            run: RunId::new(),
            cage: CageId::new(),
            pty: PtyId::new(),
            name: "bench".to_owned(),
            policy: PolicySource::Name("shell".to_owned()),
            overrides,
            workspace: Arg::from(workspace.as_os_str()),
            exec: exec_spec(workspace, argv, None),
        };
        let file = memfd::sealed("spec", &serde_json::to_vec(&spec)?)?;
        self.request(&SupervisorRequest::Spawn { cage: spec.cage, grant: None }, &[file.as_fd()])?;
        Ok(spec.cage)
    }

    /// One more command in a living cage.
    ///
    /// # Errors
    /// The link ended.
    pub(crate) fn exec(
        &mut self,
        cage: CageId,
        workspace: &Path,
        argv: &[&str],
        tty: Option<Size>,
    ) -> anyhow::Result<()> {
        let spec = exec_spec(workspace, argv, tty);
        let file = memfd::sealed("spec", &serde_json::to_vec(&spec)?)?;
        let request = SupervisorRequest::Exec { cage, pty: PtyId::new() };
        self.request(&request, &[file.as_fd()])
    }

    /// Until the cage stands still.
    ///
    /// # Errors
    /// It was refused, or the link ended.
    pub(crate) fn suspend(&mut self, cage: CageId) -> anyhow::Result<()> {
        self.request(&SupervisorRequest::Suspend { cage }, &[])?;
        self.wait_for(cage, "cage.suspended")
    }

    /// # Errors
    /// As [`Self::suspend`].
    pub(crate) fn resume(&mut self, cage: CageId) -> anyhow::Result<()> {
        self.request(&SupervisorRequest::Resume { cage }, &[])?;
        self.wait_for(cage, "cage.resumed")
    }

    /// # Errors
    /// The link ended.
    pub(crate) fn kill(&mut self, cage: CageId) -> anyhow::Result<()> {
        self.request(&SupervisorRequest::Kill { cage, cause: Cause::Cancelled }, &[])?;
        self.wait_for(cage, "cage.gone")
    }

    /// Until an event of this type has come from this cage; takes it.
    ///
    /// # Errors
    /// A request was refused, or the link ended.
    pub(crate) fn wait_for(&mut self, cage: CageId, kind: &str) -> anyhow::Result<()> {
        self.wait_for_any(|event| event.cage == cage && event.kind == kind).map(drop)
    }

    /// The cage of the next event of this type.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub(crate) fn next(&mut self, kind: &str) -> anyhow::Result<CageId> {
        self.wait_for_any(|event| event.kind == kind)
    }

    fn wait_for_any(&mut self, is_wanted: impl Fn(&Event) -> bool) -> anyhow::Result<CageId> {
        loop {
            if let Some(at) = self.events.iter().position(&is_wanted) {
                return Ok(self.events.swap_remove(at).cage);
            }
            match self.receive()? {
                Message::Notify(body) => self.note(body)?,
                Message::Answer(answer) => {
                    Result::from(answer.result).context("refused")?;
                }
                other @ (Message::Hello(_) | Message::Request(_)) => {
                    anyhow::bail!("unexpected: {other:?}")
                }
            }
        }
    }

    fn note(&mut self, body: serde_json::Value) -> anyhow::Result<()> {
        let SupervisorNotice::Event { event } = wire::control::typed(body)? else { return Ok(()) };
        let (cage, source, seq) = (event.cage, event.source, event.seq);
        let id = self.take_id();
        let ack = Message::request(id, &SupervisorRequest::Ack { cage, source, seq })?;
        self.send(&ack, &[])?;
        self.events.push(event);
        Ok(())
    }

    /// As the operator: the authority goes first.
    fn request(&mut self, body: &SupervisorRequest, fds: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let message = Message::request(self.take_id(), body)?;
        let mut all = vec![self.authority.0.as_fd()];
        all.extend_from_slice(fds);
        self.send(&message, &all)
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let link = self.link.as_ref().context("the link ended")?;
        Ok(link.send(&message.to_bytes(), fds)?)
    }

    fn receive(&self) -> anyhow::Result<Message> {
        let link = self.link.as_ref().context("the link ended")?;
        let packet = link.recv()?.context("the supervisor ended")?;
        Ok(Message::parse(&packet.bytes)?)
    }
}

impl Drop for Supervisor {
    /// The end of the link ends it and every cage of it.
    fn drop(&mut self) {
        self.link.take();
        self.child.wait().ok();
    }
}

fn exec_spec(workspace: &Path, argv: &[&str], tty: Option<Size>) -> ExecSpec {
    ExecSpec {
        argv: argv.iter().map(|arg| Arg::from(*arg)).collect(),
        env: Vec::new(),
        cwd: Some(Arg::from(workspace.as_os_str())),
        umask: None,
        tty,
        hold: false,
        stdin: false,
    }
}
