//! An upstream over RTMP or RTMPS.

use std::time::Duration;

use bytes::BytesMut;
use media::{Tag, rtmp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::report::{PullError, Reason};
use crate::client::{Client, Connection, Failure, no_answer};
use crate::entropy::noise;

pub(super) struct RtmpSource {
    stream: Connection,
    client: rtmp::Client,
    input: BytesMut,
    /// The last write error.
    written: Result<(), Failure>,
    /// Maximum wait for a tag.
    limit: Duration,
}

impl RtmpSource {
    /// Connects. Tags may have at most `max_tag` bytes.
    pub(super) async fn open(
        client: &Client,
        url: &str,
        max_tag: usize,
        limit: Duration,
    ) -> Result<Self, PullError> {
        let target = rtmp::Url::parse(url).map_err(|e| PullError::new(Reason::Content, e))?;
        let connect = client.connect(target.tls, &target.host, target.port);
        let stream = timeout(limit, connect).await.map_err(|_| no_answer(limit))??;
        let config = rtmp::Config { max_message: max_tag, ..rtmp::Config::default() };
        let client = rtmp::Client::new(target, rtmp::Intent::Play, config, &noise());
        Ok(Self { stream, client, input: BytesMut::new(), written: Ok(()), limit })
    }

    /// Returns the next tag; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Tag>, PullError> {
        let limit = self.limit;
        timeout(limit, self.read()).await.unwrap_or_else(|_| Err(PullError::silence(limit)))
    }

    async fn read(&mut self) -> Result<Option<Tag>, PullError> {
        let failed = |e: std::io::Error| Failure(e.to_string());
        loop {
            while let Some(event) = self.client.poll_event() {
                match event {
                    rtmp::ClientEvent::Tag(tag) => return Ok(Some(tag)),
                    rtmp::ClientEvent::Refused(why) => {
                        return Err(PullError::new(Reason::Status, format!("refused: {why}")));
                    }
                    rtmp::ClientEvent::Ended => return Ok(None),
                    rtmp::ClientEvent::Playing | rtmp::ClientEvent::Publishing => {}
                }
            }
            let mut sent = false;
            while let Some(bytes) = self.client.poll_output() {
                sent = true;
                if let Err(e) = self.stream.write_all(&bytes).await {
                    // A rejecting server may have closed, but its reason can still be read.
                    self.written = Err(failed(e));
                }
            }
            if sent && let Err(e) = self.stream.flush().await {
                self.written = Err(failed(e));
            }
            self.input.reserve(65_536);
            if self.stream.read_buf(&mut self.input).await.map_err(failed)? == 0 {
                return self.written.clone().map(|()| None).map_err(PullError::from);
            }
            let handled = self.client.handle(&self.input);
            self.input.clear();
            handled.map_err(|e| PullError::new(Reason::Content, e))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::quic::crypto::KeyRing;
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use media::Kind;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::identity::Identity;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Starts an RTMPS server that sends players a key frame. Returns its port and certificate.
    async fn server() -> (u16, String) {
        let identity = Identity::development().expect("made");
        let keys = Arc::new(KeyRing::new(&[1; 32], &[(0, [1; 32])]));
        let chain = identity.chain.iter().map(|der| BASE64_STANDARD.encode(der));
        let pem = chain.map(|text| {
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        });
        let pem = pem.collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(identity.tcp(keys).expect("TLS"));
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(play(acceptor.clone(), socket, port));
            }
        });
        (port, pem)
    }

    async fn play(acceptor: TlsAcceptor, socket: TcpStream, port: u16) {
        let Ok(mut socket) = acceptor.accept(socket).await else { return };
        let mut server = rtmp::Server::new(rtmp::Config::default(), &noise());
        let mut input = BytesMut::new();
        while socket.read_buf(&mut input).await.unwrap_or(0) > 0 {
            server.handle(&input).expect("RTMP");
            input.clear();
            while let Some(event) = server.poll_event() {
                if let rtmp::Event::Play(request) = event {
                    assert_eq!((&*request.stream, &*request.query), ("demo", "key=word"));
                    assert_eq!(request.tc_url, format!("rtmps://localhost:{port}/live"));
                    server.accept();
                    let frame = [0x17, 1, 0, 0, 0, 9];
                    server.send_tag(&Tag::new(Kind::Video, 0, &frame).expect("short"));
                }
            }
            while let Some(bytes) = server.poll_output() {
                socket.write_all(&bytes).await.expect("written");
            }
            socket.flush().await.expect("written");
        }
    }

    #[tokio::test]
    async fn a_stream_is_pulled_over_rtmps() {
        let (port, pem) = server().await;
        let client = Client::of_pem(pem.as_bytes()).expect("trusted");
        let url = format!("rtmps://localhost:{port}/live/demo?key=word");
        let mut source = RtmpSource::open(&client, &url, 1_000_000, LIMIT).await.expect("open");
        let tag = source.next().await.expect("connected").expect("a tag");
        assert_eq!(tag.role(), media::Role::KeyFrame);
        let error = RtmpSource::open(Client::system(), &url, 1_000_000, LIMIT).await.err();
        let error = error.expect("untrusted certificate");
        assert!(error.text.contains("certificate"), "{error:?}");
    }
}
