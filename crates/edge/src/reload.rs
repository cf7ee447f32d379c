//! What is read again: the configuration file, on SIGHUP and when the operator asks for it, and the table of user groups,
//! whenever it is another one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::Error;
use crate::config::{Changes, Config};
use crate::service::{self, Notice};
use crate::state::Shared;

/// How often it is looked whether the table of user groups is another one.
const LOOK: Duration = Duration::from_secs(5);

/// Reads the file again, puts it in force, and tells the log and the service manager.
///
/// # Errors
/// One line, which is in the log as well: there is no file, or it is at fault. Nothing has changed then.
pub(crate) fn reload(shared: &Shared) -> Result<Changes, Error> {
    service::notify(Notice::Reloading);
    let result = read(shared);
    match &result {
        Ok((name, changes)) => {
            tracing::info!("{name} reloaded with the files that it names; {changes}");
            if !changes.at_start.is_empty() {
                let keys = changes.at_start.join(", ");
                tracing::warn!("{name}: other values wait for the next start: {keys}");
            }
        }
        Err(e) => tracing::error!("not reloaded: {e}"),
    }
    service::notify(Notice::Ready);
    result.map(|(_, changes)| changes)
}

fn read(shared: &Shared) -> Result<(String, Changes), Error> {
    let path = shared.file().ok_or_else(|| Error::new("there is no configuration file"))?;
    let changes = Config::load(path).and_then(|config| shared.reload(config))?;
    Ok((path.display().to_string(), changes))
}

/// Follows the file of the table of user groups for as long as the process lives.
pub(crate) async fn follow_table(shared: Arc<Shared>) {
    loop {
        let state = shared.state();
        let all = state.autoplex.clone();
        match &state.config.autoplex.table {
            // Large files take their time to read, and nobody waits for them.
            Some(path) => {
                let path = path.clone();
                // Fails only if the work panics, and then the old table stays.
                let _ = tokio::task::spawn_blocking(move || all.poll_file(&path)).await;
            }
            None => all.drop_table(),
        }
        drop(state);
        sleep(LOOK).await;
    }
}
