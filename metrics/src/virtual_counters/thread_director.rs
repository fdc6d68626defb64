//! What the hardware says of its CPUs, as the kernel passes it on.
//!
//! Intel's hybrid processors tell the kernel how fast and how frugal each CPU is now (the hardware
//! feedback interface, part of Thread Director). The kernel multicasts it over generic netlink, family
//! `thermal`, group `event` (`include/uapi/linux/thermal.h`): when it changes, and only then. Of the
//! classes of threads that Thread Director knows, kernels pass on the first alone.

use super::{VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, CoreTypeSet, Nanos};
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use netlink_packet_core::{
    NetlinkBuffer, NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator, NLM_F_REQUEST,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::GenlMessage;
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// `THERMAL_GENL_FAMILY_NAME` and `THERMAL_GENL_EVENT_GROUP_NAME`.
const FAMILY: &str = "thermal";
const GROUP: &str = "event";
/// `THERMAL_GENL_EVENT_CPU_CAPABILITY_CHANGE`.
const CAPABILITY_CHANGE: u8 = 14;
/// `THERMAL_GENL_ATTR_CPU_CAPABILITY`, and what is nested in it, by turns.
const CAPABILITY: u16 = 20;
const ID: u16 = 21;
const PERFORMANCE: u16 = 22;
const EFFICIENCY: u16 = 23;
/// The kernel scales both to this.
const MOST: u32 = 1023;
/// Header of a generic netlink message: command, version, two bytes of nothing.
const GENL_HEADER: usize = 4;
/// Messages that are read in one interval, whoever sent them; the rest waits for the next.
const MESSAGES: usize = 64;
/// How often somebody who has never said anything of CPUs is listened to: most machines never do.
const SILENT: Nanos = Nanos(500_000_000);
/// CPUs there can be.
const MAX_CPU: u32 = 8192;

/// What a CPU is now capable of, 0 to 1023 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capability {
    /// The CPU.
    cpu: u32,
    /// How fast it is; 0: not to be used for the sake of performance.
    performance: u32,
    /// How frugal it is; 0: not to be used for the sake of energy.
    efficiency: u32,
}

/// Where messages come from.
pub trait Messages: Send {
    /// The next message that is there, empty if it is not the kernel's or was lost; `None` when there is none at
    /// present.
    ///
    /// # Errors
    /// When none will ever come.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// The kernel.
struct Kernel(Socket);

impl Messages for Kernel {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.0.recv_from_full() {
            // whoever may administer the network can send to a group, too
            Ok((_, from)) if from.port_number() != 0 => Ok(Some(Vec::new())),
            Ok((message, _)) => Ok(Some(message)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // more came than the socket holds: what is newest is still there
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Ok(Some(Vec::new())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(Some(Vec::new())),
            Err(e) => Err(e),
        }
    }
}

/// Performance and efficiency of each core type: the mean of what is said of its CPUs. Nothing of a core type
/// of which nothing was said yet.
///
/// A CPU that is rated 0 is one that the hardware recommends to leave alone, and no slow one
/// (`Documentation/arch/x86/intel-hfi.rst`). It is left out of the mean. A core type all of whose CPUs are
/// rated 0 keeps its last rating, which says how fast it is should it be used all the same.
pub struct ThreadDirector {
    messages: Box<dyn Messages>,
    family: u16,
    /// CPUs of each core type.
    core_types: Vec<Vec<u32>>,
    /// What was said last, by CPU.
    now: Vec<Option<Capability>>,
    /// Performance and efficiency of each core type, as they were when a CPU of it was rated last.
    rated: Vec<[Option<f64>; 2]>,
    /// Core types that were logged for having no CPU that is rated.
    logged: CoreTypeSet,
    /// When it was listened to last.
    listened: Option<Nanos>,
    /// Whether anything was ever said of a CPU.
    heard: bool,
    /// Whether it was said that messages are refused.
    told: bool,
}

impl std::fmt::Debug for ThreadDirector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadDirector")
            .field("family", &self.family)
            .field("core_types", &self.core_types)
            .finish_non_exhaustive()
    }
}

