//! Viewers over RTMP: our own client, as `[[pull]]` uses it.

use media::Tag;
use media::rtmp::{Client, ClientEvent, Intent, Url};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::Failure;

/// Size of a read. A key frame takes a few of them.
const READ: usize = 1 << 15;

/// Plays a stream until it ends. `take` gets each tag.
///
/// # Errors
/// The server rejected the request, violated the protocol, or closed the connection.
pub(super) async fn play(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    url: &str,
    mut take: impl FnMut(&Tag),
) -> Result<(), Failure> {
    let mut client = Client::new(Url::parse(url)?, Intent::Play, Default::default(), &[7; 1_528]);
    let mut input = vec![0; READ];
    loop {
        while let Some(output) = client.poll_output() {
            stream.write_all(&output).await?;
        }
        stream.flush().await?;
        match stream.read(&mut input).await? {
            0 => return Err("the server closed the connection".into()),
            read => client.handle(&input[..read])?,
        }
        while let Some(event) = client.poll_event() {
            match event {
                ClientEvent::Tag(tag) => take(&tag),
                ClientEvent::Refused(reason) => return Err(reason.into()),
                ClientEvent::Ended => return Ok(()),
                ClientEvent::Playing | ClientEvent::Publishing => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use media::rtmp::{Config, Event, Server};
    use tokio::time::timeout;

    use super::super::media::{TagSource, published};
    use super::*;

    /// Serves one connection with headers and a picture, and ends the stream.
    async fn serve(mut stream: tokio::io::DuplexStream) -> Result<String, Failure> {
        let mut server = Server::new(Config::default(), &[2; 1_528]);
        let (mut input, mut name) = (vec![0; READ], String::new());
        loop {
            while let Some(event) = server.poll_event() {
                if let Event::Play(request) = event {
                    name = format!("{}/{}", request.app, request.stream);
                    server.accept();
                    TagSource::headers().iter().for_each(|tag| server.send_tag(tag));
                    server.send_tag(&TagSource::new().next().0);
                    server.end_of_stream();
                }
            }
            while let Some(output) = server.poll_output() {
                stream.write_all(&output).await?;
            }
            match stream.read(&mut input).await? {
                0 => return Ok(name),
                read => server.handle(&input[..read])?,
            }
        }
    }

    #[tokio::test]
    async fn a_viewer_requests_its_stream_and_takes_its_tags() {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let mut times = Vec::new();
        let play = play(ours, "rtmp://server.bench/live/bench7", |tag| times.push(published(tag)));
        let both = async { tokio::join!(play, serve(theirs)) };
        let (played, name) = timeout(Duration::from_secs(10), both).await.expect("both sides end");
        played.expect("the stream ended regularly");
        assert_eq!(name.expect("the server had no error"), "live/bench7");
        assert!(matches!(times[..], [None, None, Some(_)]), "{times:?}");
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_is_a_failure() {
        let (ours, theirs) = tokio::io::duplex(1 << 12);
        drop(theirs);
        let played = play(ours, "rtmp://server.bench/live/bench7", |_| {});
        let played = timeout(Duration::from_secs(10), played).await.expect("it ends");
        assert!(played.is_err());
    }
}
