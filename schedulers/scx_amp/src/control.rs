//! The control socket of a running scheduler: what it is doing, and changes while it does
//! (`scx_amp ctl`, `scx_amp top`).
//!
//! ```text
//! scx_amp ctl ──socket──► server thread ──Call──► scheduling thread (run)
//!             ◄─ answer ─               ◄─Answer─
//! ```
//!
//! The socket speaks the protocol of `scx_stats`, so that its tools can read the figures too:
//! request `stats` with target `top` (what it is doing) or `change`. It lies in a directory that
//! only root can enter. The scheduling thread alone touches the engine: calls wait for it between
//! two ticks. Files that a request names are read before, in a thread of their own, because reading
//! may take any time.

use crate::memory::{Pattern, ProgramLine};
use crate::profile::Profile;
use crate::provider::Asked;
use crate::status::{CpuStatus, Metric, Status, ThreadStatus};
use amp_host::{bad_input, BadInput};
use anyhow::{anyhow, bail, Context, Result};
use scx_stats::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::time::Duration;

/// Where the socket is.
pub const DIR: &str = "/run/scx_amp";
/// Name of the socket there.
pub const SOCKET: &str = "status.sock";

/// How long the scheduling thread may take to answer. It answers between two ticks.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is said of an answer that is none.
pub const UNREADABLE: &str = "the running scheduler's answer cannot be read (another version?)";

/// What is asked for through the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// The status of the scheduler.
    Status,
    /// Put this policy to work.
    Policy(String),
    /// Put this profile to work: a name, or the absolute path of a file.
    Profile(String),
    /// Put this source of metrics to work: a name, or the absolute path of a file.
    Provider(String),
    /// Turn these parameters, all or none.
    Set(Vec<String>),
    /// The programs that are remembered.
    Memory,
    /// Forget the programs that this pattern means, or all.
    Forget(Option<String>),
}

/// What is asked of the scheduling thread: a request, and what is in the files that it names.
#[derive(Clone, Debug)]
pub enum Order {
    /// The status of the scheduler.
    Status,
    /// Put this policy to work.
    Policy(String),
    /// Put this profile with its provider to work.
    Profile(Box<Profile>, Asked),
    /// Put this source of metrics to work.
    Provider(Asked),
    /// Turn these parameters, all or none.
    Set(Vec<String>),
    /// The programs that are remembered.
    Memory,
    /// Forget the programs that are meant, or all.
    Forget(Option<Pattern>),
}

impl Order {
    /// Reads what the request names.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the file, line and key at fault.
    pub(crate) fn read(request: Request) -> Result<Order> {
        Ok(match request {
            Request::Status => Order::Status,
            Request::Policy(name) => Order::Policy(name),
            Request::Set(settings) => Order::Set(settings),
            Request::Memory => Order::Memory,
            Request::Forget(text) => {
                Order::Forget(text.as_deref().map(Pattern::parse).transpose()?)
            }
            Request::Provider(name) => Order::Provider(Asked::find(&name)?),
            Request::Profile(name) => {
                let profile = Profile::find(&name)?;
                let provider = Asked::find(&profile.provider)?;
                Order::Profile(Box::new(profile), provider)
            }
        })
    }

    /// The same within `patience`. What takes longer is left to itself.
    fn read_within(patience: Duration, request: Request) -> Result<Order> {
        let (sender, read) = channel();
        std::thread::Builder::new()
            .name("ctl-read".into())
            .spawn(move || sender.send(Order::read(request)))?;
        read.recv_timeout(patience)
            .map_err(|_| anyhow!("what it names cannot be read within {patience:?}"))?
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The status of the scheduler.
    Status(Box<Status>),
    /// The programs that are remembered.
    Memory(Vec<ProgramLine>),
    /// Done; what is different now.
    Done(String),
    /// The request is not right; nothing has changed.
    Bad(String),
    /// It could not be done; nothing has changed.
    Failed(String),
}

/// A request and where its answer goes.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub order: Order,
    /// Where the answer goes; nobody may be there any more.
    pub answer: Sender<Answer>,
}

/// The socket, served. It goes when this is dropped.
pub struct Server {
    _server: StatsServer<(), ()>,
    path: PathBuf,
}

