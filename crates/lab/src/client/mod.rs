//! Viewers: unmodified third-party clients that request a live stream over HTTP/3, or a number of
//! bytes on a stream. Experiments configure them but do not change their code.

mod download;
mod http3;
mod kind;
mod noq;
mod null;
mod proto;
mod quinn;
mod viewer;

pub(crate) use http3::Answer;
pub use kind::ClientKind;
pub(crate) use viewer::{Request, Viewer};

use crate::ends::Cipher;
use crate::error::ValueError;

/// Starts the client that `request` names.
///
/// # Errors
/// The client does not support the request.
pub(crate) fn start(request: Request) -> Result<Box<dyn Viewer>, ValueError> {
    match (request.kind, request.cipher) {
        (ClientKind::Noq, _) if request.times != 1 => Err(ValueError::Conflict(
            "several requests on one connection only work with the client `quinn`",
        )),
        (ClientKind::Quinn, _) => Ok(Box::new(quinn::Client::new(request))),
        (ClientKind::Noq, Cipher::Real) => Ok(Box::new(noq::Client::new(request))),
        (ClientKind::Noq, Cipher::Null) => {
            Err(ValueError::Conflict("the null cipher only works with the client `quinn`"))
        }
    }
}
