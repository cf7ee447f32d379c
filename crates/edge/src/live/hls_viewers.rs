//! The viewers of an HLS stream or ladder, with their sessions. They have no connection of their
//! own, so a session ends some time after its last request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::passes::ViewerId;
use crate::sessions::Session;
use crate::sync::lock;

/// Time without requests after which a viewer's session ends.
pub(super) const VIEWER_IDLE: Duration = Duration::from_secs(20);

/// The viewers of an HLS stream or ladder.
#[derive(Debug, Default)]
pub struct HlsViewers(Mutex<HashMap<ViewerId, (Arc<Session>, Instant)>>);

impl HlsViewers {
    /// Removes idle viewers and viewers with an ended session.
    pub(crate) fn forget_idle(&self) {
        // Sessions end after the lock is released.
        let mut removed = Vec::new();
        lock(&self.0).retain(|_, (session, last_request)| {
            let stays = last_request.elapsed() < VIEWER_IDLE && !session.stay().is_over();
            if !stays {
                removed.push(session.clone());
            }
            stays
        });
    }

    /// Returns the viewer's session if it continues, and marks it active.
    pub(crate) fn session(&self, viewer: ViewerId) -> Option<Arc<Session>> {
        let session = {
            let mut viewers = lock(&self.0);
            let (session, last_request) =
                viewers.get_mut(&viewer).filter(|(s, _)| !s.stay().is_over())?;
            *last_request = Instant::now();
            session.clone()
        };
        session.touch();
        Some(session)
    }

    /// Opens a session with `open` for the first media of a viewer; `None` if `open` rejects or
    /// there are `most` viewers already.
    pub(crate) fn enter(
        &self,
        viewer: ViewerId,
        most: u64,
        open: impl FnOnce() -> Option<Arc<Session>>,
    ) -> Option<Arc<Session>> {
        if lock(&self.0).len() as u64 >= most {
            return None;
        }
        let session = open()?;
        // A replaced session is dropped after the lock is released.
        let _ended = lock(&self.0).insert(viewer, (session.clone(), Instant::now()));
        Some(session)
    }

    /// Removes all viewers. Their sessions end when the result is dropped.
    pub(crate) fn take(&self) -> Vec<Arc<Session>> {
        core::mem::take(&mut *lock(&self.0)).into_values().map(|(session, _)| session).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    #[cfg(test)]
    pub(super) fn set_idle(&self, viewer: ViewerId) {
        let long_ago = Instant::now().checked_sub(VIEWER_IDLE).expect("enough uptime");
        lock(&self.0).get_mut(&viewer).expect("entered").1 = long_ago;
    }
}