impl Server {
    /// Starts serving; requests go to `submit`, which is false when nobody will ever answer.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(submit: impl Fn(Call) -> bool + Clone + Send + 'static) -> Result<Server> {
        let path = socket_path(Path::new(DIR))?;
        let data = data(submit);
        let server = StatsServer::new(data)
            .set_path(&path)
            .launch()
            .with_context(|| format!("cannot serve the status on {}", path.display()))?;
        Ok(Server {
            _server: server,
            path,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What is served, and what is said of each figure.
fn data(submit: impl Fn(Call) -> bool + Clone + Send + 'static) -> StatsServerData<(), ()> {
    let change = submit.clone();
    StatsServerData::<(), ()>::new()
        .add_meta(Status::meta())
        .add_meta(CpuStatus::meta())
        .add_meta(ThreadStatus::meta())
        .add_meta(Metric::meta())
        .add_stats(
            "top",
            Box::new(move |_, _| {
                go_first();
                match call(&submit, Order::Status)? {
                    Answer::Status(s) => s.to_json(),
                    other => Err(unexpected(&other)),
                }
            }),
        )
        .add_stats(
            "change",
            Box::new(move |args: &BTreeMap<String, String>, _| {
                go_first();
                let answer = match args.get("request").map(|r| serde_json::from_str(r)) {
                    Some(Ok(request)) => Order::read_within(PATIENCE / 2, request)
                        .and_then(|order| call(&change, order))
                        .unwrap_or_else(|e| refusal(&e)),
                    Some(Err(e)) => Answer::Bad(format!("request: {e}")),
                    None => Answer::Bad("`request` is missing".into()),
                };
                Ok(serde_json::to_value(answer)?)
            }),
        )
}

/// Has the calling thread, which answers root alone, not wait for hundreds of busy threads after each slice: a status has
/// a line for each of them.
fn go_first() {
    if let Err(e) = amp_host::realtime::become_heavy() {
        log::debug!("answers wait for a CPU like any other thread: {e:#}");
    }
}

/// How a request that is not carried out is answered.
pub fn refusal(why: &anyhow::Error) -> Answer {
    match why.is::<BadInput>() {
        true => Answer::Bad(format!("{why:#}")),
        false => Answer::Failed(format!("{why:#}")),
    }
}

/// What the scheduling thread answers to an order that goes to it through `submit`.
///
/// # Errors
/// When it ends, or is too busy.
pub fn call(submit: &impl Fn(Call) -> bool, order: Order) -> Result<Answer> {
    let (answer, answers) = channel();
    if !submit(Call { order, answer }) {
        bail!("the scheduler is ending");
    }
    answers.recv_timeout(PATIENCE).map_err(|e| match e {
        RecvTimeoutError::Timeout => anyhow!("the scheduler is too busy to answer"),
        RecvTimeoutError::Disconnected => anyhow!("the scheduler is ending"),
    })
}

/// The socket's path, in a directory that is made, or must be, root's alone.
fn socket_path(dir: &Path) -> Result<PathBuf> {
    if !dir.exists() {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
    }
    check_dir(dir)?;
    Ok(dir.join(SOCKET))
}

/// Checks that nobody but us, who are root, can enter the folder of the socket.
///
/// # Errors
/// When somebody else can, or it is no folder.
pub fn check_dir(dir: &Path) -> Result<()> {
    let meta = std::fs::symlink_metadata(dir).with_context(|| dir.display().to_string())?;
    let open = meta.permissions().mode() & 0o077 != 0;
    if !meta.is_dir() || open || meta.uid() != rustix::process::geteuid().as_raw() {
        bail!(
            "{}: must be a directory that only root can enter (mode 0700)",
            dir.display()
        );
    }
    Ok(())
}

/// The status of the running scheduler.
///
/// # Errors
/// When none is running, or the caller may not ask it.
pub fn ask() -> Result<Status> {
    query("top", Vec::new())
}

/// The same as JSON.
///
/// # Errors
/// The same.
pub fn ask_json() -> Result<Value> {
    query("top", Vec::new())
}

/// The programs that the running scheduler remembers.
///
/// # Errors
/// When it remembers none on purpose, none is running, or the caller may not ask it.
pub fn memory() -> Result<Vec<ProgramLine>> {
    match request(&Request::Memory)? {
        Answer::Memory(lines) => Ok(lines),
        Answer::Bad(text) => Err(bad_input(text)),
        Answer::Failed(text) => bail!(text),
        other => Err(unexpected(&other)),
    }
}

fn request(request: &Request) -> Result<Answer> {
    let request = serde_json::to_string(request)?;
    query::<Answer>("change", vec![("request".into(), request)])
}

/// Changes the running scheduler; what is different now.
///
/// # Errors
/// [`amp_host::BadInput`] when the request is not right; failed work when it cannot be done, none
/// is running, or the caller may not ask it.
pub fn change(asked: &Request) -> Result<String> {
    match request(asked)? {
        Answer::Done(text) => Ok(text),
        Answer::Bad(text) => Err(bad_input(text)),
        Answer::Failed(text) => bail!(text),
        other @ (Answer::Status(_) | Answer::Memory(_)) => Err(unexpected(&other)),
    }
}

/// What is to be said of an answer to something else.
pub fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow!("the running scheduler's answer makes no sense (another version?): {answer:?}")
}

fn query<T: serde::de::DeserializeOwned>(target: &str, args: Vec<(String, String)>) -> Result<T> {
    query_at(&Path::new(DIR).join(SOCKET), target, args)
}

fn query_at<T: serde::de::DeserializeOwned>(
    path: &Path,
    target: &str,
    mut args: Vec<(String, String)>,
) -> Result<T> {
    let mut client = StatsClient::new()
        .set_path(path)
        .connect(Some(2 * PATIENCE.as_millis() as u64))
        .with_context(|| {
            format!(
                "{}: no scx_amp is running, or you are not root",
                path.display()
            )
        })?;
    args.push(("target".into(), target.into()));
    let answer: Value = client.request("stats", args).map_err(refused)?;
    serde_json::from_value(answer).context(UNREADABLE)
}

/// Why there is no answer. The protocol has an error number with what the scheduler says, which says
/// nothing, and with `RUST_BACKTRACE` where in the scheduler it was said.
fn refused(e: anyhow::Error) -> anyhow::Error {
    if e.downcast_ref::<StatsErrno>().is_none() {
        return e.context("the running scheduler does not answer");
    }
    let said = e.root_cause().to_string();
    let said: String = serde_json::from_str(&said).unwrap_or(said);
    let said = said.split("\n\nStack backtrace:").next();
    anyhow!(
        "the running scheduler does not answer: {}",
        said.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_only_made_where_nobody_else_can_go() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("run");
        assert_eq!(socket_path(&dir).unwrap(), dir.join("status.sock"));
        assert_eq!(
            std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
            0o700
        );
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let e = socket_path(&dir).unwrap_err().to_string();
        assert!(e.contains("0700"), "{e}");
    }

    #[test]
    fn what_the_scheduler_says_is_told_without_a_number_of_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _server = StatsServer::new(data(|_| false))
            .set_path(&path)
            .launch()
            .unwrap();
        let said = |e: anyhow::Error| format!("{e:#}");
        let status = query_at::<Status>(&path, "top", Vec::new()).unwrap_err();
        assert_eq!(
            said(status),
            "the running scheduler does not answer: the scheduler is ending"
        );
        let request = serde_json::to_string(&Request::Memory).unwrap();
        let args = vec![("request".to_owned(), request)];
        let answer = query_at::<Answer>(&path, "change", args).unwrap();
        assert!(
            matches!(&answer, Answer::Failed(why) if why == "the scheduler is ending"),
            "{answer:?}"
        );
    }

    /// Bug 2 of the review: the scheduling thread waited for somebody to write into a FIFO.
    #[test]
    fn what_a_request_names_is_read_before_the_scheduler_hears_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo.toml"), 0o600.into()).unwrap();
        let profile =
            |provider: &str| format!("about = \"x\"\npolicy = \"hsp\"\nprovider = {provider:?}\n");
        std::fs::write(at("outer.toml"), profile(&at("fifo.toml"))).unwrap();
        let read = |request| Order::read_within(Duration::from_secs(60), request);
        for request in [
            Request::Provider(at("fifo.toml")),
            Request::Profile(at("fifo.toml")),
            Request::Profile(at("outer.toml")),
        ] {
            let e = read(request).unwrap_err();
            assert!(matches!(refusal(&e), Answer::Bad(t) if t.contains("not a regular file")));
        }
        let text = "kind = \"exec\"\ncommand = [\"/bin/cat\"]\n";
        std::fs::write(at("p.toml"), text).unwrap();
        std::fs::write(at("outer.toml"), profile(&at("p.toml"))).unwrap();
        let order = read(Request::Profile(at("outer.toml"))).unwrap();
        assert!(
            matches!(order, Order::Profile(p, a) if p.policy == "hsp" && a.name() == at("p.toml"))
        );
        let order = read(Request::Provider(at("p.toml"))).unwrap();
        std::fs::remove_file(at("p.toml")).unwrap();
        let Order::Provider(asked) = order else {
            panic!("{order:?}");
        };
        let mut here = amp_pmc::CounterInventory::from_parts(
            amp_metrics::Pmus::none(),
            &[],
            amp_metrics::virtual_counters::VirtualCounters::of(Vec::new()),
        );
        crate::provider::prepare(&mut here, &asked).unwrap();
    }

    #[test]
    fn every_figure_is_described() {
        let mut text = Vec::new();
        // what a server checks before it starts, too
        data(|_| false).describe_meta(&mut text, None).unwrap();
        let text = String::from_utf8(text).unwrap();
        for wants in ["[Status", "[ThreadStatus", "[CpuStatus", "[Metric", "swaps"] {
            assert!(text.contains(wants), "{wants}\n{text}");
        }
    }

    #[test]
    fn a_call_is_answered_by_whoever_takes_it_or_fails() {
        let (tx, rx) = channel::<Call>();
        let taker = std::thread::spawn(move || {
            let c = rx.recv().unwrap();
            assert!(matches!(c.order, Order::Policy(name) if name == "rr"));
            c.answer.send(Answer::Bad("no".into())).unwrap();
        });
        let submit = |c| tx.send(c).is_ok();
        let answer = call(&submit, Order::Policy("rr".into())).unwrap();
        assert!(matches!(answer, Answer::Bad(t) if t == "no"));
        taker.join().unwrap();
        let e = call(&submit, Order::Status).unwrap_err().to_string();
        assert!(e.contains("ending"), "{e}");
    }
}
