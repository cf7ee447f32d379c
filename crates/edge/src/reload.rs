//! The configuration file is read again: on SIGHUP, and when the operator asks for it.

use crate::Error;
use crate::config::{Changes, Config};
use crate::service::{self, Notice};
use crate::state::Shared;

/// Reads the file again, puts it in force, and tells the log and the service manager.
///
/// # Errors
/// One line, which is in the log as well: there is no file, or it is at fault. Nothing has changed then.
pub(crate) fn reload(shared: &Shared) -> Result<Changes, Error> {
    service::tell(Notice::Reloading);
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
    service::tell(Notice::Ready);
    result.map(|(_, changes)| changes)
}

fn read(shared: &Shared) -> Result<(String, Changes), Error> {
    let path = shared.file().ok_or_else(|| Error::new("there is no configuration file"))?;
    let changes = Config::load(path).and_then(|config| shared.reload(config))?;
    Ok((path.display().to_string(), changes))
}
