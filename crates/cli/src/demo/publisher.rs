//! The demo's publisher: the built-in clip, over and over, by RTMP and in real time.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use media::rtmp::{Client, ClientEvent, Config, Intent, Url};
use media::{Tag, flv};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;

/// Ten seconds of ffmpeg's test sources at about 1.5 Mbps; `assets/make` makes it.
static CLIP: &[u8] = include_bytes!("../../../../assets/demo.flv");
/// Time from the clip's last tag to its first one of the next round: a frame.
const GAP_MS: u32 = 40;

/// The clip's tags.
fn clip() -> Result<Vec<Tag>, Error> {
    let mut reader = flv::Reader::new(flv::MAX_PAYLOAD);
    reader.read(CLIP).map_err(Error::at("the built-in clip"))?;
    Ok(core::iter::from_fn(|| reader.next_tag()).collect())
}

/// Publishes until it fails.
///
/// # Errors
/// One line: there is no connection, or the server refuses or ends it.
pub(super) async fn publish(server: SocketAddr, name: &str) -> Result<(), Error> {
    let clip = clip()?;
    let length = clip.iter().map(Tag::timestamp).max().unwrap_or(0) + GAP_MS;
    let url = Url::parse(&format!("rtmp://{server}/{name}")).map_err(Error::new)?;
    let mut stream = TcpStream::connect(server).await.map_err(Error::at("publisher"))?;
    let mut client = Client::new(url, Intent::Publish, Config::default(), &[7; 1_528]);
    let mut input = BytesMut::new();
    let mut begun: Option<Instant> = None;
    let mut next = 0;
    loop {
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Publishing => begun = Some(Instant::now()),
                ClientEvent::Refused(why) => return Err(Error::at("publisher rejected")(why)),
                ClientEvent::Ended => return Err("publisher: the server ended the stream".into()),
                ClientEvent::Playing | ClientEvent::Tag(_) => {}
            }
        }
        while let Some(bytes) = client.poll_output() {
            stream.write_all(&bytes).await.map_err(Error::at("publisher"))?;
        }
        let tag = &clip[next % clip.len()];
        let time = length * (next / clip.len()) as u32 + tag.timestamp();
        let due = begun.map(|begun| begun + Duration::from_millis(time.into()));
        tokio::select! {
            read = stream.read_buf(&mut input) => {
                if read.map_err(Error::at("publisher"))? == 0 {
                    return Err("publisher: the server closed the connection".into());
                }
                client.handle(&input).map_err(Error::at("publisher"))?;
                input.clear();
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                client.send_tag(&tag.clone().with_timestamp(time));
                next += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Role;

    #[test]
    fn the_clip_has_headers_first_and_a_key_frame_each_two_seconds() {
        let clip = clip().expect("readable");
        let roles: Vec<_> = clip.iter().take(3).map(Tag::role).collect();
        assert_eq!(roles, [Role::Metadata, Role::SequenceHeader, Role::SequenceHeader]);
        let keys: Vec<_> =
            clip.iter().filter(|tag| tag.role() == Role::KeyFrame).map(Tag::timestamp).collect();
        assert_eq!(keys.len(), 5);
        assert!(
            keys.windows(2).all(|pair| (1_900..2_100).contains(&(pair[1] - pair[0]))),
            "{keys:?}"
        );
        let bits = CLIP.len() as f64 * 8.0 / 10.0;
        assert!((1.3e6..1.7e6).contains(&bits), "{bits}");
    }
}
