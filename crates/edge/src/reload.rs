//! Reloads: of the configuration file on SIGHUP or by the control API, of the table of user groups
//! whenever it changes, and of key sets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::Error;
use crate::config::{Changes, Config};
use crate::service::{self, Notice};
use crate::state::Shared;

/// Interval between checks of the table of user groups.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between checks whether a key set is due.
const KEYS_INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the configuration file, and notifies log and service manager.
///
/// # Errors
/// If there is no file, or it is invalid. One line, which is logged, too. Nothing has changed then.
pub(crate) fn reload(shared: &Shared) -> Result<Changes, Error> {
    service::notify(Notice::Reloading);
    let result = read(shared);
    match &result {
        Ok((name, changes)) => {
            tracing::info!("{name} reloaded with its files; {changes}");
            if !changes.at_start.is_empty() {
                let keys = changes.at_start.join(", ");
                tracing::warn!("{name}: new values require a restart: {keys}");
            }
        }
        Err(e) => tracing::error!("not reloaded: {e}"),
    }
    service::notify(Notice::Ready);
    result.map(|(_, changes)| changes)
}

fn read(shared: &Shared) -> Result<(String, Changes), Error> {
    let path = shared.file().ok_or_else(|| Error::new("the server has no configuration file"))?;
    let changes = Config::load(path).and_then(|config| shared.reload(config))?;
    Ok((path.display().to_string(), changes))
}

/// Reloads the table of user groups whenever its file changes, until the process ends.
pub(crate) async fn follow_table(shared: Arc<Shared>) {
    loop {
        let state = shared.state();
        let all = state.autoplex.clone();
        match &state.config.autoplex.table {
            // Reading a large file blocks.
            Some(path) => {
                let path = path.clone();
                // Fails only on a panic; the old table then remains.
                let _ = tokio::task::spawn_blocking(move || all.poll_file(&path)).await;
            }
            None => all.drop_table(),
        }
        drop(state);
        sleep(CHECK_INTERVAL).await;
    }
}

/// Loads the key sets of tokens when they are due, until the process ends.
pub(crate) async fn follow_key_sets(shared: Arc<Shared>) {
    loop {
        let state = shared.state();
        state.key_sets.tick(state.config.tokens.refresh, Instant::now());
        drop(state);
        sleep(KEYS_INTERVAL).await;
    }
}
