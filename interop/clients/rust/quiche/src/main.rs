//! HTTP/3 client on unmodified quiche with a plain blocking socket. With `unknown_version` quiche offers a reserved version
//! (RFC 9000, section 15) first, and another one after the server's Version Negotiation packet.

use interop_task::{Body, Response, Result, Round, Task, print_report};
use quiche::h3::{self, Header, NameValue};
use quiche::{Config, Connection, ConnectionId, RecvInfo};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A version of the pattern 0x?a?a?a?a, reserved for tests of version negotiation (RFC 9000, section 15).
const RESERVED_VERSION: u32 = 0xbaba_baba;
const MAX_UDP_PAYLOAD: usize = 1350;

fn main() -> Result<()> {
    let task = Task::from_args()?;
    let mut rounds = Vec::new();
    let outcome = run(&task, &mut rounds);
    print_report(rounds, outcome);
    Ok(())
}

fn run(task: &Task, rounds: &mut Vec<Round>) -> Result<()> {
    let mut session = None;
    for (index, paths) in task.rounds.iter().enumerate() {
        let mut client = Client::connect(task, session.as_deref(), task.early(index))?;
        let responses = client.fetch(paths)?;
        client.drive_for(task.linger())?;
        let early = client.requests_in_early_data && client.connection.is_resumed();
        rounds.push(Round {
            alpn: Some(String::from_utf8_lossy(client.connection.application_proto()).into_owned()),
            resumed: Some(client.connection.is_resumed()),
            early_data: Some(early),
            responses,
        });
        session = client.connection.session().map(<[u8]>::to_vec);
        client.connection.close(true, 0x100, b"done")?;
        client.flush()?;
    }
    Ok(())
}

/// A pending request: the headers and the received part of the body.
struct Pending {
    path: String,
    status: u16,
    body: Body,
}

struct Client<'a> {
    task: &'a Task,
    socket: UdpSocket,
    connection: Connection,
    http: Option<h3::Connection>,
    requests_in_early_data: bool,
}

impl<'a> Client<'a> {
    fn connect(task: &'a Task, session: Option<&[u8]>, early_data: bool) -> Result<Self> {
        let socket = UdpSocket::bind(task.local())?;
        let version =
            if task.unknown_version { RESERVED_VERSION } else { quiche::PROTOCOL_VERSION };
        let mut config = config(task, version)?;
        let local = socket.local_addr()?;
        let id = source_id(local.port())?;
        let id = ConnectionId::from_ref(&id);
        let mut connection =
            quiche::connect(Some(&task.host), &id, local, task.remote(), &mut config)?;
        if let Some(session) = session {
            connection.set_session(session)?;
        } else if early_data {
            return Err("no ticket for 0-RTT".into());
        }
        Ok(Self { task, socket, connection, http: None, requests_in_early_data: false })
    }

    fn fetch(&mut self, paths: &[String]) -> Result<Vec<Response>> {
        let mut waiting: Vec<&String> = paths.iter().rev().collect();
        let mut pending: HashMap<u64, Pending> = HashMap::new();
        let mut responses = Vec::new();
        self.flush()?;
        while responses.len() < paths.len() {
            self.ensure_http()?;
            self.request(&mut waiting, &mut pending)?;
            self.receive_bodies(&mut pending, &mut responses)?;
            if responses.len() < paths.len() {
                self.turn(Duration::from_secs(1))?;
            }
        }
        Ok(responses)
    }

    /// Starts HTTP/3 once application data may be sent: in early data, or when the handshake is complete.
    fn ensure_http(&mut self) -> Result<()> {
        let ready = self.connection.is_established() || self.connection.is_in_early_data();
        if self.http.is_none() && ready {
            self.http =
                Some(h3::Connection::with_transport(&mut self.connection, &h3::Config::new()?)?);
        }
        Ok(())
    }

