//! The thread that reads what control groups ask for: there may be thousands.

use super::tree::Tree;
use super::{GROUPS, MOST};
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel, Receiver, SyncSender};

/// Reads the groups whenever it is asked, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    ask: SyncSender<()>,
    read: Receiver<Tree>,
}

impl Watch {
    /// Reads the groups below `root` (`/`) when it is asked. None where there can be no thread, which is said.
    pub fn begin(root: &Path) -> Option<Watch> {
        let mount = root.join(GROUPS);
        let (ask, asked) = sync_channel(1);
        let (tell, read) = channel();
        let look = move || {
            while asked.recv().is_ok() {
                if tell.send(Tree::read(&mount, MOST)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("groups".into());
        match thread.spawn(look) {
            Ok(_) => Some(Watch { ask, read }),
            Err(e) => {
                log::warn!("weights and limits of control groups are not kept: no thread to read them: {e}");
                None
            }
        }
    }

    /// Has them read once more; not while they are being read and asked for already.
    pub fn ask(&self) {
        // full: it will be
        let _ = self.ask.try_send(());
    }

    /// What was read last, since the last call.
    pub fn read(&self) -> Option<Tree> {
        self.read.try_iter().last()
    }
}