impl ThreadDirector {
    /// Listens to the kernel. `core_types` has the CPUs of each core type.
    ///
    /// # Errors
    /// When the kernel has no such messages, or they cannot be listened to.
    pub fn open(core_types: Vec<Vec<u32>>) -> Result<ThreadDirector, VirtualError> {
        let none = |reason: String| VirtualError::None {
            what: "thread-director",
            reason,
        };
        let (socket, family) = listen().map_err(|e| none(e.to_string()))?;
        Ok(ThreadDirector::of(
            Box::new(Kernel(socket)),
            family,
            core_types,
        ))
    }

    /// Listens to `messages` of the generic netlink family `family`.
    pub fn of(
        messages: Box<dyn Messages>,
        family: u16,
        core_types: Vec<Vec<u32>>,
    ) -> ThreadDirector {
        ThreadDirector {
            messages,
            family,
            rated: vec![[None; 2]; core_types.len()],
            core_types,
            now: Vec::new(),
            logged: CoreTypeSet::EMPTY,
            listened: None,
            heard: false,
            told: false,
        }
    }

    fn take(&mut self, said: &[Capability]) {
        self.heard |= !said.is_empty();
        for c in said.iter().filter(|c| c.cpu < MAX_CPU) {
            let i = c.cpu as usize;
            if self.now.len() <= i {
                self.now.resize(i + 1, None);
            }
            self.now[i] = Some(*c);
        }
    }
}

impl VirtualSource for ThreadDirector {
    fn name(&self) -> &'static str {
        "thread-director"
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        self.listen(now)?;
        self.tell(out);
        Ok(())
    }
}

impl ThreadDirector {
    /// Takes in what has come.
    fn listen(&mut self, now: Nanos) -> Result<(), VirtualError> {
        let soon = |at: Nanos| now.saturating_sub(at) < SILENT;
        if !self.heard && self.listened.is_some_and(soon) {
            return Ok(());
        }
        self.listened = Some(now);
        for _ in 0..MESSAGES {
            let next = self.messages.next().map_err(|source| VirtualError::Io {
                path: format!("generic netlink, family {FAMILY}").into(),
                source,
            })?;
            let Some(message) = next else { break };
            if message.is_empty() {
                continue;
            }
            match capabilities(&message, self.family) {
                Ok(said) => self.take(&said),
                Err(why) if !self.told => {
                    log::warn!("thread-director: a message of the kernel's is refused: {why}");
                    self.told = true;
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Performance and efficiency of each core type that was ever rated.
    fn tell(&mut self, out: &mut Vec<VirtualReading>) {
        for (t, (cpus, rated)) in self.core_types.iter().zip(&mut self.rated).enumerate() {
            let said = || cpus.iter().filter_map(|c| *self.now.get(*c as usize)?);
            let t = CoreTypeId(t as u8);
            let both = [VirtualCounter::Performance, VirtualCounter::Efficiency];
            for (counter, rated) in both.into_iter().zip(rated) {
                let level = |c: Capability| match counter {
                    VirtualCounter::Performance => c.performance,
                    _ => c.efficiency,
                };
                let levels = || said().map(level).filter(|level| *level > 0);
                match levels().count() {
                    0 if counter == VirtualCounter::Performance
                        && said().next().is_some()
                        && !self.logged.contains(t) =>
                    {
                        self.logged = self.logged.with(t);
                        log::info!("{}", unrated(t, rated.is_some()));
                    }
                    0 => {}
                    nr => {
                        let all = levels().map(f64::from).sum::<f64>();
                        *rated = Some(all / nr as f64 / f64::from(MOST));
                    }
                }
                out.extend(rated.map(|value| VirtualReading {
                    counter,
                    of: Subject::CoreType(t),
                    value,
                    over: Nanos::ZERO,
                }));
            }
        }
    }
}

/// What is logged of a core type no CPU of which is rated.
fn unrated(t: CoreTypeId, before: bool) -> String {
    let then = match before {
        true => "the last rating holds",
        false => "there is no rating of it to go by",
    };
    format!(
        "thread-director: the hardware rates the performance of each CPU of {t} 0 (a recommendation to leave them \
         alone): {then}, and threads are placed there as before"
    )
}

/// A socket that hears of changes, and the number of the family.
fn listen() -> io::Result<(Socket, u16)> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    // the kernel answers before send() is back
    socket.set_non_blocking(true)?;
    let (family, group) = ask(&socket)?;
    socket.add_membership(group)?;
    Ok((socket, family))
}

/// The numbers of the family and of its group.
fn ask(socket: &Socket) -> io::Result<(u16, u32)> {
    let mut request = NetlinkMessage::from(GenlMessage::from_payload(GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.into())],
    }));
    request.header.flags = NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    family(&answer)
}