    /// Sends waiting requests up to the server's stream limit.
    fn request(
        &mut self,
        waiting: &mut Vec<&String>,
        pending: &mut HashMap<u64, Pending>,
    ) -> Result<()> {
        let Some(http) = &mut self.http else { return Ok(()) };
        while let Some(path) = waiting.last() {
            let authority = format!("{}:{}", self.task.host, self.task.port);
            let headers = [
                Header::new(b":method", b"GET"),
                Header::new(b":scheme", b"https"),
                Header::new(b":authority", authority.as_bytes()),
                Header::new(b":path", path.as_bytes()),
            ];
            match http.send_request(&mut self.connection, &headers, true) {
                Ok(stream) => {
                    self.requests_in_early_data |= self.connection.is_in_early_data();
                    let entry = Pending { path: (*path).clone(), status: 0, body: Body::default() };
                    pending.insert(stream, entry);
                    waiting.pop();
                }
                Err(
                    h3::Error::StreamBlocked
                    | h3::Error::TransportError(quiche::Error::StreamLimit),
                ) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.flush()
    }

    fn receive_bodies(
        &mut self,
        pending: &mut HashMap<u64, Pending>,
        responses: &mut Vec<Response>,
    ) -> Result<()> {
        let Some(http) = &mut self.http else { return Ok(()) };
        let mut buffer = [0; 65536];
        loop {
            match http.poll(&mut self.connection) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let status = list.iter().find(|header| header.name() == b":status");
                    let status = status.ok_or("a response without :status")?;
                    if let Some(entry) = pending.get_mut(&stream) {
                        entry.status = std::str::from_utf8(status.value())?.parse()?;
                    }
                }
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(read) = http.recv_body(&mut self.connection, stream, &mut buffer) {
                        if let Some(entry) = pending.get_mut(&stream) {
                            entry.body.push(&buffer[..read]);
                        }
                    }
                }
                Ok((stream, h3::Event::Finished)) => {
                    if let Some(entry) = pending.remove(&stream) {
                        responses.push(entry.body.finish(&entry.path, entry.status));
                    }
                }
                Ok((_, h3::Event::Reset(code))) => {
                    return Err(format!("stream reset with {code:#x}").into());
                }
                Ok(_) => {}
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.flush()
    }

    fn drive_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) =
            end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            self.turn(left)?;
        }
        Ok(())
    }

    /// Waits at most `limit` for a datagram or the connection's timer, then receives all waiting datagrams.
    fn turn(&mut self, limit: Duration) -> Result<()> {
        let wait = self.connection.timeout().unwrap_or(limit).min(limit);
        self.socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        self.socket.set_nonblocking(false)?;
        let mut buffer = [0; 65536];
        // Bounded, so that the HTTP layer can drain its streams.
        for _ in 0..64 {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let info = RecvInfo { from, to: self.socket.local_addr()? };
                    match self.connection.recv(&mut buffer[..length], info) {
                        Ok(_) | Err(quiche::Error::Done) => {}
                        Err(error) => return Err(error.into()),
                    }
                    self.socket.set_nonblocking(true)?;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.socket.set_nonblocking(false)?;
        if self.connection.timeout().is_some_and(|timeout| timeout.is_zero()) {
            self.connection.on_timeout();
        }
        self.flush()?;
        if self.connection.is_closed() {
            let error = format!(
                "closed: local {:?}, peer {:?}",
                self.connection.local_error(),
                self.connection.peer_error()
            );
            return Err(error.into());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = [0; MAX_UDP_PAYLOAD];
        loop {
            match self.connection.send(&mut buffer) {
                Ok((length, info)) => {
                    self.socket.send_to(&buffer[..length], info.to)?;
                }
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns a connection ID that is unique in this process.
fn source_id(port: u16) -> Result<[u8; 16]> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    Ok((now ^ (u128::from(port) << 112)).to_be_bytes())
}

fn config(task: &Task, version: u32) -> Result<Config> {
    let mut config = Config::new(version)?;
    config
        .load_verify_locations_from_file(task.ca.to_str().ok_or("path of the CA is not UTF-8")?)?;
    config.verify_peer(true);
    config.set_application_protos(h3::APPLICATION_PROTOCOL)?;
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(MAX_UDP_PAYLOAD);
    config.set_max_send_udp_payload_size(MAX_UDP_PAYLOAD);
    config.set_initial_max_data(16 << 20);
    config.set_initial_max_stream_data_bidi_local(4 << 20);
    config.set_initial_max_stream_data_bidi_remote(4 << 20);
    config.set_initial_max_stream_data_uni(1 << 20);
    config.set_initial_max_streams_bidi(16);
    config.set_initial_max_streams_uni(16);
    if task.early_data {
        config.enable_early_data();
    }
    Ok(config)
}
