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

pub(crate) use http3::ResponseReader;
pub use kind::ClientKind;
pub(crate) use viewer::{ClientRequest, VirtualClient};

use crate::ends::Cipher;
use crate::error::ValueError;

/// Starts the client that `request` names.
///
/// # Errors
/// The client does not support the request.
pub(crate) fn start(request: ClientRequest) -> Result<Box<dyn VirtualClient>, ValueError> {
    match (request.kind, request.cipher) {
        (ClientKind::Noq, _) if request.times != 1 => Err(ValueError::Conflict(
            "several requests on one connection only work with the client `quinn`",
        )),
        (ClientKind::Quinn, _) => Ok(Box::new(quinn::ProtoClient::new(request))),
        (ClientKind::Noq, Cipher::Real) => Ok(Box::new(noq::ProtoClient::new(request))),
        (ClientKind::Noq, Cipher::Null) => {
            Err(ValueError::Conflict("the null cipher only works with the client `quinn`"))
        }
    }
}