/// The same, from the kernel's answer.
fn family(answer: &[u8]) -> io::Result<(u16, u32)> {
    let no = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
    let answer = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(answer)
        .map_err(|e| no(&format!("the kernel's answer is not understood: {e}")))?;
    let attributes = match answer.payload {
        NetlinkPayload::InnerMessage(m) => m.payload.nlas,
        NetlinkPayload::Error(e) if e.to_io().kind() == io::ErrorKind::NotFound => {
            return Err(no(
                "this kernel has no messages of the thermal subsystem (CONFIG_THERMAL_NETLINK), or this process \
                 has a network namespace of its own (PrivateNetwork= of its unit)",
            ))
        }
        NetlinkPayload::Error(e) => return Err(e.to_io()),
        _ => return Err(no("the kernel's answer is none")),
    };
    let mut number = None;
    let mut group = None;
    for a in attributes {
        match a {
            GenlCtrlAttrs::FamilyId(id) => number = Some(id),
            GenlCtrlAttrs::McastGroups(groups) => {
                for g in groups {
                    let named =
                        |a: &McastGrpAttrs| matches!(a, McastGrpAttrs::Name(n) if n == GROUP);
                    let id = |a: &McastGrpAttrs| match a {
                        McastGrpAttrs::Id(id) => Some(*id),
                        McastGrpAttrs::Name(_) => None,
                    };
                    if g.iter().any(named) {
                        group = g.iter().find_map(id);
                    }
                }
            }
            _ => {}
        }
    }
    number
        .zip(group)
        .ok_or_else(|| no("the kernel's family `thermal` has no group `event`"))
}

/// What a message says of CPUs; nothing when it is about something else.
///
/// # Errors
/// When it is not as the kernel makes them, saying what is wrong; nothing of it is to be believed then.
fn capabilities(message: &[u8], family: u16) -> Result<Vec<Capability>, String> {
    let buffer = NetlinkBuffer::new_checked(message).map_err(|e| e.to_string())?;
    if buffer.message_type() != family {
        return Ok(Vec::new());
    }
    let payload = buffer.payload();
    let Some((header, attributes)) = payload.split_at_checked(GENL_HEADER) else {
        return Err(format!("{} bytes are no message", payload.len()));
    };
    if header[0] != CAPABILITY_CHANGE {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for a in NlasIterator::new(attributes) {
        let a = a.map_err(|e| e.to_string())?;
        if a.kind() == CAPABILITY {
            nested(a.value(), &mut all)?;
        }
    }
    Ok(all)
}

/// Reads number, performance and efficiency of one CPU after the other.
fn nested(value: &[u8], all: &mut Vec<Capability>) -> Result<(), String> {
    let mut fields: [Option<u32>; 3] = [None; 3];
    for a in NlasIterator::new(value) {
        let a: NlaBuffer<&[u8]> = a.map_err(|e| e.to_string())?;
        let which = match a.kind() {
            ID => 0,
            PERFORMANCE => 1,
            EFFICIENCY => 2,
            // newer kernels may say more
            _ => continue,
        };
        let Ok(bytes) = <[u8; 4]>::try_from(a.value()) else {
            return Err(format!(
                "attribute {} has {} bytes in place of 4",
                a.kind(),
                a.value().len()
            ));
        };
        let number = u32::from_ne_bytes(bytes);
        if which > 0 && number > MOST {
            return Err(format!(
                "attribute {} is {number}, {MOST} is the most",
                a.kind()
            ));
        }
        if fields[which].replace(number).is_some() {
            return Err(format!("attribute {} twice for one CPU", a.kind()));
        }
        if let [Some(cpu), Some(performance), Some(efficiency)] = fields {
            all.push(Capability {
                cpu,
                performance,
                efficiency,
            });
            fields = [None; 3];
        }
    }
    match fields {
        [None, None, None] => Ok(()),
        _ => Err("a CPU without all of number, performance and efficiency".into()),
    }
}

#[cfg(test)]
#[path = "thread_director_tests.rs"]
mod tests;
